"""What a session has open: its tables, the layouts made of them meanwhile, and DuckDB databases.

**Tables.** A plain table is replaced by its layout once there is one, and any table by what its files are
now when the user asks for that. Queries that run go on over what they began with.

**Layouts behind the questions** are made of large plain tables that are asked about again. One thread lays
out one table after another, with one DuckDB thread, at the lowest priority that the system has. Nothing
waits for it. It can be stopped at any moment, and then leaves nothing behind. Of all processes that use one
cache, one lays out at a time. The next finds the layout that was made meanwhile.

**Databases** of one session: one for tasks, one for whole queries, one for merged states. A user with
memory of their own has three more. The one for merged states takes 20 ms to open, and is opened for the
first query that has a state.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import (
    CivilTime,
    Cursor,
    Database,
    DatabaseConfig,
    FileState,
    Interrupted,
    Lent,
    LentData,
    ReadingDatabase,
)
from relaqs_engine.errors import BrokenDatabaseError, LayoutError, RelaqsError, named
from relaqs_engine.layouts.cache import (
    CacheUse,
    LayingOut,
    Opening,
    has_changed,
    lay_out,
    opened_table,
    reopened_table,
)
from relaqs_engine.layouts.folder import settle
from relaqs_engine.layouts.manifest import LAYOUT_MARK, FirstPart, Layout, Table
from relaqs_engine.layouts.plain import NOTABLE_SECONDS, PlainTable
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.shared_files import lock

from relaqs.executors import Executor
from relaqs.executors import duck_process as worker
from relaqs.jobs.executor import background_thread, call_later, give_way, user_name
from relaqs.queries.options import AskingUser


class StateDatabase:
    """Gives cursors of one database. It takes 20 ms to open, so queries without a state do without."""

    def __init__(self, config: DatabaseConfig) -> None:
        self.memory_bytes = config.memory_limit_bytes
        self._config = config
        self._opening = threading.Lock()
        self._database: Database | None = None

    def cursor(self, civil_time: CivilTime | None = None) -> Cursor:
        """Return a new cursor, for the state of one query. civil_time: of the query."""
        with self._opening:
            self._database = self._database or Database(self._config)
            try:
                cursor = self._database.cursor(civil_time)
                cursor.rows("SELECT 1")
            except BrokenDatabaseError:  # DuckDB met a fault in the state of another query
                self._database = Database(self._config)
                cursor = self._database.cursor(civil_time)
            return cursor

    def close(self) -> None:
        """Close what is open. The second call does nothing."""
        with self._opening:
            if self._database is not None:
                self._database.close()


def closed_config(memory_limit_bytes: int, result_limit_bytes: int | None) -> DatabaseConfig:
    """Return the configuration of a database that may read nothing yet."""
    spill = Path(gettempdir()) / f"relaqs-spill-{user_name()}"  # DuckDB keeps processes in it apart
    return DatabaseConfig((), memory_limit_bytes, str(spill), result_limit_bytes=result_limit_bytes)


_STATE_SHARE = 0.25  # of the memory limit is for merged states; tasks have the rest
_WHOLE_SHARE = 0.78  # whole queries have this: their answers are in memory that DuckDB does not count


@dataclass(frozen=True, slots=True)
class QueryDatabases:
    """What one query runs on.

    Attributes:
        tasks: the database that reads partitions.
        whole: the database of queries that run as a whole.
        states: the database of merged states.
    """

    tasks: DatabaseConfig
    whole: DatabaseConfig
    states: StateDatabase

    def state_cursor(self) -> Cursor:
        """Return a new cursor, for the state of the query."""
        return self.states.cursor(self.tasks.civil_time)


class Databases:
    """What the queries of a session run on.

    Args:
        memory_limit_bytes: of all together.
        exact_threads: of a query that runs as a whole.
        result_limit_bytes: of one answer; None for no limit.
        owner: the user whom they belong to, "" for all others.

    Attributes:
        state_bytes: what merged states may take.
    """

    def __init__(
        self, memory_limit_bytes: int, exact_threads: int, result_limit_bytes: int | None, owner: str = ""
    ) -> None:
        self.state_bytes = int(memory_limit_bytes * _STATE_SHARE)
        self.tasks = replace(
            closed_config(memory_limit_bytes - self.state_bytes, result_limit_bytes),
            owner=owner,
            account_bytes=memory_limit_bytes,
        )
        self.whole = replace(
            self.tasks,
            memory_limit_bytes=int(memory_limit_bytes * _WHOLE_SHARE),
            threads=exact_threads,
            aggregates_below_joins=True,
        )
        self.states = StateDatabase(closed_config(self.state_bytes, result_limit_bytes))
        self._opened: set[DatabaseConfig] = set()
        self._taken_back: set[str] = set()  # names of data in memory
        self._catalog: Catalog | None = None
        self._changing = threading.Lock()
        self._of_users: dict[tuple[str, int], Databases] = {}

    def of(self, asker: AskingUser, civil_time: CivilTime | None) -> QueryDatabases:
        """Return what a query of the asker runs on: databases of their own if they have memory of their own.

        civil_time: by which the query reads and shows moments.
        """
        self._close_lent()  # those that queries still read when a table of theirs was removed
        own = self._of(asker)
        configs = own.tasks, own._whole_within(asker.cores_most)
        tasks, whole = (replace(config, civil_time=civil_time) for config in configs)
        return QueryDatabases(tasks, whole, own.states)

    def _whole_within(self, cores_most: float) -> DatabaseConfig:
        """Return the database of queries that run as a whole on no more cores. One core needs no other."""
        if cores_most >= self.whole.threads:
            return self.whole
        if cores_most < 2:
            return self.tasks
        whole = replace(self.whole, threads=int(cores_most))
        self._opened.add(whole)
        return whole

    def _of(self, asker: AskingUser) -> Databases:
        if asker.memory_bytes is None:
            return self
        with self._changing:
            key = asker.name, asker.memory_bytes
            if key not in self._of_users:
                own = Databases(
                    asker.memory_bytes, self.whole.threads, self.tasks.result_limit_bytes, asker.name
                )
                if self._catalog is not None:
                    own.read(self._catalog)
                self._of_users[key] = own
            return self._of_users[key]

    def read(self, catalog: Catalog, taken_back: Collection[Lent] = ()) -> None:
        """Let them read these tables too. What they could read before stays, but for what is taken back."""
        with self._changing:
            self._catalog = catalog
            of_users = list(self._of_users.values())
        for each in of_users:
            each.read(catalog, taken_back)
        if taken_back:
            self.tasks, self.whole = (
                replace(config, lent=tuple(each for each in config.lent if each not in taken_back))
                for config in (self.tasks, self.whole)
            )
        self.tasks, self.whole = catalog.readable_by(self.tasks), catalog.readable_by(self.whole)
        if taken_back:
            self._taken_back |= {each.name for each in taken_back if isinstance(each, LentData)}
            self._opened = {each for each in self._opened if self._taken_back.isdisjoint(each.lent_names)}
            self._close_lent()
        self._opened |= {self.tasks, self.whole}

    def _close_lent(self) -> None:
        """Close databases that have what was taken back, unless a task uses them now."""
        if self._taken_back:
            worker.close_databases_with(self._taken_back)

    def close(self, *, has_states_in_use: bool) -> None:
        """Close what is open of them in this process.

        A database that folds still read cannot be closed. It stays open until the process ends.
        """
        for each in self._of_users.values():
            each.close(has_states_in_use=has_states_in_use)
        for config in self._opened:
            worker.close_database(config)
        self._close_lent()
        if not has_states_in_use:
            self.states.close()


def announce(message: str) -> None:
    """Print a sentence about something that takes time."""
    print(f"relaqs: {message}", file=sys.stderr)


SAY_SECONDS = 5.0  # between two sentences about the progress of a layout
_FOLLOWED_SECONDS = 60.0  # after a look at the files, which takes up what else would be told of them


class OpenTables:
    """The tables of a session.

    Args:
        catalog: the tables as they were opened.
        use: what they are read from in the cache.
        cores: how many read a plain table whole. None: none is laid out behind the questions.
        changed: the session's method that is called with a new catalog, and what is lent no more. The
            session is not kept by it.
        civil_time: by which texts are read as moments. None: that of the process.
        look_seconds: between two looks at whether sources have changed. None: they are not looked at.

    Attributes:
        catalog: the tables as they are now.
    """

    def __init__(
        self,
        catalog: Catalog,
        use: CacheUse,
        cores: int | None,
        changed: Callable[[Catalog, Collection[Lent]], None],
        civil_time: CivilTime | None = None,
        look_seconds: float | None = None,
    ) -> None:
        self.catalog = catalog
        self._use = use
        self._civil_time = civil_time
        self._changed = weakref.WeakMethod(changed)  # the thread below must not keep a forgotten session
        self._changing = threading.Lock()
        self._is_closed = False
        self._said_at = float("-inf")
        self._behind = (
            None if cores is None else BackgroundLayouts(cores, announce, self._replace, use, civil_time)
        )
        self._looked_at = float("-inf") if look_seconds is None else time.monotonic()
        self._unread: dict[str, str] = {}  # why tables could not be read anew that have changed
        self._next_look: threading.Timer | None = None
        if look_seconds is not None:
            self._next_look = call_later(look_seconds, self._look, look_seconds)

    def _look(self, seconds: float) -> None:
        try:
            self.refresh_changed()
        finally:
            with self._changing:
                if not self._is_closed:
                    self._next_look = call_later(seconds, self._look, seconds)

    @property
    def progress(self) -> LayoutProgress | None:
        """Return how far the layout is that is made behind the questions, None where there is none."""
        return None if self._behind is None else self._behind.progress

    def asked(self, plain_tables: Iterable[str]) -> None:
        """Count a question about these plain tables, and say what there is to know about all tables."""
        now_seconds = time.monotonic()
        if self._use.read and now_seconds - self._looked_at > _FOLLOWED_SECONDS:
            for news in self._use.news(now_seconds):
                announce(news)
        self._say_progress(now_seconds)
        if self._behind is not None:
            tables = map(self.catalog.table, plain_tables)
            self._behind.asked(table for table in tables if isinstance(table, PlainTable))

    def _say_progress(self, now_seconds: float) -> None:
        progress = self.progress
        if (
            progress is not None
            and now_seconds - max(self._said_at, now_seconds - progress.elapsed_seconds) >= SAY_SECONDS
        ):
            self._said_at = now_seconds
            announce(str(progress))

    def lay_out(self, name: str) -> Layout:
        """Return a table's layout, which a plain table gets now."""
        table = self.catalog.table(name)
        if isinstance(table, Layout):
            return table
        assert isinstance(table, PlainTable)
        from relaqs.executors.spreading import on_threads

        with on_threads() as spread:
            how = LayingOut(announce, spread=spread, civil_time=self._civil_time)
            layout = lay_out(table, how, self._use)
        self._replace(table, layout)
        return layout

    def refresh(self, name: str) -> Table:
        """Return a table as its files are now. All of its layouts are read anew."""
        self._open_left_out(name)
        old = self.catalog.all_of(name)
        settle(folder for layout in old for folder in layout.folders)
        opening = Opening(self._use, announce, reading=ReadingDatabase(self._civil_time))
        with closing(opening.reading):
            self._replace_all([(layout, reopened_table(layout, opening)) for layout in old])
        return self.catalog.table(name)

    def refresh_changed(self) -> tuple[str, ...]:
        """Read tables anew whose sources have changed, and return their names.

        What cannot be read, such as a file that is still being written, stays as it was until the next call,
        and is announced.
        """
        self._looked_at = time.monotonic()
        names = dict.fromkeys(each.table.partition(LAYOUT_MARK)[0] for each in self.catalog.layouts)
        opening = Opening(self._use, reading=ReadingDatabase(self._civil_time))
        with closing(opening.reading):
            return tuple(name for name in names if not self._is_closed and self._is_refreshed(name, opening))

    def _is_refreshed(self, name: str, opening: Opening) -> bool:
        try:
            if is_other := any(has_changed(each, opening) for each in self.catalog.all_of(name)):
                self.refresh(name)
            self._unread.pop(name, None)
        except (RelaqsError, OSError) as error:
            if self._unread.get(name) != str(error):
                self._unread[name] = str(error)
                announce(f"{name} cannot be read anew, so answers stay about the rows of before: {error}")
            return False
        return is_other

    def append(self, name: str, source: TableSource, batch: str) -> Layout:
        """Return a table's layout after rows were added to it. batch: a name for them, or ""."""
        from relaqs.executors.spreading import append_to

        append_to(self.catalog.table(name), source, batch)
        self.refresh(name)
        return self.catalog.layout(name)

    def add(self, name: str, source: TableSource, views: Collection[str], *, replaces: bool) -> Table:
        """Return a further table, of what is read where it is.

        Args:
            name: the table's.
            source: what it is read from.
            views: names that are taken as well.
            replaces: whether a table of this name gives way to it, once it is open.

        Raises:
            LayoutError: the name is taken, or is none of a table.
        """
        self._check_free(name, views, replaces=replaces)
        opening = Opening(self._use, announce, reading=ReadingDatabase(self._civil_time))
        before = self._use.source_of(name)
        try:
            with closing(opening.reading):
                opened = opened_table(name, source, opening)
            with self._changing:
                self._check_free(name, views, replaces=replaces)
                others = self._without(name)
                self._read(replace(self.catalog, layouts=(*others, opened)), is_taken_back=True)
        except BaseException:
            self._use.names(name, before)
            raise
        return self.catalog.table(name)

    def _check_free(self, name: str, views: Collection[str], *, replaces: bool) -> None:
        if LAYOUT_MARK in name:
            raise LayoutError(
                f"{name!r} cannot name a table: what is behind {LAYOUT_MARK} names one of its layouts; "
                f"choose a name without {LAYOUT_MARK}"
            )
        if known := {each.lower(): each for each in views}.get(name.lower()):
            raise LayoutError(f"there is a view {known} already; take another name")
        tables = {_name_of(each): each.table for each in reversed(self.catalog.layouts)}
        if (known := tables.get(name.lower())) and not replaces:
            raise LayoutError(f"there is a table {known} already; take another name, or remove it before")

    def remove(self, name: str) -> None:
        """Forget a table with all its layouts."""
        with self._changing:
            found = self.catalog.table(name)
            left = self._without(found.table.partition(LAYOUT_MARK)[0])
            for each in self.catalog.layouts:
                if each not in left:
                    self._use.names(each.table, None)
            self._read(replace(self.catalog, layouts=left), is_taken_back=True)

    def _without(self, table: str) -> tuple[Table, ...]:
        return tuple(each for each in self.catalog.layouts if _name_of(each) != table.lower())

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no table is being laid out any more; return whether that is so."""
        return self._behind is None or self._behind.wait(timeout_seconds)

    def close(self) -> None:
        """Replace no table any more. What is being laid out behind the questions ends now."""
        if self._behind is not None:
            self._behind.stop()
        with self._changing:
            self._is_closed = True
            if self._next_look is not None:
                self._next_look.cancel()

    def release(self) -> None:
        """Let the cache remove what these tables are read from."""
        self._use.release()

    def _replace(self, old: Table, new: Table) -> None:
        self._replace_all([(old, new)])

    def _replace_all(self, changes: Sequence[tuple[Table, Table]]) -> None:
        """Read others in the place of some layouts. Where another took that place meanwhile, it stays."""
        with self._changing:
            layouts, place = self.catalog.layouts, {_opening_of(old): new for old, new in changes}
            if any(_opening_of(each) in place for each in layouts):
                now = tuple(place.get(_opening_of(each), each) for each in layouts)
                self._read(Catalog(now, left_out=self.catalog.left_out))

    def _read(self, catalog: Catalog, *, is_taken_back: bool = False) -> None:
        """Let the session read these tables from now on. Only for whoever holds the lock.

        is_taken_back: whether data in memory are freed that these tables do not have.
        """
        if self._is_closed:
            return
        before = self.catalog.lent if is_taken_back else ()
        with closing(ReadingDatabase(self._civil_time)) as reading:
            self.catalog = catalog.measured(reading)
        if (changed := self._changed()) is not None:
            changed(self.catalog, [each for each in before if each not in self.catalog.lent])

    def _open_left_out(self, name: str) -> None:
        """Open a table that could not be opened before. Nothing happens where it is not such a table."""
        known = {each.lower(): each for each, _ in self.catalog.left_out}
        table = known.get(name.lower(), "")
        if (source := self._use.source_of(table)) is None:
            return
        opening = Opening(self._use, announce, reading=ReadingDatabase(self._civil_time))
        with closing(opening.reading):
            opened = opened_table(table, source, opening)
        with self._changing:
            others = tuple(each for each in self.catalog.left_out if each[0] != table)
            self._read(Catalog((*self.catalog.layouts, opened), left_out=others))


def _name_of(layout: Table) -> str:
    """Return the name of the table that it is a layout of, as names are compared."""
    return layout.table.partition(LAYOUT_MARK)[0].lower()


def _opening_of(table: Table) -> int:
    """Return what is the same of a table for as long as it is not opened anew, though more is known of it."""
    return id(table.cached) if isinstance(table, PlainTable) and table.cached else id(table)


def let_go(executor: Executor, tables: OpenTables) -> None:
    """Free what a session held that was forgotten without being closed."""
    tables.close()
    executor.close()


QUESTIONS = 2  # about a table, before it is laid out
MEMORY_LIMIT_BYTES = 1 << 30
DEAF_SECONDS = 5.0  # that the end of a session waits for what DuckDB does not interrupt
_NICENESS = 19  # of what lays out
_LEAST_SHARE = 0.01  # from which on the end can be told
_TURN_SECONDS = 0.5  # between two looks at whether another process still lays out
_REPEAT_SECONDS = 0.01  # between two interruptions of one statement


@dataclass(frozen=True, slots=True)
class LayoutProgress:
    """How far the layout is that a session makes behind its questions.

    Attributes:
        table: the table's name.
        share: how much of the work is done, from 0 to 1.
        doing: what is being done now.
        elapsed_seconds: how long it has been under way.
        waiting: the tables that come next.
    """

    table: str
    share: float
    doing: str
    elapsed_seconds: float
    waiting: tuple[str, ...] = ()

    @property
    def remaining_seconds(self) -> float | None:
        """Return about how long it will take from now on, None at the very beginning.

        Queries that run meanwhile make it slower.

        >>> LayoutProgress("trips", 0.25, "sorting rows", elapsed_seconds=10.0).remaining_seconds
        30.0
        """
        if self.share < _LEAST_SHARE:
            return None
        return self.elapsed_seconds * (1.0 - self.share) / self.share

    def __str__(self) -> str:
        remaining = self.remaining_seconds
        end = "" if remaining is None else f", about {max(1, round(remaining))} s more"
        return f"laying out {self.table} behind the questions: {self.share:.0%}{end}"


@dataclass(slots=True)
class _UnderWay:
    """The layout that is being made."""

    table: PlainTable
    begun_at: float
    share: float = 0.0
    doing: str = "waiting for its turn"


class BackgroundLayouts:
    """Counts the questions about plain tables, and lays out those that are large and asked about again.

    Args:
        cores: how many cores read a table whole. A table that they read in no time is left as it is.
        announce: called with a sentence when a layout is begun, when it is there, and when it is given up.
        adopt: called with a table and what takes its place, on the thread that lays it out: the plain table
            with the first part of its layout, then the layout. If that fails, the plain table without.
        use: what the session uses of the cache.
    """

    def __init__(
        self,
        cores: int,
        announce: Callable[[str], None],
        adopt: Callable[[Table, Table], None],
        use: CacheUse,
        civil_time: CivilTime | None = None,
    ) -> None:
        self._cores = cores
        self._civil_time = civil_time
        self._announce = announce
        self._adopt = adopt
        self._use = use
        self._changed = threading.Condition()
        self._questions: Counter[tuple[str, tuple[FileState, ...]]] = Counter()  # by table, and its state
        self._due: deque[PlainTable] = deque()
        self._under_way: _UnderWay | None = None
        self._thread: threading.Thread | None = None
        self._cursor: Cursor | None = None
        self._is_stopped = False
        _OPEN.add(self)

    def asked(self, tables: Iterable[PlainTable]) -> None:
        """Count a question about these tables."""
        with self._changed:
            for table in tables:
                about = (table.table, table.states)
                self._questions[about] += 1
                if self._questions[about] == QUESTIONS and self._is_large(table):
                    self._due.append(table)
            if self._due and self._thread is None and not self._is_stopped:
                self._thread = background_thread(self._work, "relaqs-layouts")
                self._thread.start()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no table is being laid out any more; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_seconds)

    @property
    def progress(self) -> LayoutProgress | None:
        """Return how far the layout is that is being made, None where there is none."""
        with self._changed:
            if (now := self._under_way) is None:
                return None
            elapsed_seconds = time.monotonic() - now.begun_at
            waiting = tuple(table.table for table in self._due)
            return LayoutProgress(now.table.table, now.share, now.doing, elapsed_seconds, waiting)

    def stop(self) -> None:
        """Lay out no more. What is being laid out ends now, and leaves nothing.

        What DuckDB goes on with for too long is not waited for. It leaves nothing either, once it ends.
        """
        deadline = time.monotonic() + DEAF_SECONDS
        with self._changed:
            self._is_stopped = True
            while self._thread not in (None, threading.current_thread()) and time.monotonic() < deadline:
                if self._cursor is not None:
                    self._cursor.interrupt()  # DuckDB forgets one that comes just before a statement begins
                self._changed.wait(_REPEAT_SECONDS)

    def _is_large(self, table: PlainTable) -> bool:
        is_slow = table.scan_core_seconds / self._cores > NOTABLE_SECONDS
        return is_slow and table.answers_alike_laid_out and not table.is_remote

    def _work(self) -> None:
        give_way(niceness=_NICENESS)
        try:
            while (table := self._next()) is not None:
                with suppress(Interrupted), self._turn():
                    self._lay_out(table)
        finally:  # nobody waits for a thread that has ended, however it did
            with self._changed:
                if self._thread is threading.current_thread():
                    self._under_way = self._thread = None
                    self._changed.notify_all()

    def _next(self) -> PlainTable | None:
        with self._changed:
            if self._due and not self._is_stopped:
                table = self._due.popleft()
                self._under_way = _UnderWay(table, time.monotonic())
                return table
            self._under_way = self._thread = None  # in the same step, so that who asks now starts another
            self._changed.notify_all()
            return None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other process lays out behind the questions. Raises Interrupted at the end."""
        folder, held = self._use.cache.directory, ExitStack()
        with suppress(OSError):  # a cache that cannot be written says so when the layout is begun
            folder.mkdir(parents=True, exist_ok=True)
            while True:
                self._check_wanted()
                try:
                    held.callback(lock(folder, wait=False).release)
                    break
                except BlockingIOError:
                    with self._changed:
                        self._changed.wait(_TURN_SECONDS)
        with held:
            yield

    def _lay_out(self, table: PlainTable) -> None:
        shown = table  # in the session

        def show(part: FirstPart) -> None:
            nonlocal shown
            begun = replace(table, first_part=replace(part, table=table.table))
            self._adopt(shown, begun)
            shown = begun
            self._announce(f"a first part of {table.table} is laid out: it has estimates before the end now")

        how = LayingOut(
            announce=self._say_that_queries_go_on,
            waits=False,
            threads=1,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            begun=self._begun,
            ended=self._ended,
            progress=self._note,
            first_there=show,
            civil_time=self._civil_time,
        )
        try:
            layout = lay_out(table, how, self._use)
        except Interrupted:
            self._say_what_is_lost()
            return
        except Exception as error:  # whatever it is, the next table has its turn, and queries go on
            self._adopt(shown, table)
            said = named(error, f"laying out {table.table} behind the questions")
            self._announce(f"{table.table} was not laid out: {said}")
            return
        if self._is_stopped:
            return
        self._adopt(shown, layout)
        self._announce(f"{table.table} is laid out")

    def _say_that_queries_go_on(self, message: str) -> None:
        self._announce(f"{message}, while queries go on")

    def _say_what_is_lost(self) -> None:
        if (now := self.progress) is not None:
            self._announce(
                f"{now.table} was {now.share:.0%} laid out when the session ended, and is left as it was; "
                f'db.lay_out("{now.table}") waits until a layout is there'
            )

    def _note(self, share: float, doing: str) -> None:
        self._check_wanted()
        with self._changed:
            if self._under_way is not None:
                self._under_way.share, self._under_way.doing = share, doing

    def _begun(self, cursor: Cursor) -> None:
        with self._changed:
            self._cursor = cursor
        self._check_wanted()

    def _ended(self) -> None:
        with self._changed:
            self._cursor = None

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise Interrupted("the session is closed")


_OPEN: weakref.WeakSet[BackgroundLayouts] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop the threads before the interpreter goes: a daemon thread inside DuckDB would abort the process."""
    for layouts in list(_OPEN):
        layouts.stop()
