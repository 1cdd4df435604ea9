"""What runs queries inside one process, the user's own or a Dask worker: databases, hoists, statements.

All of it belongs to the process and is shared by every job that runs here. A task carries what it needs
(`QueryWork`), so a worker that joins late, or replaces a dead one, prepares itself at its first task.
"""

from __future__ import annotations

import atexit
import math
import re
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from relaqs_engine.duck import (
    ROW_GROUP_PROTOCOL,
    CivilTime,
    Cursor,
    Database,
    DatabaseConfig,
    Interrupted,
    open_databases,
    quote_name,
    written_bytes,
)
from relaqs_engine.errors import (
    BrokenDatabaseError,
    DataError,
    MemoryLimitError,
    OverdueError,
    RelaqsError,
    naming,
)
from relaqs_engine.layouts.manifest import PlainRead, Read
from relaqs_engine.layouts.manifest_file import HOW_TO_MEND
from relaqs_engine.plans.plan import Hoist

from relaqs.executors.files import IntactFiles, ReadAhead, StoreFiles, UnseenFileError, check_unchanged
from relaqs.jobs.executor import background_thread, busy_seconds, give_way
from relaqs.jobs.runner import is_any_running
from relaqs.memory import GivesBack, is_of_server, resident_bytes, resident_bytes_of_duckdb

HOIST_SHARE = 0.5  # of a database's memory limit: the rest is for the statements that run
DATABASE_COUNT = 8  # databases kept open; beyond them the least recently used idle one is closed
MARK_COUNT = 4096  # interrupted owners remembered; what starts later than that many is long gone
REPEAT_SECONDS = 0.005  # between two interruptions of one statement
LOOK_SECONDS = 0.1  # between two looks whether a hoist is still worth waiting for

DEAF_SECONDS = 5.0  # after which a statement that DuckDB goes on with is given up, with its database

Interruptible = Callable[[], AbstractContextManager[None]]  # registers a statement with its owner

_WRITE_AGAIN = "write the file again, or leave it out"
_QUOTED_PATH = re.compile(r"""(["'])(/.+?)\1""")


class AbandonedError(Exception):
    """The database of a task was given up while it waited there. It runs in another."""


@dataclass(slots=True, eq=False)
class Running:
    """A statement that runs.

    Attributes:
        longest_seconds: that it may take. Time in which the machine ran something else does not count.
        taken_bytes: of memory, while it ran, shared with what ran beside it.
        stopped_by: the error that it is told instead of an answer; None: it was not stopped.
        stopped_at: in seconds, on `time.monotonic`.
        begun_seconds: when it began, by the clock of that thread.
    """

    cursor: Cursor
    longest_seconds: float = math.inf
    taken_bytes: float = 0.0
    stopped_by: RelaqsError | None = None
    stopped_at: float = 0.0
    thread: int = field(default_factory=threading.get_native_id)
    begun_seconds: float = field(default_factory=lambda: _seconds_of(threading.get_native_id()))

    def seconds(self) -> float:
        """Return for how long it has run."""
        return _seconds_of(self.thread) - self.begun_seconds


def _seconds_of(thread: int) -> float:
    return busy_seconds(thread) or time.monotonic()


class Statements:
    """Which cursor runs a statement for which owner, so that an interrupted one runs no more of them.

    An owner is whatever can be interrupted as one: a job in the user's process, one run of a task elsewhere.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[str, list[Running]] = {}  # by owner
        self._interrupted: OrderedDict[str, None] = OrderedDict()

    def check(self, owner: str) -> None:
        """Raise Interrupted if the owner was."""
        if owner in self._interrupted:
            raise Interrupted(f"{owner} was interrupted before this statement started")

    @contextmanager
    def running(self, owner: str, cursor: Cursor, longest_seconds: float = math.inf) -> Iterator[None]:
        """Register the statement run inside the block. Raises Interrupted if its owner already was.

        longest_seconds: that it may take; after that, who watches statements stops it.
        """
        running = Running(cursor, longest_seconds)
        with self._changed:
            self.check(owner)
            self._running.setdefault(owner, []).append(running)
        try:
            yield
        except Interrupted:
            if running.stopped_by is not None:
                raise running.stopped_by from None
            raise
        finally:
            with self._changed:
                self._running[owner].remove(running)
                if not self._running[owner]:
                    del self._running[owner]
                self._changed.notify_all()

    def interrupt(self, owners: Collection[str]) -> list[Cursor]:
        """Stop the owners' statements, refuse later ones, and return when none runs.

        DuckDB forgets an interruption that arrives just before a statement starts, and a statement that
        was registered may not have started yet: so it is repeated until the statement has ended. Some
        functions of DuckDB look for none. The cursors of those that still run after DEAF_SECONDS come back.
        """
        deadline = time.monotonic() + DEAF_SECONDS
        with self._changed:
            self._interrupted |= dict.fromkeys(owners)
            while len(self._interrupted) > MARK_COUNT:
                self._interrupted.popitem(last=False)
            while (running := self._of(owners)) and time.monotonic() < deadline:
                for cursor in running:
                    cursor.interrupt()
                self._changed.wait(REPEAT_SECONDS)
            return running

    def now(self) -> list[Running]:
        """Return the statements that run."""
        with self._changed:
            return [each for running in self._running.values() for each in running]

    def stop(self, statement: Running, error: RelaqsError) -> None:
        """Let one statement fail with an error. As an interruption, it is repeated."""
        with self._changed:
            if statement.stopped_by is None:
                statement.stopped_by, statement.stopped_at = error, time.monotonic()
            if any(statement in running for running in self._running.values()):
                statement.cursor.interrupt()

    def _of(self, owners: Collection[str]) -> list[Cursor]:
        return [each.cursor for owner in owners for each in self._running.get(owner, ())]

    def release(self, owner: str) -> None:
        """Forget that the owner was interrupted, once nothing of it can start here any more."""
        with self._changed:
            self._interrupted.pop(owner, None)


@dataclass(slots=True)
class _Prepared:
    """A hoist of this process. uses: tasks that hold it now. is_ready: its table exists."""

    building: threading.Lock = field(default_factory=threading.Lock)
    uses: int = 0
    is_ready: bool = False


class HoistStore:
    """The hoisted tables of one database: each built once, shared, and dropped when room is needed.

    Over the budget the least recently used tables go first, but never one that a running task holds.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._prepared: OrderedDict[str, _Prepared] = OrderedDict()  # least recently used first
        self._is_crowded = False
        self._is_abandoned = False

    def abandon(self) -> None:
        """Let nobody wait for a table any more: what is being built may never end."""
        self._is_abandoned = True

    @contextmanager
    def held(
        self,
        hoists: Sequence[Hoist],
        cursor: Cursor,
        interruptible: Interruptible,
        check: Callable[[Sequence[Read]], None] = lambda reads: None,
        still_wanted: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Have the hoists' tables there inside the block.

        Args:
            hoists: what is built.
            cursor: of the calling thread.
            interruptible: to build them in.
            check: called with what one reads before it is built.
            still_wanted: called while another thread builds one. It raises to wait no longer.
        """
        taken: list[str] = []
        try:
            for hoist in hoists:
                prepared = self._take(hoist.name)
                taken.append(hoist.name)
                with self._alone(prepared, still_wanted):
                    self._build(hoist, prepared, cursor, interruptible, check)
            self._make_room(cursor)
            yield
        finally:
            self._give_back(taken)
            self._make_room(cursor)

    def _take(self, name: str) -> _Prepared:
        with self._lock:
            prepared = self._prepared.setdefault(name, _Prepared())
            self._prepared.move_to_end(name)
            prepared.uses += 1
            return prepared

    def _build(
        self,
        hoist: Hoist,
        prepared: _Prepared,
        cursor: Cursor,
        interruptible: Interruptible,
        check: Callable[[Sequence[Read]], None],
    ) -> None:
        if prepared.is_ready:
            return
        check(hoist.reads)
        with unchanged(hoist.reads), interruptible():
            # OR REPLACE: an earlier task may have been interrupted between commit and is_ready.
            cursor.run(f"CREATE OR REPLACE TABLE {quote_name(hoist.name)} AS {hoist.sql}")
        prepared.is_ready = True
        with self._lock:
            self._is_crowded = True

    @contextmanager
    def _alone(self, prepared: _Prepared, still_wanted: Callable[[], None]) -> Iterator[None]:
        """Build in the block while nobody else does. Raises AbandonedError where that would never be."""
        while not prepared.building.acquire(timeout=LOOK_SECONDS):
            still_wanted()
            if self._is_abandoned:
                raise AbandonedError
        try:
            yield
        finally:
            prepared.building.release()

    def _give_back(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                prepared = self._prepared[name]
                prepared.uses -= 1
                if not prepared.uses and not prepared.is_ready:
                    del self._prepared[name]

    def _make_room(self, cursor: Cursor) -> None:
        if not self._is_crowded:  # measuring costs a millisecond, so only after something was built
            return
        with self._lock:
            idle = [name for name, each in self._prepared.items() if each.is_ready and not each.uses]
            while (is_crowded := held_bytes(cursor) > self._budget_bytes) and idle:
                name = idle.pop(0)
                cursor.run(f"DROP TABLE {quote_name(name)}")
                del self._prepared[name]
            self._is_crowded = is_crowded


@contextmanager
def unchanged(reads: Sequence[Read]) -> Iterator[None]:
    """Raise DataError after the block if a file that was not laid out changed in it, whatever else failed."""
    try:
        yield
    except DataError:
        check_unchanged(reads)
        raise
    check_unchanged(reads)


def held_bytes(cursor: Cursor) -> int:
    """Return what the tables of the cursor's database take, in memory and spilled."""
    [(size,)] = cursor.rows(
        "SELECT coalesce(sum(memory_usage_bytes + temporary_storage_bytes), 0)::BIGINT "
        "FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
    )
    return int(size)


class _ThreadCursor(threading.local):
    """The calling thread's cursor, None until it has one."""

    cursor: Cursor | None = None


class OpenDatabase:
    """A database of this process, one cursor of it for each thread, and its hoists."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._database = _with_threads_that_give_way(config) if is_of_server() else Database(config)
        self._files = config.files
        self._serving = threading.Lock()
        self._serves_row_groups = False
        self._of_thread = _ThreadCursor()
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self.hoists = HoistStore(int(config.memory_limit_bytes * HOIST_SHARE))
        self.uses = 0

    def cursor(self, civil_time: CivilTime | None = None) -> Cursor:
        """Return the calling thread's cursor; it closes when the thread or the database goes.

        civil_time: of the statements that it runs next. None: that of the process.
        """
        if self._of_thread.cursor is None:
            self._of_thread.cursor = self._database.cursor()
            self._cursors.add(self._of_thread.cursor)
        self._of_thread.cursor.keep_time(civil_time or self._database.civil_time)
        return self._of_thread.cursor

    def serve_row_groups(self) -> None:
        """Let statements read single row groups of the files, from now on."""
        with self._serving:
            if not self._serves_row_groups:
                from relaqs.executors.row_group_files import RowGroupFileSystem

                self._database.serve(RowGroupFileSystem(self._files))
                self._serves_row_groups = True

    def has(self, cursors: Iterable[Cursor]) -> bool:
        """Return whether one of the cursors is of this database."""
        return any(cursor in self._cursors for cursor in cursors)

    def close(self) -> None:
        self._database.close()


def _with_threads_that_give_way(config: DatabaseConfig) -> Database:
    """Open a database with threads of its own, for wholes, that give way to what small questions run on."""
    from concurrent.futures import ThreadPoolExecutor  # a first answer does not need it

    with ThreadPoolExecutor(1, initializer=give_way) as pool:
        return pool.submit(Database, config).result()


TICK_SECONDS = 0.03  # between two looks at what DuckDB has, while statements run
_TICK_OF_JOBS_SECONDS = 0.1  # while none runs: jobs fold what they have read, and hold it
QUIET_SECONDS = 0.5  # without a statement, after which freed memory is given back
ASLEEP_SECONDS = 3.0  # without a statement, after which nobody looks
_FREED_SHARE = 0.7  # of the account, beyond which freed memory is given back
_FULL_SHARE = 0.9  # of the account, that databases may have together
_SHARED_OUT_FROM = 0.5  # of that, from which on each has what the others leave
_LEAST_SHARE = 0.5  # of the account, that they have whatever the process has beside them
_NOTABLE_BYTES = 64 << 20  # what statements take between two looks, for example
_USUAL_BYTES = 32 << 20  # that the process has of partial results and answers
_BESIDE_BYTES = 128 << 20  # of programs and caches, beside the account of a server
_EARLIER_BYTES = 160 << 20  # that earlier statements may have left, within the account elsewhere
_FREED_TIME = 0.05  # of the time may be spent on giving memory back
_HURRY = 0.25  # where the process has far too much


class MemoryWatch:
    """Keeps what all databases of this process have of its memory within one account, while statements run.

    Each database has a limit, beyond which DuckDB spills. But several may be full at once, DuckDB keeps what
    it has freed, and some functions take memory that it does not count. So a thread looks at what DuckDB's
    allocator has. From about half of the account on, each database may have what the others leave, and spills
    beyond that. Later what was freed is given back. And beyond the whole the statement is stopped during
    which most was taken. There is a thread while statements run, or jobs that fold their results. It stops
    those statements too that take longer than they may.

    What the process takes outside of DuckDB meanwhile is counted too, since partial results and answers
    are there, down to half the account. What it had when they began, of a notebook's own tables for example,
    counts up to 160 MiB beyond what it had before the first one, since earlier statements may have left that.
    What others of this process have in databases in which they lay data out does not. A server's process has
    nobody's tables: all that it has there counts.

    Args:
        statements: those that run.
        account: gives how many bytes there are for all together.
        give_up: is told cursors that DuckDB goes on with after they were stopped.
    """

    def __init__(
        self,
        statements: Statements,
        account: Callable[[], int],
        give_up: Callable[[Collection[Cursor]], None],
    ) -> None:
        self._statements = statements
        self._account = account
        self._give_up = give_up
        self._gives_back = GivesBack()
        self._waking = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()  # the process does
        self._others_bytes = self._outside_bytes = 0  # that were there before
        self._first_bytes = sys.maxsize  # outside of DuckDB before the first statement
        self._last_bytes = 0
        self._clear_bytes = sys.maxsize  # outside of DuckDB when garbage was looked for last
        self._is_bounded = False
        self._times_over = 0  # in looks one after the other, with nothing left to give back

    def wake(self) -> None:
        """Look from now on, as long as statements run."""
        if self._thread is None and not self._ends.is_set():
            with self._waking:
                if self._thread is None:
                    self._thread = background_thread(self._watch, "relaqs-memory")
                    self._thread.start()

    def end(self) -> None:
        self._ends.set()

    def _watch(self) -> None:
        try:
            self._look_while_statements_run()
        finally:  # however it ended, the next statement is watched
            with self._waking:
                self._thread = None
        if self._statements.now():
            self.wake()

    def _look_while_statements_run(self) -> None:
        self._clear_up()
        self._others_bytes, self._outside_bytes = self._of_others(), self._clear_bytes
        self._first_bytes = min(self._first_bytes, self._clear_bytes)
        self._last_bytes, begun_bytes = 0, resident_bytes()
        last_at, is_clean = time.monotonic(), False
        tick_seconds = TICK_SECONDS
        while not self._ends.wait(tick_seconds) and time.monotonic() < last_at + ASLEEP_SECONDS:
            begun_bytes = min(begun_bytes, resident_bytes())  # what was freed since is none of it
            self._outside_bytes = min(self._outside_bytes, _outside_bytes())
            running = self._statements.now()
            tick_seconds = TICK_SECONDS if running else _TICK_OF_JOBS_SECONDS
            if running or is_any_running():
                last_at, is_clean = time.monotonic(), False
                self._stop_overdue(running)
                self.look(running)
            elif not is_clean and time.monotonic() > last_at + QUIET_SECONDS:
                self._bound_no_more()
                most_bytes = min(begun_bytes + _NOTABLE_BYTES, self._account())
                is_clean = resident_bytes() <= most_bytes or self._gives_back.now(_HURRY)
                self._clear_up()

    def _clear_up(self) -> None:
        """Look for garbage where the process has more outside of DuckDB than there was after the last time.

        What is free is nobody's, and must not count as what was there before. Plans refer to themselves, and
        one that is too large to be ever finished has 80 MB.
        """
        if (outside := _outside_bytes()) > self._clear_bytes + _USUAL_BYTES:
            self._gives_back.now(is_thorough=True)
            outside = self._clear_bytes = _outside_bytes()
        self._clear_bytes = min(self._clear_bytes, outside)  # a little more each time is much in the end

    def _stop_overdue(self, running: Collection[Running]) -> None:
        """Stop what has run for longer than it may, and again what went on."""
        for each in running:
            if each.stopped_by is not None:
                self._statements.stop(each, each.stopped_by)
                if time.monotonic() - each.stopped_at > DEAF_SECONDS:
                    self._give_up([each.cursor])
            elif each.longest_seconds < math.inf and (seconds := each.seconds()) > each.longest_seconds:
                self._statements.stop(each, OverdueError(seconds))

    def _of_others(self) -> int:
        """Return what of DuckDB's memory was there before and is not of databases of queries."""
        if _held_bytes() < _NOTABLE_BYTES:
            return 0
        self._gives_back.now(share=1.0)  # what statements have freed is nobody's
        return max(0, _held_bytes() - _counted_bytes())

    def look(self, running: Collection[Running]) -> None:
        """Look once, and do what is due."""
        if not (account := self._account()):
            return  # no database is open
        resident = resident_bytes()
        own, full = _held_bytes() - self._others_bytes, self._full_bytes(account)
        self._charge(running, own)
        is_far = own > full or resident > account + _NOTABLE_BYTES
        has_more = _outside_bytes() > self._outside_bytes + _NOTABLE_BYTES
        if gave := own > _FREED_SHARE * account or resident > account or has_more:
            gave = self._gives_back.now(_HURRY if is_far else _FREED_TIME)
            own = _held_bytes() - self._others_bytes
        if own > _SHARED_OUT_FROM * full:
            own -= written_bytes()  # of what lays tables out, which is not the queries'
        if own > _SHARED_OUT_FROM * full:
            self._share_out(full, own)
        else:
            self._bound_no_more()
        self._stop(running, own, account, gave)

    def _full_bytes(self, account: int) -> int:
        """Return what the databases may have now."""
        outside = _outside_bytes()
        beside = outside - self._outside_bytes - _USUAL_BYTES
        of_earlier = outside - _BESIDE_BYTES
        if not is_of_server():
            of_earlier = min(outside - self._first_bytes + _NOTABLE_BYTES, _EARLIER_BYTES)
        beside = max(beside, of_earlier)
        return int(max(_LEAST_SHARE * account, min(_FULL_SHARE * account, account - beside)))

    def _charge(self, running: Collection[Running], own_bytes: int) -> None:
        """Note during which statements memory was taken."""
        grown_bytes = max(0, own_bytes - self._last_bytes)
        self._last_bytes = own_bytes
        for each in running:
            each.taken_bytes += grown_bytes / len(running)

    def _share_out(self, full_bytes: int, own_bytes: int) -> None:
        """Let each database have what the others leave of it. What cannot be spilled grows no more."""
        self._is_bounded = True
        for database, size in {each: each.counted_bytes() for each in open_databases()}.items():
            if not database.bound(full_bytes - (own_bytes - size)):
                database.bound(size)

    def _bound_no_more(self) -> None:
        """Give the databases what they were opened with."""
        if self._is_bounded:
            self._is_bounded = False
            for database in open_databases():
                database.bound(database.config.memory_limit_bytes)

    def _stop(self, running: Collection[Running], own_bytes: int, account_bytes: int, gave: bool) -> None:
        """Stop a statement where there is too little room twice, one after the other.

        A look counts where what was free has been given back in it (`gave`, or now).
        """
        if own_bytes <= account_bytes + _USUAL_BYTES:
            self._times_over = 0
            return
        self._times_over += gave or self._gives_back.now(share=1.0)
        if self._times_over > 1 and running and all(each.stopped_by is None for each in running):
            error = MemoryLimitError(
                f"the query was stopped: queries have {own_bytes >> 20} MiB of memory together, and "
                f"memory_limit is {account_bytes >> 20} MiB; raise memory_limit, read fewer columns or rows, "
                "group by fewer values, or keep no lists or long texts of whole groups"
            )
            self._statements.stop(max(running, key=lambda each: each.taken_bytes), error)


def _held_bytes() -> int:
    """Return what DuckDB has of the machine's memory; where that is not known, what it counts."""
    resident = resident_bytes_of_duckdb()
    return _counted_bytes() if resident is None else resident


def _counted_bytes() -> int:
    return sum(database.counted_bytes() for database in open_databases())


def _outside_bytes() -> int:
    """Return what the process has outside of DuckDB; 0 where that is not known."""
    before, own, after = resident_bytes(), resident_bytes_of_duckdb(), resident_bytes()
    return 0 if own is None else max(before, after) - own  # it may free a lot between two of these


class Runtime:
    """The databases of one process, the statements that run on them, and which files were found intact."""

    def __init__(self) -> None:
        self.statements = Statements()
        self._stores = StoreFiles()
        self._files = IntactFiles(self._stores)
        self._ahead = ReadAhead(self._fetch)
        self._lock = threading.Lock()
        self._open: OrderedDict[DatabaseConfig, OpenDatabase] = OrderedDict()  # least recently used first
        self.memory = MemoryWatch(self.statements, self._account_bytes, self._give_up)

    def query(self, work: QueryWork, owner: str) -> pa.Table:
        """Return the SELECT's result, run on the calling thread, its hoists prepared first.

        The files that are read are checked before that, those of a hoist when it is prepared.
        """
        while True:
            try:
                return self._query(work, owner)
            except AbandonedError:
                continue
            except BrokenDatabaseError:
                self._abandon(lambda config, database: config == _in_any_time(work.config))
                raise

    def _query(self, work: QueryWork, owner: str) -> pa.Table:
        config, hoists, sql = work.config, work.hoists, work.sql
        all_reads = (*work.reads, *(read for hoist in hoists for read in hoist.reads))
        with self._using(config) as database, self._stores.in_use(all_reads):
            still_wanted = partial(self.statements.check, owner)
            check = partial(self._files.check, threads=config.threads, before_each=still_wanted)
            check(work.reads)
            self._ahead.add(work.ahead)
            if ROW_GROUP_PROTOCOL in sql:
                database.serve_row_groups()
            cursor = database.cursor(config.civil_time)
            interruptible = partial(self._watched, owner, cursor)
            held = database.hoists.held(hoists, cursor, interruptible, check, still_wanted)
            with held, unchanged(work.reads), interruptible(longest_seconds=work.longest_seconds):
                return cursor.table(sql)

    @contextmanager
    def _watched(self, owner: str, cursor: Cursor, longest_seconds: float = math.inf) -> Iterator[None]:
        """Register the statement run inside the block, and watch memory from then on.

        A watch that began before would end while files are still fetched and checked, which may take longer
        than it looks for statements.
        """
        with self.statements.running(owner, cursor, longest_seconds):
            self.memory.wake()
            yield

    def _fetch(self, read: Read) -> None:
        with self._stores.in_use((read,)):
            self._files.check((read,))

    def interrupt(self, *owners: str) -> bool:
        """Stop the owners' statements, refuse later ones, and return whether none runs any more.

        One that goes on for DEAF_SECONDS keeps what it has of its database: memory, and threads where that
        has more than one. So the database is given up with it. Who asks next opens another.
        """
        deaf = self.statements.interrupt(owners)
        if deaf:
            self._give_up(deaf)
        return not deaf

    def _give_up(self, deaf: Collection[Cursor]) -> None:
        self._abandon(lambda config, database: database.has(deaf))

    def _account_bytes(self) -> int:
        """Return what all databases may have together: of each owner, what the largest of theirs says."""
        of_owners = dict[str, int]()
        with self._lock:
            for config in self._open:
                account = config.account_bytes or config.memory_limit_bytes
                of_owners[config.owner] = max(account, of_owners.get(config.owner, 0))
        return sum(of_owners.values())

    def _abandon(self, is_meant: Callable[[DatabaseConfig, OpenDatabase], bool]) -> None:
        """Use some databases no more. Each goes with the last thread that is in it."""
        with self._lock:
            for config in [config for config, database in self._open.items() if is_meant(config, database)]:
                self._open.pop(config).hoists.abandon()

    def close_database(self, config: DatabaseConfig) -> None:
        """Free the database and its hoists, unless a task uses it now."""
        config = _in_any_time(config)
        with self._lock:
            database = self._open.get(config)
            if database is not None and not database.uses:
                self._open.pop(config).close()

    def close_databases_with(self, lent_names: Collection[str]) -> None:
        """Free the databases that read what has one of these names, unless a task uses them now."""
        with self._lock:
            idle = [config for config, database in self._open.items() if not database.uses]
            for config in idle:
                if not config.lent_names.isdisjoint(lent_names):
                    self._open.pop(config).close()

    @contextmanager
    def _using(self, config: DatabaseConfig) -> Iterator[OpenDatabase]:
        config = _in_any_time(config)
        with self._lock:
            if config not in self._open:
                self._open[config] = OpenDatabase(config)
            database = self._open[config]
            self._open.move_to_end(config)
            database.uses += 1
            self._close_surplus()
        try:
            yield database
        finally:
            with self._lock:
                database.uses -= 1

    def _close_surplus(self) -> None:
        idle = [config for config, database in self._open.items() if not database.uses]
        for config in idle[: max(0, len(self._open) - DATABASE_COUNT)]:
            self._open.pop(config).close()


def _in_any_time(config: DatabaseConfig) -> DatabaseConfig:
    """Return how the database is opened that also serves other time zones: each cursor has one of its own."""
    return replace(config, civil_time=None)


_RUNTIME = Runtime()
atexit.register(_RUNTIME.memory.end)


@dataclass(frozen=True, slots=True)
class QueryWork:
    """The work of a query's task: one SELECT over files and hoists, to an Arrow table.

    Attributes:
        config: of the database that it runs in.
        hoists: what is prepared before it runs.
        reads: the files, and what it can read of them. Their bytes are checked.
        ahead: what later tasks will read. It may be fetched from an object store meanwhile.
        longest_seconds: that the SELECT may take.
    """

    config: DatabaseConfig
    hoists: tuple[Hoist, ...]
    sql: str
    reads: tuple[Read, ...] = ()
    ahead: tuple[Read, ...] = ()
    longest_seconds: float = math.inf

    def run(self, owner: str) -> pa.Table:
        """Return the result.

        Raises UnseenFileError where a file is not there, DataError where one is damaged, OverdueError where
        it takes too long, Interrupted on request.
        """
        try:
            with naming("computing a part of the answer", self.sql):
                return _RUNTIME.query(self, owner)
        except UnseenFileError:
            raise
        except DataError as error:
            if ROW_GROUP_PROTOCOL in str(error):
                raise DataError(f"{_of_user(self.reads)} {error}; {_WRITE_AGAIN}") from error
            quoted = [path for _, path in _QUOTED_PATH.findall(str(error))]
            paths = [path for path in quoted if path.startswith(self.config.readable)]
            if unseen := [path for path in paths if not Path(path).exists()]:
                raise UnseenFileError(unseen[0]) from error
            if paths:
                raise DataError(f"{error}; {HOW_TO_MEND}") from error
            if not {path for path, *_ in self.config.files}.isdisjoint(quoted):
                raise DataError(f"{error}; {_WRITE_AGAIN}") from error
            raise


def _of_user(reads: Sequence[Read]) -> str:
    """Return the user's files behind names of row groups, in words."""
    paths = [path for read in reads if isinstance(read, PlainRead) for path, *_ in read.files]
    return f"a row group of {' or '.join(paths[:3])} cannot be read:"


interrupt, release = _RUNTIME.interrupt, _RUNTIME.statements.release
close_database, close_databases_with = _RUNTIME.close_database, _RUNTIME.close_databases_with
