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

**Rounding.** For an output that is rounded, the bars are computed for the value before, and then widened
by how far rounding may move it, since a rounded value moves in steps:

    round(avg(fare), 2)  is  avg(fare), at most 0.005 away
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf, isfinite

from sqlglot import exp

from relaqs_engine.bounds import cast_step, loses_large_numbers
from relaqs_engine.plans.sign import NEIGHBOURS, Sign, bends, sign_of
from relaqs_engine.sql.aggregates import Merge, call_of

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
        return _WHY_NEVER.get(self, "")


BENDS = (
    "it divides by what may come near zero, or bends there, and then it may be anything; its parts may be "
    "certified"
)
"""Why what `bends` is not certified."""

_WHY_NEVER = {Trust.BENT: BENDS}


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
        sign: the sides of zero on which it may lie.
        is_chosen: whether comparisons of estimates choose it among values that are known, as a label is.
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


# By the alias of its table, and its own name in lower case.
Names = Mapping[tuple[str, str], Value]

UNSURE = Value(Trust.NONE)
_SMOOTH = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Alias),
    *(exp.Nullif, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow),
)
_RANKS = (exp.Rank, exp.DenseRank, exp.RowNumber, exp.PercentRank, exp.CumeDist, exp.Ntile)
_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)


def smoothed(item: exp.Expr, names: Names, *, may_decide: bool = False) -> Value:
    """Return what is known of an output. If it has an interval, its rounding is taken off, in place.

    With `may_decide`, CASE may compare estimates: margins of it tell which branch it takes.
    """
    may_decide = may_decide and not any(map(_rounds, _conditions_in(item)))
    step = _step(item.unalias(), names)
    if not isfinite(step):
        return value_of(item.unalias(), names)
    smooth = item.unalias().copy()
    for node in list(smooth.find_all(exp.Round, exp.Cast)):
        if isinstance(node, exp.Round) or cast_step(node) is not None:
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
    trust, is_total = trust_in(expression, names, may_decide=may_decide), _is_total(bare, names)
    return _computed(expression, names, trust, is_total, _step(bare, names))


def value_over_groups(expression: exp.Expr, names: Names) -> Value:
    """Return what is known of an output of an aggregation. Its columns are group keys."""
    trust = trust_in(expression, names, grouped=True)
    bare = expression.unnest()
    is_total = is_total_of(bare) and trust is not Trust.NONE and _is_total(bare.this, names)
    arguments = [
        argument for call in expression.find_all(exp.AggFunc) for argument in call.iter_expressions()
    ]
    step = max((_step(argument, names) for argument in arguments), default=0.0)
    return _computed(expression, names, trust, is_total, inf if step else 0.0)


def is_total_of(node: exp.Expr) -> bool:
    """Whether a node is the sum of its argument over rows, each of them once."""
    call = call_of(node)
    return call is not None and call.merge is Merge.TOTAL and call.condition is None


def _computed(expression: exp.Expr, names: Names, trust: Trust, is_total: bool, step: float) -> Value:
    trust = trust if isfinite(step) or trust is Trust.KEY else Trust.NONE
    sign = sign_of(expression, lambda column: _known(column, names).sign)
    return Value(trust, is_total, is_scaled=_is_scaled(expression, names), step=step, sign=sign)


def _known(column: exp.Column, names: Names) -> Value:
    return names.get((column.table, column.name.lower()), UNSURE)


def _step(node: exp.Expr, names: Names) -> float:
    """Return the most that rounding moves an expression, infinity where that is not known."""
    node = node.unalias().unnest()
    if isinstance(node, exp.Column):
        value = _known(node, names)
        return 0.0 if value.trust is Trust.KEY else value.step
    if trust_in(node, names) is Trust.KEY:
        return 0.0
    if isinstance(node, exp.Cast):
        from_type = _known(node.this, names).type if isinstance(node.this, exp.Column) else ""
        by = cast_step(node, from_type)
        return inf if by is None or loses_large_numbers(node) else by + _step(node.this, names)
    if isinstance(node, exp.Round):
        by = rounding_step(node)
        return inf if by is None else by + _step(node.this, names)
    if isinstance(node, exp.Neg | exp.Add | exp.Sub):
        return sum(_step(child, names) for child in node.iter_expressions())
    if (
        isinstance(node, exp.Mul | exp.Div)
        and isinstance(node.right, exp.Literal)
        and not node.right.is_string
    ):
        by, other = _step(node.left, names), float(node.right.this)
        return by and (by * other if isinstance(node, exp.Mul) else inf if not other else by / other)
    return inf if any(_step(child, names) for child in node.iter_expressions()) else 0.0


def trust_in(node: exp.Expr, names: Names, *, grouped: bool = False, may_decide: bool = False) -> Trust:
    """Return the trust in an expression.

    Args:
        node: it.
        names: what is known of its columns.
        grouped: whether aggregates stand for sums over groups.
        may_decide: whether CASE may compare estimates (see `margins_in`).
    """
    if isinstance(node, exp.Column):
        return _known(node, names).trust if not grouped else Trust.KEY
    if isinstance(node, exp.Window):
        return _windowed(node, names) if not grouped else Trust.NONE
    if grouped and isinstance(node, exp.Grouping | exp.GroupingId):
        return Trust.KEY
    if grouped and isinstance(node, exp.AggFunc):
        return _summed(node, names)
    if isinstance(node, exp.Query):
        return Trust.NONE
    if isinstance(node, exp.Case):
        return _chosen(node, names, grouped, may_decide)
    if isinstance(node, exp.Coalesce):
        return _filled_in(node, names, grouped, may_decide)
    inner = [
        trust_in(child, names, grouped=grouped, may_decide=may_decide) for child in node.iter_expressions()
    ]
    worst = max(inner, default=Trust.KEY)
    if worst is Trust.KEY and isinstance(node, exp.AggFunc):
        return Trust.NONE
    if worst in (Trust.OWN, Trust.WHOLE) and _is_bent(node, names, grouped):
        return Trust.BENT
    return worst if worst is Trust.KEY or isinstance(node, _SMOOTH) else Trust.NONE


def _is_bent(node: exp.Expr, names: Names, grouped: bool) -> bool:
    """Whether a function of estimates may bend sharply within their errors. Keys are constants to it."""
    constants: list[exp.Expr] = []
    if isinstance(node, exp.Mul | exp.Div):
        constants = [node.right] if isinstance(node, exp.Div) else [node.left, node.right]
    if any(trust_in(each, names, grouped=grouped) is Trust.KEY for each in constants):
        return False
    return bends(node, lambda column: _known(column, names).sign)


def _chosen(case: exp.Case, names: Names, grouped: bool, may_decide: bool) -> Trust:
    """Return the trust in CASE, where keys choose between values, or estimates that are far apart."""
    given = [case.this, case.args.get("default")]
    for when in case.args["ifs"]:
        given.append(when.args["true"])
        by_keys = trust_in(when.this, names, grouped=grouped) is Trust.KEY
        by_margins = may_decide and not case.this and margins_in(when.this, names) is not None
        if not by_keys and not by_margins:
            return Trust.NONE
    found = [
        trust_in(each, names, grouped=grouped, may_decide=may_decide) for each in given if each is not None
    ]
    return Trust.NONE if case.this and found[0] is not Trust.KEY else max(found)


def _filled_in(coalesce: exp.Coalesce, names: Names, grouped: bool, may_decide: bool) -> Trust:
    """Return the trust in COALESCE. An estimate that is NULL so far may have a value at the end.

    A margin tells whether it is NULL. Elsewhere only a sum is filled in, whose NULL stands for 0.
    """
    asked, last = _asked_in_turn(coalesce)

    def trust(node: exp.Expr) -> Trust:
        return trust_in(node, names, grouped=grouped, may_decide=may_decide)

    def is_sum(node: exp.Expr) -> bool:
        bare = node.unnest()
        if not grouped:
            return _is_total(bare, names)
        return is_total_of(bare) and _is_total(bare.this, names)

    is_sound = may_decide or all(trust(each) is Trust.KEY or is_sum(each) for each in asked)
    return max(map(trust, (*asked, last))) if is_sound else Trust.NONE


def _asked_in_turn(coalesce: exp.Coalesce) -> tuple[list[exp.Expr], exp.Expr]:
    """Return the arguments that may be NULL, and the one that is taken then."""
    *asked, last = [coalesce.this, *coalesce.expressions]
    return asked, last


def margins_of_choices(item: exp.Expr, names: Names) -> list[exp.Expr]:
    """Return the margins of all comparisons of estimates by which the CASEs of an output choose."""
    return [margin for each in _conditions_in(item) for margin in margins_in(each, names) or ()]


def filled_in(item: exp.Expr, names: Names) -> list[exp.Expr]:
    """Return the estimates of an output for which COALESCE takes something else where they are NULL."""
    asked = [each for coalesce in item.find_all(exp.Coalesce) for each in _asked_in_turn(coalesce)[0]]
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
    if any(_step(each, names) for each in found):
        return None
    return found if all(trust_in(each, names) is Trust.OWN for each in found) else None


def _conditions_in(item: exp.Expr) -> list[exp.Expr]:
    """Return by what the CASEs of an expression choose."""
    return [when.this for case in item.find_all(exp.Case) for when in case.args["ifs"]]


def _rounds(expression: exp.Expr) -> bool:
    """Whether the expression may move in steps."""
    return expression.find(exp.Round, exp.Cast) is not None


def _is_scaled(expression: exp.Expr, names: Names) -> bool:
    """Whether the expression depends on an estimate that is scaled."""
    bare = expression.unnest()
    if isinstance(bare, exp.Window) and isinstance(bare.this, _RANKS):
        return False  # all that is compared is scaled alike
    columns = expression.find_all(exp.Column)
    return (
        any(_known(column, names).is_scaled for column in columns) or expression.find(exp.Query) is not None
    )


def _is_total(node: exp.Expr, names: Names) -> bool:
    """Whether the value is a sum over rows: a linear function, without a constant, of such sums."""
    if isinstance(node, exp.Column):
        return _known(node, names).is_total
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
    if isinstance(function, NEIGHBOURS):
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
    if merge is Merge.TOTAL and _is_total(function.this, names):
        return trust_in(function.this, names)
    return _if_whole(function.this, names) if merge in (Merge.TOTAL, Merge.MEAN) else Trust.NONE


def _if_whole(argument: exp.Expr, names: Names) -> Trust:
    """Return the trust in a value that also depends on which groups there are."""
    trust = trust_in(argument, names)
    return max(trust, Trust.WHOLE) if trust.is_smooth else Trust.NONE
