"""What an iteration of a run in shards is made of, by what its own tasks measured.

An iteration is PULL, COMP and PUSH on each worker, and a rest in which the run has neither a core nor the
network: the last worker is waited for, the loss is judged, and the next tasks find their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

SKIPPED_PASSES = 3  # in which workers read and connect. So the authors of Harmony skip, too
KEPT_SHARE_OF_MEAN = 0.8  # of the running mean, in the next one


@dataclass(frozen=True, slots=True)
class TaskSeconds:
    """What one task of a step took.

    Attributes:
        comp: from when it had the parameters and a core until it left the core.
        pull: from when the version was there until this worker had it whole.
        push: from when the core was left until all owners had their part.
    """

    comp: float
    pull: float
    push: float


@dataclass(frozen=True, slots=True)
class SubtaskSeconds:
    """What an iteration is made of, in seconds: running means over passes.

    Attributes:
        comp: for which a worker's core is held, on average over the workers.
        pull, push: to get the parameters, and to send the sums, on average over the tasks.
        rest: of the iteration, with neither.

    >>> SubtaskSeconds(comp=0.3, pull=0.1, push=0.1, rest=0.05).alone
    0.55
    """

    comp: float
    pull: float
    push: float
    rest: float

    @property
    def comm(self) -> float:
        """PULL and PUSH together."""
        return self.pull + self.push

    @property
    def alone(self) -> float:
        """The iteration, where nobody else takes the cores and the network."""
        return self.comp + self.comm + self.rest


class SubtaskClock:
    """Running means of what the passes of a run take.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B2: times of subtasks by a moving average.

    >>> clock = SubtaskClock()
    >>> for _ in range(SKIPPED_PASSES):
    ...     clock.note([TaskSeconds(9.0, 9.0, 9.0)], workers=1, step_seconds=99.0)
    >>> clock.seconds is None
    True
    >>> clock.note([TaskSeconds(0.3, 0.1, 0.1), TaskSeconds(0.5, 0.1, 0.1)], 2, step_seconds=0.75)
    >>> clock.seconds.comp, round(clock.seconds.rest, 3)
    (0.4, 0.15)
    """

    def __init__(self) -> None:
        self.seconds: SubtaskSeconds | None = None
        self._skipped = 0

    def note(self, tasks: Sequence[TaskSeconds], workers: int, step_seconds: float) -> None:
        """Take in a pass. step_seconds: from one judged loss to the next."""
        if self._skipped < SKIPPED_PASSES:
            self._skipped += 1
            return
        comp = sum(task.comp for task in tasks) / workers
        pull, push = (sum(getattr(task, name) for task in tasks) / len(tasks) for name in ("pull", "push"))
        newest = SubtaskSeconds(comp, pull, push, max(0.0, step_seconds - comp - pull - push))
        if self.seconds is None:
            self.seconds = newest
            return
        pairs = zip(astuple(self.seconds), astuple(newest), strict=True)
        kept = KEPT_SHARE_OF_MEAN
        self.seconds = SubtaskSeconds(*(kept * mean + (1 - kept) * value for mean, value in pairs))
