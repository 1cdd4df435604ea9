"""Layouts that do not exist: what their manifest would say, for planning over them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from relaqs_engine.advisor.join_columns import TableColumn
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.assignment import HASH_SCHEME
from relaqs_engine.layouts.manifest import LAYOUT_MARK, Layout, Partition

FEWEST_UNITS_A_PARTITION = 20  # with fewer distinct keys, one partition says little about the others
DEFAULT_PARTITIONS = 100
ROWS = "rows"  # names the layout whose sampling units are rows

_NO_PARTITION = Partition((), 0, 0)  # planning counts partitions and never looks into one


@dataclass(frozen=True, slots=True)
class Gauge:
    """What layouts must share, beside the key, so that they meet partition by partition."""

    partitions: int
    seed: int
    hash_scheme: str
    hash_probe: str

    @classmethod
    def of(cls, layout: Layout) -> Gauge:
        return cls(len(layout.partitions), layout.seed, layout.hash_scheme, layout.hash_probe)

    def rows_of(self, catalog: Catalog, table: str) -> Layout | None:
        """Return the table as it would be with rows as sampling units, None where it has too few rows."""
        if catalog.table(table).row_count < FEWEST_UNITS_A_PARTITION * self.partitions:
            return None
        return self._layout(catalog, table, ROWS, ())

    def clustered(self, catalog: Catalog, column: TableColumn) -> Layout | None:
        """Return the table as if clustered by the column, None where it already is, or would be no sample."""
        table, name = column
        key = catalog.table(table).column(name)
        few = key.distinct_count < FEWEST_UNITS_A_PARTITION * self.partitions
        nulls_fill_a_partition = key.null_count * self.partitions > catalog.table(table).row_count
        is_there = any(
            layout.cluster_key == (key.name,) and Gauge.of(layout) == self
            for layout in layouts_of(catalog, table)
        )
        if few or nulls_fill_a_partition or is_there:
            return None
        return self._layout(catalog, table, key.name, (key.name,))

    def _layout(self, catalog: Catalog, table: str, wanted: str, cluster_key: tuple[str, ...]) -> Layout:
        first = catalog.table(table)
        name = _free_name(f"{table}{LAYOUT_MARK}{wanted.replace('/', '_')}", catalog)
        return replace(
            first,
            table=name,
            directory=first.directory.with_name(name),
            kind="sampled",
            cluster_key=cluster_key,
            partitions=(_NO_PARTITION,) * self.partitions,
            seed=self.seed,
            hash_scheme=self.hash_scheme,
            hash_probe=self.hash_probe,
            heavy=None,
            companions=(),
        )


def is_static(catalog: Catalog, table: str) -> bool:
    """Return whether no layout of the table is a sample."""
    return not any(layout.is_sampled for layout in layouts_of(catalog, table))


def layouts_of(catalog: Catalog, table: str) -> Iterator[Layout]:
    """Yield all layouts of a table."""
    return (layout for layout in catalog.layouts if table_of(layout) == table)


def table_of(layout: Layout) -> str:
    """Return the name that queries use for the table of this layout."""
    return layout.table.partition(LAYOUT_MARK)[0]


def gauges(catalog: Catalog, tables: Collection[str]) -> list[Gauge]:
    """Return what new layouts could share with existing ones: with the query's, or else with any table's."""

    def of(layouts: Iterable[Layout]) -> list[Gauge]:
        usable = [layout for layout in layouts if layout.is_sampled and layout.hash_scheme == HASH_SCHEME]
        largest_first = sorted(usable, key=lambda layout: layout.row_count, reverse=True)
        return list(dict.fromkeys(map(Gauge.of, largest_first)))

    own = of(layout for layout in catalog.layouts if table_of(layout) in tables)
    return own or of(catalog.layouts)[:1] or [Gauge(DEFAULT_PARTITIONS, 0, HASH_SCHEME, "")]


def with_further(catalog: Catalog, further: Sequence[Layout]) -> Catalog:
    """Return the catalog with these layouts in the place of all other layouts of their tables."""
    changed = {table_of(layout) for layout in further}
    kept = (layout for layout in catalog.layouts if table_of(layout) not in changed)
    return Catalog((*kept, *further))


def _free_name(name: str, catalog: Catalog) -> str:
    taken = {layout.table.lower() for layout in catalog.layouts}
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}-{number}"
    return free
