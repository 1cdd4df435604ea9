"""What is known of the columns of a query over answers, while those answers are estimates.

- A column that is taken over from an answer keeps its interval.
- A smooth function of estimates (a sum, ratio, running total or share of a total) has an interval of its own.
  It comes from leaving one block out through the whole query. It is certified only if groups that were not
  seen yet cannot change it by more than their rows would. A total over groups is a total over rows, so it may
  be certified. A mean over groups is not.
- Ranks, counts and extremes over groups are shown as values so far, without an interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from sqlglot import exp

from relaqs_engine.plans.around import PartPlan
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.names import GROUP, GROUP_ROWS
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.rewrite.carve import aggregates, answer_index
from relaqs_engine.rewrite.draft import NotOnlineError
from relaqs_engine.rewrite.outputs import is_number
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
        is_total: whether it is a sum over rows.
        sources: the (part, output) of each answer that it is taken over from.
    """

    trust: Trust
    is_total: bool = False
    sources: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """What is known of a query over answers.

    Attributes:
        values: its columns, by position.
        query: the query with two more columns: the identity of each row, and the number of joined rows behind
            it. None where rows cannot be told apart.
        part: the one answer that all rows come from, if there is one.
        is_certain: whether the set of its rows depends on no estimate.
        keeps_groups: whether each row is a group of an answer.
    """

    values: tuple[Value, ...]
    query: exp.Query | None = None
    part: int | None = None
    is_certain: bool = False
    keeps_groups: bool = False


Names = Mapping[tuple[str, str], Value]

_SMOOTH = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Alias),
    *(exp.Coalesce, exp.Nullif, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow),
)
_NEIGHBOURS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)
_UNSURE = Value(Trust.NONE)


def level_of(query: exp.Query, parts: Sequence[PartPlan]) -> Level:
    """Return what is known of a query over the answers of the parts. The query itself stays as it is.

    The plan shows what follows from it. A share of a total is smooth, and a rank is not:

    >>> from relaqs_engine.planning.example import explained
    >>> share, place = "sum(km) / sum(sum(km)) OVER ()", "rank() OVER (ORDER BY sum(km))"
    >>> sql = f"SELECT zone, {share} AS share, {place} AS place FROM trips GROUP BY zone"
    >>> explained(sql, "columns")
    'zone: group key share: estimate with an interval place: value so far, no interval'
    """
    if isinstance(query, exp.SetOperation):
        return _combined(query, parts)
    assert isinstance(query, exp.Select)
    sources = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or [])]
    below = [_source_level(source, parts) for source in sources]
    names = {
        (source.alias_or_name, name.lower()): value
        for source, level in zip(sources, below, strict=True)
        for name, value in zip(_column_names(source, parts), level.values, strict=True)
    }
    several = query.args.get("distinct") or query.find(exp.UDTF, exp.Explode)
    if len(sources) > 1 or several or below[0].query is None:
        return _blind([_value(item.unalias(), names) for item in query.expressions])
    query = query.copy()
    if isinstance(sources[0], exp.Subquery):
        query.args["from_"].this.set("this", below[0].query.copy())
    conditions = [query.args.get(part) for part in ("where", "having", "qualify")]
    certain = below[0].is_certain and all(c is None or _trust(c, names) is Trust.KEY for c in conditions)
    if aggregates(query):
        return _grouped(query, names, replace(below[0], is_certain=certain))
    values = tuple(_smoothed(item, names) for item in query.expressions)
    hidden = [exp.column(name, sources[0].alias_or_name) for name in (GROUP, GROUP_ROWS)]
    return replace(below[0], values=values, query=query.select(*hidden), is_certain=certain)


def _blind(values: Iterable[Value]) -> Level:
    """Return the level of a query whose rows cannot be told apart. Only its keys are known."""
    return Level(tuple(value if value.trust is Trust.KEY else _UNSURE for value in values))


def _source_level(source: exp.Expr, parts: Sequence[PartPlan]) -> Level:
    if isinstance(source, exp.Table):
        part = answer_index(source.name)
        values = tuple(_answered(parts[part], part, i) for i in range(len(parts[part].outputs)))
        return Level(values, exp.Select(), part, is_certain=True, keeps_groups=True)
    level = level_of(source.this, parts)
    limited = any(source.this.args.get(part) for part in ("limit", "offset"))
    return _blind(level.values) if limited else level


def _answered(plan: PartPlan, part: int, position: int) -> Value:
    """Return what is known of an output of a plan."""
    output, sources = plan.outputs[position], ((part, position),)
    if output.kind is OutputKind.KEY:
        return Value(Trust.KEY, sources=sources)
    estimated = output.kind is OutputKind.ESTIMATE and plan.method is Method.REPLICATES
    if not estimated or not plan.shows_every_group:
        return Value(Trust.NONE, sources=sources)
    return Value(Trust.OWN, output.total is not None, sources)


def _column_names(source: exp.Expr, parts: Sequence[PartPlan]) -> list[str]:
    if isinstance(source, exp.Table):
        return [output.name for output in parts[answer_index(source.name)].outputs]
    return [str(name) for name in source.this.named_selects]


def _smoothed(item: exp.Expr, names: Names) -> Value:
    """Return what is known of an output. If it has an interval, its rounding is taken off, in place."""
    smooth = item.unalias().copy()
    for node in list(smooth.find_all(exp.Round, exp.Cast)):
        if isinstance(node, exp.Round) or is_number(node.args["to"].sql(DIALECT)):
            smooth = _without(smooth, node)
    value = _value(smooth, names)
    if value.trust in (Trust.OWN, Trust.WHOLE):
        item.unalias().replace(smooth)
        return value
    return _value(item.unalias(), names)


def _without(expression: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Return the expression with the unrounded value in the place of the node that rounds it."""
    inner = exp.paren(node.this)
    if node is expression:
        return inner
    node.replace(inner)
    return expression


def _value(expression: exp.Expr, names: Names) -> Value:
    bare = expression.unnest()
    if isinstance(bare, exp.Column):
        return names.get((bare.table, bare.name.lower()), _UNSURE)
    return Value(_trust(expression, names))


def _trust(node: exp.Expr, names: Names, *, grouped: bool = False) -> Trust:
    """Return the trust in an expression. With `grouped`, aggregates stand for sums over groups."""
    if isinstance(node, exp.Column):
        return names.get((node.table, node.name.lower()), _UNSURE).trust if not grouped else Trust.KEY
    if isinstance(node, exp.Window):
        return _windowed(node, names) if not grouped else Trust.NONE
    if grouped and isinstance(node, exp.AggFunc):
        return _summed(node, names)
    if isinstance(node, exp.Query):
        return Trust.NONE
    inner = [_trust(child, names, grouped=grouped) for child in node.iter_expressions()]
    worst = max(inner, default=Trust.KEY)
    if worst is Trust.KEY and isinstance(node, exp.AggFunc):
        return Trust.NONE
    return worst if worst is Trust.KEY or isinstance(node, _SMOOTH) else Trust.NONE


def _windowed(window: exp.Window, names: Names) -> Trust:
    """Return the trust in a window function. The rows that it sees must not depend on estimates."""
    order = window.args.get("order")
    about = [*(window.args.get("partition_by") or []), *(order.expressions if order else [])]
    if any(
        _trust(each.this if isinstance(each, exp.Ordered) else each, names) is not Trust.KEY for each in about
    ):
        return Trust.NONE
    function = window.this
    if isinstance(function, _NEIGHBOURS) and not function.args.get("default"):
        return _if_whole(function.this, names)
    return _summed(function, names)


def _summed(function: exp.Expr, names: Names) -> Trust:
    """Return the trust in a sum or mean over groups."""
    if isinstance(function, exp.Sum):
        value = _value(function.this, names)
        return Trust.OWN if value.is_total else _if_whole(function.this, names)
    return _if_whole(function.this, names) if isinstance(function, exp.Avg) else Trust.NONE


def _if_whole(argument: exp.Expr, names: Names) -> Trust:
    """Return the trust in a value that also depends on which groups there are."""
    trust = _trust(argument, names)
    return Trust.WHOLE if trust in (Trust.OWN, Trust.WHOLE) else Trust.NONE


def _grouped(query: exp.Select, names: Names, below: Level) -> Level:
    """Return the level of an aggregation over groups. Only keys tell its rows apart."""
    group = query.args.get("group")
    keys = group.expressions if group else []
    known = not query.find(exp.Rollup, exp.Cube, exp.GroupingSets)
    if not known:
        return _blind(_UNSURE for _ in query.expressions)
    if any(_trust(key, names) is not Trust.KEY for key in keys):
        return _blind(_value(item.unalias(), names) for item in query.expressions)
    values = tuple(_sum_or_key(item.unalias(), names) for item in query.expressions)
    identity = exp.Anonymous(this="row", expressions=[key.copy() for key in keys] or [exp.Literal.number(0)])
    rows = exp.Coalesce(this=exp.Sum(this=exp.column(GROUP_ROWS)), expressions=[exp.Literal.number(0)])
    query = query.select(exp.alias_(identity, GROUP), exp.alias_(rows, GROUP_ROWS))
    return replace(below, values=values, query=query, keeps_groups=False)


def _sum_or_key(expression: exp.Expr, names: Names) -> Value:
    trust = _trust(expression, names, grouped=True)
    return Value(trust, trust is Trust.OWN and isinstance(expression.unnest(), exp.Sum))


def _combined(query: exp.SetOperation, parts: Sequence[PartPlan]) -> Level:
    """Return the level of a set operation. A column of UNION ALL is known where both sides are alike."""
    if query.args.get("by_name"):
        raise NotOnlineError("BY NAME may give its sides columns that they do not have")
    sides = [query.args[side].unnest() for side in ("this", "expression")]
    levels = [level_of(side, parts) for side in sides]
    values = tuple(_alike(a, b) for a, b in zip(*(level.values for level in levels), strict=True))
    limited = any(side.args.get(part) for side in sides for part in ("limit", "offset"))
    apart = all(level.query is not None and level.keeps_groups for level in levels)
    if not isinstance(query, exp.Union) or query.args.get("distinct") or limited or not apart:
        return _blind(values)
    query = query.copy()
    for name, level in zip(("this", "expression"), levels, strict=True):
        query.args[name].unnest().replace(level.query)
    return Level(values, query, None, all(level.is_certain for level in levels), keeps_groups=True)


def _alike(left: Value, right: Value) -> Value:
    if left.trust is Trust.KEY and right.trust is Trust.KEY:
        return Value(Trust.KEY)
    sources = set(left.sources + right.sources)
    taken_over = left.sources and right.sources and left.trust is not Trust.KEY is not right.trust
    # Only its answer tells a row apart, so all rows of one answer must take over the same output.
    if not taken_over or len({part for part, _ in sources}) < len(sources):
        return _UNSURE
    return Value(Trust.NONE, sources=tuple(sorted(sources)))
