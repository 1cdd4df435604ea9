"""What lies ahead of a job: the costs of its steps, and the time until a query has its target error.

Costs are in core-seconds, so that they hold for any number of cores: SLAQ's c·S/N seconds are a cost of
c·S spread over N cores.

When a query's error will be at a target, by what has been seen of it so far. Numbers in, numbers out.

A sample without replacement errs in proportion to √(1/f − 1) at a fraction f of the rows, which the newest
answer scales (Cochran 1977, Sampling Techniques, §2.6). A target is reached at the end of a mini-batch, and
those ends are known. So there is a chance for each that it is the one, and a time until it, both uncertain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.curves import Series

LEAST_SHARE_LEFT = 0.05  # of a step's cost, when more than the whole of it was spent already


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The steps ahead of J jobs, in core-seconds, shape (J,) each.

    Attributes:
        next_core_seconds: the whole cost of the step in hand.
        growth_core_seconds: by how much each step costs more than the one before.
        spent_core_seconds: what the step in hand has used already.
    """

    next_core_seconds: FloatArray
    growth_core_seconds: FloatArray
    spent_core_seconds: FloatArray

    def of_jobs(self, jobs: IntArray | BoolArray) -> StepCosts:
        """Return the costs of some of the jobs."""
        return StepCosts(
            self.next_core_seconds[jobs], self.growth_core_seconds[jobs], self.spent_core_seconds[jobs]
        )

    def steps_within(self, core_seconds: FloatArray) -> FloatArray:
        """Return how many steps a budget buys, as fractions. core_seconds: shape (J, K); so is the result.

        The step in hand is paid for evenly over what is left of it, later ones over all they cost.
        """
        left = self._left_of_first()[:, None]
        first = np.minimum(core_seconds / left, 1.0)
        # n more steps cost n·(B + A/2) + n²·A/2; solved for n in the form that also holds for A = 0.
        growth = self.growth_core_seconds[:, None]
        slope = np.maximum(self.next_core_seconds[:, None] + growth / 2, 1e-12)
        beyond = np.maximum(core_seconds - left, 0.0)
        more = 2 * beyond / (slope + np.sqrt(slope**2 + 2 * growth * beyond))
        steps: FloatArray = first + more
        return steps

    def core_seconds_of(self, steps: FloatArray) -> FloatArray:
        """Return what so many steps cost from now on; the inverse of `steps_within`. steps: shape (J, K)."""
        first = np.minimum(steps, 1.0) * self._left_of_first()[:, None]
        more = np.maximum(steps - 1.0, 0.0)
        growth = self.growth_core_seconds[:, None]
        cost: FloatArray = first + more * (self.next_core_seconds[:, None] + growth / 2 + growth * more / 2)
        return cost

    def _left_of_first(self) -> FloatArray:
        cost = self.next_core_seconds
        return np.maximum(np.maximum(cost - self.spent_core_seconds, LEAST_SHARE_LEFT * cost), 1e-12)


def constant_cost(steps: Series) -> FloatArray:
    """Return each job's cost of a step, shape (J,): the weighted mean of its core-seconds, NaN before any."""
    weight = steps.weight.sum(axis=1)
    return np.where(weight > 0, (steps.weight * steps.y).sum(axis=1) / np.maximum(weight, 1e-300), np.nan)


def line_cost(steps: Series) -> tuple[FloatArray, FloatArray]:
    """Return slope A ≥ 0 and offset B of each job's cost A·x + B, shape (J,), for refined queries.

    They keep undecided rows and read them again, so that a mini-batch costs more than the one before.
    A job with one step, or whose costs fall, has A = 0 and the mean as B. Source: the thesis, ch. 4.
    """
    share = steps.weight / np.maximum(steps.weight.sum(axis=1, keepdims=True), 1e-300)
    mean_x, mean_y = (share * steps.x).sum(axis=1), constant_cost(steps)
    from_mean = steps.x - mean_x[:, None]
    spread = (share * from_mean**2).sum(axis=1)
    covariance = (share * from_mean * steps.y).sum(axis=1)
    slope = np.maximum(np.where(spread > 1e-24, covariance / np.where(spread > 1e-24, spread, 1.0), 0.0), 0.0)
    return slope, mean_y - slope * mean_x


def cost_per_size(sizes: Series) -> FloatArray:
    """Return c of each job's cost c·S, shape (J,), for training. sizes: x the rows S of a step, y its cost.

    On N cores the step takes c·S/N seconds. Source: SLAQ, prediction of runtime.
    """
    squares = (sizes.weight * sizes.x**2).sum(axis=1)
    product = (sizes.weight * sizes.x * sizes.y).sum(axis=1)
    return np.where(squares > 0, product / np.where(squares > 0, squares, 1.0), np.nan)


KEPT = 32  # answers of a query: what came before them tells nothing of what comes next
CHANCE = 0.9  # that the time is in the interval

# How far the logarithm of the error is off its curve: mostly this little, in one of so many cases that much,
# as where a group is certified, or a median jumps.
_NOISE, _JUMP, _JUMP_CHANCE = 0.06, 0.35, 0.25
# Spread of the logarithm of a time ahead, of one mini-batch or all, for a load stays: after the first answer,
# and after two; what is seen of mini-batches then counts beside so many that spread like the latter.
_FIRST_SPREAD, _USUAL_SPREAD, _USUAL_COUNT = 0.65, 0.4, 1.0
_FORGET = 0.75  # weight of a mini-batch beside the one after it
_LAST_SAVES = 0.4  # of the time of the last mini-batch: no other one takes cores from it
_FIRST = 0.5  # what a mini-batch takes of the first one's time, and of its core-seconds a row: it warms up


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer of a query.

    Attributes:
        fraction: of the rows.
        core_seconds: spent since the answer before.
    """

    fraction: float
    error: float
    elapsed_seconds: float
    core_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Course:
    """How far a query has come.

    Attributes:
        seen: its newest answers; the last is now.
        ahead: fractions of the rows after each mini-batch still to come, the last of them 1.
        cores: that its tasks may use at once.
        begun_seconds: elapsed when it was planned, and its first task could start.
    """

    seen: tuple[Seen, ...]
    ahead: tuple[float, ...]
    cores: float = 1.0
    begun_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Expected:
    """How many seconds are still needed. `Snapshot.expected` returns it.

    Attributes:
        seconds: it will take more as likely as less.
        low: in one of twenty cases it will take less.
        high: in one of twenty cases it will take more.

    >>> Expected(seconds=2.0, low=1.4, high=3.1).seconds
    2.0
    """

    seconds: float
    low: float
    high: float


REACHED = Expected(0.0, 0.0, 0.0)


def fraction_at(target: float, error: float, fraction: float) -> float | None:
    """Return the fraction of the rows at which the error will be the target; None while nothing is known.

    error: at the fraction now.
    """
    if not 0 < error < math.inf or not 0 < fraction < 1:
        return None
    ratio = target / error * math.sqrt(1 / fraction - 1)
    return 1 / (1 + ratio * ratio)


def expected(course: Course, target: float) -> Expected:
    """Return when the error will be the target, or the answer exact: its error is 0 then."""
    if course.seen[-1].error <= target or not course.ahead:
        return REACHED
    reached = _chance_reached(course, target)
    chances = np.diff(reached, prepend=0.0)
    step, whole, spread = _pace(course)
    seconds = _seconds(course, step, whole)
    outside = (1 - CHANCE) / 2
    low, middle, high = (_quantile(chances, seconds, spread, share) for share in (outside, 0.5, 1 - outside))
    return Expected(middle, low, high)


def _chance_reached(course: Course, target: float) -> FloatArray:
    """Return how likely the target is reached by the end of each mini-batch ahead. By the last it is."""
    now, ahead = course.seen[-1], np.array(course.ahead)
    if math.isinf(now.error):  # nothing is certified, and it is unknown when enough will be
        return (np.arange(1, len(ahead) + 1) / len(ahead)) ** 2
    with np.errstate(divide="ignore"):
        curve = 0.5 * (np.log((1 - ahead) / ahead) - math.log((1 - now.fraction) / now.fraction))
    room = math.log(target / now.error) - curve
    chance = (1 - _JUMP_CHANCE) * _below(room / _NOISE) + _JUMP_CHANCE * _below(room / _JUMP)
    chance[-1] = 1.0
    return np.asarray(np.maximum.accumulate(chance))


def _seconds(course: Course, step: float, whole: float) -> FloatArray:
    """Return the likely seconds to the end of each mini-batch ahead. step, whole: as `_pace` gives them."""
    read = np.array(course.ahead) - course.seen[-1].fraction
    seconds = np.arange(1, len(read) + 1) * step + read * whole
    seconds[-1] -= _LAST_SAVES * (step + np.diff(read, prepend=0.0)[-1] * whole)
    return np.asarray(np.maximum(seconds, 1e-6))


def _pace(course: Course) -> tuple[float, float, float]:
    """Return seconds of a mini-batch beside its tasks, of the tasks of all rows, and the spread of both."""
    seen = course.seen
    fraction = np.array([each.fraction for each in seen])
    core_seconds = np.array([each.core_seconds for each in seen])
    if len(seen) == 1:
        return *_first_pace(course), _FIRST_SPREAD
    took = np.diff([each.elapsed_seconds for each in seen])
    read = np.diff(fraction)
    weight = _FORGET ** np.arange(len(took))[::-1]
    whole = (weight @ core_seconds[1:]) / max(weight @ read, 1e-9) / course.cores
    step = max(weight @ took - whole * (weight @ read), 0.0) / weight.sum()
    off = np.log(np.maximum(took, 1e-6) / np.maximum(step + whole * read, 1e-6))
    known = _USUAL_COUNT * _USUAL_SPREAD**2 + weight @ off**2
    variance = known / (_USUAL_COUNT + weight.sum() - 1)  # one is the mean, which is not known either
    return float(step), float(whole), math.sqrt(variance * (1 + 1 / weight.sum()))


def _first_pace(course: Course) -> tuple[float, float]:
    [seen] = course.seen
    took = max(seen.elapsed_seconds - course.begun_seconds, 0.0)
    if not seen.core_seconds:  # it goes on from a state that was kept, and all its time was for reading
        return 0.0, seen.elapsed_seconds / seen.fraction
    return _FIRST * took, _FIRST * seen.core_seconds / seen.fraction / course.cores


def _below(z: FloatArray) -> FloatArray:
    """Return the share of a normal distribution below each z, within 0.0002.

    Source: Page 1977, Approximations to the cumulative normal function, Applied Statistics 26.
    """
    return np.asarray(0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))))


def _quantile(chances: FloatArray, seconds: FloatArray, spread: float, share: float) -> float:
    """Return the time by which the target is reached with a chance of `share`, by bisection."""
    logs = np.log(seconds)
    low, high = float(logs.min() - 6 * spread), float(logs.max() + 6 * spread)
    for _ in range(50):
        middle = (low + high) / 2
        if chances @ _below((middle - logs) / spread) < share:
            low = middle
        else:
            high = middle
    return math.exp(high)
