"""What the scheduler is told of a job before its first step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaqs.sharing.view import Kind


@dataclass(frozen=True, slots=True)
class JobDescription:
    """A job as it enters. Of one whose kind is FOREIGN nothing is known, and it gets its fair share.

    name: for people, e.g. the SQL. client: whose it is. cores_most: more than these it cannot use at once.
    work_total: where it ends, in the unit of its reports: 1.0 of the rows, or so many steps; inf if nobody
    knows. target: the error or loss it may stop at. deadline_seconds: after it entered, by then it should be
    there; policies see it, none of this package goes by it. costs_grow: whether a step costs more than the
    one before it, as where undecided rows are kept and read again.
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
    costs_grow: bool = False

    def __post_init__(self) -> None:
        check_weight(self.weight)
        for name in ("cores_most", "work_total", "deadline_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} of job {self.id!r} is {getattr(self, name)}; it must be above 0")


def check_weight(weight: float) -> float:
    """Return the weight. Raises ValueError if it is not a finite number above 0."""
    if not 0 < weight < math.inf:
        raise ValueError(f"the weight is {weight}; it must be a finite number above 0")
    return weight
