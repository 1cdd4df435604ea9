"""Any other aggregate: the state lists its arguments, and DuckDB applies it to all of them.

    string_agg(name, ', ' ORDER BY fare)

lists `{a0: name, a1: fare}` of each row, and is then `string_agg(listed.a0, ', ' ORDER BY listed.a1)`. The
value so far is of the rows read so far. Nothing is said of the rows to come.
"""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.listed_values import LISTED, OfValues
from relaqs_engine.sql.parse import DIALECT

# They say how an aggregate takes its arguments, and are none themselves.
_AROUND_ARGUMENTS = (exp.Order, exp.Ordered, exp.Distinct, exp.WithinGroup, exp.IgnoreNulls, exp.HavingMax)


def of_arguments(aggregate: exp.Expr) -> OfValues:
    """Return how an aggregate follows from the list of its arguments.

    >>> import sqlglot
    >>> found = of_arguments(sqlglot.parse_one("list(km ORDER BY fare DESC)", dialect="duckdb"))
    >>> print(found.value.sql("duckdb"))
    {'a0': km, 'a1': fare}
    >>> print(found.call.sql("duckdb"))
    ARRAY_AGG(listed.a0 ORDER BY listed.a1 DESC)
    """
    call = aggregate.copy()
    fields: dict[str, tuple[str, exp.Expr]] = {}
    for argument in _arguments(call):
        name, _ = fields.setdefault(argument.sql(DIALECT), (f"a{len(fields)}", argument.copy()))
        argument.replace(exp.column(name, LISTED))
    named = list(fields.values()) or [("a0", exp.true())]
    parts = [exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in named]
    return OfValues(exp.Struct(expressions=parts), call, lists_nulls=True)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions inside that differ from row to row. Constants stay where they are."""
    found = []
    for child in node.iter_expressions():
        if isinstance(child, (*_AROUND_ARGUMENTS, exp.AggFunc)):
            found += _arguments(child)
        elif child.find(exp.Column) is not None:
            found.append(child)
    return found
