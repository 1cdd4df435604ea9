"""Queries that turn out to be computed from very many groups: run as a whole, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from relaqs_engine.execution import state
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator

import relaqs
from relaqs.session import Session

ROWS, GROUPS = 400_000, 150_000
SQL = "SELECT max(n) AS most, count(*) AS groups FROM (SELECT a, sum(b) AS n FROM t GROUP BY a)"
# By its columns alone it could have 150,000 groups. It has twelve.
FEW = (
    "SELECT c, n, rank() OVER (ORDER BY n) AS place FROM "
    "(SELECT a, c, d, sum(b) AS n FROM t WHERE a < 12 GROUP BY a, c, d)"
)

LISTS = "SELECT b % 3 AS g, median(a) AS n FROM t GROUP BY g ORDER BY g"
RANKED = "SELECT a, sum(b) AS n FROM t GROUP BY a ORDER BY n DESC, a LIMIT 5"
VALUES = "SELECT b % 3 AS g, count(DISTINCT a) AS n FROM t GROUP BY g ORDER BY g"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many-groups")
    columns = f"(i * 7919) % {GROUPS} AS a, i % 10 AS b, a % 1000 AS c, a % 3000 AS d"
    duckdb.sql(f"SELECT {columns} FROM range({ROWS}) AS t(i)").to_parquet(str(folder / "t.parquet"))
    relaqs.shuffle(str(folder / "t.parquet"), str(folder / "warehouse" / "t"), partitions=10)
    return folder


@pytest.fixture
def db(folder: Path) -> Iterator[Session]:
    with relaqs.connect(folder / "warehouse", threads=2) as session:
        yield session


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    return duckdb.sql(sql.replace("FROM t ", f"FROM '{folder}/t.parquet' ")).fetchall()


def test_it_runs_as_a_whole_once_its_groups_are_known(db: Session, folder: Path) -> None:
    assert db.plan(SQL).mode == "mergeable"
    *so_far, last = (query := db.online_sql(SQL))
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == rows(folder, SQL)
    assert not so_far
    assert (last.is_exact, query.plan.mode) == (True, "exact")
    assert "groups, too many" in last.warnings[0]


def test_it_begins_as_a_whole_when_it_is_asked_again(db: Session) -> None:
    first = db.online_sql(SQL).result()
    again = db.online_sql(SQL)
    assert again.plan.mode == "exact"
    assert (again.result().estimate, again.result().warnings) == (first.estimate, first.warnings)
    assert db.online_sql(SQL, seed=1).plan.mode == "mergeable"
    with pytest.raises(relaqs.TooManyGroupsError):
        db.online_sql(SQL, fallback="error").result()


def test_it_is_refused_where_it_must_not_run_as_a_whole(db: Session) -> None:
    with pytest.raises(relaqs.TooManyGroupsError, match="computed from about"):
        db.online_sql(SQL, fallback="error").result()


def test_few_groups_are_estimated_however_many_there_could_be(db: Session, folder: Path) -> None:
    assert db.plan(FEW).expected_groups > 100_000
    *so_far, last = db.online_sql(FEW)
    assert so_far
    answer = sorted(tuple(row.values()) for row in last.estimate.to_pylist())
    assert answer == sorted(rows(folder, FEW))


def test_estimates_from_many_groups_come_once_twice_as_much_was_read(db: Session, folder: Path) -> None:
    *so_far, last = db.online_sql(RANKED)
    fractions = [snapshot.fraction for snapshot in so_far]
    assert len(fractions) >= 2
    assert all(after >= 1.95 * before for before, after in pairwise(fractions))
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == rows(folder, RANKED)


def test_an_estimate_comes_after_each_of_so_many_mini_batches(db: Session) -> None:
    assert len(list(db.online_sql(RANKED, batches=8))) == 8


@pytest.fixture
def few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values may take 0.1 s of a core: 100,000 that are counted, or 330,000 in lists."""
    monkeypatch.setattr(state, "ALL_SECONDS", 0.1)


@pytest.mark.usefixtures("few_seconds")
@pytest.mark.parametrize("sql", [VALUES, LISTS])
def test_very_many_values_are_estimated_once_and_then_run_as_a_whole(
    db: Session, folder: Path, sql: str
) -> None:
    first, last = (query := db.online_sql(sql))
    assert first.fraction == pytest.approx(0.1, abs=0.01)
    assert (last.is_exact, query.plan.mode) == (True, "exact")
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == rows(folder, sql)
    assert "values, too many" in last.warnings[0]
    assert db.online_sql(sql).plan.mode == "mergeable"  # and begins with an estimate again


@pytest.mark.usefixtures("few_seconds")
@pytest.mark.parametrize(("options", "estimates"), [({"fallback": "error"}, 2), ({"batches": 5}, 4)])
def test_very_many_values_are_estimated_to_the_end_where_that_is_asked_for(
    db: Session, folder: Path, options: dict[str, Any], estimates: int
) -> None:
    *so_far, last = (query := db.online_sql(VALUES, **options))
    assert len(so_far) >= estimates
    assert (last.is_exact, query.plan.mode) == (True, "mergeable")
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == rows(folder, VALUES)


@pytest.mark.usefixtures("few_seconds")
def test_few_values_of_many_rows_are_estimated_to_the_end(
    db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Estimate] = []  # not as they are read: a slow reader misses some of them
    estimate = Estimator.estimate

    def kept(estimator: Estimator) -> Estimate:
        made.append(estimate(estimator))
        return made[-1]

    monkeypatch.setattr(Estimator, "estimate", kept)
    last = (query := db.online_sql("SELECT count(DISTINCT c) AS n FROM t")).result()
    assert len(made) >= 4
    assert (last.is_exact, query.plan.mode) == (True, "mergeable")
