"""Which columns a query equates or groups by. Another layout could be clustered by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.layouts.manifest import Layout

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


def join_columns(tree: exp.Query, tables: Mapping[str, Layout]) -> JoinColumns:
    """Return the columns that a qualified query equates (by =, or by IN with a subquery) and groups by.

    An alias that means one table here and another there may be resolved to either. So what is found is to be
    tried out, not relied upon.

    `tables` are those that the query reads.
    """
    resolver = _Resolver(tree, tables)
    pairs = [*_equalities(tree), *_memberships(tree)]
    equated = [tuple(map(resolver.origin, pair)) for pair in pairs]
    keys = [key for group in tree.find_all(exp.Group) for key in group.expressions]
    grouped = [resolver.origin(key) for key in keys if isinstance(key, exp.Column)]
    return JoinColumns(
        equated=tuple(dict.fromkeys((a, b) for a, b in equated if a is not None and b is not None)),
        grouped=tuple(dict.fromkeys(column for column in grouped if column is not None)),
    )


class _Resolver:
    """Finds the table's column behind a column, through the derived tables that hand it on."""

    def __init__(self, tree: exp.Query, tables: Mapping[str, Layout]) -> None:
        names = {name.lower(): name for name in tables}
        self._columns: dict[tuple[str, str], TableColumn] = {}
        for table in tree.find_all(exp.Table):
            name = names.get(table.name.lower())
            for column in tables[name].columns if name is not None else ():
                self._columns[table.alias_or_name.lower(), column.name.lower()] = (name or "", column.name)
        self._derived = {
            node.alias.lower(): node.this
            for node in tree.find_all(exp.Subquery)
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
    for equality in tree.find_all(exp.EQ):
        left, right = equality.left.unnest(), equality.right.unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            yield left, right


def _memberships(tree: exp.Query) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield both columns of `outer IN (SELECT inner …)`."""
    for membership in tree.find_all(exp.In):
        query = membership.args.get("query")
        select = query.unnest() if query is not None else None
        if not isinstance(select, exp.Select) or len(select.expressions) != 1:
            continue
        outer, inner = membership.this.unnest(), select.expressions[0].unalias()
        if isinstance(outer, exp.Column) and isinstance(inner, exp.Column):
            yield outer, inner
