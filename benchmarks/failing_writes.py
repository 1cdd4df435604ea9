"""Writes that fail in the middle: the disk is full, the store fails, or the program is killed.

    python -m benchmarks.failing_writes disk [--rounds 80] [--seed 0] [--page PAGE]
    python -m benchmarks.failing_writes store [--rounds 36] [--seed 0] [--page PAGE]
    python -m benchmarks.failing_writes killed [--appends 50] [--kills 100] [--seed 0]

**disk**: a file system of 64 MB in memory (it needs root on Linux) is filled but for a drawn rest. Then a
table is appended to, compacted, replaced or added, a query keeps a checkpoint, or a session lays a file out
in the cache or copies one to it. What is said must be what is there: "done" is the new table, an error of
ours that speaks of the disk the old one, with nothing left over, and the answer right in both cases. A query
must be right whatever is full, and a checkpoint is kept whole or not at all.

**store**: an S3 server fails at a drawn request, once or for good: with a status, by breaking off, or by
being slow. A table is written, replaced, laid out by another key, asked or verified. Then the same must hold.

**killed**: each batch is appended by a process of its own, under a name. Some of these processes are killed
after a random time. The batch is then tried again, until it is in. At no moment may the table have half a
batch. At the end every row must be there exactly once, in both layouts of the table.

An error of ours that speaks of something else is a fault, and so it is where all rounds of a kind ended
alike.

--page writes the table into a page of Markdown that has a place for it.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb
from relaqs_engine.errors import RelaqsError, StoreError
from relaqs_engine.layouts import add_static, append, compact, read_manifest, shuffle, verify
from relaqs_engine.layouts.folder import Writing
from rich.console import Console

import relaqs
from benchmarks import record
from benchmarks.plain_duckdb import relation
from tests.store_server import Fault, StoreServer

ROWS, BATCH_ROWS = 20_000, 200
LATE_SECONDS = 40.0
_APPEND = "import sys; from relaqs_engine.layouts import append; append(*sys.argv[1:3], batch=sys.argv[3])"
ENOUGH = 4  # rounds of a kind, of which some are to be done and some are not
Answer = list[tuple[object, ...]]


@dataclass
class Held:
    """How writes ended, and what must not be."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, *what: object) -> None:
        self.faults.append(" · ".join(map(str, what)))


class NotKeptError(Exception):
    """All went right, but for what the disk did not take, which nobody asked to be told."""


def attempt(
    held: Held, kind: str, what: str, write: Callable[[], object], is_meant: Callable[[RelaqsError], bool]
) -> str:
    """Return how a write ended: "done", "refused", "not kept" or "fault". A late one is a fault, too.

    is_meant: whether an error of ours speaks of what was done to the write.
    """
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write()
        end = "done"
    except NotKeptError:
        end = "not kept"
    except Exception as error:
        end = "refused" if isinstance(error, RelaqsError) and is_meant(error) else "fault"
        if end == "fault":
            held.fault(kind, what, repr(error))
    if (took := time.monotonic() - began) > LATE_SECONDS:
        held.fault(kind, what, f"it took {took:.0f} s")
    held.ends[kind, end] += 1
    return end


def check_ends(held: Held) -> None:
    """Count it as a fault where all rounds of a kind ended alike: then it was never in the middle."""
    for kind in sorted({kind for kind, _ in held.ends}):
        ends = {end: times for (other, end), times in held.ends.items() if other == kind}
        if len(ends) == 1 and sum(ends.values()) >= ENOUGH:
            held.fault(kind, f"all rounds were {next(iter(ends))}")


def speaks_of_the_disk(error: RelaqsError) -> bool:
    words = ("is full:", "there is no room on the disk", os.strerror(errno.ENOSPC))
    return any(each in str(error) for each in words)


def speaks_of(fault: Fault) -> Callable[[RelaqsError], bool]:
    """Return whether an error of ours speaks of what a store did."""
    words = ["cannot be reached", "may not be read or written", "is not there, and neither is its bucket"]
    if (fault.kind, fault.status) == ("status", 404):
        words.append("holds no tables")  # it says of each object that it is not there
    return lambda error: isinstance(error, StoreError) or any(each in str(error) for each in words)


# The disk.

SUM = (
    "SELECT zone, count(*) AS n, sum(fare) AS fare, count(DISTINCT note) AS notes FROM trips "
    "GROUP BY zone ORDER BY zone"
)


@dataclass(frozen=True, slots=True)
class Disk:
    """A small file system, and the files that tables on it are made of, which lie elsewhere."""

    place: Path
    first: Path
    more: Path
    texts: Path

    @property
    def table(self) -> Path:
        return self.place / "warehouse" / "trips"

    def files(self) -> set[Path]:
        return {path for path in self.place.rglob("*") if path.is_file()}

    def fill(self, rest_bytes: int) -> None:
        free = shutil.disk_usage(self.place).free - rest_bytes
        with (self.place / "filler").open("wb") as file:
            for _ in range(max(0, free) >> 12):
                try:
                    file.write(b"\0" * 4096)
                    file.flush()
                except OSError:
                    return

    def clear(self) -> None:
        for path in self.place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A way to write. needed_bytes: about what it takes. before, after: of which files the table is then."""

    name: str
    needed_bytes: float
    prepare: Callable[[Disk], object]
    write: Callable[[Disk], object]
    before: Callable[[Disk], list[Path]]
    after: Callable[[Disk], list[Path]]


def laid_out(disk: Disk) -> None:
    shuffle(disk.first, disk.table, partitions=8)


def grown(disk: Disk) -> None:
    laid_out(disk)
    append(disk.more, disk.table)


def replaced(disk: Disk) -> None:
    shuffle(disk.more, disk.table, partitions=8, force=True)


def kept_on_the_way(disk: Disk) -> None:
    """Ask until half is known, with a checkpoint, and go on from there to the end."""
    kept = disk.place / "kept.arrow"
    for target in (0.5, None):
        with relaqs.connect(disk.table.parent) as db:
            query = db.start(db.plan(SUM), relaqs.QueryOptions(target=target), checkpoint=kept)
            assert query.wait(LATE_SECONDS)
            is_kept = kept.exists()
    assert rows_of(query.result()) == by_duckdb([disk.first])
    if not is_kept:
        raise NotKeptError


def laid_out_in_cache(disk: Disk) -> None:
    with relaqs.connect(tables={"trips": disk.first}, cache_directory=disk.place / "cache") as db:
        try:
            db.lay_out("trips")
        finally:
            assert rows_of(db.online_sql(SUM).result()) == by_duckdb([disk.first])


def copied_to_cache(disk: Disk) -> None:
    with relaqs.connect(tables={"trips": disk.texts}, cache_directory=disk.place / "cache") as db:
        for _ in range(2):
            assert rows_of(db.online_sql(SUM).result()) == by_duckdb([disk.first])


def old(disk: Disk) -> list[Path]:
    return [disk.first]


def both(disk: Disk) -> list[Path]:
    return [disk.first, disk.more]


def new(disk: Disk) -> list[Path]:
    return [disk.more]


ON_DISK = (
    OnDisk("append", 0.45e6, laid_out, lambda d: append(d.more, d.table, batch="b"), old, both),
    OnDisk("compact", 1.2e6, grown, lambda d: compact(d.table), both, both),
    OnDisk(
        "replace", 0.45e6, laid_out, lambda d: shuffle(d.more, d.table, partitions=8, force=True), old, new
    ),
    OnDisk(
        "replace a static table",
        0.21e6,
        lambda d: add_static(d.first, d.table),
        lambda d: add_static(d.more, d.table, force=True),
        old,
        new,
    ),
    OnDisk("checkpoint", 1.25e6, laid_out, kept_on_the_way, old, old),
    OnDisk("lay out in the cache", 1.3e6, laid_out, laid_out_in_cache, old, old),
    OnDisk("copy to the cache", 2.2e6, laid_out, copied_to_cache, old, old),
)


def rows_of(snapshot: relaqs.Snapshot) -> Answer:
    return [tuple(row.values()) for row in snapshot.estimate.to_pylist()]


def by_duckdb(files: Sequence[Path]) -> Answer:
    sources = f"read_parquet({[str(file) for file in files]})"
    return relation(SUM.replace("FROM trips", f"FROM {sources}")).fetchall()


def full_disk(disk: Disk, rounds: int, draws: random.Random) -> Held:
    """Return how writes to a disk ended that was full after a drawn number of bytes."""
    held = Held()
    for number in range(rounds):
        way = ON_DISK[number % len(ON_DISK)]
        disk.clear()
        way.prepare(disk)
        is_second = number // len(ON_DISK) % 2  # of two rounds, which has more room
        before, rest = disk.files(), int((is_second + draws.random()) * way.needed_bytes)
        disk.fill(rest)
        end = attempt(held, way.name, f"{rest} bytes", partial(way.write, disk), speaks_of_the_disk)
        (disk.place / "filler").unlink()
        check_disk(held, way, disk, end, before)
    return held


def check_disk(held: Held, way: OnDisk, disk: Disk, end: str, before: set[Path]) -> None:
    with relaqs.connect(disk.table.parent) as db:
        found = rows_of(db.online_sql(SUM).result())
    is_as_said = {"done": [way.after], "refused": [way.before]}.get(end, [way.before, way.after])
    if found not in [by_duckdb(files(disk)) for files in is_as_said]:
        held.fault(way.name, end, "and the table is another")
    if not verify(disk.table).ok:
        held.fault(way.name, end, "and `verify` finds something")
    if end in ("refused", "not kept") and (left := disk.files() - before):
        held.fault(way.name, end, "and left", sorted(left)[:3])


def disk_at(folder: Path) -> Disk:
    """Return a folder as a disk, and make the files."""
    place = folder / "disk"
    place.mkdir()
    trips = "SELECT i AS id, i % 7 AS zone, hash(i) % 100 AS fare, 'note ' || hash(i) % 90000 AS note FROM"
    disk = Disk(place, folder / "first.parquet", folder / "more.parquet", folder / "texts.json")
    relation(f"{trips} range(150000) AS t(i)").write_parquet(str(disk.first))
    relation(f"{trips} range(150000, 200000) AS t(i)").write_parquet(str(disk.more))
    duckdb.sql(f"COPY (SELECT *, {{'id': id}} AS nested FROM '{disk.first}') TO '{disk.texts}'")
    return disk


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Give a disk. Raises CalledProcessError where this process may not mount one."""
    disk = disk_at(folder)
    place = disk.place
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)
    looks, Writing.check_space = Writing.check_space, lambda self, needed_bytes: None  # type: ignore[method-assign]
    try:
        yield disk
    finally:
        Writing.check_space = looks  # type: ignore[method-assign]
        subprocess.run(["umount", "-l", str(place)], check=True)


# The store.

FIRST = "SELECT range AS x, range % 7 AS g, 'text ' || range AS t FROM range(20000)"
OTHER = "SELECT range AS x, range % 5 AS g, 'other ' || range AS t FROM range(9000)"
SUMS = "SELECT g, sum(x) AS total, count(*) AS n, max(t) AS most FROM numbers GROUP BY g ORDER BY g"
STATUSES = (403, 404, 429, 500, 503)


def to_store(address: str, sql: str, *, force: bool = False) -> None:
    shuffle(duckdb.sql(sql), f"{address}/numbers", partitions=4, force=force)


def of_store(address: str) -> Answer:
    with relaqs.connect(address, threads=2) as db:
        return rows_of(db.online_sql(SUMS).result())


def asked(address: str) -> None:
    if of_store(address) != relation(f"WITH numbers AS ({FIRST}) {SUMS}").fetchall():
        raise AssertionError("a wrong answer")


def by_another_key(address: str) -> None:
    shuffle(f"{address}/numbers", f"{address}/numbers@g", cluster_by="g", partitions=4)


def verified(address: str) -> None:
    if not verify(f"{address}/numbers").ok:
        raise AssertionError("`verify` finds something")


STORE_WRITES: dict[str, Callable[[str], None]] = {
    "write": lambda address: to_store(address, FIRST),
    "replace": lambda address: to_store(address, OTHER, force=True),
    "lay out by another key": by_another_key,
    "ask": asked,
    "verify": verified,
}


def failing_store(server: StoreServer, folder: Path, rounds: int, draws: random.Random) -> Held:
    """Return how writes to a store ended that failed at a drawn request."""
    held, truths = (
        Held(),
        [relation(f"WITH numbers AS ({sql}) {SUMS}").fetchall() for sql in (FIRST, OTHER)],
    )
    counts = dict[str, int]()
    for number in range(-len(STORE_WRITES), rounds):
        kind = list(STORE_WRITES)[number % len(STORE_WRITES)]
        address = server.new_bucket()
        new_cache(folder)
        if kind != "write":
            to_store(address, FIRST)
        new_cache(folder)
        if number < 0:  # how many requests it takes
            server.fails()
            STORE_WRITES[kind](address)
            counts[kind] = len(server.requests())
            continue
        fault = Fault(
            draws.choice(["status", "reset", "slow"]),
            times=draws.choice([1, 3, 1_000_000]),
            status=draws.choice(STATUSES),
            seconds=6.0,
            after=draws.randrange(counts[kind]),
        )
        server.fails(fault)
        end = attempt(held, kind, str(fault), partial(STORE_WRITES[kind], address), speaks_of(fault))
        server.fails()
        check_store(held, kind, address, end, truths)
    return held


def check_store(held: Held, kind: str, address: str, end: str, truths: Sequence[Answer]) -> None:
    try:
        found = of_store(address)
    except RelaqsError as error:
        if kind != "write" or end != "refused":
            held.fault(kind, end, f"and it cannot be read: {error}")
        return
    right = {"done": truths[1:], "refused": truths[:1]}.get(end, truths) if kind == "replace" else truths[:1]
    if found not in right:
        held.fault(kind, end, "and the table is another")


def new_cache(folder: Path) -> None:
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    os.environ["RELAQS_CACHE"] = str(cache)


# Kills.


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        kills: processes that were killed before they had ended.
        had_switched: how many of these had appended their batch.
        lost: rows that are not there.
        doubled: rows that are there and should not be.
        is_sound: whether `verify` finds nothing.
    """

    kills: int
    had_switched: int
    lost: int
    doubled: int
    is_sound: bool


def killed_appends(folder: Path, appends: int, kills: int, seed: int = 0) -> Outcome:
    """Return what came of so many appends with so many kills in between. folder: to work in."""
    draws, into = random.Random(seed), folder / "trips"
    files = [_batch(folder / f"{i}.parquet", ROWS + i * BATCH_ROWS, BATCH_ROWS) for i in range(appends)]
    first = _batch(folder / "first.parquet", 0, ROWS)
    shuffle(first, into, partitions=10, cluster_by="driver")
    shuffle(first, folder / "trips@row", partitions=5)
    took_seconds, killed, had_switched = 1.0, 0, 0
    for i, file in enumerate(files):
        due = kills * (i + 1) // appends - kills * i // appends
        while due or read_manifest(into).row_count == ROWS + i * BATCH_ROWS:
            began = time.perf_counter()
            delay = draws.uniform(0.0, 1.2 * took_seconds) if due else None
            if _append(file, into, f"batch {i}", delay):
                took_seconds = time.perf_counter() - began
            else:
                killed += 1
                had_switched += _has(into, i)
            due -= due > 0
            assert read_manifest(into).row_count in (ROWS + i * BATCH_ROWS, ROWS + (i + 1) * BATCH_ROWS)
    lost, doubled = _differences([first, *files], into)
    also = _differences([first, *files], folder / "trips@row")
    return Outcome(killed, had_switched, lost + also[0], doubled + also[1], verify(folder).ok)


def _batch(path: Path, start: int, count: int) -> Path:
    numbers = f"range({start}, {start + count}) AS t(i)"
    sql = f"SELECT i AS id, hash(i) % 700 AS driver, hash(i, 1) % 1000 / 10.0 AS fare FROM {numbers}"
    relation(sql).write_parquet(str(path))
    return path


def _append(file: Path, into: Path, batch: str, kill_after_seconds: float | None) -> bool:
    """Append in a process of its own. Return whether it ended before it was killed."""
    process = subprocess.Popen([sys.executable, "-c", _APPEND, str(file), str(into), batch])
    try:
        return process.wait(kill_after_seconds) == 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        return process.wait() == 0


def _has(into: Path, batch: int) -> bool:
    return f"batch {batch}" in read_manifest(into).batches


def _differences(files: list[Path], into: Path) -> tuple[int, int]:
    """Return how many rows the table lacks, and how many it has too many."""
    stored = f"SELECT id, driver, fare FROM read_parquet({[str(path) for path in read_manifest(into).paths]})"
    given = f"FROM read_parquet({[str(file) for file in files]})"
    ((lost,),) = relation(f"SELECT count(*) FROM (({given}) EXCEPT ALL ({stored}))").fetchall()
    ((doubled,),) = relation(f"SELECT count(*) FROM (({stored}) EXCEPT ALL ({given}))").fetchall()
    return lost, doubled


def _rows_of(held: Held) -> list[tuple[str, ...]]:
    """Return how often each kind ended how. The last column counts whatever must not be."""
    rows: list[tuple[str, ...]] = [
        ("what", "times", "done", "refused, or not kept", "wrong, half written or late")
    ]
    for kind in sorted({kind for kind, _ in held.ends}):
        done, refused = held.ends[kind, "done"], held.ends[kind, "refused"] + held.ends[kind, "not kept"]
        times = sum(count for (other, _), count in held.ends.items() if other == kind)
        wrong = sum(fault.startswith(f"{kind} · ") for fault in held.faults)
        rows.append((kind, *map(str, (times, done, refused, wrong))))
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failing_writes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["disk", "store", "killed"])
    parser.add_argument("--rounds", type=int, default=36, help="of disk and store, default 36")
    parser.add_argument("--appends", type=int, default=50)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table of disk or store into")
    options = parser.parse_args(words)
    name = {"disk": "writes on a full disk", "store": "writes to a store that fails"}.get(options.what, "")
    if options.page is not None:
        record.place_in(options.page, name)
    facts = record.circumstances("failing_writes", words)
    draws, console = random.Random(options.seed), Console(soft_wrap=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.what == "killed":
            outcome = killed_appends(folder, options.appends, options.kills, options.seed)
            console.print(outcome)
            return int(bool(outcome.lost or outcome.doubled or not outcome.is_sound))
        if options.what == "disk":
            with small_disk(folder) as disk:
                held = full_disk(disk, options.rounds, draws)
        else:
            os.environ["RELAQS_STORE_PATIENCE"] = "2"
            with StoreServer() as server:
                os.environ.update(server.environment)
                held = failing_store(server, folder, options.rounds, draws)
    check_ends(held)
    for (kind, end), times in sorted(held.ends.items()):
        console.print(f"{kind}: {end} {times} times")
    console.print(f"{len(held.faults)} faults", *held.faults, sep="\n", markup=False)
    if options.page is not None:
        record.put_into(options.page, name, facts, _rows_of(held))
    return int(bool(held.faults))


if __name__ == "__main__":
    sys.exit(main())
