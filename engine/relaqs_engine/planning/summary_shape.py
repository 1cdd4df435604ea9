"""Whether a statement is SUMMARIZE alone. It is asked before what plans such statements is loaded."""

from __future__ import annotations

from sqlglot import exp


def is_summary(tree: exp.Query) -> bool:
    """Whether a query is SUMMARIZE and nothing around it.

    >>> import sqlglot
    >>> sql = "SELECT * FROM (SUMMARIZE SELECT * FROM t)"
    >>> is_summary(sqlglot.parse_one(sql, dialect="duckdb"))
    True
    >>> is_summary(sqlglot.parse_one(f"{sql} WHERE min < max", dialect="duckdb"))
    False
    """
    return isinstance(tree, exp.Select) and summarized(tree) is not None


def summarized(tree: exp.Query) -> exp.Query | None:
    """Return the query that is summarized, None where the tree is more than SELECT * FROM (SUMMARIZE …)."""
    more = {key for key, value in tree.args.items() if value} - {"expressions", "from_"}
    from_ = tree.args.get("from_")
    if more or from_ is None or tree.expressions != [exp.Star()]:
        return None
    found = from_.this
    if not isinstance(found, exp.Subquery) or not isinstance(found.this, exp.Summarize):
        return None
    if any(value for key, value in found.args.items() if key != "this"):
        return None
    query = found.this.this
    return query if isinstance(query, exp.Query) else None
