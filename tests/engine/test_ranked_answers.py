"""ORDER BY an estimate with LIMIT, where the query is computed from other answers: which rows stay."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_bootstrap.arrays import BoolArray
from relaqs_engine.execution.certain_rows import ranked_rows
from relaqs_engine.execution.estimate import CellIntervals
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.aggregate import RIVALS
from relaqs_engine.plans.composite import Ranking

import relaqs
from tests.rows import rows_of

SEEDS = 12
_BOTH = "(SELECT k, x FROM a UNION ALL SELECT k, y FROM b)"
QUERIES = [
    f"SELECT k, sum(x) AS n FROM {_BOTH} GROUP BY k ORDER BY n DESC LIMIT 4",
    f"SELECT k, sum(x) AS n FROM {_BOTH} GROUP BY k ORDER BY sum(x), k LIMIT 3",
    "SELECT k, n FROM (SELECT k, sum(x) AS n FROM a GROUP BY k UNION ALL SELECT 100 + k, count(*) FROM b "
    "GROUP BY k) AS u ORDER BY 2 DESC LIMIT 5",
    "SELECT k, sum(x) / sum(sum(x)) OVER () AS n FROM a GROUP BY k ORDER BY n DESC LIMIT 4",
]


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """Twelve groups, each a fifth smaller than the one before, in two tables."""
    key = "floor(-ln(1 - hash(i, {0}) / 2.0**64 * 0.93) * 4.5)::INT"
    sql = f"SELECT {key} AS k, (hash(i, {{1}}) % 100)::INT AS {{2}}"
    with duckdb.connect() as connection:
        return {
            "a": connection.sql(f"{sql.format(1, 2, 'x')} FROM range(12000) AS t(i)").to_arrow_table(),
            "b": connection.sql(f"{sql.format(3, 4, 'y')} FROM range(6000) AS t(i)").to_arrow_table(),
        }


@pytest.fixture(scope="module")
def session(tables: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> relaqs.Session:
    folder = tmp_path_factory.mktemp("ranked")
    for seed, (name, table) in enumerate(tables.items()):
        shuffle(table, folder / name, partitions=20, seed=seed)
    return relaqs.connect(folder, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("sql", QUERIES)
def test_certain_rows_stay_and_their_cells_hold(
    sql: str, session: relaqs.Session, tables: dict[str, pa.Table]
) -> None:
    """At a third of the rows. Rows of one seed move together, so the seeds count.

    A row is certain at 99.8 % for each rival, so of 12 seeds one with a wrong row is luck, and two are not.
    """
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        truth = dict(rows_of(connection.sql(sql).to_arrow_table()))
    certain, wrong, held = 0, 0, []
    for seed in range(SEEDS):
        with session.online_sql(sql, batches=3, seed=seed) as query:
            snapshot = next(query)
        assert len(snapshot) == len(truth)
        assert snapshot.certain_rows is not None
        sure = snapshot.certain_rows.to_pylist()
        rows = [row for row, stays in zip(snapshot.table.to_pylist(), sure, strict=True) if stays]
        certain += len(rows)
        wrong += any(row["k"] not in truth for row in rows)
        held += [
            row["n_low"] <= float(truth[row["k"]]) <= row["n_high"]
            for row in rows
            if row["n_certified"] and row["k"] in truth
        ]
        assert not any(
            row["n_certified"]
            for row, stays in zip(snapshot.table.to_pylist(), sure, strict=True)
            if not stays
        )
    assert certain >= SEEDS / 2
    assert wrong <= 1
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("sql", QUERIES)
def test_the_end_is_that_of_duckdb(sql: str, session: relaqs.Session, tables: dict[str, pa.Table]) -> None:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        wanted = rows_of(connection.sql(sql).to_arrow_table())
    found = rows_of(session.online_sql(sql, batches=3).result().estimate)
    assert [row[0] for row in found] == [row[0] for row in wanted]
    assert [float(row[1]) for row in found] == pytest.approx([float(row[1]) for row in wanted])


def _cells(values: list[float], half: float, certified: BoolArray | None = None) -> CellIntervals:
    value = np.array(values)[:, None]
    doubt = np.zeros(value.shape, int) if certified is None else (~certified[:, None]).astype(int)
    return CellIntervals(value, value - half, value + half, doubt, np.zeros(value.shape))


def test_a_row_stays_where_fewer_than_limit_may_be_before_it() -> None:
    """10 and 9 may change places, and both stay. 5 may lose its place to 4.5."""
    cells = _cells([10.0, 9.0, 5.0, 4.5], 0.6)
    found = ranked_rows(Ranking(0, descends=True, shown=3), cells, cells, 0)
    assert found.certain.tolist() == [True, True, False]
    assert found.slack[0] == pytest.approx((9.4 - 5.1) / 0.6)


def test_a_row_that_is_not_certified_may_be_anywhere() -> None:
    cells = _cells([10.0, 9.0, 5.0, 1.0], 0.1, np.array([True, True, True, False]))
    ranking = Ranking(0, descends=True, shown=3)
    assert ranked_rows(ranking, cells, cells, 0).certain.tolist() == [True, True, False]
    cells = _cells([10.0, 9.0], 0.1, np.array([True, False]))
    assert ranked_rows(ranking, cells, cells, 0).certain.tolist() == [True, False]


def test_the_smallest_come_first_where_it_ascends() -> None:
    cells = _cells([1.0, 2.0, 2.1], 0.2)
    ranking = Ranking(0, descends=False, shown=2)
    assert ranked_rows(ranking, cells, cells, 0).certain.tolist() == [True, False]


def test_rows_behind_the_last_rival_may_be_as_good_as_its_interval_is_wide() -> None:
    values = [100.0, *np.linspace(50.0, 40.0, RIVALS)]
    ranking = Ranking(0, descends=True, shown=1)
    narrow, wide = _cells(values, 0.1), _cells(values, 30.1)
    assert ranked_rows(ranking, narrow, narrow, 0).certain.tolist() == [True]
    assert ranked_rows(ranking, wide, wide, 0).certain.tolist() == [False]


def test_many_rows_are_compared_without_each_pair() -> None:
    """A hundred thousand rows squared would be 80 GB."""
    shown = 100_000
    cells = _cells(np.arange(shown + 10.0, 0.0, -1.0).tolist(), 1.6)
    found = ranked_rows(Ranking(0, descends=True, shown=shown), cells, cells, 0)
    assert np.flatnonzero(~found.certain).tolist() == [shown - 3, shown - 2, shown - 1]


@pytest.mark.parametrize(("order", "value"), [("DESC", 1_000), ("ASC", -1_000)])
def test_a_tail_of_tiny_groups_does_not_hide_the_large_ones(
    tmp_path_factory: pytest.TempPathFactory, order: str, value: int
) -> None:
    """More tiny groups are far out than a ranking reads rivals. At the end they are first, as in DuckDB."""
    rows = duckdb.sql(
        "SELECT i % 6 AS k, (i * 7919 % 1000)::INT AS x FROM range(30000) AS t(i) UNION ALL "
        f"SELECT 6 + i % {12 * RIVALS}, {value} + i % 7 FROM range({24 * RIVALS}) AS t(i)"
    ).to_arrow_table()
    folder = tmp_path_factory.mktemp("tail")
    shuffle(rows, folder / "t", partitions=20)
    sql = f"SELECT k, avg(x) AS mean FROM t GROUP BY k ORDER BY mean {order}, k LIMIT 4"
    with relaqs.connect(folder, threads=1) as session, duckdb.connect() as connection:
        connection.register("t", rows)
        first, *_, last = session.online_sql(sql, batches=10)
        assert last.is_exact
        assert rows_of(last.estimate) == connection.sql(sql).fetchall()
        assert all(row["k"] < 6 for row in first.table.to_pylist())
        assert first.certain_rows is not None
        assert not any(first.certain_rows.to_pylist())  # any of the tail may be first
        [said] = [each for each in first.warnings if " groups come last so far, and may be first" in each]
        assert int(said.split(" ")[0].replace(",", "")) > RIVALS
        total = next(session.online_sql(sql.replace("avg(x)", "sum(x)"), batches=10))
        assert not any("come last so far" in each for each in total.warnings)
