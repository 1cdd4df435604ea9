"""What was due to each job of a cluster in a span of time, had cores been divided at will. Pure.

Source: Parekh, Gallager 1993, A Generalized Processor Sharing Approach to Flow Control, whose fluid schedule
this is: at any moment each job that has tasks gets its planned share of the core-time that really ran, and
what it cannot use is the others'. So a job is due no more than its tasks hold: one that comes, asks for 20 ms
of a core and has all cores planned is due 20 ms, and not what passes until it is served.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.cluster_observer import Asked, Observed, Planned, Ran
from relaqs.sharing.division import fill_evenly

LEAST_SHARE = 1e-9  # of a job with no share, which is due what nobody else asks for
LEAST_CORE_SECONDS = 1e-9  # below which a task is over


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many core-seconds of a job, which could have run from some moment on."""

    at_seconds: float
    job: str
    core_seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """From some moment on so many cores more, or fewer, were computing."""

    at_seconds: float
    more_cores: float


Event = Wanted | Pace | Planned


class Fluid:
    """Divides the core-time of what was seen. capacity_cores: of the cluster."""

    def __init__(self, seen: Observed, capacity_cores: float) -> None:
        self._seen = seen
        self._capacity_cores = capacity_cores
        self._wanted = list(asked_moments(seen.runs, seen.asked))

    def due(self, begin: float, end: float) -> Counter[str]:
        """Return the core-seconds due to each job. Nothing is made up for of what was before."""
        span = _Span(self._capacity_cores)
        total: Counter[str] = Counter()
        events = sorted(self._events(begin, end), key=lambda event: event.at_seconds)
        for event, following in pairwise([*events, Pace(end, 0.0)]):
            span.take(event)
            total.update(span.flow(following.at_seconds - event.at_seconds))
        return total

    def _events(self, begin: float, end: float) -> Iterator[Event]:
        """Yield what happens, and what holds at the beginning: the plan, and what is left of each task."""
        for plan in self._seen.plans:
            if plan.at_seconds < end:
                yield Planned(max(plan.at_seconds, begin), plan.cores)
        for at, run in self._wanted:
            if at < end and run.end_seconds > begin:
                yield Wanted(max(at, begin), run.job, overlap(run, begin, run.end_seconds))
            if (within := overlap(run, begin, end)) > 0:
                since, until = max(run.start_seconds, begin), min(run.end_seconds, end)
                yield Pace(since, within / (until - since))
                yield Pace(until, -within / (until - since))


class _Span:
    """The jobs' unfinished core-seconds, task by task, while cores are divided."""

    def __init__(self, capacity_cores: float) -> None:
        self._capacity_cores = capacity_cores
        self._left: defaultdict[str, deque[float]] = defaultdict(deque)
        self._plan: Mapping[str, float] = {}
        self._pace_cores = 0.0

    def take(self, event: Event) -> None:
        if isinstance(event, Planned):
            self._plan = event.cores
        elif isinstance(event, Pace):
            self._pace_cores += event.more_cores
        else:
            self._left[event.job].append(event.core_seconds)

    def flow(self, seconds: float) -> Counter[str]:
        """Return the core-seconds that go to each job in a time in which only tasks end."""
        total: Counter[str] = Counter()
        while seconds > 0 and (cores := self._cores()):
            step = min(seconds, *(self._left[job][0] / each for job, each in cores.items() if each > 0))
            for job, each in cores.items():
                total[job] += each * step  # type: ignore[assignment]
                self._work(job, each * step)
            seconds -= step
        return total

    def _cores(self) -> dict[str, float]:
        """Return the cores of each job that has tasks, which together are those that really computed."""
        jobs = [job for job in self._plan if self._left[job]]
        if not jobs or self._pace_cores <= LEAST_CORE_SECONDS:
            return {}
        weight = np.array([max(self._plan[job], LEAST_SHARE) for job in jobs])
        most = np.array([len(self._left[job]) for job in jobs], dtype=np.float64)
        cores = fill_evenly(self._capacity_cores, weight, most)
        return dict(zip(jobs, (self._pace_cores / cores.sum() * cores).tolist(), strict=True))

    def _work(self, job: str, core_seconds: float) -> None:
        """Take it all from the job's first task: how it is spread over the job's tasks changes little."""
        left = self._left[job]
        left[0] -= core_seconds
        if left[0] < LEAST_CORE_SECONDS:
            left.popleft()


def asked_moments(runs: Sequence[Ran], asked: Sequence[Asked]) -> Iterator[tuple[float, Ran]]:
    """Yield each run and since when it could have begun. A job's tasks run in the order in which it asked."""
    moments: defaultdict[str, deque[float]] = defaultdict(deque)
    tasks: Counter[str] = Counter()
    for each in asked:
        moments[each.job].extend([each.at_seconds] * max(0, each.tasks - tasks[each.job]))
        tasks[each.job] = each.tasks
    for run in sorted(runs, key=lambda run: run.start_seconds):
        of_job = moments[run.job]
        yield (min(of_job.popleft(), run.start_seconds) if of_job else run.start_seconds), run


def overlap(run: Ran, begin: float, end: float) -> float:
    """Return the core-seconds of a run between two moments: they are spread over its time evenly."""
    seconds = min(run.end_seconds, end) - max(run.start_seconds, begin)
    length = run.end_seconds - run.start_seconds
    return run.core_seconds * min(1.0, seconds / length) if seconds > 0 and length > 0 else 0.0
