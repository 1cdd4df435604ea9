"""Queries over a table that is being laid out: estimates from the first part, the exact answer as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.build import Build
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.composite import SampledThenExact
from relaqs_engine.plans.plan import WholePlan

import relaqs
from relaqs.queries import tables
from tests.relaqs.sessions import every_snapshot
from tests.rows import rows_of

ROWS = 300_000
MEANS = "SELECT zone, avg(fare) AS fare, count(*) AS n FROM trips WHERE id > 9 GROUP BY zone ORDER BY zone"


class Held:
    """Holds the thread that lays out, from when it has told of the first part until it is let go."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._is_there, self._may_go = threading.Event(), threading.Event()

    def __call__(self, message: str) -> None:
        self.messages.append(message)
        if message.startswith("a first part"):
            self._is_there.set()
            assert self._may_go.wait(60)

    def wait(self) -> None:
        assert self._is_there.wait(60)

    def let_go(self) -> None:
        self._may_go.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr(tables, "announce", held)
    monkeypatch.setattr(tables, "NOTABLE_SECONDS", 0.0)
    yield held
    held.let_go()


@pytest.fixture
def db(tmp_path: Path, held: Held) -> Iterator[relaqs.Session]:
    """A session in which trips has a first part."""
    for name, rows in (("trips", ROWS), ("orders", ROWS // 2), ("zones", 7)):
        duckdb.sql(
            f"SELECT i AS id, i % 7 AS zone, (hash(i) % 1000) / 8 AS fare FROM range({rows}) AS t(i)"
        ).write_parquet(str(tmp_path / f"{name}.parquet"))
    files = {name: tmp_path / f"{name}.parquet" for name in ("trips", "orders", "zones")}
    with relaqs.connect(tables=files, cache_directory=tmp_path / "cache", threads=2) as db:
        for _ in range(2):
            db.online_sql(MEANS).result()
        held.wait()
        yield db
        held.let_go()


def settled(db: relaqs.Session) -> None:
    assert db._open_tables.wait(60)


def by_duckdb(sql: str, folder: Path) -> object:
    with duckdb.connect() as connection:
        for path in folder.glob("*.parquet"):
            connection.sql(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        return connection.sql(sql).fetchall()


def test_estimates_come_from_the_first_part_and_the_exact_answer_from_the_plain_file(
    db: relaqs.Session, tmp_path: Path, held: Held
) -> None:
    table = db.tables["trips"]
    assert isinstance(table, PlainTable)
    assert table.first_part is not None
    plan = db.plan(MEANS)
    assert isinstance(plan, SampledThenExact)
    assert plan.sample_may_go
    assert not plan.summarized
    assert plan.plain_tables == ("trips",)
    first, *_, last = snapshots = every_snapshot(lambda: db.online_sql(MEANS))
    share = len(table.first_part.partitions) / 30  # about equal partitions, of 10,000 rows each
    assert [snapshot.is_exact for snapshot in snapshots] == [*([False] * (len(snapshots) - 1)), True]
    assert 0 < first.fraction < 1.1 * share
    assert 0 < first.error < 0.2
    assert rows_of(last.estimate) == by_duckdb(MEANS, tmp_path)
    for row, (_, fare, n) in zip(first.table.to_pylist(), rows_of(last.estimate), strict=True):
        # Seven groups of two columns: three half-widths, six standard errors, are passed once in 40 million.
        for name, truth in (("fare", fare), ("n", n)):
            assert abs(row[name] - truth) <= 3 * (row[f"{name}_high"] - row[f"{name}_low"]) / 2
            assert row[f"{name}_certified"]


def test_numbers_of_values_are_known_when_the_layout_is_there(
    db: relaqs.Session, tmp_path: Path, held: Held
) -> None:
    """Neither of plain files nor of a first part, whose answer ends exact all the same."""
    sql = "SELECT count(DISTINCT zone) AS n FROM trips"
    for is_there in (False, True):
        if is_there:
            held.let_go()
            settled(db)
        looks = [*db.online_sql(sql, batches=8)]
        assert looks[-1].table.column("n").to_pylist() == [7]
        assert by_duckdb(sql, tmp_path) == [(7,)]
        assert all((look.error == 0.0) == is_there for look in looks[:-1])
        assert len(looks) > 1 or not is_there
        assert (db.tables["trips"].column("zone").distinct is not None) == is_there


def test_a_summary_is_estimated_from_the_first_part(db: relaqs.Session, tmp_path: Path, held: Held) -> None:
    plan = db.plan("SUMMARIZE trips")
    assert isinstance(plan, SampledThenExact)
    assert plan.summarized
    first, *_, last = every_snapshot(lambda: db.online_sql("SUMMARIZE trips"))
    assert not first.is_exact
    fare = next(row for row in first.table.to_pylist() if row["column_name"] == "fare")
    assert float(fare["avg_low"]) < float(fare["avg"]) < float(fare["avg_high"])
    (wanted,) = by_duckdb(
        "SELECT min, max, count FROM (SUMMARIZE trips) WHERE column_name = 'fare'", tmp_path
    )
    found = last.estimate.select(["column_name", "min", "max", "count"]).to_pylist()
    assert {"column_name": "fare", "min": wanted[0], "max": wanted[1], "count": wanted[2]} in found


def test_a_plan_of_before_is_answered_when_the_layout_is_there(
    db: relaqs.Session, tmp_path: Path, held: Held
) -> None:
    plan = db.plan(MEANS)
    held.let_go()
    settled(db)
    assert db.tables["trips"].is_sampled
    assert isinstance(db.plan(MEANS), MergePlan)
    assert isinstance(plan, SampledThenExact)
    *sampled, last = every_snapshot(lambda: db.start(plan, relaqs.QueryOptions()))
    assert sampled
    assert rows_of(last.estimate) == by_duckdb(MEANS, tmp_path)


def test_a_layout_that_fails_takes_its_first_part_along(
    db: relaqs.Session, tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise LayoutError("no luck")

    monkeypatch.setattr(Build, "publish", fail)
    plan = db.plan(MEANS)
    held.let_go()
    settled(db)
    assert held.messages[-1] == "trips was not laid out: no luck"
    assert isinstance(db.plan(MEANS), WholePlan)
    last = db.start(plan, relaqs.QueryOptions()).result()
    assert rows_of(last.estimate) == by_duckdb(MEANS, tmp_path)
    assert "was not laid out after all" in last.warnings[0]
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_damaged_file_of_the_first_part_is_an_error(db: relaqs.Session) -> None:
    table = db.tables["trips"]
    assert isinstance(table, PlainTable)
    assert table.first_part is not None
    for path in table.first_part.paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 1
        path.write_bytes(content)
    with pytest.raises(relaqs.DataError, match="does not hold the bytes that were written"):
        db.online_sql("SELECT sum(fare), sum(id), sum(zone) FROM trips").result()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM trips AS a JOIN trips AS b ON a.id = b.id",
        "SELECT count(*) AS n FROM trips WHERE fare > (SELECT avg(fare) FROM trips)",
        "SELECT count(*) AS n FROM trips JOIN orders USING (id)",
        "SELECT count(*) AS n FROM zones",
        "SELECT sum(n) OVER (ORDER BY zone) FROM (SELECT zone, count(*) AS n FROM trips GROUP BY zone)",
        "SELECT id FROM trips WHERE fare > 124 ORDER BY id",
    ],
)
def test_the_first_part_never_stands_for_the_table(db: relaqs.Session, tmp_path: Path, sql: str) -> None:
    assert isinstance(db.plan(sql), WholePlan)
    assert sorted(rows_of(db.online_sql(sql).result().estimate)) == sorted(by_duckdb(sql, tmp_path))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT zones.id, sum(trips.fare) AS fare FROM trips JOIN zones ON trips.zone = zones.zone "
        "WHERE zones.id <> 3 GROUP BY 1 ORDER BY 1",
        "SELECT quantile_disc(fare, 0.5) AS median, count(DISTINCT zone) AS zones, max(id) AS id FROM trips",
        "SELECT zone, count(*) AS n FROM trips GROUP BY 1 HAVING count(*) > 9 ORDER BY n DESC, zone LIMIT 3",
    ],
)
def test_what_can_be_estimated_is(db: relaqs.Session, tmp_path: Path, sql: str) -> None:
    plan = db.plan(sql)
    assert isinstance(plan, SampledThenExact)
    assert plan.sample_may_go
    assert not plan.summarized
    *sampled, last = every_snapshot(lambda: db.online_sql(sql))
    assert sampled
    assert all(snapshot.fraction < 0.1 for snapshot in sampled)
    assert rows_of(last.estimate) == by_duckdb(sql, tmp_path)


def test_it_is_explained(db: relaqs.Session) -> None:
    text = db.explain(MEANS)
    assert "why: trips is being laid out: estimates come from its first part" in text
    assert "exact SQL, over whole tables:" in text


def test_a_target_is_reached_without_reading_the_file_whole(db: relaqs.Session) -> None:
    last = db.online_sql("SELECT avg(fare) AS fare FROM trips", target="20%").result()
    assert not last.is_exact
    assert last.fraction < 0.1
