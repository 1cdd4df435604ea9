"""What the scheduler knows of a job before its first step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaqs.sharing.goals import NO_GOALS, Goals
from relaqs.sharing.view import Kind


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
        user_cores_most: what is planned for all jobs of this user together.
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
