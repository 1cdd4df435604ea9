"""Slots go where they bring most jobs to an end sooner, per slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.gangs.batches import efficiency, split_batch
from relaqs.gangs.packing import packed
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.speed import rows_per_second
from relaqs.gangs.view import SlotView
from relaqs.sharing.envelope import envelope_slopes
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs.slot_policies.ones.progress import Predictor, Progress, by_ended_jobs
from relaqs.slot_policies.ones.utilisation import known_speed

TINY = 1e-12  # useful rows a second, where a job makes none on one slot
LEAST_BETA = 1.5  # the mean of 1/Y is infinite at 1
BATCH_STEPS = np.array([0.25, 0.5, 1.0, 2.0])  # a batch changes by these factors at once
PART_OF_A_RUN = 0.1  # over which a pause is spread
LARGEST_WHOLE = 4  # each number of slots up to this is looked at, then two between each doubling


@dataclass(frozen=True, slots=True)
class CompletionRate:
    """The policy that gives slots where they shorten the sum of all jobs' times most.

    A job that needs Y more useful rows, and makes X a second, ends at a rate of X / Y. What that is worth
    to all depends on who waits for it. Say that jobs end in the order of the time that each would still
    need alone on one slot. A second saved on a job is then a second for it and for each job with a longer
    way. So a job counts as often as there are such jobs, by weight, times its speed relative to one slot.
    The job with the shortest way counts most, but at most as many times as there are jobs. A job that waits
    has a rate of 0, so waiting counts, where ONES's sum forgets it.

    Counting each job by 1 / Y instead makes every split among equal jobs equally good where speed grows with
    slots, so that all of them end late together. It also lets one job count thousands of times another.

    Source: the order and what depends on it are those of Berg, Vesilo and Harchol-Balter, heSRPT, 2020, for
    jobs of known lengths that speed up alike.

    How far a job has come is a Beta distribution, as in ONES. Its mean of 1 / Y has a closed form, so nothing
    is drawn. Each job also has the batch with which it comes forward fastest: rows a second, times what a row
    is worth in a batch of that size.

    A change of slots pauses a job. What it would lose in the pause is taken off every number of slots
    but the one it holds. The pause is spread over a tenth of the time that the job still needs, and over
    `horizon_seconds` at least.

    Args:
        pause_seconds: how long a job stands still when its slots change, until pauses have been measured.
        horizon_seconds: how long a plan is likely to last.
        least_gain: a change of slots must raise a job's rate by about this part at least, however short the
            pause. So jobs do not change for next to nothing.
        minimum_share: a job that has had less than this part of its fair share of slots since it came gets a
            slot first.
        predictor: tells the passes that jobs still need.

    >>> from relaqs.gangs.gangs import Gang, Gangs
    >>> from relaqs.gangs.nodes import Nodes
    >>> speed = (0.01, 0.001, 0.05, 0.0, 0.1, 0.0, 1.0)
    >>> jobs = [Gang(name, rows_done=rows, speed=speed) for name, rows in (("short", 1e4), ("long", 1e6))]
    >>> view = SlotView(0.0, Nodes.equal(1, slots=1), Gangs.of(jobs, nodes=1))
    >>> CompletionRate().plan(view).slots_by_id()
    {'short': 1, 'long': 0}
    """

    pause_seconds: float = 1.0
    horizon_seconds: float = 60.0
    least_gain: float = 0.1
    minimum_share: float = 0.5
    predictor: Predictor = by_ended_jobs
    name: ClassVar[str] = "completion_rate"

    def __post_init__(self) -> None:
        if not 0 <= self.pause_seconds < np.inf:
            raise ValueError(f"pause_seconds is {self.pause_seconds}; give 0 or more")
        if not 0 < self.horizon_seconds < np.inf:
            raise ValueError(f"horizon_seconds is {self.horizon_seconds}; give more than 0")
        if not 0 <= self.least_gain < 1:
            raise ValueError(f"least_gain is {self.least_gain}; give a number from 0 to below 1")
        if not 0 <= self.minimum_share <= 1:
            raise ValueError(f"minimum_share is {self.minimum_share}; give a number from 0 to 1")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._plan)

    def _plan(self, view: SlotView) -> SlotPlan:
        rates = _Rates.of(view, self.predictor)
        horizon = np.maximum(self.horizon_seconds, PART_OF_A_RUN * rates.seconds_left())
        pause = view.gangs.pauses(self.pause_seconds)
        paused = pause / (pause + horizon)
        rates = replace(rates, lost=np.maximum(paused, self.least_gain))
        slots = _slots(rates, int(view.nodes.usable_slots.sum()), _is_starving(view, self.minimum_share))
        held = np.where(view.nodes.alive, view.gangs.held, 0)
        places = packed(slots, held, view.nodes, np.argsort(-slots, kind="stable"))
        return SlotPlan.of(view, places, rates.batches(slots))


def _is_starving(view: SlotView, minimum_share: float) -> BoolArray:
    """Return which jobs have had less than their minimum of slot-seconds since they came, shape (E,)."""
    gangs = view.gangs
    fair = gangs.weight / gangs.weight.sum() * view.nodes.usable_slots.sum()
    due = minimum_share * fair * np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
    return np.asarray(gangs.attained_slot_seconds < due)


@dataclass(frozen=True, slots=True, eq=False)
class _Rates:
    """Completion rates of a view's jobs by their number of slots."""

    view: SlotView
    speed: FloatArray  # (E, 7), all known
    batch: FloatArray  # (E, K): the batches that each job may have now
    of_row: FloatArray  # (E,): one over the useful rows still to be made
    worth: FloatArray  # (E,): of a useful row to all jobs
    lost: FloatArray  # (E,): the part of a rate that a change of slots costs

    @classmethod
    def of(cls, view: SlotView, predictor: Predictor) -> _Rates:
        gangs = view.gangs
        progress = Progress.of(gangs, view.finished, predictor)
        done = np.maximum(gangs.rows_done, gangs.pass_rows)
        inverse = progress.alpha / ((np.maximum(progress.beta, LEAST_BETA) - 1.0) * done)
        now = np.maximum(gangs.batch_rows, gangs.start_rows)[:, None]
        batch = np.clip(now * BATCH_STEPS, gangs.start_rows[:, None], gangs.rows_most[:, None])
        is_first = (gangs.batch_rows <= 0)[:, None]
        batch = np.where(is_first, gangs.start_rows[:, None], batch)
        nothing = np.zeros(len(gangs))
        rates = cls(view, known_speed(gangs.speed), batch, inverse, nothing, nothing)
        alone = np.maximum(rates._goodput(np.ones((len(gangs), 1), np.int64))[0].max(axis=2)[:, 0], TINY)
        return replace(rates, worth=_weight_behind(gangs.weight * inverse * alone, gangs.weight) / alone)

    def at(self, slots: IntArray) -> FloatArray:
        """Return what so many slots are worth to all, (E, P), for slots of shape (E, P)."""
        value: FloatArray = self._goodput(slots)[0].max(axis=2) * self.worth[:, None]
        held = self.view.gangs.slots[:, None]
        return np.where((held > 0) & (slots != held), value * (1.0 - self.lost[:, None]), value)

    def seconds_left(self) -> FloatArray:
        """Return the time that each job needs on the slots it holds, shape (E,); infinite without."""
        rate = self._goodput(self.view.gangs.slots[:, None])[0].max(axis=2)[:, 0] * self.of_row
        return np.where(rate > 0, 1.0 / np.where(rate > 0, rate, 1.0), np.inf)

    def batches(self, slots: IntArray) -> FloatArray:
        """Return the batch of each job with which it comes forward fastest on its slots, shape (E,)."""
        goodput, rows = self._goodput(slots[:, None])
        chosen = goodput[:, 0].argmax(axis=1)
        return np.asarray(rows[np.arange(len(rows)), 0, chosen])

    def _goodput(self, slots: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return rows a second times their worth, and the rows of a step, shape (E, P, K) both."""
        gangs = self.view.gangs
        slots = slots[:, :, None]

        def each(column: FloatArray) -> FloatArray:
            return column[:, None, None]

        split = split_batch(self.batch[:, None, :], slots, each(gangs.slot_rows_most), each(gangs.rows_most))
        nodes = np.where(slots > self.view.nodes.usable_slots.max(), 2, 1)
        rate = rows_per_second(self.speed[:, None, None, :], slots, nodes, split.slot_rows, split.pieces)
        noise = np.where(np.isnan(gangs.noise_rows), gangs.start_rows, gangs.noise_rows)
        worth = efficiency(split.batch_rows, each(gangs.start_rows), each(noise))
        is_enough = (split.slot_rows >= each(gangs.slot_rows_least)) | (slots == 1)
        fits = is_enough & (split.batch_rows <= each(gangs.rows_most))
        return np.where(fits, rate * worth, 0.0), split.batch_rows


def _weight_behind(rate: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weight of each job and of those behind it, shape (E,). Of equal ones the first is before.

    rate: the weight of a job over the time that it still needs alone. The highest is the first to end.
    """
    last_first = len(rate) - 1 - np.argsort(rate[::-1], kind="stable")
    behind = np.empty(len(rate))
    behind[last_first] = np.cumsum(weight[last_first])
    return behind


def _slots(rates: _Rates, slots: int, goes_first: BoolArray) -> IntArray:
    """Return the slots of each job, shape (E,): the steepest edges of the rates' envelopes that fit.

    An edge is taken whole: half way along it, a job may be slower than at its start, for instance where it is
    spread over two nodes for one slot more. What no edge fits into any more is looked at again by itself.
    """
    gangs = rates.view.gangs
    most = np.minimum(gangs.slots_most, slots).astype(np.int64)
    given = np.zeros(len(gangs), dtype=np.int64)
    left = slots
    while left:
        steps = _steps(left, gangs.slots)
        at = np.minimum(given[:, None] + steps, most[:, None])
        value = rates.at(at)
        slopes = envelope_slopes(steps.astype(np.float64), value)
        slopes[:, 0] = np.where(goes_first & (given == 0) & (value[:, 1] > 0), np.inf, slopes[:, 0])
        taken = _edges_that_fit(slopes, steps, most - given, left)
        if not taken.any():
            break
        given += taken
        left -= int(taken.sum())
    return given


def _steps(slots: int, held: IntArray) -> IntArray:
    """Return the numbers of slots at which rates are looked at, from 0 to `slots`, with all that are held."""
    doubled = LARGEST_WHOLE * 2.0 ** np.arange(0, np.log2(max(slots, 1)) + 1)
    grid = np.concatenate([np.arange(LARGEST_WHOLE + 1), doubled, 1.5 * doubled, held, [slots]])
    return np.unique(grid[grid <= slots].astype(np.int64))


def _edges_that_fit(slopes: FloatArray, steps: IntArray, room: IntArray, slots: int) -> IntArray:
    """Return what each job takes, shape (E,). slopes: shape (E, P − 1).

    An edge is a run of equal slopes in a row.
    """
    starts = np.ones(slopes.shape, dtype=np.bool_)
    starts[:, 1:] = slopes[:, 1:] != slopes[:, :-1]
    row, first = np.nonzero(starts)
    last = np.append(first[1:], 0)
    last = np.where(last == 0, len(steps) - 1, last)
    slope = slopes[row, first]
    useful = np.flatnonzero((slope > 0) & (steps[first] < room[row]))
    taken = np.zeros(len(slopes), dtype=np.int64)
    for edge in useful[np.argsort(-slope[useful], kind="stable")].tolist():
        job, width = row[edge], int(steps[last[edge]] - steps[first[edge]])
        width = min(width, int(room[job] - steps[first[edge]]))
        if taken[job] == steps[first[edge]] and width <= slots:
            taken[job] += width
            slots -= width
    return taken
