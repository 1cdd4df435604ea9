"""Warehouses in an object store: answers as from a folder, and nothing half-written, whatever fails."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.folder import StoreFolder, store_folder

import relaqs
from tests.store_server import Fault, StoreServer

ROWS = 50_000
NUMBERS = f"SELECT range AS x, range % 7 AS g, 'text ' || range AS t FROM range({ROWS})"
SUMS = "SELECT g, sum(x) AS total, count(*) AS n FROM numbers GROUP BY g ORDER BY g"


def lay_out(address: str, sql: str = NUMBERS, **options: object) -> relaqs.Layout:
    return relaqs.shuffle(duckdb.sql(sql), f"{address}/numbers", partitions=10, **options)


def answer(address: str, sql: str = SUMS) -> pa.Table:
    with relaqs.connect(address, threads=2) as db:
        return db.online_sql(sql).result().estimate


def oracle(sql: str = SUMS, data: str = NUMBERS) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW numbers AS {data}")
        return connection.execute(sql).fetchall()


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def folder(address: str) -> StoreFolder:
    """Return what is really there, past everything that is tested."""
    found = Address.of(address)
    assert found is not None
    return store_folder(found)


def keys(bucket: str) -> list[str]:
    return [each.key for each in folder(bucket).below()]


def test_a_table_is_laid_out_and_asked_in_a_store(bucket: str) -> None:
    layout = lay_out(bucket)
    assert f"in {bucket}/numbers" in layout.summary
    assert rows(answer(bucket)) == oracle()


def test_the_same_snapshots_as_from_a_folder(bucket: str, tmp_path: Path) -> None:
    lay_out(bucket)
    lay_out(str(tmp_path))
    found = []
    for place in (bucket, str(tmp_path)):
        with relaqs.connect(place, threads=2) as db:
            found.append([snapshot.to_arrow() for snapshot in db.online_sql(SUMS, batches=5)][-1])
    assert found[0] == found[1]


def test_only_the_columns_asked_for_are_fetched(bucket: str, tmp_path: Path) -> None:
    lay_out(bucket)
    answer(bucket)
    copies = list((tmp_path / "cache").rglob("*.parquet"))
    assert len(copies) == 10
    whole = sum(path.stat().st_size for path in copies)
    assert sum(path.stat().st_blocks * 512 for path in copies) < 0.7 * whole  # the texts are most of it


def test_what_was_fetched_is_not_fetched_again(bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    answer(bucket)
    store.fails()
    answer(bucket)
    assert not [each for each in store.requests() if each.endswith(".parquet")]


def test_damaged_copies_are_fetched_again(bucket: str, tmp_path: Path) -> None:
    lay_out(bucket)
    answer(bucket)
    for path in (tmp_path / "cache").rglob("*.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    assert rows(answer(bucket)) == oracle()


@pytest.mark.parametrize(
    ("kept", "reason"),
    [(1.0, "does not hold the bytes that were written"), (0.3, "shorter than it was"), (0.0, "not there")],
    ids=["changed", "cut short", "gone"],
)
def test_damaged_objects_are_found(kept: float, reason: str, bucket: str) -> None:
    lay_out(bucket)
    key = next(key for key in keys(bucket) if key.endswith(".parquet"))
    found = folder(bucket).content(key)
    assert found is not None
    size = len(found[0])
    damaged = found[0][: size // 10] + bytes(size // 3) + found[0][size // 10 + size // 3 :]
    folder(bucket).delete([key])
    if kept:
        folder(bucket).put(key, damaged[: int(kept * size)])
    with pytest.raises(relaqs.DataError, match=f"{bucket}/{key}.*{reason}"):
        answer(bucket)


@pytest.mark.parametrize("kind", ["status", "reset"])
def test_failing_requests_are_repeated(kind: str, bucket: str, store: StoreServer) -> None:
    store.fails(Fault(kind, times=3))
    lay_out(bucket)
    store.fails(Fault(kind, "GET", times=4))
    assert rows(answer(bucket)) == oracle()


def test_slow_answers_are_waited_for(bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    store.fails(Fault("slow", "GET", seconds=0.2, times=10))
    assert rows(answer(bucket)) == oracle()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("status", "GET", ".parquet", status=503), "the server answered 503"),
        (Fault("reset", "GET", ".parquet"), "the connection broke off"),
        (Fault("slow", "GET", ".parquet", seconds=6), "the server was silent too long"),
    ],
    ids=["503", "reset", "silent"],
)
def test_a_server_that_goes_on_failing_is_named(
    fault: Fault, reason: str, bucket: str, store: StoreServer
) -> None:
    lay_out(bucket)
    store.fails(fault)
    with pytest.raises(relaqs.RelaqsError, match=rf"{bucket}/numbers/data-\w+/part-\d+.parquet.*{reason}"):
        answer(bucket)


@pytest.mark.parametrize("key", ["part-00004", "manifest.json"])
def test_a_write_that_fails_leaves_what_was_there(key: str, bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    before = keys(bucket)
    store.fails(Fault("status", "PUT", key))
    with pytest.raises(relaqs.RelaqsError, match=f"{bucket}/numbers/.*{key}.* the server answered 500"):
        lay_out(bucket, "SELECT range AS other FROM range(1000)", force=True)
    store.fails()
    assert keys(bucket) == before
    assert rows(answer(bucket)) == oracle()


def test_a_new_layout_takes_the_place_of_the_old_one(bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    other = "SELECT range AS x, range % 3 AS g FROM range(1000)"
    with pytest.raises(relaqs.LayoutError, match="holds a layout already"):
        lay_out(bucket, other)
    lay_out(bucket, other, force=True)
    assert rows(answer(bucket)) == oracle(data=other)
    assert len({key.split("/")[1] for key in keys(bucket)}) == 2  # the manifest and one data folder
