"""The first partitions of a large table have heads: few units in files of their own, which are read first."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, append, compact, read_manifest, sampled, shuffle, verify
from relaqs_engine.layouts.assignment import heads_apart, in_turn
from relaqs_engine.layouts.build import building
from relaqs_engine.layouts.manifest_file import manifest_text, parsed_manifest
from relaqs_engine.layouts.partitions import PartitionWriter
from relaqs_engine.plans.aggregate import MergePlan

import relaqs
from relaqs.queries.folded import MergeableQueryJob

ROWS, PARTITIONS, HEADS = 240_000, 20, 2
COUNTED = "SELECT mode, count(*) AS n, avg(price) AS price FROM lines GROUP BY mode ORDER BY mode"


def lines(seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "order_id": np.sort(random.integers(0, ROWS // 4, ROWS)),
            "price": random.integers(100, 200, ROWS),
            "mode": random.choice(["AIR", "SHIP"], ROWS),
        }
    )


@pytest.fixture(autouse=True)
def heads_of_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "_HEADED_ROWS", ROWS // PARTITIONS)


@pytest.fixture(scope="module", params=["", "order_id"], ids=["rows", "orders"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The table laid out with heads, which no test may change."""
    folder = tmp_path_factory.mktemp("heads") / "lines"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled, "_HEADED_ROWS", ROWS // PARTITIONS)
        shuffle(lines(), folder, partitions=PARTITIONS, cluster_by=request.param or None)
    return folder


@pytest.fixture
def layout(made: Path, tmp_path: Path) -> Layout:
    """A copy of it, a test's own."""
    return read_manifest(shutil.copytree(made, tmp_path / "lines"))


def test_a_head_has_a_tenth_of_the_units_of_its_partition(layout: Layout) -> None:
    assert len(layout.heads) == HEADS
    assert layout.is_compact
    for partition, head in zip(layout.partitions, layout.heads, strict=False):
        assert partition.files[:1] == head.files
        assert len(partition.files) == 2
        assert 0.07 < head.unit_count / partition.unit_count < 0.13
        rows = duckdb.sql(
            f"SELECT _relaqs_block, count(*) FROM '{layout.directory / head.files[0].file}' GROUP BY ALL"
        ).fetchall()
        assert {i: count for i, count in enumerate(head.block_rows) if count} == dict(rows)
    assert verify(layout.directory).ok


def test_heads_and_the_rest_hold_each_row_once(layout: Layout) -> None:
    apart = heads_apart(layout, [1, 0])
    assert [len(each.files) for each in apart.partitions] == [1] * (PARTITIONS + HEADS)
    assert sum(each.row_count for each in apart.partitions) == ROWS
    assert sum(each.unit_count for each in apart.partitions) == layout.unit_count
    assert apart.partitions[PARTITIONS:] == (layout.heads[1], layout.heads[0])
    assert sorted(apart.paths) == sorted(layout.paths)


@pytest.mark.parametrize("way", ["by tasks", "by DuckDB"])
def test_each_way_of_writing_gives_the_same_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pq.write_table(lines(), source := tmp_path / "lines.parquet", row_group_size=50_000)
    usual = shuffle(source, tmp_path / "usual", partitions=PARTITIONS, cluster_by="order_id")
    monkeypatch.setattr(sampled, "write_in_one_pass", lambda *_: None)
    monkeypatch.setattr(PartitionWriter, "write", PartitionWriter.write if way == "by DuckDB" else None)
    with building(source, tmp_path / "other", force=False, memory_limit_bytes=1 << 30, threads=1) as build:
        spread = in_turn if way == "by tasks" else None
        other = sampled.sample(build, PARTITIONS, cluster_by="order_id", processes=spread)
    assert [each.block_rows for each in other.partitions] == [each.block_rows for each in usual.partitions]
    assert [each.block_rows for each in other.heads] == [each.block_rows for each in usual.heads]
    assert [each.unit_count for each in other.heads] == [each.unit_count for each in usual.heads]


def test_a_manifest_keeps_heads_and_refuses_those_of_another_file(layout: Layout) -> None:
    assert read_manifest(layout.directory).heads == layout.heads
    text = manifest_text(layout)
    assert parsed_manifest(layout.directory, text, "it").heads == layout.heads
    before_zones = manifest_text(replace(layout, zones=()))
    assert json.loads(before_zones)["manifest_version"] == 10
    assert parsed_manifest(layout.directory, before_zones, "it").heads == layout.heads
    wrong = replace(layout, heads=layout.heads[::-1])
    with pytest.raises(LayoutError, match="a head is not the first file of its partition"):
        parsed_manifest(layout.directory, manifest_text(wrong), "it")


def test_a_manifest_without_heads_is_that_of_programs_that_know_none(tmp_path: Path) -> None:
    small = shuffle(lines().slice(0, 1000), tmp_path / "small", partitions=PARTITIONS)
    assert not small.heads
    entries = json.loads(manifest_text(small))
    assert entries["manifest_version"] == 9
    assert "heads" not in entries


def test_a_table_that_grows_has_no_heads(layout: Layout) -> None:
    grown = append(lines(seed=1), layout.directory)
    assert not grown.heads
    assert not grown.is_compact
    assert grown.row_count == 2 * ROWS
    made = compact(layout.directory)
    assert made.is_compact
    assert not made.heads
    assert made.row_count == 2 * ROWS
    assert verify(layout.directory).ok


def test_a_compact_table_keeps_its_heads(layout: Layout) -> None:
    assert compact(layout.directory) == layout


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_query_that_needs_few_rows_reads_a_head_first_and_ends_exact(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    usual = MergePlan.predicted  # of a table that is small more is needed
    monkeypatch.setattr(MergePlan, "predicted", lambda plan, _: usual(plan, 1 / PARTITIONS / 10))
    files = [str(path) for path in layout.paths]
    truth = duckdb.sql(COUNTED.replace("lines", f"read_parquet({files})")).to_arrow_table()
    with relaqs.connect(layout.directory.parent) as session:
        with session.online_sql(COUNTED, target="90%", seed=seed) as query:
            first = query.result()
        assert first.fraction in [each.row_count / ROWS for each in layout.heads]
        with session.online_sql(COUNTED, seed=seed) as query:
            fractions = [snapshot.fraction for snapshot in query]
            assert query.result().estimate.to_pylist() == truth.to_pylist()
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


def test_a_query_that_needs_more_reads_whole_partitions(layout: Layout) -> None:
    with (
        relaqs.connect(layout.directory.parent) as session,
        session.online_sql(COUNTED, target="90%") as query,
    ):
        first = query.result()
    assert first.fraction > 0.9 / PARTITIONS


def test_units_far_larger_than_others_are_counted_by_partitions_with_heads(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = np.minimum((random.pareto(1.3, 60_000) + 1).astype(int), 5000)
    users = np.repeat(np.arange(len(sizes)), sizes)
    rows = pa.table({"user": users, "x": random.random(len(users))})
    layout = shuffle(rows, tmp_path / "views", partitions=10, cluster_by="user")
    assert layout.heads
    assert layout.outlier_units is not None
    assert layout.outlier_units.keys
    assert verify(layout.directory).ok
    sql = "SELECT count(*) AS n, sum(x) AS x, count(DISTINCT user) AS users FROM views"
    with relaqs.connect(tmp_path, threads=1, exact_below_seconds=0) as db:
        found = db.online_sql(sql, batches=5).result().estimate.to_pylist()
    assert found == [{"n": len(users), "x": pytest.approx(float(np.sum(rows["x"]))), "users": len(sizes)}]


@pytest.mark.parametrize("name", ["unit_count", "block_rows"])
def test_a_head_that_is_not_as_recorded_is_found(layout: Layout, name: str) -> None:
    first = layout.heads[0]
    changed = {"unit_count": first.unit_count - 1, "block_rows": first.block_rows[::-1]}
    heads = (replace(first, **{name: changed[name]}), *layout.heads[1:])
    (layout.directory / "manifest.json").write_bytes(manifest_text(replace(layout, heads=heads)))
    report = verify(layout.directory)
    assert not report.ok
    assert "has other units, or rows in its blocks" in str(report)


@pytest.mark.parametrize("seed", range(4))
def test_while_a_head_is_read_that_may_be_enough_nothing_else_is_begun(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    usual = MergePlan.predicted
    monkeypatch.setattr(MergePlan, "predicted", lambda plan, _: usual(plan, 1 / PARTITIONS / 10))
    begun, work = [], MergeableQueryJob._work
    monkeypatch.setattr(
        MergeableQueryJob, "_work", lambda job, batch: begun.append(batch.index) or work(job, batch)
    )
    with (
        relaqs.connect(layout.directory.parent, threads=2) as session,
        session.online_sql(COUNTED, target="90%", seed=seed) as query,
    ):
        assert query.result().fraction in [each.row_count / ROWS for each in layout.heads]
    assert begun == [0]


@pytest.mark.parametrize(("target", "begun"), [("90%", 1), ("20%", 1), ("1.5%", 2), (None, 2)])
def test_nothing_is_begun_beside_what_is_predicted_to_be_enough(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, target: str | None, begun: int
) -> None:
    usual, kept, ahead = MergePlan.predicted, MergeableQueryJob.fold_state, list[int]()
    monkeypatch.setattr(MergePlan, "predicted", lambda plan, _: usual(plan, 1.5 / PARTITIONS))

    def fold(job: MergeableQueryJob, *rest: object) -> object:
        ahead.append(job.issued - job.folded)
        return kept(job, *rest)

    monkeypatch.setattr(MergeableQueryJob, "fold_state", fold)
    with (
        relaqs.connect(layout.directory.parent, threads=1, exact_below_seconds=0) as session,
        session.online_sql(COUNTED, target=target) as query,
    ):
        query.result()
    assert ahead[0] == begun


JOINED = "lines JOIN orders USING (order_id)"
SHAPES = [
    "SELECT mode, count(*) AS n, sum(price) AS s, min(price) AS low FROM lines GROUP BY mode ORDER BY mode",
    f"SELECT zone, count(*) AS n, avg(price) AS mean FROM {JOINED} GROUP BY zone ORDER BY zone",
    f"SELECT count(*) AS n FROM {JOINED} WHERE zone = 3 AND mode = 'AIR'",
    "SELECT count(*) AS n FROM orders AS o WHERE EXISTS (FROM lines AS l WHERE l.order_id = o.order_id "
    "AND l.price > 190)",
    "SELECT date_trunc('day', moment) AS day, sum(price) AS s FROM lines GROUP BY day ORDER BY day",
    "SELECT mode, median(price) AS m, count(DISTINCT price) AS d FROM lines GROUP BY mode ORDER BY mode",
    "SELECT mode, avg(price) AS a FROM lines GROUP BY mode HAVING avg(price) > 100 ORDER BY a DESC LIMIT 1",
    "SELECT mode, n, rank() OVER (ORDER BY n) AS place FROM (SELECT mode, count(*) AS n FROM lines "
    "GROUP BY mode) ORDER BY place",
    "SELECT count(*) AS n FROM lines WHERE price > (SELECT avg(price) FROM lines)",
    "SELECT mode FROM lines INTERSECT SELECT mode FROM lines WHERE price > 150 ORDER BY mode",
    "SELECT avg(n) AS mean FROM (SELECT order_id, count(*) AS n FROM lines GROUP BY order_id)",
    "SELECT sum(price) / count(DISTINCT order_id) AS each FROM lines",
]


@pytest.mark.slow
@pytest.mark.parametrize("is_appended", [False, True])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_questions_of_all_shapes_end_as_duckdbs_over_layouts_with_heads(
    tmp_path: Path, zone: str, is_appended: bool
) -> None:
    moments = "make_timestamptz(1700000000000000 + order_id * 60000000)"
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        connection.register("given", lines())
        connection.register("more", lines(1))
        laid_out = connection.sql(f"SELECT *, {moments} AS moment FROM given").to_arrow_table()
        added = connection.sql(f"SELECT *, {moments} AS moment FROM more LIMIT 5000").to_arrow_table()
        numbers = np.arange(ROWS // 4)
        orders = pa.table({"order_id": numbers, "zone": numbers % 7})
        for name, rows in (("lines", laid_out), ("orders", orders)):
            made = shuffle(rows, tmp_path / name, partitions=PARTITIONS, cluster_by="order_id")
            assert len(made.heads) == (HEADS if name == "lines" else 0)  # orders have fewer rows
        if is_appended:
            append(added, tmp_path / "lines")
            laid_out = pa.concat_tables([laid_out, added])
        connection.register("lines", laid_out)
        connection.register("orders", orders)
        expected = {sql: connection.sql(sql).to_arrow_table().to_pylist() for sql in SHAPES}
    with relaqs.connect(tmp_path, threads=1, timezone=zone, exact_below_seconds=0) as db:
        for sql in SHAPES:
            found = db.online_sql(sql).result().estimate.to_pylist()
            assert len(found) == len(expected[sql]), sql
            for row, right in zip(found, expected[sql], strict=True):
                assert row == {
                    name: pytest.approx(value) if isinstance(value, float) else value
                    for name, value in right.items()
                }, sql
