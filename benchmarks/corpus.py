"""How many statements are planned and answered, written down, so that two versions of the code are compared.

    python -m benchmarks.corpus record INTO.jsonl [--statements 1200] [--seed 1] [--suite TABLES:QUERIES …]
    python -m benchmarks.corpus compare BEFORE.jsonl AFTER.jsonl [--shown 5]

A line has one statement: what `explain` says of its plan, the SQL that was run for it, and each snapshot with
its intervals and warnings. The statements are those of `benchmarks.grid`, over small tables of each kind, and
those of suites: TABLES is a folder that `connect` takes, QUERIES a folder of .sql files, one SELECT each. All
is drawn from the seed, on one thread, and no step has taken any time. So what differs between two records of
the same folder differs by the code.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from relaqs_engine.duck import Cursor

import relaqs
from benchmarks.grid.dimensions import Case, CoveringArray
from benchmarks.grid.run import Runner
from benchmarks.record import DATA

IN_PROCESS = {"door": "one_thread", "zone": "UTC"}
ESTIMATED = {"around": "none", "join": "one", "odd": "nulls"}
"""Of every second statement, so that most of those have estimates."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "anytime": {"interval": "anytime"},
    "confidence": {"confidence": 0.8, "judged_by": "cells"},
    "one_batch": {"batches": 1},
}
_DRAWN = re.compile(
    r"(?<=[a-z]_)[0-9a-f]{12,}|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|0x[0-9a-f]+"
    r"|(?<=')\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+00|(?<=')/[^']+"
)
"""Names that are drawn anew in each process, paths, and the time of the statement."""
Record = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    records = commands.add_parser("record")
    records.add_argument("into", type=Path)
    records.add_argument("--statements", type=int, default=1200, help="of the grid")
    records.add_argument("--seed", type=int, default=1)
    records.add_argument("--suite", action="append", default=[], metavar="TABLES:QUERIES")
    records.add_argument("--folder", type=Path, default=DATA / "corpus", help="where small tables are made")
    compares = commands.add_parser("compare")
    compares.add_argument("before", type=Path)
    compares.add_argument("after", type=Path)
    compares.add_argument("--shown", type=int, default=5)
    given = parser.parse_args(arguments)
    if given.command == "compare":
        return _compare(_read(given.before), _read(given.after), given.shown)
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is drawn by it
        words = [
            sys.executable,
            "-m",
            "benchmarks.corpus",
            *(sys.argv[1:] if arguments is None else arguments),
        ]
        os.execve(sys.executable, words, {**os.environ, "PYTHONHASHSEED": "0"})
    with given.into.open("w", encoding="utf-8") as file, _without_time():
        suites = [each.split(":", 1) for each in given.suite]
        asked = itertools.chain(
            _of_grid(given.folder, given.seed, given.statements),
            *(_of_suite(Path(tables), Path(queries)) for tables, queries in suites),
        )
        for count, line in enumerate(asked, 1):
            file.write(json.dumps(line) + "\n")
            if count % 50 == 0:
                print(f"{count} statements", flush=True)
    return 0


def _of_grid(folder: Path, seed: int, count: int) -> Iterator[Record]:
    """Yield the records of cases of the grid, asked in this process by a session of their world."""
    runner = Runner(folder, seed)
    sessions: dict[str, relaqs.Session] = {}
    with ExitStack() as opened:
        opened.callback(runner.close)
        arrays = CoveringArray(seed), CoveringArray(seed, ESTIMATED)
        drawn = itertools.chain(*(itertools.islice(iter(each), count // 2) for each in arrays))
        for number, each in enumerate(drawn):
            case: Case = {**each, **IN_PROCESS}
            world = runner.world(case["odd"])
            if case["odd"] not in sessions:
                sessions[case["odd"]] = opened.enter_context(
                    relaqs.connect(world.warehouse, tables=world.tables(), threads=1, timezone="UTC")
                )
            statement = runner.statement(case, number)
            options = {"params": statement.params or None, **OPTIONS.get(case["options"], {})}
            yield recorded(f"grid {number}", sessions[case["odd"]], statement.sql, options)


def _of_suite(tables: Path, queries: Path) -> Iterator[Record]:
    with relaqs.connect(tables, threads=1, timezone="UTC") as session:
        for path in sorted(queries.glob("*.sql")):
            sql = path.read_text(encoding="utf-8").strip().rstrip(";")
            yield recorded(f"{tables.name} {path.stem}", session, sql, {})


def recorded(name: str, session: relaqs.Session, sql: str, options: Mapping[str, Any]) -> Record:
    """Return how a session plans and answers a statement. An error is recorded in the place of an answer."""
    line: Record = {"name": name, "sql": sql, "plan": "", "ran": [], "snapshots": {}, "error": ""}
    with _statements(line["ran"]):
        try:
            plan = session.plan(sql, params=options.get("params"))
            line["plan"] = (
                f"{plan.mode.value}; {plan.reasons}\n{session.explain(sql, params=options.get('params'))}"
            )
            query = session.online_sql(sql, **{"seed": 7, "batches": 4, **options})
            line["snapshots"] = {str(each.batch): _shown(each) for each in query}
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
    line["ran"] = sorted(set(line["ran"]))  # two threads take turns
    return dict(json.loads(_DRAWN.sub("#", json.dumps(line))))


def _shown(snapshot: relaqs.Snapshot) -> Record:
    fields = (
        "fraction",
        "error",
        "batch",
        "batches",
        "is_exact",
        "mode",
        "unseen_groups",
        "warnings",
        "reasons",
    )
    shown: Record = {name: repr(getattr(snapshot, name)) for name in fields}
    certain = snapshot.certain_rows
    return shown | {
        "names": snapshot.table.column_names,
        "columns": [_values(each) for each in snapshot.table.columns],
        "widths": repr(snapshot.widths.tolist()),
        "doubts": repr(snapshot.doubts.tolist()),
        "certain": "" if certain is None else repr(certain.to_pylist()),
    }


def _values(column: pa.ChunkedArray) -> str:
    try:
        return f"{column.type} {column.to_pylist()!r}"
    except (ValueError, OverflowError):  # a moment that Python has no value for
        return f"{column.type} {column}"


def _statements(ran: list[str]) -> ExitStack:
    """Note each statement that a cursor of the engine runs."""
    stack = ExitStack()

    def noting(run: Any) -> Any:
        def noted(self: Cursor, sql: str, *others: Any) -> Any:
            ran.append(sql)
            return run(self, sql, *others)

        return noted

    for name in ("table", "rows", "run", "describe"):
        stack.enter_context(mock.patch.object(Cursor, name, noting(getattr(Cursor, name))))
    return stack


def _without_time() -> ExitStack:
    """Let no step take time, so that nothing is decided by how fast it was."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(time, "thread_time", return_value=0.0))
    stack.enter_context(mock.patch.object(time, "perf_counter", return_value=0.0))
    stack.enter_context(mock.patch("relaqs.jobs.executor.busy_seconds", return_value=0.0))
    return stack


def _read(path: Path) -> dict[str, Record]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines}


def _compare(before: Mapping[str, Record], after: Mapping[str, Record], most_shown: int) -> int:
    """Print what differs. Return 1 if anything does."""
    different = Counter[str]()
    for name in before.keys() | after.keys():
        one, other = before.get(name, {}), after.get(name, {})
        one, other = _of_both(one, other), _of_both(other, one)
        parts = [part for part in one.keys() | other.keys() if one.get(part) != other.get(part)]
        different.update(parts)
        if parts and (most_shown := most_shown - 1) >= 0:
            print(f"\n{name}: {', '.join(sorted(parts))}\n{one.get('sql')}")
            for part in parts:
                print(f"  {part}", *_first_difference(one.get(part), other.get(part)), sep="\n    ")
    modes = Counter(each["plan"].partition(";")[0] or "refused" for each in after.values())
    snapshots = sum(len(each["snapshots"]) for each in after.values())
    print(f"\n{len(before)} and {len(after)} statements, {snapshots} snapshots")
    print(", ".join(f"{count} {mode}" for mode, count in modes.most_common()))
    print("all equal" if not different else f"different: {dict(different)}")
    return int(bool(different))


def _of_both(one: Record, other: Record) -> Record:
    """Return a record with the snapshots that both have. A reader that is late is given the newest alone."""
    shared = one.get("snapshots", {}).keys() & other.get("snapshots", {}).keys()
    last = "last", list(one.get("snapshots", {}).values())[-1:]
    return one | {"snapshots": dict([(batch, one["snapshots"][batch]) for batch in sorted(shared)] + [last])}


def _first_difference(one: Any, other: Any) -> tuple[str, str]:
    """Return the texts around the first place where two values differ."""
    texts = json.dumps(one), json.dumps(other)
    place = next(
        (i for i, pair in enumerate(zip(*texts, strict=False)) if pair[0] != pair[1]), min(map(len, texts))
    )
    start = max(0, place - 60)
    return texts[0][start : place + 120], texts[1][start : place + 120]


if __name__ == "__main__":
    raise SystemExit(main())
