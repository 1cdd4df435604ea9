"""What the rules hand on: the query as far as it has been understood."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import Column, Layout, Table
from relaqs_engine.plans.aggregate import BasisColumn, GroupFacts, HeavyGroups, MembershipRules
from relaqs_engine.plans.plan import ErrorBars, Hoist, OutputColumn
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.dialect import find_all, find_first, find_own
from relaqs_engine.sql.parse import DIALECT

if TYPE_CHECKING:
    from relaqs_engine.rewrite.listed_values import MergedValue
    from relaqs_engine.rewrite.statistics import AveragedTime


def is_said(name: str) -> bool:
    """Whether a name may be one of the query's, and not one that ReLAQS or DuckDB made up.

    >>> [is_said(name) for name in ("price", "_0", "b12", "stream_trips", "count_star()")]
    [True, False, False, False, False]
    """
    return re.fullmatch(r"_.*|[bkvd]\d+|(stream|relaqs)_.*|.*[()].*", name) is None


def said_name(name: str) -> str:
    return name if is_said(name) else "a subquery"


def said_derived(alias: str) -> str:
    return f"the derived table {alias}" if is_said(alias) else "a derived table"


def said(node: exp.Expr) -> str:
    """Return a node as the reader may have written it: no table that has no name, and quotes where needed.

    >>> said(sqlglot.parse_one('"_0"."fare" + "t"."two words"', dialect="duckdb"))
    'fare + t."two words"'
    """
    node = node.copy()
    for column in find_all(node, exp.Column):
        if not is_said(column.table):
            column.set("table", None)
    for name in find_all(node, exp.Identifier):
        name.set("quoted", not name.name.isidentifier())
    return node.sql(DIALECT)


def output_name(position: int) -> str:
    """Return the name an output's value has inside the final query, before it is cast and named."""
    return f"e{position}"


class NotOnlineError(Exception):
    """No sound approximation is known for this query: it runs once, exactly. The text says why."""


class AcrossPartitionsError(NotOnlineError):
    """A derived table groups rows of a sampled table across partitions. It may still be read whole."""


@dataclass(frozen=True, slots=True)
class KeyBeside:
    """A key by which a derived table groups beside the cluster key.

    Attributes:
        output: the name of its output in lower case, "" where it is none.
        values: more values than it has, NULL among them. None where that is not known.
    """

    output: str
    values: int | None


@dataclass(frozen=True, slots=True)
class Source:
    """One relation of the FROM clause. table: None for a derived table over static tables.

    nullable: an outer join may fill this source with NULLs. streams: it is sampled by this plan. is_derived:
    a derived table; with a layout, one whose rows lie in the partition of that layout's cluster key.
    key_columns: the columns of this source that hold the cluster key, none where it is not there.
    Of a derived table with a layout alone:
    block_alias: inside of it, the source whose blocks its groups have.
    columns: what is known of its columns (see `rewrite/units.py`).
    keys_beside: the keys by which it groups beside the cluster key.
    grouping_sets: how often it groups.
    """

    alias: str
    node: exp.Expr
    table: Table | None
    nullable: bool = False
    streams: bool = False
    is_derived: bool = False
    key_columns: tuple[str, ...] = ()
    block_alias: str = ""
    columns: tuple[Column, ...] = ()
    keys_beside: tuple[KeyBeside, ...] = ()
    grouping_sets: int = 1

    @property
    def layout(self) -> Layout:
        """Return the layout that is sampled: that of a source with a sampled table."""
        assert isinstance(self.table, Layout), f"{self.alias} is not laid out"
        return self.table

    def column(self, name: str) -> Column | None:
        """Return a column's statistics, with a NULL where this is nullable; None where nothing is known."""
        stored = self.table.columns if self.table is not None and not self.is_derived else self.columns
        found = next((c for c in stored if c.name.lower() == name.lower()), None)
        return replace(found, null_count=max(found.null_count, 1)) if found and self.nullable else found


@dataclass(frozen=True, slots=True)
class SharedValue:
    """The value of an inner stage as a column of every group. type: DuckDB's own.

    estimate: its expression over `basis`, the stage's merged columns under names of their own.
    """

    name: str
    stage: str
    type: str
    estimate: exp.Expr
    basis: tuple[BasisColumn, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A query on its way to a plan. Rules replace fields; a tree in a draft is never mutated once handed on.

    schema: (name, type) of the answer's columns, as DuckDB has them; () until a part's streams
    are chosen. names: those the query names, None for all (see `sql/columns.py`). state_bytes:
    what the merged state may take in memory, None for enough.
    is_qualified: the tree has no WITH, and its names are qualified (see `rewrite/normalize.py`).
    returns_rows: it has no aggregates. membership, bars, groups: the plan takes them over as they are.
    conjuncts: the conditions of WHERE and of inner joins, which all joined rows must meet. order:
    (expression, ascending, nulls first).
    """

    sql: str
    catalog: Catalog
    binder: Binder
    tree: exp.Query
    schema: tuple[tuple[str, str], ...]
    intervals: bool = True
    state_bytes: int | None = None
    names: frozenset[str] | None = None
    is_qualified: bool = False
    sources: tuple[Source, ...] = ()
    conjuncts: tuple[exp.Expr, ...] = ()
    keys: tuple[exp.Expr, ...] = ()
    # ROLLUP and the like: the positions of each grouping set's keys (see `rewrite/grouping.py`).
    grouping_sets: tuple[tuple[int, ...], ...] = ()
    # What COUNT(DISTINCT …) counts, where values of one group lie in several partitions.
    distinct: exp.Expr | None = None
    basis: tuple[BasisColumn, ...] = ()
    # The tree with aggregates and keys replaced by the columns of merged state: exact, then estimated.
    exact_tree: exp.Select | None = None
    estimate_tree: exp.Select | None = None
    outputs: tuple[OutputColumn, ...] = ()
    membership: MembershipRules = field(default_factory=MembershipRules)
    hoists: tuple[Hoist, ...] = ()
    # FROM and WHERE of the partial query, over stream tokens and hoists.
    scan: exp.Select | None = None
    # The same of the rows in the outlier index, where it is read; the scan then leaves them out.
    outlier_scan: exp.Select | None = None
    outlier_columns: tuple[str, ...] = ()
    may_read_outliers: bool = True
    heavy: HeavyGroups | None = None
    bars: ErrorBars = field(default_factory=ErrorBars)
    groups: GroupFacts = field(default_factory=GroupFacts)
    # Sampled tables that subqueries read within the outer row's own partition.
    local_tables: frozenset[str] = frozenset()
    # The aliases of the tables of members that EXISTS and IN ask (see `rewrite/sampling.py`).
    members: frozenset[str] = frozenset()
    # Whether a derived table may be read whole that groups a sampled table (see `rewrite/sampling.py`).
    may_read_derived_whole: bool = False
    returns_rows: bool = False
    # What quantiles and the like are in merged state.
    of_values: tuple[MergedValue, ...] = ()
    # The averages of moments among the aggregates.
    averaged_times: tuple[AveragedTime, ...] = ()
    notes: tuple[str, ...] = ()
    shared: tuple[SharedValue, ...] = ()

    @property
    def select(self) -> exp.Select:
        """The flattened query. Valid once `flatten` has run."""
        assert isinstance(self.tree, exp.Select)
        return self.tree

    @property
    def shared_basis(self) -> tuple[BasisColumn, ...]:
        return tuple(column for value in self.shared for column in value.basis)

    @property
    def shared_stages(self) -> tuple[str, ...]:
        return tuple(value.stage for value in self.shared)

    @property
    def streams(self) -> tuple[Source, ...]:
        return tuple(source for source in self.sources if source.streams)

    def members_in(self, node: exp.Expr) -> list[exp.Subquery]:
        """Return the tables of members below a node."""
        if not self.members:
            return []
        return [each for each in find_all(node, exp.Subquery) if each.alias in self.members]

    def column_of(self, column: exp.Column) -> Column | None:
        """Return the statistics of a column of a table in FROM, None where there are none."""
        source = next((each for each in self.sources if each.alias == column.table), None)
        return None if source is None else source.column(column.name)

    def source(self, alias: str) -> Source:
        return next(source for source in self.sources if source.alias == alias)


def aliases_in(expression: exp.Expr) -> frozenset[str]:
    """Return the source aliases whose columns occur in a qualified expression."""
    return frozenset(column.table for column in find_all(expression, exp.Column))


def as_table(query: exp.Query, name: str) -> exp.Subquery:
    """Return a query as a derived table with this name."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def with_children(node: exp.Expr, rewritten: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return the node with each of its children rewritten. In place."""
    for name, child in list(node.args.items()):
        if isinstance(child, list):
            node.set(name, [rewritten(each) if isinstance(each, exp.Expr) else each for each in child])
        elif isinstance(child, exp.Expr):
            node.set(name, rewritten(child))
    return node


def tables_in(expression: exp.Expr) -> tuple[exp.Table, ...]:
    return tuple(find_all(expression, exp.Table))


def without_brackets(node: exp.Expr) -> exp.Expr:
    """Return an expression without the brackets around it. A subquery keeps its own, which `unnest` takes."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def conjuncts_of(condition: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """Return the conditions that AND joins, without parentheses."""
    found: list[exp.Expr] = []
    pending = [] if condition is None else [condition]
    while pending:
        part = without_brackets(pending.pop())
        if isinstance(part, exp.And):
            pending += (part.right, part.left)
        else:
            found.append(part)
    return tuple(found)


ColumnPair = tuple[exp.Column, exp.Column]


def pairs_of(conditions: Iterable[exp.Expr]) -> list[ColumnPair]:
    """Return the columns of two sources that the conditions equate."""
    return [pair for condition in conditions if (pair := column_pair(condition))]


def column_pair(condition: exp.Expr) -> ColumnPair | None:
    """Return both sides of `a.x = b.y` between two sources, else None."""
    if not isinstance(condition, exp.EQ):
        return None
    left, right = condition.left.unnest(), condition.right.unnest()
    if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
        return left, right
    return None


def revive_rows(joins: Iterable[exp.Join]) -> bool:
    """Whether one of the joins brings back rows that a condition before it has left out.

    For example, a RIGHT JOIN keeps all its rows, and gives them NULLs where the row beside them is gone.
    """
    return any(join.side in ("RIGHT", "FULL") for join in joins)


def relates_all_rows(select: exp.Select) -> bool:
    """Whether what the SELECT returns of one group depends on others: on their rank, number or order."""
    distinct = select.args.get("distinct")
    parts = ("limit", "offset", "qualify", "windows", "sample", "pivots")
    return (
        any(select.args.get(part) for part in parts)
        or find_first(select, exp.Window) is not None
        or bool(distinct and distinct.args.get("on"))
    )


def own_nodes(expression: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the nodes of a kind that belong to this query, not to a subquery inside it."""
    return list(find_own(expression, kind))
