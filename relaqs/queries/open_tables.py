"""The tables of an open session: what each is read from now, and what takes its place meanwhile.

A plain table is replaced by its layout once there is one, and any table by what its files are now when the
user asks for that. Queries that run go on over what they began with.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, ReadingDatabase
from relaqs_engine.layouts.cache import LayingOut, Opening, lay_out, opened_table, reopened_table
from relaqs_engine.layouts.cache_use import CacheUse
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.layouts.together import settle

from relaqs.executors import Executor
from relaqs.queries import notices
from relaqs.queries.background_layout import BackgroundLayouts, LayoutProgress

SAY_SECONDS = 5.0  # between two sentences about the progress of a layout


class OpenTables:
    """The tables of a session.

    Args:
        catalog: the tables as they were opened.
        use: what they are read from in the cache.
        cores: how many read a plain table whole. None: none is laid out behind the questions.
        changed: the session's method that is called with a new catalog. The session is not kept by it.
        civil_time: by which texts are read as moments. None: that of the process.

    Attributes:
        catalog: the tables as they are now.
    """

    def __init__(
        self,
        catalog: Catalog,
        use: CacheUse,
        cores: int | None,
        changed: Callable[[Catalog], None],
        civil_time: CivilTime | None = None,
    ) -> None:
        self.catalog = catalog
        self._use = use
        self._civil_time = civil_time
        self._changed = weakref.WeakMethod(changed)  # the thread below must not keep a forgotten session
        self._changing = threading.Lock()
        self._is_closed = False
        self._said_at = float("-inf")
        self._behind = (
            None
            if cores is None
            else BackgroundLayouts(cores, notices.announce, self._replace, use, civil_time)
        )

    @property
    def progress(self) -> LayoutProgress | None:
        """Return how far the layout is that is made behind the questions, None where there is none."""
        return None if self._behind is None else self._behind.progress

    def asked(self, plain_tables: Iterable[str]) -> None:
        """Count a question about these plain tables, and say what there is to know about all tables."""
        now_seconds = time.monotonic()
        for news in self._use.news(now_seconds):
            notices.announce(news)
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
            notices.announce(str(progress))

    def lay_out(self, name: str) -> Layout:
        """Return a table's layout, which a plain table gets now."""
        table = self.catalog.table(name)
        if not isinstance(table, PlainTable):
            return table
        from relaqs.laying_out import on_threads

        with on_threads() as spread:
            how = LayingOut(notices.announce, spread=spread, civil_time=self._civil_time)
            layout = lay_out(table, how, self._use)
        self._replace(table, layout)
        return layout

    def refresh(self, name: str) -> Layout:
        """Return a table as its files are now. All of its layouts are read anew."""
        self._open_left_out(name)
        old = self.catalog.all_of(name)
        settle(layout.directory for layout in old if not layout.is_plain)
        opening = Opening(self._use, notices.announce, reading=ReadingDatabase(self._civil_time))
        with closing(opening.reading):
            self._replace_all([(layout, reopened_table(layout, opening)) for layout in old])
        return self.catalog.table(name)

    def append(self, name: str, source: TableSource, batch: str) -> Layout:
        """Return a table's layout after rows were added to it. batch: a name for them, or ""."""
        from relaqs.laying_out import append_to

        append_to(self.catalog.table(name), source, batch)
        return self.refresh(name)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no table is being laid out any more; return whether that is so."""
        return self._behind is None or self._behind.wait(timeout_seconds)

    def close(self) -> None:
        """Replace no table any more. What is being laid out behind the questions ends now."""
        if self._behind is not None:
            self._behind.stop()
        with self._changing:
            self._is_closed = True

    def release(self) -> None:
        """Let the cache remove what these tables are read from."""
        self._use.release()

    def _replace(self, old: Layout, new: Layout) -> None:
        self._replace_all([(old, new)])

    def _replace_all(self, changes: Sequence[tuple[Layout, Layout]]) -> None:
        """Read others in the place of some layouts. Where another took that place meanwhile, it stays."""
        with self._changing:
            layouts, place = self.catalog.layouts, {_opening_of(old): new for old, new in changes}
            if any(_opening_of(each) in place for each in layouts):
                now = tuple(place.get(_opening_of(each), each) for each in layouts)
                self._read(Catalog(now, left_out=self.catalog.left_out))

    def _read(self, catalog: Catalog) -> None:
        """Let the session read these tables from now on. Only for whoever holds the lock."""
        if self._is_closed:
            return
        with closing(ReadingDatabase(self._civil_time)) as reading:
            self.catalog = catalog.measured(reading)
        if (changed := self._changed()) is not None:
            changed(self.catalog)

    def _open_left_out(self, name: str) -> None:
        """Open a table that could not be opened before. Nothing happens where it is not such a table."""
        known = {each.lower(): each for each, _ in self.catalog.left_out}
        table = known.get(name.lower(), "")
        if (source := self._use.source_of(table)) is None:
            return
        opening = Opening(self._use, notices.announce, reading=ReadingDatabase(self._civil_time))
        with closing(opening.reading):
            opened = opened_table(table, source, opening)
        with self._changing:
            others = tuple(each for each in self.catalog.left_out if each[0] != table)
            self._read(Catalog((*self.catalog.layouts, opened), left_out=others))


def _opening_of(table: Layout) -> int:
    """Return what is the same of a table for as long as it is not opened anew, though more is known of it."""
    return id(table.cached) if isinstance(table, PlainTable) and table.cached else id(table)


def let_go(executor: Executor, tables: OpenTables) -> None:
    """Free what a session held that was forgotten without being closed."""
    tables.close()
    executor.close()
