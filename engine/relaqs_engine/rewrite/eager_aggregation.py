"""Aggregate below a join, a condition or a UNION ALL, and merge the results above (Yan and Larson 1995).

Aggregates that are merged from those of finer groups, or of parts of the rows.

    SELECT k, avg(v) FROM t GROUP BY k

The average over groups that a query below has made of `t` is `sum(value_0) / sum(value_1)`, where those
are `sum(v)` and `count(v)` of each group. Some functions have no such merge. COUNT(DISTINCT v) has one
where `v` is a key of the groups below: its values are all there, to be counted above.

**Below what is not decided**, where answers that are not known yet decide which rows count:

    SELECT zone, sum(fare) FROM trips WHERE driver IN (SELECT driver FROM … GROUP BY driver) GROUP BY zone

Rows with the same driver stay together or go together. So they are summed before that is known:

    SELECT zone, sum(value_0)
    FROM (SELECT zone, driver, sum(fare) AS value_0 FROM trips GROUP BY zone, driver)
    WHERE driver IN (SELECT driver FROM … GROUP BY driver)
    GROUP BY zone

The same goes for joins with derived tables. Rows that agree in the columns of the join's condition meet
the same rows, each as often as the others. So sums, counts, averages, minima and maxima merge. What is
aggregated first is a part of its own (`rewrite/split.py`), and is estimated like any other. A LEFT JOIN
keeps its condition: groups that meet no row stay, as their rows would.

The decision: docs/decisions/0045-decided-later.md.

**Below a UNION ALL**, each of its branches becomes an aggregation of its own.

    SELECT k, avg(v) FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) GROUP BY k

A join with other tables goes below as well, because the rows of a branch join without those of the others.
So does WHERE. What is left above adds up the branches' sums.

**Disjoint sides.** Whether the sides of a UNION have no row in common, so that it is a UNION ALL.

    SELECT zone, 0 AS level, sum(km) … GROUP BY zone UNION SELECT NULL, 1, sum(km) …

Subtotals are often written like this. No side has a row twice, because its group keys are among its
columns. No two sides share a row, because their constants differ. So UNION drops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from sqlglot import exp

from relaqs_engine.rewrite.draft import (
    aliases_in,
    conjuncts_of,
    own_nodes,
    relates_all_rows,
    tables_in,
    with_children,
)
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.normalize import with_explicit_keys
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.aggregate_laws import Merge, call_of, is_aggregate
from relaqs_engine.sql.dialect import find_first

# What combines the values of groups below. The others have no such merge, or one of several columns.
_COMBINED_BY_ITSELF = (
    *(Merge.TOTAL, Merge.MIN, Merge.MAX, Merge.ANY),
    *(Merge.BIT_AND, Merge.BIT_OR, Merge.BIT_XOR),
)


class Above:
    """Rewrites what stands above groups, and collects what those have to give: keys, and partials.

    Attributes:
        keys: the expressions that groups below have.
        table: the name of the table of these groups.
        may_be_empty: whether the query has a row although there is no group below. A count is 0 then.
        partials: the aggregates of each group below. None where one of the query's has no merge.
    """

    def __init__(self, keys: Sequence[exp.Expr], table: str, *, may_be_empty: bool) -> None:
        self.keys = keys
        self.table = table
        self.may_be_empty = may_be_empty
        self.partials: list[exp.Expr] | None = []

    def visit(self, node: exp.Expr) -> exp.Expr:
        """Return the expression with the groups' columns in the place of keys and aggregates."""
        if node in self.keys:
            return exp.column(f"key_{self.keys.index(node)}", self.table, quoted=True)
        if is_aggregate(node):
            return self._merged(node)
        if isinstance(node, exp.Query):
            return self._asking_about_groups(node)
        return with_children(node.copy(), self.visit)

    def around(self, query: exp.Select) -> exp.Select:
        """Return the outputs, the groups and HAVING of a query, over the groups below."""
        visited = ((item.alias, self.visit(item.unalias())) for item in query.expressions)
        merged = exp.Select(expressions=[exp.alias_(value, name, quoted=True) for name, value in visited])
        for part in ("group", "having"):
            if (value := query.args.get(part)) is not None:
                merged.set(part, self.visit(value))
        return merged

    def _asking_about_groups(self, query: exp.Query) -> exp.Query:
        """Return a subquery with keys in the place of the columns outside that it depends on."""
        query = query.copy()
        for column in outer_columns(query):
            if column in self.keys:
                column.replace(exp.column(f"key_{self.keys.index(column)}", self.table, quoted=True))
            else:
                self.partials = None
        return query

    def outputs(self) -> list[exp.Expr]:
        keys = [exp.alias_(key.copy(), f"key_{i}", quoted=True) for i, key in enumerate(self.keys)]
        values = self.partials or ()
        return keys + [exp.alias_(each.copy(), f"value_{i}", quoted=True) for i, each in enumerate(values)]

    def _merged(self, node: exp.Expr) -> exp.Expr:
        call = call_of(node)
        if call is None or call.order:
            self.partials = None
            return exp.Null()
        if call.merge is Merge.UNIQUE and call.arguments[0] in self.keys and call.condition is None:
            return exp.Count(this=exp.Distinct(expressions=[self.visit(call.arguments[0])]))
        if call.merge in _COMBINED_BY_ITSELF:
            return type(call.node)(this=self._partial(node))
        if call.merge is Merge.COUNT:
            return self._count(exp.Sum(this=self._partial(node)))
        if call.merge is Merge.MEAN:
            total, count = (
                self._partial(_with_call(node, kind(this=call.arguments[0].copy())))
                for kind in (exp.Sum, exp.Count)
            )
            nothing = exp.Nullif(this=exp.Sum(this=count), expression=exp.Literal.number(0))
            return exp.paren(exp.Div(this=exp.Sum(this=total), expression=nothing))
        self.partials = None
        return exp.Null()

    def _count(self, total: exp.Expr) -> exp.Expr:
        return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)]) if self.may_be_empty else total

    def _partial(self, node: exp.Expr) -> exp.Expr:
        if self.partials is None:
            return exp.Null()
        if node not in self.partials:
            self.partials.append(node.copy())
        return exp.column(f"value_{self.partials.index(node)}", self.table, quoted=True)


def _with_call(node: exp.Expr, call: exp.Expr) -> exp.Expr:
    """Return the aggregate with another function, and with its FILTER."""
    if not isinstance(node, exp.Filter):
        return call
    return exp.Filter(this=call, expression=node.expression.copy())


MOST_BRANCHES = 16
_UNION = "relaqs_union"


def below_union(query: exp.Select, types_of: Callable[[exp.Query], Sequence[str]]) -> exp.Select | None:
    """Return an aggregation over a UNION ALL as one over the branches' aggregates. None where it is not one.

    Args:
        query: its outputs are group keys and aggregates.
        types_of: gives the types of a query's columns.

    >>> rows = "SELECT a.k AS k, a.v AS v FROM a UNION ALL SELECT b.j AS j, b.w AS w FROM b"
    >>> sql = f"SELECT u.k AS zone, AVG(u.v) AS mean FROM ({rows}) AS u GROUP BY u.k"
    >>> found = below_union(sqlglot.parse_one(sql, dialect="duckdb"), lambda query: ["INTEGER", "INTEGER"])
    >>> print(found.sql("duckdb").replace('"', ""))
    SELECT relaqs_union.key_0 AS zone,
      (SUM(relaqs_union.value_0) / NULLIF(SUM(relaqs_union.value_1), 0)) AS mean
    FROM (SELECT u.k AS key_0, SUM(u.v) AS value_0, COUNT(u.v) AS value_1
        FROM (SELECT a.k AS k, a.v AS v FROM a) AS u GROUP BY u.k
      UNION ALL
        SELECT u.k AS key_0, SUM(u.v) AS value_0, COUNT(u.v) AS value_1
        FROM (SELECT b.j AS k, b.w AS v FROM b) AS u GROUP BY u.k) AS relaqs_union
    GROUP BY relaqs_union.key_0
    """
    union = _union_of(query)
    if union is None:
        return None
    branches = _branches(union.this)
    if not branches or len(branches) > MOST_BRANCHES:
        return None
    keys, sets = group_keys(query)
    above = Above(keys[:-1] if sets else keys, _UNION, may_be_empty=bool(sets))
    merged = above.around(query)
    if above.partials is None:
        return None
    names, types = union.this.named_selects, types_of(union.this)
    inner = [
        _aggregated(query, union, _with_names(branch, names, types_of(branch), types), above)
        for branch in branches
    ]
    both: exp.Query = inner[0]
    for branch in inner[1:]:
        both = exp.union(both, branch, distinct=False, copy=False)
    return merged.from_(exp.Subquery(this=both, alias=exp.TableAlias(this=exp.to_identifier(_UNION))))


def _union_of(query: exp.Select) -> exp.Subquery | None:
    """Return the first UNION ALL of the FROM whose rows join without those of the others, None if none do."""
    from_ = query.args.get("from_")
    joins: list[exp.Join] = query.args.get("joins") or []
    if from_ is None or any(_needs_all_rows(join) for join in joins):
        return None
    kept = [from_.this, *(join.this for join in joins if not join.side)]
    return next((source for source in kept if _is_union(source)), None)


def _needs_all_rows(join: exp.Join) -> bool:
    return (
        bool(join.method) or join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER")
    )


def _is_union(source: exp.Expr) -> bool:
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Union):
        return False
    alias = source.args.get("alias")
    return not (alias and alias.columns) and not source.args.get("sample") and not source.args.get("pivots")


def _branches(query: exp.Expr) -> list[exp.Select]:
    """Return the branches of a UNION ALL, an empty list where one of them is not made of single rows."""
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(query, exp.Select):
        return [] if _relates_rows(query) else [query]
    whole = any(query.args.get(part) for part in ("distinct", "by_name", "order", "limit", "offset"))
    if not isinstance(query, exp.Union) or whole:
        return []
    left, right = _branches(query.this), _branches(query.expression)
    return left + right if left and right else []


def _relates_rows(select: exp.Select) -> bool:
    several = (exp.AggFunc, exp.UDTF, exp.Explode)
    if any(own_nodes(item, kind) for item in select.expressions for kind in several):
        return True
    grouped = any(select.args.get(part) for part in ("group", "having", "distinct"))
    sources = [select.args.get("from_"), *(join.this for join in select.args.get("joins") or [])]
    of_groups = any(source is not None and find_first(source, exp.Group, exp.AggFunc) for source in sources)
    return grouped or of_groups or relates_all_rows(select)


def _with_names(
    branch: exp.Select, names: Sequence[str], own: Sequence[str], types: Sequence[str]
) -> exp.Select:
    """Return the branch with the names of the first one's columns, and the types of the whole union's."""
    branch = branch.copy()
    items = []
    for item, name, type_, common in zip(branch.expressions, names, own, types, strict=True):
        value = item.unalias()
        items.append(exp.alias_(value if type_ == common else exp.cast(value, common), name, quoted=True))
    branch.set("expressions", items)
    return branch


def _aggregated(query: exp.Select, union: exp.Subquery, branch: exp.Select, above: Above) -> exp.Select:
    """Return the branch's part of the aggregation: its keys and partials, with the query's joins and WHERE.

    The branch comes first in FROM, where a derived table with joins of its own can be taken apart.
    """
    inner = exp.Select(expressions=above.outputs())
    joins, first = [join.copy() for join in query.args.get("joins") or []], query.args["from_"].this.copy()
    if (where := query.args.get("where")) is not None:
        inner.set("where", where.copy())
    if own := next((join for join in joins if join.this == union), None):
        joins.remove(own)
        joins.insert(0, exp.Join(this=first))
        inner = inner.where(own.args.get("on"), copy=False)
    inner.set("from_", exp.From(this=exp.Subquery(this=branch, alias=union.args["alias"].copy())))
    inner.set("joins", joins)
    if above.keys:
        inner.set("group", exp.Group(expressions=[key.copy() for key in above.keys]))
    return inner


_EXACT_DIGITS = 15  # of a whole number that a double holds
TypesOf: TypeAlias = Callable[[exp.Query], Sequence[str]]


def without_distinct(query: exp.SetOperation, types_of: TypesOf) -> None:
    """Make a UNION whose sides have no row in common a UNION ALL. In place.

    `types_of` gives the types of a query's columns.
    """
    if isinstance(query, exp.Union) and query.args.get("distinct") and sides_are_apart(query, types_of):
        _keep_all(query)


def _keep_all(query: exp.Expr) -> None:
    if isinstance(union := query.unnest(), exp.Union):
        union.set("distinct", False)
        _keep_all(union.this)
        _keep_all(union.expression)


def sides_are_apart(query: exp.Union, types_of: TypesOf) -> bool:
    """Whether a UNION of plain SELECTs, qualified, could as well be a UNION ALL."""
    sides = _sides(query)
    if sides is None or not all(_rows_differ(side, query, types_of) for side in sides):
        return False
    values = [[_value(item.unalias(), side) for item in side.expressions] for side in sides]
    return all(any(map(_differ, one, two)) for one, two in combinations(values, 2))


def _rows_differ(side: exp.Select, query: exp.Union, types_of: TypesOf) -> bool:
    """Whether no two rows of a side are alike, also in the types that the whole UNION gives them."""
    identity = _identity(side)
    if identity is None:
        return False
    columns = zip(side.expressions, types_of(side), types_of(query), strict=True)
    return all(own == common for item, own, common in columns if item.alias_or_name.lower() in identity)


def _value(item: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return an output's expression, that of the derived table where it only hands a column on."""
    inner = _derived(select)
    if not isinstance(item, exp.Column) or inner is None:
        return item
    found = (each for each in inner.expressions if each.alias_or_name.lower() == item.name.lower())
    return next((_value(each.unalias(), inner) for each in found), item)


def _derived(select: exp.Select) -> exp.Select | None:
    """Return the query of the one derived table that is all of FROM, None where FROM has more."""
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or not isinstance(from_.this, exp.Subquery):
        return None
    return from_.this.this if isinstance(from_.this.this, exp.Select) else None


def _sides(query: exp.Expr) -> list[exp.Select] | None:
    """Return the SELECTs of a set operation made of UNION and UNION ALL, None where it has others."""
    query = query.unnest()
    if isinstance(query, exp.Select):
        limited = any(query.args.get(part) for part in ("limit", "offset"))
        return None if limited else [query]
    parts = ("by_name", "order", "limit", "offset")
    if not isinstance(query, exp.Union) or any(query.args.get(part) for part in parts):
        return None
    left, right = _sides(query.this), _sides(query.expression)
    return None if left is None or right is None else left + right


def _identity(select: exp.Select) -> frozenset[str] | None:
    """Return output columns by which the rows of a query differ, None where rows may be alike."""
    if find_first(select, exp.UDTF, exp.Explode):
        return None
    select = with_explicit_keys(select)
    names = {item.unalias(): item.alias_or_name.lower() for item in select.expressions}
    if (group := select.args.get("group")) is not None:
        plain = all(
            not isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in group.expressions
        )
        plain &= not any(group.args.get(part) for part in ("rollup", "cube", "grouping_sets", "all"))
        found = [names.get(key) for key in group.expressions]
        return frozenset(filter(None, found)) if plain and all(found) else None
    if any(own_nodes(item, exp.AggFunc) for item in select.expressions) and not find_first(
        select, exp.Window
    ):
        return frozenset()
    inner = _derived(select)
    below = None if inner is None else _identity(inner)
    if below is None:
        return None
    columns = {value.name.lower(): name for value, name in names.items() if isinstance(value, exp.Column)}
    return frozenset(columns[name] for name in below) if below <= columns.keys() else None


def _differ(one: exp.Expr, two: exp.Expr) -> bool:
    """Whether two constants are not the same. Only whole numbers, text and NULL are compared."""
    kinds = [_kind(one), _kind(two)]
    if "" in kinds:
        return False
    if kinds[0] != kinds[1]:
        return "null" in kinds
    if kinds[0] == "number":
        return int(one.this) != int(two.this)
    return kinds[0] == "text" and one.this.casefold() != two.this.casefold()


def _kind(node: exp.Expr) -> str:
    if isinstance(node, exp.Null):
        return "null"
    if isinstance(node, exp.Literal):
        is_whole = node.this.isdecimal() and len(node.this) <= _EXACT_DIGITS
        return "text" if node.is_string else "number" if is_whole else ""
    return ""


def before_it_is_decided(
    query: exp.Select, is_sampled: Callable[[str], bool], first: str
) -> exp.Select | None:
    """Return an aggregation as one over finer groups. None where nothing else decides about its rows.

    Args:
        query: its outputs are group keys and aggregates. It has no subquery in HAVING.
        is_sampled: whether the table of a name is sampled.
        first: the name of the finer groups, which no other table has.
    """
    rows = _rows_of(query, is_sampled)
    if rows is None or not (rows.others or rows.undecided):
        return None
    keys, sets = group_keys(query)
    plain = keys[:-1] if sets else keys
    above = _AboveFirst(_finer_keys(rows, plain), rows.aliases, first, may_be_empty=bool(sets) or not keys)
    merged = above.around(query)
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
        return on is not None and find_first(on, exp.Query) is None
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
        is_first = bool(own) and own <= rows.aliases and find_first(key, exp.Query) is None
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
