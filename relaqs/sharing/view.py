"""What a policy sees: the time, the cores, and what is known of each job. Whoever drives jobs fills it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum

import numpy as np

from relaqs.arrays import BoolArray, FloatArray, IntArray
from relaqs.prediction.curves import Curves
from relaqs.sharing.history import History


class Kind(IntEnum):
    """What a job is. Only the first two have a quality that more work improves."""

    QUERY = 0  # quality: relative error; work: the share of the rows that was scanned
    TRAINING = 1  # quality: loss; work: steps, i.e. passes over the data
    EXACT = 2  # a query that has one answer, at its end
    FOREIGN = 3  # tasks of somebody else's


@dataclass(frozen=True, slots=True)
class JobView:
    """One job that has work waiting, as its driver knows it. NaN stands for what is unknown or not asked for.

    weight: the priority; 2.0 counts twice. cores_most: more than these it cannot use at once.
    Work is a share for a query (work_total 1.0), steps for training (work_total: where it ends, or inf).
    step_work, step_core_seconds: of the step in hand. growth_core_seconds: by how much each step costs more
    than the one before. spent_core_seconds: used already of the step in hand. attained_core_seconds: used
    since the job arrived. target: the quality it may stop at. deadline_seconds: on the view's clock.
    memory_bytes: what it needs. batch_rows_least, batch_rows_most: limits for policies that choose it.
    """

    id: str
    kind: Kind
    arrival_seconds: float
    weight: float = 1.0
    history: History = field(default_factory=History)
    cores_most: float = math.inf
    work_total: float = 1.0
    step_work: float = math.nan
    step_core_seconds: float = math.nan
    growth_core_seconds: float = 0.0
    spent_core_seconds: float = 0.0
    attained_core_seconds: float = 0.0
    target: float = math.nan
    deadline_seconds: float = math.inf
    memory_bytes: float = math.nan
    batch_rows_least: float = math.nan
    batch_rows_most: float = math.nan

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"job {self.id!r} has weight {self.weight}; it must be a finite number above 0")
        if not self.cores_most > 0:
            raise ValueError(f"job {self.id!r} has cores_most {self.cores_most}; it must be above 0, or inf")
        if self.history.count and not (self.step_core_seconds > 0 and self.step_work > 0):
            raise ValueError(
                f"job {self.id!r} has folded {self.history.count} steps, but its next one is given as "
                f"{self.step_work} of work for {self.step_core_seconds} core-seconds; both must be above 0"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """J jobs as columns, so that a policy is a few array operations. Shape (J,), fields as in JobView.

    count, first_quality, largest_change: see History. work, quality, core_seconds, progress: the newest
    observations, shape (J, W), oldest first, NaN where a job has fewer.
    """

    ids: tuple[str, ...]
    kind: IntArray
    arrival_seconds: FloatArray
    weight: FloatArray
    cores_most: FloatArray
    work_total: FloatArray
    step_work: FloatArray
    step_core_seconds: FloatArray
    growth_core_seconds: FloatArray
    spent_core_seconds: FloatArray
    attained_core_seconds: FloatArray
    target: FloatArray
    deadline_seconds: FloatArray
    memory_bytes: FloatArray
    batch_rows_least: FloatArray
    batch_rows_most: FloatArray
    count: IntArray
    first_quality: FloatArray
    largest_change: FloatArray
    work: FloatArray
    quality: FloatArray
    core_seconds: FloatArray
    progress: FloatArray

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("two jobs of a view have the same id; a job can be in a view once")

    @classmethod
    def of(cls, rows: Sequence[JobView]) -> Jobs:
        """Return the columns of some jobs, in their order."""
        histories = [row.history for row in rows]
        newest = np.stack([each.newest for each in histories] or [History().newest[:, :]])[: len(rows)]
        work, quality, core_seconds, progress = np.moveaxis(newest, 2, 0)
        numbers = {
            name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in _NUMBERS
        }
        return cls(
            ids=tuple(row.id for row in rows),
            kind=np.array([row.kind for row in rows], dtype=np.int64),
            count=np.array([each.count for each in histories], dtype=np.int64),
            first_quality=np.array([each.first_quality for each in histories], dtype=np.float64),
            largest_change=np.array([each.largest_change for each in histories], dtype=np.float64),
            work=work,
            quality=quality,
            core_seconds=core_seconds,
            progress=progress,
            **numbers,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def is_kind(self, *kinds: Kind) -> BoolArray:
        """Return which jobs are of one of these kinds, shape (J,)."""
        return np.isin(self.kind, kinds)

    @property
    def work_done(self) -> FloatArray:
        """How far each job has come, shape (J,): 0 before its first step."""
        newest = self.work[:, -1]
        return np.where(np.isnan(newest), 0.0, newest)

    def of_jobs(self, chosen: BoolArray | IntArray) -> Jobs:
        """Return the columns of some of the jobs: a mask of shape (J,), or their positions."""
        names = [each.name for each in fields(self) if each.name != "ids"]
        columns = {name: getattr(self, name)[chosen] for name in names}
        return Jobs(ids=tuple(self.ids[i] for i in np.arange(len(self))[chosen]), **columns)


_NUMBERS = tuple(each.name for each in fields(JobView) if each.name not in ("id", "kind", "history"))


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, for policies that place jobs."""

    id: str
    cores: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that is over, for policies that learn from those before."""

    id: str
    kind: Kind
    arrival_seconds: float
    end_seconds: float
    core_seconds: float
    history: History


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All that one decision may depend on. Filled by the live driver or by a simulator.

    time_seconds: now, on the clock of the arrivals. epoch_seconds: until the next decision, the horizon of
    this one. jobs: those that have work waiting; paused and finished ones are left out. curves: predicted
    quality over work of every job (see `relaqs.sharing.outlook`), from whoever fills the view, who knows
    which jobs reported anything new; None leaves the fitting to the policy.
    """

    time_seconds: float
    capacity_cores: float
    jobs: Jobs
    epoch_seconds: float = 0.5
    curves: Curves | None = None
    nodes: tuple[Node, ...] = ()
    finished: tuple[FinishedJob, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.capacity_cores < math.inf:
            raise ValueError(f"capacity_cores is {self.capacity_cores}; it must be finite and not negative")
        if not 0 < self.epoch_seconds < math.inf:
            raise ValueError(f"epoch_seconds is {self.epoch_seconds}; it must be a finite time above 0")
        if self.curves is not None and len(self.curves.chosen) != len(self.jobs):
            raise ValueError(
                f"there are {len(self.curves.chosen)} curves for {len(self.jobs)} jobs; give one each"
            )

    def of_jobs(self, chosen: BoolArray) -> View:
        """Return the view of some of the jobs, with the whole capacity. chosen: shape (J,)."""
        if chosen.all():
            return self
        curves = None if self.curves is None else self.curves.of_jobs(chosen)
        return replace(self, jobs=self.jobs.of_jobs(chosen), curves=curves)
