"""What a session does with its tables, beside asking them: look, lay out, add rows, read them anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import naming
from relaqs_engine.layouts.plain import all_measured
from relaqs_engine.layouts.reads import read_of_table

from relaqs.executors.duck_process import unchanged
from relaqs.executors.files import check_unchanged
from relaqs.queries.databases import Databases
from relaqs.queries.planner import Planner
from relaqs.queries.tables import OpenTables

if TYPE_CHECKING:
    from relaqs_engine.errors import RelaqsError
    from relaqs_engine.layouts.manifest import Layout
    from relaqs_engine.layouts.sources import TableSource

    from relaqs.queries.tables import LayoutProgress


class HoldsTables:
    """The part of a `Session` that holds tables."""

    _catalog: Catalog
    _databases: Databases
    _open_tables: OpenTables
    _planner: Planner

    @property
    def tables(self) -> Mapping[str, Layout]:
        """The tables' layouts by name.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> db.tables["numbers"].row_count
        1000
        """
        return self._catalog.tables

    @property
    def left_out(self) -> Mapping[str, RelaqsError]:
        """Tables of the folder that could not be opened, by name, and why. The others can be asked.

        >>> import duckdb, pathlib, relaqs
        >>> pathlib.Path("mixed").mkdir()
        >>> duckdb.sql("SELECT range AS x FROM range(5)").write_parquet("mixed/numbers.parquet")
        >>> _ = pathlib.Path("mixed/letters.parquet").write_text("no Parquet")
        >>> db = relaqs.connect("mixed", threads=1)
        >>> list(db.tables), list(db.left_out)
        (['numbers'], ['letters'])
        """
        return dict(self._catalog.left_out)

    def measured_tables(self) -> Mapping[str, Layout]:
        """Return the tables' layouts by name, with the statistics of all columns.

        Layouts have them. A plain table has none yet, and is read once to find them.

        Raises:
            DataError: a plain table's files changed since the session was opened, or cannot be read.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> db.measured_tables()["numbers"].column("x").maximum
        8
        """
        plain = [read_of_table(table, None) for table in self.tables.values() if table.is_plain]
        check_unchanged(plain)
        with unchanged(plain):
            return all_measured(self.tables, self._databases.whole.threads, self._planner.civil_time)

    @property
    def layout_progress(self) -> LayoutProgress | None:
        """How far the layout is that is being made behind the questions, None where there is none.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> print(db.layout_progress)
        None
        """
        return self._open_tables.progress

    def lay_out(self, table: str) -> Layout:
        """Lay a plain table out now, and return its layout. Later queries of this session sample it.

        The layout is kept in the cache, where later sessions find it. A table that has a layout is returned
        as it is.

        Args:
            table: its name.

        Raises:
            SqlError: there is no such table.
            DataError: its files changed since the session was opened.
            LayoutError: it cannot be written.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", cache_directory="cache", threads=1)
        >>> db.lay_out("numbers").is_sampled
        True
        >>> db.plan("SELECT avg(x) AS mean FROM numbers").mode.value
        'mergeable'
        """
        with naming("laying the table out"):
            self._planner.check_open()
            return self._open_tables.lay_out(table)

    def refresh(self, table: str) -> Layout:
        """Return a table as its files are now. Later queries of this session are about these rows.

        Queries that run go on, and fail if they read a file that changed.

        Raises:
            SqlError: there is no such table.
            DataError: its files cannot be read.
            LayoutError: they are not there, or its layout is not.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range AS x FROM range(5)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> duckdb.sql("SELECT range AS x FROM range(7)").write_parquet("numbers.parquet")
        >>> db.refresh("numbers").row_count
        7
        """
        with naming("reading the table anew"):
            self._planner.check_open()
            return self._open_tables.refresh(table)

    def append(self, source: TableSource, table: str, *, batch: str = "") -> Layout:
        """Add rows to a table that was laid out, and return its layout. Later queries read them, too.

        Args:
            source: as `relaqs.append` takes it.
            table: its name. Plain tables cannot be appended to.
            batch: a name for these rows, which are appended only once under it.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> db.append(duckdb.sql("FROM range(500) AS t(x)"), "numbers").row_count
        1500
        """
        with naming("appending rows"):
            self._planner.check_open()
            return self._open_tables.append(table, source, batch)
