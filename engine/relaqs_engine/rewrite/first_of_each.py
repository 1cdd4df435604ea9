"""SELECT DISTINCT ON as an aggregation: of each key, the first row in the query's order."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.draft import own_nodes
from relaqs_engine.sql.dialect import DIALECT


def is_first_of_each(tree: exp.Select) -> bool:
    """Whether the SELECT is a DISTINCT ON over plain rows."""
    distinct = tree.args.get("distinct")
    if distinct is None or not distinct.args.get("on") or tree.args.get("group"):
        return False
    return not any(own_nodes(item, kind) for item in tree.expressions for kind in (exp.AggFunc, exp.Window))


def first_of_each(tree: exp.Select) -> exp.Select:
    """Return a qualified DISTINCT ON as GROUP BY its keys.

    All other outputs are fields of one FIRST, so they come from one row.

    >>> import sqlglot
    >>> sql = "SELECT DISTINCT ON (zone) zone AS zone, km AS km FROM trips ORDER BY zone, fare"
    >>> print(first_of_each(sqlglot.parse_one(sql, dialect=DIALECT)).sql("duckdb").replace('"', ""))
    SELECT zone AS zone, STRUCT_EXTRACT(FIRST({'f0': km, 'f1': fare} ORDER BY fare), 'f0') AS km
    FROM trips GROUP BY zone ORDER BY zone, STRUCT_EXTRACT(FIRST({'f0': km, 'f1': fare} ORDER BY fare), 'f1')
    """
    tree = tree.copy()
    outputs = {item.alias: item.unalias() for item in tree.expressions}
    on = tree.args["distinct"].args["on"]
    keys = [_meant(key, outputs) for key in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    order = tree.args.get("order")
    ordered = [_by_meaning(each, outputs) for each in (order.expressions if order else [])]
    values = [item.unalias() for item in tree.expressions] + [each.this for each in ordered]
    fields = list(dict.fromkeys(value for value in values if value not in keys))
    first = _first(fields, [each for each in ordered if each.this not in keys])

    def of_group(value: exp.Expr) -> exp.Expr:
        if value in keys:
            return value.copy()
        name = exp.Literal.string(f"f{fields.index(value)}")
        return exp.func("struct_extract", first.copy(), name, dialect=DIALECT)

    items = [exp.alias_(of_group(item.unalias()), item.alias, quoted=True) for item in tree.expressions]
    tree.set("expressions", items)
    tree.set("distinct", None)
    tree.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    for each in ordered:
        each.set("this", of_group(each.this))
    if order:
        order.set("expressions", ordered)
    return tree


def _first(fields: list[exp.Expr], ordered: list[exp.Expr]) -> exp.Expr:
    parts = [
        exp.PropertyEQ(this=exp.to_identifier(f"f{i}"), expression=field.copy())
        for i, field in enumerate(fields)
    ]
    struct: exp.Expr = exp.Struct(expressions=parts)
    if ordered:
        struct = exp.Order(this=struct, expressions=[each.copy() for each in ordered])
    return exp.First(this=struct)


def _by_meaning(ordered: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    found = ordered.copy()
    found.set("this", _meant(ordered.this, outputs))
    return found


def _meant(expression: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    """Return the output that a name alone stands for, and any other expression as it is."""
    if isinstance(expression, exp.Column) and not expression.table and expression.name in outputs:
        return outputs[expression.name].copy()
    return expression.copy()
