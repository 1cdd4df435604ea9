"""The record of jobs whose parts were placed on machines by one policy, and its measures.

What is told of jobs whose parts were placed, so that placed policies can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.records.store import column, number


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTimes:
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

    names: tuple[str, ...]
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

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> PlacedTimes:
        columns = [each.name for each in fields(cls) if each.name != "names"]
        times = cls(tuple(map(str, content["names"])), **{name: column(content, name) for name in columns})
        count = len(times.names)
        if not count or any(len(getattr(times, name)) != count for name in columns):
            raise ValueError("the columns of the jobs have different lengths, or none")
        return times

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


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
            **{name: number(content, name) for name in _NUMBERS},
        )

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**record, "jobs": self.jobs.as_record()}


_NUMBERS = ("decision_ms_mean", "decision_ms_most")


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
