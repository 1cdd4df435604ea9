"""Fill: idle slots go to jobs that wait or may grow, one job after another."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.slot_policies.ones.genome import counts
from relaqs.slot_policies.ones.utilisation import SlotSeconds


def filled(genomes: IntArray, rows: FloatArray, costs: SlotSeconds) -> IntArray:
    """Return schedules in which no slot is idle that a job could use.

    A job that waits asks for one slot, and a job that runs for twice its slots, up to its limit. Whose
    utilisation rises least by that is served, with as many slots as are there, and all are compared again. A
    job that runs well on more slots raises it by little, and a job that waits by all that it needs: so
    growing goes before starting. That is the paper's rule.

    Args:
        genomes: shape (K, G).
        rows: the rows that jobs still process, in the draw of each schedule, shape (K, J).
    """
    picks = _picks(counts(genomes, len(costs.most)), (genomes < 0).sum(axis=1), rows, costs)
    if not picks:
        return genomes
    job, taken = (np.stack(each, axis=1) for each in zip(*picks, strict=True))
    idle = genomes < 0
    is_filled = idle & (np.cumsum(idle, axis=1) <= taken.sum(axis=1)[:, None])
    full = genomes.copy()
    full[is_filled] = np.repeat(job.ravel(), taken.ravel())
    return full


def _picks(
    count: IntArray, idle: IntArray, rows: FloatArray, costs: SlotSeconds
) -> list[tuple[IntArray, IntArray]]:
    """Return which job is served in each schedule, shape (K,), and with how many slots, time after time."""
    packed, every = costs.packed, np.arange(count.shape[1])
    goal = _goal(count, costs.most)
    rise = np.where(goal > count, rows * (packed[every, goal] - packed[every, count]), np.inf)
    schedules, picks = np.flatnonzero(idle > 0), []
    while len(schedules):
        job = rise[schedules].argmin(axis=1)
        can = np.isfinite(rise[schedules, job])
        schedules, job = schedules[can], job[can]
        if not len(schedules):
            break
        taken = np.minimum(goal[schedules, job] - count[schedules, job], idle[schedules])
        all_jobs, all_taken = np.zeros(len(count), dtype=np.int64), np.zeros(len(count), dtype=np.int64)
        all_jobs[schedules], all_taken[schedules] = job, taken
        picks.append((all_jobs, all_taken))
        now = count[schedules, job] + taken
        then = _goal(now, costs.most[job])
        count[schedules, job], goal[schedules, job] = now, then
        more = rows[schedules, job] * (packed[job, then] - packed[job, now])
        rise[schedules, job] = np.where(then > now, more, np.inf)
        idle[schedules] -= taken
        schedules = schedules[idle[schedules] > 0]
    return picks


def _goal(count: IntArray, most: IntArray) -> IntArray:
    """Return the slots that jobs ask for next: one where they wait, else twice as many, up to their limit."""
    return np.minimum(np.maximum(2 * count, 1), most)
