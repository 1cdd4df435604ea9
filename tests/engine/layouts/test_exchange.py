"""Partitions written by tasks that share nothing but folders are those of one process, byte by byte."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, gathering, shuffling, verify
from relaqs_engine.layouts.assignment import Spread
from relaqs_engine.layouts.build import building
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening, laid_out_once
from relaqs_engine.layouts.sampled import sample

ROWS = 10_500
MEMORY_LIMIT_BYTES = 4 << 30


class Elsewhere:
    """A `Spread` over processes that die a lot: what goes there and back is pickled, and done twice."""

    def __init__(self) -> None:
        self.count = 0
        self.most_bytes = 0

    def __call__(
        self, work: Callable[[Any], Any], items: Iterable[Any], most: int
    ) -> Generator[Any, None, None]:
        for item in items:
            sent = pickle.dumps((work, item))
            for _ in range(2):
                there, that = pickle.loads(sent)
                made = pickle.dumps(there(that))
            self.count += 1
            self.most_bytes = max(self.most_bytes, len(sent), len(made))
            yield pickle.loads(made)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    columns = {
        "id": pa.array(np.arange(ROWS) // 3),
        "fare": pa.array(rng.gamma(2.0, 50.0, ROWS), mask=rng.random(ROWS) < 0.1),
        "cents": pa.array([Decimal(i) for i in range(ROWS)], pa.decimal128(12, 2)),
        "mode": pa.array(np.sort(rng.choice(["AIR", "RAIL", "SHIP"], ROWS)), mask=rng.random(ROWS) < 0.1),
        "text": pa.array([f"some text {i * i}" for i in range(ROWS)]),
    }
    path = tmp_path_factory.mktemp("source") / "trips.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1_200)
    return path


def laid_out(
    source: Path, into: Path, processes: Spread | None = None, *, cluster_by: str | None = None
) -> Layout:
    with building(source, into, force=False, memory_limit_bytes=MEMORY_LIMIT_BYTES, threads=1) as build:
        return sample(build, 20, cluster_by=cluster_by, processes=processes)


@pytest.mark.parametrize("cluster_by", [None, "id"])
@pytest.mark.parametrize("share_of_memory", [0.5, 4e-5])
def test_no_byte_depends_on_who_writes_them(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share_of_memory: float,
    cluster_by: str | None,
) -> None:
    monkeypatch.setattr(shuffling, "_SHARE_OF_MEMORY", share_of_memory)
    here = laid_out(source, tmp_path / "here" / "t", cluster_by=cluster_by)
    elsewhere = Elsewhere()
    there = laid_out(source, tmp_path / "there" / "t", elsewhere, cluster_by=cluster_by)
    assert elsewhere.count == 9 + 16  # pieces, and shares of the partitions
    assert [stored.sha256 for stored in there.files] == [stored.sha256 for stored in here.files]
    assert there.columns == here.columns
    assert (there.unit_count, there.max_unit_rows) == (here.unit_count, here.max_unit_rows)
    assert verify(there.directory).ok
    assert {path.name for path in there.directory.iterdir()} == {"manifest.json", there.paths[0].parent.name}
    assert len(list(there.paths[0].parent.iterdir())) == 20 + (there.outliers is not None)
    # No task is sent rows, and none sends any back: the texts alone are 130 kB.
    assert elsewhere.most_bytes < 50_000


def test_what_one_process_cannot_read_in_one_pass_goes_as_before(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb.sql(f"SELECT [range] AS nested FROM range({ROWS})").write_parquet(str(tmp_path / "n.parquet"))
    nested, elsewhere = Elsewhere(), Elsewhere()
    assert verify(laid_out(tmp_path / "n.parquet", tmp_path / "n", nested).directory).ok
    monkeypatch.setattr(gathering, "_MOST_TEXTS", 2)
    assert verify(laid_out(source, tmp_path / "t", elsewhere).directory).ok
    assert (nested.count, elsewhere.count > 0) == (0, True)


def test_a_process_that_does_not_see_the_folder_says_so(source: Path, tmp_path: Path) -> None:
    def blind(work: Callable[[Any], Any], items: Iterable[Any], most: int) -> Generator[Any, None, None]:
        for item in items:
            monkeypatch.setattr(Path, "exists", lambda path: False)
            yield work(item)

    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        pytest.raises(
            shuffling.UnseenHereError,
            match=r"does not see .*trips\.parquet; give all machines one path to it",
        ),
    ):
        laid_out(source, tmp_path / "t", blind)
    assert not (tmp_path / "t").exists()


def test_a_source_that_cannot_be_read_there_leaves_nothing(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    path.write_bytes(source.read_bytes())

    def cutting(work: Callable[[Any], Any], items: Iterable[Any], most: int) -> Generator[Any, None, None]:
        for i, item in enumerate(items):
            if i == 3:
                with path.open("r+b") as file:
                    file.truncate(1_000)
            yield work(item)

    with pytest.raises((DataError, LayoutError), match=r"cut\.parquet"):
        laid_out(path, tmp_path / "t", cutting)
    assert not (tmp_path / "t").exists()


def test_where_others_do_not_see_the_files_this_process_lays_them_out(source: Path, tmp_path: Path) -> None:
    def blind(work: Callable[[Any], Any], items: Iterable[Any], most: int) -> Generator[Any, None, None]:
        yield work(next(iter(items)))
        raise shuffling.UnseenHereError("a process on luna does not see it")

    said: list[str] = []
    layout = laid_out_once("trips", source, Opening(CacheUse(Cache(tmp_path)), said.append, processes=blind))
    assert verify(layout.directory).ok
    assert said[1:] == ["trips is laid out by this process alone: a process on luna does not see it"]
