"""Statements that give rows, as SELECTs: SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT, UNPIVOT and VALUES."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlglot import exp

from relaqs_engine.duck import quote_text
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.columns import Describe
from relaqs_engine.sql.effort import Effort
from relaqs_engine.sql.read import read_statements
from relaqs_engine.sql.statements import statements_of

_COMMENT = r"--[^\n]*\n|/\*.*?\*/"
_WORDS = "show|describe|desc|summarize|pivot|pivot_wider|unpivot|pivot_longer|values"
_AFTER = ("order", "limit", "offset")
# A catalog knows no constraints: each column may be NULL, and has no key and no default.
_CONSTRAINTS = "'YES' AS \"null\", " + ", ".join(
    f"CAST(NULL AS VARCHAR) AS {name}" for name in ('"key"', '"default"', "extra")
)
_BEGINS_SO = re.compile(rf"(?:\s|{_COMMENT})*(?:{_WORDS})\b", re.IGNORECASE | re.DOTALL)


def as_select(
    sql: str,
    tables: Iterable[str],
    describe: Describe,
    effort: Effort | None = None,
) -> str:
    """Return a SELECT that answers SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT, UNPIVOT or VALUES.

    Any other SQL comes back as it is.

    Args:
        sql: one statement.
        tables: the names that can be read.
        describe: returns the names and types of a SELECT's columns.
        effort: counts what reading costs.

    Raises:
        SqlError: it is a SHOW or DESCRIBE of something else, or what it describes is wrong.

    >>> as_select("SHOW TABLES", ["trips", "zones"], lambda sql: [])
    "SELECT * FROM (VALUES ('trips'), ('zones')) AS shown(name)"
    >>> as_select("summarize trips", ["trips"], lambda sql: [])
    'SELECT * FROM (SUMMARIZE SELECT * FROM trips)'
    >>> print(as_select("DESCRIBE trips", ["trips"], lambda sql: [("fare", "DOUBLE")]))
    SELECT column_name, column_type, 'YES' AS "null", CAST(NULL AS VARCHAR) AS "key", CAST(NULL AS VARCHAR) AS
    "default", CAST(NULL AS VARCHAR) AS extra
    FROM (VALUES ('fare', 'DOUBLE')) AS shown(column_name, column_type)
    >>> as_select("PIVOT trips ON zone IN (1, 2) USING sum(fare)", ["trips"], lambda sql: [])
    'SELECT * FROM (PIVOT trips ON zone IN (1, 2) USING sum(fare))'
    """
    if _BEGINS_SO.match(sql) is None:
        return sql
    trees = read_statements(sql, effort or Effort())
    tree = trees[0] if len(trees) == 1 else None
    if isinstance(tree, exp.Show) and tree.name.upper() == "TABLES":
        return f"SELECT * FROM (VALUES {_rows([name] for name in sorted(tables))}) AS shown(name)"
    if isinstance(tree, exp.Describe) and isinstance(tree.this, exp.Query | exp.Table):
        columns = _rows(describe(_select(tree.this)))
        names = "column_name, column_type"
        return f"SELECT {names}, {_CONSTRAINTS} FROM (VALUES {columns}) AS shown({names})"
    if isinstance(tree, exp.Summarize) and isinstance(tree.this, exp.Query | exp.Table):
        return f"SELECT * FROM (SUMMARIZE {_select(tree.this)})"
    if isinstance(tree, exp.Pivot):
        return f"SELECT * FROM ({statements_of(sql)[0].sql})"
    if isinstance(tree, exp.Values):
        after = [tree.args[part].pop().sql("duckdb") for part in _AFTER if tree.args.get(part)]
        return " ".join([f"SELECT * FROM ({tree.sql('duckdb')})", *after])
    if isinstance(tree, exp.Show | exp.Describe | exp.Summarize | exp.Command):
        known = "SHOW TABLES, DESCRIBE and SUMMARIZE of a table or a SELECT"
        raise SqlError(f"{sql.strip()!r} is not answered; there are {known}")
    return sql


def _select(described: exp.Expr) -> str:
    """Return the SELECT that is described. A table's name stands for all of its rows."""
    text = described.sql("duckdb")
    return f"SELECT * FROM {text}" if isinstance(described, exp.Table) else text


def _rows(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as VALUES has them."""
    return ", ".join(f"({', '.join(map(quote_text, row))})" for row in rows)
