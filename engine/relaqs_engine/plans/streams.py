"""What a plan reads: layouts that are sampled, and static sides that each worker prepares once."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.reads import Read


@dataclass(frozen=True, slots=True)
class Stream:
    """A layout that is sampled.

    Attributes:
        table: the name of the layout.
        token: the name that stands for its files in the SQL of a task.
        columns: the columns that the query can read. Their bytes are checked before a task runs.
    """

    table: str
    token: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hoist:
    """A static side that a worker prepares once: projected, filtered, reduced.

    Attributes:
        name: the table that it becomes. It is a digest of the SQL, of the data that the SQL reads and of the
            time zone, so that queries share equal hoists.
        sql: the query that makes it.
        tables: the names of the tables that it reads, for people.
        reads: the files that it reads.
    """

    name: str
    sql: str
    tables: tuple[str, ...]
    reads: tuple[Read, ...] = ()
