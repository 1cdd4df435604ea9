"""Aggregate first, where answers that are not known yet decide which rows count.

    SELECT zone, sum(fare) FROM trips WHERE driver IN (SELECT driver FROM … GROUP BY driver) GROUP BY zone

Rows with the same driver stay together or go together. So they are summed before that is known:

    SELECT zone, sum(value_0)
    FROM (SELECT zone, driver, sum(fare) AS value_0 FROM trips GROUP BY zone, driver)
    WHERE driver IN (SELECT driver FROM … GROUP BY driver)
    GROUP BY zone

The same goes for joins with derived tables. Rows that agree in the columns of the join's condition meet the
same rows, each as often as the others. So sums, counts, averages, minima and maxima merge. What is aggregated
first is a part of its own (`rewrite/carve.py`), and is estimated like any other. A LEFT JOIN keeps its
condition: groups that meet no row stay, as their rows would.

The decision: docs/decisions/0045-decided-later.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.rewrite.above import Above
from relaqs_engine.rewrite.draft import aliases_in, conjuncts_of, own_nodes, tables_in
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.aggregates import Merge, call_of


def before_it_is_decided(
    query: exp.Select, is_sampled: Callable[[str], bool], first: str
) -> exp.Select | None:
    """Return an aggregation as one over finer groups. None where nothing else decides about its rows.

    Args:
        query: its outputs are group keys and aggregates. It has no subquery in HAVING.
        is_sampled: whether the table of a name is sampled.
        first: the name of the finer groups, which no other table has.

    >>> import sqlglot
    >>> where = "t.km > 9 AND t.driver IN (SELECT b.driver FROM b)"
    >>> sql = f"SELECT t.zone AS zone, SUM(t.fare) AS fare FROM t WHERE {where} GROUP BY t.zone"
    >>> tree = sqlglot.parse_one(sql, dialect="duckdb")
    >>> found = before_it_is_decided(tree, lambda table: True, "relaqs_first")
    >>> print(found.sql("duckdb", pretty=True).replace('"', ""))
    SELECT
      relaqs_first.key_0 AS zone,
      SUM(relaqs_first.value_0) AS fare
    FROM (
      SELECT
        t.zone AS key_0,
        t.driver AS key_1,
        SUM(t.fare) AS value_0
      FROM t
      WHERE
        t.km > 9
      GROUP BY
        t.zone,
        t.driver
    ) AS relaqs_first
    WHERE
      relaqs_first.key_1 IN (
        SELECT
          b.driver
        FROM b
      )
    GROUP BY
      relaqs_first.key_0
    """
    rows = _rows_of(query, is_sampled)
    if rows is None or not (rows.others or rows.undecided):
        return None
    keys, sets = group_keys(query)
    plain = keys[:-1] if sets else keys
    above = _AboveFirst(_finer_keys(rows, plain), rows.aliases, first, may_be_empty=bool(sets) or not keys)
    items = [exp.alias_(above.visit(item.unalias()), item.alias, quoted=True) for item in query.expressions]
    merged = exp.Select(expressions=items)
    for part in ("group", "having"):
        if (value := query.args.get(part)) is not None:
            merged.set(part, above.visit(value))
    if above.partials is None or not above.keys:
        return None
    return _joined(merged, rows, above)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What an aggregation reads.

    Attributes:
        first: the tables that are aggregated first.
        known: the conditions about those alone.
        others: the joins of all other tables, in their order.
        undecided: the conditions of WHERE and of inner joins that are not known.
    """

    first: tuple[exp.Expr, ...]
    known: tuple[exp.Expr, ...]
    others: tuple[exp.Join, ...]
    undecided: tuple[exp.Expr, ...]

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(source.alias_or_name for source in self.first)

    @property
    def deciding(self) -> tuple[exp.Expr, ...]:
        """The conditions that say which rows meet, and which count."""
        return (*self.undecided, *(on for join in self.others if (on := join.args.get("on"))))


def _rows_of(query: exp.Select, is_sampled: Callable[[str], bool]) -> _Rows | None:
    """Return what is known of a query's rows, None where its joins are not plain."""
    from_ = query.args.get("from_")
    joins: list[exp.Join] = query.args.get("joins") or []
    if from_ is None or not all(map(_is_plain, joins)):
        return None
    sources = {source.alias_or_name: source for source in (from_.this, *(join.this for join in joins))}
    where = query.args.get("where")
    left = {join.this.alias_or_name: join for join in joins if join.side == "LEFT"}
    conditions = [join.args.get("on") for join in joins if not join.side] + [where.this if where else None]
    conjuncts = [each for condition in conditions for each in conjuncts_of(condition)]

    def reads_sample(node: exp.Expr) -> bool:
        found = (table for table in tables_in(node) if isinstance(table.this, exp.Identifier))
        return any(is_sampled(table.name) for table in found)

    can_be_first = [
        alias
        for alias, each in sources.items()
        if alias not in left and (isinstance(each, exp.Table) or not reads_sample(each))
    ]
    decided = [each for each in conjuncts if not any(map(reads_sample, own_nodes(each, exp.Query)))]
    sampled = [alias for alias in can_be_first if reads_sample(sources[alias])]
    if not can_be_first:
        return None
    first = _connected((sampled or can_be_first)[0], can_be_first, decided)
    known = [each for each in decided if _outside(each) and _outside(each) <= first]
    return _Rows(
        tuple(source for alias, source in sources.items() if alias in first),
        tuple(known),
        tuple(
            left.get(alias, exp.Join(this=source, kind="CROSS"))
            for alias, source in sources.items()
            if alias not in first
        ),
        tuple(each for each in conjuncts if each not in known),
    )


def _is_plain(join: exp.Join) -> bool:
    """Whether a join is an inner one or a LEFT JOIN, and says by ON what it compares."""
    if join.method or join.args.get("using"):
        return False
    if join.side == "LEFT":
        on = join.args.get("on")
        return on is not None and on.find(exp.Query) is None
    return not join.side and join.kind in _PLAIN


_PLAIN = ("", "INNER", "CROSS")


def _connected(start: str, aliases: Sequence[str], conditions: Sequence[exp.Expr]) -> frozenset[str]:
    """Return the sources that conditions lead to from the first one."""
    found = {start}
    about = [_outside(each) for each in conditions]
    while more := [each for each in about if found & each < each and each <= set(aliases)]:
        found = found.union(*more)
    return frozenset(found)


def _outside(condition: exp.Expr) -> frozenset[str]:
    """Return the sources that a condition names, but for those of its subqueries."""
    return frozenset(column.table for column in _own_columns(condition))


def _finer_keys(rows: _Rows, keys: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return what tells the groups apart that are aggregated first."""
    found: list[exp.Expr] = []
    for key in keys:
        own = aliases_in(key)
        is_first = bool(own) and own <= rows.aliases and key.find(exp.Query) is None
        found += [key] if is_first else list(_columns_of(key, rows.aliases))
    for condition in rows.deciding:
        found += _columns_of(condition, rows.aliases)
    return [each.copy() for each in dict.fromkeys(found)]


def _columns_of(condition: exp.Expr, aliases: frozenset[str]) -> Iterator[exp.Column]:
    """Yield the columns of some sources that an expression names."""
    return (column for column in _own_columns(condition) if column.table in aliases)


def _own_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """Yield an expression's columns. Of those in its subqueries only the outer ones are among them."""
    for column in own_nodes(condition, exp.Column):
        assert isinstance(column, exp.Column)
        yield column
    for query in own_nodes(condition, exp.Query):
        yield from outer_columns(query)


class _AboveFirst(Above):
    """Rewrites what stands above the groups that are aggregated first."""

    def __init__(
        self, keys: Sequence[exp.Expr], aliases: frozenset[str], table: str, *, may_be_empty: bool
    ) -> None:
        super().__init__(keys, table, may_be_empty=may_be_empty)
        self._aliases = aliases

    def visit(self, node: exp.Expr) -> exp.Expr:
        """Return the expression. Minima and maxima of other tables stay: no row counts twice in them."""
        if isinstance(node, exp.Grouping | exp.GroupingId | exp.Query):
            return super().visit(node)
        if isinstance(node, exp.Filter | exp.AggFunc) and not aliases_in(node) <= self._aliases:
            call = call_of(node)
            is_extreme = call is not None and call.merge in (Merge.MIN, Merge.MAX)
            if not is_extreme or aliases_in(node) & self._aliases:
                self.partials = None
            return node.copy()
        return super().visit(node)

    def over(self, condition: exp.Expr) -> exp.Expr:
        """Return a condition over the groups."""
        holder = exp.paren(condition)
        for column in list(_columns_of(holder, self._aliases)):
            column.replace(exp.column(f"key_{self.keys.index(column)}", self.table, quoted=True))
        found: exp.Expr = holder.this
        return found


def _joined(merged: exp.Select, rows: _Rows, above: _AboveFirst) -> exp.Select:
    """Return the query over the groups, with the tables and conditions that decide about them."""
    first = exp.Select(expressions=above.outputs())
    first.set("from_", exp.From(this=rows.first[0].copy()))
    first.set("joins", [exp.Join(this=source.copy(), kind="CROSS") for source in rows.first[1:]])
    first = first.where(*(each.copy() for each in rows.known))
    if above.keys:
        first.set("group", exp.Group(expressions=[key.copy() for key in above.keys]))
    merged = merged.from_(first.subquery(above.table))
    joins = [join.copy() for join in rows.others]
    for join in joins:
        if on := join.args.get("on"):
            join.set("on", above.over(on.copy()))
    merged.set("joins", joins)
    return merged.where(*(above.over(each) for each in rows.undecided))
