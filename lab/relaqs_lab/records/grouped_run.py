"""The record of jobs that shared machines in groups under one policy, and its measures.

What is told of jobs that shared machines in groups, and policies of groups side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.records.comparison import Figure, PolicyRow, by_policy, policy_rows, ratio_to
from relaqs_lab.records.store import column, number


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
