"""COLUMNS(…) among the outputs of a query, written out as the columns that DuckDB takes it for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from relaqs_engine.sql.dialect import DIALECT

_OF_ANY_NUMBER = (exp.Coalesce, exp.Greatest, exp.Least)
_OF_ANY_NUMBER_IN_A_LIST = (*_OF_ANY_NUMBER, exp.Anonymous, exp.Array, exp.Concat, exp.In)

Describe = Callable[[str], Sequence[tuple[str, str]]]


def columns_written_out(tree: exp.Query, describe: Describe) -> exp.Query:
    """Return the query with one output for each column that a COLUMNS(…) stands for.

    *COLUMNS(…) stands for all of its columns at once, as arguments of one function. It is the same query,
    unchanged, where COLUMNS(…) stands elsewhere than among the outputs of the outermost SELECT, as in a
    subquery there, or where two tables have a column of one name.

    Args:
        tree: the query.
        describe: gives the names and types of a query's columns, as DuckDB's binder has them.

    >>> import sqlglot
    >>> from relaqs_engine.planning.example import CATALOG
    >>> from relaqs_engine.sql.binder import Binder
    >>> query = sqlglot.parse_one("SELECT avg(COLUMNS('km|fare')) FROM trips", dialect="duckdb")
    >>> print(columns_written_out(query, Binder(CATALOG).describe).sql())
    SELECT AVG("km") AS "km", AVG("fare") AS "fare" FROM trips
    >>> sql = "SELECT max(greatest(*COLUMNS('km|fare'))) AS m FROM trips"
    >>> query = sqlglot.parse_one(sql, dialect="duckdb")
    >>> print(columns_written_out(query, Binder(CATALOG).describe).sql("duckdb"))
    SELECT MAX(GREATEST("km", "fare")) AS "m" FROM trips
    """
    if not isinstance(tree, exp.Select) or tree.find(exp.Columns) is None:
        return tree
    items = []
    for item in tree.expressions:
        found = list(item.find_all(exp.Columns))
        if not found:
            items.append(item)
            continue
        if any(each.parent_select is not tree for each in found):
            return tree
        if all(each.args.get("unpack") for each in found):
            if (spread := _spread(tree, item, describe)) is None:
                return tree
            items.append(spread)
            continue
        if any(each != found[0] or each.args.get("unpack") for each in found):
            return tree
        names = _names(tree, found[0].copy(), describe)
        if _repeats(names):
            return tree
        outputs = _names(tree, item.copy(), describe)
        items += _for_each(item, names, outputs)
    return tree.select(*items, append=False)


def _names(tree: exp.Select, item: exp.Expr, describe: Describe) -> list[str]:
    """Return the names that the columns of an output have in DuckDB."""
    only = exp.Select(expressions=[item])
    for part in ("with_", "from_", "joins"):
        if (value := tree.args.get(part)) is not None:
            only.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    return [name for name, _ in describe(only.sql(DIALECT))]


def _repeats(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _for_each(item: exp.Expr, names: Sequence[str], outputs: Sequence[str]) -> Iterator[exp.Expr]:
    for name, output in zip(names, outputs, strict=True):
        value = item.unalias().copy()
        for columns in list(value.find_all(exp.Columns)):
            column = _column(name, columns)
            if columns is value:
                value = column
            else:
                columns.replace(column)
        yield exp.alias_(value, output, quoted=True)


def _column(name: str, columns: exp.Columns) -> exp.Column:
    """Return one of the columns that a COLUMNS(…) stands for."""
    star = columns.this
    table = star.table if isinstance(star, exp.Column) else None
    return exp.column(name, table or None, quoted=True)


def _spread(tree: exp.Select, item: exp.Expr, describe: Describe) -> exp.Expr | None:
    """Return an output with columns in the place of each *COLUMNS(…), None where that cannot be written."""
    value = item.unalias().copy()
    for columns in list(value.find_all(exp.Columns)):
        one_by_one = columns.copy()
        one_by_one.set("unpack", None)
        names = _names(tree, one_by_one, describe)
        if _repeats(names) or not _put_in(columns, [_column(name, columns) for name in names]):
            return None
    (output,) = _names(tree, item.copy(), describe)
    return exp.alias_(value, output, quoted=True)


def _put_in(columns: exp.Columns, arguments: list[exp.Expr]) -> bool:
    """Put columns in the place of a *COLUMNS(…) among a function's arguments. False: it stands elsewhere."""
    call = columns.parent
    if columns.arg_key == "this" and isinstance(call, _OF_ANY_NUMBER) and arguments:
        call.set("this", arguments[0])
        call.set("expressions", [*arguments[1:], *call.expressions])
        return True
    if columns.arg_key == "expressions" and isinstance(call, _OF_ANY_NUMBER_IN_A_LIST):
        places = [[each] if each is not columns else arguments for each in call.expressions]
        call.set("expressions", [each for place in places for each in place])
        return True
    return False
