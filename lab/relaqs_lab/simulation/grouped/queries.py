"""Queries beside jobs in groups: all of them share the cores of all machines in one virtual time.

A query reads its rows in small tasks, which any machine can do. On the machines of a group a task goes before
COMP, or after it, as `FairShares` says, which decides live as well: the one with the fewest core-seconds for
its weight is next. Where no job wants the cores, queries have them. Neither a task nor COMP is interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.scheduling.virtual_time import FairShares

FIRST_SHARE = 0.01  # of its rows, after which a query shows its first answer
_STREAM = 3  # of the seed, beside those of the jobs


class QueriesBeside(Protocol):
    """The queries that want the cores of some machines, as the lanes of these ask them."""

    def asks(self, job: int) -> None:
        """Note that a job wants the cores for its COMP."""
        ...

    def task_seconds(self, job: int | None) -> float:
        """Begin a task of a query and return what it takes; 0: there is none, or COMP goes first.

        job: whose COMP waits. None: nobody's.
        """
        ...

    def task_ended(self, now: float) -> None:
        """Note that the task is done."""
        ...

    def comp_began(self, job: int) -> None:
        """Note that a job has the cores."""
        ...

    def comp_ended(self, job: int, seconds: float) -> None:
        """Note that it has them no more, after so long."""
        ...


@dataclass(frozen=True, slots=True)
class EndlessQueries:
    """Tasks of queries without an end, each of which lets any COMP go first. seconds: what a task takes."""

    seconds: float

    def asks(self, job: int) -> None:
        return

    def task_seconds(self, job: int | None) -> float:
        return self.seconds if job is None else 0.0

    def task_ended(self, now: float) -> None:
        return

    def comp_began(self, job: int) -> None:
        return

    def comp_ended(self, job: int, seconds: float) -> None:
        return


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """Queries that come one by one (Poisson), as long as jobs run.

    Attributes:
        every_seconds: the mean time between two of them.
        machine_seconds: what a query takes on one machine, on average; exponential.
        task_seconds: what a task takes.

    >>> str(QueryLoad())
    'queries every 600 s'
    """

    every_seconds: float = 600.0
    machine_seconds: float = 3000.0
    task_seconds: float = 2.0

    def __post_init__(self) -> None:
        for name in ("every_seconds", "machine_seconds", "task_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} of queries is {getattr(self, name)}; give a number above 0")

    def __str__(self) -> str:
        return f"queries every {self.every_seconds:g} s"


@dataclass(frozen=True, slots=True, eq=False)
class QueryOutcome:
    """What came of Q queries that ended before the last job, columns of shape (Q,). Times in seconds.

    Attributes:
        seconds: from the arrival to the exact answer.
        error_seconds: the integral of the error over that time.
        equal_seconds, equal_error_seconds: the same, had the query had the same share of all cores at each
            moment as every job that runs and every other query.
        machine_seconds: that queries took, all together.
    """

    seconds: FloatArray
    error_seconds: FloatArray
    equal_seconds: FloatArray
    equal_error_seconds: FloatArray
    machine_seconds: float


@dataclass(slots=True, eq=False)
class _Query:
    """One query.

    Attributes:
        tasks: that it has.
        taken, done: tasks that were begun and that are done.
        error_seconds: until `noted_seconds`.
        equal_share: of its rows, that it would have read at an equal share of the cores.
    """

    name: str
    arrival_seconds: float
    tasks: int
    taken: int = 0
    done: int = 0
    noted_seconds: float = 0.0
    error_seconds: float = 0.0
    end_seconds: float = math.nan
    equal_share: float = 0.0
    equal_error_seconds: float = 0.0
    equal_end_seconds: float = math.nan

    def note_done(self, tasks: int, now: float) -> None:
        self.error_seconds += (now - self.noted_seconds) * error_of(self.done / self.tasks)
        self.noted_seconds = now
        self.done += tasks
        if self.done == self.tasks:
            self.end_seconds = now


class QueryPool:
    """The queries of a simulation, and the virtual time that they have in common with the jobs.

    Args:
        load: which queries come.
        machines: of the fleet.
        seed: of when they come and how large they are.
        begins: when the first job comes.
    """

    def __init__(self, load: QueryLoad, machines: int, seed: int, begins: float) -> None:
        self._load, self._machines = load, machines
        self._random = np.random.default_rng([seed, _STREAM])
        self._shares = FairShares()
        self._asking: set[str] = set()
        self._charged: dict[int, float] = {}
        self._active: list[_Query] = []
        self._equal: list[_Query] = []  # that would not have ended yet at an equal share
        self._all: list[_Query] = []
        self._tasks_done = 0
        self.next_arrival = begins + self._gap()

    def _gap(self) -> float:
        return float(self._random.exponential(self._load.every_seconds))

    def arrive(self) -> None:
        """Let the next query come, which is due now."""
        work = float(self._random.exponential(self._load.machine_seconds))
        tasks = max(1, round(work / self._load.task_seconds))
        now = self.next_arrival
        query = _Query(f"query {len(self._all)}", now, tasks, noted_seconds=now)
        self._shares.enter(query.name)
        for queries in (self._all, self._active, self._equal):
            queries.append(query)
        self._asking.add(query.name)
        self.next_arrival = now + self._gap()

    def pass_equal(self, now: float, seconds: float, jobs: int) -> None:
        """Let time pass as it would at equal shares. jobs: how many run."""
        while self._equal and seconds > 0:
            rate = self._machines / (jobs + len(self._equal)) / self._load.task_seconds
            passed = min(seconds, min((1 - each.equal_share) * each.tasks / rate for each in self._equal))
            now, seconds = now + passed, seconds - passed
            for each in self._equal:
                share = min(1.0, each.equal_share + passed * rate / each.tasks)
                each.equal_error_seconds += error_integral(each.equal_share, share) * each.tasks / rate
                each.equal_share = 1.0 if share > 1 - 1e-12 else share
                each.equal_end_seconds = now
            self._equal = [each for each in self._equal if each.equal_share < 1]

    def beside(self, machines: Callable[[], int]) -> QueriesBeside:
        """Return what the lanes of some machines ask. machines: how many they are now."""
        return _TurnsOfMachines(self, machines)

    def left(self, job: int) -> None:
        """Note that a job has ended."""
        self._shares.leave(_name(job))

    def outcome(self) -> QueryOutcome:
        ended = [each for each in self._all if each.done == each.tasks and each.equal_share == 1]
        arrival = np.array([each.arrival_seconds for each in ended])
        return QueryOutcome(
            seconds=np.array([each.end_seconds for each in ended]) - arrival,
            error_seconds=np.array([each.error_seconds for each in ended]),
            equal_seconds=np.array([each.equal_end_seconds for each in ended]) - arrival,
            equal_error_seconds=np.array([each.equal_error_seconds for each in ended]),
            machine_seconds=self._tasks_done * self._load.task_seconds,
        )

    # What machines ask.

    def note_asks(self, job: int) -> None:
        name = _name(job)
        self._shares.enter(name)
        self._shares.wake(name)
        self._asking.add(name)

    def begin_tasks(self, job: int | None, machines: int) -> tuple[_Query, int, float] | None:
        """Begin tasks of the query whose turn it is, one a machine; None: there is none, or a job goes first.

        Return the query, how many tasks, and what it was charged for them.
        """
        wanting = {each.name: each for each in self._active if each.taken < each.tasks}
        if not wanting or not machines:
            return None
        first = self._shares.next([*wanting, *([] if job is None else [_name(job)])])
        if first is None or first not in wanting:
            return None
        query = wanting[first]
        charged = self._start(first)
        tasks = min(machines, query.tasks - query.taken)
        query.taken += tasks
        if query.taken == query.tasks:
            self._asking.discard(first)
        return query, tasks, charged

    def end_tasks(self, query: _Query, tasks: int, charged: float, now: float) -> None:
        self._shares.settle(query.name, charged, tasks * self._load.task_seconds)
        self._tasks_done += tasks
        query.note_done(tasks, now)
        if query.done == query.tasks:
            self._active.remove(query)
            self._shares.leave(query.name)

    def begin_comp(self, job: int) -> None:
        self._charged[job] = self._start(_name(job))
        self._asking.discard(_name(job))

    def end_comp(self, job: int, machine_seconds: float) -> None:
        self._shares.settle(_name(job), self._charged.pop(job), machine_seconds)

    @property
    def task_seconds(self) -> float:
        return self._load.task_seconds

    def _start(self, name: str) -> float:
        """Charge who has a turn somewhere. It passes by those before it who wait elsewhere."""
        return self._shares.start(name, in_turn=self._shares.next(self._asking | {name}) == name)


@dataclass(slots=True)
class _TurnsOfMachines:
    """The `QueriesBeside` of some machines."""

    pool: QueryPool
    machines: Callable[[], int]
    _begun: tuple[_Query, int, float] | None = field(default=None)

    def asks(self, job: int) -> None:
        self.pool.note_asks(job)

    def task_seconds(self, job: int | None) -> float:
        self._begun = self.pool.begin_tasks(job, self.machines())
        return 0.0 if self._begun is None else self.pool.task_seconds

    def task_ended(self, now: float) -> None:
        assert self._begun is not None
        self.pool.end_tasks(*self._begun, now)

    def comp_began(self, job: int) -> None:
        self.pool.begin_comp(job)

    def comp_ended(self, job: int, seconds: float) -> None:
        self.pool.end_comp(job, self.machines() * seconds)


def error_of(share: float) -> float:
    """Return the error of an answer from a share of the rows, 1 at its first one.

    It falls as the standard error of a mean over rows drawn without replacement.

    Source: Cochran, Sampling Techniques, 1977, section 2.6, the finite population correction.

    >>> [round(error_of(share), 3) for share in (0.0, 0.01, 0.04, 0.5, 1.0)]
    [1.0, 1.0, 0.492, 0.101, 0.0]
    """
    if share <= FIRST_SHARE:
        return 1.0
    return math.sqrt((1 - share) / share * FIRST_SHARE / (1 - FIRST_SHARE))


def error_integral(since: float, until: float) -> float:
    """Return the integral of `error_of` from one share of the rows to another.

    >>> steps = [0.2 + 0.3 * (i + 0.5) / 1000 for i in range(1000)]
    >>> abs(error_integral(0.2, 0.5) - sum(map(error_of, steps)) * 0.3 / 1000) < 1e-6
    True
    """
    early = max(0.0, min(until, FIRST_SHARE) - since)
    low, high = max(since, FIRST_SHARE), max(until, FIRST_SHARE)
    return early + math.sqrt(FIRST_SHARE / (1 - FIRST_SHARE)) * (_antiderivative(high) - _antiderivative(low))


def _antiderivative(share: float) -> float:
    """Return that of √((1 − x) / x)."""
    return math.sqrt(share * (1 - share)) + math.asin(math.sqrt(share))


def _name(job: int) -> str:
    return f"job {job}"
