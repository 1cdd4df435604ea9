"""Which tables a catalog has, and how plain files become tables: as they lie, or by a layout in the cache."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import DataError, LayoutError, SqlError
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening, suitable_partitions
from relaqs_engine.stores.mirror import default_cache_directory

ROWS = pa.table({"id": range(20_000)})
FEW_ROWS = ROWS.slice(0, 9_999)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    shuffle(ROWS, tmp_path / "warehouse" / "Trips", partitions=2)
    add_static(FEW_ROWS, tmp_path / "warehouse" / "zones")
    (tmp_path / "warehouse" / "no table").mkdir()
    return tmp_path / "warehouse"


@pytest.fixture
def trips_file(tmp_path: Path) -> Path:
    path = tmp_path / "files" / "trips.parquet"
    path.parent.mkdir()
    pq.write_table(ROWS, path)
    return path


class Cached:
    """Opens files as tables over one cache, and keeps what was announced."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.announced: list[str] = []

    def open(self, **sources: str | Path) -> Catalog:
        return Catalog.of_sources(sources, self._how)

    def lay_out(self, **sources: str | Path) -> Catalog:
        return Catalog.of_sources(sources, self._how, lay_out=True)

    @property
    def _how(self) -> Opening:
        return Opening(CacheUse(Cache(self.directory)), self.announced.append)


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    return Cached(tmp_path / "cache")


def test_tables_are_the_folders_with_a_manifest_and_are_found_without_case(warehouse: Path) -> None:
    catalog = Catalog.open(warehouse)
    assert list(catalog.tables) == ["Trips", "zones"]
    assert catalog.table("TRIPS") is catalog.tables["Trips"]
    assert catalog.readable_directories == (str(warehouse / "Trips"), str(warehouse / "zones"))
    assert pickle.loads(pickle.dumps(catalog)) == catalog


def test_an_unknown_table_is_answered_with_candidates(warehouse: Path) -> None:
    with pytest.raises(SqlError, match=r"there is no table 'trip' in the catalog.*Trips, zones") as caught:
        Catalog.open(warehouse).table("trip")
    assert caught.value.candidates == ("Trips",)


def test_a_folder_that_is_no_warehouse_names_the_next_step(warehouse: Path, tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="holds no tables; lay one out with `relaqs shuffle"):
        Catalog.open(warehouse / "no table")
    with pytest.raises(LayoutError, match="is not a folder"):
        Catalog.open(tmp_path / "nowhere")


def test_the_folder_of_a_table_is_that_table_with_all_its_layouts(warehouse: Path) -> None:
    assert list(Catalog.open(warehouse / "zones").tables) == ["zones"]
    shuffle(ROWS, warehouse / "Trips@id", partitions=2, cluster_by=["id"])
    opened = Catalog.open(warehouse / "Trips")
    assert list(opened.tables) == ["Trips"]
    assert [layout.directory.name for layout in opened.layouts] == ["Trips", "Trips@id"]


def test_tables_that_differ_only_by_case_are_refused(warehouse: Path) -> None:
    add_static(FEW_ROWS, warehouse / "TRIPS")
    with pytest.raises(LayoutError, match=r"'TRIPS' in .* and 'Trips' in .* differ only by case"):
        Catalog.open(warehouse)


def test_plain_files_are_tables_as_they_lie(cached: Cached, trips_file: Path) -> None:
    catalog = cached.open(trips=trips_file)
    table = catalog.table("trips")
    assert (table.kind, table.is_sampled, table.row_count) == ("plain", False, 20_000)
    assert table.paths == (trips_file,)
    assert (catalog.readable_directories, [path for path, *_ in catalog.readable_files]) == (
        (),
        [str(trips_file)],
    )
    assert pickle.loads(pickle.dumps(catalog)) == catalog
    assert (cached.announced, cached.directory.exists()) == ([], False)


def test_plain_files_are_laid_out_once_and_announced(cached: Cached, trips_file: Path) -> None:
    first = cached.lay_out(trips=trips_file).table("trips")
    assert (first.table, first.is_sampled, first.row_count) == ("trips", True, 20_000)
    assert len(cached.announced) == 1
    assert cached.announced[0].startswith("laying out trips (1 file, ")
    assert f"once into {cached.directory}" in cached.announced[0]
    assert cached.lay_out(trips=str(trips_file)).table("trips") == first
    assert cached.open(trips=str(trips_file)).table("trips") == first  # which is there, and so it is read
    assert len(cached.announced) == 1


def test_changed_files_are_laid_out_again_and_the_old_layout_goes(cached: Cached, trips_file: Path) -> None:
    old = cached.lay_out(trips=trips_file).table("trips")
    pq.write_table(ROWS.slice(0, 15_000), trips_file)
    assert cached.open(trips=trips_file).table("trips").kind == "plain"  # the layout is of another state
    assert cached.lay_out(trips=trips_file).table("trips").row_count == 15_000
    state = trips_file.stat()
    os.utime(trips_file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))  # touched: the rows may be others
    cached.lay_out(trips=trips_file)
    assert len(cached.announced) == 3
    assert not old.directory.exists()


def test_a_file_more_is_another_table_of_that_name(cached: Cached, trips_file: Path) -> None:
    files = str(trips_file.with_name("*.parquet"))
    cached.open(trips=files)
    pq.write_table(ROWS, trips_file.with_name("more.parquet"))
    assert cached.open(trips=files).table("trips").row_count == 40_000


@pytest.mark.parametrize(("rows", "kind"), [(0, "static"), (9_999, "static"), (10_000, "sampled")])
def test_tiny_tables_are_kept_whole(cached: Cached, trips_file: Path, rows: int, kind: str) -> None:
    pq.write_table(ROWS.slice(0, rows), trips_file)
    assert cached.lay_out(trips=trips_file).table("trips").kind == kind


@pytest.mark.parametrize(
    ("rows", "partitions"),
    [(10_000, 20), (500_000, 50), (1_000_000, 100), (60_000_000, 100), (250_000_000, 250), (10**10, 1_000)],
)
def test_partitions_grow_with_the_table(rows: int, partitions: int) -> None:
    assert suitable_partitions(rows) == partitions


def test_the_folder_of_a_layout_is_a_source_under_any_name(cached: Cached, warehouse: Path) -> None:
    catalog = cached.open(rides=warehouse / "Trips")
    assert catalog.table("rides").paths == Catalog.open(warehouse).table("trips").paths
    assert cached.announced == []


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_a_name_that_is_no_folder_is_refused(cached: Cached, trips_file: Path, name: str) -> None:
    with pytest.raises(LayoutError, match="cannot name a table;"):
        cached.open(**{name: trips_file})


def test_a_failed_layout_is_not_taken_for_one_later(cached: Cached, trips_file: Path) -> None:
    good = trips_file.read_bytes()
    trips_file.write_bytes(good[:-10])
    state = trips_file.stat()
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        cached.open(trips=trips_file)
    trips_file.write_bytes(good)
    os.utime(trips_file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert cached.open(trips=trips_file).table("trips").row_count == 20_000


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELAQS_CACHE", str(tmp_path))
    assert default_cache_directory() == tmp_path
    monkeypatch.delenv("RELAQS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_directory() == tmp_path / ".cache" / "relaqs"
