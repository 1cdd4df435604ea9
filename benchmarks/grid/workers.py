"""Processes that run cases, each in one time zone, and what watches over them.

A case that takes too long is a hang: its process says where its threads are and is ended, and another takes
its place.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.grid.dimensions import Case
from benchmarks.grid.judge import Outcome

HANG_SECONDS = 60.0
_CALL = re.compile(r'File ".*?([^/"]+)", line (\d+) in (.+)')
_OPENING_SECONDS = 600.0
"""What a process may take to make the tables of a world, on a machine with other work too."""
_SMALL_SECONDS = 120.0
"""What it may take between two steps of making a case small."""
_SPAWN = get_context("spawn")


@dataclass(slots=True)
class Worker:
    """A process of one time zone. number, case: what it runs, from `begun` on; None while it is idle."""

    zone: str
    process: BaseProcess
    pipe: Connection
    number: int = -1
    case: Case | None = None
    begun: float = 0.0
    limit: float = HANG_SECONDS


class Workers:
    """Runs cases on so many processes at a time.

    Args:
        folder: for what is made.
        seed: of worlds and statements.
        processes: how many run at a time.
    """

    def __init__(self, folder: Path, seed: int, processes: int) -> None:
        self._folder, self._seed, self._most = folder, seed, processes
        self._workers: list[Worker] = []

    def run(self, cases: Sequence[tuple[int, Case]], until: float) -> Iterator[tuple[int, Case, Outcome]]:
        """Yield the outcomes of numbered cases as they come. until: none begins later, `time.monotonic`."""
        waiting = list(reversed(cases))
        while True:
            while waiting and self._busy() < self._most and time.monotonic() < until:
                self._begin(*waiting.pop())
            if not self._busy():
                return
            yield from self._ended()

    def _busy(self) -> int:
        return sum(worker.case is not None for worker in self._workers)

    def _begin(self, number: int, case: Case) -> None:
        idle = [each for each in self._workers if each.case is None and each.zone == case["zone"]]
        worker = idle[0] if idle else self._start(case["zone"])
        worker.number, worker.case = number, case
        worker.begun, worker.limit = time.monotonic(), _OPENING_SECONDS
        worker.pipe.send((number, dict(case), None))

    def _start(self, zone: str) -> Worker:
        ours, theirs = _SPAWN.Pipe()
        before = os.environ.get("TZ")
        os.environ["TZ"] = zone
        try:
            process = _SPAWN.Process(target=_serve, args=(theirs, self._folder, self._seed))
            process.start()
        finally:
            if before is None:
                del os.environ["TZ"]
            else:
                os.environ["TZ"] = before
        theirs.close()
        worker = Worker(zone, process, ours)
        self._workers.append(worker)
        return worker

    def _ended(self) -> Iterator[tuple[int, Case, Outcome]]:
        """Yield what has ended, after a second at most."""
        busy = [worker for worker in self._workers if worker.case is not None]
        ready = wait([worker.pipe for worker in busy], timeout=1.0)
        for worker in busy:
            assert worker.case is not None
            number, case = worker.number, worker.case
            if worker.pipe in ready:
                try:
                    if (outcome := worker.pipe.recv()) is None:
                        worker.begun, worker.limit = time.monotonic(), HANG_SECONDS
                        continue
                    worker.case = None
                except EOFError:
                    self._give_up(worker)
                    outcome = Outcome("raw", "the process ended", f"exit code {worker.process.exitcode}")
                yield number, case, outcome
            elif time.monotonic() - worker.begun > worker.limit:
                stacks = self._stacks(worker)
                self._give_up(worker)
                yield number, case, Outcome("hang", "", f"after {worker.limit:.0f} seconds\n{stacks}")

    def small(self, number: int, case: Case, outcome: Outcome) -> str:
        """Return a failing case made small, as a test; "" where that takes too long."""
        idle = [each for each in self._workers if each.zone == case["zone"]]
        worker = idle[0] if idle else self._start(case["zone"])
        worker.pipe.send((number, dict(case), outcome))
        try:
            while worker.pipe.poll(_SMALL_SECONDS):
                if (text := worker.pipe.recv()) is not None:
                    return str(text)
            self._give_up(worker)
            return ""
        except EOFError:
            self._give_up(worker)
            return ""

    def _stacks(self, worker: Worker) -> str:
        """Return where the threads of a process are, in lines of a comment: how many, and their calls."""
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGUSR1)
        time.sleep(1.0)
        threads = _stacks_file(self._folder, worker.process.pid).read_text().split("\n\n")
        alike = Counter(
            " < ".join(map("{0[0]}:{0[1]} {0[2]}".format, _CALL.findall(each))) for each in threads
        )
        return "\n".join(f"# {count} × {calls}" for calls, count in reversed(alike.items()))

    def _give_up(self, worker: Worker) -> None:
        worker.process.kill()
        worker.process.join(10)
        self._workers.remove(worker)

    def close(self) -> None:
        for worker in self._workers:
            try:
                worker.pipe.send(None)
            except OSError:
                continue
        for worker in self._workers:
            worker.process.join(10)
            if worker.process.is_alive():
                worker.process.kill()


def _serve(pipe: Connection, folder: Path, seed: int) -> None:
    """Run the cases that come through the pipe, in this process, until None comes."""
    from benchmarks.grid.run import Runner
    from relaqs.queries import tables

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops
    stacks = _stacks_file(folder, os.getpid()).open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks)
    tables.announce = lambda message: None
    runner = Runner(folder / f"worker-{os.getpid()}", seed)
    try:
        while (given := pipe.recv()) is not None:
            number, case, outcome = given
            runner.world(case["odd"])
            pipe.send(None)  # from now on it is the case that takes time
            try:
                found = runner.run(case, number) if outcome is None else runner.small(case, number, outcome)
            except Exception:  # the judge's own fault; the process goes on
                found = Outcome("raw", "the judge failed", traceback.format_exc()) if outcome is None else ""
            pipe.send(found)
    except EOFError:
        return
    finally:
        runner.close()


def _stacks_file(folder: Path, pid: int) -> Path:
    return folder / f"stacks-{pid}.txt"
