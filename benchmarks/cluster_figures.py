"""From what an observer saw of a cluster to the figures that are promised of it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.cluster_observer import Asked, Observed, Planned, Ran
from relaqs.policies.fill import fill_evenly

WINDOW_SECONDS = 0.6  # over which shares are compared after a change, wide enough for a dozen tasks a core
NEAR = 0.10  # shares this near to what is due have followed: a task of 0.06 s in that window on one core
GRID_SECONDS = 0.01
LEAST_SHARE = 1e-9  # of a job with no share, which is due what nobody else asks for


@dataclass(frozen=True, slots=True)
class Due:
    """What was due to each job, in cores, from a moment until the next one's.

    cores: by the plan then in force, among the jobs that had tasks, to each at most as many as it had tasks.
    """

    at_seconds: float
    cores: Mapping[str, float]


class Figures:
    """Shares of the core-time that jobs were due and that they got. capacity_cores: of the whole cluster."""

    def __init__(self, seen: Observed, capacity_cores: float) -> None:
        self._seen = seen
        self._capacity_cores = capacity_cores
        self._due = list(dues(seen.plans, seen.asked, capacity_cores))
        self._due_moments = [each.at_seconds for each in self._due]

    def used(self, begin: float, end: float) -> Counter[str]:
        """Return the core-seconds of each job between two moments."""
        total: Counter[str] = Counter()
        for run in self._seen.runs:
            if (part := overlap(run, begin, end)) > 0:
                total[run.job] += part
        return total

    def due(self, begin: float, end: float) -> Counter[str]:
        """Return the core-seconds that were due to each job between two moments."""
        total: Counter[str] = Counter()
        first = max(0, bisect_right(self._due_moments, begin) - 1)
        last = bisect_left(self._due_moments, end)
        moments = [*self._due_moments[first + 1 : last], end]
        for due, until in zip(self._due[first:last], moments, strict=True):
            seconds = until - max(due.at_seconds, begin)
            for job, cores in due.cores.items():
                total[job] += cores * seconds
        return total

    def deviation(self, begin: float, end: float) -> float:
        """Return how far the share of the core-time of some job is from what was due; NaN if nothing ran."""
        got, due = shares(self.used(begin, end)), shares(self.due(begin, end))
        if not got or not due:
            return math.nan
        return max(abs(got.get(job, 0.0) - due.get(job, 0.0)) for job in {*got, *due})

    def delay(self, changed: float, until: float) -> float:
        """Return after how many seconds the shares have followed a change, inf if never.

        It is the first moment from which the next 0.6 s are within 10 points of what is due then.
        """
        for number in range(int((until - WINDOW_SECONDS - changed) / GRID_SECONDS) + 1):
            moment = changed + number * GRID_SECONDS
            if self.deviation(moment, moment + WINDOW_SECONDS) <= NEAR:
                return moment - changed
        return math.inf

    def core_epochs(self, begin: float, end: float) -> Iterator[tuple[float, float]]:
        """Yield spans in which as many core-seconds ran as there are cores: a second, if nobody else does."""
        ends = sorted(
            (run.end_seconds, run.core_seconds)
            for run in self._seen.runs
            if begin <= run.start_seconds and run.end_seconds <= end
        )
        since, ran = begin, 0.0
        for moment, core_seconds in ends:
            ran += core_seconds
            if ran >= self._capacity_cores:
                yield since, moment
                since, ran = moment, 0.0

    def idle_share(self, begin: float, end: float) -> float:
        """Return the share of the workers' time in which they ran nothing although a task waited.

        A gap counts in full where a task waited when it began. Workers are of one thread.
        """
        moments = [each.at_seconds for each in self._seen.waiting]
        idle = busy = 0.0
        for runs in self._by_worker(begin, end):
            busy += sum(run.end_seconds - run.start_seconds for run in runs)
            for before, after in pairwise(runs):
                at = bisect_right(moments, before.end_seconds) - 1
                if at >= 0 and self._seen.waiting[at].tasks > 0:
                    idle += max(0.0, after.start_seconds - before.end_seconds)
        return idle / (idle + busy) if busy else math.nan

    def _by_worker(self, begin: float, end: float) -> Iterator[list[Ran]]:
        for worker in {run.worker for run in self._seen.runs}:
            yield sorted(
                (
                    run
                    for run in self._seen.runs
                    if run.worker == worker and begin <= run.start_seconds and run.end_seconds <= end
                ),
                key=lambda run: run.start_seconds,
            )


def dues(plans: Sequence[Planned], asked: Sequence[Asked], capacity_cores: float) -> Iterator[Due]:
    """Yield what is due whenever there is another plan, or some job has more or fewer tasks."""
    plan: Mapping[str, float] = {}
    tasks: dict[str, int] = {}
    for event in sorted([*plans, *asked], key=lambda event: event.at_seconds):
        if isinstance(event, Planned):
            plan = event.cores
        else:
            tasks[event.job] = event.tasks
        jobs = [job for job in plan if tasks.get(job, 0) > 0]
        if not jobs:
            yield Due(event.at_seconds, {})
            continue
        weight = np.array([max(plan[job], LEAST_SHARE) for job in jobs])
        most = np.array([tasks[job] for job in jobs], dtype=np.float64)
        cores = fill_evenly(capacity_cores, weight, most)
        yield Due(event.at_seconds, dict(zip(jobs, cores.tolist(), strict=True)))


def overlap(run: Ran, begin: float, end: float) -> float:
    """Return the core-seconds of a run between two moments: they are spread over its time evenly."""
    seconds = min(run.end_seconds, end) - max(run.start_seconds, begin)
    length = run.end_seconds - run.start_seconds
    return run.core_seconds * min(1.0, seconds / length) if seconds > 0 and length > 0 else 0.0


def shares(core_seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(core_seconds.values())
    return {job: amount / total for job, amount in core_seconds.items()} if total > 0 else {}


def epochs(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield whole seconds between two moments."""
    for number in range(math.floor(end - begin)):
        yield begin + number, begin + number + 1
