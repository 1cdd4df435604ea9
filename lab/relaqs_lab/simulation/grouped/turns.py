"""How jobs of a group take turns, subtask by subtask: exclusive lanes, or everything at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from relaqs_lab.groups import TurnTaking
from relaqs_lab.simulation.grouped.queries import QueriesBeside

PULL, PUSH = False, True
QUERY = -1  # who has the cores while a task of a query does
_NEVER = (math.inf, -1)


@dataclass(frozen=True, slots=True)
class IterationSeconds:
    """What one iteration of a job takes on its group's machines, each part alone.

    reload: to read its rows from the disk, where some are there.
    """

    pull: float
    comp: float
    push: float
    reload: float = 0.0

    @property
    def alone(self) -> float:
        return self.pull + self.comp + self.push


class Sharing(Protocol):
    """The jobs of one group. The times of calls never fall."""

    comp_seconds: float
    comm_seconds: float

    def begin(self, job: int, needs: IterationSeconds, now: float, after_seconds: float = 0.0) -> None:
        """Let a job begin an iteration, now or after some seconds."""
        ...

    def leave(self, job: int, now: float) -> None:
        """Let a job go that has just ended an iteration."""
        ...

    def look(self, now: float) -> None:
        """Let queries that have just come have what is idle."""
        ...

    def next_seconds(self) -> float:
        """Return when something happens next; infinity: never."""
        ...

    def step(self) -> int | None:
        """Let that happen; return the job that has ended an iteration: it begins the next one or leaves."""
        ...


def sharing(turns: TurnTaking, queries: QueriesBeside | None = None) -> Sharing:
    """Return an empty group whose jobs take such turns. queries: beside jobs that take turns."""
    if turns == "shared":
        assert queries is None
        return SharedAtOnce()
    return Lanes(pull_first=turns == "pull_first", queries=queries)


@dataclass(slots=True)
class Lanes:
    """One job computes and one communicates at a time; the disk is a third lane.

    A job enters the lane of the network with PULL, then the lane of the cores with COMP, then the network
    with PUSH. Its rows on the disk are read behind its back, from the end of one COMP to the end of the next,
    and that COMP does not end before. Lanes are first in, first out; but with pull_first a PULL goes before
    any PUSH. Between two COMPs, and where no job wants the cores, these do tasks of queries. Neither a task
    nor COMP is interrupted.

    Attributes:
        queries: say whose turn it is. None: there are none.
        comp_seconds, comm_seconds: how long the lanes did work so far. What waits for the disk is not work.
        query_seconds: how long the cores did tasks of queries.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-A, for the lanes; PULL before PUSH is ours.

    >>> lanes = Lanes(pull_first=True)
    >>> lanes.begin(7, IterationSeconds(pull=1.0, comp=2.0, push=1.0), now=0.0)
    >>> [(lanes.next_seconds(), lanes.step()) for _ in range(3)]
    [(1.0, None), (3.0, None), (4.0, 7)]
    """

    pull_first: bool
    queries: QueriesBeside | None = None
    comp_seconds: float = 0.0
    comm_seconds: float = 0.0
    query_seconds: float = 0.0
    _needs: dict[int, IterationSeconds] = field(default_factory=dict)
    _asking: list[tuple[int, bool]] = field(default_factory=list)
    _comps: list[int] = field(default_factory=list)
    _reads: list[tuple[int, float]] = field(default_factory=list)
    _unread: set[int] = field(default_factory=set)
    _net: tuple[float, int] | None = None
    _sends: bool = PULL
    _cpu: tuple[float, int] | None = None
    _cpu_since: float = 0.0
    _disk: tuple[float, int] | None = None
    _blocked: int | None = None

    def begin(self, job: int, needs: IterationSeconds, now: float, after_seconds: float = 0.0) -> None:
        assert after_seconds == 0.0, after_seconds
        if job not in self._needs and needs.reload > 0:
            self._read(job, needs.reload)
        self._needs[job] = needs
        self._asking.append((job, PULL))
        self._start(now)

    def leave(self, job: int, now: float) -> None:
        del self._needs[job]
        self._unread.discard(job)
        self._reads = [each for each in self._reads if each[0] != job]
        if self._disk is not None and self._disk[1] == job:
            self._disk = None
        self._start(now)

    def look(self, now: float) -> None:
        self._start(now)

    def next_seconds(self) -> float:
        return min(lane[0] for lane in (self._disk, self._cpu, self._net, _NEVER) if lane is not None)

    def step(self) -> int | None:
        now = self.next_seconds()
        ended = None
        if self._disk is not None and self._disk[0] == now:
            self._read_done(now)
        elif self._cpu is not None and self._cpu[0] == now:
            self._comp_done(now)
        else:
            ended = self._comm_done()
        if ended is None:  # else it may ask for its next PULL at this very moment
            self._start(now)
        return ended

    def _read(self, job: int, seconds: float) -> None:
        self._unread.add(job)
        self._reads.append((job, seconds))

    def _read_done(self, now: float) -> None:
        assert self._disk is not None
        job = self._disk[1]
        self._disk = None
        self._unread.discard(job)
        if self._blocked == job:
            self._blocked = None
            self._computed(job)

    def _comp_done(self, now: float) -> None:
        assert self._cpu is not None
        job = self._cpu[1]
        self._cpu = None
        if job == QUERY:
            assert self.queries is not None
            self.query_seconds += now - self._cpu_since
            self.queries.task_ended(now)
            return
        self.comp_seconds += self._needs[job].comp
        if self.queries is not None:
            self.queries.comp_ended(job, self._needs[job].comp)
        if job in self._unread:
            self._blocked = job
        else:
            self._computed(job)

    def _computed(self, job: int) -> None:
        self._asking.append((job, PUSH))
        if self._needs[job].reload > 0:
            self._read(job, self._needs[job].reload)

    def _comm_done(self) -> int | None:
        assert self._net is not None
        job = self._net[1]
        self._net = None
        needs = self._needs[job]
        self.comm_seconds += needs.push if self._sends else needs.pull
        if self._sends:
            return job
        self._comps.append(job)
        if self.queries is not None:
            self.queries.asks(job)
        return None

    def _first(self) -> int:
        """Return the position of who has the network next."""
        if not self.pull_first:
            return 0
        return next((i for i, (_, sends) in enumerate(self._asking) if sends is PULL), 0)

    def _start(self, now: float) -> None:
        if self._net is None and self._asking:
            job, self._sends = self._asking.pop(self._first())
            needs = self._needs[job]
            self._net = now + (needs.push if self._sends else needs.pull), job
        if self._cpu is None:
            self._start_on_cores(now)
        if self._disk is None and self._reads:
            job, seconds = self._reads.pop(0)
            self._disk = now + seconds, job

    def _start_on_cores(self, now: float) -> None:
        first = self._comps[0] if self._comps and self._blocked is None else None
        seconds = 0.0 if self.queries is None else self.queries.task_seconds(first)
        if seconds > 0:
            self._cpu, self._cpu_since = (now + seconds, QUERY), now
        elif first is not None:
            del self._comps[0]
            self._cpu, self._cpu_since = (now + self._needs[first].comp, first), now
            if self.queries is not None:
                self.queries.comp_began(first)


@dataclass(slots=True)
class _Stages:
    """What is left of a job's iteration: each stage's kind and seconds."""

    left: list[tuple[int, float]]


_WAITS, _NET, _CPU = 0, 1, 2


@dataclass(slots=True)
class SharedAtOnce:
    """Whoever communicates shares the network equally with the others who do, and so with the cores.

    Where nobody says who goes first, jobs keep the phase in which they began: two equal jobs may alternate
    without harm, or always meet. So they begin at random moments (`after_seconds`). Nothing is on the disk.

    >>> shared = SharedAtOnce()
    >>> for job in (0, 1):
    ...     shared.begin(job, IterationSeconds(pull=1.0, comp=2.0, push=1.0), now=0.0)
    >>> [(shared.next_seconds(), shared.step()) for _ in range(6)][-2:]
    [(8.0, 0), (8.0, 1)]
    """

    comp_seconds: float = 0.0
    comm_seconds: float = 0.0
    _jobs: dict[int, _Stages] = field(default_factory=dict)
    _now: float = 0.0

    def begin(self, job: int, needs: IterationSeconds, now: float, after_seconds: float = 0.0) -> None:
        self._pass(now)
        stages = [(_NET, needs.pull), (_CPU, needs.comp), (_NET, needs.push)]
        self._jobs[job] = _Stages([(_WAITS, after_seconds), *stages] if after_seconds > 0 else stages)

    def leave(self, job: int, now: float) -> None:
        self._pass(now)
        del self._jobs[job]

    def look(self, now: float) -> None:
        """There are no queries."""

    def next_seconds(self) -> float:
        return self._first()[0]

    def step(self) -> int | None:
        now, job = self._first()
        self._pass(now)
        stage = self._jobs[job]
        stage.left.pop(0)
        return None if stage.left else job

    def _slowness(self) -> dict[int, int]:
        """Return how many share each kind of what jobs do; who waits shares it with nobody."""
        using = [stage.left[0][0] for stage in self._jobs.values() if stage.left]
        return {_WAITS: 1, _NET: using.count(_NET), _CPU: using.count(_CPU)}

    def _first(self) -> tuple[float, int]:
        """Return when the next stage ends, and whose."""
        slow = self._slowness()
        ends = [
            (self._now + stage.left[0][1] * slow[stage.left[0][0]], job)
            for job, stage in self._jobs.items()
            if stage.left
        ]
        return min(ends, default=_NEVER)

    def _pass(self, now: float) -> None:
        passed, slow = now - self._now, self._slowness()
        self._now = now
        if passed <= 0:
            return
        for stage in self._jobs.values():
            if stage.left:
                kind, seconds = stage.left[0]
                stage.left[0] = kind, max(seconds - passed / slow[kind], 0.0)
        self.comp_seconds += passed if slow[_CPU] else 0.0
        self.comm_seconds += passed if slow[_NET] else 0.0
