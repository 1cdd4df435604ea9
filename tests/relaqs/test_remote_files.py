"""Files in an object store or on a web server as tables: one state of them, as far as it is asked about."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import ObjectCopy
from relaqs_engine.stores.object_folder import StoreFolder, store_folder

import relaqs
from relaqs.queries import start
from tests.store_server import Fault, StoreServer
from tests.web_server import serving

ROWS = 200_000
TRIPS = pa.table(
    {
        "zone": [i % 5 for i in range(ROWS)],
        "fare": [i / 8 for i in range(ROWS)],
        "note": [f"a note of some length, number {i}" for i in range(ROWS)],
    }
)
COUNTS = "SELECT zone, count(*) AS n, sum(fare) AS total FROM trips GROUP BY zone ORDER BY zone"


def parquet(table: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=50_000, **options)
    return file.getvalue()


def csv(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.csv.write_csv(table, file)
    return file.getvalue()


@pytest.fixture
def folder(bucket: str) -> StoreFolder:
    address = Address.of(f"{bucket}/data")
    assert address is not None
    return store_folder(address)


def answer(db: relaqs.Session, sql: str = COUNTS) -> list[dict[str, object]]:
    found: list[dict[str, object]] = db.online_sql(sql).result().estimate.to_pylist()
    return found


def expected(tmp_path: Path, table: pa.Table = TRIPS) -> list[dict[str, object]]:
    pq.write_table(table, tmp_path / "trips.parquet")
    with relaqs.connect(tmp_path / "trips.parquet", threads=2) as db:
        return answer(db)


def fetched_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in (tmp_path / "cache").rglob("*.parquet"))


def test_a_parquet_file_is_a_table(folder: StoreFolder, tmp_path: Path) -> None:
    content = parquet(TRIPS)
    folder.put("trips.parquet", content)
    with relaqs.connect(f"{folder.address}/trips.parquet", threads=2) as db:
        assert f"in {folder.address}/trips.parquet" in db.tables["trips"].summary
        assert fetched_bytes(tmp_path) < 0.2 * len(content)  # the footer
        assert answer(db) == expected(tmp_path)
        assert fetched_bytes(tmp_path) < 0.7 * len(content)  # and two columns of three
        assert answer(db, "SELECT min(note) AS m FROM trips") == [{"m": "a note of some length, number 0"}]


def test_what_was_fetched_is_there_in_the_next_session(
    folder: StoreFolder, store: StoreServer, tmp_path: Path
) -> None:
    folder.put("trips.parquet", parquet(TRIPS))
    for _ in range(2):
        store.fails()
        with relaqs.connect(f"{folder.address}/trips.parquet", threads=2) as db:
            found = answer(db)
    assert found == expected(tmp_path)
    assert not [each for each in store.requests() if each.startswith("GET") and "trips.parquet" in each]


def test_a_copy_that_lost_bytes_is_fetched_again(folder: StoreFolder, tmp_path: Path) -> None:
    folder.put("trips.parquet", parquet(TRIPS))
    with relaqs.connect(f"{folder.address}/trips.parquet", threads=2) as db:
        answer(db)
    [copy] = (tmp_path / "cache").rglob("*.parquet")
    size = copy.stat().st_size
    copy.unlink()
    copy.write_bytes(bytes(size))
    with relaqs.connect(f"{folder.address}/trips.parquet", threads=2) as db:
        assert answer(db) == expected(tmp_path)


def test_patterns_folders_and_names_of_folders(folder: StoreFolder, tmp_path: Path) -> None:
    for year in (2020, 2021):
        folder.put(f"hive/year={year}/a.parquet", parquet(TRIPS.slice((year - 2020) * 1000, 1000)))
        folder.put(f"flat/b{year}.parquet", parquet(TRIPS.slice((year - 2020) * 1000, 1000)))
    folder.put("flat/other.parquet", parquet(TRIPS))
    tables = {"hive": f"{folder.address}/hive", "flat": f"{folder.address}/flat/b*.parquet"}
    with relaqs.connect(tables=tables, threads=2) as db:
        assert answer(db, "SELECT year, count(*) AS n FROM hive GROUP BY year ORDER BY year") == [
            {"year": 2020, "n": 1000},
            {"year": 2021, "n": 1000},
        ]
        assert answer(db, "SELECT count(*) AS n FROM flat") == [{"n": 2000}]
    with relaqs.connect(f"{folder.address}/flat", threads=2) as db:
        assert set(db.tables) == {"b2020", "b2021", "other"}


def test_csv_is_fetched_whole_and_copied_once(
    folder: StoreFolder, store: StoreServer, tmp_path: Path
) -> None:
    folder.put("trips.csv", csv(TRIPS.slice(0, 1000)))
    for _ in range(2):
        store.fails()
        with relaqs.connect(f"{folder.address}/trips.csv", threads=2) as db:
            assert answer(db) == expected(tmp_path, TRIPS.slice(0, 1000))
    assert not [each for each in store.requests() if each.startswith("GET") and "trips.csv" in each]


def test_a_file_that_changes_under_way_is_said(folder: StoreFolder, tmp_path: Path) -> None:
    folder.put("trips.parquet", parquet(TRIPS))
    address = f"{folder.address}/trips.parquet"
    with relaqs.connect(address, threads=2) as db:
        before = answer(db)
        other = TRIPS.slice(0, 10)
        folder.put("trips.parquet", parquet(other))
        assert answer(db) == before  # of what is here already
        with pytest.raises(relaqs.StoreError, match=f"{address} changed since it was opened"):
            answer(db, "SELECT max(note) FROM trips")
    with relaqs.connect(address, threads=2) as db:
        assert answer(db) == expected(tmp_path, other)


def test_a_file_that_cannot_be_had_is_named(folder: StoreFolder, store: StoreServer) -> None:
    address = f"{folder.address}/trips.parquet"
    with pytest.raises(relaqs.LayoutError, match=f"there is nothing at {address}"):
        relaqs.connect(address)
    folder.put("trips.parquet", b"PAR1 is not enough")
    with pytest.raises(relaqs.DataError, match=f"{address} cannot be read as Parquet"):
        relaqs.connect(address)
    folder.put("trips.parquet", parquet(TRIPS))
    with relaqs.connect(address, threads=2) as db:
        store.fails(Fault("status", "GET", status=503))
        with pytest.raises(relaqs.StoreError, match=rf"{address} cannot be reached: the server answered 503"):
            answer(db)
        store.fails()
        assert len(answer(db)) == 5


def test_remote_files_are_laid_out_when_asked_to(folder: StoreFolder, tmp_path: Path) -> None:
    folder.put("trips.parquet", parquet(TRIPS))
    address = f"{folder.address}/trips.parquet"
    layout = relaqs.shuffle(address, tmp_path / "warehouse" / "trips", partitions=5)
    assert (layout.row_count, layout.source) == (ROWS, address)
    with relaqs.connect(address, threads=2) as db:
        assert db.lay_out("trips").is_sampled
        assert answer(db) == expected(tmp_path)


@pytest.mark.parametrize("sends_parts", [True, False])
def test_files_of_a_web_server(sends_parts: bool, store: StoreServer, tmp_path: Path) -> None:
    content = parquet(TRIPS)
    files = {"/data/trips.parquet": content, "/data/zones.csv": b"zone,city\n1,Oslo\n2,Bergen\n"}
    with serving(files, sends_parts=sends_parts) as (place, log):
        tables = {"trips": f"{place}/data/trips.parquet", "zones": f"{place}/data/zones.csv"}
        with relaqs.connect(tables=tables, threads=2) as db:
            assert answer(db) == expected(tmp_path)
            assert answer(db, "SELECT count(*) AS n FROM zones") == [{"n": 2}]
            answer(db, "SELECT max(note) FROM trips")
        whole = [each for each in log if each == "GET /data/trips.parquet"]
        assert (len(whole) == 0) if sends_parts else (len(whole) >= 1)
        with pytest.raises(relaqs.LayoutError, match="a web server lists no files"):
            relaqs.connect(f"{place}/data/*.parquet")
        with pytest.raises(relaqs.LayoutError, match="can only be read"):
            relaqs.shuffle(TRIPS, f"{place}/warehouse/trips")
        files["/data/trips.parquet"] = parquet(TRIPS.slice(0, 5))
        with relaqs.connect(f"{place}/data/trips.parquet", threads=2) as db:
            assert answer(db, "SELECT count(*) AS n FROM trips") == [{"n": 5}]


def test_row_groups_are_sampled_without_fetching_the_others(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "RowGroupRules", lambda cores: RowGroupRules(cores, 1e-5, 16, 0.2))
    file = io.BytesIO()
    pq.write_table(TRIPS, file, row_group_size=2_000)
    folder.put("trips.parquet", file.getvalue())
    with relaqs.connect(f"{folder.address}/trips.parquet", threads=2) as db:
        fetch, sizes = ObjectCopy.fetch, []

        def noted(self: ObjectCopy, extents: list[tuple[int, int]]) -> None:
            sizes.append(sum(length for _, length in self.missing(extents)))
            fetch(self, extents)

        monkeypatch.setattr(ObjectCopy, "fetch", noted)
        found = answer(db, "SELECT avg(fare) AS fare, count(*) AS n FROM trips WHERE zone = 1")
        assert found == [{"fare": (ROWS - 3) / 16, "n": ROWS // 5}]
        fetched = [size for size in sizes if size]
        assert len(fetched) > 1
        assert fetched[0] < 0.3 * sum(fetched)
