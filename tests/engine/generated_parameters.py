"""Parameters in the place of constants: `?`, `$1` and `$name`, each with the value that stood there."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tests.engine.generated_sql import Generated

_CONSTANT = re.compile(
    r"(?:[=<>] |BETWEEN |AND |IN \()"
    r"(?P<all>(?:(?P<kind>DATE|TIMESTAMP) )?(?P<text>'[^']*'|[0-9.]+))(?=[ ),]|$)"
)
_PART = re.compile(r"'[^']*'|[()]|\b(?:SELECT|FROM|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|ON)\b")


@st.composite
def with_parameters(draw: st.DrawFn, queries: st.SearchStrategy[Generated]) -> Generated:
    """Return a query with up to four constants of its conditions as parameters.

    Elsewhere a constant may have to be the same as another: DuckDB takes no parameter for that.
    """
    query = draw(queries)
    found = [each for each in _CONSTANT.finditer(query.sql) if _is_in_where(query.sql, each.start())]
    if not found:
        return query
    chosen = draw(st.lists(st.sampled_from(found), max_size=4, unique=True))
    chosen.sort(key=lambda each: each.start())
    style = draw(st.sampled_from(["?", "$", "$p"]))
    sql, end = "", 0
    for i, each in enumerate(chosen, 1):
        sql += query.sql[end : each.start("all")] + (style if style == "?" else f"{style}{i}")
        end = each.end()
    values = [_value(each["kind"], each["text"]) for each in chosen]
    named = {f"p{i}": value for i, value in enumerate(values, 1)}
    return replace(query, sql=sql + query.sql[end:], params=named if style == "$p" else values)


def _is_in_where(sql: str, place: int) -> bool:
    """Whether a place is in a WHERE, and in no inner query of an output or a key, which may stand twice."""
    around = [""]  # the parts of the queries that the place is in, from the outermost
    for part in _PART.finditer(sql, 0, place):
        match part[0]:
            case "(":
                around.append("")
            case ")":
                around.pop()
            case text if not text.startswith("'"):
                around[-1] = text
    named = [part for part in around if part]  # brackets of conditions have no part
    return named[-1] == "WHERE" and {*named} <= {"FROM", "WHERE"}


def _value(kind: str | None, text: str) -> Any:
    bare = text.strip("'")
    if kind == "DATE":
        return date.fromisoformat(bare)
    if kind == "TIMESTAMP":
        return datetime.fromisoformat(bare)
    if text.startswith("'"):
        return bare
    return Decimal(text) if "." in text else int(text)
