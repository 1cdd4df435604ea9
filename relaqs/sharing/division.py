"""Who is owed cores before a policy chooses, and who gets what it leaves over: the same for every policy.

Cores handed out without looking ahead: evenly up to a common level, or in order.

The greedy allocation, for all jobs at once: the k largest entries of the matrix of marginal gains.

The plain loop gives one unit after another to the job that gains most by it. Where gains are concave, a
job's marginal gains fall, so the loop ends with the k largest of all of them, and those are found by one
selection: 4,000 jobs × 16,000 cores in about 2 ms, where a heap takes 14 (benchmarks/scheduling_time.py).

The concave envelope of a gain table: what a job gains when its cores may alternate between two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.view import Jobs, Kind, Plan, View

ROUNDING = 1e-14  # relative to a row's largest gain: what a difference of two gains may be off


def envelope_slopes(units: FloatArray, gains: FloatArray) -> FloatArray:
    """Return the slopes of the least concave function above each row of gains, shape (J, P−1), falling.

    units: shape (P,), rising. gains: shape (J, P). Rows that are concave keep their own slopes.

    Gains are not concave where waves of tasks, whole steps, gangs or targets make them jump, nor where a
    query ends: √(1/x − 1) falls ever faster beyond x = 3/4. A greedy step sees nothing before a jump: alone
    it reaches 55 (waves), 35 (steps) and 19 % (gangs) of the optimum, on the envelope 99 to 100 %. A share
    between two corners of the envelope is no fiction: so much time at the one and so much at the other yields
    just that.

    Source: gift wrapping (Jarvis 1973), for all rows at once.
    """
    run = np.diff(units)
    slopes: FloatArray = np.diff(gains, axis=1) / run
    rounding = ROUNDING * np.abs(gains).max(axis=1, keepdims=True, initial=0.0) / run[1:]
    bends: BoolArray = slopes[:, 1:] > slopes[:, :-1] + rounding
    bent = np.flatnonzero(bends.any(axis=1))
    slopes[bent] = _wrapped(units, gains[bent], slopes[bent], bends[bent])
    return slopes


def _wrapped(units: FloatArray, gains: FloatArray, slopes: FloatArray, bends: BoolArray) -> FloatArray:
    """Return the slopes of the envelopes of rows that bend upward, found edge by edge from the right.

    The edge before a corner is the least steep line to it from an earlier point. A row is done when nothing
    before its corner bends: from the right, since what bends is mostly near the end of a job.
    """
    columns = np.arange(len(units))
    corner = np.full(len(gains), len(units) - 1)
    rows = np.arange(len(gains))
    while len(rows):
        at = corner[rows]
        is_before = columns < at[:, None]
        rise = gains[rows, at][:, None] - gains[rows]
        to_corner = np.where(is_before, rise / np.where(is_before, units[at][:, None] - units, 1.0), np.inf)
        start = to_corner.argmin(axis=1)
        on_edge = is_before & (columns >= start[:, None])
        slopes[rows] = np.where(on_edge[:, :-1], to_corner.min(axis=1)[:, None], slopes[rows])
        corner[rows] = start
        bends_before = bends[rows] & (columns[2:] <= start[:, None])
        rows = rows[bends_before.any(axis=1)]
    return slopes


Gains = Callable[[IntArray, FloatArray], FloatArray]
"""(jobs, units) → what these jobs have of so many units, (len(jobs), len(units)); any zero point will do."""

Values = Callable[[IntArray, int], FloatArray]
"""(jobs, n) → what each of the first n units is worth to these jobs, (len(jobs), n), falling along a row."""

FEWEST_COLUMNS = 4
SMALL_TABLE = 8192  # entries: up to these, every unit of every job is looked at from the start


def allocate_greedily(gains: Gains, most: IntArray, units: int, *, far_doublings: int = 0) -> FloatArray:
    """Return the units of each job, shape (J,), that gain most in sum; units nobody gains by are not given.

    most: the units a job can use, shape (J,). Gains are replaced by their concave envelopes. far_doublings:
    how often the envelope looks twice as far, beyond all that a job is likely to get now: a gain that lies
    ahead then counts at the rate at which the job gets there, as in an index. Units whose gains are equal are
    shared, so that equal jobs get equal shares.
    """

    def marginal_gains(jobs: IntArray, columns: int) -> FloatArray:
        near = np.arange(columns + 1, dtype=np.float64)
        far = columns * 2.0 ** np.arange(1, far_doublings + 1)
        points = np.concatenate([near, far])
        return envelope_slopes(points, gains(jobs, points))[:, :columns]

    return take_most_valued(marginal_gains, most, units)


def divide_greedily(
    contest: Contest, made: Callable[[IntArray, FloatArray], FloatArray], *, far_doublings: int = 0
) -> FloatArray:
    """Return the cores of each job, shape (J,), by which what the jobs make, times their weights, is most.

    Args:
        made: (jobs, core-seconds) → what these jobs make of so many, both of shape (len(jobs), K).
        far_doublings: as `allocate_greedily` has it.
    """

    def gains(chosen: IntArray, units: FloatArray) -> FloatArray:
        return contest.jobs.weight[chosen][:, None] * made(chosen, contest.core_seconds(chosen, units))

    units = allocate_greedily(gains, contest.most_units, contest.units, far_doublings=far_doublings)
    return contest.unit_cores * units


def take_most_valued(values: Values, most: IntArray, units: int) -> FloatArray:
    """Return how many of the `units` most valued units each job has, (J,), without those worth nothing.

    Where several are worth as much as the last one taken, they share what is left in proportion.
    """
    if units <= 0 or not len(most):
        return np.zeros(len(most))
    blocks, price = _enough_columns(values, most, units)
    taken, tied = np.zeros(len(most)), np.zeros(len(most))
    for jobs, worth in blocks:
        taken[jobs] = (worth > price).sum(axis=1)
        tied[jobs] = (worth == price).sum(axis=1) if price > 0 else 0.0
    left = units - taken.sum()
    return taken + tied * (min(1.0, left / tied.sum()) if tied.any() else 0.0)


Block = tuple[IntArray, FloatArray]


def _enough_columns(values: Values, most: IntArray, units: int) -> tuple[list[Block], float]:
    """Return all jobs' values, in blocks of equally many columns, and the worth of the last unit taken.

    A job whose last column is still wanted gets twice as many. The price only rises by that, so that jobs
    which were not wanting before are not later.
    """
    columns = max(FEWEST_COLUMNS, 2 * (units // len(most)), min(int(most.max()), SMALL_TABLE // len(most)))
    blocks = [_block(values, np.arange(len(most)), columns, most)]
    price = 0.0
    while True:
        price = _price([worth for _, worth in blocks], units, price)
        jobs, worth = blocks[-1]
        wanting: BoolArray = (worth[:, -1] > price) & (most[jobs] > columns)
        if not wanting.any():
            return blocks, price
        columns *= 2
        blocks[-1] = (jobs[~wanting], worth[~wanting])
        blocks.append(_block(values, jobs[wanting], columns, most))


def _block(values: Values, jobs: IntArray, columns: int, most: IntArray) -> Block:
    usable = np.arange(columns) < most[jobs][:, None]
    return jobs, np.where(usable, values(jobs, columns), 0.0)


def _price(worths: list[FloatArray], units: int, least: float) -> float:
    """Return the worth of the least valued unit among the `units` best ones, or `least` if that is more."""
    candidates = np.concatenate([worth[worth > least] for worth in worths])
    if candidates.size <= units:
        return least
    return float(np.partition(candidates, candidates.size - units)[candidates.size - units])


def fill_evenly(
    cores: float, weight: FloatArray, most: FloatArray, start: FloatArray | None = None
) -> FloatArray:
    """Return each job's cores such that start + cores reaches one level a weight: weighted max-min fairness.

    The result has shape (J,), and its sum is the smaller of `cores` and the sum of `most`. A job above the
    level gets nothing, and one that reaches `most` gets no more. The level is found exactly, by sorting the
    points where a job begins to be filled and where it is full.
    Source: Bertsekas, Gallager 1992, Data Networks, ch. 6, max-min flow control.

    Args:
        cores: what is handed out.
        weight: of each job, shape (J,).
        most: what each job can use of these cores, shape (J,).
        start: what counts as handed out before, shape (J,). None: nothing.

    The first job can use one core alone, and the others share the rest by their weights:

    >>> fill_evenly(10.0, np.array([1.0, 1.0, 2.0]), np.array([1.0, 10.0, 10.0])).tolist()
    [1.0, 3.0, 6.0]
    """
    most = np.minimum(most, max(cores, 0.0))
    if most.sum() <= cores:
        return most
    begun = np.zeros_like(most) if start is None else start
    points = np.concatenate([begun / weight, (begun + most) / weight])
    order = np.argsort(points, kind="stable")
    points, rate = points[order], np.cumsum(np.concatenate([weight, -weight])[order])
    filled = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(points))])
    at = int(np.searchsorted(filled, cores, side="right")) - 1
    level = points[at] + (cores - filled[at]) / max(rate[at], 1e-300)
    return _within(np.clip(weight * level - begun, 0.0, most), cores)


def fill_in_order(cores: float, order: IntArray, most: FloatArray) -> FloatArray:
    """Return each job's cores when they are served one after another, each up to `most`, shape (J,).

    Args:
        cores: what is handed out.
        order: the jobs' positions, first served first.
        most: what each job can use of these cores, shape (J,).

    Job 1 is served first, then job 0:

    >>> fill_in_order(8.0, np.array([1, 0]), np.array([8.0, 6.0])).tolist()
    [2.0, 6.0]
    """
    most = np.minimum(most, max(cores, 0.0))
    taken_before = np.concatenate([[0.0], np.cumsum(most[order])[:-1]])[: len(order)]
    shares = np.zeros_like(most)
    shares[order] = np.clip(cores - taken_before, 0.0, most[order])
    return _within(shares, cores)


def _within(shares: FloatArray, cores: float) -> FloatArray:
    """Return the shares without what rounding has put on top of the cores."""
    total = shares.sum()
    return shares * (cores / total) if total > cores else shares


UNITS_PER_JOB = 4  # at least, on average: where jobs outnumber cores, a unit is part of a core
FEWEST_UNITS = 256  # so that shares of few cores are as fine as those of many


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """The jobs a policy chooses among, and what it may hand out. `divide` makes it, and asks the rule.

    Attributes:
        view: the time, and the jobs that the rule chooses among. Reserved jobs are left out.
        floor_cores: what each of these jobs has already by its minimum share, shape (J,).
        cores: what is still to be handed out.

    Four of eight cores are left, and each job has one already:

    >>> from relaqs.policies import JobView
    >>> jobs = Jobs.of([JobView("a", Kind.QUERY, 0.0, cores_most=3.0), JobView("b", Kind.QUERY, 0.0)])
    >>> contest = Contest(View(2.0, 8.0, jobs), floor_cores=np.array([1.0, 1.0]), cores=4.0)
    >>> contest.room_cores.tolist()
    [2.0, 4.0]
    """

    view: View
    floor_cores: FloatArray
    cores: float

    @property
    def jobs(self) -> Jobs:
        """The jobs of the view."""
        return self.view.jobs

    @property
    def room_cores(self) -> FloatArray:
        """What each job could use of the cores on top of its floor, shape (J,)."""
        return np.clip(self.jobs.cores_most - self.floor_cores, 0.0, self.cores)

    @property
    def units(self) -> int:
        """How many equal parts the cores are handed out in: one core each, less where cores are few."""
        return max(math.ceil(self.cores), UNITS_PER_JOB * len(self.jobs), FEWEST_UNITS)

    @property
    def unit_cores(self) -> float:
        """The size of one of these parts."""
        return self.cores / self.units

    @property
    def most_units(self) -> IntArray:
        """The units each job can use, shape (J,)."""
        most = np.floor(np.minimum(self.room_cores / max(self.unit_cores, 1e-300) + 1e-9, self.units))
        return most.astype(np.int64)

    def among(self, chosen: BoolArray, cores: float) -> Contest:
        """Return the contest for other cores among some of the jobs only."""
        return Contest(self.view.of_jobs(chosen), self.floor_cores[chosen], max(cores, 0.0))

    def core_seconds(self, chosen: IntArray, units: FloatArray) -> FloatArray:
        """Return what some jobs use until the next plan, given so many units, (len(chosen), len(units))."""
        cores = self.floor_cores[chosen][:, None] + units * self.unit_cores
        return cores * self.view.epoch_seconds


DivisionRule = Callable[[Contest], FloatArray]
"""A contest → what each of its jobs gets on top of its floor, shape (J,), in sum at most its cores."""


def divide(
    view: View, rule: DivisionRule, *, minimum_share: float = 0.0, reserved: BoolArray | None = None
) -> Plan:
    """Return the plan that gives the reserved jobs their fair share, the others a minimum, and asks the rule.

    The fair share of a job is by weight, and never more than it can use. What the rule does not hand out,
    because no job gains by it, goes to all jobs evenly: no core is idle while a job can use it.

    Args:
        view: the jobs, the time and the cores.
        rule: a function from a contest to what each of its jobs gets on top of its floor, shape (J,). In sum
            that is at most `contest.cores`.
        minimum_share: what every job has at least, a fraction of its fair share in [0, 1]. 1 is fair sharing.
        reserved: which jobs get their fair share and are no part of the contest, shape (J,).

    An exact query has its fair share, a third. The rule shares the other six cores by the square of weights:

    >>> from relaqs.policies import JobView
    >>> rows = [
    ...     JobView("exact", Kind.EXACT, 0.0, weight=3.0),
    ...     JobView("light", Kind.QUERY, 0.0, weight=1.0),
    ...     JobView("heavy", Kind.QUERY, 0.0, weight=5.0),
    ... ]
    >>> def by_square(contest):
    ...     return fill_evenly(contest.cores, contest.jobs.weight**2, contest.room_cores)
    >>> view = View(time_seconds=2.0, capacity_cores=9.0, jobs=Jobs.of(rows))
    >>> plan = divide(view, by_square, reserved=without_quality(view.jobs))
    >>> {job: round(cores, 2) for job, cores in plan.cores_by_job().items()}
    {'exact': 3.0, 'light': 0.23, 'heavy': 5.77}
    """
    jobs = view.jobs
    fair = fill_evenly(view.capacity_cores, jobs.weight, jobs.cores_most)
    is_reserved = np.zeros(len(jobs), dtype=bool) if reserved is None else reserved
    cores = np.where(is_reserved, fair, minimum_share * fair)
    contenders = ~is_reserved
    left = view.capacity_cores - cores.sum()
    if contenders.any() and left > 0:
        cores[contenders] += rule(Contest(view.of_jobs(contenders), cores[contenders], left))
    unclaimed = max(view.capacity_cores - cores.sum(), 0.0)
    cores = cores + fill_evenly(unclaimed, jobs.weight, np.maximum(jobs.cores_most - cores, 0.0))
    return Plan(jobs.ids, cores, view.capacity_cores)


def without_quality(jobs: Jobs) -> BoolArray:
    """Return which jobs have no quality that more work improves, shape (J,).

    They are exact queries and other programs. Most policies cannot compare them with other jobs, and give
    them their fair share (see `divide`).

    >>> from relaqs.policies import JobView
    >>> rows = [JobView("a", Kind.QUERY, 0.0), JobView("b", Kind.EXACT, 0.0), JobView("c", Kind.FOREIGN, 0.0)]
    >>> without_quality(Jobs.of(rows)).tolist()
    [False, True, True]
    """
    return jobs.is_kind(Kind.EXACT, Kind.FOREIGN)


def check_share(name: str, share: float) -> None:
    """Raise ValueError if the share is not in [0, 1]."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} is {share}; it must be between 0 and 1, a fraction of the fair share")


@dataclass(frozen=True, slots=True)
class Floored:
    """A policy that gives every job a part of its fair share. minimum_share: that part (see `divide`)."""

    minimum_share: float = 0.1

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)
