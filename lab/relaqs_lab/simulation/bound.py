"""The least mean times to milestones that any policy can reach on a workload.

The theory in half a page. A **milestone** of a job is a reduction of its error, for example by 70 %. A trace
says how many core-seconds the job needs to get there. Let a policy know all these numbers in advance, and let
it divide the cores as finely as it likes. What it cannot reach, no policy can.

- **One milestone.** The cluster is one machine as fast as all its cores together, and jobs may be
  interrupted. Then serving the job that needs the least until its milestone gives the least mean time, and
  this is exact (Schrage 1968). Where a job can use few cores only, the machine is still a bound, and so is
  each job's time on the cores it can use.
- **Several milestones with weights.** The worth f(W) of a job's first W core-seconds is a staircase. It jumps
  by a milestone's weight where the milestone is reached. The weighted sum of the times is the integral over
  time of what is still missing. Let g be the least concave function above f. With g in the place of f, to
  serve the steepest g first is optimal, because each piece of g is a job of the same worth all along. The
  difference g − f is at least paid for while the job works, and it works at most at full speed. So we add the
  area between g and f, divided by the speed. With one milestone this is the bound by mean busy times of
  Goemans 1996. The sum of the bounds of the single milestones is a bound too, and the larger of both counts.

Example. Two jobs arrive together on one core. Both need 1 core-second to their milestone. One is served first
and is there at 1 s, the other at 2 s. No policy has a mean below 1.5 s.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.records.trace import TraceTable, steps_for_good
from relaqs_lab.simulation.workload import Workload

Priority = Callable[[int, float], float]
"""(the piece of work, the core-seconds left of it) → its priority; the least is served first."""


def core_seconds_to(workload: Workload, reductions: FloatArray) -> FloatArray:
    """Return what each job needs until its error is reduced by so much for good, shape (J, L)."""
    table = TraceTable.of(workload.traces)
    needed = np.take_along_axis(table.cost_to, steps_for_good(table, reductions), axis=1)
    return np.asarray(needed[workload.trace] * workload.cost_scale[:, None])


def least_mean_seconds(workload: Workload, reductions: FloatArray, capacity_cores: float) -> FloatArray:
    """Return the least mean time from arrival to each reduction, shape (L,), each for itself.

    >>> from relaqs.policies import Kind
    >>> from relaqs_lab.simulation import Trace, workload_of
    >>> once = np.array([1.0])
    >>> job = Trace("job", Kind.QUERY, once, once, 0 * once, once, once)
    >>> least_mean_seconds(workload_of([job, job], np.zeros(2)), np.array([0.9]), 1.0).tolist()
    [1.5]
    """
    cost = core_seconds_to(workload, reductions)
    alone = (cost / _speed(workload, capacity_cores)[:, None]).mean(axis=0)
    shared = [_shortest_first(workload.arrival_seconds, column, capacity_cores) for column in cost.T]
    return np.asarray(np.maximum(shared, alone))


def least_weighted_seconds(
    workload: Workload, reductions: FloatArray, weights: FloatArray, capacity_cores: float
) -> float:
    """Return a bound of the sum of weight × mean time over several reductions, reached by the same policy.

    Args:
        workload: the jobs.
        reductions: rising, shape (L,).
        weights: of each reduction, not negative, shape (L,).
        capacity_cores: of the cluster.
    """
    each = least_mean_seconds(workload, reductions, capacity_cores)
    cost = core_seconds_to(workload, reductions)
    together = _steepest_first(
        workload.arrival_seconds, cost, weights, capacity_cores, _speed(workload, capacity_cores)
    )
    return max(float(weights @ each), together)


def _speed(workload: Workload, capacity_cores: float) -> FloatArray:
    return np.minimum(workload.cores_most, capacity_cores)


def _shortest_first(arrival: FloatArray, work: FloatArray, cores: float) -> float:
    """Return the mean time to the end of each piece of work where the least that is left comes first."""
    ends = arrival.copy()
    for piece, at, span in _served(arrival, work, cores, lambda _, left: left):
        ends[piece] = at + span
    return float((ends - arrival).mean())


def _steepest_first(
    arrival: FloatArray, cost: FloatArray, weights: FloatArray, cores: float, speed: FloatArray
) -> float:
    """Return the bound by concave worths: the mean over jobs of what is missing, plus the areas above."""
    pieces = [piece for job in range(len(cost)) for piece in _pieces(job, cost[job], weights)]
    job, work, slope = (np.array(column) for column in zip(*pieces, strict=True))
    came = arrival[job]
    missing = sum(
        slope[piece] * cores * span * (at + span / 2 - came[piece])
        for piece, at, span in _served(came, work, cores, lambda piece, _: -slope[piece])
    )
    above = np.array([_area_above(each, weights) for each in cost])
    return float((missing + (above / speed).sum()) / len(cost))


def _pieces(job: int, cost: FloatArray, weights: FloatArray) -> Iterator[tuple[int, float, float]]:
    """Yield the pieces of the least concave worth of a job: the job, the core-seconds and the slope."""
    corners = _corners(cost, weights)
    for (begin, low), (end, high) in pairwise(corners):
        yield job, end - begin, (high - low) / (end - begin)


def _corners(cost: FloatArray, weights: FloatArray) -> list[tuple[float, float]]:
    """Return the corners of the least concave function above a staircase that begins at (0, 0)."""
    corners = [(0.0, 0.0)]
    for at, worth in zip(cost.tolist(), weights.cumsum().tolist(), strict=True):
        while len(corners) > 1 and _is_below(corners[-1], corners[-2], (at, worth)):
            corners.pop()
        corners.append((at, worth))
    return corners


def _is_below(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> bool:
    return (point[1] - start[1]) * (end[0] - start[0]) <= (end[1] - start[1]) * (point[0] - start[0])


def _area_above(cost: FloatArray, weights: FloatArray) -> float:
    """Return the area between the staircase of worth and the least concave function above it."""
    at, worth = np.array(_corners(cost, weights)).T
    stairs = (np.concatenate([[0.0], weights.cumsum()[:-1]]) * np.diff(cost, prepend=0.0)).sum()
    return float(np.trapezoid(worth, at) - stairs)


def _served(
    arrival: FloatArray, work: FloatArray, cores: float, priority: Priority
) -> Iterator[tuple[int, float, float]]:
    """Yield who has all the cores when: the piece of work, the time, and for how long, in seconds.

    The piece with the least priority value is served. It is interrupted where another one arrives.
    """
    order = np.argsort(arrival, kind="stable")
    waiting: list[tuple[float, int, float]] = []
    now, next_one = 0.0, 0
    while waiting or next_one < len(order):
        if not waiting:
            now = max(now, float(arrival[order[next_one]]))
        while next_one < len(order) and arrival[order[next_one]] <= now:
            piece = int(order[next_one])
            heapq.heappush(waiting, (priority(piece, float(work[piece])), piece, float(work[piece])))
            next_one += 1
        _, piece, left = heapq.heappop(waiting)
        until = float(arrival[order[next_one]]) if next_one < len(order) else np.inf
        span = min(left / cores, until - now)
        yield piece, now, span
        if now + left / cores > until:
            left -= span * cores
            heapq.heappush(waiting, (priority(piece, left), piece, left))
        now += span
