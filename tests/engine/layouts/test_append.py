"""An append adds rows, all or none, and the table is as good as one that was laid out at once."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, add_static, append, read_manifest, shuffle, verify
from relaqs_engine.layouts import shuffling as one_pass_module
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_engine.layouts.manifest_file import write_manifest
from relaqs_engine.layouts.outliers import outlier_condition

from benchmarks.failing_writes import killed_appends
from tests.engine.layouts.reading import partition_table, rows_in_any_order, stored_rows

Writer = Callable[..., Path]
PARTITIONS = 6


def lines_of(orders: range, seed: int) -> pa.Table:
    """Return lines of orders: 1 to 7 each, with a skewed price, NULLs, a day and a text."""
    random = np.random.default_rng(seed)
    order = np.repeat(np.array(orders), random.integers(1, 8, len(orders)))
    count = len(order)
    price = (random.pareto(1.5, count) * 10).round(2)
    days = np.datetime64("2020-01-01") + random.integers(0, 300, count)
    return pa.table(
        {
            "order_id": order,
            "price": pa.array(price, mask=random.random(count) < 0.01),
            "day": pa.array(days.astype("datetime64[D]")),
            "mode": random.choice(["AIR", "RAIL", "SHIP"], count),
        }
    )


FIRST = lines_of(range(4_000), 1)
BATCHES = [lines_of(range(3_900 + 100 * i, 4_050 + 100 * i), 10 + i) for i in range(3)]
"""Each has lines of orders that the table has, and of new ones."""


def grown(into: Path, cluster_by: str | None = None, first: pa.Table = FIRST) -> Layout:
    shuffle(first, into, partitions=PARTITIONS, cluster_by=cluster_by)
    for batch in BATCHES:
        layout = append(batch, into)
    return layout


@pytest.fixture(params=["in one pass", "by DuckDB"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by DuckDB":
        monkeypatch.setattr(one_pass_module, "pieces_of", lambda source: None)
    return str(request.param)


@pytest.mark.parametrize("cluster_by", [None, "order_id"])
def test_all_rows_are_there_once_and_what_is_known_of_them_is_true(
    tmp_path: Path, way: str, cluster_by: str | None
) -> None:
    layout = grown(tmp_path / "t", cluster_by)
    rows = pa.concat_tables([FIRST, *BATCHES])
    whole = shuffle(rows, tmp_path / "whole", partitions=PARTITIONS, cluster_by=cluster_by)
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(rows)
    assert verify(tmp_path / "t").ok
    assert layout == read_manifest(tmp_path / "t")
    for found, expected in zip(layout.columns, whole.columns, strict=True):
        assert (found.minimum, found.maximum, found.null_count) == (
            expected.minimum,
            expected.maximum,
            expected.null_count,
        )
        exact = pc.count_distinct(rows[found.name], mode="only_valid").as_py()
        assert found.distinct_count == exact  # the sample has all rows
    assert (layout.row_count, layout.unit_count, layout.max_unit_rows) == (
        whole.row_count,
        whole.unit_count,
        whole.max_unit_rows,
    )
    assert layout.typical_unit_rows == pytest.approx(whole.typical_unit_rows)
    if cluster_by:
        assert [p.block_rows for p in layout.partitions] == [p.block_rows for p in whole.partitions]
        assert [p.unit_count for p in layout.partitions] == [p.unit_count for p in whole.partitions]


def test_the_rows_of_batches_are_spread_independently(tmp_path: Path) -> None:
    """Where the unit is a row, the same place in two batches says nothing about where the rows go.

    Of 4,000 rows a sixth falls into the same of 6 partitions: 667 ± 24. 800 is five deviations away.
    """
    numbers = pa.table({"x": np.arange(4_000)})
    shuffle(numbers, tmp_path / "t", partitions=6)
    append(numbers, tmp_path / "t")
    layout = append(numbers, tmp_path / "t")
    places: dict[int, list[tuple[int, int]]] = {}
    for i in range(6):
        for file, path in enumerate(layout.paths_of(i)):
            for x, block in duckdb.sql(f"SELECT x, _relaqs_block FROM '{path}'").fetchall():
                places.setdefault(x, [(0, 0)] * 3)[file] = i, block
    assert all(len(found) == 3 for found in places.values())
    for one, other in ((0, 1), (0, 2), (1, 2)):
        same = sum(found[one][0] == found[other][0] for found in places.values())
        assert 533 < same < 800
        same_block = sum(found[one][1] == found[other][1] for found in places.values())
        assert same_block < 130  # 62 ± 8


def test_a_cluster_key_keeps_tables_co_clustered_and_null_is_a_key(tmp_path: Path, write: Writer) -> None:
    heads = pa.table({"id": pa.array([None, *range(3_000)]), "x": list(range(3_001))})
    lines = pa.table({"head": pa.array([None, *range(2_500, 4_000)], pa.int32()), "y": [1.5] * 1_501})
    first = shuffle(heads, tmp_path / "heads", partitions=4, cluster_by="id")
    more = pa.table({"x": [7, 8], "id": pa.array([None, 3_500])})
    first = append(more, tmp_path / "heads")
    second = shuffle(lines, tmp_path / "lines", partitions=4, cluster_by="head")
    assert first.is_co_clustered_with(second)
    assert (first.row_count, first.unit_count, first.max_unit_rows) == (3_003, 3_002, 2)
    assert verify(tmp_path).ok
    for i in range(4):
        keys, others = (set(partition_table(*of)[0].to_pylist()) for of in ((first, i), (second, i)))
        assert not {3_500, None} & keys & (set(range(4_000)) - others)
        assert (3_500 in keys) == (3_500 in others)


def test_the_outlier_index_has_the_new_outliers_too(tmp_path: Path) -> None:
    layout = grown(tmp_path / "t")
    assert layout.outliers is not None
    assert len(layout.outliers.files) > 1
    condition = outlier_condition(layout.columns)
    rows = pa.concat_tables([FIRST, *BATCHES])
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        ((count,),) = connection.execute(f"SELECT count(*) FROM rows WHERE {condition}").fetchall()
    assert layout.outliers.row_count == count


def test_an_outlier_index_that_grew_too_large_is_dropped(tmp_path: Path) -> None:
    shuffle(FIRST, tmp_path / "t", partitions=PARTITIONS)
    dear = BATCHES[0].set_column(1, "price", pa.array([1e6] * len(BATCHES[0])))
    layout = append(dear, tmp_path / "t")
    assert layout.outliers is None
    assert not any(column.has_outliers for column in layout.columns)
    assert layout.column("price").maximum == 1e6
    assert verify(tmp_path / "t").ok


def test_a_column_of_no_values_gets_those_of_the_new_rows_and_nan_takes_the_ends_away(tmp_path: Path) -> None:
    def table(x: object, y: list[float], day: list[str | None]) -> pa.Table:
        days = pa.array([each and np.datetime64(each).astype(int) for each in day], pa.int32())
        return pa.table({"x": pa.array(x, pa.int64()), "y": y, "day": days.cast(pa.date32())})

    shuffle(table([None, None], [1.0, 2.0], ["0999-01-01", None]), tmp_path / "t", partitions=1)
    layout = append(table([5, None], [0.5, 9.0], ["12345-01-01", None]), tmp_path / "t")
    ends = [(column.minimum, column.maximum, column.null_count) for column in layout.columns]
    assert ends == [(5, 5, 3), (0.5, 9.0, 0), ("0999-01-01", "12345-01-01", 2)]  # no text order
    layout = append(table([4, 6], [float("nan"), 1.0], [None, None]), tmp_path / "t")
    ends = [(column.minimum, column.maximum) for column in layout.columns]
    assert ends[0] == (4, 6)
    assert ends[1][1] is None
    assert ends[2] == ("0999-01-01", "12345-01-01")


def test_a_static_table_grows_as_well(tmp_path: Path) -> None:
    add_static(pa.table({"zone": [1, 2], "city": ["Oslo", "Bergen"]}), tmp_path / "zones")
    layout = append(pa.table({"city": ["Arendal"], "zone": [3]}), tmp_path / "zones")
    assert (layout.kind, layout.row_count, layout.column("city").minimum) == ("static", 3, "Arendal")
    assert layout.column("zone").distinct_count == 3
    assert rows_in_any_order(stored_rows(layout)) == [(1, "Oslo"), (2, "Bergen"), (3, "Arendal")]
    assert verify(tmp_path).ok


def test_columns_in_another_order_or_a_narrower_type_fit(tmp_path: Path, write: Writer) -> None:
    shuffle(write("a.parquet", {"x": [1, 2], "y": [0.5, 1.5]}), tmp_path / "t", partitions=1)
    narrow = pa.table({"Y": pa.array([2.5], pa.float32()), "x": pa.array([3], pa.int8())})
    layout = append(write("b.parquet", narrow), tmp_path / "t")
    assert rows_in_any_order(stored_rows(layout)) == [(1, 0.5), (2, 1.5), (3, 2.5)]
    assert verify(tmp_path / "t").ok


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        ({"x": [1]}, "it lacks the column 'y'"),
        ({"x": [1], "y": [1.0], "tip": [2.0]}, "the table has no column 'tip'"),
        ({"x": [1.5], "y": [1.0]}, "'x' is DOUBLE, and INTEGER in the table"),
        ({"x": ["1"], "y": [1.0]}, r"'x' is VARCHAR, and INTEGER.*duckdb.sql\(\"SELECT fare::DOUBLE"),
        ({"x": [1 << 40], "y": [1.0]}, "out of range"),
    ],
)
def test_rows_that_do_not_fit_change_nothing(
    tmp_path: Path, write: Writer, new: dict[str, object], complaint: str
) -> None:
    first = pa.table({"x": pa.array([1, 2], pa.int32()), "y": [0.5, 1.5]})
    old = shuffle(first, tmp_path / "t", partitions=1)
    before = sorted(path.name for path in (tmp_path / "t").iterdir())
    with pytest.raises((LayoutError, DataError), match=complaint):
        append(write("new.parquet", new), tmp_path / "t")
    assert read_manifest(tmp_path / "t") == old
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == before


def test_a_batch_of_one_name_is_appended_once(tmp_path: Path) -> None:
    shuffle(FIRST, tmp_path / "t", partitions=PARTITIONS)
    one = append(BATCHES[0], tmp_path / "t", batch="may")
    assert append(BATCHES[0], tmp_path / "t", batch="may") == one
    two = append(BATCHES[0], tmp_path / "t", batch="june")
    assert two.batches == ("may", "june")
    assert two.row_count == one.row_count + len(BATCHES[0])


@pytest.mark.parametrize("lies", ["rename", "unlink"])
def test_an_append_whose_rows_are_in_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: str
) -> None:
    into = tmp_path / "t"
    shuffle(FIRST, into, partitions=PARTITIONS)
    os.link(into / MANIFEST_NAME, into / ".retired-0123456789abcdef.json")  # of a state that nobody reads
    done = getattr(os, lies)
    told: list[str] = []

    def lying(path: str | os.PathLike[str], *more: str | os.PathLike[str], **how: int) -> None:
        done(path, *more, **how)
        at = Path(more[0] if more else path)
        if at.parent == into and at.name.startswith((MANIFEST_NAME, ".retired")):
            told.append(at.name)
            raise FileNotFoundError(2, "a reply was lost") if more else OSError(16, "busy")

    monkeypatch.setattr(os, lies if lies == "unlink" else "replace", lying)
    layout = append(BATCHES[0], into)
    assert layout.row_count == len(FIRST) + len(BATCHES[0])
    assert read_manifest(into) == layout
    assert told


def test_no_rows_change_nothing(tmp_path: Path) -> None:
    old = shuffle(FIRST, tmp_path / "t", partitions=PARTITIONS)
    assert append(FIRST.slice(0, 0), tmp_path / "t") == old


def test_where_there_is_no_layout_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"holds no layout.*relaqs shuffle"):
        append(FIRST, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_key_that_was_hashed_in_another_way_is_refused(tmp_path: Path) -> None:
    old = shuffle(FIRST, tmp_path / "t", partitions=PARTITIONS, cluster_by="order_id")
    write_manifest(dataclasses.replace(old, hash_probe="of another version"))
    with pytest.raises(LayoutError, match="hashed its cluster key in another way"):
        append(BATCHES[0], tmp_path / "t")


# Appends BATCH and kills itself: at a progress message, or around a step of publishing.
VICTIM = """
import os, signal, sys
import pyarrow.parquet
from relaqs_engine.layouts import append, folder

source, into, moment, batch = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def report(share, doing):
    if doing == moment:
        die()

if moment == "before the data is moved":
    folder._sync_directory = die
elif moment == "before the manifest is replaced":
    folder.write_manifest = die
elif moment == "after the manifest is replaced":
    write_manifest = folder.write_manifest
    folder.write_manifest = lambda layout: (write_manifest(layout), die())
append(source, into, batch=batch, progress=report)
"""
EARLY = ("opening the source", "reading", "updating what is known of the columns")  # nothing is moved yet
MOMENTS = [
    *(pytest.param(moment, marks=pytest.mark.slow) for moment in EARLY),
    "writing partition 3 of 6",
    "before the data is moved",
    "before the manifest is replaced",
    "after the manifest is replaced",
]


def kill_an_append(source: Path, into: Path, moment: str, batch: str = "b") -> None:
    words = [sys.executable, "-c", VICTIM, str(source), str(into), moment, batch]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_the_batch_is_there_whole_or_not_at_all(
    tmp_path: Path, write: Writer, moment: str
) -> None:
    into, source = tmp_path / "t", write("batch.parquet", BATCHES[0])
    old = shuffle(FIRST, into, partitions=PARTITIONS, cluster_by="order_id")
    kill_an_append(source, into, moment)
    is_in = moment == "after the manifest is replaced"
    found = read_manifest(into)
    assert found.row_count == old.row_count + is_in * len(BATCHES[0])
    assert verify(into).ok
    layout = append(source, into, batch="b")
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(pa.concat_tables([FIRST, BATCHES[0]]))
    folders = {path.parent.name for path in layout.paths}
    assert {path.name for path in into.iterdir()} == {MANIFEST_NAME, *folders}
    assert verify(into).ok


@pytest.mark.slow
def test_two_appends_at_once_take_turns(tmp_path: Path, write: Writer) -> None:
    into = tmp_path / "t"
    shuffle(FIRST, into, partitions=PARTITIONS)
    sources = [write(f"{i}.parquet", batch) for i, batch in enumerate(BATCHES)]
    script = "import sys; from relaqs_engine.layouts import append; append(sys.argv[1], sys.argv[2])"
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(source), str(into)], env=dict(os.environ))
        for source in sources
    ]
    assert [each.wait(timeout=120) for each in started] == [0] * len(sources)
    rows = stored_rows(read_manifest(into))
    assert Counter(rows_in_any_order(rows)) == Counter(rows_in_any_order(pa.concat_tables([FIRST, *BATCHES])))
    assert verify(into).ok


def two_layouts(folder: Path) -> tuple[Path, Path]:
    shuffle(FIRST, folder / "lines", partitions=3)
    shuffle(FIRST, folder / "lines@order", partitions=2, cluster_by="order_id")
    shuffle(FIRST, folder / "lines2", partitions=2)  # another table
    return folder / "lines", folder / "lines@order"


@pytest.mark.parametrize("into", ["lines", "lines@order"])
def test_all_layouts_of_a_table_get_the_rows(tmp_path: Path, into: str) -> None:
    two_layouts(tmp_path)
    with duckdb.connect() as connection:
        connection.register("batch", BATCHES[0])
        layout = append(connection.sql("FROM batch"), tmp_path / into, batch="may")  # can be read only once
    assert layout.table == into
    expected = rows_in_any_order(pa.concat_tables([FIRST, BATCHES[0]]))
    for name in ("lines", "lines@order"):
        assert rows_in_any_order(stored_rows(read_manifest(tmp_path / name))) == expected
    assert read_manifest(tmp_path / "lines2").row_count == len(FIRST)
    assert len(Catalog.open(tmp_path).tables) == 2
    assert verify(tmp_path).ok


# Appends to a table with two layouts, and kills itself around the switch.
VICTIM_OF_TWO = """
import os, signal, sys
from pathlib import Path
from relaqs_engine.layouts import append, folder

source, into, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

write_manifest = folder.write_manifest

def write(layout, name="manifest.json"):
    if moment == f"before {name[:5]}":
        die()
    path = write_manifest(layout, name)
    if moment == f"after {name[:5]}":
        die()
    return path

folder.write_manifest = write
append(source, into, batch="b")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "is_in"),
    [("before .next", False), ("after .next", False), ("before manif", False), ("after manif", True)],
)
def test_killed_in_the_middle_all_layouts_have_the_rows_or_none(
    tmp_path: Path, write: Writer, moment: str, is_in: bool
) -> None:
    folders = two_layouts(tmp_path / "w")
    source = write("batch.parquet", BATCHES[0])
    words = [sys.executable, "-c", VICTIM_OF_TWO, str(source), str(folders[0]), moment]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    found = {layout.table: layout.row_count for layout in Catalog.open(tmp_path / "w").layouts}
    rows = len(FIRST) + is_in * len(BATCHES[0])
    assert found == {"lines": rows, "lines@order": rows, "lines2": len(FIRST)}
    assert verify(tmp_path / "w").ok
    append(source, folders[1], batch="b")
    for folder in folders:
        layout = read_manifest(folder)
        assert layout.row_count == len(FIRST) + len(BATCHES[0])
        used = {Path(stored.file).parts[0] for stored in layout.all_files}
        assert {path.name for path in folder.iterdir()} == {MANIFEST_NAME, *used}


@pytest.mark.slow
def test_killed_at_random_moments_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    outcome = killed_appends(tmp_path, appends=4, kills=12)
    assert outcome.kills > 0
    assert (outcome.lost, outcome.doubled, outcome.is_sound) == (0, 0, True)


def test_only_the_new_files_of_a_source_are_taken(tmp_path: Path, write: Writer) -> None:
    source, into = tmp_path / "days", tmp_path / "t"
    write("days/1.parquet", {"x": [1, 2]})
    shuffle(source, into, partitions=1)
    assert append(source, into, only_new_files=True).row_count == 2
    write("days/2.parquet", {"x": [3]})
    write("days/3.parquet", {"x": [4]})
    assert append(source, into, only_new_files=True).row_count == 4
    layout = append(str(source / "*.parquet"), into, only_new_files=True)
    assert rows_in_any_order(stored_rows(layout)) == [(1,), (2,), (3,), (4,)]
    assert len(layout.source_files) == 3
    write("days/4.parquet", {"x": [5]})
    write("days/2.parquet", {"x": [30, 31]})
    with pytest.raises(LayoutError, match=r"2.parquet changed since its rows went into .*shuffle --force"):
        append(source, into, only_new_files=True)
    (source / "2.parquet").unlink()
    with pytest.raises(LayoutError, match=r"2.parquet is gone since"):
        append(source, into, only_new_files=True)
    assert read_manifest(into) == layout


def test_a_table_of_rows_in_memory_knows_no_files(tmp_path: Path, write: Writer) -> None:
    shuffle(FIRST, tmp_path / "t", partitions=2)
    with pytest.raises(LayoutError, match="does not say of which files it was made"):
        append(write("more.parquet", BATCHES[0]), tmp_path / "t", only_new_files=True)
