"""How far the estimate of an expression over answers can be trusted, by what it is computed from.

- A smooth function of estimates (a sum, ratio, running total or share of a total) has an interval of its own.
  It comes from leaving one block out through the whole query. It is certified only if groups that were not
  seen yet cannot change it by more than their rows would. A total over groups is a total over rows, so it may
  be certified. A mean over groups is not.
- Ranks, counts and extremes over groups are shown as values so far, without an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from sqlglot import exp

from relaqs_engine.layouts.number_types import is_number
from relaqs_engine.sql.parse import DIALECT


class Trust(IntEnum):
    """How far an estimate of a value can be trusted. A value is trusted as far as the least of its parts."""

    KEY = 0  # no estimate: a function of group keys and constants
    OWN = 1  # a smooth function of sums over rows
    WHOLE = 2  # smooth, if no group is missing
    NONE = 3


@dataclass(frozen=True, slots=True)
class Value:
    """One column of a query over answers.

    Attributes:
        trust: how far its estimate can be trusted.
        is_total: whether it is a sum over rows. 0 is one, and so is a column of an answer that is exact.
        sources: the (part, output) of each answer that it is taken over from, with its interval.
        columns: the (part, output) of each answer that its rows come from. A UNION ALL has several.
        is_scaled: whether it depends on an estimate that grows with what was read, before it is scaled.
    """

    trust: Trust
    is_total: bool = False
    sources: tuple[tuple[int, int], ...] = ()
    columns: frozenset[tuple[int, int]] = frozenset()
    is_scaled: bool = True


# By the alias of its table, and its own name in lower case.
Names = Mapping[tuple[str, str], Value]

UNSURE = Value(Trust.NONE)
_SMOOTH = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Alias),
    *(exp.Coalesce, exp.Nullif, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow),
)
_RANKS = (exp.Rank, exp.DenseRank, exp.RowNumber, exp.PercentRank, exp.CumeDist, exp.Ntile)
_NEIGHBOURS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


def smoothed(item: exp.Expr, names: Names) -> Value:
    """Return what is known of an output. If it has an interval, its rounding is taken off, in place."""
    smooth = item.unalias().copy()
    for node in list(smooth.find_all(exp.Round, exp.Cast)):
        if isinstance(node, exp.Round) or is_number(node.args["to"].sql(DIALECT)):
            smooth = _without(smooth, node)
    value = value_of(smooth, names)
    if value.trust in (Trust.OWN, Trust.WHOLE):
        item.unalias().replace(smooth)
        return value
    return value_of(item.unalias(), names)


def _without(expression: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Return the expression with the unrounded value in the place of the node that rounds it."""
    inner = exp.paren(node.this)
    if node is expression:
        return inner
    node.replace(inner)
    return expression


def value_of(expression: exp.Expr, names: Names) -> Value:
    """Return what is known of an expression over columns."""
    bare = expression.unnest()
    if isinstance(bare, exp.Column):
        return names.get((bare.table, bare.name.lower()), UNSURE)
    trust, is_total = trust_in(expression, names), _is_total(bare, names)
    return Value(trust, is_total, is_scaled=_is_scaled(expression, names))


def value_over_groups(expression: exp.Expr, names: Names) -> Value:
    """Return what is known of an output of an aggregation. Its columns are group keys."""
    trust = trust_in(expression, names, grouped=True)
    bare = expression.unnest()
    is_total = isinstance(bare, exp.Sum) and trust is not Trust.NONE and _is_total(bare.this, names)
    return Value(trust, is_total, is_scaled=_is_scaled(expression, names))


def trust_in(node: exp.Expr, names: Names, *, grouped: bool = False) -> Trust:
    """Return the trust in an expression. With `grouped`, aggregates stand for sums over groups."""
    if isinstance(node, exp.Column):
        return names.get((node.table, node.name.lower()), UNSURE).trust if not grouped else Trust.KEY
    if isinstance(node, exp.Window):
        return _windowed(node, names) if not grouped else Trust.NONE
    if grouped and isinstance(node, exp.Grouping | exp.GroupingId):
        return Trust.KEY
    if grouped and isinstance(node, exp.AggFunc):
        return _summed(node, names)
    if isinstance(node, exp.Query):
        return Trust.NONE
    if isinstance(node, exp.Case):
        return _chosen(node, names, grouped)
    inner = [trust_in(child, names, grouped=grouped) for child in node.iter_expressions()]
    worst = max(inner, default=Trust.KEY)
    if worst is Trust.KEY and isinstance(node, exp.AggFunc):
        return Trust.NONE
    return worst if worst is Trust.KEY or isinstance(node, _SMOOTH) else Trust.NONE


def _chosen(case: exp.Case, names: Names, grouped: bool) -> Trust:
    """Return the trust in CASE, where keys choose between values, or a test that spares a division by 0."""
    given = [case.this, case.args.get("default")]
    for when in case.args["ifs"]:
        given.append(when.args["true"])
        given.append(when.this.unnest().left if _compares_with_zero(when.this) else None)
        if given[-1] is None and trust_in(when.this, names, grouped=grouped) is not Trust.KEY:
            return Trust.NONE
    found = [trust_in(each, names, grouped=grouped) for each in given if each is not None]
    return Trust.NONE if case.this and found[0] is not Trust.KEY else max(found)


def _compares_with_zero(condition: exp.Expr) -> bool:
    """Whether a condition tells 0 from other values. Estimates near it vary too much to be certified."""
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ | exp.NEQ | exp.GT):
        return False
    return isinstance(condition.right, exp.Literal) and condition.right.this in ("0", "0.0")


def _is_scaled(expression: exp.Expr, names: Names) -> bool:
    """Whether the expression depends on an estimate that is scaled."""
    bare = expression.unnest()
    if isinstance(bare, exp.Window) and isinstance(bare.this, _RANKS):
        return False  # all that is compared is scaled alike
    columns = expression.find_all(exp.Column)
    known = (names.get((column.table, column.name.lower()), UNSURE) for column in columns)
    return any(value.is_scaled for value in known) or expression.find(exp.Query) is not None


def _is_total(node: exp.Expr, names: Names) -> bool:
    """Whether the value is a sum over rows: a linear function, without a constant, of such sums."""
    if isinstance(node, exp.Column):
        return names.get((node.table, node.name.lower()), UNSURE).is_total
    if isinstance(node, exp.Paren | exp.Neg | exp.Cast):
        return _is_total(node.this, names)
    if isinstance(node, exp.Add | exp.Sub):
        return _is_total(node.left, names) and _is_total(node.right, names)
    if isinstance(node, exp.Mul | exp.Div) and isinstance(node.right, exp.Literal):
        return _is_total(node.left, names)
    if isinstance(node, exp.Coalesce):
        return all(_is_total(each, names) for each in (node.this, *node.expressions))
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.this in ("0", "0.0"))


def _windowed(window: exp.Window, names: Names) -> Trust:
    """Return the trust in a window function. The rows that it sees must not depend on estimates."""
    order = window.args.get("order")
    about = [*(window.args.get("partition_by") or []), *(order.expressions if order else [])]
    if any(
        trust_in(each.this if isinstance(each, exp.Ordered) else each, names) is not Trust.KEY
        for each in about
    ):
        return Trust.NONE
    function = window.this
    if isinstance(function, _NEIGHBOURS) and not function.args.get("default"):
        return _if_whole(function.this, names)
    return _summed(function, names)


def _summed(function: exp.Expr, names: Names) -> Trust:
    """Return the trust in a sum or mean over groups."""
    if isinstance(function, exp.Sum):
        total = _is_total(function.this, names)
        return trust_in(function.this, names) if total else _if_whole(function.this, names)
    return _if_whole(function.this, names) if isinstance(function, exp.Avg) else Trust.NONE


def _if_whole(argument: exp.Expr, names: Names) -> Trust:
    """Return the trust in a value that also depends on which groups there are."""
    trust = trust_in(argument, names)
    return Trust.WHOLE if trust in (Trust.OWN, Trust.WHOLE) else Trust.NONE
