"""Job: the contract of all work on the cluster. A job has steps, a step has tasks, and folding gives quality.

A query, a training run and a loop of the user's own are all jobs. The scheduler sees what this file defines
and nothing else: no SQL and no model. In the order of a job's life:

1. `JobDescription`: what the scheduler knows of a job when it enters.
2. `Job.next_step` returns a `Step`: tasks that are independent of each other. `Work.run` is what a task
   does on a worker.
3. `TaskResult`: a task's value or its error, and what it was measured to take.
4. `Job.fold` takes a whole step's results, and returns a `StepReport`. Steps are folded in order, each
   once. So the result of a job does not depend on the order in which its tasks end.
5. `JobStatus`, `ClusterStatus`: how a job and all jobs stand, for people.

Example: a query over 100 partitions issues the tasks of partitions 0 to 3 as step 0. Their results are
partial aggregates; folding them gives an estimate from 4 % of the rows. Its error is the report's quality.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, runtime_checkable

from relaqs.sharing.view import NO_GOALS, AccuracySoFar, Goals, Kind


@dataclass(frozen=True, slots=True)
class JobDescription:
    """A job as it enters. A job of the kind FOREIGN gets its fair share, since no more is known of it.

    Attributes:
        id: unique in its session. On a cluster the executor makes it unique among all sessions.
        kind: what the job is; it says what its reports mean.
        name: for people, e.g. the SQL.
        client: the process that the job belongs to, for people.
        weight: the user's priority.
        cores_most: the job cannot use more cores than these at once.
        work_total: the work at the job's end, in the unit of its reports: 1.0 of the rows, or a number of
            steps; inf: it is not known.
        target: the error or loss at which the job may stop.
        deadline_seconds: the time after its entry by which the user wants the target, the accuracy or the
            end reached.
        goals: the accuracy that is required, how urgent that is, and when the job may stop.
        user: who asked for the job, "" where nobody was named.
        user_cores_most: what is planned for all jobs of this user together; rounded up, so many of their
            tasks may run at once.
        costs_grow: each step costs more than the one before, because undecided rows are kept and read again.
        is_abreast: the tasks of a step do best at the same time. Where one has begun, the last others, one a
            core, go before the tasks of other jobs, and are charged for it.
    """

    id: str
    kind: Kind = Kind.FOREIGN
    name: str = ""
    client: str = ""
    weight: float = 1.0
    cores_most: float = math.inf
    work_total: float = 1.0
    target: float | None = None
    deadline_seconds: float = math.inf
    goals: Goals = NO_GOALS
    costs_grow: bool = False
    is_abreast: bool = False
    user: str = ""
    user_cores_most: float = math.inf

    def __post_init__(self) -> None:
        check_weight(self.weight)
        for name in ("cores_most", "work_total", "deadline_seconds", "user_cores_most"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} of job {self.id!r} is {getattr(self, name)}; it must be above 0")


def check_weight(weight: float) -> float:
    """Return the weight. Raises ValueError if it is not a finite number above 0."""
    if not 0 < weight < math.inf:
        raise ValueError(f"the weight is {weight}; it must be a finite number above 0")
    return weight


class Work(Protocol):
    """What a task does on a worker: picklable, pure, and safe to run again after a worker's death."""

    def run(self, owner: str) -> object:
        """Return the task's value, or a `Metered` one that another thread computed.

        Runs on a worker's thread. owner: the name by which this run can be interrupted.
        """
        ...


@runtime_checkable
class CommonWork(Work, Protocol):
    """Work that holds what all tasks of its step have in common, such as a model of megabytes.

    An executor that sends tasks away may send that once, and the rest of each task without it.
    """

    @property
    def common(self) -> object:
        """The same object in all tasks of the step, which nothing changes."""
        ...

    def with_common(self, common: object) -> Self:
        """Return the same work with another common part."""
        ...


@dataclass(frozen=True, slots=True)
class Metered:
    """A task's value, and the core-seconds that another thread took for it.

    The task's own thread only waited, so what it computed says nothing. Example: a paced loop computes on a
    thread of its own while a task holds a core for it.
    """

    value: object
    core_seconds: float


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Names a task once and for all, so that a result can be folded once only."""

    job: str
    step: int
    index: int


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a step.

    Attributes:
        cores: how many it occupies while it runs; an exact query occupies several.
        place: the worker that alone may run it, at once and before others' tasks. None: any, in its turn.
        whole_seconds: of a query that runs as a whole, about how long one core reads for it; inf: unknown.
            It may take any time. None: the task is a part of its job, made to be short.
    """

    key: TaskKey
    work: Work
    cores: int = 1
    place: str | None = None
    whole_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that are independent of each other. Steps are folded in order, each once, without gaps."""

    index: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came back of one task: its value or its error, and what it was measured to take.

    Attributes:
        core_seconds: the time it computed or waited for a file or a lock, over all its cores.
        held_seconds: the time it held its cores, over all of them. It is longer where the task also waited
            for a turn on the processor.
    """

    key: TaskKey
    value: object
    core_seconds: float
    error: BaseException | None = None
    held_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What folding a step gave.

    Attributes:
        quality: the error of a query or the loss of a training run. Smaller is better; inf: unknown yet.
        work_done: the share of all the work that is done, in (0, 1]; None where no end is known.
        core_seconds: measured over the step's tasks.
        is_final: no step follows.
        progress: how far the result moved with this step, in [0, 1], by a metric of `relaqs.progress`; NaN
            where it was not measured.
        accuracy: of a training run that measures it.
        gives_up: why the job goes no further, though it is not done; None where it goes on. The run goes on
            with the job that its listener has for this error.
        is_spent: nothing more may be paid for, so the job ends with this step.
    """

    step: int
    quality: float
    work_done: float | None
    core_seconds: float
    is_final: bool
    progress: float = math.nan
    accuracy: AccuracySoFar | None = None
    gives_up: Exception | None = None
    is_spent: bool = False


@runtime_checkable
class Job(Protocol):
    """An iterative job. The runner calls these from one thread at a time."""

    @property
    def id(self) -> str: ...

    def next_step(self) -> Step | None:
        """Return the next step, or None: nothing more, or nothing before the steps in flight are folded."""
        ...

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Fold a whole step's results, in task order, and report. Called once per step, in order."""
        ...


JobState = Literal["waiting", "running", "paused"]

Curve = tuple[tuple[float, float], ...]
"""(work, quality) pairs, work rising, in the units of the job's reports."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, as `Session.status` tells of it. Core-seconds are measured; a share of 2.0 is two cores.

    Attributes:
        client: the process that the job belongs to.
        user: who asked for it, "" where nobody was named.
        kind: the kind of the job in words, as in `Kind`.
        state: "waiting" until something of it is computed.
        share_cores: what the policy has planned for it.
        used_cores: what it used over the last second or so: measured for tasks that have ended, held for
            those that run.
        quality: error or loss of the newest step, None before.
        target: the error or loss it may stop at.
        work_done: the share of its rows, or its steps.
        work_total: the work at its end, None where that is unknown.
        core_seconds_left: to its target or its end, None where that is unknown.
        history: the newest steps.
        predicted: what lies ahead, beginning with now.
        slots: those that a gang holds now; None where the job is none (see `relaqs.training`).
        batch_rows: the rows of a gang's steps.
        rescales: how often a gang's slots or rows have changed.
        workers: the addresses of those that have parts of its model; empty where it is not cut.
        deadline_seconds_left: until its user wants it done, negative once that is over; None: no hurry.
        urgency: from 1 to 10, how much that counts.
        accuracy: of a classifier in training, after its last pass; None where it is not measured.
        accuracy_required: what its user wants, None where nothing.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(10_000) AS t(x)"), "data/numbers", force=True)
    >>> with relaqs.connect("data", threads=1) as db:
    ...     query = db.online_sql("SELECT avg(x) AS mean FROM numbers", priority=2.0)
    ...     query.pause()
    ...     [(job.name, job.weight) for job in db.status().jobs]
    [('SELECT avg(x) AS mean FROM numbers', 2.0)]
    """

    id: str
    name: str
    kind: str
    state: JobState
    client: str
    weight: float
    arrived_seconds_ago: float
    share_cores: float
    used_cores: float
    quality: float | None
    target: float | None
    work_done: float
    work_total: float | None
    attained_core_seconds: float
    core_seconds_left: float | None
    history: Curve
    predicted: Curve
    user: str = ""
    slots: int | None = None
    batch_rows: int | None = None
    rescales: int | None = None
    workers: tuple[str, ...] = ()
    deadline_seconds_left: float | None = None
    urgency: float = 1.0
    accuracy: float | None = None
    accuracy_required: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything that shares the cores at one moment. `Session.status` returns it.

    Attributes:
        time_seconds: on the scheduler's clock.
        capacity_cores: what there is to share.
        policy: who decides, by name.
        jobs: in the order in which they arrived.
        core_seconds: what jobs were charged so far, by their kind, with those that are over.
        slot_policy: who divides slots among gangs, by name; "" where there are no gangs.

    >>> ClusterStatus(time_seconds=12.5, capacity_cores=8.0, policy="fair", jobs=()).capacity_cores
    8.0
    """

    time_seconds: float
    capacity_cores: float
    policy: str
    jobs: tuple[JobStatus, ...]
    core_seconds: Mapping[str, float] = field(default_factory=dict)
    slot_policy: str = ""
