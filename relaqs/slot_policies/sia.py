"""Sia: one configuration for each job, those with the best goodput together, by a program that is solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.gangs import Gangs
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView
from relaqs.gangs.whole_nodes import packed_on_whole_nodes
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs.slot_policies.configurations import configurations, largest_sum
from relaqs.slot_policies.goodput import best_batch, unmeasured_batch

TINY = 1e-12  # useful rows a second, where a job makes none on one slot


@dataclass(frozen=True, slots=True)
class Sia:
    """The policy that chooses a configuration for each job, or none, so that their costs sum to least.

    A configuration is a number of slots: a power of two within a node, or whole nodes (`configurations`).
    G is the goodput with it over that on one slot. Goodput is rows a second times what a row is worth in the
    batch, and each configuration has the batch with the best one. A job whose speed is unknown is taken to
    have a goodput that grows with its slots.

    Sia minimises the sum of (r·G)^p over the jobs that have slots, plus λ for each job without. This is to
    maximise the sum of λ − (r·G)^p over the jobs with slots, and so it is computed here. For p above 0, Sia
    maximises the sum of (r·G)^p, less λ for each job without: here, λ + (r·G)^p. A job counts by its weight.

    r is 1 for the configuration that a job has now, and for a job that waits. Another one discounts what the
    job would have: r = (T − N·S) / (T + S), at least 0, where T is its age, N how often it has changed, and S
    the seconds that a change takes, as measured. A job that has come just now is left as it is.

    A job that waits begins on one slot. In a plan it at most doubles the slots that it holds.

    Slots are of one kind here, where Sia tells kinds of GPUs apart. The integer program is then a knapsack,
    which is solved exactly. Jobs keep their places. Where a job would be spread over more nodes than it
    needs, smaller ones move out of its way.

    Args:
        fairness: p. Below 0, a job with few slots gains most by one more; the lower, the more so.
        waiting_cost: λ, that of a job without slots. At 1.1 a second slot for one job, where it helps, is
            worth more than the first slot for another. So jobs may wait while others have several.
        pause_seconds: S, until pauses have been measured.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023, section 3; p = −0.5 and λ = 1.1 are those of its
    evaluation.

    >>> from relaqs.gangs.gangs import Gang
    >>> from relaqs.gangs.nodes import Nodes
    >>> speed = (0.1, 0.01, 1e-3, 1e-8, 1e-3, 1e-8, 1.0)
    >>> jobs = [Gang(name, speed=speed, noise_rows=1e4, held=(1,), rows_most=512.0) for name in "abc"]
    >>> view = SlotView(900.0, Nodes.equal(1, slots=4), Gangs.of(jobs, nodes=1))
    >>> Sia().plan(view).slots_by_id(), Sia(waiting_cost=2.0).plan(view).slots_by_id()
    ({'a': 2, 'b': 2, 'c': 0}, {'a': 2, 'b': 1, 'c': 1})
    """

    fairness: float = -0.5
    waiting_cost: float = 1.1
    pause_seconds: float = 30.0
    name: ClassVar[str] = "sia"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.fairness) and self.fairness != 0):
            raise ValueError(f"fairness is {self.fairness}; give a number above or below 0, such as -0.5")
        least = 1.0 if self.fairness < 0 else 0.0
        if not least < self.waiting_cost < np.inf:
            raise ValueError(
                f"waiting_cost is {self.waiting_cost}; with fairness {self.fairness} it must be above "
                f"{least:g}, or no job would ever begin"
            )
        if not 0 <= self.pause_seconds < np.inf:
            raise ValueError(f"pause_seconds is {self.pause_seconds}; give 0 or more")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._planned)

    def _planned(self, view: SlotView) -> SlotPlan:
        options = SlotOptions.of(view)
        worth = self.worth(view, options)
        total = int(view.nodes.usable_slots.sum())
        counts = largest_sum(options.job, options.slots, worth, len(view.gangs), total)
        held = np.where(view.nodes.alive, view.gangs.held, 0)
        slots = packed_on_whole_nodes(counts, held, view.nodes)
        return SlotPlan.of(view, slots, options.batches(view.gangs, counts))

    def worth(self, view: SlotView, options: SlotOptions) -> FloatArray:
        """Return what each option is worth, shape (P,), relative to a job that waits; −inf: never."""
        gangs, job = view.gangs, options.job
        present = np.where(view.nodes.alive, gangs.held, 0).sum(axis=1)
        changes = (present > 0)[job] & (options.slots != present[job])
        kept = np.where(changes, self._kept_share(view)[job], 1.0)
        with np.errstate(divide="ignore"):
            power = (kept * options.speedup) ** self.fairness
        return np.asarray(gangs.weight[job] * (self.waiting_cost + np.sign(self.fairness) * power))

    def _kept_share(self, view: SlotView) -> FloatArray:
        """Return r of each job, shape (E,): of its age, what one more change would leave."""
        gangs, pause = view.gangs, view.gangs.pauses(self.pause_seconds)
        age = np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
        left = np.maximum(age - gangs.rescales * pause, 0.0)
        return np.where(age + pause > 0, left / np.where(age + pause > 0, age + pause, 1.0), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SlotOptions:
    """The P configurations that the jobs of a view may have now, by job and then by slots, shape (P,).

    Attributes:
        job: whose option it is.
        slots: that it takes.
        speedup: G, the goodput over that on one slot.
        batch_rows: the batch with that goodput; NaN where the job's speed is unknown.
    """

    job: IntArray
    slots: IntArray
    speedup: FloatArray
    batch_rows: FloatArray

    @classmethod
    def of(cls, view: SlotView) -> SlotOptions:
        gangs, sizes = view.gangs, configurations(view.nodes)
        most = np.minimum(np.maximum(2 * gangs.slots, 1), gangs.slots_most)
        job, size = np.nonzero(sizes <= most[:, None])
        slots = sizes[size]
        nodes = np.where(slots > view.nodes.usable_slots.max(), 2, 1)
        useful, batch = best_batch(gangs, job, slots, nodes)
        alone = np.maximum(useful[slots == 1], TINY)
        unknown = np.any(np.isnan(gangs.speed), axis=1)[job]
        speedup = np.where(unknown, slots, useful / alone[job])
        return cls(job, slots, speedup, np.where(unknown, np.nan, batch))

    def batches(self, gangs: Gangs, counts: IntArray) -> FloatArray:
        """Return the batch of each job on its slots, shape (E,); one that waits has that of its start."""
        batch = unmeasured_batch(gangs, counts)
        taken = (self.slots == counts[self.job]) & ~np.isnan(self.batch_rows)
        batch[self.job[taken]] = self.batch_rows[taken]
        return np.minimum(batch, gangs.rows_most)
