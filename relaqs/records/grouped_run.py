"""The record of jobs that shared machines in groups under one policy, and many of them side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.records import fields as read
from relaqs.records.comparison import Figure


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
        model_error_mean, model_error_p95: of the model's iteration of a group, relative to the measured one.
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
    model_error_mean: float
    model_error_p95: float
    decision_ms_mean: float
    circumstances: Mapping[str, Any]

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
            arrival_seconds=read.column(content, "arrival_seconds"),
            completion_seconds=read.column(content, "completion_seconds"),
            circumstances=dict(content["circumstances"]),
            **{name: read.number(content, name) for name in _NUMBERS},
        )
        if not len(run.arrival_seconds) or len(run.arrival_seconds) != len(run.completion_seconds):
            raise ValueError("the columns of the jobs have different lengths, or none")
        return run

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


_NUMBERS = (
    "cpu_share",
    "net_share",
    "jobs_mean",
    "groups_mean",
    "spilled_mean",
    "moving_share",
    "model_error_mean",
    "model_error_p95",
    "decision_ms_mean",
)

GROUPED_MEASURES: dict[str, Callable[[GroupedRun], float]] = {
    "completion_seconds": lambda run: run.completion_mean,
    "makespan_seconds": lambda run: run.makespan_seconds,
    "use": lambda run: run.use,
    **{name: lambda run, name=name: float(getattr(run, name)) for name in _NUMBERS},  # type: ignore[misc]
}
"""What is told of a run: one number each. NaN where a job did not end."""


@dataclass(frozen=True, slots=True)
class GroupedRow:
    """One policy in one setting.

    Attributes:
        figures: by the names in GROUPED_MEASURES, over seeds.
        completion_gain, makespan_gain: how many times as long the first policy took, on the same seeds.
    """

    policy: str
    seeds: tuple[int, ...]
    figures: dict[str, Figure]
    completion_gain: Figure
    makespan_gain: Figure


def settings_of_grouped(runs: Sequence[GroupedRun]) -> list[list[GroupedRun]]:
    """Return the runs by setting, in the order in which settings first come."""
    groups: dict[tuple[object, ...], list[GroupedRun]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return list(groups.values())


def compare_grouped(runs: Sequence[GroupedRun]) -> list[GroupedRow]:
    """Return one row a policy over the runs of one setting; others are compared with the first one."""
    names = list(dict.fromkeys(run.policy for run in runs))
    first = [run for run in runs if run.policy == names[0]]
    rows = []
    for name in names:
        own = [run for run in runs if run.policy == name]
        figures = {
            measure: known_figure([of(run) for run in own]) for measure, of in GROUPED_MEASURES.items()
        }
        gains = (gain(own, first, measure) for measure in ("completion_seconds", "makespan_seconds"))
        rows.append(GroupedRow(name, tuple(run.seed for run in own), figures, *gains))
    return rows


def gain(runs: Sequence[GroupedRun], reference: Sequence[GroupedRun], measure: str) -> Figure:
    """Return how many times a measure of other runs is that of these, the mean over the seeds of both."""
    of = GROUPED_MEASURES[measure]
    theirs = {run.seed: of(run) for run in reference}
    return known_figure([theirs[run.seed] / of(run) for run in runs if run.seed in theirs])


def known_figure(values: Sequence[float]) -> Figure:
    """Return the mean over seeds, unknown if one seed's is: leaving it out would flatter the policy."""
    return Figure.of(values) if all(map(math.isfinite, values)) else Figure(math.nan, math.nan)
