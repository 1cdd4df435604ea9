"""By how much a cast to a number may round it."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.layouts.number_types import FLOATS, WHOLE_NUMBERS


def type_name(cast: exp.Expr) -> str:
    """Return the name of the type that is cast to, in capitals and without its parameters.

    >>> import sqlglot
    >>> type_name(sqlglot.parse_one("CAST(x AS decimal(10, 2))"))
    'DECIMAL'
    """
    return str(cast.args["to"].this.name).upper()


def cast_step(cast: exp.Expr) -> float | None:
    """Return the most that a cast to a number moves it, None where the cast is to something else.

    >>> import sqlglot
    >>> [cast_step(sqlglot.parse_one(f"CAST(x AS {to})")) for to in ("DECIMAL(10, 2)", "BIGINT", "DATE")]
    [0.005, 0.5, None]
    """
    name = type_name(cast)
    if name in WHOLE_NUMBERS:
        return 0.5
    if name == "DECIMAL":
        digits = [int(part.name) for part in cast.args["to"].expressions]
        return 0.5 * 10.0 ** -(digits[1] if len(digits) > 1 else 0 if digits else 3)
    return 0.0 if name in FLOATS else None
