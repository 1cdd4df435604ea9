"""What runs tasks: what every executor can be asked, how a task is run and measured, and threads.

`Executor` is the contract of threads of this process, of a Dask cluster and of toys in tests alike. All of
them run a task by `run_measured`, so that a core-second is the same everywhere. `is_core_wanted` tells a
task whether another one waits for its core. A long task may end early for it: a gang's turn lasts half a
second, and ends with its next step where a query's task waits.

Threads are made and waited for in one way:

- `background_thread` makes daemon threads that are joined before the interpreter goes. They are daemons,
  since the end of a program must not wait for its queries. But a daemon thread that is inside DuckDB when
  the interpreter goes, be it to free a result, aborts the process: all must have ended by then.
- `run_in_background` calls a function on such a thread. It waits a second for the next function: to start a
  thread costs a server a tenth of what it spends on a small statement.
- `wait_pieces` cuts a wait of the user's thread into short pieces, so that a ctrl-C always ends it.
- `Stopwatch` counts the seconds since a job was submitted.

The workers of a cluster may speak with each other, for work that keeps its state on them (`HostsPeers`).
Their service is a class. Each worker makes one of it when a letter comes, or a task asks for it.
"""

from __future__ import annotations

import atexit
import gc
import math
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from getpass import getuser
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from numpy.typing import NDArray
from relaqs_engine.errors import RelaqsError

from relaqs.jobs.job import ClusterStatus, JobDescription, Metered, StepReport, Task, TaskResult

IDLE_SECONDS = 1.0  # after which a thread ends that has had nothing to do
_IDLE_NAME = "relaqs-idle"
EXIT_SECONDS = 2.0  # what the end of the process waits for threads that no interruption reaches
_STATEMENT_SECONDS = 10.0  # and for those inside DuckDB. On a busy machine 25 ms of work take seconds
_SETTLED_SECONDS = 0.25  # a thread that has not moved for so long frees nothing of DuckDB
NICENESS = 10  # of what gives way: it has a tenth of the weight of others

_MADE: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def background_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread, not yet started, that the end of the process waits for."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    _MADE.add(thread)
    return thread


def call_later(seconds: float, function: Callable[..., object], *arguments: object) -> threading.Timer:
    """Call a function on a thread of its own after some seconds, unless the process ends before."""
    timer = threading.Timer(seconds, function, arguments)
    timer.daemon = True
    _MADE.add(timer)
    timer.start()
    return timer


def give_way(thread: int = 0, niceness: int = NICENESS) -> None:
    """Let Linux give others more of a core than this thread, and than those that it starts from now on.

    It stays so: only a privileged process could give a thread its weight back.

    thread: of this process, by its native number. 0: the calling one.
    niceness: is added to that of the thread.
    """
    if sys.platform == "linux":  # no other system has one for each thread
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, _niceness_of(thread) + niceness)


FIRST_SECONDS = 0.1  # from its beginning, in which a statement goes before those of who had more of late
_LATELY_SECONDS = 2.0  # after which a third is left of what counts
_MUCH_CORE_SECONDS, _TIMES_MORE = 0.1, 4  # of late, and beside the others', of who gives way
_TIMES_MORE_BEGUN = 0.5  # the same for a statement that began before its first moments
_REPAID = 4  # so much of what somebody waited is made good while they go on
_POLL_SECONDS = 0.004
_STATEMENT_CORE_SECONDS = 0.0005  # at least, of what reads a statement and sends its answer
_MOST_USERS, _LITTLE = 1000, 1e-3  # of whom core-seconds are kept; beyond it those of who had few go


def _niceness_of(thread: int = 0) -> int:
    """Return that of a thread by its native number, or of the calling one; 0 where threads have none."""
    return os.getpriority(os.PRIO_PROCESS, thread) if sys.platform == "linux" else 0


class _Wait(NamedTuple):
    """What a user waited for others: with statements that are new, or with those that are not any more."""

    seconds: float  # less what made them good
    looked_at: float  # when the user asked last whether to give way
    is_behind: bool = False  # whether the user waits since then


class Precedence:
    """Which user goes first, in this process: who had less of late. Python's lock has no turns of users.

    What a user did so far counts less and less. While somebody has a new statement under way who had far
    less, one gives way: begins nothing, and pauses what can pause. For a statement that is not new any more
    one does so where the other had not far more. Nobody waits for more than four fifths of the time.

    clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._had: dict[str, tuple[float, float]] = {}  # by user: core-seconds of late, and when that was
        self._asked: dict[object, tuple[str, float]] = {}  # statements under way: whose, and until when new
        self._waits: dict[tuple[str, bool], _Wait] = {}  # by user, and whether it is with new statements
        self._free: dict[str, float] = {}  # until when users need not give way

    def charge(self, user: str, core_seconds: float) -> None:
        """Note what a user was given: at once no more than who has had all cores for long."""
        most = _LATELY_SECONDS * (os.cpu_count() or 1)
        with self._lock:
            self._had[user] = min(self._of_late(user) + core_seconds, most), self._clock()
            if len(self._had) > _MOST_USERS:
                self._had = {each: self._had[each] for each in self._had if self._of_late(each) > _LITTLE}
                self._waits = {key: wait for key, wait in list(self._waits.items()) if key[0] in self._had}
                self._free = {each: at for each, at in list(self._free.items()) if each in self._had}

    @contextmanager
    def asking(self, user: str) -> Iterator[None]:
        """Have a statement of a user under way in the block."""
        statement, new_until = object(), self._clock() + FIRST_SECONDS
        self._asked[statement] = user, new_until
        before = NEW_UNTIL.set(new_until)
        try:
            yield
        finally:
            del self._asked[statement]
            self.charge(user, _STATEMENT_CORE_SECONDS)
            NEW_UNTIL.reset(before)  # the last, since it raises where the block ends in another context

    def had_more(self, user: str, other: str, times: float = _TIMES_MORE) -> bool:
        """Return whether a user had much of late, and so many times more than another one."""
        return self._of_late(user) > max(_MUCH_CORE_SECONDS, times * self._of_late(other))

    def gives_way(self, user: str, new_until: float = math.inf) -> bool:
        """Return whether a user gives way now. Whoever asks does so, and asks again soon.

        new_until: until when the user's own statement is new, `NEW_UNTIL`.
        """
        now = self._clock()
        key = user, now < new_until
        if not self._asked and key not in self._waits:
            return False
        wait = self._wait(user, now, is_new=key[1])
        gone = now - wait.looked_at
        waited = max(0.0, wait.seconds + (gone if wait.is_behind else -_REPAID * gone))
        asked = [other for other, until in list(self._asked.values()) if now < until and other != user]
        is_behind = now >= self._free.get(user, 0.0) and self._is_behind(user, asked, new_until)
        self._waits[key] = _Wait(waited, now, is_behind)
        if is_behind and waited >= FIRST_SECONDS:
            self._goes_on(user, new_until)
            return False
        return is_behind

    def _wait(self, user: str, now: float, *, is_new: bool) -> _Wait:
        """Return what was waited so far. The first statement that ceases to be new brings what it waited."""
        for kind in (is_new, True):
            wait = self._waits.get((user, kind))
            if wait is not None and now <= wait.looked_at + 2 * FIRST_SECONDS:  # else it was given up
                return wait if kind is is_new else self._waits.pop((user, kind), wait)
        return _Wait(0.0, now)

    def _is_behind(self, user: str, others: Iterable[str], new_until: float) -> bool:
        times = _TIMES_MORE if self._clock() < new_until else _TIMES_MORE_BEGUN
        return any(self.had_more(user, other, times) for other in others)

    def _goes_on(self, user: str, new_until: float) -> None:
        now = self._clock()
        waited = self._waits.pop((user, now < new_until), _Wait(0.0, now)).seconds
        self._free[user] = now + min(max(waited, _POLL_SECONDS), FIRST_SECONDS) / _REPAID

    def pause(
        self, user: str, waiting: Callable[[], Iterable[str]] = tuple, new_until: float = math.inf
    ) -> None:
        """Wait as long as a user gives way, but not while the thread is waited for by who goes first.

        waiting: returns the users who wait for it. new_until: as of `gives_way`.
        """
        while self.gives_way(user, new_until):
            if self._is_behind(user, [other for other in waiting() if other != user], new_until):
                self._goes_on(user, new_until)
                break
            time.sleep(_POLL_SECONDS)

    def _of_late(self, user: str) -> float:
        core_seconds, at = self._had.get(user, (0.0, 0.0))
        return core_seconds * math.exp((at - self._clock()) / _LATELY_SECONDS)


PRECEDENCE = Precedence()
NEW_UNTIL: ContextVar[float] = ContextVar("relaqs-new-until", default=math.inf)
"""Until when the statement is new that is under way in this context, on the clock of `PRECEDENCE`."""


_Call: TypeAlias = tuple[Callable[[], object], str]  # and the name of the thread meanwhile


class _Waiting:
    """Threads that call one function after another, and those among them that have none now."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know no thread. A process that was forked has none of its parent's."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Call | None]] = []  # the last to become idle is taken first
        self._is_over = False

    def run(self, function: Callable[[], object], name: str) -> None:
        """Call a function, which raises nothing, on a thread that has nothing to do, or on a new one.

        name: of the thread meanwhile. The end of the process waits for it.
        """
        with self._lock:
            calls = self._idle.pop() if self._idle else None
        if calls is None:
            calls = SimpleQueue()
            background_thread(partial(self._serve, calls), name).start()
        calls.put((function, name))

    def end(self) -> None:
        """Let threads end as soon as they have nothing to do."""
        with self._lock:
            self._is_over = True
            for calls in self._idle:
                calls.put(None)
            self._idle.clear()

    def _serve(self, calls: SimpleQueue[_Call | None]) -> None:
        usual = _niceness_of()
        while (call := self._next(calls)) is not None:
            function, threading.current_thread().name = call
            Context().run(function)
            del call, function  # they keep what was done
            threading.current_thread().name = _IDLE_NAME
            with self._lock:
                if self._is_over or _niceness_of() != usual:  # it gives way for good
                    return
                self._idle.append(calls)

    def _next(self, calls: SimpleQueue[_Call | None]) -> _Call | None:
        """Return the next call, None where none came in time."""
        try:
            return calls.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if calls in self._idle:
                    self._idle.remove(calls)
                    return None
            return calls.get()  # it was taken in this moment


_WAITING = _Waiting()
run_in_background = _WAITING.run
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WAITING.forget)


def join_all(timeout_seconds: float = EXIT_SECONDS) -> bool:
    """Wait for the threads, and for those that they start; return whether all have ended by then."""
    deadline = time.monotonic() + timeout_seconds
    _WAITING.end()
    for thread in list(_MADE):
        if isinstance(thread, threading.Timer):
            thread.cancel()
    while running := [thread for thread in list(_MADE) if thread.is_alive()]:
        if (left := deadline - time.monotonic()) <= 0:
            return False
        running[0].join(left)
    return True


# Exit handlers run last in, first out: modules that import this one tell their threads to end before it.
@atexit.register
def _end_all() -> None:
    """Wait for the threads, and longer for those inside DuckDB. They begin nothing there from then on."""
    if join_all():
        return
    if (duck := sys.modules.get("relaqs_engine.duck")) is None:
        return
    duck.BEFORE_STATEMENTS.append(_stand_still)
    gc.disable()  # what it finds may be a cursor
    file = str(duck.__file__)
    began = moved = time.monotonic()
    before: set[tuple[int, int, int, bool]] = set()
    while (now := time.monotonic()) - began < _STATEMENT_SECONDS:
        if (places := _places(file)) != before:
            before, moved = places, now
        has_settled = now - moved >= _SETTLED_SECONDS or now - began >= EXIT_SECONDS
        if has_settled and not any(is_inside for *_, is_inside in places):
            break
        time.sleep(0.01)


def _stand_still() -> None:
    """Keep a thread for ever from its next statement, and from letting go of what it has from DuckDB.

    One that is still inside DuckDB when the interpreter goes, be it to drop a cursor, aborts the process.
    """
    thread = threading.current_thread()
    if thread in _MADE:
        threading.Event().wait()
    elif thread is not threading.main_thread():
        raise sys.modules["relaqs_engine.duck"].Interrupted("the process ends")


def _places(file: str) -> set[tuple[int, int, int, bool]]:
    """Return where each thread is: its number, frame and instruction, and whether it is inside a file.

    It is where a function of the file has not returned. One that drops a cursor may be in none, but moves on.
    """
    frames = sys._current_frames()
    places = set()
    for thread in list(_MADE):
        if (innermost := frames.get(thread.ident or 0)) is not None:
            frame: FrameType | None = innermost
            while frame is not None and frame.f_code.co_filename != file:
                frame = None if frame.f_code is _stand_still.__code__ else frame.f_back
            places.add((thread.ident or 0, id(innermost), innermost.f_lasti, frame is not None))
    return places


LONGEST_WAIT_SECONDS = 0.5


def wait_pieces(timeout_seconds: float | None = None) -> Iterator[float]:
    """Yield how long to wait next, in seconds, until the timeout is over. None waits for as long as it takes.

    Python notices a ctrl-C that comes just before a wait (on Windows any) only after that wait.

    >>> list(wait_pieces(0.0))
    []
    >>> next(wait_pieces(60.0))
    0.5
    """
    deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, LONGEST_WAIT_SECONDS)


def is_set_in_time(event: threading.Event, timeout_seconds: float | None = None) -> bool:
    """Wait for the event, and return whether it came in time."""
    return any(map(event.wait, wait_pieces(timeout_seconds))) or event.is_set()


@dataclass(slots=True)
class Stopwatch:
    """Counts the seconds since a job was submitted.

    Attributes:
        started_at: on the clock of `time.perf_counter`.
        earlier_seconds: what the job had run in another process, before it went on here from a checkpoint.
    """

    started_at: float = field(default_factory=time.perf_counter)
    earlier_seconds: float = 0.0

    def seconds(self, at: float | None = None) -> float:
        """Return the seconds since the job was submitted, with those of an earlier process.

        at: until when, on the clock of `time.perf_counter`. None: until now.
        """
        return self.earlier_seconds + (time.perf_counter() if at is None else at) - self.started_at


_LOOK: ContextVar[Callable[[], bool]] = ContextVar("look", default=lambda: False)


def is_core_wanted() -> bool:
    """Return whether a task waits behind the one that calls this. Where that is not known: False.

    >>> is_core_wanted()
    False
    >>> with core_wanted_by(lambda: True):
    ...     is_core_wanted()
    True
    """
    return _LOOK.get()()


@contextmanager
def core_wanted_by(look: Callable[[], bool]) -> Iterator[None]:
    """Let the tasks that this thread runs meanwhile know whether others wait. look: says it, at no cost."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)


Done = Callable[[TaskResult], None]


class Stoppable(Protocol):
    """What drives a job, as its executor sees it: it can be asked to end the job."""

    def end_by_plan(self) -> None:
        """Ask the job to end. It must return at once, not raise, and not call the executor."""
        ...


class Executor(Protocol):
    """Where tasks run: threads of this process, or a Dask cluster. Methods may be called from any thread.

    A call about a job that has not entered, or has left, changes nothing.
    """

    @property
    def capacity(self) -> int:
        """Cores that run tasks now. On a cluster it follows the workers that join and leave."""
        ...

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        """Take a job in, before its first task.

        Args:
            description: what the scheduler knows of the job beforehand.
            driver: what is asked to stop where the policy's plan stops the job (`Plan.stops`). It is asked
                from any thread. None: the plan cannot stop the job.

        Raises:
            ClusterError: jobs can no longer be taken.
        """
        ...

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        """Queue the tasks of one step of one job that has entered.

        Args:
            tasks: all of one job.
            done: called with each task's result, once for each key, from any thread. It must be quick and
                must not raise.

        Raises:
            ClusterError: tasks can no longer be taken.
        """
        ...

    def report(self, job_id: str, report: StepReport) -> None:
        """Tell the scheduler what a folded step of the job gave."""
        ...

    def set_weight(self, job_id: str, weight: float) -> None:
        """Change how much the job counts beside others."""
        ...

    def set_target(self, job_id: str, target: float | None) -> None:
        """Change the error or loss the job may stop at."""
        ...

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        """Say whether the job asks for cores. A paused job does not; what it has submitted still runs."""
        ...

    def cancel(self, job_id: str) -> None:
        """Drop the job's waiting tasks, interrupt its running statements, and forget the job.

        Its cores are free within one task. A dropped task has no result. A running one may still give one.
        """
        ...

    def status(self) -> ClusterStatus:
        """Return how every job stands, on a shared cluster also the jobs of other programs."""
        ...

    def close(self) -> None:
        """Cancel every job and free what this executor holds. What the user handed in stays open."""
        ...

    def describe(self) -> str:
        """Return where tasks run, for people."""
        ...


def run_measured(task: Task, owner: str) -> TaskResult:
    """Return the task's value or its error, with the core-seconds it took and the time it held its cores.

    The calling thread runs the task and is measured. A task of several cores computes on as many threads,
    which all do the same: the measured thread counts that many times. A task that waits, for storage for
    example, keeps others from its thread. So it is charged for the waiting too. A `Metered` value brings
    its own core-seconds.

    Args:
        owner: the name by which this process can interrupt the task.
    """
    began_seconds, started_seconds, started_busy = time.perf_counter(), time.thread_time(), busy_seconds()
    value: object = None
    raised: BaseException | None = None
    try:
        value = task.work.run(owner)
    except BaseException as error:  # whatever it is, it belongs to the job and must not end the thread
        raised = without_frames(error)
    core_seconds = max((time.thread_time() - started_seconds) * task.cores, busy_seconds() - started_busy)
    if isinstance(value, Metered):
        core_seconds = value.core_seconds
        value = value.value
    held_seconds = (time.perf_counter() - began_seconds) * task.cores
    return TaskResult(task.key, value, core_seconds, raised, held_seconds)


def without_frames(error: BaseException) -> BaseException:
    """Return an error that users are told, and let go of what the frames held that it came through.

    Error, result and frames refer to each other. So an answer that was refused kept the memory that it was
    refused for, until some collection of garbage. A fault of ours keeps its frames: they say where it is.
    """
    seen: BaseException | None = error
    if isinstance(error, RelaqsError):
        while seen is not None:
            seen.__traceback__ = None
            seen = seen.__cause__ or seen.__context__
    return error


def raised_anew(error: BaseException) -> BaseException:
    """Return what a reader raises of an error that is kept: of one that users are told, a copy.

    The frames that an error is raised through refer to the reader, and so to what keeps the error. A copy is
    gone with whoever caught it, and what the query had read with it.
    """
    if not isinstance(error, RelaqsError):
        return error
    found = copy(error)
    found.__cause__, found.__suppress_context__ = error.__cause__, error.__suppress_context__
    return found


def busy_seconds(thread: int | None = None) -> float:
    """Return how long a thread computed or waited, by a clock of its own. 0.0 where none exists.

    This excludes the time in which the thread could have run but the machine ran something else. So jobs are
    not charged for other load on the machine. Linux has that time, in nanoseconds, as the second number of
    the thread's schedstat.

    thread: of this process, by its native number. None: the calling one.
    """
    of_thread = "thread-self" if thread is None else f"self/task/{thread}"
    try:
        with open(f"/proc/{of_thread}/schedstat", encoding="ascii") as file:
            ready_nanoseconds = int(file.read().split()[1])
    except OSError:
        return 0.0
    return time.monotonic() - 1e-9 * ready_nanoseconds


def client_name() -> str:
    """Return how people see this process among the clients of a cluster, e.g. "user@host:4711"."""
    return f"{user_name()}@{socket.gethostname()}:{os.getpid()}"


def user_name() -> str:
    """Return the user of this process. In a container without names it is the user's number."""
    try:
        return getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


LEAST_BYTES_PER_SECOND = 1e6  # of a network that is not called broken, with all that others send over it

Haste = Literal["pull", "push"]
"""Which letters to a worker leave first: "pull" before "push". One at a time is on its way to it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What one worker says to another.

    Attributes:
        subject: what it is about.
        said: a value that can be pickled, of a few KB.
        arrays: travel from where they lie, and must not change meanwhile.
    """

    subject: str
    said: Any = None
    arrays: tuple[NDArray[Any], ...] = ()


class PeerLostError(Exception):
    """A worker does not answer. address: of the worker. why: for people."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why


class PeerForgotError(PeerLostError):
    """A worker answers, but does not have what it is asked for."""


class Peers(Protocol):
    """The other workers, as a service sees them, on the event loop of its worker."""

    @property
    def address(self) -> str:
        """This worker's own."""
        ...

    async def ask(self, address: str, letter: Letter, haste: Haste, limit_seconds: float) -> Letter:
        """Return a worker's answer. Raises PeerLostError where there is none in time."""
        ...


class PeerService(Protocol):
    """What a service class makes. It is called on the event loop of its worker."""

    def __init__(self, peers: Peers) -> None: ...

    async def answer(self, letter: Letter) -> tuple[Letter, Haste]:
        """Return the answer to a letter, and how soon it is to leave."""
        ...

    def sweep(self) -> None:
        """Let go what nobody uses any more. Called about once a second."""
        ...


@runtime_checkable
class HostsPeers(Protocol):
    """A cluster whose workers speak with each other."""

    def peers(self) -> tuple[str, ...]:
        """Return the addresses of its workers now, each with an agent."""
        ...
