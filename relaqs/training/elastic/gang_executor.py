"""What a gang asks of a cluster, what it tells whoever divides slots, and how it carries its own work.

What a gang in training tells whoever divides slots: how far it is, and how fast on how many slots.

An executor of one run that carries some of its work itself. All the rest goes to the cluster as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Protocol, runtime_checkable

from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.executor import Done, Executor, Stoppable
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task
from relaqs.prediction.throughput import Measured, fit_speed
from relaqs.sharing.gangs import Gang
from relaqs.training.elastic.course import Order, StepsMade, pieces_of_step
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import TurnResult


class Carrier:
    """What the executors of one run have in common. cluster: where everything runs."""

    def __init__(self, cluster: Executor) -> None:
        self._cluster = cluster

    @property
    def capacity(self) -> int:
        return self._cluster.capacity

    def report(self, job_id: str, report: StepReport) -> None:
        self._cluster.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        self._cluster.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        self._cluster.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._cluster.set_waiting(job_id, is_waiting)

    def status(self) -> ClusterStatus:
        return self._cluster.status()

    def close(self) -> None:
        """Do nothing: the cluster belongs to the session."""

    def describe(self) -> str:
        return self._cluster.describe()


@runtime_checkable
class LeasesSlots(Protocol):
    """A place where a gang can hold slots."""

    def lease(self, job_id: str, slots: tuple[str, ...]) -> None: ...
    def ask_turn(self, job_id: str, slots: tuple[str, ...] = (), number: int = 0) -> None: ...
    def slots(self) -> tuple[str, ...]: ...
    def tell_gang(self, job_id: str, gang: Gang) -> None: ...


class GangExecutor(Protocol):
    """Where gangs run: a Dask cluster (`relaqs.executors.dask.DaskExecutor`)."""

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None: ...
    def submit(self, tasks: Sequence[Task], done: Done) -> None: ...
    def report(self, job_id: str, report: StepReport) -> None: ...
    def cancel(self, job_id: str) -> None: ...
    def lease(self, job_id: str, slots: tuple[str, ...]) -> None: ...
    def ask_turn(self, job_id: str) -> None: ...
    def slots(self) -> tuple[str, ...]: ...


class GangWitness(Protocol):
    """Whom a gang tells how it gets on, on the gang's own thread."""

    def turned(self, membership: Membership, results: Sequence[TurnResult], core_seconds: float) -> None:
        """A turn is over."""

    def passed(self, passes: int, course: bytes) -> None:
        """So many passes are over. It is said once of each, in their order, where there is an end of passes.

        course: the pickled one after them.
        """

    def ended(self, error: BaseException | None) -> None:
        """The gang is no more."""


class GangFacts:
    """Keeps what turns and passes of a gang gave.

    Its rows a step are decided by the job's own rule. So a policy sees them as the only ones it may have,
    and a slot gets one piece of a step at least.

    Args:
        id: of its job.
        batch_rows: of the first step.
    """

    def __init__(self, id: str, order: Order, batch_rows: int) -> None:
        self._id = id
        self._order = order
        self._measured = Measured()
        self._speed: tuple[float, ...] = ()
        self._fitted = 0
        self._generation = -1
        self._changed_passes = 0
        self._losses: list[float] = []
        self._accuracy = math.nan
        self._noise_rows = math.nan
        self._batch_rows = batch_rows
        self._steps = self._passes = self._rescales = 0
        self._rows = 0  # of the steps so far, as planned: the last one of a pass may have fewer
        self._pauses: list[float] = []

    def turned(self, membership: Membership, results: Sequence[TurnResult]) -> None:
        """Note a turn. The first one of a generation is not measured: ranks met in it."""
        made = max((each.made for each in results if each.made), key=lambda each: each.end, default=None)
        if made is None:
            return
        self._note_steps(made)
        self._passes = max((self._passes, *(each.passes for each in results)))
        self._noise_rows = results[0].noise_rows
        if membership.generation == self._generation:
            self._measure(membership, results)
        else:
            self._rescales += self._generation >= 0
            self._pauses += [max(pauses)] if (pauses := _pauses(results)) else []
            self._generation, self._changed_passes = membership.generation, self._passes

    def passed(self, loss: float, accuracy: float) -> None:
        """Note what a pass gave."""
        self._losses.append(loss)
        self._accuracy = accuracy

    def gang(self) -> Gang:
        """Return what is known now."""
        rows, piece_rows = float(self._batch_rows), float(self._order.piece_rows)
        if len(self._measured) > self._fitted:
            self._fitted = len(self._measured)
            self._speed = tuple(fit_speed(self._measured).tolist())
        return Gang(
            self._id,
            pass_rows=float(self._order.row_count),
            start_rows=rows,
            slot_rows_least=min(piece_rows, rows),
            rows_most=rows,
            rows_done=float(self._rows_done()),
            steps_done=float(self._steps),
            passes_done=float(self._passes),
            passes_since_change=float(self._passes - self._changed_passes),
            first_loss=self._losses[0] if self._losses else math.nan,
            loss=self._losses[-1] if self._losses else math.nan,
            accuracy=self._accuracy,
            batch_rows=rows,
            noise_rows=self._noise_rows,
            rescales=float(self._rescales),
            pause_seconds=fmean(self._pauses) if self._pauses else math.nan,
            slots_asked=pieces_of_step(self._batch_rows, self._order.piece_rows),
            rows_asked=rows,
            speed=self._speed,
        )

    def _note_steps(self, made: StepsMade) -> None:
        """Count steps. Those that are made once more, since all ranks were lost, are counted once."""
        new = max(0, made.end - self._steps)
        self._rows += int(made.batch_rows[len(made) - min(new, len(made)) :].sum())
        self._steps, self._batch_rows = max(self._steps, made.end), int(made.batch_rows[-1])

    def _rows_done(self) -> int:
        """Return the rows of all whole passes and of the present one."""
        whole = self._passes * self._order.row_count
        return min(max(self._rows, whole), whole + self._order.row_count)

    def _measure(self, membership: Membership, results: Sequence[TurnResult]) -> None:
        compute = max(each.compute_seconds for each in results)
        step = max(each.step_seconds for each in results)
        if 0 < compute <= step:
            machines = {worker_of(slot).rpartition(":")[0] for slot in membership.slots}
            slot_rows = self._batch_rows / membership.size
            self._measured.add(len(machines), membership.size, slot_rows, compute, step)


def _pauses(results: Sequence[TurnResult]) -> list[float]:
    """Return how long ranks stood still before a generation's first step, if they had trained before."""
    return [each.pause_seconds for each in results if each.pause_seconds is not None]
