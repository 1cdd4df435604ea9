"""Milestones: cores go where jobs come soonest to the reductions of their error that the user counts.

The theory in half a page. `index` minimises the error over time. Who waits for an answer that is good enough
minimises something else: the mean time until it is. For one such milestone, a reduction of the error by 90 %
for example, it is best to serve the job that needs the fewest core-seconds to get there (Schrage 1968). For
several milestones with weights, the job with the largest

    weight of a milestone / core-seconds to reach it

is served, which is the index of Smith 1956 and of Gittins 1979. So a milestone is worth its weight to a job
whose error is below it, and cores go where that worth grows most for a core-second, also where it grows far
ahead (`relaqs.sharing.division`).

A predicted error is the expected one, and the true error is often half or twice as large. A milestone is
therefore no cliff. At an error e and a milestone at the level m we count 1 / (1 + (e / m)⁶) of its weight:
half of it where the prediction is just there, and nearly all of it at half of the level. With a cliff, a job
would be left alone where it is predicted to be there, although half of such jobs are not.

Who looks at all answers in between counts the error, too: with a weight of its own it is one more thing that
falls, and with nothing else this is `index`.

Example. Milestones at 70 and 90 %. One query has just reached 70 %, the other one has just begun. By
√(1/x − 1) the second needs a sixth of its rows for 70 %, and the first one half of its rows for 90 %. So the
second is served. Only near its milestone is the first one served before it.

A job with a target has this target as its one milestone, with the weight of all of them.

What was measured, and how far that is from what any policy can reach: docs/decisions/0038-milestones.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest, check_share, divide, divide_greedily, without_quality
from relaqs.sharing.outlook import Hopes, Outlook
from relaqs.sharing.view import Plan, View

FAR_DOUBLINGS = 9  # of the horizon: milestones lie far ahead
ERROR = "error"  # the word for the error among milestones
LEAST_LEVEL = 1e-3  # a reduction by all of the error


@dataclass(frozen=True, slots=True)
class Milestones:
    """The job that comes soonest to a milestone, by its weight, gets the next core.

    Its name has what counts: "milestones:error+70x2+90" counts the error over time once, and 70 % twice.
    `relaqs.connect(policy="milestones:error+70x2+90")` takes it so.

    Args:
        reductions: the milestones, as parts of an error that are gone, each in (0, 1].
        weights: what each of them counts. None: 1 each.
        error_weight: what the error over time counts beside them.
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).

    >>> from relaqs.policies import History, Jobs, JobView, Kind, Milestones, Observation, View
    >>> step = {"step_work": 0.01, "step_core_seconds": 1.0}
    >>> seen = [Observation(0.01 * i, 0.4 / i**0.5, 1.0) for i in range(1, 41)]
    >>> early = JobView("early", Kind.QUERY, 0.0, history=History().followed_by(*seen[:2]), **step)
    >>> late = JobView("late", Kind.QUERY, 0.0, history=History().followed_by(*seen), **step)
    >>> view = View(2.0, 8.0, Jobs.of([early, late]))
    >>> soon, precise = (Milestones((reduction,)).plan(view).cores_by_job() for reduction in (0.5, 0.95))
    >>> soon["early"] > soon["late"], precise["early"] < precise["late"]
    (True, True)
    """

    reductions: tuple[float, ...] = (0.7, 0.9, 0.95)
    weights: tuple[float, ...] | None = None
    error_weight: float = 0.0
    minimum_share: float = 0.1
    why_more: ClassVar[str] = "its answer will be good enough sooner"
    why_less: ClassVar[str] = "other answers will be good enough sooner"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)
        if not self.reductions or not all(0 < each <= 1 for each in self.reductions):
            raise ValueError(
                f"reductions is {self.reductions}; give some above 0 and up to 1, such as (0.9,)"
            )
        weights = self._weights
        if len(weights) != len(self.reductions) or not all(0 < each < np.inf for each in weights):
            raise ValueError(f"weights is {weights}; give a number above 0 for each of {self.reductions}")

        if not 0 <= self.error_weight < np.inf:
            raise ValueError(f"error_weight is {self.error_weight}; give 0 or more")

    @classmethod
    def of_text(cls, text: str, minimum_share: float = 0.1) -> Milestones:
        """Return the policy for what counts, such as "error+70x2+90": the error, 70 % twice, and 90 %.

        >>> Milestones.of_text("error+70x2+90")
        Milestones(reductions=(0.7, 0.9), weights=(2.0, 1.0), error_weight=1.0, minimum_share=0.1)

        Raises:
            ValueError: the text is none of these.
        """
        try:
            counts = _counts(text)
            error_weight = counts.pop(ERROR, 0.0)
            reductions = tuple(float(percent) / 100 for percent in counts)
            return cls(reductions, tuple(counts.values()), error_weight, minimum_share)
        except ValueError as error:
            raise ValueError(
                f"the milestones are {text!r}; write percents above 0 and up to 100 with +, what one counts "
                "with x, and error for the error over time, such as error+70x2+90"
            ) from error

    @property
    def name(self) -> str:
        """The word "milestones" and what counts, so that records tell policies apart."""
        percents = [f"{100 * reduction:.9g}" for reduction in self.reductions]
        counts = [*zip(percents, self._weights, strict=True)]
        if self.error_weight:
            counts.insert(0, (ERROR, self.error_weight))
        return "milestones:" + "+".join(
            what if weight == 1 else f"{what}x{weight:.9g}" for what, weight in counts
        )

    @property
    def _weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.reductions) if self.weights is None else self.weights

    def plan(self, view: View) -> Plan:
        reserved = without_quality(view.jobs)
        return divide(view, self._share_out, minimum_share=self.minimum_share, reserved=reserved)

    def _share_out(self, contest: Contest) -> FloatArray:
        hopes = Hopes(contest)
        levels = None if hopes.outlook is None else self._levels(hopes.outlook)
        everything = sum(self._weights) + self.error_weight
        weights, error_weight = np.array(self._weights) / everything, self.error_weight / everything

        def worth(rows: IntArray, errors: FloatArray) -> FloatArray:
            assert levels is not None  # somebody is known
            total = -error_weight * errors
            for level, weight in zip(levels[rows].T, weights, strict=True):
                total += weight * _reached(errors / level[:, None])
            return total

        def made(chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
            return hopes.made(chosen, core_seconds, worth)

        return divide_greedily(contest, made, far_doublings=FAR_DOUBLINGS)

    def _levels(self, outlook: Outlook) -> FloatArray:
        """Return the errors at which each job's milestones are, shape (J, L): a target's, or the usual."""
        usual = 1.0 - np.array(self.reductions)
        targets = outlook.targets[:, None]
        return np.maximum(np.where(np.isnan(targets), usual, targets), LEAST_LEVEL)


def _reached(part: FloatArray) -> FloatArray:
    """Return how much of a milestone counts at errors that are so many times its level: 1 / (1 + part⁶)."""
    squared = part * part
    return np.asarray(1.0 / (1.0 + squared * squared * squared))


def _counts(text: str) -> dict[str, float]:
    """Return what counts how much. Raises ValueError for a text that says a thing twice."""
    parts = [each.strip().partition("x") for each in text.split("+")]
    counts = {what: float(weight or 1) for what, _, weight in parts}
    if len(counts) != len(parts):
        raise ValueError("something stands there twice")
    return counts
