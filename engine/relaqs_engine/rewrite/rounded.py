"""For an output that is rounded: the value before, and how far rounding may move it.

    round(avg(fare), 2)  is  avg(fare), at most 0.005 away

A rounded value moves in steps, and error bars come from how a value changes when part of the sample is left
out. So the bars are computed for the value before rounding, and then widened by the step.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.bounds.casts import cast_step, loses_large_numbers

_STEPS = (exp.Round, exp.Floor, exp.Ceil, exp.Trunc, exp.IntDiv, exp.Mod, exp.Sign)
_MOST_DECIMALS = 300


@dataclass(frozen=True, slots=True)
class Rounded:
    """A value before rounding.

    Attributes:
        before: the value that is rounded.
        by: the most that rounding moves it.
    """

    before: exp.Expr
    by: float


def rounded(value: exp.Expr) -> Rounded:
    """Return a value as it is before all rounding around it. A value that is not rounded is returned with 0.

    >>> import sqlglot
    >>> found = rounded(sqlglot.parse_one("round(x / 2, 1)"))
    >>> found.before.sql(), found.by
    ('x / 2', 0.05)
    """
    by = 0.0
    while (step := rounding_step(value := value.unnest())) is not None:
        value, by = value.this, by + step
    return Rounded(value, by)


def moves_in_steps(value: exp.Expr) -> bool:
    """Whether something inside the value is rounded. Then nothing bounds how far one row may move it."""
    return any(isinstance(node, _STEPS) or (_is_cast(node) and cast_step(node)) for node in value.walk())


def rounding_step(value: exp.Expr) -> float | None:
    """Return how far the outermost function rounds, None where it does not round."""
    if isinstance(value, exp.Round):
        decimals = value.args.get("decimals")
        if decimals is None:
            return 0.5
        text = decimals.sql()
        is_small = text.lstrip("-").isdigit() and abs(int(text)) <= _MOST_DECIMALS
        return 0.5 * 10.0 ** -int(text) if is_small else None
    if isinstance(value, exp.Floor | exp.Ceil | exp.Trunc):
        return 1.0 if value.args.get("decimals") is None else None
    return cast_step(value) if _is_cast(value) else None


def _is_cast(value: exp.Expr) -> bool:
    return isinstance(value, exp.Cast) and not loses_large_numbers(value)
