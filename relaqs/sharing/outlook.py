"""What more core-seconds will make of each job's quality, on one scale for queries and training.

**The idea.** A policy that gives cores to the job that improves most must compare jobs: a query at ± 5 %
with a training run at loss 0.41. So each job gets a curve of its quality over its work, a cost of its
work, and a scale on which its first result is 1.

    core-seconds -(cost of a step)-> steps -(work of a step)-> work -(curve)-> quality -(scale)-> error

**The curves.** They differ by what is known of a job.

- *A query with an error* follows c·√(1/x − 1), where x is the share of the rows read. Sampling theory
  gives the shape. The newest interval gives c, since it rests on all rows so far.
- *A query with no certified cell* has no known error: its ranking may change with the last row. We assume
  that it improves only when it finishes, and spread that gain evenly over the rows to come: c·(1 − x).
- *A training run* follows SLAQ's sublinear family, or its geometric one where that predicts the newest
  loss twice as well. With fewer than four losses it follows a harmonic curve.

**The scale.** A query's error is divided by its first known one. A loss has a unit of its own, so it is
mapped to 1 at the first loss and to 0 at the last one predicted, after ten times the steps so far (`FAR`).

**Example.** A query has read 10 % of its rows, in one step of 1 core-second, and is at ± 5 %. Its curve
goes through that: c·√(1/0.1 − 1) = c·3 = 0.05. Two more such steps bring √(1/0.2 − 1) = 2 and √(1/0.3 − 1)
= 1.53.

    core-seconds from now     0        1        2
    rows read              10 %     20 %     30 %
    predicted error       5.0 %    3.3 %    2.5 %
    on the scale           1.00     0.67     0.51

The next core-second is worth 0.33 to this query, and the one after it 0.16. Policies compare such numbers.

A result comes when a step is folded, so half a step gains nothing yet. It counts as half of the step's
gain: that is what a job gets on average by a share of the time.

Decisions and measurements: docs/decisions/0010-sharing-cores.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.ahead import StepCosts
from relaqs.prediction.curves import PARAMETERS, Curves, Family, Series, fit_best_curves
from relaqs.prediction.families import GEOMETRIC, HARMONIC, LINE_TO_END, STANDARD_ERROR, SUBLINEAR
from relaqs.sharing.division import Contest
from relaqs.sharing.view import Jobs, Kind, View

FEWEST_RESULTS = 1
FEWEST_LOSSES = 2
UNKNOWN_ERROR = 1.0  # the relative error that a query without a certified cell is assumed to have
FAR = 10.0  # the loss after so many times the steps so far is taken for a training run's last one

_TRAINING: tuple[Family, ...] = (SUBLINEAR, GEOMETRIC, HARMONIC)
QUALITY_FAMILIES: tuple[Family, ...] = (*_TRAINING, STANDARD_ERROR, LINE_TO_END)


def fit_quality_curves(jobs: Jobs) -> Curves:
    """Return each job's predicted quality over its work. The top of the file says which curves there are.

    4,000 training jobs take about 0.2 s, as many queries 2 ms.

    >>> from relaqs.sharing.view import History, Observation
    >>> from relaqs.sharing.view import JobView
    >>> seen = History().followed_by(Observation(0.1, 0.05, 1.0))  # ± 5 % after a tenth of the rows
    >>> query = JobView("q", Kind.QUERY, 0.0, history=seen, step_work=0.1, step_core_seconds=1.0)
    >>> fit_quality_curves(Jobs.of([query])).at(np.array([[0.2, 0.3]])).round(3).tolist()
    [[0.033, 0.025]]
    """
    chosen = np.empty(len(jobs), dtype=np.int64)
    parameters = np.zeros((len(jobs), PARAMETERS))
    training = jobs.is_kind(Kind.TRAINING)
    if training.any():
        losses = Series.of(jobs.work[training], jobs.quality[training])
        fitted = fit_best_curves(_TRAINING[:2], losses, first=HARMONIC)
        chosen[training], parameters[training] = fitted.chosen, fitted.parameters
    known = np.isfinite(jobs.quality[:, -1])
    for queries, family in ((~training & known, STANDARD_ERROR), (~training & ~known, LINE_TO_END)):
        if not queries.any():
            continue
        error = np.where(known, jobs.quality[:, -1], _error_of_unknown(jobs))[queries]
        chosen[queries] = QUALITY_FAMILIES.index(family)
        parameters[queries] = family.through(parameters[queries], jobs.work_done[queries], error)
    return Curves(QUALITY_FAMILIES, chosen, parameters)


def _error_of_unknown(jobs: Jobs) -> FloatArray:
    """Return what is assumed of queries without an error now: their first known error, else 1."""
    return np.where(np.isnan(jobs.first_quality), UNKNOWN_ERROR, jobs.first_quality)


def is_predictable(jobs: Jobs) -> BoolArray:
    """Return which jobs have a curve: queries with a result, and runs with two losses. Shape (J,)."""
    fewest = np.where(jobs.is_kind(Kind.TRAINING), FEWEST_LOSSES, FEWEST_RESULTS)
    return jobs.is_kind(Kind.QUERY, Kind.TRAINING) & (jobs.count >= fewest)


def step_costs(jobs: Jobs) -> StepCosts:
    """Return what the steps ahead of each job cost."""
    return StepCosts(jobs.step_core_seconds, jobs.growth_core_seconds, jobs.spent_core_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Predicted errors of J jobs that have a curve: (quality − floor) / scale, both of shape (J,).

    The example at the top of the file:

    >>> from relaqs.sharing.view import History, Observation
    >>> from relaqs.sharing.view import JobView
    >>> seen = History().followed_by(Observation(work_done=0.1, quality=0.05, core_seconds=1.0))
    >>> query = JobView("q", Kind.QUERY, 0.0, history=seen, step_work=0.1, step_core_seconds=1.0)
    >>> outlook = Outlook.of(View(1.0, 2.0, Jobs.of([query])))
    >>> outlook.errors(np.array([0]), np.array([[0.0, 1.0, 2.0]])).round(2).tolist()
    [[1.0, 0.67, 0.51]]
    """

    jobs: Jobs
    curves: Curves
    costs: StepCosts
    floor: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, view: View, *, normalised: bool = True) -> Outlook:
        """Return the outlook of a view in which all jobs are predictable.

        Args:
            view: the jobs, with their curves where whoever filled the view has fitted them.
            normalised: divide a query's error by its first known one, so that queries begin at 1 as losses
                do. False: take the relative error itself.
        """
        jobs = view.jobs
        curves = fit_quality_curves(jobs) if view.curves is None else view.curves
        now = curves.at(jobs.work_done[:, None])[:, 0]
        floor = np.minimum(now, curves.at(FAR * jobs.work_done[:, None])[:, 0])
        first = _error_of_unknown(jobs)
        training = jobs.is_kind(Kind.TRAINING)
        fall = np.where(training, np.maximum(first, now) - floor, first if normalised else 1.0)
        scale = np.where(fall > 0, fall, np.inf)  # nothing to gain, on any scale
        return cls(jobs, curves, step_costs(jobs), np.where(training, floor, 0.0), scale)

    @property
    def targets(self) -> FloatArray:
        """The errors at which each job's target is reached, shape (J,), NaN where there is no target."""
        return (self.jobs.target - self.floor) / self.scale

    def errors(self, chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
        """Return the errors of some jobs after so many core-seconds. Both have shape (len(chosen), K).

        Part of a step counts as that part of the step's gain.
        """
        steps = self.costs.of_jobs(chosen).steps_within(core_seconds)
        whole = np.floor(steps)
        before, after = self._errors_after(chosen, whole), self._errors_after(chosen, whole + 1.0)
        return before + (steps - whole) * (after - before)

    def _errors_after(self, chosen: IntArray, steps: FloatArray) -> FloatArray:
        jobs = self.jobs
        work = jobs.work_done[chosen][:, None] + steps * jobs.step_work[chosen][:, None]
        quality = self.curves.of_jobs(chosen).at(np.minimum(work, jobs.work_total[chosen][:, None]))
        return (quality - self.floor[chosen][:, None]) / self.scale[chosen][:, None]


NEW_CORE_SECONDS = 0.05  # one ordinary task; no first result is expected from less
FIRST_RESULT_WORTH = 0.1  # where the fall of an error to zero is worth 1; the gain comes after the result

Worth = Callable[[IntArray, FloatArray], FloatArray]
"""(rows of the outlook, errors) → what these errors are worth, both of shape (len(rows), K)."""


class Hopes:
    """What each job of a contest gains by more core-seconds. Known jobs have curves for that.

    We do not know what a new job's first result costs. After x core-seconds without one, we assume a
    probability of 1 / x for each further core-second. So a new job starts before all others, and drops back
    if it is slow. Example: a training run reads all its data twice before its first loss, and drops behind
    queries that end in that time.

    Attributes:
        outlook: of the known jobs, None where there are none.
    """

    def __init__(self, contest: Contest, *, normalised: bool = True) -> None:
        self._is_new = ~is_predictable(contest.jobs)
        self._used = contest.jobs.attained_core_seconds + NEW_CORE_SECONDS
        self._row = np.cumsum(~self._is_new) - 1  # of each known job in the outlook
        known = contest.view.of_jobs(~self._is_new)
        self.outlook = Outlook.of(known, normalised=normalised) if len(known.jobs) else None

    def made(self, chosen: IntArray, core_seconds: FloatArray, worth: Worth) -> FloatArray:
        """Return the gains of some jobs, from any zero point, shape (len(chosen), K).

        Args:
            chosen: the jobs' positions in the contest.
            core_seconds: what they use, shape (len(chosen), K).
            worth: of the errors that known jobs will have then.
        """
        gains = np.empty(core_seconds.shape)
        new = self._is_new[chosen]
        used = self._used[chosen[new]][:, None]
        gains[new] = FIRST_RESULT_WORTH * np.log1p(core_seconds[new] / used)
        if self.outlook is not None:
            rows = self._row[chosen[~new]]
            gains[~new] = worth(rows, self.outlook.errors(rows, core_seconds[~new]))
        return gains
