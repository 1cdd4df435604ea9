"""Which types parameters have, from where they stand: clients of Postgres ask before they give values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.postgres.wording import without_postgres_words
from relaqs_engine.sql.aggregates import Merge, call_of
from relaqs_engine.sql.parse import DIALECT
from relaqs_engine.sql.read import Effort, read_statements

_WRAPPERS = (exp.Paren, exp.Any, exp.All, exp.Tuple)


_Columns: TypeAlias = Mapping[tuple[str, str], str]
"""Types by a table's name or alias and the column's name, both in lower case. "" stands for any table."""


def parameter_types(sql: str, tables: Mapping[str, Mapping[str, str]]) -> dict[int, str]:
    """Return DuckDB's types of parameters `$1`, by place, as far as the text tells them.

    A parameter has the type that it is cast to, or that of the column it is compared with. Beside LIMIT and
    OFFSET it is a whole number.

    Args:
        sql: one statement. Of one that does not parse nothing is known.
        tables: names → columns → types, names in lower case. A column's name that stands for two types in the
            tables that the statement reads tells nothing.

    >>> parameter_types("SELECT $1::DATE FROM t WHERE fare < $2 AND zone = ANY($3) LIMIT $4",
    ...     {"t": {"fare": "DOUBLE", "zone": "INTEGER"}, "u": {"fare": "DATE"}})
    {1: 'DATE', 2: 'DOUBLE', 3: 'INTEGER[]', 4: 'BIGINT'}
    """
    try:
        trees = read_statements(without_postgres_words(sql), Effort())
    except SqlError:
        return {}
    found: dict[int, str] = {}
    for tree in trees:
        columns = _columns_of(tree, tables)
        for node, place in _parameters(tree):
            type_ = _type_of_place(node, columns)
            if type_ is not None:
                found.setdefault(place, type_)
    return dict(sorted(found.items()))


def _columns_of(tree: exp.Expr, tables: Mapping[str, Mapping[str, str]]) -> _Columns:
    """Return the columns of the tables that a statement reads; of all tables where it reads a view."""
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = [each for each in tree.find_all(exp.Table) if each.name.lower() not in named]
    sources = {(each.alias_or_name.lower(), each.name.lower()) for each in read}
    if not all(name in tables for _, name in sources):
        sources |= {(name, name) for name in tables}
    found: dict[tuple[str, str], set[str]] = {}
    for alias, name in sources:
        for column, type_ in tables.get(name, {}).items():
            found.setdefault((alias, column), set()).add(type_)
            found.setdefault(("", column), set()).add(type_)
    return {key: next(iter(types)) for key, types in found.items() if len(types) == 1}


def _parameters(tree: exp.Expr) -> Iterator[tuple[exp.Expr, int]]:
    for node in tree.find_all(exp.Parameter, exp.Placeholder):
        name = node.name or (node.this.name if isinstance(node.this, exp.Expr) else "")
        if name.isdecimal():
            yield node, int(name)


def _type_of_place(node: exp.Expr, columns: _Columns) -> str | None:
    child, parent = node, node.parent
    is_list = False
    while isinstance(parent, _WRAPPERS):
        is_list = is_list or isinstance(parent, exp.Any | exp.All)
        child, parent = parent, parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.sql(DIALECT)
    if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
        return "BIGINT"
    if isinstance(parent, exp.Like | exp.ILike):
        return "VARCHAR"
    if isinstance(parent, exp.Binary | exp.Between | exp.In):
        others = [each for each in parent.iter_expressions() if each is not child]
        known = next(filter(None, (_type_of_value(each, columns) for each in others)), None)
        return f"{known or 'VARCHAR'}[]" if is_list else known
    return None


def _type_of_value(node: exp.Expr, columns: _Columns) -> str | None:
    match node:
        case exp.Paren():
            return _type_of_value(node.this, columns)
        case exp.Column():
            name = node.name.lower()
            return columns.get((node.table.lower(), name)) or columns.get(("", name))
        case exp.Cast():
            return node.to.sql(DIALECT)
        case exp.Literal():
            return "VARCHAR" if node.is_string else "BIGINT" if node.is_int else "DOUBLE"
        case exp.AggFunc():
            return _type_of_aggregate(node, columns)
        case exp.Lower() | exp.Upper() | exp.Substring() | exp.Concat():
            return "VARCHAR"
        case exp.Binary() if not isinstance(node, exp.Predicate):
            return _type_of_value(node.this, columns) or _type_of_value(node.expression, columns)
    return None


def _type_of_aggregate(node: exp.AggFunc, columns: _Columns) -> str | None:
    call = call_of(node)
    match None if call is None else call.law.merge:
        case Merge.COUNT:
            return "BIGINT"
        case Merge.MIN | Merge.MAX:
            return _type_of_value(node.this, columns)
        case Merge.TOTAL | Merge.MEAN:
            return "DOUBLE"
    return None
