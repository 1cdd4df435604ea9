"""The embedded executor: daemon threads in the user's process. DuckDB releases the GIL while it works.

Why not Dask in the process: docs/decisions/0003-embedded-executor.md.
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from relaqs_engine.errors import ClusterError

from relaqs.executors import duck_process as worker
from relaqs.executors.places import LIGHT_CORE_SECONDS, OVERDUE_SECONDS, Held, Need, Places
from relaqs.jobs.executor import (
    PRECEDENCE,
    Done,
    Stoppable,
    background_thread,
    call_later,
    client_name,
    give_way,
    run_measured,
)
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task
from relaqs.policies import DEFAULT_POLICY, chosen_policy
from relaqs.scheduling import Desk
from relaqs.scheduling.virtual_time import FairQueue, Grant
from relaqs.sharing.view import Kind, Policy

JOIN_SECONDS = 2.0  # for tasks that no interruption reaches, e.g. a training step in another library
IDLE_SECONDS = 1.0  # after which a thread ends that is not needed: the next one's cursor costs a millisecond
SETTLE_SECONDS = 0.05  # within which a thread gives its core back once its statement has ended


class DeafTaskWarning(UserWarning):
    """A task went on after it was interrupted. Its thread was given up, and another has its place."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A task, what its result is handed to, and what decides where it may start."""

    task: Task
    done: Done
    need: Need


@dataclass(slots=True)
class _Entered:
    """A job that has not left. core_seconds: of its tasks that have ended."""

    description: JobDescription
    driver: Stoppable | None
    core_seconds: float = 0.0

    def need(self, task: Task) -> Need:
        """Return what is known of a task of the job before it runs."""
        job = self.description
        is_light = job.kind in (Kind.QUERY, Kind.EXACT) and self.core_seconds < LIGHT_CORE_SECONDS
        return Need(job.id, job.user, job.user_cores_most, task.cores, task.whole_seconds, is_light)


@dataclass(slots=True, eq=False)
class _Running:
    """What one thread runs now.

    thread: its native number. gives_way: to what others wait for, and so does its thread from then on.
    """

    turn: Grant[_Order]
    place: Held
    thread: int = field(default_factory=threading.get_native_id)
    gives_way: bool = False

    @property
    def job(self) -> str:
        return self.turn.job

    def held_core_seconds(self, now_seconds: float) -> float:
        return (now_seconds - self.place.since_seconds) * self.turn.item.task.cores


class ThreadExecutor:
    """An `Executor` on threads of this process, which drive a `Desk` under one lock.

    A thread that asks for its next task makes a plan first where one is due. So no thread waits for a clock,
    and a job that has come or gone counts from the next task.

    There is a thread for each usual place, and one more for each spare one while that is there, and a second
    longer: see `Places`.

    Args:
        cores: how many usual places; None: the cores that this process may use.
        policy: who gets how many of the cores.
    """

    def __init__(self, cores: int | None = None, *, policy: str | Policy = DEFAULT_POLICY) -> None:
        if cores is not None and cores < 1:
            raise ValueError(f"cores is {cores}; at least 1 is needed")
        self._cores = cores or usable_cores()
        self._client = client_name()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # what the threads wait for
        self._settled = threading.Condition(lock)  # what those wait for who have cancelled: none takes a task
        self._desk = Desk(chosen_policy(policy))
        self._queue: FairQueue[_Order] = FairQueue(self._desk.turns)
        self._entered: dict[str, _Entered] = {}  # by job
        self._running: dict[int, _Running] = {}  # by thread
        self._cancelled: set[str] = set()  # cancelled jobs that still run tasks
        self._is_closed = False
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        for _ in range(self._cores):
            self._add_thread()
        _OPEN.add(self)

    @property
    def capacity(self) -> int:
        return self._cores

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        with self._changed:
            self._check_open()
            self._desk.enter(replace(description, client=self._client), time.monotonic())
            self._queue.enter(description.id)
            self._entered.setdefault(description.id, _Entered(description, driver))

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        with self._changed:
            self._check_open()
            if tasks:
                job = tasks[0].key.job
                entered = self._entered.get(job)
                needs = [Need() if entered is None else entered.need(task) for task in tasks]
                self._queue.add(
                    job, [_Order(task, done, need) for task, need in zip(tasks, needs, strict=True)]
                )
                self._changed.notify(len(tasks))
                self._prepare_spare()

    def report(self, job_id: str, report: StepReport) -> None:
        with self._changed:
            self._desk.accounts.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        with self._changed:
            self._desk.accounts.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        with self._changed:
            self._desk.accounts.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        with self._changed:
            self._desk.accounts.set_waiting(job_id, is_waiting)

    def status(self) -> ClusterStatus:
        with self._changed:
            now_seconds, running = time.monotonic(), defaultdict[str, list[float]](list)
            for each in self._running.values():
                running[each.job] += [now_seconds - each.place.since_seconds] * each.turn.item.task.cores
            return self._desk.accounts.status(now_seconds, self._cores, running)

    def cancel(self, job_id: str) -> None:
        with self._changed:
            if not self._leaves(job_id):
                return
        self._end_tasks({job_id})

    def close(self) -> None:
        """Cancel every job and join the threads, but for one in a task that no interruption reaches."""
        with self._changed:
            self._is_closed = True
            jobs = {*self._queue.jobs(), *(each.job for each in self._running.values())}
            running = {job_id for job_id in jobs if self._leaves(job_id)}
            self._changed.notify_all()
        if running:
            self._end_tasks(running)
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        _OPEN.discard(self)

    def _leaves(self, job_id: str) -> bool:
        """Forget a job, and return whether tasks of it run still."""
        self._queue.drop(job_id)
        self._desk.leave(job_id)
        self._entered.pop(job_id, None)
        if not self._runs(job_id):
            return False
        self._cancelled.add(job_id)
        return True

    def _end_tasks(self, jobs: set[str]) -> None:
        """Interrupt what runs of cancelled jobs. Threads that it keeps for too long are given up."""
        if not worker.interrupt(*jobs):
            self._give_up(jobs)
            return
        with self._changed:
            self._settled.wait_for(lambda: not any(map(self._runs, jobs)), SETTLE_SECONDS)
            if not any(map(self._runs, jobs)) or self._is_closed:
                return
        call_later(worker.DEAF_SECONDS, self._give_up, jobs)

    def _give_up(self, jobs: set[str]) -> None:
        """Let other threads have the places of those that still run tasks of cancelled jobs.

        A thread that is given up ends when its task does. Nothing is asked of it before, and what it returns
        is nobody's. Its job stays marked as interrupted, so that it starts no other statement.
        """
        with self._changed:
            deaf = {thread: each for thread, each in self._running.items() if each.job in jobs}
            now_seconds = time.monotonic()
            for thread, each in deaf.items():
                del self._running[thread]
                self._charge(each, each.held_core_seconds(now_seconds))
            self._cancelled -= jobs
            self._threads = [thread for thread in self._threads if thread.ident not in deaf]
            if not self._is_closed:
                for _ in deaf:
                    self._add_thread()
        if deaf:
            warnings.warn(
                f"a query was stopped, and DuckDB or another library went on with it for "
                f"{worker.DEAF_SECONDS:g} s. Other threads have taken the place of {len(deaf)}. Until that "
                "ends, or this process does, it keeps its memory and may keep a core busy",
                DeafTaskWarning,
                stacklevel=2,
            )

    def describe(self) -> str:
        return f"{self._cores} thread{'' if self._cores == 1 else 's'} in this process"

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Run one task; False once closed. A call of its own, so that an idle thread holds no result."""
        if (running := self._next_turn()) is None:
            return False
        result = run_measured(running.turn.item.task, running.job)
        try:
            PRECEDENCE.charge(running.place.need.user, result.core_seconds)
        except Exception as error:  # it is of this job, and must not end the thread
            result = replace(result, error=error)
        if not self._settle(running, result.core_seconds):
            return False
        running.turn.item.done(result)
        if running.gives_way:
            with self._changed:
                self._threads.remove(threading.current_thread())
        return not running.gives_way

    def _next_turn(self) -> _Running | None:
        """Wait for work; None once the executor is closed, or has had threads enough without this one."""
        ends_at_seconds = math.inf
        with self._changed:
            while not self._is_closed:
                self._share_out()
                places = self._places()
                if (running := self._begun(places)) is not None:
                    return running
                now_seconds, is_awaited = time.monotonic(), self._waits_for_spare(places)
                if self._idle() <= self._cores - self._usual() + is_awaited:
                    ends_at_seconds = math.inf
                elif now_seconds >= ends_at_seconds:
                    self._threads.remove(threading.current_thread())
                    return None
                else:
                    ends_at_seconds = min(ends_at_seconds, now_seconds + IDLE_SECONDS)
                next_seconds = min(ends_at_seconds, places.spare_at_seconds if is_awaited else math.inf)
                self._changed.wait(next_seconds - now_seconds if next_seconds < math.inf else None)
            return None

    def _begun(self, places: Places) -> _Running | None:
        """Take the next task for this thread; None where none may start."""
        if (turn := self._queue.pop(lambda order: places.may_start(order.need))) is None:
            return None
        place = Held(turn.item.need, time.monotonic(), is_spare=not places.has_usual)
        self._running[threading.get_ident()] = running = _Running(turn, place)
        if place.need.is_light and not place.need.is_long:
            self._let_pass(running)
        self._prepare_spare()
        return running

    def _let_pass(self, begun: _Running) -> None:
        """Have statements of other jobs that take long give way to a task of a query that has had little."""
        for each in self._running.values():
            is_statement = isinstance(each.turn.item.task.work, worker.QueryWork)
            if each.job == begun.job or each.gives_way or not is_statement:
                continue
            need, seconds = each.place.need, begun.place.since_seconds - each.place.since_seconds
            is_overdue = seconds >= OVERDUE_SECONDS
            if need.is_long or is_overdue or PRECEDENCE.had_more(need.user, begun.place.need.user):
                each.gives_way = True
                give_way(each.thread)
                self._add_thread()  # in its place: by a thread with all its weight, as others inherit less

    def _places(self) -> Places:
        return Places(self._cores, [each.place for each in self._running.values()], time.monotonic())

    def _usual(self) -> int:
        """Return how many of the usual places are held by threads that go on after that."""
        return sum(not (each.place.is_spare or each.gives_way) for each in self._running.values())

    def _idle(self) -> int:
        """Return how many threads run no task."""
        return len(self._threads) - len(self._running)

    def _waits_for_spare(self, places: Places) -> bool:
        """Return whether a task waits that may have a spare place in a moment."""
        return not places.has_usual and any(places.may_have_spare(each.need) for each in self._queue.first())

    def _prepare_spare(self) -> None:
        """Have a thread for the next spare place where a task waits for it."""
        if not self._idle() and self._waits_for_spare(self._places()):
            self._add_thread()

    def _runs(self, job_id: str) -> bool:
        return any(each.job == job_id for each in self._running.values())

    def _share_out(self) -> None:
        now_seconds = time.monotonic()
        if self._desk.accounts.is_due(now_seconds, self._cores):
            for job in self._desk.share_out(now_seconds, self._cores):
                if (entered := self._entered.get(job)) is not None and entered.driver is not None:
                    entered.driver.end_by_plan()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterError("this session is closed; open another with relaqs.connect")

    def _settle(self, running: _Running, core_seconds: float) -> bool:
        """Give the core back. Returns whether the thread still serves: False where it was given up."""
        with self._changed:
            if self._running.get(threading.get_ident()) is not running:
                return False
            del self._running[threading.get_ident()]
            self._charge(running, core_seconds)
            if self._queue.first():  # what waited for this place, or for the cores of its user
                self._changed.notify_all()
            if running.job in self._cancelled and not self._runs(running.job):
                self._cancelled.discard(running.job)
                worker.release(running.job)
                self._settled.notify_all()
            return True

    def _charge(self, running: _Running, core_seconds: float) -> None:
        if (entered := self._entered.get(running.job)) is not None:
            entered.core_seconds += core_seconds
        self._queue.settle(running.turn, core_seconds)
        self._desk.accounts.charge(running.job, core_seconds, time.monotonic())

    def _add_thread(self) -> None:
        thread = background_thread(self._serve, f"relaqs-{next(self._numbers)}")
        self._threads.append(thread)
        thread.start()


def usable_cores() -> int:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_OPEN: set[ThreadExecutor] = set()


@atexit.register
def _close_all() -> None:
    """Stop the threads before the interpreter goes: a daemon thread inside DuckDB would abort the process."""
    for executor in list(_OPEN):
        executor.close()
