"""Flipped bits: does damage ever reach an answer? One bit at a time, in every kind of file that is kept.

    python -m benchmarks.flips [--seed 1] [--flips 10000]

A small warehouse with a sampled table, its outlier index and a static table; a file of records; a checkpoint;
the first part of a layout that is being made; rows that training has spilled; the name by which a row group
is read. For each flip a file, a byte and a bit are drawn from the seed, the file is read as users do, and the
bit is flipped back. It holds if the result is right, or an error names the file. Exits 1 if one does not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_engine.duck import state_digest
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.layouts.build import building
from relaqs_engine.layouts.footers import RowGroupFile
from relaqs_engine.layouts.manifest import FirstPart
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.layouts.sampled import sample
from relaqs_lab.records import RecordFile
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

import relaqs
from benchmarks import record
from benchmarks.plain_duckdb import relation
from relaqs.executors.row_group_files import RowGroupFileSystem
from relaqs.queries.jobs import Checkpoint, SavedState
from relaqs.training.row_cache import SpilledBlock, SpillFile, TornError
from relaqs.training.rows import Rows

ROWS = 40_000
QUERIES = (
    "SELECT zone, sum(fare) AS total FROM trips GROUP BY zone ORDER BY zone",
    "SELECT name, count(*) AS n FROM trips JOIN zones USING (zone) GROUP BY name ORDER BY name",
    "SELECT count(*) AS n FROM trips WHERE fare > (SELECT avg(fare) FROM trips)",
    "SELECT id, note FROM trips WHERE zone = 3 ORDER BY id LIMIT 20",
    "SELECT median(fare) AS middle FROM trips",
    "SELECT zone, list(fare ORDER BY id)[1] AS first FROM trips GROUP BY zone ORDER BY zone",
    "SELECT max(total) AS most FROM (SELECT zone, sum(fare) AS total FROM trips GROUP BY zone)",
)


class WrongError(Exception):
    """A flipped bit changed a result, or an error did not name the file."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A file that bits are flipped in. read: returns how that ended, or raises WrongError."""

    kind: str
    path: Path
    read: Callable[[random.Random], str]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--kinds", help="of the files, such as 'first part,spilled block'; default all")
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table into")
    options = parser.parse_args(words)
    facts = record.circumstances("flips", words)
    tally: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        victims = [
            *warehouse_files(Path(folder)),
            *first_part_files(Path(folder)),
            records_file(Path(folder)),
            checkpoint_file(Path(folder)),
            spilled_block(Path(folder)),
            row_group_name(Path(folder)),
        ]
        if options.kinds is not None:
            victims = [each for each in victims if each.kind in options.kinds.split(",")]
        for number in track(range(options.flips), "flipping bits"):
            draws = random.Random(f"{options.seed}/{number}")
            victim = draws.choice(victims)
            tally[victim.kind, _outcome(victim, draws, number)] += 1
    rows = _rows_of(tally)
    _print(rows)
    if options.page is not None:
        record.put_into(options.page, "flipped bits", facts, rows)
    return int(any(outcome == "WRONG" for _, outcome in tally))


def _outcome(victim: Victim, draws: random.Random, number: int) -> str:
    """Return how the reader of a file with one bit flipped fared. The file is mended again."""
    intact = victim.path.read_bytes()
    damaged, at = bytearray(intact), draws.randrange(len(intact))
    damaged[at] ^= 1 << draws.randrange(8)
    victim.path.write_bytes(damaged)
    try:
        return victim.read(draws)
    except WrongError as error:
        print(f"flip {number}, byte {at} of {victim.path}: {error}", file=sys.stderr)
        return "WRONG"
    finally:
        victim.path.write_bytes(intact)


def warehouse_files(folder: Path) -> Iterator[Victim]:
    """Yield the files of a warehouse, the manifests as often as all others together."""
    warehouse = _warehouse(folder)
    db = relaqs.connect(warehouse, threads=2, exact_below_seconds=0)
    right = {sql: _answer(db, sql) for sql in QUERIES}
    data, manifests = sorted(warehouse.rglob("*.parquet")), sorted(warehouse.rglob("manifest.json"))

    def reader(path: Path) -> Callable[[random.Random], str]:
        def read(draws: random.Random) -> str:
            sql = draws.choice(QUERIES)
            try:
                if path in manifests:  # which a session reads when it is opened
                    relaqs.connect(warehouse, threads=1).close()
                answer = _answer(db, sql)
            except RelaqsError as error:
                if str(path) not in str(error):
                    raise WrongError(f"the error does not name the file: {error}") from error
                return "refused by name"
            if answer != right[sql]:
                raise WrongError(f"{sql} has another answer")
            return "right"

        return read

    for path in data:
        yield Victim("outlier index" if path.name == "outliers.parquet" else "partition", path, reader(path))
    for i in range(len(data)):
        path = manifests[i % len(manifests)]
        yield Victim("manifest", path, reader(path))


def _warehouse(folder: Path) -> Path:
    relation(
        "SELECT i AS id, CASE WHEN i % 500 = 0 THEN 1e6 + i ELSE hash(i) % 1000 END AS fare, "
        f"i % 13 AS zone, 'note ' || hash(i) % 50 AS note FROM range({ROWS}) AS numbers(i)"
    ).write_parquet(str(folder / "trips.parquet"))
    relation("SELECT i AS zone, 'zone ' || i AS name FROM range(13) AS numbers(i)").write_parquet(
        str(folder / "zones.parquet")
    )
    shuffle(folder / "trips.parquet", into=folder / "warehouse" / "trips", partitions=8)
    add_static(folder / "zones.parquet", into=folder / "warehouse" / "zones")
    return folder / "warehouse"


def _answer(db: relaqs.Session, sql: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = db.online_sql(sql).result(timeout=60).table.to_pylist()
    return rows


def first_part_files(folder: Path) -> Iterator[Victim]:
    """Yield the files of a first part. What is asked are estimates of it, and the exact answer after them."""
    parts = list[FirstPart]()
    source, into = folder / "trips.parquet", folder / "part" / "trips"
    with building(source, into, force=False, memory_limit_bytes=1 << 30, threads=1) as build:
        sample(build, 40, first_there=parts.append)
    db = relaqs.connect(
        tables={"trips": source}, threads=2, cache_directory=folder / "cache", exact_below_seconds=0
    )
    plain = db.tables["trips"]
    assert isinstance(plain, PlainTable)
    db._open_tables._replace(plain, replace(plain, first_part=replace(parts[0], table="trips")))
    right = _estimates(db)

    def read(draws: random.Random) -> str:
        try:
            found = _estimates(db)
        except RelaqsError as error:
            if str(into) not in str(error):
                raise WrongError(f"the error does not name the file: {error}") from error
            return "refused by name"
        if any(right.get(fraction) != rows for fraction, rows in found.items()):
            raise WrongError("there is another estimate or answer")
        return "right"

    for path in parts[0].paths:
        yield Victim("first part", path, read)


def _estimates(db: relaqs.Session) -> dict[float, list[dict[str, object]]]:
    """Return what a query answers, by the share of the rows that was read."""
    return {each.fraction: each.table.to_pylist() for each in db.online_sql(QUERIES[0], seed=1)}


def spilled_block(folder: Path) -> Victim:
    """Return rows on disk in a file without a name. Where they are damaged, training reads them anew."""
    features = np.random.default_rng(1).random((ROWS, 8))
    rows = Rows(features, np.arange(float(ROWS)))
    file, block = SpillFile(folder), SpilledBlock(rows)
    block.write(file, rows)

    def read(draws: random.Random) -> str:
        begin = draws.randrange(len(rows))
        part = slice(begin, draws.randint(begin + 1, min(begin + 1000, len(rows))))
        try:
            found = block.rows(part).part(part)
        except TornError:  # it is told in the log, and the rows are read anew
            return "refused by name"
        expected = rows.part(part)
        assert found.target is not None
        assert expected.target is not None
        if not (
            np.array_equal(found.features, expected.features)
            and np.array_equal(found.target, expected.target)
        ):
            raise WrongError(f"rows {part} are others")
        return "right"

    assert read(random.Random(0)) == "right"
    return Victim("spilled block", Path(f"/proc/self/fd/{file._file.fileno()}"), read)


def row_group_name(folder: Path) -> Victim:
    """Return a file with the name of a row group: it must stand for no other one."""
    source = folder / "groups.parquet"
    relation("SELECT range AS x, range AS y FROM range(8192)").write_parquet(str(source), row_group_size=2048)
    found = source.stat()
    state = (str(source), found.st_size, found.st_mtime_ns)
    served = RowGroupFileSystem([state])
    path = folder / "name"
    path.write_bytes(RowGroupFile(state_digest(state), 2, (0,)).name.encode())
    right = served.open(path.read_text()).read()

    def read(draws: random.Random) -> str:
        try:
            if served.open(path.read_bytes().decode()).read() != right:
                raise WrongError(f"{path.read_bytes()!r} is another row group")
        except (FileNotFoundError, UnicodeDecodeError):
            return "refused by name"
        return "right"

    return Victim("row group's name", path, read)


def records_file(folder: Path) -> Victim:
    file = RecordFile(folder / "runs.jsonl")
    for number in range(20):
        file.append("run", {"number": number, "seconds": number / 7})
    right = list(file.read("run", dict))

    def read(draws: random.Random) -> str:
        try:
            found = list(file.read("run", dict))
        except RelaqsError as error:
            if str(file.path) not in str(error):
                raise WrongError(f"the error does not name the file: {error}") from error
            return "refused by name"
        # Without its end the last line was not written yet.
        if found not in (right, right[:-1]):
            raise WrongError("other records came back")
        return "right"

    return Victim("records", file.path, read)


def checkpoint_file(folder: Path) -> Victim:
    path = folder / "kept.arrow"
    checkpoint = Checkpoint(path, "a query")
    rows = pa.table({"k0": list(range(200)), "b0": [i / 3 for i in range(200)]})
    checkpoint.save(SavedState(3, rows, np.arange(64)), 5.0)

    def read(draws: random.Random) -> str:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = checkpoint.load()
        if found is not None:
            raise WrongError("a damaged checkpoint was taken")
        if not any(str(path) in str(warning.message) for warning in caught):
            raise WrongError("no warning names the file")
        return "refused by name"

    return Victim("checkpoint", path, read)


def _rows_of(tally: Counter[tuple[str, str]]) -> list[tuple[str, ...]]:
    outcomes = ("right", "refused by name", "WRONG")
    rows: list[tuple[str, ...]] = [("file", "flips", *outcomes)]
    for kind in dict.fromkeys(kind for kind, _ in sorted(tally)):
        counts = [tally[kind, outcome] for outcome in outcomes]
        rows.append((kind, f"{sum(counts):,}", *(f"{count:,}" for count in counts)))
    return rows


def _print(rows: Sequence[Sequence[str]]) -> None:
    head, *others = rows
    table = Table(*head, box=SIMPLE_HEAD)
    for row in others:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
