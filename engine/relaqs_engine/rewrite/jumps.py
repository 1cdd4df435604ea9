"""Why an output may move otherwise than its error bars suppose: by jumps, or along a sharp bend.

    hash(sum(km)) % 7       what is hashed jumps
    sum(km) / sum(gain)     gains and losses may nearly cancel, and then the ratio may be anything

Error bars come from how a value moves where a little is left out, as if it went on along a straight line. Of
40 groups in 12 orders, 65 % of the bars of the second held (docs/decisions/0073-what-bends.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from relaqs_engine.bounds.casts import cast_step, loses_large_numbers
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.sign import bends
from relaqs_engine.rewrite.outputs import sign_of_column
from relaqs_engine.rewrite.trust import BENDS
from relaqs_engine.sql.parse import DIALECT

# How CASE, COALESCE and the like choose is in `branches.py`, and what rounding does in `rounded.py`.
_WITHOUT_JUMPS = (
    *(exp.Column, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs),
    *(exp.Sqrt, exp.Cbrt, exp.Ln, exp.Log, exp.Exp, exp.Pow),
    *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least),
    *(exp.Round, exp.Floor, exp.Ceil, exp.Trunc, exp.IntDiv, exp.Mod, exp.Sign),
)


def jumps_and_bends(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> Iterator[str]:
    """Yield why error bars of a value over merged state may say too little.

    Args:
        value: of an output.
        basis: the merged columns by their names.
    """
    estimates = [column for column in value.find_all(exp.Column) if column.name in basis]
    above = {id(node): node for column in estimates for node in _path(column)}
    for node in above.values():
        if not isinstance(node, _WITHOUT_JUMPS) and not (isinstance(node, exp.Cast) and _is_number(node)):
            yield f"{_called(node)} may jump where an estimate moves a little; its parts may be certified"
    bare, curved = value.unnest(), [node for node in above.values() if not _centres_moments(node, basis)]
    if any(bends(node, lambda c: sign_of_column(c, basis), alone=node is bare) for node in curved):
        yield BENDS


def _called(node: exp.Expr) -> str:
    """Return what is computed, without its arguments: they are columns of merged state."""
    name, is_call, _ = node.sql(DIALECT).partition("(")
    return f"{name.lower()}()" if is_call and name.isidentifier() else "an operator"


def _centres_moments(node: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether a product moves moments to another centre, as in the kurtosis of `moments.py`.

    Both factors may be near zero, but then it is a small part of the sum that it stands in.
    """
    if not isinstance(node, exp.Mul) or node.left.find(exp.Sub) is None:
        return False
    shift, moments = (
        [basis.get(each.name) for each in side.find_all(exp.Column)] for side in (node.left, node.right)
    )
    return all(each is not None and each.kind is Basis.MEAN for each in shift) and all(
        each is not None and each.is_moment for each in moments
    )


def _path(column: exp.Column) -> list[exp.Expr]:
    """Return the nodes from a column up to the value, none where it stands in a condition of CASE or IF."""
    found: list[exp.Expr] = [column]
    while (parent := found[-1].parent) is not None:
        if isinstance(parent, exp.If | exp.Case) and parent.this is found[-1]:
            return []
        found.append(parent)
    return found


def _is_number(cast: exp.Cast) -> bool:
    return cast_step(cast) is not None and not loses_large_numbers(cast)
