"""Warehouses in an object store: answers as from a folder, and nothing half-written, whatever fails."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from relaqs_engine.layouts import remote
from relaqs_engine.layouts.manifest import Read, TableRead
from relaqs_engine.layouts.manifest_file import manifest_text
from relaqs_engine.stores import mirror
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.object_folder import StoreFolder, store_folder

import relaqs
from relaqs.executors.files import ReadAhead
from tests.relaqs.executors.clusters import eventually
from tests.rows import rows_of
from tests.store_server import SECRET, Fault, StoreServer

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
    assert rows_of(answer(bucket)) == oracle()


def test_the_same_snapshots_as_from_a_folder(bucket: str, tmp_path: Path) -> None:
    lay_out(bucket)
    lay_out(str(tmp_path))
    found = []
    for place in (bucket, str(tmp_path)):
        with relaqs.connect(place, threads=2) as db:
            found.append([snapshot.to_arrow() for snapshot in db.online_sql(SUMS, batches=5)][-1])
    assert found[0] == found[1]


def test_numbers_of_values_are_known_of_a_table_in_a_store(bucket: str) -> None:
    lay_out(bucket)
    sql = "SELECT count(DISTINCT g) AS n, count(x) AS c FROM numbers"
    with relaqs.connect(bucket, threads=2) as db:
        first, *_ = db.online_sql(sql, batches=5)
    assert (first.error, first.fraction < 1.0) == (0.0, True)
    assert first.table.select(["n", "c"]).to_pylist() == [{"n": 7, "c": ROWS}]


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
    assert rows_of(answer(bucket)) == oracle()


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
    assert rows_of(answer(bucket)) == oracle()


def test_slow_answers_are_waited_for(bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    store.fails(Fault("slow", "GET", seconds=0.2, times=10))
    assert rows_of(answer(bucket)) == oracle()


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
    warehouse = f"{bucket}/416"  # a number in an address is no answer of the server's
    lay_out(warehouse)
    store.fails(fault)
    with pytest.raises(relaqs.RelaqsError, match=rf"{warehouse}/numbers/data-\w+/part-\d+.parquet.*{reason}"):
        answer(warehouse)


@pytest.mark.parametrize("key", ["part-00004", "manifest.json"])
def test_a_write_that_fails_leaves_what_was_there(key: str, bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    before = keys(bucket)
    store.fails(Fault("status", "PUT", key))
    with pytest.raises(relaqs.RelaqsError, match=f"{bucket}/numbers/.*{key}.* the server answered 500"):
        lay_out(bucket, "SELECT range AS other FROM range(1000)", force=True)
    store.fails()
    assert keys(bucket) == before
    assert rows_of(answer(bucket)) == oracle()


@pytest.mark.parametrize("after", [4, 7])
def test_a_server_that_is_gone_in_the_middle_of_a_write_is_not_waited_for_long(
    after: int, bucket: str, store: StoreServer
) -> None:
    """A connection that breaks off is tried for RELAQS_STORE_PATIENCE, and not for ten times as long."""
    store.fails(Fault("reset", after=after))
    with pytest.raises(relaqs.RelaqsError, match="broke off, again and again"):
        lay_out(bucket)
    store.fails()
    assert "numbers/manifest.json" not in keys(bucket)
    lay_out(bucket)
    assert rows_of(answer(bucket)) == oracle()


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_the_library_has_repeated_is_not_repeated(method: str, bucket: str, store: StoreServer) -> None:
    there = folder(bucket)
    there.put("key", b"content")
    store.fails(Fault("reset", method))
    with pytest.raises(relaqs.RelaqsError, match="broke off, again and again"):
        there.content("key") if method == "GET" else there.put("other", b"more")
    assert len(store.requests()) <= 11  # the library's ten, or ours, and the first


def test_a_new_layout_takes_the_place_of_the_old_one(bucket: str, store: StoreServer) -> None:
    lay_out(bucket)
    other = "SELECT range AS x, range % 3 AS g FROM range(1000)"
    with pytest.raises(relaqs.LayoutError, match="holds a layout already"):
        lay_out(bucket, other)
    lay_out(bucket, other, force=True)
    assert rows_of(answer(bucket)) == oracle(data=other)
    assert len({key.split("/")[1] for key in keys(bucket)}) == 2  # the manifest and one data folder


def test_of_two_writers_one_wins_and_nothing_is_left_of_the_other(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(bucket)
    put = StoreFolder.put
    other = "SELECT range AS x, range % 3 AS g FROM range(1000)"
    is_first = [True]

    def slow_put(self: StoreFolder, key: str, content: bytes | Path) -> None:
        put(self, key, content)
        if is_first:  # meanwhile somebody else writes the whole table, on another machine
            is_first.clear()
            monkeypatch.setenv("RELAQS_CACHE", os.environ["RELAQS_CACHE"] + "-elsewhere")
            lay_out(bucket, other, force=True)

    monkeypatch.setattr(StoreFolder, "put", slow_put)
    with pytest.raises(relaqs.LayoutError, match=f"{bucket}/numbers was written by somebody else meanwhile"):
        lay_out(bucket, force=True)
    assert rows_of(answer(bucket)) == oracle(data=other)
    assert len({key.split("/")[1] for key in keys(bucket)}) == 2  # the manifest and one data folder


def test_a_switch_whose_answer_was_lost_is_no_failure(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    put, lost = obstore.put, []

    def answer_lost(store: object, key: str, content: object, **options: Any) -> object:
        done = put(store, key, content, **options)  # type: ignore[call-overload]
        if options.get("mode") == "create" and not lost:
            lost.append(key)
            return put(store, key, content, **options)  # type: ignore[call-overload]
        return done

    monkeypatch.setattr(obstore, "put", answer_lost)
    lay_out(bucket)
    assert lost == ["manifest.json"]
    assert rows_of(answer(bucket)) == oracle()


def test_what_a_dead_writer_left_is_removed_when_it_is_old(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = folder(f"{bucket}/numbers")
    left = f"data-{'0' * 16}/part-00000.parquet"
    table.put(left, b"half a layout")
    lay_out(bucket)
    assert left in [each.key for each in table.below()]  # it may be of a writer that is at work
    monkeypatch.setattr(remote, "LEFT_BEHIND", -timedelta(days=1))
    lay_out(bucket, force=True)
    assert left not in [each.key for each in table.below()]


def test_a_table_that_is_laid_out_anew_under_way_is_said(bucket: str, tmp_path: Path) -> None:
    lay_out(bucket)
    with relaqs.connect(bucket, threads=2) as db:
        lay_out(bucket, "SELECT range AS x, range % 3 AS g, '' AS t FROM range(1000)", force=True)
        with pytest.raises(relaqs.DataError, match="laid out anew; ask again in a new session"):
            db.online_sql(SUMS).result()


def test_copies_stay_below_the_limit(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(bucket)
    texts = "SELECT max(t) AS m FROM numbers"
    for sql in (SUMS, texts):
        answer(bucket, sql)
    copies = tmp_path / "cache" / "stores"
    limit = int(0.6 * held_bytes(copies))
    shutil.rmtree(copies)
    monkeypatch.setenv("RELAQS_STORE_CACHE", f"{limit}B")
    for sql in (SUMS, texts, SUMS):
        assert rows_of(answer(bucket, sql)) == oracle(sql)
        # Two of ten partitions may be beyond it. What is fetched ahead may still be in use.
        eventually(lambda: held_bytes(copies) <= limit + 0.2 * limit / 0.6)
    shutil.rmtree(copies)
    monkeypatch.setenv("RELAQS_STORE_CACHE", "1kB")
    with pytest.raises(relaqs.DataError, match=r"copies may take 0\.0 GB; set RELAQS_STORE_CACHE to more"):
        answer(bucket)


def held_bytes(copies: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in copies.rglob("*.parquet"))


def test_copies_that_are_read_are_not_removed(tmp_path: Path) -> None:
    paths = [tmp_path / "0" / "trips" / f"{i}.parquet" for i in range(40)]
    for i, path in enumerate(paths):
        mirror.hollow(path, 100_000)
        mirror.write(path, [(0, 100_000)], [memoryview(bytes([i]) * 100_000)])
        mirror.note_use(path, i * 10**9)
    with mirror.in_use(tmp_path, paths[:3]):
        mirror.make_room(tmp_path, 1_000_000, 0)
        assert all(path.exists() for path in paths[:3])
        assert paths[-1].exists()
        assert sum(path.exists() for path in paths) <= 12
    mirror.make_room(tmp_path, 1_000_000, 1_000_000)
    assert not any(path.exists() for path in paths)


def test_copies_that_are_read_through_a_link_are_not_removed(tmp_path: Path) -> None:
    root, link = tmp_path / "stores", tmp_path / "link"
    path = root / "0" / "trips.parquet"
    mirror.hollow(path, 100_000)
    mirror.write(path, [(0, 100_000)], [memoryview(bytes(100_000))])
    link.symlink_to(root)
    with mirror.in_use(link, [link / "0" / "trips.parquet"]):
        mirror.make_room(root, 0, 0)
        assert path.exists()
    mirror.make_room(root, 0, 0)
    assert not path.exists()


def test_a_copy_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    path, seen = tmp_path / "trips.parquet", set()
    for _ in range(20):
        mirror.hollow(path, 10)
        before = mirror.identity(path)
        mirror.write(path, [(2, 3)], [memoryview(b"abc")])
        assert mirror.identity(path) == before
        seen.add(before)
        path.unlink()
    assert len(seen) == 20


def test_nothing_outside_of_the_warehouse_is_read(bucket: str, tmp_path: Path) -> None:
    folder(bucket).put("secret/plans.parquet", b"PAR1 of somebody else")
    layout = lay_out(f"{bucket}/warehouse")
    with relaqs.connect(f"{bucket}/warehouse", threads=2) as db:
        for path in (f"{bucket}/secret/plans.parquet", "/etc/passwd", f"{layout.directory}/../x.parquet"):
            for sql in (f"SELECT * FROM read_parquet('{path}')", f"SELECT * FROM '{path}'"):
                with pytest.raises(relaqs.RelaqsError):
                    db.online_sql(sql).result()
    file = replace(layout.files[0], file="../../secret/plans.parquet")
    outside = replace(layout.partitions[0], files=(file,))
    damaged = manifest_text(replace(layout, partitions=(outside, *layout.partitions[1:])))
    table = folder(f"{bucket}/warehouse/numbers")
    table.put("manifest.json", damaged)
    with pytest.raises(relaqs.LayoutError, match=r"secret/plans.parquet' lies outside the table's folder"):
        relaqs.connect(f"{bucket}/warehouse")
    with pytest.raises(relaqs.StoreError):
        table.ranges("../../secret/plans.parquet", [0], [4])


def test_secrets_are_in_nothing_that_is_kept_or_shown(
    bucket: str, store: StoreServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    layout = lay_out(bucket)
    seen = [repr(layout), layout.summary, repr(layout.remote)]
    with relaqs.connect(bucket, threads=2) as db:
        plan = db.plan(SUMS)
        seen += [db.explain(SUMS), repr(db), repr(plan), pickle.dumps(db.tables["numbers"]).hex()]
        db.start(plan, relaqs.QueryOptions(batches=5), checkpoint=tmp_path / "sums.checkpoint").result()
        for fault in (Fault("status", status=500), Fault("status", status=403), Fault("reset")):
            store.fails(fault)
            shutil.rmtree(tmp_path / "cache")
            with pytest.raises(relaqs.RelaqsError) as raised:
                db.online_sql("SELECT max(t) FROM numbers").result()
            seen += ["".join(traceback.format_exception(raised.value)), pickle.dumps(raised.value).hex()]
        store.fails()
    for key in keys(bucket):
        content = folder(bucket).content(key)
        assert content is not None
        seen.append(content[0].hex())
    seen += [path.read_bytes().hex() for path in tmp_path.rglob("*") if path.is_file()]
    seen += [caplog.text, *capfd.readouterr()]
    for secret in (SECRET, SECRET.encode().hex(), "Signature="):
        assert not [each for each in seen if secret in each]


def test_the_next_mini_batch_is_fetched_while_this_one_is_computed(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = lay_out(bucket)
    ahead: list[str] = []

    def note(self: ReadAhead, reads: tuple[TableRead, ...]) -> None:
        ahead.extend(file for read in reads for file in read.files)

    monkeypatch.setattr(ReadAhead, "add", note)
    with relaqs.connect(bucket, threads=1) as db:
        db.online_sql(SUMS, batches=5).result()
    assert len(ahead) == len(set(ahead)) == 8  # all but the two partitions of the first of five
    assert set(ahead) < {stored.file for stored in layout.files}


def test_reads_ahead_are_fetched_and_their_errors_left_to_the_task() -> None:
    fetched: list[Read] = []

    def fetch(read: Read) -> None:
        fetched.append(read)
        raise relaqs.StoreError("no")

    reads = [TableRead("/warehouse/trips", (f"part-{i}",), ("x",)) for i in range(3)]
    ahead = ReadAhead(fetch)
    ahead.add(reads[:2])
    ahead.add(reads[2:])
    assert ahead.wait(10)
    assert sorted(fetched, key=str) == reads


def test_stored_tables_are_checked_and_laid_out_another_way(bucket: str) -> None:
    lay_out(bucket)
    assert relaqs.verify(bucket).ok
    assert relaqs.verify(f"{bucket}/numbers").ok
    other = relaqs.shuffle(f"{bucket}/numbers", f"{bucket}/numbers@g", partitions=4, cluster_by="g")
    assert (other.row_count, other.cluster_key, other.source) == (ROWS, ("g",), f"{bucket}/numbers")
    key = next(key for key in keys(bucket) if key.endswith(".parquet"))
    folder(bucket).put(key, b"PAR1 is not enough")
    assert not relaqs.verify(bucket).ok
    with pytest.raises(relaqs.LayoutError, match="holds no layout to check"):
        relaqs.verify(f"{bucket}/nothing")


def test_a_session_that_is_refreshed_reads_the_table_as_it_is_now(bucket: str) -> None:
    lay_out(bucket)
    other = "SELECT range AS x, range % 3 AS g FROM range(1000)"
    with relaqs.connect(bucket, threads=2) as db:
        lay_out(bucket, other, force=True)
        db.refresh("numbers")
        assert rows_of(db.online_sql(SUMS).result().estimate) == oracle(data=other)


def test_advice_names_addresses(bucket: str) -> None:
    lay_out(bucket, f"SELECT range AS x, range % 5000 AS k FROM range({ROWS})")
    with relaqs.connect(bucket, threads=2) as db:
        [command] = db.advise("SELECT k, sum(x) AS s FROM numbers GROUP BY k HAVING sum(x) > 100000").commands
    assert command.startswith(f"relaqs shuffle {bucket}/numbers --into {bucket}/numbers@k --cluster-by k")


def test_tables_in_a_store_are_not_appended_to(bucket: str) -> None:
    layout, more = lay_out(bucket), pa.table({"x": [1]})
    words = "is in an object store, where tables are not appended to"
    with pytest.raises(relaqs.LayoutError, match=words):
        relaqs.append(more, f"{bucket}/numbers")
    with pytest.raises(relaqs.LayoutError, match=words):
        relaqs.compact(f"{bucket}/numbers")
    with relaqs.connect(bucket, threads=1) as db:
        with pytest.raises(relaqs.LayoutError, match=words):
            db.append(more, "numbers")
        assert db.refresh("numbers").row_count == layout.row_count
