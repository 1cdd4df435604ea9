"""By how much a cast to a number may round it."""

from __future__ import annotations

import re

from sqlglot import exp

from relaqs_engine.layouts.number_types import FLOATS, WHOLE_NUMBERS

_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def type_name(cast: exp.Expr) -> str:
    """Return the name of the type that is cast to, in capitals and without its parameters.

    >>> import sqlglot
    >>> type_name(sqlglot.parse_one("CAST(x AS decimal(10, 2))"))
    'DECIMAL'
    """
    return str(cast.args["to"].this.name).upper()


def cast_step(cast: exp.Expr, from_type: str = "") -> float | None:
    """Return the most that a cast to a number moves it, None where the cast is to something else.

    Args:
        cast: it.
        from_type: the type of what is cast, as DuckDB writes it. "" where that is not known.

    >>> import sqlglot
    >>> [cast_step(sqlglot.parse_one(f"CAST(x AS {to})")) for to in ("DECIMAL(10, 2)", "BIGINT", "DATE")]
    [0.005, 0.5, None]
    >>> cast_step(sqlglot.parse_one("CAST(x AS DECIMAL(10, 2))"), from_type="DECIMAL(38,2)")
    0.0
    """
    name = type_name(cast)
    if name in FLOATS:
        return 0.0
    if name not in WHOLE_NUMBERS and name != "DECIMAL":
        return None
    digits = [int(part.name) for part in cast.args["to"].expressions]
    decimals = 0 if name in WHOLE_NUMBERS else digits[1] if len(digits) > 1 else 0 if digits else 3
    given = _decimals(from_type)
    return 0.0 if given is not None and given <= decimals else 0.5 * 10.0**-decimals


def loses_large_numbers(cast: exp.Expr) -> bool:
    """Whether a cast gives NULL for a number that is too large for its type, as TRY_CAST does.

    >>> import sqlglot
    >>> [loses_large_numbers(sqlglot.parse_one(f"TRY_CAST(x AS {to})")) for to in ("TINYINT", "DOUBLE")]
    [True, False]
    """
    return isinstance(cast, exp.TryCast) and type_name(cast) not in FLOATS


def _decimals(type_text: str) -> int | None:
    """Return how many decimals the numbers of a type have, None where that is not known."""
    if type_text in WHOLE_NUMBERS:
        return 0
    found = _DECIMAL.match(type_text)
    return int(found[1]) if found else None
