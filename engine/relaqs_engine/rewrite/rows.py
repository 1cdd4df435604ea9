"""Rule: a query without aggregates keeps its rows, each exact, and shows those found so far.

The state is the rows: outputs, and beside them what they are ordered by. With ORDER BY and LIMIT each task
returns no more rows than the answer can need.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relaqs_engine.plans.folded import PartialQuery
from relaqs_engine.plans.names import STATE
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.scans import is_filtered, scan_of_tables, scans_of
from relaqs_engine.sql.parse import DIALECT


def rows_as_state(draft: Draft) -> Draft:
    """Return the draft with the rows' columns as its outputs and its keys."""
    if len(draft.select.expressions) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    values = [item.unalias() for item in draft.select.expressions]
    ordered_by = (expression for expression, _ in _ordering(draft))
    outputs = tuple(OutputColumn(name, OutputKind.KEY, type_, "") for name, type_ in draft.schema)
    return replace(draft, outputs=outputs, keys=(*values, *ordered_by))


def _ordering(draft: Draft) -> list[tuple[exp.Expr, exp.Ordered]]:
    """Return what the rows are ordered by, an output's name replaced by its expression."""
    order = draft.select.args.get("order")
    by_name = {item.alias: item.unalias() for item in reversed(draft.select.expressions)}
    found = []
    for ordered in order.expressions if order else []:
        value = ordered.this
        if isinstance(value, exp.Column) and not value.table and value.name in by_name:
            value = by_name[value.name]
        elif any(not column.table for column in value.find_all(exp.Column)):
            raise NotOnlineError(f"ORDER BY {value.sql(DIALECT)} computes with the name of an output")
        found.append((value, ordered))
    return found


def limit_rows(draft: Draft) -> int | None:
    """Return how many rows are the whole answer, any of them: LIMIT without ORDER BY."""
    limit = draft.select.args.get("limit")
    if limit is None or draft.select.args.get("order") or draft.select.args.get("offset"):
        return None
    return int(limit.expression.this)


def rows_query(draft: Draft) -> PartialQuery:
    """Return what a task runs."""
    assert draft.scan is not None
    return PartialQuery(
        rows_sql(draft, draft.scan), scans=scans_of(draft), is_filtered=is_filtered(draft.scan)
    )


def row_types(draft: Draft) -> dict[str, str]:
    """Return DuckDB's type of each column of the rows, read off over empty tables."""
    return dict(draft.binder.describe(rows_sql(draft, scan_of_tables(draft))))


def rows_sql(draft: Draft, scan: exp.Select) -> str:
    """Return the query of the rows in a scan."""
    select = ", ".join(f"{key.sql(DIALECT)} AS k{i}" for i, key in enumerate(draft.keys))
    body = scan.sql(DIALECT).removeprefix("SELECT").strip()
    return f"SELECT {select} {body}" + _needed_rows(draft, _order_by(draft))


def rows_final_sql(draft: Draft) -> str:
    """Return the query from the state to the answer."""
    outputs = ", ".join(f"CAST(k{i} AS {output.type}) AS o{i}" for i, output in enumerate(draft.outputs))
    final = f"SELECT {outputs} FROM {STATE}{_order_by(draft)}"
    for part in ("limit", "offset"):
        if node := draft.select.args.get(part):
            final += " " + node.sql(DIALECT).strip()
    return final


def _order_by(draft: Draft) -> str:
    first = len(draft.outputs)
    items = []
    for i, (_, ordered) in enumerate(_ordering(draft)):
        item = ordered.copy()
        item.set("this", exp.column(f"k{first + i}"))
        items.append(item.sql(DIALECT))
    return f" ORDER BY {', '.join(items)}" if items else ""


def _needed_rows(draft: Draft, order: str) -> str:
    """Return ORDER BY and LIMIT of a task: no more of its rows than the whole answer has can be in it."""
    limit, offset = draft.select.args.get("limit"), draft.select.args.get("offset")
    if limit is None:
        return ""
    needed = int(limit.expression.this) + (int(offset.expression.this) if offset else 0)
    return f"{order} LIMIT {needed}"
