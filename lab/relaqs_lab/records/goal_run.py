"""The record of training runs with deadlines and accuracies that shared cores under one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar

from relaqs_lab.records.store import number


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
