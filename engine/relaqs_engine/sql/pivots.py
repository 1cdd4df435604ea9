"""A PIVOT with values as a SELECT of one aggregate for each of them. Such a SELECT has estimates.

    FROM (PIVOT trips ON zone IN ('A', 'B') USING sum(fare) GROUP BY day)
    FROM (SELECT day, SUM(fare) FILTER(WHERE CAST(zone AS VARCHAR) = 'A') AS "A",
                      SUM(fare) FILTER(WHERE CAST(zone AS VARCHAR) = 'B') AS "B" FROM trips GROUP BY day)

DuckDB compares texts, too: a value of 2.50 is no 2.5. What is less simple stays a PIVOT, and runs as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

MOST_COLUMNS = 256  # beyond, one SELECT would take longer than DuckDB's own PIVOT
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?")  # that DuckDB writes as it stands


def select_for_pivots(tree: exp.Query) -> None:
    """Write a SELECT in the place of each simple PIVOT. In place.

    >>> import sqlglot
    >>> sql = "FROM (PIVOT t ON x IN (1, NULL) USING count(*) AS n GROUP BY k)"
    >>> tree = sqlglot.parse_one(sql, read="duckdb")
    >>> select_for_pivots(tree)
    >>> print(tree.sql("duckdb", pretty=True))
    SELECT
      *
    FROM (
      SELECT
        k,
        COUNT(*) FILTER(WHERE
          CAST(x AS TEXT) = '1') AS "1_n",
        COUNT(*) FILTER(WHERE
          x IS NULL) AS "NULL_n"
      FROM t
      GROUP BY
        k
    )
    """
    for pivot in list(tree.find_all(exp.Pivot)):
        if isinstance(pivot.parent, exp.Subquery) and (select := _select_for(pivot)) is not None:
            pivot.replace(select)


def _select_for(pivot: exp.Pivot) -> exp.Select | None:
    """Return the SELECT, None where the PIVOT is not as simple as that."""
    group = pivot.args.get("group")
    keys = group.expressions if isinstance(group, exp.Group) else []
    source, aggregates = pivot.this, _aggregates(pivot)
    values = [_values(each) for each in pivot.expressions]
    is_simple = isinstance(source, exp.Table | exp.Subquery) and not source.args.get("joins")
    is_simple &= bool(keys) and all(isinstance(key, exp.Column) and not key.table for key in keys)
    if pivot.args.get("unpivot") or not (is_simple and aggregates and values and all(values)):
        return None
    columns = [
        (_name(chosen, suffix), _filtered(aggregate, chosen))
        for chosen in product(*values)
        for aggregate, suffix in aggregates
    ]
    names = {*(key.name.lower() for key in keys), *(name.lower() for name, _ in columns)}
    if len(names) < len(keys) + len(columns) or len(columns) > MOST_COLUMNS:
        return None
    if "" in names:  # of an empty text, which DuckDB calls '' and SQL cannot name
        return None
    shown = [exp.alias_(value, name, quoted=True) for name, value in columns]
    return exp.select(*(key.copy() for key in keys), *shown).from_(source.copy()).group_by(*keys)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that a PIVOT turns to a column: what it is called there, and which rows have it."""

    word: str
    condition: exp.Expression


def _name(chosen: Sequence[_Value], suffix: str) -> str:
    return "_".join([*(value.word for value in chosen), *([suffix] if suffix else [])])


def _filtered(aggregate: exp.Expression, chosen: Sequence[_Value]) -> exp.Filter:
    condition = exp.and_(*(value.condition.copy() for value in chosen))
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition))


def _aggregates(pivot: exp.Pivot) -> list[tuple[exp.Expression, str]]:
    """Return the aggregates and what their columns are called beside the value. Empty: it is not known."""
    using = pivot.args.get("using") or [exp.Count(this=exp.Star(), big_int=True)]
    found = [(each.unalias(), each.alias) for each in using]
    are_simple = all(isinstance(each, exp.AggFunc) and each.find(exp.Order) is None for each, _ in found)
    are_named = len(found) == 1 or all(alias for _, alias in found)
    return found if are_simple and are_named else []


def _values(on: exp.Expression) -> list[_Value]:
    """Return the values that one expression is turned to columns by. Empty: it is not known which."""
    if not isinstance(on, exp.In) or on.args.get("query"):
        return []
    if isinstance(on.this, exp.Binary | exp.Unary) and not isinstance(on.this, exp.Paren):
        return []  # DuckDB reads n % 2 IN (0, 1) as one expression, which is true or false
    what = on.this.unnest()
    words = [_word(each) for each in on.expressions]
    text = exp.cast(what.copy(), "text")
    return [
        _Value(word, exp.Is(this=what.copy(), expression=exp.Null()))
        if isinstance(each, exp.Null)
        else _Value(word, exp.EQ(this=text.copy(), expression=exp.Literal.string(word)))
        for each, word in zip(on.expressions, words, strict=True)
        if word is not None
    ] * (None not in words)


def _word(value: exp.Expression) -> str | None:
    """Return a value as DuckDB writes it. None: that is not sure."""
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Literal) and (value.is_string or _PLAIN_NUMBER.fullmatch(value.this)):
        return str(value.this)
    return None
