"""Rule: a query without aggregates keeps its rows. Each is exact, and those found so far are shown.

The state is the rows: their outputs, and beside them what they are ordered by. With ORDER BY and LIMIT each
task returns no more rows than the answer can need.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relaqs_engine.plans.folded import PartialQuery
from relaqs_engine.plans.names import STATE
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.hoist import over_hoists
from relaqs_engine.rewrite.scans import is_filtered, scan_of_tables, scan_sql, scans_of
from relaqs_engine.sql.parse import DIALECT


def rows_as_state(draft: Draft) -> Draft:
    """Return the draft with the columns of its rows as keys: the outputs, then what they are ordered by.

    >>> from relaqs_engine.planning.example import after, shown
    >>> draft = after(rows_as_state, "SELECT fare FROM trips WHERE km > 50 ORDER BY zone LIMIT 9")
    >>> [shown(key) for key in draft.keys]
    ['trips.fare', 'trips.zone']
    >>> print(shown(rows_query(draft).sql))
    SELECT trips.fare AS k0, trips.zone AS k1 FROM partitions_of_trips AS trips
    WHERE trips.km > 50 ORDER BY k1 LIMIT 9
    """
    if len(draft.select.expressions) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    values = [item.unalias() for item in draft.select.expressions]
    ordered_by = (expression for expression, _ in _ordering(draft))
    outputs = tuple(OutputColumn(name, OutputKind.KEY, type_, "") for name, type_ in draft.schema)
    return replace(draft, outputs=outputs, keys=(*values, *ordered_by))


def _ordering(draft: Draft) -> list[tuple[exp.Expr, exp.Ordered]]:
    """Return what the rows are ordered by, with expressions in the place of outputs' names."""
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
    """Return how many rows make the whole answer, whichever they are: those of a LIMIT without ORDER BY."""
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
    return dict(draft.binder.describe(rows_sql(draft, scan_of_tables(draft), over_tables=True)))


def rows_sql(draft: Draft, scan: exp.Select, *, over_tables: bool = False) -> str:
    """Return the query of the rows in a scan. over_tables: that of the tables of the catalog."""
    select = ", ".join(f"{key.sql(DIALECT)} AS k{i}" for i, key in enumerate(draft.keys))
    body = scan_sql(draft, scan, over_tables=over_tables)
    values = select if over_tables else over_hoists(draft, select)
    return f"SELECT {values} {body}" + _needed_rows(draft, _order_by(draft))


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
    """Return ORDER BY and LIMIT of a task. Rows beyond those of the whole answer cannot be in it."""
    limit, offset = draft.select.args.get("limit"), draft.select.args.get("offset")
    if limit is None:
        return ""
    needed = int(limit.expression.this) + (int(offset.expression.this) if offset else 0)
    return f"{order} LIMIT {needed}"
