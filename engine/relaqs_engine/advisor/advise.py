"""Which further layouts would help a query, found by planning over layouts that do not exist.

1. `JoinColumns`: which columns a query equates or groups by. Another layout could be clustered by them.
2. `Gauge`: such a layout, with what its manifest would say.
3. `advise`: the query is planned over each of them. What gets estimates, or gets them sooner, is told.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import exp
from sqlglot.errors import SqlglotError

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.assignment import HASH_SCHEME
from relaqs_engine.layouts.manifest import LAYOUT_MARK, Layout, Partition, Table, rows_in_words
from relaqs_engine.planning.aggregate_plan import rows_to_wait_for
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import Mode, OnlinePlan
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.normalize import flatten
from relaqs_engine.sql.binder import Binder, check_reading
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.parse import ParsedQuery, parse_query
from relaqs_engine.sql.read import Effort
from relaqs_engine.stores.address import Address

TableColumn = tuple[str, str]  # table and column, as the catalog spells them


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The columns that another layout could be clustered by.

    Attributes:
        equated: pairs that the query holds equal, also of one table with itself.
        grouped: the keys of GROUP BY.
    """

    equated: tuple[tuple[TableColumn, TableColumn], ...]
    grouped: tuple[TableColumn, ...]

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """Return every column found, once, in the order of the query."""
        found = [column for pair in self.equated for column in pair]
        return tuple(dict.fromkeys([*found, *self.grouped]))


def join_columns(tree: exp.Query, tables: Mapping[str, Table]) -> JoinColumns:
    """Return the columns that a qualified query equates (by =, or by IN with a subquery) and groups by.

    An alias that means one table here and another there may be resolved to either. So what is found is to be
    tried out, not relied upon.

    `tables` are those that the query reads.
    """
    resolver = _Resolver(tree, tables)
    pairs = [*_equalities(tree), *_memberships(tree)]
    equated = [tuple(map(resolver.origin, pair)) for pair in pairs]
    keys = [key for group in find_all(tree, exp.Group) for key in group.expressions]
    grouped = [resolver.origin(key) for key in keys if isinstance(key, exp.Column)]
    return JoinColumns(
        equated=tuple(dict.fromkeys((a, b) for a, b in equated if a is not None and b is not None)),
        grouped=tuple(dict.fromkeys(column for column in grouped if column is not None)),
    )


class _Resolver:
    """Finds the table's column behind a column, through the derived tables that hand it on."""

    def __init__(self, tree: exp.Query, tables: Mapping[str, Table]) -> None:
        names = {name.lower(): name for name in tables}
        self._columns: dict[tuple[str, str], TableColumn] = {}
        for table in find_all(tree, exp.Table):
            name = names.get(table.name.lower())
            for column in tables[name].columns if name is not None else ():
                self._columns[table.alias_or_name.lower(), column.name.lower()] = (name or "", column.name)
        self._derived = {
            node.alias.lower(): node.this
            for node in find_all(tree, exp.Subquery)
            if node.alias and isinstance(node.this, exp.Select)
        }

    def origin(self, column: exp.Column) -> TableColumn | None:
        """Return the table and its column, None where the column is computed."""
        for _ in range(len(self._derived) + 1):  # at most once through each
            alias = column.table.lower()
            if (found := self._columns.get((alias, column.name.lower()))) is not None:
                return found
            derived = self._derived.get(alias)
            behind = None if derived is None else _output(derived, column.name)
            if behind is None:
                return None
            column = behind
        return None


def _output(select: exp.Select, name: str) -> exp.Column | None:
    """Return the column that is the output of this name, None where the output is computed."""
    for item in select.expressions:
        value = item.unalias()
        if item.alias_or_name.lower() == name.lower() and isinstance(value, exp.Column):
            return value
    return None


def _equalities(tree: exp.Query) -> Iterator[tuple[exp.Column, exp.Column]]:
    for equality in find_all(tree, exp.EQ):
        left, right = equality.left.unnest(), equality.right.unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            yield left, right


def _memberships(tree: exp.Query) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield both columns of `outer IN (SELECT inner …)`."""
    for membership in find_all(tree, exp.In):
        query = membership.args.get("query")
        select = query.unnest() if query is not None else None
        if not isinstance(select, exp.Select) or len(select.expressions) != 1:
            continue
        outer, inner = membership.this.unnest(), select.expressions[0].unalias()
        if isinstance(outer, exp.Column) and isinstance(inner, exp.Column):
            yield outer, inner


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
            isinstance(layout, Layout) and layout.cluster_key == (key.name,) and Gauge.of(layout) == self
            for layout in layouts_of(catalog, table)
        )
        if few or nulls_fill_a_partition or is_there:
            return None
        return self._layout(catalog, table, key.name, (key.name,))

    def _layout(self, catalog: Catalog, table: str, wanted: str, cluster_key: tuple[str, ...]) -> Layout:
        first = catalog.table(table)
        name = _free_name(f"{table}{LAYOUT_MARK}{wanted.replace('/', '_')}", catalog)
        known = first if isinstance(first, Layout) else _rows_as_units(first)
        return replace(
            known,
            table=name,
            directory=first.directory.with_name(name),
            kind="sampled",
            cluster_key=cluster_key,
            partitions=(_NO_PARTITION,) * self.partitions,
            seed=self.seed,
            hash_scheme=self.hash_scheme,
            hash_probe=self.hash_probe,
            heavy=None,
            heads=(),
            companions=(),
        )


def _rows_as_units(table: Table) -> Layout:
    """Return what a layout of a plain table would be, as far as that is known before it is laid out."""
    return Layout(
        table.table,
        table.directory,
        "sampled",
        table.columns,
        table.row_count,
        table.source,
        unit_count=table.row_count,
    )


def is_static(catalog: Catalog, table: str) -> bool:
    """Return whether no layout of the table is a sample."""
    return not any(layout.is_sampled for layout in layouts_of(catalog, table))


def layouts_of(catalog: Catalog, table: str) -> Iterator[Table]:
    """Yield all layouts of a table, or the plain table itself."""
    return (layout for layout in catalog.layouts if table_of(layout) == table)


def table_of(layout: Table) -> str:
    """Return the name that queries use for the table of this layout."""
    return layout.table.partition(LAYOUT_MARK)[0]


def gauges(catalog: Catalog, tables: Collection[str]) -> list[Gauge]:
    """Return what new layouts could share with existing ones: with the query's, or else with any table's."""

    def of(tables: Iterable[Table]) -> list[Gauge]:
        layouts = (each for each in tables if isinstance(each, Layout))
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


FEWEST_ROWS = 10_000  # a table with fewer rows is read whole within milliseconds
NOTABLE_SHARE = 0.1  # of the query's rows: to wait for that many less is worth a layout
SMALL_GROUP_ROWS = 100  # a tenth of a smaller group certifies nothing; a few complete groups say more

NEW_WAREHOUSE = "warehouse"  # a folder for the layouts of plain files

Further = tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class FurtherLayout:
    """A layout that should be made of a table.

    Attributes:
        table: the table's name.
        cluster_key: the columns to cluster by. Empty where rows are the units.
        partitions: how many to make.
        seed: of the assignment to partitions.
        source: the folder or files to read.
        into: the folder to write.
    """

    table: str
    cluster_key: tuple[str, ...]
    partitions: int
    seed: int
    source: Path | Address
    into: Path | Address

    @property
    def command(self) -> str:
        """Return the shell command that makes it."""
        words = ["relaqs", "shuffle", str(self.source), "--into", str(self.into)]
        for column in self.cluster_key:
            words += ["--cluster-by", column]
        words += ["--partitions", str(self.partitions), "--seed", str(self.seed)]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class LayoutOutlook:
    """What a plan comes to with some choice of layouts.

    Rows that are not streamed are read whole before the first estimate.

    Attributes:
        mode: how the query is answered.
        is_progressive: whether there are estimates before the end.
        reasons: why it is answered so.
        streams: the layouts that it samples.
        rows: of all its tables, twice of one that it samples and reads whole as well.
        streamed_rows: of those that it samples.
        groups_are_local: whether each group's rows lie in one partition.
        group_rows: the rows that an average group has at least.
        ranks_groups: whether the answer is the first groups by an estimate.
        is_two_level: whether it is computed from other answers so far, or from rows that such answers decide.
        is_undecided: whether such answers decide which sampled rows there are.
        rows_are_counted: whether numbers of rows are exact, not guessed from the size of text files.
    """

    mode: Mode
    is_progressive: bool
    reasons: tuple[str, ...]
    streams: tuple[str, ...]
    rows: int
    streamed_rows: int
    groups_are_local: bool
    group_rows: float
    ranks_groups: bool
    is_two_level: bool
    is_undecided: bool = False
    rows_are_counted: bool = True

    def in_words(self, row_count: int) -> str:
        """Return a number of its rows for people."""
        return rows_in_words(row_count, is_counted=self.rows_are_counted or row_count == 0)

    @property
    def directness(self) -> int:
        """Return how directly it is answered: 0 at the end, 3 from one level of estimates, 2 from two.

        It is 1 where answers so far decide which rows there are.
        """
        if not self.is_progressive:
            return 0
        return 1 if self.is_undecided else 2 if self.is_two_level else 3

    @property
    def completes_small_groups(self) -> bool:
        """Whether groups that are too small to be estimated soon are complete as soon as they are seen."""
        return self.groups_are_local and not self.ranks_groups and self.group_rows < SMALL_GROUP_ROWS

    def loses_ranks_of(self, other: LayoutOutlook) -> bool:
        """Whether the first groups are known later here, as most groups are not seen before the end.

        In a sample of rows every large group is seen soon. Groups that are small everywhere lose nothing.
        """
        is_local_now = self.ranks_groups and self.groups_are_local and not other.groups_are_local
        is_joined = self.rows_to_wait_for < other.rows_to_wait_for and self.group_rows < SMALL_GROUP_ROWS
        return is_local_now and not is_joined

    @property
    def rows_to_wait_for(self) -> int:
        return rows_to_wait_for(self.streamed_rows, self.rows)

    @property
    def rank(self) -> tuple[int, int, bool, int]:
        """Return what makes an outlook better, in order of importance."""
        return (self.directness, -self.rows_to_wait_for, self.completes_small_groups, self.streamed_rows)

    def is_notably_better_than(self, other: LayoutOutlook) -> bool:
        """Whether the difference is worth one more layout."""
        if self.directness != other.directness:
            return self.directness > other.directness
        if self.loses_ranks_of(other):
            return False
        gained = other.rows_to_wait_for - self.rows_to_wait_for
        completes = self.completes_small_groups and not other.groups_are_local
        return gained >= NOTABLE_SHARE * self.rows or (gained >= 0 and completes)


@dataclass(frozen=True, slots=True)
class Advice:
    """Which layouts to make for a query. There are none where none is needed, or where none would help.

    Attributes:
        layouts: to be made.
        now: how the query is answered without them.
        then: how it is answered with them.
        obstacle: why the query would run exactly however its tables were laid out, "" where it would not.
    """

    layouts: tuple[FurtherLayout, ...]
    now: LayoutOutlook
    then: LayoutOutlook
    obstacle: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that make the layouts, one each."""
        return tuple(layout.command for layout in self.layouts)

    def __str__(self) -> str:
        return "\n".join(_in_words(self))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A change of layouts, and what the query would come to.

    Attributes:
        further: the layouts that change.
        outlook: what the query would come to.
        sampled_rows: the rows of its tables that would be in any sample.
    """

    further: Further
    outlook: LayoutOutlook
    sampled_rows: int


def advise(
    sql: str,
    catalog: Catalog,
    binder: Binder,
    effort: Effort | None = None,
    views: Mapping[str, str] | None = None,
) -> Advice:
    """Return which further layouts, of two tables at most, would help a SELECT.

    Raises SqlError when the SQL is wrong, as planning it does.

    Args:
        effort: counts the cost of planning, and may end it.
        views: name → SELECT, which the query may read as tables.
    """
    with binder.spending(effort or Effort()) as own:
        parsed = parse_query(sql, catalog.tables, own.effort, catalog.left_out, views)
        check_reading(parsed.asked, parsed.written)
        with parsed.placing():
            return _advice(parsed, catalog, own)


def _advice(parsed: ParsedQuery, catalog: Catalog, binder: Binder) -> Advice:
    best = now = _tried((), catalog, parsed, binder)
    if now.outlook.rows < FEWEST_ROWS:
        return Advice((), now.outlook, now.outlook)
    trials: list[_Trial] = []
    for contenders in _contenders(catalog, parsed, binder):
        tried = [_tried(further, catalog, parsed, binder) for further in contenders]
        better = [each for each in tried if each.outlook.is_notably_better_than(best.outlook)]
        best = max(better, key=lambda each: each.outlook.rank, default=best)
        trials += tried
    layouts = tuple(_further_layout(catalog, layout) for layout in best.further)
    obstacle = "" if best.outlook.is_progressive else _obstacle(now, trials)
    return Advice(layouts, now.outlook, best.outlook, obstacle)


def _tried(further: Further, catalog: Catalog, parsed: ParsedQuery, binder: Binder) -> _Trial:
    imagined = with_further(catalog, further)
    layouts = [imagined.table(name) for name in parsed.tables]
    plan = plan_query(parsed.sql, imagined, binder, effort=binder.effort.anew())
    # What is only imagined does not know whether its rows were counted.
    are_counted = all(each.rows_are_counted for name in parsed.tables for each in layouts_of(catalog, name))
    outlook = _outlook(plan, imagined, layouts, rows_are_counted=are_counted)
    return _Trial(further, outlook, sum(layout.row_count for layout in layouts if layout.is_sampled))


def _obstacle(now: _Trial, trials: list[_Trial]) -> str:
    """Return why the query runs exactly, and why it still would with the change that comes furthest."""
    reason = now.outlook.reasons[0]
    others = [each for each in trials if each.outlook.reasons[0] != reason]
    if not others:
        return reason
    last = max(reversed(others), key=lambda each: each.sampled_rows)
    names = " and ".join(layout.table for layout in last.further)
    return f"{reason}; and with {names}, {last.outlook.reasons[0]}"


def _outlook(
    plan: OnlinePlan, catalog: Catalog, layouts: Sequence[Table], *, rows_are_counted: bool
) -> LayoutOutlook:
    streams = tuple(stream.table for stream in plan.streams)
    twice = set(streams).intersection(name for hoist in plan.hoists for name in hoist.tables)
    leading_rows = catalog.table(plan.leading).row_count if plan.leading else 0
    return LayoutOutlook(
        mode=plan.mode,
        is_progressive=plan.is_estimated,
        reasons=plan.reasons,
        streams=streams,
        rows=sum(layout.row_count for layout in (*layouts, *map(catalog.table, twice))),
        streamed_rows=sum(catalog.table(name).row_count for name in streams),
        groups_are_local=plan.groups_are_local,
        group_rows=leading_rows / plan.expected_groups,
        ranks_groups=plan.ranks_groups,
        is_two_level=plan.is_two_level,
        is_undecided=plan.is_undecided,
        rows_are_counted=rows_are_counted,
    )


def _contenders(catalog: Catalog, parsed: ParsedQuery, binder: Binder) -> tuple[list[Further], list[Further]]:
    """Return the changes worth trying: of one table, then of two that the query equates."""
    columns = _columns_of(catalog, parsed, binder)
    statics = [name for name in sorted(parsed.tables) if is_static(catalog, name)]
    one: list[Further] = []
    two: list[Further] = []
    for gauge in gauges(catalog, parsed.tables):
        clustered = {column: gauge.clustered(catalog, column) for column in columns.columns}
        single = [*(gauge.rows_of(catalog, name) for name in statics), *clustered.values()]
        one += [(layout,) for layout in single if layout is not None]
        for left, right in columns.equated:
            pair = clustered[left], clustered[right]
            if left[0] != right[0] and pair[0] is not None and pair[1] is not None:
                two.append((pair[0], pair[1]))
    return one, two


def _columns_of(catalog: Catalog, parsed: ParsedQuery, binder: Binder) -> JoinColumns:
    try:
        draft = flatten(Draft(parsed.sql, catalog, binder, parsed.tree, schema=()))
    except (NotOnlineError, SqlglotError):
        return JoinColumns((), ())  # it runs exactly, however its tables are clustered
    return join_columns(draft.tree, {name: catalog.table(name) for name in parsed.tables})


def _further_layout(catalog: Catalog, layout: Layout) -> FurtherLayout:
    table = table_of(layout)
    first = catalog.table(table)
    source: Path | Address = first.directory
    into: Path | Address = layout.directory
    if first.remote is not None:
        source, into = first.remote.address, first.remote.address.parent / layout.table
    if first.is_plain:  # beside files of the user's own there is no place for a layout
        source, into = Path(first.source), Path(NEW_WAREHOUSE, table)
    return FurtherLayout(table, layout.cluster_key, len(layout.partitions), layout.seed, source, into)


def _in_words(advice: Advice) -> Iterator[str]:
    now, then = advice.now, advice.then
    if not advice.layouts:
        yield _why_none(advice)
        return
    yield "A further layout would help." if len(advice.layouts) == 1 else "Two further layouts would help."
    yield ""
    if now.mode is not then.mode:
        yield f"mode     {now.mode.value} → {then.mode.value} (now {now.reasons[0]})"
    elif now.directness != then.directness:
        yield "levels   from other answers so far, without intervals of its own → estimated at once"
    yield f"streams  {', '.join(now.streams) or 'none'} → {', '.join(then.streams)}"
    streamed = f"{now.in_words(now.streamed_rows)} → {then.in_words(then.streamed_rows)} streamed"
    yield f"rows     {streamed}, of {then.in_words(then.rows)} in its tables"
    if then.completes_small_groups and not now.groups_are_local:
        yield "groups   in all partitions → each in one, and complete as soon as it is seen"
    yield ""
    yield from advice.commands


def _why_none(advice: Advice) -> str:
    now = advice.now
    if advice.obstacle:
        return f"No layout would help, it runs exactly: {advice.obstacle}."
    if not now.is_progressive:
        rows = now.in_words(now.rows)
        return f"No layout is needed: its tables have {rows} rows together, which are read at once."
    return (
        f"No further layout is needed: it is answered progressively, and streams {', '.join(now.streams)}, "
        f"{now.in_words(now.streamed_rows)} of the {now.in_words(now.rows)} rows in its tables."
    )
