"""The one module that calls DuckDB: a closed in-memory database, its cursors, and the translation of errors.

A closed database of one thread runs queries only on the thread that calls it. Several threads use one cursor
each, so DuckDB never takes a core that the scheduler has not given. It reads files below the folders it was
opened for, the single files that were named to it, and nothing else.

A recursive WITH prefetches nothing. DuckDB hands a prefetch to an asynchronous thread, and where there
is none its recursion waits for one without end, deaf to interruptions. Without prefetching a warm file is
read no slower, but a cold one takes up to twice as long.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import duckdb
import pyarrow as pa

from relaqs_engine.duck_words import about_file, about_rows, about_syntax, about_types, position_at
from relaqs_engine.errors import (
    BrokenDatabaseError,
    DataError,
    ExpressionError,
    MemoryLimitError,
    RelaqsError,
    SqlError,
    Underlined,
    shorten,
)
from relaqs_engine.stores.mirror import copy_at

# Of few rows. Who has DuckDB make such copies elsewhere is warned as before.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", module=re.escape(__name__))
DUCKDB_VERSION: str = duckdb.__version__
tokenize = duckdb.tokenize  # gives where each token begins, in bytes, and its kind
DEFAULT_MEMORY_LIMIT_BYTES = 4 << 30  # for laying data out
RELATIONS_KEPT = 16  # of each cursor of a closed database, those that were used last
BATCH_ROWS = 2048  # read at once of a result that is counted meanwhile: one of DuckDB's vectors

ROW_GROUP_PROTOCOL = "rowgroup"
"""What the names of single row groups begin with, see `layouts/footers.py`."""

_CHANGED_BY_ARROW = re.compile(r"(?<![\w\"'])(BIT|BIGNUM|UHUGEINT|VARIANT|TIME WITH TIME ZONE)(?![\w\"'])")

FileState = tuple[str, int, int]
"""A file's path, its size in bytes, and the time of its last change in nanoseconds.

Of a file that is not there the size is -1.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LentData:
    """Data in the memory of this process, and the name by which statements read it. It equals only itself.

    data: an Arrow table, an Arrow dataset or a pandas DataFrame.
    """

    name: str
    data: Any


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A DuckDB file, and the name by which statements read its tables."""

    name: str
    path: str


Lent: TypeAlias = LentData | AttachedFile


@dataclass(frozen=True, slots=True)
class CivilTime:
    """How moments are read and shown as days and hours. DuckDB takes it from the environment of its process.

    Attributes:
        zone: DuckDB's TimeZone.
        calendar: DuckDB's Calendar.
    """

    zone: str
    calendar: str = "gregorian"


UTC = CivilTime("UTC")


@dataclass(frozen=True, slots=True)
class LocalMoment:
    """A value of TIMESTAMP WITH TIME ZONE whose text has no zone: it is in that of the session."""

    text: str


_SMALLEST_BYTES = 64 << 20  # that a database may be given
_LEFT_OPEN = ("TimeZone", "Calendar", "disable_parquet_prefetching", "memory_limit")  # of locked settings

_BELOW_JOINS = "partial_aggregate_pushdown"  # DuckDB's name of the optimizer that aggregates before it joins

_TYPED_TEXT = "SELECT typeof(value), CAST(value AS VARCHAR) FROM (SELECT ? AS value)"
_LOCAL_TEXT = "SELECT CAST(timezone('UTC', CAST(? AS TIMESTAMPTZ)) AS VARCHAR) || '+00'"
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"

_CANDIDATES = re.compile(r"(?:Candidate bindings?|Did you mean):?\s*(.*)", re.DOTALL)
_GLOBS = re.compile(r"[*?\[]")
_GUARDED = re.compile(r"Could not convert string '([^']*, (?:over )?the most allowed here)' to INT32")
_OF_A_FILE = re.compile(r"Invalid Input Error: (CSV Error|[\w ]*\bfile ['\"])", re.IGNORECASE)
_QUOTED = re.compile(r'"([^"]+)"')
_DESCRIBE = "DESCRIBE "
_OF_A_ROW = ("Conversion Error", "Out of Range Error", "Invalid Input Error")
_OVER_TEXT = "QUERY_RELATION"  # DuckDB's name for a relation that has nothing but a SELECT
_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)(\^+)", re.MULTILINE)


class Interrupted(RelaqsError):  # noqa: N818 - it is no error to the one who asked for it
    """A statement was stopped by `interrupt()`, on request."""


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """How a closed database is opened. Equal configurations may share one database.

    Attributes:
        readable: the folders whose files may be read.
        files: single files that may be read as well. What DuckDB keeps of a file is good for one state of it,
            so another state needs another database.
        memory_limit_bytes: DuckDB's own limit. Beyond it, DuckDB spills to `temp_directory`.
        account_bytes: what all databases of a process may have together. 0: as much as this one.
        temp_directory: where it spills. With None it spills nowhere, not even to DuckDB's default place.
        threads: how many threads of its own it has.
        result_limit_bytes: what the result of one statement may take outside of DuckDB. None: anything.
        lent: data in memory and DuckDB files that may be read as well.
        owner: whom it belongs to alone. Configurations of two owners never share a database.
        aggregates_below_joins: whether DuckDB may aggregate rows before it joins them. Some queries cost
            less by it as a whole. Mini-batches gain nothing, and those of TPC-H 3 took 2.3 times as long.
        civil_time: of its statements. None: that of the process. One database serves configurations that
            differ in nothing else, see `Database.cursor`.
    """

    readable: tuple[str, ...]
    memory_limit_bytes: int
    temp_directory: str | None = None
    threads: int = 1
    result_limit_bytes: int | None = None
    files: tuple[FileState, ...] = ()
    lent: tuple[Lent, ...] = ()
    aggregates_below_joins: bool = False
    owner: str = ""
    civil_time: CivilTime | None = None
    account_bytes: int = 0

    def __post_init__(self) -> None:
        if self.memory_limit_bytes < _SMALLEST_BYTES:
            raise ValueError(f"memory_limit_bytes is {self.memory_limit_bytes}; at least 64 MiB is needed")

    @property
    def lent_names(self) -> set[str]:
        """Return the names of the data in memory and of the DuckDB files that may be read."""
        return {each.name for each in self.lent}


class Database:
    """An in-memory DuckDB, closed to all but its `readable` folders and `files`.

    Make one cursor for each thread.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self.config = config
        self._civil_time = config.civil_time
        self._connection = _connect(config.threads)
        self._bound_bytes = config.memory_limit_bytes
        temp = config.temp_directory
        Cursor(self._connection).borrow(each for each in config.lent if isinstance(each, AttachedFile))
        for statement in (
            f"SET memory_limit = '{config.memory_limit_bytes // 1024}KiB'",
            f"SET temp_directory = {quote_text(temp or '')}",
            # A checkpoint compresses tables in memory: 70 MB took 0.4 core-s. They are dropped soon after.
            "SET checkpoint_threshold = '1TiB'",
            "SET enable_progress_bar = false",
            "SET GLOBAL python_enable_replacements = false",  # without GLOBAL, cursors would not have it
            "SET autoload_known_extensions = false",
            "SET autoinstall_known_extensions = false",
            "SET GLOBAL parquet_metadata_cache = true",
            f"SET disabled_optimizers = {quote_text('' if config.aggregates_below_joins else _BELOW_JOINS)}",
            f"SET allowed_directories = {list_literal(_readable(config))}",
            f"SET allowed_paths = {list_literal(_spellings(config.files))}",
            "SET enable_external_access = false",
            *_civil_time_statements(config.civil_time, "SET GLOBAL"),
            f"SET allowed_configs = {list_literal(_LEFT_OPEN)}",
            "SET lock_configuration = true",
        ):
            self._connection.execute(statement)
        _DATABASES.add(self)

    @property
    def civil_time(self) -> CivilTime:
        """Return the zone and the calendar of statements that name no other."""
        if self._civil_time is None:
            self._civil_time = _time_of_process(self._connection)
        return self._civil_time

    def cursor(self, civil_time: CivilTime | None = None) -> Cursor:
        """Return a new cursor. civil_time: of its statements. None: that of the configuration."""
        cursor = Cursor(
            self._connection.cursor(),
            self.config.result_limit_bytes,
            relations_kept=RELATIONS_KEPT,
            civil_time=self.civil_time,
        )
        cursor.keep_time(civil_time)
        cursor.borrow(each for each in self.config.lent if isinstance(each, LentData))
        return cursor

    def counted_bytes(self) -> int:
        """Return what DuckDB counts of this database in memory. It takes a millisecond."""
        return _counted_bytes(self._connection)

    def bound(self, limit_bytes: int) -> bool:
        """Let it have no more than this from now on, or its configured limit where that is less.

        What can be spilled is spilled now. Returns False where the rest is more: the limit stays as it was.
        """
        limit_bytes = max(_SMALLEST_BYTES, min(limit_bytes, self.config.memory_limit_bytes))
        if limit_bytes == self._bound_bytes:
            return True
        try:
            with self._connection.cursor() as connection:
                connection.execute(f"SET memory_limit = '{limit_bytes // 1024}KiB'")
        except duckdb.Error:
            return False
        self._bound_bytes = limit_bytes
        return True

    def serve(self, files: Any) -> None:
        """Let statements read what an fsspec file system has, as far as they may read it."""
        self._connection.register_filesystem(files)

    def close(self) -> None:
        """Close the database. While another thread runs a statement in it, it stays open.

        It then goes with the last thing that refers to it.
        """
        with suppress(duckdb.ResourceInUseException):
            self._connection.close()


class Cursor:
    """One thread's connection to a database. Errors come out as this project's own."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        result_limit_bytes: int | None = None,
        *,
        relations_kept: int = 0,
        civil_time: CivilTime | None = None,
    ) -> None:
        """Keep a connection.

        Args:
            connection: of one thread.
            result_limit_bytes: what one result may take.
            relations_kept: none where statements can name variables of Python, which a relation keeps.
            civil_time: that new connections of the database have. None: that of the process.
        """
        self._connection = connection
        self._result_limit_bytes = result_limit_bytes
        self._most_kept = relations_kept
        self._others: list[Cursor] = []
        self._kept: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()  # by SQL, the newest last
        self._usual_time = self._civil_time = civil_time
        self._prefetches = True

    @property
    def civil_time(self) -> CivilTime:
        """Return the zone and the calendar by which statements read and show moments here."""
        if self._civil_time is None:
            self._civil_time = _time_of_process(self._connection)
        return self._civil_time

    def keep_time(self, civil_time: CivilTime | None) -> None:
        """Read and show moments by another zone and calendar from now on. None changes nothing."""
        if civil_time is None or civil_time == self.civil_time:
            return
        for statement in _civil_time_statements(civil_time, "SET"):
            self.run(statement)
        self._kept.clear()
        self._civil_time = civil_time

    def _prepare(self, sql: str) -> None:
        """Prefetch nothing from now on if the statement recurses, since it could wait for that for ever."""
        prefetches = "recursive" not in sql.lower()
        if prefetches != self._prefetches:
            self._connection.execute(f"SET disable_parquet_prefetching = {not prefetches}")
            self._prefetches = prefetches

    def table(self, sql: str, values: Sequence[float] = ()) -> pa.Table:
        """Return the statement's result as an Arrow table. Raises DataError if it is over the limit.

        values: of its parameters. With any, DuckDB binds the statement once, not twice, and copies its rows:
            the limit is looked at once all of them are there.
        """
        with translated_errors(sql):
            self._prepare(sql)
            if values:
                return self._copied(sql, list(values))
            relation = self._relation(sql)
            if self._result_limit_bytes is None:
                return relation.to_arrow_table()
            return _bounded(relation.to_arrow_reader(BATCH_ROWS), self._result_limit_bytes)

    def _copied(self, sql: str, values: list[float]) -> pa.Table:
        result = self._connection.execute(sql, values)
        try:
            table: pa.Table = result.to_arrow_table()
        except UserWarning:  # of the copy, where warnings are errors
            result.fetchall()
            table = self._connection.sql(sql, params=values).to_arrow_table()
        return _bounded(table.to_reader(), self._result_limit_bytes or 1 << 62)

    def _relation(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return the relation over a SELECT, the kept one where there is one.

        DuckDB binds a text when its relation is made, which takes half a millisecond, and when it runs. Those
        with rows instead of a text (as of a PIVOT) are not kept: they would give the same rows again.
        """
        relation = self._kept.pop(sql, None)
        if relation is None:
            relation = self._connection.sql(sql)
            if relation.type != _OVER_TEXT:
                return relation
        self._kept[sql] = relation
        if len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)
        return relation

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with translated_errors(sql):
            self._prepare(sql)
            return self._connection.execute(sql).fetchall()

    def typed_text(self, value: object) -> tuple[str, str | None]:
        """Return a Python value as DuckDB has it: its type and text. Raises SqlError if it has none.

        Moments are written in UTC: in zones of old, DuckDB leaves the seconds of the offset out.
        """
        try:
            if isinstance(value, LocalMoment):
                ((text,),) = self._connection.execute(_LOCAL_TEXT, [value.text]).fetchall()
                return _WITH_ZONE, text
            rows = self._connection.execute(_TYPED_TEXT, [value]).fetchall()
            if _WITH_ZONE in rows[0][0]:
                with self._in_utc():
                    rows = self._connection.execute(_TYPED_TEXT, [value]).fetchall()
        except (duckdb.Error, OverflowError, UnicodeError):
            raise SqlError(
                f"{value!r} cannot be a parameter: DuckDB has no type for a {type(value).__name__}; "
                "give a number, a text, a date, a list of them or None"
            ) from None
        return cast("tuple[str, str | None]", rows[0])

    @contextmanager
    def _in_utc(self) -> Iterator[None]:
        before = self.civil_time
        self.keep_time(UTC)
        try:
            yield
        finally:
            self.keep_time(before)

    def typed_texts_of(self, expressions: Sequence[str]) -> list[tuple[str, str | None]]:
        """Return the values of constant expressions, all of one moment, as `typed_text` does."""
        shown = ", ".join(f"typeof({each}), CAST({each} AS VARCHAR)" for each in expressions)
        row = self.rows(f"SELECT {shown}")[0]
        return list(zip(row[::2], row[1::2], strict=True))

    def run(self, sql: str) -> None:
        with translated_errors(sql):
            self._prepare(sql)
            self._connection.execute(sql)

    def register(self, name: str, table: Any) -> None:
        """Make Arrow data or a pandas DataFrame readable by name. It replaces what was registered before."""
        with translated_errors(""):
            self._connection.register(name, table)

    def unregister(self, name: str) -> None:
        """Forget a registered table. Nothing happens where there is none."""
        self._connection.unregister(name)

    def borrow(self, lent: Iterable[Lent]) -> None:
        """Make data in memory readable for this cursor, and DuckDB files for its whole database."""
        for each in lent:
            if isinstance(each, LentData):
                self.register(each.name, each.data)
            elif not self._has_attached(each):
                self._attach(each)

    def _attach(self, file: AttachedFile) -> None:
        """Attach a DuckDB file, unless another thread does so meanwhile.

        IF NOT EXISTS would say so more simply. In DuckDB 2.0.0 it can wait without end, where another
        database of this process has the file and one that had it, now closed, was at this one's address.
        """
        try:
            self.run(f"ATTACH {quote_text(file.path)} AS {quote_name(file.name)} (READ_ONLY)")
        except RelaqsError:
            if not self._has_attached(file):
                raise

    def _has_attached(self, file: AttachedFile) -> bool:
        known = self.rows("SELECT database_name FROM duckdb_databases()")
        return (file.name,) in known

    @contextmanager
    def registered(self, **tables: Any) -> Iterator[None]:
        """Make Arrow tables readable by name inside the block."""
        for name, table in tables.items():
            self.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self.unregister(name)

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each column that a SELECT would give, without running it.

        Raises SqlError and ExpressionError with the place in the SELECT itself.
        """
        try:
            return [(row[0], row[1]) for row in self.rows(f"{_DESCRIBE}{sql}")]
        except SqlError as error:
            if error.position is None:
                raise
            raise error.at(_in_described(error.position)) from error.__cause__
        except ExpressionError as error:
            if error.ran is None:
                raise
            ran = error.ran._replace(sql=sql, position=_in_described(error.ran.position))
            raise ExpressionError(error.message, ran=ran) from error.__cause__

    def another(self) -> Cursor:
        """Return a cursor of the same database, with registered and temporary tables of its own.

        It closes with this one.
        """
        cursor = Cursor(self._connection.cursor(), civil_time=self._usual_time)
        cursor.keep_time(self._civil_time)
        self._others.append(cursor)
        return cursor

    def interrupt(self) -> None:
        """Stop the statement that another thread is running here. It raises `Interrupted` in that thread."""
        self._connection.interrupt()

    def close(self) -> None:
        for cursor in self._others:
            cursor.close()
        self._connection.close()


def _bounded(reader: pa.RecordBatchReader, limit_bytes: int) -> pa.Table:
    """Return all that the reader has. Once that is too much, raise MemoryLimitError and read no further."""
    batches, size = [], 0
    with reader:
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > limit_bytes:
                raise MemoryLimitError(
                    f"the result takes more than {limit_bytes >> 20} MiB, the most allowed here; aggregate, "
                    "or add a LIMIT"
                )
        return pa.Table.from_batches(batches, reader.schema)


def open_for_writing(
    temp_directory: Path,
    *,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
    civil_time: CivilTime | None = None,
) -> Cursor:
    """Return a cursor of an open DuckDB, which may read any source and write files, for laying data out.

    Args:
        temp_directory: where it spills.
        memory_limit_bytes: beyond it.
        threads: as many as this machine has cores, if it is not said.
        civil_time: by which texts are read as moments. None: that of the process.
    """
    connection = _connect(threads or os.cpu_count() or 1)
    for statement in (
        f"SET memory_limit = '{memory_limit_bytes // 1024}KiB'",
        f"SET temp_directory = {quote_text(str(temp_directory))}",
        "SET enable_progress_bar = false",
        "SET python_enable_replacements = false",
        "SET scheduler_process_partial = true",  # DuckDB looks for ctrl-C between tasks: make them short
    ):
        connection.execute(statement)
    cursor = _in_time(Cursor(connection), civil_time)
    _WRITERS.add(cursor)
    return cursor


def _in_time(cursor: Cursor, civil_time: CivilTime | None) -> Cursor:
    cursor.keep_time(civil_time)
    return cursor


def _connect(threads: int = 1) -> duckdb.DuckDBPyConnection:
    """Return a new database in memory, which reads and writes files on its `threads` and on no others.

    DuckDB 2.0.0 can wait for itself where threads of their own read ahead (duckdb#23885, #25600) or are
    interrupted while they write. Without them a scan of cached files takes 0.9 of the time, of others on a
    local disk 1.15.
    """
    _look_before()
    return duckdb.connect(":memory:", config={"threads": threads, "async_threads": 0})


BEFORE_STATEMENTS: list[Callable[[], object]] = []
"""What is called before each statement. What it raises keeps the statement from being run."""


def _look_before() -> None:
    for look in BEFORE_STATEMENTS:
        look()


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_WRITERS: weakref.WeakSet[Cursor] = weakref.WeakSet()


def open_databases() -> list[Database]:
    """Return the closed databases of this process."""
    return list(_DATABASES)


def written_bytes() -> int:
    """Return what the databases of this process have in memory that lay data out."""
    return sum(_counted_bytes(cursor._connection) for cursor in list(_WRITERS))


def _counted_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    try:
        with connection.cursor() as another:
            rows = another.execute("SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()").fetchall()
    except duckdb.Error:  # it was closed meanwhile
        return 0
    return int(rows[0][0] or 0)


def give_back_freed() -> None:
    """Give the memory back to the system that DuckDB and Arrow have freed and keep.

    DuckDB's own allocator keeps what its threads have freed: half a gigabyte after one large sort. A
    database lets go of all of it, that of others too, when it is told its limit.
    """
    with _cursor_that_parses() as connection:
        connection.execute(f"SET memory_limit = '{_SMALLEST_BYTES // 1024}KiB'")
    pa.default_memory_pool().release_unused()


class ReadingDatabase:
    """An open DuckDB for looking into many files, one after another. It is opened when it is first needed.

    Opening one takes 25 ms. Nothing may be attached to it, since that would be there for all who use it.
    civil_time: by which texts are read as moments. None: that of the process.
    """

    def __init__(self, civil_time: CivilTime | None = None) -> None:
        self.civil_time = civil_time
        self._connection: duckdb.DuckDBPyConnection | None = None

    def cursor(self) -> Cursor:
        if self._connection is None:
            self._connection = _connect()
        return _in_time(Cursor(self._connection.cursor()), self.civil_time)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_for_reading(*, threads: int = 1, civil_time: CivilTime | None = None) -> Cursor:
    """Return a cursor of an open DuckDB, which may read any source, for looking into it.

    civil_time: by which texts are read as moments. None: that of the process.
    """
    return _in_time(Cursor(_connect(threads)), civil_time)


def _time_of_process(connection: duckdb.DuckDBPyConnection) -> CivilTime:
    """Return how DuckDB reads and shows moments in this process, where it is told nothing else.

    connection: a new one, which is asked where that is not known yet: to ask takes two milliseconds.
    """
    if not _FOUND:
        with connection.cursor() as own:  # another thread may be using the connection itself
            (found,) = own.execute(_TIME_SETTINGS).fetchall()
        _FOUND.append(CivilTime(*found))
    return _FOUND[0]


_TIME_SETTINGS = "SELECT current_setting('TimeZone'), current_setting('Calendar')"
_FOUND: list[CivilTime] = []  # the time of the process, once it is known


def _civil_time_statements(civil_time: CivilTime | None, set_: str) -> Iterator[str]:
    if civil_time is not None:
        yield f"{set_} TimeZone = {quote_text(civil_time.zone)}"
        yield f"{set_} Calendar = {quote_text(civil_time.calendar)}"


@cache
def zone_names() -> Mapping[str, str]:
    """Return the time zones that DuckDB knows, by their names in lower case."""
    with _cursor_that_parses() as connection:
        rows = connection.execute("SELECT name FROM pg_timezone_names() ORDER BY name").fetchall()
    return {name.lower(): name for (name,) in rows}


def in_zone(moments: pa.Array, zone: str) -> pa.Array:
    """Return what the clocks of a time zone show at moments with a zone: timestamps without one.

    >>> import datetime as dt
    >>> moments = pa.array([dt.datetime(2024, 3, 10, 7, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    >>> print(in_zone(moments, "America/New_York")[0])
    2024-03-10 03:00:00
    """
    table = pa.table({"moment": moments})
    with _cursor_that_parses() as connection:
        connection.register("moments", table)
        shown = connection.sql(f"SELECT timezone({quote_text(zone)}, moment) AS shown FROM moments")
        return shown.to_arrow_table().column("shown").combine_chunks()


def file_state(path: str) -> FileState:
    """Return the state of the file at a path. That of a copy is the state of what it is a copy of."""
    if (copy := copy_at(path)) is not None:
        return copy.state
    try:
        state = os.stat(path)
    except OSError:
        return path, -1, 0
    return path, state.st_size, state.st_mtime_ns


def is_kept_by_arrow(type_text: str) -> bool:
    """Return whether Arrow has DuckDB's values of a type. Of some it has bytes, and times without zones.

    >>> [is_kept_by_arrow(text) for text in ("TIME", "TIME WITH TIME ZONE[]", "STRUCT(a BIT)", "ENUM('BIT')")]
    [True, False, False, True]
    """
    return _CHANGED_BY_ARROW.search(type_text) is None


def quote_name(name: str) -> str:
    """Return the identifier, quoted for DuckDB.

    >>> quote_name('my "own" name')
    '"my ""own"" name"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return the text as a DuckDB string literal."""
    return "'" + text.replace("'", "''") + "'"


def list_literal(texts: Sequence[str]) -> str:
    """Return the texts as a DuckDB list of strings."""
    return "[" + ", ".join(quote_text(text) for text in texts) + "]"


MAY_HAVE_NAN = "can_have_nan"
"""DuckDB's option for files whose footers may not count NaN among a column's values."""


def parquet_rows(files: Iterable[Path | str]) -> str:
    """Return the table of the rows of Parquet files, with the columns that the files themselves have.

    A folder of the user's may be called "year=2020", which DuckDB would else take for a column. The ends of a
    column in a footer leave NaN out, unless DuckDB wrote the file. It would skip rows with NaN by them, if it
    were not told that there may be some.

    >>> parquet_rows(["zone=1/a.parquet"])
    "read_parquet(['zone=1/a.parquet'], can_have_nan = true, hive_partitioning = false)"
    """
    paths = list_literal([str(file) for file in files])
    return f"read_parquet({paths}, {MAY_HAVE_NAN} = true, hive_partitioning = false)"


def one_file(path: str) -> str:
    """Return the pattern that stands for this one file, where DuckDB takes patterns.

    >>> one_file("data/a*.parquet")
    'data/a[*].parquet'
    """
    return _GLOBS.sub(r"[\g<0>]", path)


def state_digest(state: FileState) -> str:
    """Return a short name of a file's state. Another state has another one, so nothing kept of it is used."""
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def _readable(config: DatabaseConfig) -> list[str]:
    """Return the folders to read from. The row groups of each single file are like files of a folder."""
    groups = [f"{ROW_GROUP_PROTOCOL}://{state_digest(state)}/" for state in config.files]
    return [*config.readable, *groups]


def _spellings(files: Iterable[FileState]) -> list[str]:
    """Return the files' paths, and the patterns by which statements name them."""
    return list(dict.fromkeys(text for path, *_ in files for text in (path, one_file(path))))


@contextmanager
def translated_errors(sql: str) -> Iterator[None]:
    """Turn DuckDB's errors into ours: wrong SQL, or unreadable data. Their texts are shortened with ours."""
    _look_before()
    try:
        yield
    except (duckdb.Error, OSError, RuntimeError) as error:
        told = _translated(shorten(error, times=4), sql)
        shorten(error)
        if told is error:
            raise
        raise told from error


def _translated(error: Exception, sql: str) -> BaseException:
    """Return what an error of DuckDB, or of Arrow while it reads from there, is called here."""
    said = str(error)
    match error:
        case duckdb.InterruptException():
            return Interrupted("the statement was interrupted on request")
        case duckdb.ParserException() | duckdb.BinderException() | duckdb.CatalogException():
            return _sql_error(said, sql)
        case duckdb.OutOfMemoryException():
            return _out_of_memory(error)
        case duckdb.InternalException() | duckdb.FatalException():
            return BrokenDatabaseError(
                f"DuckDB met a fault of its own: {_said(error).splitlines()[0]}; ask in another way, and "
                "report it there"
            )
        case duckdb.Error():
            if said.rstrip(": ").endswith("KeyboardInterrupt"):  # ctrl-C while DuckDB asked for rows
                return KeyboardInterrupt()
            return _of_data_or_rows(error, sql)
        case OSError():  # Arrow passes on only DuckDB's words while a result is read bit by bit
            if said.startswith("Out of Memory Error"):
                return _out_of_memory(error)
            if said.startswith("INTERRUPT Error"):
                return Interrupted("the statement was interrupted on request")
            return _of_rows(error, sql)
    return KeyboardInterrupt() if said == "Query interrupted" else error  # DuckDB's own answer to ctrl-C


def syntax_error(sql: str) -> SqlError | None:
    """Return why DuckDB cannot parse a text, and where. None where it can. Nothing is bound or run.

    >>> print(syntax_error("SELECT 1 FORM x y"))
    syntax error at or near "x"; at line 1, column 15
    """
    with _cursor_that_parses() as connection:
        try:
            connection.extract_statements(sql)
        except duckdb.Error as error:
            return _sql_error(str(error), sql)
    return None


@cache
def _connection_that_parses() -> duckdb.DuckDBPyConnection:
    """Return this process's connection for reading texts. It opens no file. Opening one takes 25 ms."""
    return _connect()


def _cursor_that_parses() -> duckdb.DuckDBPyConnection:
    _look_before()
    return _connection_that_parses().cursor()


@cache
def type_names() -> frozenset[str]:
    """Return the names of DuckDB's types, in lower case. They are the same in every database."""
    return frozenset(_pairs("SELECT lower(type_name), type_name FROM duckdb_types()"))


def pandas_frame(table: pa.Table) -> Any:
    """Return a table as DuckDB has it for pandas: no whole number loses digits beside a NULL."""
    with translated_errors(""), _cursor_that_parses() as connection:
        return connection.from_arrow(table).df()


def parse_tree(sql: str) -> Any:
    """Return DuckDB's own tree of a SELECT, as dicts and lists. None where it is no SELECT."""
    tree = json.loads(serialized(sql))
    return None if tree.get("error") else tree


@lru_cache(maxsize=8)  # a text is read again as it is planned, and by its views
def serialized(sql: str) -> str:
    """Return DuckDB's own tree of a SELECT, in JSON. Of another text it says why there is none."""
    with _cursor_that_parses() as connection:
        ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    return str(text)


def written_from(tree: Any) -> str:
    """Return the SQL of DuckDB's own tree of a SELECT, as `parse_tree` has it."""
    with _cursor_that_parses() as connection:
        ((text,),) = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(text)


@cache
def function_aliases() -> Mapping[str, str]:
    """Return the function that each further name of a function stands for, in lower case."""
    return _pairs(
        "SELECT lower(function_name), lower(alias_of) FROM duckdb_functions() WHERE alias_of IS NOT NULL"
    )


@cache
def type_aliases() -> Mapping[str, str]:
    """Return the type that each name of a type, in lower case, stands for. JSON is not another VARCHAR."""
    return _pairs("SELECT lower(type_name), logical_type FROM duckdb_types() WHERE type_name <> 'JSON'")


def _pairs(sql: str) -> Mapping[str, str]:
    with _cursor_that_parses() as connection:
        return dict(connection.execute(sql).fetchall())


def _of_data_or_rows(error: duckdb.Error, sql: str) -> DataError:
    """Return the error of data that cannot be read, or of a row. DuckDB has one class for both."""
    is_of_a_file = isinstance(error, duckdb.IOException | duckdb.PermissionException)
    if (words := about_file(str(error))) is None and not (is_of_a_file or _OF_A_FILE.match(str(error))):
        return _of_rows(error, sql)
    return DataError(words or f"the data could not be read: {_said(error)}")


def _of_rows(error: Exception, sql: str) -> DataError:
    """Return the error of an expression that has no value for some row, or of the statement as a whole."""
    message = f"DuckDB could not run the statement: {about_rows(_said(error))}"
    if not str(error).startswith(_OF_A_ROW):
        return DataError(message)
    found = _LINE.search(str(error))
    place = position_at(int(found[1]), found[2], len(found[3]), sql) if found else None
    return ExpressionError(message, ran=found and place and Underlined(sql, place, len(found[4])))


def _out_of_memory(error: Exception) -> MemoryLimitError:
    said = _said(error).split("\n")[0]  # the rest is about settings that cannot be changed here
    return MemoryLimitError(f"{said}; raise memory_limit, or group by fewer values")


def _said(error: Exception) -> str:
    """Return DuckDB's message without its excerpt of a statement that the user never wrote."""
    if guarded := _GUARDED.search(str(error)):
        return guarded[1]
    return str(error).split("\n\nLINE ")[0]


def _sql_error(text: str, sql: str) -> SqlError:
    message = re.sub(r"^\w+ Error:\s*", "", text).split("\n")[0].strip()
    at = _LINE.search(text)
    position = position_at(int(at[1]), at[2], len(at[3]), sql) if at else None
    if (told := about_types(text, sql, position) or about_syntax(message, sql, position)) is not None:
        return SqlError(told, position)
    candidates = _QUOTED.findall(match[1].split("\n\n")[0]) if (match := _CANDIDATES.search(text)) else []
    return SqlError(message, position, tuple(dict.fromkeys(candidates))[:5])


def _in_described(place: tuple[int, int]) -> tuple[int, int]:
    """Return where a place in the DESCRIBE of a SELECT is in the SELECT."""
    line, column = place
    return line, max(1, column - len(_DESCRIBE)) if line == 1 else column
