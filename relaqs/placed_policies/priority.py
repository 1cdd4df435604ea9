"""MLF-H's priority of a part: what it brings to learning, and how urgent its computing is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.parts.view import PlacedView
from relaqs.placed_policies.descendants import PATHS, longest_path_below, with_descendants

LATE = ("none", "keep")


@dataclass(frozen=True, slots=True)
class PartPriority:
    """The priority of each part: P = α·P_ML + (1 − α)·P_C.

    For a part without children, with the job in its iteration I and δl the fall of its loss:

        P_ML = urgency · (1 / I) · (δl of iteration I − 1 / the sum of δl) · (share of the parameters)
        P_C  = γ_d / (deadline − now) + γ_r / (time left) + γ_w · (time in the queue)

    Every other part adds γ times what its children have, to both. A server has the highest priority.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, equations 2 to 6; the numbers are those of its section 4.1.
    The paper leaves open what the other arguments say.

    Args:
        alpha: α. gamma: γ. gamma_deadline: γ_d. gamma_remaining: γ_r. gamma_waiting: γ_w.
        unit_seconds: the unit of all times in P_C. In seconds, waiting alone would count; in hours, all do.
        least_seconds: time left, and time to the deadline, count as no less than this.
        late: what the deadline's term is once it has passed: "none", 0; or "keep", as if least_seconds were
            left.
        paths: how descendants count: "all" paths, or each "once".
        uses_urgency: False leaves the urgency out, to see what it does.

    >>> PartPriority(gamma_deadline=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: gamma_deadline is -1.0; give a finite number, 0 or more
    """

    alpha: float = 0.3
    gamma: float = 0.8
    gamma_deadline: float = 0.3
    gamma_remaining: float = 0.3
    gamma_waiting: float = 0.35
    unit_seconds: float = 3600.0
    least_seconds: float = 60.0
    late: str = "none"
    paths: str = "all"
    uses_urgency: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or not 0 <= self.gamma < 1:
            raise ValueError(
                f"alpha is {self.alpha} and gamma is {self.gamma}; alpha must be from 0 to 1, gamma below 1"
            )
        for name in ("gamma_deadline", "gamma_remaining", "gamma_waiting"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        for name in ("unit_seconds", "least_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite number above 0")
        if self.late not in LATE or self.paths not in PATHS:
            raise ValueError(
                f"late is {self.late!r} and paths is {self.paths!r}; give one of {LATE} and one of {PATHS}"
            )

    def of_parts(self, view: PlacedView) -> FloatArray:
        """Return the priority of each part, shape (P,); infinite for servers."""
        parts = view.parts  # descendants add up, so both terms go down the graph at once
        own = self.alpha * self.learning(view) + (1 - self.alpha) * self.computing(view)
        return np.where(parts.is_server, np.inf, with_descendants(parts, own, self.gamma, self.paths))

    def learning(self, view: PlacedView) -> FloatArray:
        """Return equation 2 for each part alone, shape (P,).

        The share of the last fall of the loss is 1 up to the second iteration, and while no loss is known.
        It is 0 where the loss has risen in all, and at most 1.
        """
        jobs, parts = view.jobs, view.parts
        iteration = np.floor(jobs.iterations_done) + 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            fallen = np.where(jobs.loss_fallen > 0, jobs.loss_fallen_last / jobs.loss_fallen, 0.0)
        unknown = (iteration <= 2) | np.isnan(jobs.loss_fallen_last)
        fallen = np.where(unknown, 1.0, np.clip(fallen, 0.0, 1.0))
        urgency = jobs.urgency if self.uses_urgency else np.ones(len(jobs))
        return np.asarray((urgency / iteration * fallen)[parts.job] * parts.size_share)

    def computing(self, view: PlacedView) -> FloatArray:
        """Return equation 4 for each part alone, shape (P,).

        A part's deadline is that of its job, less what the parts below it compute in one iteration. Its time
        left is what it computes alone in all iterations that are left. It waits since it last entered the
        queue, and not while it is placed.
        """
        jobs, parts = view.jobs, view.parts
        to_deadline = jobs.deadline_seconds[parts.job] - longest_path_below(parts) - view.time_seconds
        left = jobs.iterations_left[parts.job] * parts.alone_seconds
        waits = np.maximum(view.time_seconds - parts.queued_since_seconds, 0.0)
        waits = np.where(np.isnan(parts.queued_since_seconds), 0.0, waits)
        unit, least = self.unit_seconds, self.least_seconds
        deadline = unit / np.maximum(to_deadline, least)
        if self.late == "none":
            deadline = np.where(to_deadline > 0, deadline, 0.0)
        return np.asarray(
            self.gamma_deadline * deadline
            + self.gamma_remaining * unit / np.maximum(left, least)
            + self.gamma_waiting * waits / unit
        )
