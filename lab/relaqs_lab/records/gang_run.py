"""The record of elastic jobs that shared machines under one slot policy, and its measures.

What is told of elastic jobs under slot policies, so that policies can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.plugins import needed
from relaqs_lab.records.comparison import Figure, ratio_to
from relaqs_lab.records.schedule_run import RunSource
from relaqs_lab.records.store import column, number


@dataclass(frozen=True, slots=True, eq=False)
class GangTimes:
    """J elastic jobs in the order of their arrival, columns of shape (J,). Times in seconds, NaN: never.

    Attributes:
        completion_seconds: from arrival to end.
        executed_seconds: how long a job held slots, pauses included.
        paused_seconds: how long it held slots without working.
        rescales: how often its slots changed after its start.
        slot_seconds: the slots it held, over time.
    """

    names: tuple[str, ...]
    arrival_seconds: FloatArray
    completion_seconds: FloatArray
    executed_seconds: FloatArray
    paused_seconds: FloatArray
    rescales: FloatArray
    slot_seconds: FloatArray

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> GangTimes:
        columns = [each.name for each in fields(cls) if each.name != "names"]
        times = cls(tuple(map(str, content["names"])), **{name: column(content, name) for name in columns})
        count = len(times.names)
        if not count or any(len(getattr(times, name)) != count for name in columns):
            raise ValueError("the columns of the jobs have different lengths, or none")
        return times

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

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
