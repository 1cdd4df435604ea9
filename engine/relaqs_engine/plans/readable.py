"""SQL as people read it: lines that fit, names without needless quotes, file lists cut short."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from relaqs_engine.sql.parse import DIALECT

MOST_FILES = 2  # named in a list of files
WIDTH = 100  # of a line, as far as parentheses decide it

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*$")
_BROKEN_PARENTHESES = re.compile(r"\(\n\s*([^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\n\s*\)")


def readable_sql(sql: str) -> str:
    """Return the statement laid out for reading, without comments. It may not run any more as it stands."""
    tree = sqlglot.parse_one(sql, dialect=DIALECT)
    for name in tree.find_all(exp.Identifier):
        if _PLAIN_NAME.match(name.name) and name.name not in DuckDB.Generator.RESERVED_KEYWORDS:
            name.set("quoted", False)
    for files in tree.find_all(exp.Array):
        _cut_short(files)
    return _joined(tree.sql(DIALECT, pretty=True, comments=False, max_text_width=WIDTH))


def _cut_short(files: exp.Array) -> None:
    """Leave the first of many files, and how many more there are."""
    names = files.expressions
    if len(names) > MOST_FILES and all(isinstance(name, exp.Literal) and name.is_string for name in names):
        more = exp.Literal.string(f"… {len(names) - 1} more")
        files.set("expressions", [names[0], more])


def _joined(text: str) -> str:
    """Return the text with short parentheses on one line each, from the inside out."""

    def join(match: re.Match[str]) -> str:
        one_line = f"({match[1].strip()})"
        return one_line if len(one_line) <= WIDTH else match[0]

    while (shorter := _BROKEN_PARENTHESES.sub(join, text)) != text:
        text = shorter
    return text
