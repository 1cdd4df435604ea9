"""What a layout must be: every row once, random partitions, independent blocks, whole keys."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, add_static, read_manifest, shuffle, verify
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT
from scipy import stats

from tests.engine.layouts.reading import partition_table, rows_in_any_order, stored_rows

Writer = Callable[..., Path]


def blocks_of_partitions(layout: Layout) -> np.ndarray:
    """Return the rows of each block of each partition, shape (partitions, BLOCK_COUNT)."""
    return np.array([partition.block_rows for partition in layout.partitions])


@settings(max_examples=15, deadline=None)
@given(
    values=st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=200),
    partitions=st.integers(1, 12),
    seed=st.integers(-(2**70), 2**70),
    clustered=st.booleans(),
)
def test_every_row_is_stored_once_and_counted_right(
    values: list[int | None], partitions: int, seed: int, clustered: bool
) -> None:
    table = pa.table({"value": pa.array(values, pa.int64()), "text": [str(value) for value in values]})
    with tempfile.TemporaryDirectory() as folder:
        layout = shuffle(
            table,
            Path(folder) / "t",
            partitions=partitions,
            seed=seed,
            cluster_by="value" if clustered else None,
        )
        assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(table)
        assert len(layout.partitions) == (partitions if clustered else min(partitions, len(values)))
        assert layout.unit_count == (len(set(values)) if clustered else len(values))
        assert layout.max_unit_rows == (max(map(values.count, values)) if clustered else 1)
        for i, partition in enumerate(layout.partitions):
            blocks = partition_table(layout, i)[BLOCK_COLUMN].to_numpy()
            assert partition.block_rows == tuple(np.bincount(blocks, minlength=BLOCK_COUNT))
            assert partition.row_count == len(blocks)
        assert read_manifest(layout.directory) == layout
        assert verify(layout.directory).ok


def test_same_source_and_seed_give_the_same_partitions_whatever_the_machine(tmp_path: Path) -> None:
    rows = np.arange(1_000_000)
    table = pa.table(
        {"id": rows, "text": np.char.add("a text too long to be stored inline ", rows.astype(str))}
    )
    passes: dict[str, int] = {}

    def lay_out(name: str, *, threads: int, memory_limit_bytes: int) -> Layout:
        told: list[str] = []
        layout = shuffle(
            table,
            tmp_path / name,
            partitions=3,
            threads=threads,
            memory_limit_bytes=memory_limit_bytes,
            progress=lambda share, doing: told.append(doing),
        )
        passes[name] = told.count("reading")
        return layout

    roomy = lay_out("roomy", threads=1, memory_limit_bytes=1 << 30)
    tight = lay_out("tight", threads=3, memory_limit_bytes=96 << 20)
    assert passes["roomy"] < passes["tight"]
    for i in range(3):
        assert partition_table(roomy, i).equals(partition_table(tight, i))


def test_another_seed_gives_an_independent_layout(lines_file: Path, lines: pa.Table, tmp_path: Path) -> None:
    layouts = [shuffle(lines_file, tmp_path / str(seed), partitions=8, seed=seed) for seed in (0, 1)]
    partition_of = np.empty((2, len(lines)), dtype=int)
    for which, layout in enumerate(layouts):
        for partition in range(8):
            partition_of[which, partition_table(layout, partition)["id"].to_numpy()] = partition
    together = np.zeros((8, 8))
    np.add.at(together, tuple(partition_of), 1)
    assert stats.chi2_contingency(together).pvalue > 1e-4


def test_rows_keep_the_order_of_the_source(lines_file: Path, tmp_path: Path) -> None:
    layout = shuffle(lines_file, tmp_path / "t", partitions=3)
    for partition in range(3):
        assert np.all(np.diff(partition_table(layout, partition)["id"].to_numpy()) > 0)


@pytest.mark.parametrize("cluster_by", [None, "key"])
@pytest.mark.parametrize("seed", [0, 1, 99])
def test_partitions_and_blocks_are_even_and_independent(
    write: Writer, tmp_path: Path, cluster_by: str | None, seed: int
) -> None:
    # Consecutive keys, a hundred partitions: where h % 100 and h % 64 would leave 16 blocks in a partition.
    source = write("keys.parquet", {"key": np.arange(200_000)})
    counts = blocks_of_partitions(shuffle(source, tmp_path / "t", cluster_by=cluster_by, seed=seed))
    assert counts.shape == (100, 64)
    assert stats.chisquare(counts.sum(axis=1)).pvalue > 1e-4
    assert stats.chisquare(counts.sum(axis=0)).pvalue > 1e-4
    assert stats.chi2_contingency(counts).pvalue > 1e-4
    # About 31 rows are expected in each of the 6,400 cells; none of them is empty but once in 10^9 layouts.
    assert counts.min() > 0


def test_a_prefix_of_the_partitions_estimates_the_mean(write: Writer, tmp_path: Path) -> None:
    value = np.sort(np.random.default_rng(3).gamma(1.0, 10.0, 100_000))  # sorted: a biased prefix would show
    layout = shuffle(write("sorted.parquet", {"value": value}), tmp_path / "t", partitions=50)
    prefix = np.concatenate([partition_table(layout, i)["value"].to_numpy() for i in range(5)])
    error = value.std() / np.sqrt(len(prefix)) * np.sqrt(1 - len(prefix) / len(value))
    assert abs(prefix.mean() - value.mean()) < 4 * error


def test_a_cluster_key_stays_whole(lines_file: Path, tmp_path: Path) -> None:
    layout = shuffle(lines_file, tmp_path / "t", partitions=10, cluster_by="ORDER_ID")
    assert layout.cluster_key == ("order_id",)
    seen: set[int] = set()
    for partition in range(10):
        table = partition_table(layout, partition)
        by_key = table.group_by("order_id").aggregate([(BLOCK_COLUMN, "count_distinct")])
        assert set(by_key[f"{BLOCK_COLUMN}_count_distinct"].to_pylist()) == {1}
        keys = set(by_key["order_id"].to_pylist())
        assert not seen & keys
        seen |= keys
    assert len(seen) == layout.unit_count == 3_000
    assert layout.max_unit_rows == 7


@pytest.mark.parametrize(
    ("fact_key", "other_key"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint8()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(30, 2)),
        (pa.string(), pa.string()),
        (pa.date32(), pa.date32()),
    ],
)
def test_tables_clustered_on_equal_keys_meet_in_the_same_partition_and_block(
    write: Writer, tmp_path: Path, fact_key: pa.DataType, other_key: pa.DataType
) -> None:
    def cast(values: Sequence[int], kind: pa.DataType) -> pa.Array:
        if pa.types.is_decimal(kind):
            return pa.array([Decimal(value) for value in values], kind)
        # Dates are days in 32 bits, and must be had by way of them.
        return (
            pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values).cast(kind)
        )

    fact = write("fact.parquet", {"key": cast([*range(100)] * 3, fact_key), "x": range(300)})
    other = write("other.parquet", {"k": cast([*range(100)][::-1], other_key)})
    one = shuffle(fact, tmp_path / "fact", partitions=7, cluster_by="key", seed=5)
    two = shuffle(other, tmp_path / "other", partitions=7, cluster_by=["k"], seed=5)
    assert one.is_co_clustered_with(two)
    for i in range(7):
        left, right = partition_table(one, i), partition_table(two, i)
        block_of = dict(zip(right["k"].to_pylist(), right[BLOCK_COLUMN].to_pylist(), strict=True))
        assert [block_of.get(key) for key in left["key"].to_pylist()] == left[BLOCK_COLUMN].to_pylist()


def test_null_is_one_key_value_and_part_of_composite_keys(write: Writer, tmp_path: Path) -> None:
    keys = [(a, b) for a in (1, 2, None) for b in ("x", None)]
    source = write(
        "t.parquet",
        {"a": pa.array([a for a, _ in keys] * 4, pa.int32()), "b": [b for _, b in keys] * 4},
    )
    layout = shuffle(source, tmp_path / "t", partitions=4, cluster_by=("a", "b"))
    assert (layout.unit_count, layout.max_unit_rows) == (6, 4)
    places = [
        {
            (a, b)
            for a, b in zip(*partition_table(layout, i).select(["a", "b"]).to_pydict().values(), strict=True)
        }
        for i in range(4)
    ]
    assert sorted(map(str, set().union(*places))) == sorted(map(str, keys))
    assert sum(map(len, places)) == 6


def test_more_partitions_than_rows(lines: pa.Table, tmp_path: Path) -> None:
    rows = shuffle(lines.slice(0, 3), tmp_path / "rows")
    assert len(rows.partitions) == 3
    keys = shuffle(lines.slice(0, 3), tmp_path / "keys", cluster_by="order_id")
    assert len(keys.partitions) == 100  # it must meet its co-clustered table, so some stay empty
    assert all(path.is_file() for path in keys.paths)
    assert stored_rows(keys).num_rows == 3


def test_an_empty_table_can_be_static_and_cannot_be_sampled(lines: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="has no rows to sample; add it as a static table"):
        shuffle(lines.slice(0, 0), tmp_path / "sampled")
    assert not (tmp_path / "sampled").exists()
    assert add_static(lines.slice(0, 0), tmp_path / "static").row_count == 0


def test_a_static_table_is_one_file_with_all_rows(lines_file: Path, lines: pa.Table, tmp_path: Path) -> None:
    layout = add_static(lines_file, tmp_path / "t")
    assert (layout.kind, len(layout.partitions), layout.row_count) == ("static", 1, len(lines))
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(lines)
    assert read_manifest(tmp_path / "t") == layout


@pytest.mark.parametrize(
    ("cluster_by", "message"),
    [
        ("ordr_id", "'ordr_id' is not a column.*did you mean 'order_id'"),
        ("zzz", "'zzz' is not a column.*it has id, order_id, price, mode"),
        (["id", "ID"], "names a column twice"),
    ],
)
def test_a_wrong_cluster_key_is_explained(
    lines_file: Path, tmp_path: Path, cluster_by: str | list[str], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        shuffle(lines_file, tmp_path / "t", cluster_by=cluster_by)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("partitions", [0, -1, 100_001])
def test_an_impossible_number_of_partitions_is_refused(
    lines_file: Path, tmp_path: Path, partitions: int
) -> None:
    with pytest.raises(LayoutError, match=f"partitions is {partitions}; between 1 and 100000"):
        shuffle(lines_file, tmp_path / "t", partitions=partitions)


def test_statistics_describe_the_table(write: Writer, tmp_path: Path) -> None:
    source = write(
        "t.parquet",
        {
            "whole": pa.array([3, None, -7, 3], pa.int16()),
            "money": pa.array([Decimal(150), Decimal("0.25"), None, None], pa.decimal128(20, 2)),
            "real": [1.5, float("nan"), float("-inf"), 2.0],
            "day": pa.array([1, 2, 3, None], pa.int32()).cast(pa.date32()),
            "text": ["b", "a", "ü", "x" * 300],
            "flag": [True, True, False, None],
            "nested": [[1, 2], [3], None, []],
            "dotted.name": [{"a": 1, "b": "x"}] * 4,
            "nothing": pa.nulls(4),
        },
    )
    columns = {column.name: column for column in shuffle(source, tmp_path / "t", partitions=2).columns}
    known = {name: (c.minimum, c.maximum, c.null_count, c.distinct_count) for name, c in columns.items()}
    assert known == {
        "whole": (-7, 3, 1, 2),
        "money": (0.25, 150, 2, 2),
        "real": (None, None, 0, 4),
        "day": ("1970-01-02", "1970-01-04", 1, 3),
        "text": ("a", "ü", 0, 4),
        "flag": (False, True, 1, 2),
        "nested": (None, None, 1, 3),
        "dotted.name": (None, None, 0, 1),
        "nothing": (None, None, 4, 0),
    }
    assert columns["money"].type == "DECIMAL(20,2)"
    assert all(column.byte_count > 0 for column in columns.values())


def test_names_may_hold_anything_sql_can_quote(write: Writer, tmp_path: Path) -> None:
    source = write(
        "odd's [1] source.parquet", {'say "hi"': [1, 2, 2], "größe; DROP TABLE x": ["a", "b", "b"]}
    )
    layout = shuffle(
        source,
        tmp_path / "ware=house [2]" / "ta'b\"le",
        partitions=2,
        cluster_by=['say "hi"', "größe; DROP TABLE x"],
    )
    assert layout.table == "ta'b\"le"
    assert layout.unit_count == 2
    assert verify(layout.directory).ok


def test_columns_that_hide_duckdbs_row_numbers_do_not_disturb(write: Writer, tmp_path: Path) -> None:
    rows = 1_000
    source = write("t.parquet", {"file_row_number": [0] * rows, "File_Index": [0] * rows, "x": range(rows)})
    layout = shuffle(source, tmp_path / "t", partitions=4)
    # Hashed by those columns all rows would share one partition.
    assert min(partition.row_count for partition in layout.partitions) > 150
    assert rows_in_any_order(stored_rows(layout).select(["x"])) == [(i,) for i in range(rows)]


def test_a_layouts_own_files_are_no_source(lines_file: Path, tmp_path: Path) -> None:
    layout = shuffle(lines_file, tmp_path / "t", partitions=2)
    with pytest.raises(LayoutError, match=r"_relaqs_block.* a name that layouts keep"):
        shuffle(layout.paths[0], tmp_path / "again")


def test_progress_rises_from_nothing_to_all(lines_file: Path, tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    shuffle(
        lines_file, tmp_path / "t", partitions=5, progress=lambda share, doing: told.append((share, doing))
    )
    shares = [share for share, _ in told]
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert shares == sorted(shares)
    assert [doing for _, doing in told if doing.startswith("writing")] == [
        f"writing partition {i} of 5" for i in range(1, 6)
    ]
