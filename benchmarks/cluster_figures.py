"""From what an observer saw of a cluster to the figures that are promised of it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from benchmarks.cluster_due import Fluid, overlap
from benchmarks.cluster_observer import Observed, Ran
from relaqs.executors.dask.messages import KEY_PREFIX

WINDOW_SECONDS = 0.6  # over which shares are compared after a change, wide enough for a dozen tasks a core
NEAR = 0.10  # shares this near to what is due have followed: a task of 0.06 s in that window on one core
GRID_SECONDS = 0.01


class Figures:
    """Shares of the core-time that jobs were due and that they got. capacity_cores: of the whole cluster."""

    def __init__(self, seen: Observed, capacity_cores: float) -> None:
        self._seen = seen
        self._capacity_cores = capacity_cores
        self._fluid = Fluid(seen, capacity_cores)

    def used(self, begin: float, end: float) -> Counter[str]:
        """Return the core-seconds of each job between two moments."""
        total: Counter[str] = Counter()
        for run in self._seen.runs:
            if (part := overlap(run, begin, end)) > 0:
                total[run.job] += part  # type: ignore[assignment]
        return total

    def deviation(self, begin: float, end: float) -> float:
        """Return how far the share of the core-time of some job is from what was due; NaN if nothing ran."""
        got, due = shares(self.used(begin, end)), shares(self._fluid.due(begin, end))
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


def shares(core_seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(core_seconds.values())
    return {job: amount / total for job, amount in core_seconds.items()} if total > 0 else {}


def epochs(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield whole seconds between two moments."""
    for number in range(math.floor(end - begin)):
        yield begin + number, begin + number + 1


def idle_beside_work(seen: Observed, workers: int, jobs: Mapping[str, tuple[float, float]]) -> float:
    """Return the share of the workers' time in which they ran nothing although something waited.

    What waits are the scheduler's queued tasks, and jobs that have come, are not over and run nothing. A job
    whose own client plans or folds meanwhile counts, too, so it is the most that can be meant. A gang with
    fewer slots than it could fill does not wait.

    Args:
        seen: by the observer of the scheduler.
        workers: of one thread each.
        jobs: from when to when each job was there, by its id.
    """
    begin, end = min(span[0] for span in jobs.values()), max(span[1] for span in jobs.values())
    spans = {
        job: [(run.start_seconds, run.end_seconds) for run in seen.runs if _id(run) == job] for job in jobs
    }
    busy = [(run.start_seconds, run.end_seconds) for run in seen.runs]
    queued = np.array([(each.at_seconds, each.tasks) for each in seen.waiting]).reshape(-1, 2)
    every = np.array([*jobs.values(), *busy])
    moments = np.unique(np.clip(np.concatenate([every.ravel(), queued[:, 0]]), begin, end))
    lasting, middles = np.diff(moments), (moments[1:] + moments[:-1]) / 2
    at = np.searchsorted(queued[:, 0], middles, side="right")
    waiting = np.concatenate([[0.0], queued[:, 1]])[at]
    for job, span in jobs.items():
        waiting += np.maximum(_running([span], middles) - _running(spans[job], middles), 0)
    free = np.maximum(workers - _running(busy, middles), 0)
    return float((np.minimum(free, waiting) * lasting).sum() / (workers * (end - begin)))


def _running(spans: Sequence[tuple[float, float]], at_seconds: FloatArray) -> FloatArray:
    """Return how many spans each moment is in, shape (moments,)."""
    begins, ends = np.array(sorted(spans)).reshape(-1, 2).T if spans else np.empty((2, 0))
    begun = np.searchsorted(begins, at_seconds, side="right")
    return np.asarray(begun - np.searchsorted(np.sort(ends), at_seconds, side="right"), dtype=np.float64)


def _id(run: Ran) -> str:
    """Return the id that a job has in its own session, from its name on the cluster."""
    return run.job.removeprefix(KEY_PREFIX).rpartition("-")[0]
