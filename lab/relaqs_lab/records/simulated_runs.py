"""Records of jobs under one policy on simulated clusters, and the measures by which policies are compared.

| record | jobs | policy |
|---|---|---|
| `GoalRun` | training runs with deadlines and accuracies that share cores | of cores |
| `GangRun` | elastic jobs that share machines | of slots |
| `PlacedRun` | jobs with parts that are placed on machines | placed |
| `GroupedRun` | jobs that share machines in groups | of groups |

A measure is a number of one run, see `comparison.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.plugins import needed
from relaqs_lab.records.comparison import Figure, PolicyRow, by_policy, policy_rows, ratio_to
from relaqs_lab.records.schedule_run import RunSource
from relaqs_lab.records.store import column, number


@dataclass(frozen=True, slots=True, eq=False)
class GoalRun:
    """What came of the runs of one simulation: means over runs, shares of runs.

    Attributes:
        stop: who could stop runs (`relaqs_lab.simulation.study`).
        load: the core-seconds asked for relative to what there is while runs arrive.
        completion_seconds: from arrival to end, or to the stop.
        deadlines_met: the share of runs that were over by their deadline. urgent_met: of the urgent ones.
        accuracy_met: the share of runs that had their required accuracy by their deadline.
        accuracy_by_deadline: the best accuracy of a run by then.
        stopped: the share of runs that a plan stopped.
    """

    kind_of_record: ClassVar[str] = "goal run"

    policy: str
    seed: int
    workload: str
    capacity_cores: float
    stop: str
    load: float
    completion_seconds: float
    makespan_seconds: float
    deadlines_met: float
    urgent_met: float
    accuracy_met: float
    accuracy_by_deadline: float
    stopped: float
    decision_ms: float
    circumstances: Mapping[str, Any]

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""
        return (self.workload, self.capacity_cores, self.stop)

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (*self.setting, self.policy, self.seed)

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> GoalRun:
        """Return the run of a record. Raises KeyError or ValueError for what is none."""
        return cls(
            policy=str(content["policy"]),
            seed=int(content["seed"]),
            workload=str(content["workload"]),
            stop=str(content["stop"]),
            circumstances=dict(content["circumstances"]),
            **{name: number(content, name) for name in NUMBERS},
        )

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


NUMBERS = tuple(each.name for each in fields(GoalRun) if each.type == "float")

GOAL_MEASURES: dict[str, Callable[[GoalRun], float]] = {name: attrgetter(name) for name in NUMBERS}
"""What is told of a run: one number each."""


@dataclass(frozen=True, slots=True, eq=False)
class TimesOfJobs:
    """Jobs in the order of their arrival: their names, and columns of shape (J,) in the classes below."""

    names: tuple[str, ...]

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> Self:
        columns = [each.name for each in fields(cls) if each.name != "names"]
        times = cls(tuple(map(str, content["names"])), **{name: column(content, name) for name in columns})
        count = len(times.names)
        if not count or any(len(getattr(times, name)) != count for name in columns):
            raise ValueError("the columns of the jobs have different lengths, or none")
        return times

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class GangTimes(TimesOfJobs):
    """J elastic jobs in the order of their arrival, columns of shape (J,). Times in seconds, NaN: never.

    Attributes:
        completion_seconds: from arrival to end.
        executed_seconds: how long a job held slots, pauses included.
        paused_seconds: how long it held slots without working.
        rescales: how often its slots changed after its start.
        slot_seconds: the slots it held, over time.
    """

    arrival_seconds: FloatArray
    completion_seconds: FloatArray
    executed_seconds: FloatArray
    paused_seconds: FloatArray
    rescales: FloatArray
    slot_seconds: FloatArray

    @property
    def queuing_seconds(self) -> FloatArray:
        """Each job's time without slots, from arrival to end."""
        return self.completion_seconds - self.executed_seconds


@dataclass(frozen=True, slots=True, eq=False)
class SlotSeries:
    """The slots that all jobs held together, in spans of time one after another, shape (S,) each.

    Attributes:
        until_seconds: the end of each span, from the first arrival on. The first begins there.
        held: the mean number of slots.
    """

    until_seconds: FloatArray
    held: FloatArray

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> SlotSeries:
        series = cls(column(content, "until_seconds"), column(content, "held"))
        if len(series.until_seconds) != len(series.held):
            raise ValueError("the columns of the slots over time have different lengths")
        return series

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class GangRun:
    """Elastic jobs that shared slots of machines under one policy.

    Attributes:
        policy: its name, and what differs from its defaults.
        workload: the jobs and the rules of time, in words.
        used_share: of all slots that were there, from the first arrival to the last end.
        lost_share: of all rows processed, those that were processed again after machines failed.
        slots: held over time; None: not recorded.
        decision_ms_mean, decision_ms_most: of the plans.
    """

    kind_of_record: ClassVar[str] = "gang run"

    source: RunSource
    policy: str
    seed: int
    workload: str
    nodes: int
    node_slots: int
    jobs: GangTimes
    used_share: float
    plans: int
    decision_ms_mean: float
    decision_ms_most: float
    circumstances: Mapping[str, Any]
    lost_share: float = 0.0
    slots: SlotSeries | None = None

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""
        return (self.source, self.workload, self.nodes, self.node_slots, len(self.jobs.names))

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (*self.setting, self.policy, self.seed)

    @property
    def makespan_seconds(self) -> float:
        """The time from the first arrival to the last end; NaN if a job did not end."""
        ends = self.jobs.arrival_seconds + self.jobs.completion_seconds
        return float(np.max(ends) - self.jobs.arrival_seconds[0])

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> GangRun:
        if content["source"] not in ("live", "simulated"):
            raise ValueError(f"the source is {content['source']!r}")
        return cls(
            source=content["source"],
            policy=str(content["policy"]),
            seed=int(content["seed"]),
            workload=str(content["workload"]),
            nodes=int(content["nodes"]),
            node_slots=int(content["node_slots"]),
            jobs=GangTimes.of_record(content["jobs"]),
            plans=int(content["plans"]),
            circumstances=dict(content["circumstances"]),
            lost_share=float(content.get("lost_share", 0.0)),
            slots=SlotSeries.of_record(slots) if (slots := content.get("slots")) is not None else None,
            **{name: number(content, name) for name in _NUMBERS},
        )

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        slots = None if self.slots is None else self.slots.as_record()
        return {**record, "jobs": self.jobs.as_record(), "slots": slots}


_NUMBERS = ("used_share", "decision_ms_mean", "decision_ms_most")


GANG_MEASURES: dict[str, Callable[[GangRun], float]] = {
    "completion_seconds": lambda run: float(run.jobs.completion_seconds.mean()),
    "completion_seconds_median": lambda run: float(np.median(run.jobs.completion_seconds)),
    "completion_seconds_p99": lambda run: float(np.percentile(run.jobs.completion_seconds, 99)),
    "longest_seconds": lambda run: float(run.jobs.completion_seconds.max()),
    "executed_seconds": lambda run: float(run.jobs.executed_seconds.mean()),
    "queuing_seconds": lambda run: float(run.jobs.queuing_seconds.mean()),
    "makespan_seconds": lambda run: run.makespan_seconds,
    "used_share": lambda run: run.used_share,
    "lost_share": lambda run: run.lost_share,
    "rescales": lambda run: float(run.jobs.rescales.mean()),
    "decision_ms": lambda run: run.decision_ms_mean,
}
"""What is told of a run: one number each. NaN where a job did not end."""


def relative(
    runs: Sequence[GangRun], reference: Sequence[GangRun], measure: str = "completion_seconds"
) -> Figure:
    """Return the mean over seeds of a number of some runs relative to other runs of the same seeds."""
    return ratio_to(reference, runs, GANG_MEASURES[measure])


def share_within(runs: Sequence[GangRun], seconds: float) -> Figure:
    """Return the share of the jobs that ended so many seconds after they came at most."""
    return Figure.of([float((run.jobs.completion_seconds <= seconds).mean()) for run in runs])


def wilcoxon_p(runs: Sequence[GangRun], reference: Sequence[GangRun]) -> float:
    """Return the two-sided p of the signed-rank test over a seed's jobs, the middle one of all seeds.

    A pair is a job's time from arrival to end under both. NaN where no seed has both, or a job did not end.
    """
    try:
        from scipy.stats import wilcoxon
    except ModuleNotFoundError as error:
        raise needed("scipy", "comparing runs", "lab") from error

    theirs = {run.seed: run.jobs.completion_seconds for run in reference}
    pairs = [(run.jobs.completion_seconds, theirs[run.seed]) for run in runs if run.seed in theirs]
    return float(np.median([wilcoxon(a, b).pvalue for a, b in pairs])) if pairs else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTimes(TimesOfJobs):
    """J jobs in the order of their arrival, columns of shape (J,). Times in seconds, NaN: never.

    Attributes:
        completion_seconds: from arrival to end.
        deadline_seconds: from arrival to the deadline.
        executed_seconds: how long some part of it was placed.
        accuracy: at the end.
        accuracy_at_deadline: when the deadline came, or at the end if that was before.
        accuracy_required: what the user needs.
        iterations_share: of all iterations, that were made.
        preemptions: how often it worked, and then had to wait.
        sent_bytes: between nodes, moves included.
    """

    arrival_seconds: FloatArray
    completion_seconds: FloatArray
    deadline_seconds: FloatArray
    urgency: FloatArray
    executed_seconds: FloatArray
    accuracy: FloatArray
    accuracy_at_deadline: FloatArray
    accuracy_required: FloatArray
    iterations_share: FloatArray
    preemptions: FloatArray
    sent_bytes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRun:
    """Jobs whose parts one policy placed on a simulated cluster.

    Attributes:
        policy: its name, and what differs from its defaults.
        workload: the jobs and the rules, in words.
        stop: who may stop jobs early: "own", "same" or "none".
        overloads: nodes that were overloaded when a plan was due, over all plans.
        placed_moves: parts that moved from one place to another.
    """

    kind_of_record: ClassVar[str] = "placed run"

    policy: str
    seed: int
    workload: str
    stop: str
    nodes: int
    node_devices: int
    jobs: PlacedTimes
    overloads: int
    placed_moves: int
    plans: int
    decision_ms_mean: float
    decision_ms_most: float
    circumstances: Mapping[str, Any]

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""
        return (self.workload, self.stop, self.nodes, self.node_devices, len(self.jobs.names))

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (*self.setting, self.policy, self.seed)

    @property
    def makespan_seconds(self) -> float:
        """The time from the first arrival to the last end; NaN if a job did not end."""
        ends = self.jobs.arrival_seconds + self.jobs.completion_seconds
        return float(np.max(ends) - self.jobs.arrival_seconds[0])

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> PlacedRun:
        return cls(
            policy=str(content["policy"]),
            seed=int(content["seed"]),
            workload=str(content["workload"]),
            stop=str(content["stop"]),
            jobs=PlacedTimes.of_record(content["jobs"]),
            circumstances=dict(content["circumstances"]),
            nodes=int(content["nodes"]),
            node_devices=int(content["node_devices"]),
            overloads=int(content["overloads"]),
            placed_moves=int(content["placed_moves"]),
            plans=int(content["plans"]),
            **{name: number(content, name) for name in _PLACED_NUMBERS},
        )

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**record, "jobs": self.jobs.as_record()}


_PLACED_NUMBERS = ("decision_ms_mean", "decision_ms_most")


ENOUGH = 1e-9  # rounding of an accuracy


def _waiting(run: PlacedRun) -> float:
    return float((run.jobs.completion_seconds - run.jobs.executed_seconds).mean())


def _in_time(run: PlacedRun) -> float:
    return float((run.jobs.completion_seconds <= run.jobs.deadline_seconds).mean())


def _urgent_in_time(run: PlacedRun) -> float:
    urgent = run.jobs.urgency > 8
    met = run.jobs.completion_seconds[urgent] <= run.jobs.deadline_seconds[urgent]
    return float(met.mean()) if urgent.any() else math.nan


def _accuracy_met(run: PlacedRun) -> float:
    enough = run.jobs.accuracy_at_deadline >= run.jobs.accuracy_required - ENOUGH
    return float(np.where(np.isnan(run.jobs.accuracy_at_deadline), math.nan, enough).mean())


PLACED_MEASURES: dict[str, Callable[[PlacedRun], float]] = {
    "completion_seconds": lambda run: float(run.jobs.completion_seconds.mean()),
    "completion_seconds_median": lambda run: float(np.median(run.jobs.completion_seconds)),
    "makespan_seconds": lambda run: run.makespan_seconds,
    "waiting_seconds": _waiting,
    "deadlines_met": _in_time,
    "urgent_deadlines_met": _urgent_in_time,
    "accuracy_at_deadline": lambda run: float(run.jobs.accuracy_at_deadline.mean()),
    "accuracy_met": _accuracy_met,
    "iterations_share": lambda run: float(run.jobs.iterations_share.mean()),
    "sent_bytes": lambda run: float(run.jobs.sent_bytes.sum()),
    "overloads": lambda run: float(run.overloads),
    "placed_moves": lambda run: float(run.placed_moves),
    "preemptions": lambda run: float(run.jobs.preemptions.sum()),
    "decision_ms": lambda run: run.decision_ms_mean,
}
"""What is told of a run: one number each. NaN where a job did not end, or its deadline did not come."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedRun:
    """J jobs that shared machines in groups. Columns of shape (J,) in the order of arrival, NaN: never.

    Attributes:
        policy: its name, and what differs from its defaults.
        workload: the jobs, and the rules of what is charged and known, in words.
        completion_seconds: from a job's arrival to its end.
        cpu_share, net_share: of all machines' time, in which they computed and communicated.
        jobs_mean, groups_mean: jobs in groups, and groups, on average over time.
        spilled_mean: the mean α.
        moving_share: of the jobs' time on machines, in which they were saved and loaded again.
        loss_mean_seconds: the integral of a job's loss over time, from 1 at its arrival to 0 at its end; the
            mean over jobs.
        waited_most_seconds: the longest time that one of the jobs was on no machine.
        model_error_mean, model_error_p95: of the model's iteration of a group, relative to the measured one.
        query_seconds_mean: from a query's arrival to its exact answer. NaN where there were no queries, as
            the following ones.
        query_time_ratio, query_error_ratio: that time, and the integral of the error over it, over what both
            would be at an equal share of the cores; of the sums over all queries.
        query_share: of all machines' time, in which queries had the cores.
    """

    kind_of_record: ClassVar[str] = "grouped run"

    policy: str
    seed: int
    workload: str
    machines: int
    arrival_seconds: FloatArray
    completion_seconds: FloatArray
    cpu_share: float
    net_share: float
    jobs_mean: float
    groups_mean: float
    spilled_mean: float
    moving_share: float
    loss_mean_seconds: float
    waited_most_seconds: float
    model_error_mean: float
    model_error_p95: float
    decision_ms_mean: float
    circumstances: Mapping[str, Any]
    query_seconds_mean: float = np.nan
    query_time_ratio: float = np.nan
    query_error_ratio: float = np.nan
    query_share: float = np.nan

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""
        return (self.workload, self.machines)

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (*self.setting, self.policy, self.seed)

    @property
    def completion_mean(self) -> float:
        """The mean time from arrival to end; NaN if a job did not end."""
        return float(self.completion_seconds.mean())

    @property
    def makespan_seconds(self) -> float:
        """The time from the first arrival to the last end; NaN if a job did not end."""
        return float(np.max(self.arrival_seconds + self.completion_seconds) - self.arrival_seconds[0])

    @property
    def use(self) -> float:
        """The mean of both shares of use."""
        return (self.cpu_share + self.net_share) / 2

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> GroupedRun:
        run = cls(
            policy=str(content["policy"]),
            seed=int(content["seed"]),
            workload=str(content["workload"]),
            machines=int(content["machines"]),
            arrival_seconds=column(content, "arrival_seconds"),
            completion_seconds=column(content, "completion_seconds"),
            circumstances=dict(content["circumstances"]),
            **{name: number(content, name) for name in GROUPED_NUMBERS},
            **{name: number(content, name) for name in QUERY_NUMBERS if name in content},
        )
        if not len(run.arrival_seconds) or len(run.arrival_seconds) != len(run.completion_seconds):
            raise ValueError("the columns of the jobs have different lengths, or none")
        return run

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


GROUPED_NUMBERS = (
    "cpu_share",
    "net_share",
    "jobs_mean",
    "groups_mean",
    "spilled_mean",
    "moving_share",
    "loss_mean_seconds",
    "waited_most_seconds",
    "model_error_mean",
    "model_error_p95",
    "decision_ms_mean",
)
"""The fields of a record that are one number each."""

QUERY_NUMBERS = ("query_seconds_mean", "query_time_ratio", "query_error_ratio", "query_share")
"""Those that tell of queries. Records from before there were any lack them."""


GROUPED_MEASURES: dict[str, Callable[[GroupedRun], float]] = {
    "completion_seconds": lambda run: run.completion_mean,
    "makespan_seconds": lambda run: run.makespan_seconds,
    "use": lambda run: run.use,
    "waited_most_hours": lambda run: run.waited_most_seconds / 3600,
    **{name: lambda run, name=name: float(getattr(run, name)) for name in (*GROUPED_NUMBERS, *QUERY_NUMBERS)},  # type: ignore[misc]
}
"""What is told of a run: one number each. NaN where a job did not end."""

GAINS = {"completion_gain": "completion_seconds", "makespan_gain": "makespan_seconds"}
"""Figures that say how many times as long the first policy took: a measure by its figure's name."""


def compare_grouped(runs: Sequence[GroupedRun]) -> list[PolicyRow]:
    """Return one row a policy over the runs of one setting; GAINS compare others with the first one."""
    own = by_policy(runs)
    first = next(iter(own.values()))
    return [
        replace(
            row,
            figures=row.figures
            | {name: gain(own[row.policy], first, measure) for name, measure in GAINS.items()},
        )
        for row in policy_rows(runs, GROUPED_MEASURES)
    ]


def gain(runs: Sequence[GroupedRun], reference: Sequence[GroupedRun], measure: str) -> Figure:
    """Return how many times a measure of other runs is that of these, the mean over the seeds of both."""
    return ratio_to(runs, reference, GROUPED_MEASURES[measure])
