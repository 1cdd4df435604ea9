"""Hostile statements against a session: none may stop it, none may make others wait, each has an end.

    python -m benchmarks.hostile [--seed 0] [--statements 2000] [--only NUMBER]

Every statement is judged: it is answered or refused by an error of this project within its timeout and a
second; the process lives; nobody else waits more than a second longer. What fails is printed with its number,
and replays alone with --only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.hostile_server import Outcome, lay_out, serve
from benchmarks.hostile_statements import FAMILIES, Statement, statement

TIMEOUT_SECONDS = 1.0
GRACE_SECONDS = 1.0
MOST_LATE_SECONDS = 1.0
_GIVE_UP_SECONDS = 20.0
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A statement and what became of it; fault: what must not be, "" for nothing."""

    statement: Statement
    outcome: Outcome
    fault: str


class Server:
    """The process under attack; a new one takes its place when it dies."""

    def __init__(self, folder: Path, timeout_seconds: float) -> None:
        self._folder = folder
        self._timeout_seconds = timeout_seconds
        self._context = multiprocessing.get_context("spawn")
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, sql: str) -> Outcome:
        """Return what became of the statement; a process that dies or hangs is a fault, and ends."""
        pipe = self._pipe or self._start()
        try:
            pipe.send(sql)
            if pipe.poll(_GIVE_UP_SECONDS):
                outcome: Outcome = pipe.recv()
                return outcome
            said = f"no answer within {_GIVE_UP_SECONDS:.0f} s"
        except (EOFError, OSError):
            said = "the process died"
        self.stop()
        return Outcome("fault", said, _GIVE_UP_SECONDS, 0.0, 0)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        given = (self._folder, theirs, self._timeout_seconds)
        self._process = self._context.Process(target=serve, args=given, daemon=True)
        self._process.start()
        theirs.close()
        if not ours.poll(_START_SECONDS):
            raise RuntimeError(f"the process did not start within {_START_SECONDS:.0f} s")
        ours.recv()
        self._pipe = ours
        return ours


def judged(asked: Statement, outcome: Outcome) -> Judged:
    """Return the statement with what was wrong about its outcome."""
    fault = ""
    if outcome.kind == "fault":
        fault = outcome.said
    elif outcome.seconds > TIMEOUT_SECONDS + GRACE_SECONDS:
        fault = f"it ended after {outcome.seconds:.1f} s"
    elif outcome.late_seconds > MOST_LATE_SECONDS:
        fault = f"another query waited {outcome.late_seconds:.1f} s"
    return Judged(asked, replace(outcome, kind="fault") if fault else outcome, fault)


def run(seed: int, numbers: Iterable[int], timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Judged]:
    """Yield what became of each statement, one after another. timeout_seconds: of each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lay_out(folder)
        server = Server(folder, timeout_seconds)
        try:
            for number in numbers:
                asked = statement(seed, number)
                result = judged(asked, server.ask(asked.sql))
                if result.fault:
                    server.stop()  # what it left behind is not the next one's fault
                yield result
        finally:
            server.stop()


def tally(results: Sequence[Judged]) -> Table:
    """Return a table of outcomes by family."""
    table = Table("family", "tried", "answered", "refused", "timed out", "faults", "slowest", "others waited")
    for family in (*FAMILIES, "all"):
        of_it = [each for each in results if family in (each.statement.family, "all")]
        if not of_it:
            continue
        kinds = Counter(each.outcome.kind for each in of_it)
        counts = [str(kinds[kind]) for kind in ("answered", "refused", "timed out", "fault")]
        slowest = max(each.outcome.seconds for each in of_it)
        late = max(each.outcome.late_seconds for each in of_it)
        table.add_row(family, str(len(of_it)), *counts, f"{slowest:.2f} s", f"{late:.2f} s")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--statements", type=int, default=2000)
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="one statement of the seed, shown as it is"
    )
    given = parser.parse_args(arguments)
    console = Console(markup=False, highlight=False, soft_wrap=True)
    results = []
    for each in run(given.seed, range(given.statements) if given.only is None else [given.only]):
        results.append(each)
        if given.only is not None:
            console.print(ascii(each.statement.sql), ascii(each.outcome), sep="\n")
        if each.fault:
            number, family = each.statement.number, each.statement.family
            shown = ascii(each.statement.sql[:200])
            console.print(f"--seed {given.seed} --only {number} ({family}): {each.fault[:200]!a}: {shown}")
    console.print(tally(results))
    peak = max(each.outcome.peak_bytes for each in results)
    console.print(f"The process took {peak / (1 << 30):.1f} GiB at most.")
    if any(each.fault for each in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
