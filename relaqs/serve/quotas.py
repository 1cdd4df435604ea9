"""How much one user may have at once, and whose turn it is.

Users take threads in turn: who makes many calls waits behind their own ones, and nobody else does.

user    calls that wait      the order in which one thread takes them
eve     e1 e2 e3 e4          e1 b1 e2 b2 e3 e4
bob     b1 b2

Who had far more of late than somebody with a statement under way waits a moment, and pauses while planning.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from relaqs_engine.errors import MemoryLimitError
from relaqs_engine.sql.dialect import pausing

from relaqs.jobs.executor import NEW_UNTIL, PRECEDENCE, run_in_background
from relaqs.queries.options import asked_by
from relaqs.serve.failures import TOO_MANY, RefusedError

_T = TypeVar("_T")

ANSWERS, STATEMENTS, VALUES = "answers", "prepared statements", "values of parameters"  # what is kept
LEAST_HELD_BYTES = 64 << 20
_KINDS = (ANSWERS, STATEMENTS, VALUES)
_LATER_SECONDS = 0.002
_BESIDE_BYTES = 1000  # that Python needs for whatever is kept


@dataclass(frozen=True, slots=True)
class Limits:
    """What one user may use.

    Attributes:
        weight: of each query beside those of others. 2.0 gets twice the cores of 1.0.
        running: how many queries may run at once.
        queued: how many more may wait for their turn.
        connections: how many connections there may be.
        answer_bytes: how large one answer may be.
        held_bytes: how much all connections may keep together: answers, prepared statements, values. None: as
            much as one answer, and at least LEAST_HELD_BYTES.
        cores: what the scheduler plans for all queries of the user together; None for no limit.
        memory_bytes: of databases of the user's own; None: the user shares those of all others.
        budget: what one statement may ask costly functions: calls, or money in text; None for no limit.
    """

    weight: float = 1.0
    running: int = 4
    queued: int = 32
    connections: int = 64
    answer_bytes: int = 1 << 30
    held_bytes: int | None = None
    cores: float | None = None
    memory_bytes: int | None = None
    budget: float | str | None = None


class Holding:
    """Memory of a user that something keeps. It belongs to that, and is given back when that is forgotten.

    given_back: takes what it was, from any thread.
    """

    __slots__ = ("_given_back", "_kind", "_size_bytes")

    def __init__(self, given_back: deque[tuple[str, int]], kind: str, size_bytes: int) -> None:
        self._given_back, self._kind, self._size_bytes = given_back, kind, size_bytes

    def __del__(self) -> None:
        self._given_back.append((self._kind, self._size_bytes))


class UserQuota:
    """What one user has in use, over all connections. It belongs to one event loop."""

    def __init__(self, name: str = "", limits: Limits | None = None) -> None:
        self._name = name
        self._limits = limits or Limits()
        self._slots = asyncio.Semaphore(self._limits.running)
        self._asked = 0
        self._connections = 0
        self._held: Counter[str] = Counter()  # in bytes, by what keeps them
        self._given_back: deque[tuple[str, int]] = deque()

    @property
    def weight(self) -> float:
        """The priority of each query."""
        return self._limits.weight

    def asking(self) -> AbstractContextManager[None]:
        """Return a context in which queries are submitted as the user's, within the user's quota."""
        limits = self._limits
        return asked_by(self._name, cores=limits.cores, memory=limits.memory_bytes, budget=limits.budget)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count a connection. Raises RefusedError if there are too many."""
        if self._connections >= self._limits.connections:
            raise RefusedError(
                TOO_MANY,
                f"the user {self._name} has {self._connections} connections, the most allowed; close one",
                is_fatal=True,
            )
        self._connections += 1
        try:
            yield
        finally:
            self._connections -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wait for a turn, and count a query. Raises RefusedError if too many wait already."""
        if self._asked >= self._limits.running + self._limits.queued:
            raise RefusedError(
                TOO_MANY,
                f"the user {self._name} has {self._limits.running} queries running and "
                f"{self._limits.queued} waiting, the most allowed; ask again when one has ended",
            )
        self._asked += 1
        try:
            async with self._slots:
                yield
        finally:
            self._asked -= 1

    def explained(self, error: MemoryLimitError) -> MemoryLimitError:
        """Return why a query needed too much memory, with the user's limit if that was in its way."""
        if (most := self._limits.memory_bytes) is None:
            return error
        return MemoryLimitError(
            f"the query needs more memory than the {most / 1e6:.3g} MB that the user {self._name} may have; "
            "group by fewer values, or ask for a larger limit"
        )

    def check_size(self, answer_bytes: int) -> None:
        """Raise MemoryLimitError if an answer is larger than the user may have."""
        most = self._limits.answer_bytes
        if answer_bytes > most:
            raise MemoryLimitError(
                f"the answer takes {answer_bytes / 1e6:.3g} MB, and the user {self._name} may have "
                f"{most / 1e6:g} MB; aggregate, or add a LIMIT"
            )

    def hold(self, kind: str, size_bytes: int) -> Holding:
        """Return what is to be kept together with something of this size, as long as that is.

        Args:
            kind: ANSWERS, STATEMENTS or VALUES.
            size_bytes: about how much memory it takes.

        Raises:
            MemoryLimitError: with that, the user's connections would keep more than they may.
        """
        while self._given_back:
            given, given_bytes = self._given_back.popleft()
            self._held[given] -= given_bytes
        size_bytes += _BESIDE_BYTES
        most = self._limits.held_bytes
        if most is None:
            most = max(self._limits.answer_bytes, LEAST_HELD_BYTES)
        if self._held.total() + size_bytes > most:
            kept = ", ".join(f"{self._held[each] / 1e6:,.1f} MB in {each}" for each in _KINDS)
            raise MemoryLimitError(
                f"the connections of the user {self._name} keep {kept}, this needs "
                f"{size_bytes / 1e6:,.1f} MB more, and together they may have {most / 1e6:,.1f} MB; close "
                "cursors and portals, read answers to their end, or DEALLOCATE prepared statements"
            )
        self._held[kind] += size_bytes
        return Holding(self._given_back, kind, size_bytes)


class FairPool:
    """Runs functions on threads. It belongs to one event loop.

    Args:
        threads: how many there are.
        each: how many of them one user may have at once.
        name: of the threads.
    """

    def __init__(self, threads: int, each: int, name: str) -> None:
        self._name = name
        self._threads = self._free = threads
        self._each = each
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], float]]] = {}  # users in their order
        self._later: asyncio.TimerHandle | None = None  # when somebody's turn comes who gives way

    @property
    def is_idle(self) -> bool:
        """Whether no call runs or waits."""
        return self._free == self._threads and not self._waiting

    async def run(
        self,
        user: str,
        function: Callable[..., _T],
        *arguments: Any,
        undo: Callable[[_T], object] | None = None,
    ) -> _T:
        """Return what a function returns, once it was its user's turn.

        A call that is cancelled while it waits is never made. One that runs keeps its thread until its end.

        Args:
            user: whose turn it must be.
            function: is called in a thread.
            arguments: of the function.
            undo: is called with what the function returns if the call was cancelled meanwhile.
        """
        await self._turn(user)
        loop, new_until = asyncio.get_running_loop(), NEW_UNTIL.get()
        answer: asyncio.Future[_T] = loop.create_future()

        def call() -> None:
            found, error, begun_seconds = None, None, time.thread_time()
            try:
                try:
                    with pausing(partial(PRECEDENCE.pause, user, self._without_thread, new_until)):
                        found = function(*arguments)
                finally:
                    PRECEDENCE.charge(user, time.thread_time() - begun_seconds)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(over, found, error)
            del error  # whose frames are this one

        def over(found: Any, error: BaseException | None) -> None:
            self._over(user)
            if isinstance(error, StopIteration):  # which no future takes
                error = RuntimeError(f"{function} raised {error!r}")
            answer.set_result(found) if error is None else answer.set_exception(error)

        try:
            run_in_background(call, self._name)
        except BaseException:  # there are as many threads as the system allows
            self._over(user)
            raise
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if undo is not None:
                answer.add_done_callback(lambda done: done.exception() or undo(done.result()))
            raise

    def _without_thread(self) -> list[str]:
        """Return the users who wait for a thread that is not there."""
        return [] if self._free else list(self._waiting)

    async def _turn(self, user: str) -> None:
        """Wait for a thread, which is the user's from then on."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append((turn, NEW_UNTIL.get()))
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_turns()
            else:  # it came in the same moment
                self._over(user)
            raise

    def _over(self, user: str) -> None:
        self._free += 1
        self._busy[user] -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        """Give free threads to users who wait and have fewer than they may, the next in the round first."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        while any(self._gives_turn(user) for user in list(self._waiting)):
            pass
        self._busy += Counter()  # forgets users who have nothing

    def _gives_turn(self, user: str) -> bool:
        """Give a free thread to a user who waits and may have one more; return whether there was one."""
        turns = self._waiting[user]
        while turns and turns[0][0].done():  # it came, or was cancelled
            turns.popleft()
        if not turns:
            del self._waiting[user]
        elif self._free and self._busy[user] < self._each:
            now = time.monotonic()
            firsts = {now < until: (turn, until) for turn, until in reversed(turns) if not turn.done()}
            for turn, until in sorted(firsts.values(), key=turns.index):  # that of new ones, and of others
                if not PRECEDENCE.gives_way(user, until):
                    self._free -= 1
                    self._busy[user] += 1
                    turn.set_result(None)
                    self._waiting[user] = self._waiting.pop(user)
                    return True
            later = asyncio.get_running_loop().call_later
            self._later = self._later or later(_LATER_SECONDS, self._give_turns)
        return False
