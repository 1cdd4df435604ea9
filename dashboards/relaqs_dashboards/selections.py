"""What somebody selected in a panel, as a condition: values from outside become literals of their type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from sqlglot import exp

from relaqs_dashboards.answers import LONGEST_TEXT
from relaqs_dashboards.filters import DIALECT, Brush, FilterError
from relaqs_dashboards.settings import shown

MOST_VALUES = 200
_MOST_DIGITS = 400  # of a number, before or after its point: a double has some 310


def condition_of(brush: Brush, selection: Mapping[str, Any], type_: pa.DataType) -> str:
    """Return the selection as SQL over the columns of the brush's table.

    Args:
        brush: what can be selected.
        selection: {"values": […]}, any of which a row must have; or {"range": [low, high]}, both included.
        type_: of the column in the answer.

    Raises:
        FilterError: a value is not one of that type, or the selection is none.

    >>> brush = Brush("trips", "zone", has_totals=False)
    >>> condition_of(brush, {"values": ["it's", None]}, pa.string())
    "(zone) IN ('it''s') OR (zone) IS NULL"
    >>> condition_of(brush, {"range": [1, 5]}, pa.int64())
    '(zone) BETWEEN 1 AND 5'
    """
    literal = _literals(type_)
    expression = f"({brush.expression})"
    if set(selection) == {"range"} and isinstance(ends := selection["range"], list) and len(ends) == 2:
        low, high = (literal(end) for end in ends)
        return f"{expression} BETWEEN {low} AND {high}"
    values = selection.get("values")
    if set(selection) != {"values"} or not isinstance(values, list) or not 0 < len(values) <= MOST_VALUES:
        raise FilterError(f"a selection has 1 to {MOST_VALUES} values, or a range of two")
    some = [literal(value) for value in values if value is not None]
    parts = [f"{expression} IN ({', '.join(some)})"] if some else []
    if len(some) < len(values):
        parts.append(_null(brush, type_))
    return " OR ".join(parts)


def _null(brush: Brush, type_: pa.DataType) -> str:
    if brush.has_totals or pa.types.is_floating(type_):
        raise FilterError(
            "an empty value cannot be selected here: it may stand for a total, or for no number"
        )
    return f"({brush.expression}) IS NULL"


def _literals(type_: pa.DataType) -> Callable[[Any], str]:
    """Return the function that turns values from outside into SQL of this type."""
    kinds: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], exp.Expression]], ...] = (
        (pa.types.is_boolean, _boolean),
        (pa.types.is_integer, _whole),
        (pa.types.is_decimal, _decimal),
        (pa.types.is_floating, _double),
        (pa.types.is_date, _date),
        (pa.types.is_timestamp, _timestamp),
        (pa.types.is_string, _text),
    )
    make = next((make for fits, make in kinds if fits(type_)), None)
    if make is None:
        raise FilterError(f"values of the type {type_} cannot be selected")

    def literal(value: Any) -> str:
        try:
            return make(value).sql(DIALECT)
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            raise FilterError(f"{shown(value)} is no value of the type {type_}") from None

    return literal


def _boolean(value: Any) -> exp.Expression:
    if not isinstance(value, bool):
        raise TypeError
    return exp.Boolean(this=value)


def _whole(value: Any) -> exp.Expression:
    number = _decimal_of(value)
    if number != number.to_integral_value():
        raise ValueError
    return exp.Literal.number(str(int(number)))


def _decimal(value: Any) -> exp.Expression:
    return exp.Literal.number(f"{_decimal_of(value):f}")


def _double(value: Any) -> exp.Expression:
    """Return a number as text that is cast: DuckDB reads 0.1 as a decimal otherwise."""
    return exp.cast(exp.Literal.string(repr(float(_decimal_of(value)))), "DOUBLE")


def _date(value: Any) -> exp.Expression:
    return exp.cast(exp.Literal.string(dt.date.fromisoformat(value).isoformat()), "DATE")


def _timestamp(value: Any) -> exp.Expression:
    moment = dt.datetime.fromisoformat(value)
    kind = "TIMESTAMP" if moment.tzinfo is None else "TIMESTAMPTZ"
    return exp.cast(exp.Literal.string(moment.isoformat(sep=" ")), kind)


def _text(value: Any) -> exp.Expression:
    if not isinstance(value, str):
        raise TypeError
    if len(value) > LONGEST_TEXT:
        raise FilterError("this text is shown cut, so it cannot be selected")
    return exp.Literal.string(value)


def _decimal_of(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > 60:
        raise TypeError
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError
    return number
