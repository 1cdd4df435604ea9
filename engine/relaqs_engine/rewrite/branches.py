"""Which outputs choose between values by an estimate, so that more rows may let them choose otherwise.

    CASE WHEN sum(gain) > 0 THEN avg(win) ELSE avg(loss) END

Error bars come from leaving rows out, one block at a time. If the sum is 500 in the sample, and 5 less in
each of these, then all of them have the average win. Nothing tells that the sum of all rows may be -20.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from relaqs_engine.plans.basis import BasisColumn
from relaqs_engine.plans.names import ROWS, SCALE, SHARED_SCALE
from relaqs_engine.plans.sign import Sign, sign_of
from relaqs_engine.rewrite.outputs import sign_of_column

_COMPARED_WITH_ZERO = (exp.EQ, exp.NEQ, exp.GT)
_NUMBERS_OF_ALL = (ROWS, SCALE, SHARED_SCALE)


def chooses_by_estimates(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether the value may be another one, not a near one, once an estimate has moved a little.

    Three conditions are harmless: of keys alone, whether a sum that is never negative is 0, and whether a
    value is NULL. In the last two, error bars find out: they look at what one more row would do.

    Args:
        value: of an output, over merged state.
        basis: the merged columns by their names.
    """
    bare = value.unnest()
    return (
        any(not _is_harmless(each, basis) for each in _conditions(value))
        or any(each is not bare and _may_be_filled(each, basis) for each in value.find_all(exp.Coalesce))
        or any(_chooses(each, basis, alone=each is bare) for each in value.find_all(exp.Greatest, exp.Least))
    )


def _conditions(value: exp.Expr) -> list[exp.Expr]:
    """Return by what the value's CASE and IF choose."""
    found: list[exp.Expr] = []
    for branch in value.find_all(exp.If):
        case = branch.parent if isinstance(branch.parent, exp.Case) else None
        if case is not None and case.this is not None:
            found.append(exp.EQ(this=case.this.copy(), expression=branch.this.copy()))
        else:
            found.append(branch.this)
    return found


def _is_harmless(condition: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    condition = condition.unnest()
    if not _estimated(condition, basis):
        return True
    if isinstance(condition, exp.And | exp.Or):
        return all(_is_harmless(side, basis) for side in (condition.left, condition.right))
    if isinstance(condition, exp.Not):
        return _is_harmless(condition.this, basis)
    if isinstance(condition, exp.Is):
        return isinstance(condition.expression, exp.Null)
    if not isinstance(condition, _COMPARED_WITH_ZERO) or not _is_zero(condition.right):
        return False
    sign = sign_of(condition.left, lambda column: sign_of_column(column, dict(basis)))
    return len(_estimated(condition.left, basis)) == 1 and not sign & Sign.NEGATIVE


def _chooses(extreme: exp.Expr, basis: Mapping[str, BasisColumn], *, alone: bool) -> bool:
    """Whether GREATEST or LEAST has estimates to choose from.

    One estimate beside constants does no harm if that is the whole value: it is cut at the constant.
    """
    estimated = [bool(_estimated(each, basis)) for each in (extreme.this, *extreme.expressions)]
    return any(estimated) if not alone else sum(estimated) > 1


def _may_be_filled(coalesce: exp.Coalesce, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether COALESCE has an estimate that may be NULL for now, other than a sum.

    The mean of no rows is NULL, and one more row with a 0 would let it be 0: that is what COALESCE often
    takes, so that error bars do not see the difference.
    """
    asked = [coalesce.this, *coalesce.expressions[:-1]]
    return any(len(_estimated(each, basis)) > 1 for each in asked)


def _estimated(expression: exp.Expr, basis: Mapping[str, BasisColumn]) -> set[str]:
    """Return the merged columns in an expression, those left aside that count all rows."""
    names = {column.name for column in expression.find_all(exp.Column)}
    return {name for name in names if name in basis and name not in _NUMBERS_OF_ALL}


def _is_zero(value: exp.Expr) -> bool:
    bare = value.unnest()
    return isinstance(bare, exp.Literal) and not bare.is_string and float(bare.this) == 0.0
