"""Laws of merging: how rows are split into partitions, tasks, mini-batches and blocks changes no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, Database, DatabaseConfig
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.state import GroupState
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, Column, Layout, Partition, StoredFile
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import BLOCK, STATE, MergePlan
from relaqs_engine.plans.plan import IntervalRequest, MiniBatch
from relaqs_engine.sql.binder import Binder

from tests.engine.world import difference, own_columns

QUERY = """
SELECT g, count(*) AS rows, count(i) AS n, sum(i) AS i, sum(d) AS d, sum(x) AS x, avg(i) AS mean,
    min(t) AS first, max(i) AS most, stddev(x) AS spread, var_pop(x) AS var, sum(d) / count(*) AS per_row,
    sum(i) FILTER (WHERE x > 0) AS some
FROM figures GROUP BY g
"""
WITHOUT_GROUPS = QUERY.replace("SELECT g,", "SELECT").replace("GROUP BY g", "")
DISTINCT = "SELECT g, count(DISTINCT i) AS kinds, count(*) AS rows, sum(d) AS d FROM figures GROUP BY g"
PARTITIONS = 6

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("i", pa.int64()),
        ("d", pa.decimal128(12, 2)),
        ("x", pa.float64()),
        ("t", pa.string()),
        (BLOCK_COLUMN, pa.uint8()),
        ("partition", pa.int32()),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", None]),
        st.none() | st.integers(-(2**62), 2**62),
        st.none() | st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100),
        st.none() | st.floats(-1e3, 1e3),
        st.none() | st.text(max_size=3),
        st.integers(0, BLOCK_COUNT - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=1,
    max_size=40,
)


@dataclass(frozen=True, slots=True)
class Split:
    """How partitions are folded: tasks of several each, mini-batches of several tasks, by block or not."""

    batches: tuple[MiniBatch, ...]


@st.composite
def splits(draw: Any) -> Split:
    order = draw(st.permutations(range(PARTITIONS)))
    cuts = draw(st.lists(st.booleans(), min_size=PARTITIONS - 1, max_size=PARTITIONS - 1))
    tasks = [[order[0]]]
    for partition, cut in zip(order[1:], cuts, strict=True):
        if cut:
            tasks.append([partition])
        else:
            tasks[-1].append(partition)
    batches: list[MiniBatch] = []
    while tasks:
        taken = draw(st.integers(1, len(tasks)))
        chosen, tasks = tasks[:taken], tasks[taken:]
        batches.append(MiniBatch(len(batches), tuple(map(tuple, chosen)), draw(st.booleans())))
    return Split(tuple(batches))


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(DatabaseConfig((), 1 << 28))
    yield opened
    opened.close()


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def layout_of(rows: Sequence[tuple[Any, ...]]) -> Layout:
    """Return a layout that says where the rows are. Its files are never read."""
    types = ("VARCHAR", "BIGINT", "DECIMAL(12,2)", "DOUBLE", "VARCHAR")
    columns = [Column(f.name, t, None, None, 0, 4, 0) for f, t in zip(SCHEMA, types, strict=False)]
    counts = [[0] * BLOCK_COUNT for _ in range(PARTITIONS)]
    for *_, block, partition in rows:
        counts[partition][block] += 1
    files = [StoredFile(f"{i}", sum(c), 0, "") for i, c in enumerate(counts)]
    partitions = [Partition((file,), sum(c), sum(c), tuple(c)) for file, c in zip(files, counts, strict=True)]
    path = Path("/nowhere/figures")
    return Layout(
        "figures",
        path,
        "sampled",
        tuple(columns),
        len(rows),
        "",
        partitions=tuple(partitions),
        unit_count=len(rows),
    )


@cache
def plan_of(sql: str) -> MergePlan:
    """Return the plan, which does not depend on which rows there are."""
    catalog = Catalog((layout_of([("a", 0, None, None, None, 0, 0)]),))
    plan = plan_query(sql, catalog, Binder(catalog))
    assert isinstance(plan, MergePlan)
    return plan


class Fold:
    """One query over in-memory rows, folded by a split."""

    def __init__(self, database: Database, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self.layout = layout_of(rows)
        self.plan = plan_of(sql)
        self.cursor: Cursor = database.cursor()
        self.cursor.register("all_rows", table_of(rows))
        self.state = GroupState(self.plan, self.layout, self.cursor)

    def partial(self, partitions: Sequence[int], *, by_block: bool) -> pa.Table:
        """Return what a task over these partitions gives."""
        sql = self.plan.partial.by_block_sql if by_block else self.plan.partial.sql
        chosen = f"(FROM all_rows WHERE partition IN ({', '.join(map(str, partitions))}))"
        return self.cursor.table(sql.replace(self.plan.streams[0].token, chosen))

    def answer(self) -> pa.Table:
        estimator = Estimator(self.plan, self.layout, self.state, self.cursor, IntervalRequest())
        return own_columns(estimator.exact())

    def run(self, split: Split) -> pa.Table:
        for batch in split.batches:
            partials = [self.partial(task, by_block=batch.by_block) for task in batch.tasks]
            self.state.fold(batch, partials)
        return self.answer()


def plain(database: Database, sql: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    cursor = database.cursor()
    cursor.register("figures", table_of(rows))
    return cursor.table(sql)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([QUERY, WITHOUT_GROUPS, DISTINCT]), ROWS, splits())
def test_any_split_gives_the_answer_of_the_whole(
    database: Database, sql: str, rows: list[tuple[Any, ...]], split: Split
) -> None:
    got = Fold(database, sql, rows).run(split)
    assert list(difference(got, plain(database, sql, rows), ordered=False)) == []


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([QUERY, WITHOUT_GROUPS]), ROWS, splits(), st.integers(1, PARTITIONS - 1))
def test_merging_is_associative(
    database: Database, sql: str, rows: list[tuple[Any, ...]], split: Split, first: int
) -> None:
    """What was merged already is a partial like any other: (a + b) + c is a + b + c."""
    fold = Fold(database, sql, rows)
    order = [partition for batch in split.batches for partition in batch.partitions]
    pieces = [fold.partial([partition], by_block=False) for partition in order]
    merged = merged_partial(fold, pieces[:first])
    batch = MiniBatch(0, (tuple(order[:first]), *((partition,) for partition in order[first:])), False)
    fold.state.fold(batch, [merged, *pieces[first:]])
    assert list(difference(fold.answer(), plain(database, sql, rows), ordered=False)) == []


def merged_partial(fold: Fold, pieces: Sequence[pa.Table]) -> pa.Table:
    """Return partials merged to one row per group, by the plan's own merge."""
    table = pa.concat_tables(pieces)
    with fold.cursor.registered(**{STATE: table}):
        merged = fold.cursor.table(fold.plan.texts.merge)
    return merged.cast(table.schema)


@settings(max_examples=30, deadline=None)
@given(ROWS, splits(), splits())
def test_exact_types_are_the_same_to_the_last_digit(
    database: Database, rows: list[tuple[Any, ...]], one: Split, other: Split
) -> None:
    columns = ["g", "rows", "n", "i", "d", "first", "most", "some"]
    answers = [Fold(database, QUERY, rows).run(split).select(columns) for split in (one, other)]
    key = [("g", "ascending", "at_end")]
    first, second = (answer.sort_by(key) for answer in answers)
    assert first.equals(second)


def test_a_state_too_large_for_arrow_gives_the_same_answer(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond so many partial rows the state moves to DuckDB, and is compacted where no block is needed."""
    rows = [(f"g{i % 37}", i, Decimal(i) / 100, i / 7, "t", i % 64, i % PARTITIONS) for i in range(2_000)]
    batches = tuple(MiniBatch(i, ((i,),), by_block=i < 2) for i in range(PARTITIONS))
    without_bars = "SELECT g, max(i) AS most, min(x) AS least FROM figures GROUP BY g"
    for sql in (QUERY, WITHOUT_GROUPS, DISTINCT, without_bars):
        monkeypatch.setattr("relaqs_engine.execution.state.ARROW_ROWS", 20)
        got = Fold(database, sql, rows).run(Split(batches))
        assert list(difference(got, plain(database, sql, rows), ordered=False)) == []


def test_blocks_count_the_rows_of_their_partitions(database: Database) -> None:
    rows = [("a", i, None, None, None, i % BLOCK_COUNT, i % PARTITIONS) for i in range(600)]
    fold = Fold(database, QUERY, rows)
    by_block, by_task = MiniBatch(0, ((0, 1),), True), MiniBatch(1, ((2,), (3, 4)), False)
    for batch in (by_block, by_task):
        fold.state.fold(batch, [fold.partial(task, by_block=batch.by_block) for task in batch.tasks])
    assert fold.state.block_rows[:BLOCK_COUNT].sum() == 200
    assert fold.state.block_rows[BLOCK_COUNT:].tolist() == [100, 200]
    assert BLOCK in fold.cursor.table(f"FROM {STATE}").column_names
