"""What a policy sees: the time, the cores, and what is known of each job.

What one job has reported: its newest observations, and what older ones are remembered by.

A view holds what users want, too: goals of training runs beside their losses. The answer to a view is a
`Plan`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.curves import WINDOW, Curves

LEAST_URGENCY, MOST_URGENCY = 1.0, 10.0  # the paper's range


class Stop(IntEnum):
    """When a training run stops. Later ones stop sooner.

    >>> Stop["BEST"] < Stop.REQUIRED, Stop.REQUIRED.word
    (True, 'required')
    """

    ITERATIONS = 0  # after all its passes, or once it has converged
    BEST = 1  # when no better accuracy is to be expected
    REQUIRED = 2  # at the accuracy that is required

    @property
    def word(self) -> str:
        """The word by which users say it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Goals:
    """What is wanted of one job. Raises ValueError for what cannot be meant.

    Attributes:
        accuracy: the share of held-out rows that the model must tell rightly; NaN where none is required.
        urgency: from 1 to 10. How much a deadline that is met counts beside those of others.
        stop: when the run stops by itself.
        may_stop: which further stops an overloaded cluster may choose for it.

    >>> Goals(accuracy=0.95, stop=Stop.BEST, may_stop=frozenset({Stop.REQUIRED})).may_end(Stop.REQUIRED)
    True
    """

    accuracy: float = math.nan
    urgency: float = LEAST_URGENCY
    stop: Stop = Stop.ITERATIONS
    may_stop: Collection[Stop] = frozenset()

    def __post_init__(self) -> None:
        if not (math.isnan(self.accuracy) or 0 < self.accuracy <= 1):
            raise ValueError(f"accuracy is {self.accuracy}; it must be a share above 0 and up to 1")
        if not LEAST_URGENCY <= self.urgency <= MOST_URGENCY:
            raise ValueError(
                f"urgency is {self.urgency}; it must be from {LEAST_URGENCY:g} to {MOST_URGENCY:g}"
            )

    def may_end(self, stop: Stop) -> bool:
        """Return whether the job stops so by itself, or may be stopped so when the cluster is overloaded."""
        return stop is self.stop or stop in self.may_stop


NO_GOALS = Goals()


@dataclass(frozen=True, slots=True)
class AccuracySoFar:
    """How far a run is with its accuracy, as the run itself tells.

    Attributes:
        newest: after its last pass, a share of the rows held out.
        is_best: it expects no better accuracy, or never the required one (`accuracy_ahead`).
        work_needed: the passes, counted from its start, after which it expects the required accuracy; inf if
            it does not expect it, NaN where it cannot say yet or none is required.
    """

    newest: float
    is_best: bool = False
    work_needed: float = math.nan


class Observation(NamedTuple):
    """One folded step.

    Args:
        work_done: in the job's unit (see `JobView`).
        quality: error or loss, inf if it is unknown.
        core_seconds: measured over the step's tasks.
        progress: by one of the metrics of `relaqs.progress`, in [0, 1]; NaN where it is not measured.

    >>> Observation(work_done=0.1, quality=0.04, core_seconds=0.2).quality
    0.04
    """

    work_done: float
    quality: float
    core_seconds: float
    progress: float = math.nan


def _nothing_yet() -> FloatArray:
    return np.full((WINDOW, len(Observation._fields)), np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A job's observations, bounded in memory however many steps it takes.

    Attributes:
        newest: the columns of Observation, shape (WINDOW, 4), oldest first, NaN where there are fewer.
        count: the number of all observations.
        first_quality: the first that was finite, NaN before.
        largest_change: of quality between two consecutive steps so far, 0 before.

    >>> seen = History().followed_by(Observation(0.1, 0.08, 0.2), Observation(0.2, 0.05, 0.2))
    >>> seen.count, seen.first_quality, round(seen.largest_change, 2)
    (2, 0.08, 0.03)
    """

    newest: FloatArray = field(default_factory=_nothing_yet)
    count: int = 0
    first_quality: float = math.nan
    largest_change: float = 0.0

    def followed_by(self, *observations: Observation) -> History:
        """Return the history after further steps."""
        history = self
        for observation in observations:
            history = history._followed_by_one(observation)
        return history

    def _followed_by_one(self, observation: Observation) -> History:
        quality, before = observation.quality, float(self.newest[-1, 1])
        is_known = math.isfinite(quality)
        change = abs(quality - before) if is_known and math.isfinite(before) else 0.0
        return History(
            newest=np.vstack([self.newest[1:], observation]),
            count=self.count + 1,
            first_quality=quality if is_known and math.isnan(self.first_quality) else self.first_quality,
            largest_change=max(self.largest_change, change),
        )


class Kind(IntEnum):
    """What a job is. Only the first two have a quality that more work improves.

    >>> Kind.TRAINING.name, Kind.TRAINING < Kind.EXACT
    ('TRAINING', True)
    """

    QUERY = 0  # quality: relative error; work: the share of the rows that was scanned
    TRAINING = 1  # quality: loss; work: steps, i.e. passes over the data
    EXACT = 2  # a query that has one answer, at its end
    FOREIGN = 3  # tasks of other programs on the cluster


@dataclass(frozen=True, slots=True)
class JobView:
    """One job that has work waiting, as the scheduler knows it. NaN: the value is unknown or not asked for.

    Work is a share of the rows for a query, and a number of steps for training.

    Attributes:
        arrival_seconds: when the job came, on the view's clock.
        weight: the user's priority. A job with 2.0 counts twice.
        history: what the steps so far have reported.
        cores_most: the job cannot use more cores than these at once.
        work_total: the work at the job's end: 1.0 for a query, inf for training without a last step.
        step_work: the work of the next step.
        step_core_seconds: the expected cost of the next step.
        growth_core_seconds: how much more each step costs than the step before it.
        spent_core_seconds: what the job has used of the next step already.
        attained_core_seconds: what the job has used since it came.
        target: the error or loss at which the job may stop.
        deadline_seconds: when the user wants the target, the accuracy or the end reached (`within=` of a
            query, `deadline=` of training), on the view's clock; inf: no time was given.
        urgency: from 1 to 10, how much the deadline counts.
        accuracy: of a training run, after its last pass, a share of the rows held out.
        accuracy_required: the accuracy that the user wants.
        is_best: the run expects no better accuracy than it has had (`AccuracySoFar`).
        work_needed: the work after which the run expects the required accuracy; inf: never.
        may_stop_best, may_stop_required: whether it stops so by itself, or may be stopped so when there are
            too few cores.

    >>> JobView("report", Kind.QUERY, arrival_seconds=3.0, weight=2.0).work_total
    1.0
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
    urgency: float = 1.0
    accuracy: float = math.nan
    accuracy_required: float = math.nan
    is_best: bool = False
    work_needed: float = math.nan
    may_stop_best: bool = False
    may_stop_required: bool = False

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


_TYPES = {"FloatArray": np.float64, "IntArray": np.int64, "BoolArray": np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Jobs of a view as columns, so that a policy is a few array operations: an array of shape (J,) a field.

    A subclass declares the columns, and names in `tables` those that have more axes than one.

    Raises:
        ValueError: two jobs have the same id, or a column has not one row for each job.

    >>> @dataclass(frozen=True, slots=True, eq=False)
    ... class Sizes(Columns):
    ...     size: FloatArray
    >>> sizes = Sizes(ids=("a", "b"), size=np.array([3.0, 4.0]))
    >>> len(sizes), sizes.of_jobs(sizes.size > 3).ids
    (2, ('b',))
    """

    tables: ClassVar[tuple[str, ...]] = ()

    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two jobs of a view have the same id; a job can be in a view once")
        for name in self.names():
            shape = getattr(self, name).shape
            if (shape[:1] if name in self.tables else shape) != (count,):
                raise ValueError(f"{name} has shape {shape} for {count} jobs; it must be ({count},)")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(each.name for each in fields(cls) if each.name != "ids")

    @classmethod
    def of_rows(cls, rows: Sequence[Any], **others: NDArray[Any]) -> Self:
        """Return the columns of rows with fields of the same names. others: columns that rows do not have."""
        columns: dict[str, NDArray[Any]] = {
            each.name: np.array([getattr(row, each.name) for row in rows], dtype=_TYPES[str(each.type)])
            for each in fields(cls)
            if each.name not in ("ids", *others)
        }
        return cls(ids=tuple(row.id for row in rows), **columns, **others)

    def of_jobs(self, chosen: BoolArray | IntArray) -> Self:
        """Return the columns of some of the jobs: a mask of shape (J,), or their positions."""
        columns = {name: getattr(self, name)[chosen] for name in self.names()}
        return type(self)(ids=tuple(self.ids[i] for i in np.arange(len(self))[chosen]), **columns)


@dataclass(frozen=True, slots=True, eq=False)
class Jobs(Columns):
    """J jobs as columns. Shape (J,), fields as in JobView.

    The fields count, first_quality and largest_change are those of History. The fields work, quality,
    core_seconds and progress hold the newest observations: shape (J, W), oldest first, NaN where a job has
    fewer.

    >>> jobs = Jobs.of([JobView("a", Kind.QUERY, 0.0), JobView("b", Kind.QUERY, 1.0, weight=2.0)])
    >>> len(jobs), jobs.ids, jobs.weight.tolist()
    (2, ('a', 'b'), [1.0, 2.0])
    """

    tables: ClassVar[tuple[str, ...]] = ("work", "quality", "core_seconds", "progress")

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
    urgency: FloatArray
    accuracy: FloatArray
    accuracy_required: FloatArray
    is_best: BoolArray
    work_needed: FloatArray
    may_stop_best: BoolArray
    may_stop_required: BoolArray
    count: IntArray
    first_quality: FloatArray
    largest_change: FloatArray
    work: FloatArray
    quality: FloatArray
    core_seconds: FloatArray
    progress: FloatArray

    @classmethod
    def of(cls, rows: Sequence[JobView]) -> Jobs:
        """Return the columns of some jobs, in their order."""
        histories = [row.history for row in rows]
        newest = np.stack([each.newest for each in histories] or [History().newest[:, :]])[: len(rows)]
        work, quality, core_seconds, progress = newest.transpose(2, 0, 1)
        return cls.of_rows(
            rows,
            count=np.array([each.count for each in histories], dtype=np.int64),
            first_quality=np.array([each.first_quality for each in histories], dtype=np.float64),
            largest_change=np.array([each.largest_change for each in histories], dtype=np.float64),
            work=work,
            quality=quality,
            core_seconds=core_seconds,
            progress=progress,
        )

    def is_kind(self, *kinds: Kind) -> BoolArray:
        """Return which jobs are of one of these kinds, shape (J,)."""
        return np.asarray(np.logical_or.reduce([self.kind == kind for kind in kinds]))

    @property
    def work_done(self) -> FloatArray:
        """How far each job has come, shape (J,): 0 before its first step."""
        newest = self.work[:, -1]
        return np.where(np.isnan(newest), 0.0, newest)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All that one decision may depend on. The live scheduler or a simulator fills it in.

    Attributes:
        time_seconds: now, on the clock of the arrivals.
        capacity_cores: what there is to share.
        jobs: the jobs that have work waiting. Paused and finished jobs are left out.
        epoch_seconds: the time until the next decision, which is the horizon of this one.
        curves: the predicted quality of every job over its work (`relaqs.sharing.outlook`). Whoever fills
            the view knows which jobs reported anything new, and fits those alone. None: the policy fits.

    >>> from relaqs.policies import Fair
    >>> view = View(0.0, 4.0, Jobs.of([JobView("a", Kind.QUERY, 0.0), JobView("b", Kind.QUERY, 0.0)]))
    >>> Fair().plan(view).cores_by_job()
    {'a': 2.0, 'b': 2.0}
    """

    time_seconds: float
    capacity_cores: float
    jobs: Jobs
    epoch_seconds: float = 0.5
    curves: Curves | None = None

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


ROUNDING = 1e-9  # relative, of sums of shares


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who gets how much until the next plan. Always: cores.sum() ≤ capacity_cores.

    Example: a quarter of one core for job "a" and the rest for job "b", while job "c" is to end.

    >>> plan = Plan(("a", "b"), np.array([0.25, 0.75]), capacity_cores=1.0, stops=("c",))
    >>> plan.cores_by_job()
    {'a': 0.25, 'b': 0.75}

    Attributes:
        ids: the jobs of the view, in its order.
        cores: what each of them gets, in core-seconds a second, shape (J,). It is a share of time, and not a
            set of machines: 0.25 is a quarter of one core's time.
        capacity_cores: the cores that were shared.
        stops: jobs that end now with the results they have, as if their user had called `stop()`. An id
            that is not among the jobs changes nothing. Tasks of other programs cannot be stopped.
    """

    ids: tuple[str, ...]
    cores: FloatArray
    capacity_cores: float
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.cores.shape == (len(self.ids),), (self.cores.shape, len(self.ids))
        assert np.isfinite(self.cores).all(), self.cores
        assert (self.cores >= 0).all(), self.cores
        assert self.cores.sum() <= self.capacity_cores * (1 + ROUNDING), (
            self.cores.sum(),
            self.capacity_cores,
        )

    def cores_by_job(self) -> dict[str, float]:
        """Return the cores of each job by its id."""
        return dict(zip(self.ids, self.cores.tolist(), strict=True))


_View = TypeVar("_View", contravariant=True)
_Plan = TypeVar("_Plan", covariant=True)


@runtime_checkable
class PolicyOf(Protocol[_View, _Plan]):
    """A pure function from what is known to what is decided: equal views give equal plans.

    Policies of cores, of slots, of places and of groups are all of this form. They differ in what they see
    and what they say.

    >>> class Nobody:
    ...     name = "nobody"
    ...     def plan(self, view):
    ...         return ()
    >>> isinstance(Nobody(), PolicyOf)
    True
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: _View) -> _Plan:
        """Return what holds until the next plan."""
        ...


@runtime_checkable
class Policy(PolicyOf[View, Plan], Protocol):
    """A pure function from what is known to who gets the cores: equal views give equal plans.

    A policy may also have two texts, `why_more` and `why_less`. A dashboard shows them where cores move to a
    job or away from it, as in "+2 cores: it is older than the others". A policy that serves equal jobs one
    after another, instead of sharing between them, says so by `serves_in_order = True`. One that is
    *work-conserving* leaves no core idle that a job could use, and ends no job. It says so by
    `is_work_conserving = True`, in the class that plans, and is not asked while there is one job.

    Tests hold laws for every policy of this package (`tests/relaqs/policies/test_laws.py`). It never gives
    out more than the capacity. It gives out all of it while jobs could use it. The order of the jobs in the
    view changes nothing. More weight never means fewer cores. Equal jobs get equal shares, unless the policy
    serves jobs in order.

    Example: a policy of your own. The job with the earliest deadline is served first, and a job whose
    deadline has passed ends with the answer that it has.

    >>> from relaqs.policies import fill_in_order
    >>> class EarliestDeadline:
    ...     name = "earliest_deadline"
    ...
    ...     def plan(self, view):
    ...         jobs = view.jobs
    ...         order = np.lexsort([np.array(jobs.ids), jobs.deadline_seconds])
    ...         cores = fill_in_order(view.capacity_cores, order, jobs.cores_most)
    ...         late = np.array(jobs.ids)[jobs.deadline_seconds < view.time_seconds].tolist()
    ...         return Plan(jobs.ids, cores, view.capacity_cores, stops=tuple(late))
    >>> rows = [
    ...     JobView("relaxed", Kind.QUERY, 0.0, deadline_seconds=60.0),
    ...     JobView("urgent", Kind.QUERY, 0.0, cores_most=3.0, deadline_seconds=12.0),
    ...     JobView("late", Kind.QUERY, 0.0, cores_most=1.0, deadline_seconds=9.0),
    ... ]
    >>> plan = EarliestDeadline().plan(View(10.0, 8.0, Jobs.of(rows)))
    >>> plan.cores_by_job()
    {'relaxed': 4.0, 'urgent': 3.0, 'late': 1.0}
    >>> plan.stops
    ('late',)

    `relaqs.connect(policy=EarliestDeadline())` uses it.
    """
