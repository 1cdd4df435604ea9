"""Tell the columns that measure from those that name: sums and ranks from the zones and days they are of.

Of a query that is estimated its plan knows that. This tells it of any other, from the tree that was parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.sql.aggregates import is_aggregate
from relaqs_engine.sql.parse import referenced_cte


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    measures: bool


def measures(tree: exp.Expr, names: Sequence[str]) -> tuple[bool, ...]:
    """Return whether each column of an answer measures: whether it has aggregates or windows in it.

    What a query groups by names its rows, whatever it is computed from. Without groups a column is what it is
    in the derived tables that it comes from, and a column of a table names.

    Args:
        tree: the query.
        names: of the answer's columns, in order.

    >>> import sqlglot
    >>> visits = "SELECT user, count(*) AS n FROM visits GROUP BY user"
    >>> sql = f"SELECT n, count(*) AS users FROM ({visits}) GROUP BY n"
    >>> measures(sqlglot.parse_one(sql, dialect="duckdb"), ["n", "users"])
    (False, True)
    """
    columns = _Reader().columns(tree)
    if len(columns) == len(names):
        return tuple(column.measures for column in columns)
    known = {column.name: column.measures for column in columns}  # a star hides how many columns there are
    return tuple(known.get(name.lower(), False) for name in names)


class _Reader:
    """Reads a tree, each query in it once."""

    def __init__(self) -> None:
        self._read: dict[int, list[_Column]] = {}

    def columns(self, query: exp.Expr) -> list[_Column]:
        """Return the columns of a query, but those of a table that stand behind a star."""
        if id(query) not in self._read:
            self._read[id(query)] = []  # what reads itself measures nothing by that
            self._read[id(query)] = list(self._columns(query))
        return self._read[id(query)]

    def _columns(self, query: exp.Expr) -> Iterator[_Column]:
        if isinstance(query, exp.Subquery):
            yield from self.columns(query.this)
        elif isinstance(query, exp.SetOperation):
            yield from self.columns(query.left)
        elif isinstance(query, exp.Select):
            computed = [_computed(item, query) for item in query.expressions]
            has_groups = query.args.get("group") is not None or any(map(any, map(_groups, computed)))
            passed_on = list(self._passed_on(query))
            for item, nodes in zip(query.expressions, computed, strict=True):
                value = item.unalias()
                is_star = isinstance(value, exp.Star) or isinstance(value.this, exp.Star)
                if is_star and isinstance(value, exp.Star | exp.Column):
                    table = value.text("table").lower()
                    yield from (column for source, column in passed_on if table in ("", source))
                else:
                    is_measure = bool(nodes) or self._holds(value)
                    if not is_measure and not has_groups:
                        is_measure = any(_is(column, passed_on) for column in value.find_all(exp.Column))
                    yield _Column(item.alias_or_name.lower(), is_measure)

    def _holds(self, value: exp.Expr) -> bool:
        """Whether a query inside of a value measures."""
        return any(column.measures for inner in value.find_all(exp.Query) for column in self.columns(inner))

    def _passed_on(self, query: exp.Select) -> Iterator[tuple[str, _Column]]:
        """Yield what the derived tables of a SELECT have, each with the name of its table."""
        from_ = query.args.get("from_")
        read = [from_.this, *(join.this for join in query.args.get("joins") or [])] if from_ else []
        for source in read:
            cte = referenced_cte(source) if isinstance(source, exp.Table) else None
            inner, alias = (source, source) if cte is None else (cte.this, cte)
            names = [name.lower() for name in alias.alias_column_names]
            for place, column in enumerate(self.columns(inner)):
                name = names[place] if place < len(names) else column.name
                yield source.alias_or_name.lower(), _Column(name, column.measures)


def _computed(value: exp.Expr, query: exp.Select) -> list[exp.Expr]:
    """Return the aggregates and windows in a value, other than those of queries inside of it."""
    return [
        node
        for node in value.find_all(exp.Expression)
        if (is_aggregate(node) or isinstance(node, exp.Window)) and node.parent_select is query
    ]


def _groups(computed: Sequence[exp.Expr]) -> Iterator[bool]:
    """Yield whether each node makes groups of the rows, as an aggregate does that is no window's."""
    for node in computed:
        call = node
        while isinstance(call.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            call = call.parent
        is_windows = isinstance(call.parent, exp.Window) and call.arg_key == "this"
        yield not is_windows and not isinstance(node, exp.Window)


def _is(column: exp.Column, passed_on: Sequence[tuple[str, _Column]]) -> bool:
    """Whether a column is one of a derived table that measures."""
    name, table = column.name.lower(), column.table.lower()
    return any(
        passed.measures and passed.name == name and table in ("", source) for source, passed in passed_on
    )
