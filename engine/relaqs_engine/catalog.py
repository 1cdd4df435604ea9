"""The tables that a query may name, and where each is stored.

A table may be stored several times, laid out by different cluster keys. The folder `orders` holds the table
itself, and `orders@customer` another layout of it; the text behind the @ is free. Queries name `orders`, and
the planner chooses a layout.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from pathlib import Path

from relaqs_engine.duck import DatabaseConfig, FileState, Interrupted, Lent, ReadingDatabase
from relaqs_engine.errors import LayoutError, RelaqsError, SqlError
from relaqs_engine.layouts.cache import Opening, laid_out_once, opened_table
from relaqs_engine.layouts.folder import layout_folders, settle
from relaqs_engine.layouts.manifest import LAYOUT_MARK, Layout, Table
from relaqs_engine.layouts.manifest_file import is_one_table, read_manifest, table_folders
from relaqs_engine.layouts.plain import measured_beside
from relaqs_engine.layouts.remote import no_stored_tables, stored_warehouse
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import default_cache_directory, mirror_root

MOST_CHOICES = 16
# Of more choices than this, the others are not looked at.
MOST_COMPARED = 1_024


@dataclass(frozen=True, slots=True)
class Catalog:
    """The layouts by name, compared without case, as SQL does. A catalog is a value: it travels to workers.

    Attributes:
        chosen: for tables with several layouts, the layout that a table's name stands for here. The default
            is the first layout.
        left_out: tables that are there and cannot be opened, by name, and why. To ask one raises its error.
        tables: the layouts by the names that queries use: for each table the one that is chosen here.

    >>> list(CATALOG.tables)
    ['trips', 'zones', 'orders', 'items']
    >>> CATALOG.table("Orders").cluster_key
    ('id',)
    >>> CATALOG.table("order")
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: there is no table 'order' in the catalog, which has: trips, zones, orders,
    items; did you mean 'orders'?
    """

    layouts: tuple[Table, ...]
    chosen: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, RelaqsError], ...] = field(default=(), compare=False)
    tables: Mapping[str, Table] = field(init=False, repr=False, compare=False)
    _by_name: dict[str, Table] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seen: dict[str, Table] = {}
        for layout in self.layouts:
            if other := seen.get(layout.table.lower()):
                raise LayoutError(
                    f"{other.table!r} in {other.place} and {layout.table!r} in {layout.place} "
                    "differ only by case, which SQL does not tell apart; rename one"
                )
            seen[layout.table.lower()] = layout
        for name, (first, *others) in _by_table(self.layouts).items():
            for other in others:
                _check_same_table(name, first, other)
        chosen = dict(self.chosen)
        tables = {
            name: next((layout for layout in several if layout.table == chosen.get(name)), several[0])
            for name, several in _by_table(self.layouts).items()
        }
        object.__setattr__(self, "tables", tables)
        named = [*((each.table, each) for each in self.layouts), *self.tables.items()]
        object.__setattr__(self, "_by_name", {name.lower(): layout for name, layout in named})

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        cache_directory: Path | None = None,
        *,
        leaves_out: bool = False,
    ) -> Catalog:
        """Return the tables of a warehouse, a folder or an address.

        The folder of one table is that table, with all its layouts.

        Args:
            cache_directory: where copies of what lies in an object store are. The default is the user's
                cache.
            leaves_out: whether tables that cannot be opened are left out, as long as one can be.

        Raises:
            LayoutError: there is no table, or one cannot be opened.
        """
        if (address := Address.of(directory)) is not None:
            root = mirror_root(cache_directory or default_cache_directory())
            found = cls._opened(stored_warehouse(address, root), leaves_out=leaves_out)
            if not found.layouts:
                raise no_stored_tables(address)
            return found
        folder = Path(os.path.abspath(directory))
        folders = layout_folders(folder) if is_one_table(folder) else table_folders(folder)
        settle(folders)
        return cls._opened(
            {folder.name: partial(read_manifest, folder) for folder in folders}, leaves_out=leaves_out
        )

    @classmethod
    def _opened(cls, tables: Mapping[str, Callable[[], Table | None]], *, leaves_out: bool) -> Catalog:
        """Return the tables that open. Raises the error of the first that does not, unless it is left out."""
        found: list[Table] = []
        left_out: list[tuple[str, RelaqsError]] = []
        for name, opened in tables.items():
            try:
                if (layout := opened()) is not None:
                    found.append(layout)
            except Interrupted:
                raise
            except RelaqsError as error:
                if not leaves_out:
                    raise
                left_out.append((name, error))
        if left_out and not found:
            raise left_out[0][1]
        try:
            return cls(tuple(found), left_out=tuple(left_out))
        except LayoutError:
            if not leaves_out:
                raise
        return cls._without_conflicts(found, left_out)

    @classmethod
    def _without_conflicts(cls, layouts: list[Table], left_out: list[tuple[str, RelaqsError]]) -> Catalog:
        """Leave out each layout that cannot stand beside those before it."""
        found = cls(())
        for layout in layouts:
            try:
                found = cls((*found.layouts, layout))
            except LayoutError as error:
                left_out.append((layout.table, error))
        return replace(found, left_out=tuple(left_out))

    @classmethod
    def of_sources(
        cls,
        sources: Mapping[str, TableSource],
        how: Opening | None = None,
        *,
        lay_out: bool = False,
        leaves_out: bool = False,
    ) -> Catalog:
        """Return tables given by name: files, data in memory, or the folder of a layout.

        Where the cache has a layout of the data as they are now, it is the table. Else the data are the
        table, and are read where they lie. Raises LayoutError and DataError as `shuffle` does.

        Args:
            how: where the cache is, and who uses it. The default is the user's cache.
            lay_out: lay out now what has no layout.
            leaves_out: whether tables that cannot be opened are left out, as long as one can be.
        """
        if not sources:
            return cls(())
        how = how or Opening()
        how.use.cache.sweep()
        opened = laid_out_once if lay_out else opened_table
        tables = {name: partial(opened, name, each, how) for name, each in sources.items()}
        return cls._opened(tables, leaves_out=leaves_out)

    def measured(self, reading: ReadingDatabase) -> Catalog:
        """Return this catalog, small plain tables with the statistics that estimates of others can use."""
        return replace(self, layouts=measured_beside(self.layouts, reading))

    def choices(self, tables: Iterable[str]) -> Iterator[Catalog]:
        """Yield this catalog with every choice of layouts for the tables named, at most MOST_CHOICES.

        Where there are more, those in which most tables are co-clustered are yielded, and the first layout of
        each table.

        Args:
            tables: names in any case, because a rewritten query has every name in lower case.
        """
        several = _by_table(self.layouts)
        spelled = {name.lower(): name for name in several}
        names = sorted({spelled[name.lower()] for name in tables})
        ways = [[(name, layout.table) for layout in several[name]] for name in names]
        choices = list(islice(product(*ways), MOST_COMPARED))
        if len(choices) > MOST_CHOICES:
            alike = _co_clustered(layout for name in names for layout in several[name])
            together = [max(Counter(alike[table] for _, table in each).values()) for each in choices]
            best = sorted(range(1, len(choices)), key=lambda i: -together[i])
            choices = [choices[i] for i in (0, *sorted(best[: MOST_CHOICES - 1]))]
        for chosen in choices:
            yield replace(self, chosen=chosen)

    def with_layout(self, layout: Table) -> Catalog:
        """Return this catalog with the layout in the place of the one of the same name."""
        layouts = (layout if each.table == layout.table else each for each in self.layouts)
        return replace(self, layouts=tuple(layouts))

    @property
    def readable_directories(self) -> tuple[str, ...]:
        """Return the folders whose files queries may read."""
        return tuple(str(folder) for layout in self.layouts for folder in layout.folders)

    @property
    def readable_files(self) -> tuple[FileState, ...]:
        """Return the single files that queries may read: those of plain tables, in the state they had."""
        return tuple(dict.fromkeys(state for layout in self.layouts for state in layout.states))

    def readable_by(self, config: DatabaseConfig) -> DatabaseConfig:
        """Return how a database is opened that may read these tables, and the files that it could read."""
        return replace(
            config,
            readable=self.readable_directories,
            files=tuple(dict.fromkeys((*config.files, *self.readable_files))),
            lent=tuple(dict.fromkeys((*config.lent, *self.lent))),
        )

    @property
    def lent(self) -> tuple[Lent, ...]:
        """Return the data in memory and the DuckDB files that these tables are read from."""
        return tuple(dict.fromkeys(each for layout in self.layouts for each in layout.lent))

    def all_of(self, table: str) -> tuple[Table, ...]:
        """Return all layouts of a table. Raises SqlError with candidates if there is none with that name."""
        found = self.table(table).table.partition(LAYOUT_MARK)[0]
        return tuple(_by_table(self.layouts)[found])

    def is_sampled(self, table: str) -> bool:
        """Whether there is a layout of the table that is sampled. `table` is a name in any case."""
        return any(
            layout.is_sampled and layout.table.partition(LAYOUT_MARK)[0].lower() == table.lower()
            for layout in self.layouts
        )

    def table(self, name: str) -> Table:
        """Return the table of a name. Raises SqlError with candidates if there is none.

        Raises the error of a table that is left out.
        """
        if (layout := self._by_name.get(name.lower())) is not None:
            return layout
        for left_out, error in self.left_out:
            if left_out.lower() == name.lower():
                raise copy(error)
        names = {known_name.lower(): known_name for known_name in self.tables}
        near = tuple(names[match] for match in difflib.get_close_matches(name.lower(), names))
        known = ", ".join(names.values())
        raise SqlError(f"there is no table {name!r} in the catalog, which has: {known}", candidates=near)

    def layout(self, name: str) -> Layout:
        """Return the layout of a table that is laid out. Raises as `table` does."""
        found = self.table(name)
        assert isinstance(found, Layout), f"{found} is not laid out"
        return found


def _co_clustered(layouts: Iterable[Table]) -> dict[str, str]:
    """Return of each layout the first one that it is co-clustered with, itself where there is none."""
    found: dict[str, str] = {}
    firsts: list[Table] = []
    for layout in layouts:
        first = next((each for each in firsts if layout.is_co_clustered_with(each)), layout)
        firsts += [layout] if first is layout else []
        found[layout.table] = first.table
    return found


def _by_table(layouts: Iterable[Table]) -> dict[str, list[Table]]:
    """Return each table's layouts. The one without an @ comes first."""
    found: dict[str, list[Table]] = {}
    for layout in layouts:
        name, marked, _ = layout.table.partition(LAYOUT_MARK)
        several = found.setdefault(name, [])
        several.insert(len(several) if marked else 0, layout)
    return found


def _check_same_table(name: str, first: Table, other: Table) -> None:
    def columns(layout: Table) -> list[tuple[str, str]]:
        return [(column.name, column.type) for column in layout.columns]

    if columns(first) != columns(other) or first.row_count != other.row_count:
        raise LayoutError(
            f"{first.place} and {other.place} are two layouts of {name!r}, and hold "
            f"{first.row_count} and {other.row_count} rows of {len(first.columns)} and {len(other.columns)} "
            "columns; lay both out from the same data"
        )
