"""How far the estimate of an expression over estimates can be trusted, by what it is computed from.

- A smooth function of estimates (a sum, ratio, running total or share of a total) has an interval of its
  own. It comes from leaving one block out through the whole query. A total over groups is a total over
  rows, so that groups that were not met yet change it by no more than their rows. A mean over groups and
  what a window takes from the row before may be anything then, so they are certified once every group was
  surely met.
- What it is divided by must not come near zero. A sum of gains and losses may, and then the ratio may be
  anything.
- Ranks, counts and extremes over groups are shown as values so far, without an interval.
- Rounding is taken off, and the interval is widened by it. Where nothing says how far it moves the value,
  as in a sum of rounded totals, there is no interval.

What each function does is said in `sql/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf, isfinite

from sqlglot import exp

from relaqs_engine.sql.aggregate_laws import Merge, call_of
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.expressions import (
    NEIGHBOUR,
    KeptSigns,
    Motion,
    Question,
    Sign,
    Vanishing,
    alternatives,
    asked_in_turn,
    bends,
    conditions_in,
    conditions_of,
    function_of,
    most_folded,
    number_of,
    rounding_step,
    terms_of,
)


class Trust(IntEnum):
    """How far an estimate of a value can be trusted. A value is trusted as far as the least of its parts."""

    KEY = 0  # no estimate: a function of group keys and constants
    OWN = 1  # a smooth function of sums over rows
    WHOLE = 2  # smooth, once every group was met
    BENT = 3  # smooth, if no divisor is near zero
    NONE = 4

    @property
    def is_smooth(self) -> bool:
        """Whether it has an interval, be it never certified before the end."""
        return self in (Trust.OWN, Trust.WHOLE, Trust.BENT)

    @property
    def why_never(self) -> str:
        """Return why an interval is never certified before the end, "" where it may be."""
        return BENDS if self is Trust.BENT else ""


BENDS = (
    "it divides by what may come near zero, or bends there, and then it may be anything; its parts may be "
    "certified"
)
"""Why what `bends` is not certified."""


@dataclass(frozen=True, slots=True)
class Value:
    """One column of a query over answers.

    Attributes:
        trust: how far its estimate can be trusted.
        is_total: whether it is a sum over rows. 0 is one, and so is a column of an answer that is exact.
        sources: the (part, output) of each answer that it is taken over from, with its interval.
        columns: the (part, output) of each answer that its rows come from. A UNION ALL has several.
        is_scaled: whether it depends on an estimate that grows with what was read, before it is scaled.
        step: how far its last value may be rounded at most, which its estimate is not. Infinite: not known.
        type: of a column of an answer, as DuckDB writes it. "" where that is not known.
        sign: the side of zero that it keeps to, EITHER where it may come near zero.
        is_chosen: whether comparisons of estimates choose it among values that are known, as a label is.
        motion: how it moves by how it was folded in an answer (`OutputColumn.motion`).
        counts_rows: whether it is a number of rows.
    """

    trust: Trust
    is_total: bool = False
    sources: tuple[tuple[int, int], ...] = ()
    columns: frozenset[tuple[int, int]] = frozenset()
    is_scaled: bool = True
    step: float = 0.0
    type: str = ""
    sign: Sign = Sign.EITHER
    is_chosen: bool = False
    motion: Motion = Motion.SMOOTH
    counts_rows: bool = False


# By the alias of its table, and its own name in lower case.
Names = Mapping[tuple[str, str], Value]

UNSURE = Value(Trust.NONE)
_RANKS = (exp.Rank, exp.DenseRank, exp.RowNumber, exp.PercentRank, exp.CumeDist, exp.Ntile)
_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)


def _known(column: exp.Column, names: Names) -> Value:
    return names.get((column.table, column.name.lower()), UNSURE)


class Totals(Question[bool]):
    """Whether the value is a sum over rows: a linear function, without a constant, of such sums."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def of_column(self, column: exp.Column) -> bool:
        return _known(column, self._names).is_total

    def of(self, node: exp.Expr) -> bool:
        if (terms := terms_of(node)) is not None:
            return all(self(term.value) for term in terms)
        if isinstance(node, exp.Coalesce):
            return all(map(self, alternatives(node)))
        return isinstance(node, exp.Null) or number_of(node) == 0.0


class Steps(Question[float]):
    """The most that rounding moves an expression, infinity where that is not known."""

    def __init__(self, names: Names) -> None:
        self._names, self._trust = names, Trusts(names)

    def of_column(self, column: exp.Column) -> float:
        value = _known(column, self._names)
        return 0.0 if value.trust is Trust.KEY else value.step

    def of(self, node: exp.Expr) -> float:
        if self._trust(node) is Trust.KEY:
            return 0.0
        if function_of(node).motion is Motion.STEPS:
            from_type = _known(node.this, self._names).type if isinstance(node.this, exp.Column) else ""
            by = rounding_step(node, from_type)
            return inf if by is None else by + self(node.this)
        if (terms := terms_of(node)) is not None:
            steps = [(term.factor, self(term.value)) for term in terms]
            return sum(abs(factor) * step for factor, step in steps if step)
        return inf if any(map(self, node.iter_expressions())) else 0.0


class Trusts(Question[Trust]):
    """How far an estimate of an expression can be trusted.

    Args:
        names: what is known of its columns.
        grouped: whether aggregates stand for sums over groups.
        may_decide: whether CASE may compare estimates (see `margins_in`).
    """

    def __init__(self, names: Names, *, grouped: bool = False, may_decide: bool = False) -> None:
        self._names, self._grouped, self._may_decide = names, grouped, may_decide

    def of_column(self, column: exp.Column) -> Trust:
        return Trust.KEY if self._grouped else _known(column, self._names).trust

    def of(self, node: exp.Expr) -> Trust:
        trust = self._of(node)
        return max(trust, Trust.BENT) if trust.is_smooth and self._is_of_folded(node) else trust

    def _is_of_folded(self, node: exp.Expr) -> bool:
        """Whether a function is of folded values: only their own intervals tell of the fold.

        What may turn round may be multiplied by keys, or moved by them.
        """
        motions = {_known(column, self._names).motion for column in find_all(node, exp.Column)}
        if motions <= {Motion.SMOOTH}:
            return False
        sides = [each for each in node.iter_expressions() if self(each) is not Trust.KEY]
        return Motion.CHOOSES in motions or terms_of(node) is None or len(sides) > 1

    def _of(self, node: exp.Expr) -> Trust:
        match node:
            case exp.Window():
                return Trust.NONE if self._grouped else _windowed(node, self._names)
            case exp.Grouping() | exp.GroupingId() if self._grouped:
                return Trust.KEY
            case exp.AggFunc() if self._grouped:
                return _summed(node, self._names)
            case exp.Query():
                return Trust.NONE
            case exp.Case() | exp.If():
                return self._chosen(node)
            case exp.Coalesce():
                return self._filled_in(node)
        worst = max(map(self, node.iter_expressions()), default=Trust.KEY)
        if worst is Trust.KEY:
            return Trust.NONE if isinstance(node, exp.AggFunc) else Trust.KEY
        if function_of(node).motion is not Motion.SMOOTH:
            return Trust.NONE
        return Trust.BENT if worst in (Trust.OWN, Trust.WHOLE) and self._is_bent(node) else worst

    def _is_bent(self, node: exp.Expr) -> bool:
        """Whether a function of estimates may bend sharply within their errors. Keys are constants to it."""
        constants: list[exp.Expr] = []
        if isinstance(node, exp.Mul | exp.Div):
            constants = [node.right] if isinstance(node, exp.Div) else [node.left, node.right]
        if any(self(each) is Trust.KEY for each in constants):
            return False
        names = self._names
        return bends(node, Vanishing(lambda c: _known(c, names).sign, lambda c: _known(c, names).counts_rows))

    def _chosen(self, choice: exp.Expr) -> Trust:
        """Return the trust in CASE, where keys choose between values, or estimates that are far apart."""
        asked = Trusts(self._names, grouped=self._grouped)
        for condition in conditions_of(choice):
            by_margins = self._may_decide and margins_in(condition, self._names) is not None
            if asked(condition) is not Trust.KEY and not by_margins:
                return Trust.NONE
        return max(map(self, alternatives(choice)), default=Trust.KEY)

    def _filled_in(self, coalesce: exp.Coalesce) -> Trust:
        """Return the trust in COALESCE. An estimate that is NULL so far may have a value at the end.

        A margin tells whether it is NULL. Elsewhere only a sum is filled in, whose NULL stands for 0.
        """
        asked, last = asked_in_turn(coalesce)
        is_total = Totals(self._names)

        def is_sum(node: exp.Expr) -> bool:
            bare = node.unnest()
            return is_total(bare) if not self._grouped else is_total_of(bare) and is_total(bare.this)

        is_sound = self._may_decide or all(self(each) is Trust.KEY or is_sum(each) for each in asked)
        return max(map(self, (*asked, last))) if is_sound else Trust.NONE


def trust_in(node: exp.Expr, names: Names) -> Trust:
    """Return the trust in an expression. names: what is known of its columns."""
    return Trusts(names)(node)


def smoothed(item: exp.Expr, names: Names, *, may_decide: bool = False) -> Value:
    """Return what is known of an output. If it has an interval, its rounding is taken off, in place.

    With `may_decide`, CASE may compare estimates: margins of it tell which branch it takes.
    """
    estimated = (each for each in conditions_in(item) if trust_in(each, names) is not Trust.KEY)
    may_decide = may_decide and not any(map(_rounds, estimated))
    step = Steps(names)(item)
    if not isfinite(step):
        return value_of(item.unalias(), names)
    smooth = item.unalias().copy()
    for node in list(smooth.walk()):
        if rounding_step(node) is not None and trust_in(node, names) is not Trust.KEY:
            smooth = _without(smooth, node)
    value = value_of(smooth, names, may_decide=may_decide)
    if value.trust.is_smooth:
        item.unalias().replace(smooth)
        return replace(value, step=step)
    found = value_of(item.unalias(), names)
    return replace(found, is_chosen=value.trust is Trust.KEY and found.trust is Trust.NONE)


def _without(expression: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Return the expression with the unrounded value in the place of the node that rounds it."""
    inner = exp.paren(node.this)
    if node is expression:
        return inner
    node.replace(inner)
    return expression


def value_of(expression: exp.Expr, names: Names, *, may_decide: bool = False) -> Value:
    """Return what is known of an expression over columns."""
    bare = expression.unnest()
    if isinstance(bare, exp.Column):
        return _known(bare, names)
    trust = Trusts(names, may_decide=may_decide)(expression)
    return _computed(expression, names, trust, Totals(names)(bare), Steps(names)(bare))


def value_over_groups(expression: exp.Expr, names: Names) -> Value:
    """Return what is known of an output of an aggregation. Its columns are group keys."""
    trust = Trusts(names, grouped=True)(expression)
    bare = expression.unnest()
    is_total = is_total_of(bare) and trust is not Trust.NONE and Totals(names)(bare.this)
    calls = find_all(expression, exp.AggFunc)
    rounds = any(Steps(names)(argument) for call in calls for argument in call.iter_expressions())
    return _computed(expression, names, trust, is_total, inf if rounds else 0.0)


def is_total_of(node: exp.Expr) -> bool:
    """Whether a node is the sum of its argument over rows, each of them once."""
    call = call_of(node)
    return call is not None and call.merge is Merge.TOTAL and call.condition is None


def _computed(expression: exp.Expr, names: Names, trust: Trust, is_total: bool, step: float) -> Value:
    trust = trust if isfinite(step) or trust is Trust.KEY else Trust.NONE
    sign = KeptSigns(lambda column: _known(column, names).sign)(expression)
    motion = most_folded(_known(column, names).motion for column in find_all(expression, exp.Column))
    return Value(
        trust, is_total, is_scaled=_is_scaled(expression, names), step=step, sign=sign, motion=motion
    )


def margins_of_choices(item: exp.Expr, names: Names) -> list[exp.Expr]:
    """Return the margins of all comparisons of estimates by which the CASEs of an output choose."""
    return [margin for each in conditions_in(item) for margin in margins_in(each, names) or ()]


def filled_in(item: exp.Expr, names: Names) -> list[exp.Expr]:
    """Return the estimates of an output for which COALESCE takes something else where they are NULL."""
    asked = [each for coalesce in find_all(item, exp.Coalesce) for each in asked_in_turn(coalesce)[0]]
    return [each for each in asked if trust_in(each, names) is not Trust.KEY]


def margins_in(condition: exp.Expr, names: Names) -> list[exp.Expr] | None:
    """Return how far apart the two sides are of each comparison of estimates in a condition.

    As long as no margin crosses zero, the condition stays as it is. None where estimates decide about it in
    another way.
    """
    condition = condition.unnest()
    if trust_in(condition, names) is Trust.KEY:
        return []
    if isinstance(condition, exp.And | exp.Or):
        sides = [margins_in(side, names) for side in (condition.left, condition.right)]
        return None if None in sides else [margin for side in sides for margin in side or ()]
    if isinstance(condition, exp.Not):
        return margins_in(condition.this, names)
    if isinstance(condition, exp.Between):
        pairs = [(condition.this, condition.args[end]) for end in ("low", "high")]
    elif isinstance(condition, _COMPARISONS):
        pairs = [(condition.left, condition.right)]
    else:
        return None
    found: list[exp.Expr] = [
        exp.Sub(this=exp.paren(a.copy()), expression=exp.paren(b.copy())) for a, b in pairs
    ]
    if any(map(Steps(names), found)):
        return None
    return found if all(trust_in(each, names) is Trust.OWN for each in found) else None


def _rounds(expression: exp.Expr) -> bool:
    """Whether the expression may move in steps."""
    return any(function_of(node).motion is Motion.STEPS for node in expression.walk())


def _is_scaled(expression: exp.Expr, names: Names) -> bool:
    """Whether the expression depends on an estimate that is scaled."""
    bare = expression.unnest()
    if isinstance(bare, exp.Window) and isinstance(bare.this, _RANKS):
        return False  # all that is compared is scaled alike
    if find_first(expression, exp.Query):
        return True
    return any(_known(column, names).is_scaled for column in find_all(expression, exp.Column))


def _windowed(window: exp.Window, names: Names) -> Trust:
    """Return the trust in a window function. The rows that it sees must not depend on estimates.

    A frame that counts rows has another one in it where a group is missing.
    """
    if window.args.get("alias"):  # a window with a name, which says how it is ordered elsewhere
        return Trust.NONE
    order = window.args.get("order")
    about = [*(window.args.get("partition_by") or []), *(order.expressions if order else [])]
    if any(
        trust_in(each.this if isinstance(each, exp.Ordered) else each, names) is not Trust.KEY
        for each in about
    ):
        return Trust.NONE
    function = window.this
    if function_of(function) is NEIGHBOUR:
        fixed = all(
            trust_in(each, names) is Trust.KEY
            for each in function.iter_expressions()
            if each is not function.this
        )
        return _if_whole(function.this, names) if fixed else Trust.NONE
    trust = _summed(function, names)
    return max(trust, Trust.WHOLE) if _counts_rows(window) else trust


def _counts_rows(window: exp.Window) -> bool:
    """Whether the frame ends a number of rows, or of groups of equal rows, away."""
    frame = window.args.get("spec")
    if frame is None or str(frame.args.get("kind")).upper() == "RANGE":
        return False
    return any(isinstance(frame.args.get(end), exp.Expr) for end in ("start", "end"))


def _summed(function: exp.Expr, names: Names) -> Trust:
    """Return the trust in a sum or mean over groups."""
    merge = None if (call := call_of(function)) is None else call.merge
    if merge is Merge.TOTAL and Totals(names)(function.this):
        return trust_in(function.this, names)
    return _if_whole(function.this, names) if merge in (Merge.TOTAL, Merge.MEAN) else Trust.NONE


def _if_whole(argument: exp.Expr, names: Names) -> Trust:
    """Return the trust in a value that also depends on which groups there are."""
    trust = trust_in(argument, names)
    is_folded = any(
        _known(each, names).motion is not Motion.SMOOTH for each in find_all(argument, exp.Column)
    )
    return max(trust, Trust.BENT if is_folded else Trust.WHOLE) if trust.is_smooth else Trust.NONE
