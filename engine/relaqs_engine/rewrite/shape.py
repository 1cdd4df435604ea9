"""Rule: the outermost SELECT is one level of grouping and aggregation, nothing around it."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.draft import Draft, NotOnlineError, own_nodes
from relaqs_engine.sql.parse import DIALECT


def check_shape(draft: Draft) -> Draft:
    """Return the draft unchanged, or say what stands in the way of estimating it."""
    select = draft.select
    if select.args.get("distinct"):
        raise NotOnlineError("SELECT DISTINCT has no sound estimate of the rows not yet seen")
    for part, words in (("qualify", "QUALIFY"), ("sample", "TABLESAMPLE"), ("pivots", "PIVOT")):
        if select.args.get(part):
            raise NotOnlineError(f"{words} is not rewritten")
    if select.find(exp.Columns):
        raise NotOnlineError("COLUMNS stands for several columns")
    if any(own_nodes(item, exp.Window) for item in select.expressions):
        raise NotOnlineError("a window function needs all rows of its window")
    after = [*select.expressions, select.args.get("having"), select.args.get("order")]
    if any(part is not None and part.find(exp.Query) for part in after):
        raise NotOnlineError("a subquery stands among its outputs, its HAVING or its ORDER BY")
    _check_group(select)
    _check_order_and_limit(select)
    if not select.args.get("group") and not any(own_nodes(item, exp.AggFunc) for item in select.expressions):
        raise NotOnlineError("it returns rows, not aggregates")
    return draft


def _check_group(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None:
        return
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    if any(isinstance(part, several) for part in group.expressions):
        raise NotOnlineError("ROLLUP, CUBE and GROUPING SETS group several times over")
    if any(key.find(exp.Query) for key in group.expressions):
        raise NotOnlineError("a group key is a subquery")


def _check_order_and_limit(select: exp.Select) -> None:
    order = select.args.get("order")
    for ordered in order.expressions if order else ():
        if isinstance(ordered.this, exp.Var) or ordered.args.get("with_fill"):
            raise NotOnlineError(f"ORDER BY {ordered.sql(DIALECT)} is not rewritten")
    limit = select.args.get("limit")
    options = limit.args.get("limit_options") if limit else None
    if isinstance(limit, exp.Fetch) or (options and options.args.get("percent")):
        raise NotOnlineError("LIMIT is only rewritten with a number of rows")
    for part in (limit, select.args.get("offset")):
        if part is not None and not isinstance(part.expression, exp.Literal):
            raise NotOnlineError("LIMIT and OFFSET are only rewritten with a plain number")
