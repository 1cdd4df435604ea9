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
    _check_subqueries_after_rows(select)
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


def _check_subqueries_after_rows(select: exp.Select) -> None:
    """Raise NotOnlineError for a subquery after WHERE, but for EXISTS and IN about a row that is read."""
    group = select.args.get("group")
    keys = group.expressions if group else []
    is_of_rows = not group and not any(own_nodes(item, exp.AggFunc) for item in select.expressions)
    allowed = {
        id(query)
        for item in select.expressions
        for query in own_nodes(item, exp.Query)
        if _asks(query) and (is_of_rows or _is_about_a_row(query, keys))
    }
    after = [*select.expressions, select.args.get("having"), select.args.get("order")]
    for part in filter(None, after):
        if any(id(query) not in allowed for query in own_nodes(part, exp.Query)):
            raise NotOnlineError("a subquery stands among its outputs, its HAVING or its ORDER BY")


def _asks(query: exp.Expr) -> bool:
    """Whether a subquery is that of EXISTS or IN."""
    return isinstance(query.parent, exp.Exists | exp.In)


def _is_about_a_row(query: exp.Expr, keys: list[exp.Expr]) -> bool:
    """Whether a subquery stands inside an aggregate or a group key."""
    node = query.parent
    while node is not None and not isinstance(node, exp.Select):
        if isinstance(node, exp.AggFunc | exp.Filter) or node in keys:
            return True
        node = node.parent
    return False


def _check_group(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None:
        return
    if any(not _asks(query) for key in group.expressions for query in own_nodes(key, exp.Query)):
        raise NotOnlineError("a group key is a subquery")
    names = (each for key in group.expressions for each in own_nodes(key, exp.Column))
    if name := next((each.name for each in names if isinstance(each, exp.Column) and not each.table), None):
        raise NotOnlineError(f"a group key computes with the output {name}")


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
