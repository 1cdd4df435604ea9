"""Where parts of models were planned, sent and really ran, and when. See `benchmarks.placed_live`."""

# mypy: disable-error-code="misc"
# distributed is typed in part only.

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from distributed.protocol import pickle

from benchmarks.cluster_observer import NAME, Asked, Observed, Observer
from relaqs.executors.dask.messages import KEY_PREFIX, job_of
from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.job import Task
from relaqs.sharing.parts import PlacedPlan, PlacedPolicy, PlacedView
from relaqs.training.elastic.driver import PLACED
from relaqs.training.parted.part_host import PartTurnWork
from relaqs.training.parted.placing import Part


@dataclass(frozen=True, slots=True)
class PinnedRan:
    """One pinned task of a run, as the scheduler saw it. number: of the run's pinned tasks."""

    job: str
    number: int
    worker: str
    start_seconds: float
    end_seconds: float


class PinnedObserver(Observer):
    """Notes pinned tasks as well."""

    async def start(self, scheduler: Any) -> None:
        await super().start(scheduler)
        self._pinned: list[PinnedRan] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **told: Any) -> None:
        super().transition(key, start, finish, *args, **told)
        if (start, finish) == ("processing", "memory") and (job := job_of(key)) and key[2] == PLACED:
            busy = [each for each in told["startstops"] if each["action"] == "compute"]
            ran = PinnedRan(id_of(job), key[1], told["worker"], busy[0]["start"], busy[-1]["stop"])
            self._pinned.append(ran)

    def pinned(self) -> tuple[PinnedRan, ...]:
        return tuple(self._pinned)


def pinned_seen(dask_scheduler: Any) -> bytes:
    """Return the pinned tasks that the observer has seen, pickled. To be run on the scheduler."""
    seen: bytes = pickle.dumps(dask_scheduler.plugins[NAME].pinned())
    return seen


def id_of(name: str) -> str:
    """Return the id that a job has in its own session, from its name on the cluster."""
    return name.removeprefix(KEY_PREFIX).rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class PlannedPlaces:
    """The workers that a plan has for the parts of a run, by stage and replica."""

    at_seconds: float
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotedPlacements:
    """A placed policy whose plans are noted by run. Those that leave a part of a run waiting are not."""

    inner: PlacedPolicy
    plans: defaultdict[str, list[PlannedPlaces]] = field(
        default_factory=lambda: defaultdict(list), compare=False
    )
    seconds: list[float] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        return self.inner.name

    def plan(self, view: PlacedView) -> PlacedPlan:
        began = time.perf_counter()
        made = self.inner.plan(view)
        self.seconds.append(time.perf_counter() - began)
        for job, id in enumerate(view.jobs.ids):
            nodes = made.node[view.parts.job == job]
            if (nodes >= 0).all():
                workers = tuple(view.nodes.ids[node] for node in nodes)
                self.plans[id].append(PlannedPlaces(time.time(), workers))
        return made


@dataclass(frozen=True, slots=True)
class SentTurn:
    """One slot's share of a turn. turn: what tells turns of a run apart. workers: of all parts.

    asked_seconds: since when the run wanted this turn.
    """

    turn: tuple[int, int]
    asked_seconds: float
    slot: str
    parts: tuple[Part, ...]
    workers: Mapping[Part, str]


class SentTurns:
    """The turns that carriers have sent, by run and number of the pinned task.

    Attributes:
        others: when each run sent tasks that are pinned nowhere, as those that judge a model.
    """

    def __init__(self) -> None:
        self.by_task: dict[tuple[str, int], SentTurn] = {}
        self.others: defaultdict[str, list[float]] = defaultdict(list)
        self._asked: dict[str, float] = {}
        self._turns: dict[str, tuple[tuple[int, int], float]] = {}  # the newest of each run, and its asking

    def note_asked(self, job: str) -> None:
        """Note that a run asks for slots, or for its turn on them."""
        self._asked.setdefault(job, time.time())

    def note(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.key.index != PLACED:
                self.others[task.key.job].append(time.time())
            elif isinstance(work := task.work, PartTurnWork):
                there = work.membership
                workers = {part: worker_of(there.slots[at]) for part, at in sorted(work.place_of.items())}
                own = tuple(part for part, at in work.place_of.items() if there.slots[at] == work.slot)
                job, turn = task.key.job, (there.generation, work.steps[0].step)
                if job not in self._turns or self._turns[job][0] != turn:
                    self._turns[job] = turn, self._asked.pop(job, time.time())
                asked = self._turns[job][1]
                self.by_task[job, task.key.step] = SentTurn(turn, asked, work.slot, own, workers)


def with_turns_asked(seen: Observed, pinned: Sequence[PinnedRan], sent: SentTurns) -> Observed:
    """Return what was seen, where a run in parts asks for a core from when it wants a turn.

    Its tasks reach the scheduler only once it may have the turn. So by its tasks alone, what it had would
    always be all that it asked for.
    """
    turns = {
        (ran.job, ran.worker, ran.start_seconds): own.asked_seconds
        for ran in pinned
        if (own := sent.by_task.get((ran.job, ran.number))) is not None
    }
    parted = {ran.job for ran in pinned}
    changes = []
    for run in seen.runs:
        if (job := id_of(run.job)) in parted:
            asked = turns.get((job, run.worker, run.start_seconds), run.start_seconds)
            changes += [(asked, run.job, 1), (run.end_seconds, run.job, -1)]
    tasks: Counter[str] = Counter()
    moments = [each for each in seen.asked if id_of(each.job) not in parted]
    for at_seconds, job, more in sorted(changes):
        tasks[job] += more
        moments.append(Asked(at_seconds, job, tasks[job]))
    return replace(seen, asked=tuple(sorted(moments, key=lambda each: each.at_seconds)))


@dataclass(frozen=True, slots=True)
class PartsSeen:
    """What was seen of all turns.

    Attributes:
        parts: how many times a part made a turn.
        as_sent: how many of these ran on the worker that the driver meant.
        as_planned: how many ran where the newest plan said, or the one that was newest when the run's turn
            before had ended: a turn that waits for its slots stays as it is.
        skews_seconds: of each turn on several slots: from the first to the last start.
        plans: how many there were of runs that were planned.
        changes: how many of them moved a run that had places.
    """

    parts: int
    as_sent: int
    as_planned: int
    skews_seconds: tuple[float, ...]
    plans: int
    changes: int

    @classmethod
    def of(
        cls, pinned: Sequence[PinnedRan], sent: SentTurns, plans: Mapping[str, Sequence[PlannedPlaces]]
    ) -> PartsSeen:
        parts = as_sent = as_planned = 0
        starts: defaultdict[tuple[str, tuple[int, int]], list[float]] = defaultdict(list)
        ended: dict[str, tuple[tuple[int, int], float, float]] = {}
        for ran in sorted(pinned, key=lambda ran: ran.start_seconds):
            if (own := sent.by_task.get((ran.job, ran.number))) is None:
                continue
            starts[ran.job, own.turn].append(ran.start_seconds)
            turn, end, before = ended.get(ran.job, (own.turn, 0.0, 0.0))
            before = end if turn != own.turn else before
            ended[ran.job] = own.turn, ran.end_seconds, before
            meant = allowed(plans[ran.job], before, ran.start_seconds)
            parts += len(own.parts)
            as_sent += len(own.parts) * (worker_of(own.slot) == ran.worker)
            as_planned += sum(
                (own.workers[part] == ran.worker) and tuple(own.workers.values()) in meant
                for part in own.parts
            )
        skews = tuple(max(each) - min(each) for each in starts.values() if len(each) > 1)
        changes = [a.workers != b.workers for own in plans.values() for a, b in pairwise(own)]
        return cls(parts, as_sent, as_planned, skews, sum(map(len, plans.values())), sum(changes))


def allowed(plans: Sequence[PlannedPlaces], before: float, start: float) -> set[tuple[str, ...]]:
    """Return the places that a turn may have had: planned last before its start, or since some moment."""
    moments = [each.at_seconds for each in plans]
    first = max(bisect_right(moments, before) - 1, 0)
    return {each.workers for each in plans[first : bisect_right(moments, start)]}


@dataclass(frozen=True, slots=True)
class FirstWait:
    """How long a job's first task waited, from its coming to the scheduler to its start on a worker.

    Attributes:
        turns_seconds: of these, while that worker was in a turn of a run in parts.
        tasks_seconds: while it ran a task of another job.
    """

    seconds: float
    turns_seconds: float
    tasks_seconds: float


def first_waits(seen: Observed, ids: Sequence[str], in_parts: Set[str] = frozenset()) -> Iterator[FirstWait]:
    """Yield how long the first task of each of these jobs waited. in_parts: who takes turns."""
    for id in ids:
        asked = [each.at_seconds for each in seen.asked if id_of(each.job) == id and each.tasks]
        started = [run for run in seen.runs if id_of(run.job) == id]
        if not asked or not started:
            continue
        first, came = min(started, key=lambda run: run.start_seconds), min(asked)
        behind = {True: 0.0, False: 0.0}
        for run in seen.runs:
            if run.worker == first.worker and run is not first:
                both = min(run.end_seconds, first.start_seconds) - max(run.start_seconds, came)
                behind[id_of(run.job) in in_parts] += max(0.0, both)
        yield FirstWait(max(0.0, first.start_seconds - came), behind[True], behind[False])
