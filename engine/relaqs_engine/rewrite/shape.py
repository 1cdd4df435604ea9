"""Rule: the outermost SELECT returns rows, or is one level of aggregation with nothing around it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relaqs_engine.rewrite.draft import Draft, NotOnlineError, own_nodes
from relaqs_engine.sql.parse import DIALECT


def check_shape(draft: Draft) -> Draft:
    """Return the draft with the note whether it returns rows. Raises NotOnlineError for any other shape.

    >>> from relaqs_engine.planning.example import after, refusal
    >>> after(check_shape, "SELECT fare FROM trips").returns_rows
    True
    >>> refusal(check_shape, "SELECT sum(fare) OVER () FROM trips")
    'a window function needs all rows of its window'
    """
    select = draft.select
    if select.args.get("distinct") and select.args.get("group"):
        raise NotOnlineError("SELECT DISTINCT of aggregates needs all groups")
    for part, words in (("qualify", "QUALIFY"), ("sample", "TABLESAMPLE"), ("pivots", "PIVOT")):
        if select.args.get(part):
            raise NotOnlineError(f"{words} is not rewritten")
    if select.find(exp.Collate):
        raise NotOnlineError("text that COLLATE makes equal would not be equal between partial answers")
    if select.find(exp.Columns):
        raise NotOnlineError("COLUMNS stands for several columns")
    if any(own_nodes(item, exp.Window) for item in select.expressions):
        raise NotOnlineError("a window function needs all rows of its window")
    after = [*select.expressions, select.args.get("having"), select.args.get("order")]
    if any(part is not None and part.find(exp.Query) for part in after):
        raise NotOnlineError("a subquery stands among its outputs, its HAVING or its ORDER BY")
    _check_group(select)
    _check_order_and_limit(select)
    grouped = select.args.get("group") or select.args.get("having")
    if grouped or any(own_nodes(item, exp.AggFunc) for item in select.expressions):
        return draft
    if select.args.get("distinct"):
        raise NotOnlineError("SELECT DISTINCT ON picks one row of several")
    return replace(draft, returns_rows=True)


def check_aggregates(draft: Draft, otherwise: str) -> Draft:
    """Return the draft. Raises NotOnlineError, with the text `otherwise`, where it has no aggregates."""
    if draft.returns_rows:
        raise NotOnlineError(otherwise)
    return draft


def _check_group(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None:
        return
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
