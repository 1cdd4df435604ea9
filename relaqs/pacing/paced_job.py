"""Turns: how a loop on a thread of its own holds a core of an executor, and gives it back. A turn is a step.

The loop's thread and the executor's meet in `Turns`: while one computes, the other waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from relaqs.jobs.executor import wait_pieces
from relaqs.jobs.job import Metered, Step, StepReport, Task, TaskKey, TaskResult
from relaqs.progress import LossDelta


@dataclass(frozen=True, slots=True)
class Reported:
    """What a loop says of itself. quality: loss, or error of a result, smaller is better.

    work_done, progress: of a query, as in `StepReport`; a loss has neither.
    """

    quality: float
    work_done: float | None = None
    progress: float = math.nan


@dataclass(frozen=True, slots=True)
class PacedTurn:
    """What became of a turn. reports: made in it, oldest first. core_seconds: how long the core was held."""

    reports: tuple[Reported, ...]
    core_seconds: float
    is_last: bool


class Turns:
    """Where the loop's thread and the executor's meet: one lends its core and waits, the other computes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_lent = False
        self._is_over = False
        self._since_seconds = 0.0  # on the clock of time.perf_counter
        self._reports: list[Reported] = []

    @property
    def is_over(self) -> bool:
        return self._is_over

    def lend(self) -> PacedTurn:
        """Give the loop the calling thread's core, and return once it was given back."""
        with self._changed:
            started = self._since_seconds = time.perf_counter()
            self._is_lent = not self._is_over
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_lent)
            reports, self._reports = tuple(self._reports), []
            return PacedTurn(reports, time.perf_counter() - started, self._is_over)

    def wait(self) -> bool:
        """Wait for a turn; False if there will be none."""
        with self._changed:
            for seconds in wait_pieces():
                if self._changed.wait_for(lambda: self._is_lent or self._is_over, seconds):
                    break
            return not self._is_over

    def note(self, reported: Reported, turn_seconds: float) -> bool:
        """Take a report; once the turn has lasted long enough, end it and wait for the next."""
        with self._changed:
            self._reports.append(reported)
            if self._is_lent and time.perf_counter() - self._since_seconds >= turn_seconds:
                self._is_lent = False
                self._changed.notify_all()
        return self.wait()

    def end(self) -> None:
        with self._changed:
            self._is_over, self._is_lent = True, False
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class _TurnWork:
    """The work of a turn, in this process alone: it has no other way to reach the loop."""

    turns: Turns

    def run(self, owner: str) -> Metered:
        turn = self.turns.lend()
        return Metered(turn, turn.core_seconds)


class PacedJob:
    """A loop as a job: a step is a turn. Its quality is that of the newest result, or the mean of its losses.

    The mean, since the losses of single mini-batches of data jump up and down.
    """

    def __init__(self, id: str, turns: Turns) -> None:
        self.id = id
        self._turns = turns
        self._issued = 0
        self._folded = 0
        self._newest = Reported(math.inf)
        self._moved = LossDelta()

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        key = TaskKey(self.id, self._issued, 0)
        self._issued += 1
        return Step(key.step, (Task(key, _TurnWork(self._turns)),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        [result] = results
        assert isinstance(result.value, PacedTurn), result
        newest = self._newest = self._summed_up(result.value.reports)
        return StepReport(
            step.index,
            newest.quality,
            newest.work_done,
            result.core_seconds,
            result.value.is_last,
            newest.progress,
        )

    def _summed_up(self, reports: Sequence[Reported]) -> Reported:
        if not reports:  # a turn that ended without one, as the loop did
            return self._newest
        if reports[-1].work_done is not None:
            return reports[-1]
        loss = fmean(reported.quality for reported in reports)
        return Reported(loss, None, self._moved.update(loss))
