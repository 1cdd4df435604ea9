"""Rows whose conditions ask subqueries: the rows by the other conditions, and the SQL that picks among them.

    SELECT t.name FROM t WHERE t.zone = 'A' AND t.age > (SELECT avg(age) FROM t)

The average is known at the end. So the rows are found without it, and compared with the average so far:

    rows:    SELECT t.name AS c0, t.age AS c1 FROM t WHERE t.zone = 'A'
    around:  SELECT c0 AS name FROM rows WHERE c1 > (SELECT avg(age) FROM t)
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.rewrite.draft import conjuncts_of, own_nodes
from relaqs_engine.rewrite.scopes import outer_columns


@dataclass(frozen=True, slots=True)
class Listing:
    """A query in two.

    Attributes:
        rows: the rows by the conditions without subqueries, with the columns that the rest needs.
        around: picks among them. It has no FROM, and its columns are those of the table ROWS.
    """

    rows: exp.Select
    around: exp.Select


ROWS = "relaqs_rows_found"  # until the answer has a name
_OF_ALL_ROWS = ("distinct", "qualify", "windows", "sample", "pivots")


def listing_of(query: exp.Select) -> Listing | None:
    """Return a query without aggregates in two. None where no condition asks a subquery of its own.

    >>> import sqlglot
    >>> sql = "SELECT t.name AS name FROM t WHERE t.zone = 1 AND t.age > (SELECT AVG(u.age) FROM u)"
    >>> found = listing_of(sqlglot.parse_one(sql, dialect="duckdb"))
    >>> print(found.rows.sql("duckdb"))
    SELECT t.age AS "c0", t.name AS "c1" FROM t WHERE t.zone = 1
    >>> print(found.around.sql("duckdb").replace('"', ""))
    SELECT relaqs_rows_found.c1 AS name WHERE relaqs_rows_found.c0 > (SELECT AVG(u.age) FROM u)
    """
    where = query.args.get("where")
    conditions = conjuncts_of(where.this if where else None)
    late = [each for each in conditions if each.find(exp.Query)]
    if not late or any(query.args.get(part) for part in _OF_ALL_ROWS) or query.find(exp.Window):
        return None
    around = exp.select(*(item.copy() for item in query.expressions)).where(*(each.copy() for each in late))
    rows = query.copy()
    rows.set("where", None)
    for part in ("order", "limit", "offset"):
        if (value := rows.args.get(part)) is not None:
            rows.set(part, None)
            around.set(part, value)
    if any(_depends(inner) for inner in around.find_all(exp.Query) if inner is not around):
        return None
    names: dict[exp.Expr, str] = {}
    for column in _own_columns(around):
        if column.table:
            name = names.setdefault(column.copy(), f"c{len(names)}")
            column.replace(exp.column(name, ROWS, quoted=True))
    items = [exp.alias_(column.copy(), name, quoted=True) for column, name in names.items()]
    rows.set("expressions", items or [exp.alias_(exp.Literal.number(1), "c0", quoted=True)])
    return Listing(rows.where(*(each.copy() for each in conditions if each not in late)), around)


def _depends(inner: exp.Expr) -> bool:
    """Whether a subquery reads a column of the query around it."""
    return not isinstance(inner, exp.Subquery) and bool(outer_columns(inner))


def _own_columns(around: exp.Select) -> list[exp.Column]:
    parts = (around.args["where"].this, *around.expressions, around.args.get("order"))
    found = [node for part in parts if part is not None for node in own_nodes(part, exp.Column)]
    return [column for column in found if isinstance(column, exp.Column)]
