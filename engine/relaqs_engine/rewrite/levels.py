"""What is known of a query over answers, while those answers are estimates: its rows and its columns.

- A column that is taken over from an answer keeps its interval.
- How far other columns can be trusted is in `rewrite/smoothness.py`.
- A row of a join stands for one row of each of its tables. Its columns have intervals if the rows are
  matched by keys, so that no estimate decides which rows there are.
- A row of an aggregation stands for its group keys, and a row of UNION ALL for a row of one side.

**What one row moves.** The most that one sampled row can move each total of a query over answers, as SQL.

A row falls into one group of an answer. So it moves a total over many groups by what it moves in that one,
and by no more than the largest of them. Each SUM over groups becomes a MAX over what a row could move,
times the number of groups that it may fall into. Differences become sums:

    SUM(sales - profit)  ->  1 * MAX(moves of sales + moves of profit)

What is no such total becomes infinite, which says that nothing is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import quote_name
from relaqs_engine.plans.aggregate import (
    BEFORE,
    BEFORE_ONCE,
    GROUP,
    GROUP_ROWS,
    IS_FIRST,
    margin_column,
    moves_column,
)
from relaqs_engine.plans.composite import Margin, PartPlan
from relaqs_engine.plans.plan import Method, OutputKind
from relaqs_engine.rewrite.draft import NotOnlineError
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.smoothness import (
    UNSURE,
    Names,
    Trust,
    Value,
    filled_in,
    is_total_of,
    margins_in,
    margins_of_choices,
    smoothed,
    trust_in,
    value_of,
    value_over_groups,
)
from relaqs_engine.rewrite.split import aggregates, answer_index, sources_of
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.expressions import Question, most_folded, number_of, terms_of
from relaqs_engine.sql.parse import DIALECT


@dataclass(frozen=True, slots=True)
class Level:
    """What is known of a query over answers.

    Attributes:
        values: its columns, by position.
        query: the query with two more columns: the identity of each row, and the number of joined rows behind
            it. None where rows cannot be told apart.
        is_estimated: whether some answer that it reads is an estimate.
        is_certain: whether the set of its rows depends on no estimate.
        keeps_groups: whether each row is a group of an answer.
        has_one_row: whether it has one row, because its answers have.
        added: the columns that are added up, each as the (part, output) of the answers that it comes from.
        sets: of each sampled table, into how many of its rows one row of that table may fall, the total of
            all left aside. Each of them is seen as soon as one row of it is. None where that is not known.
        keys: the expressions whose values tell its rows apart, within each of its grouping sets. () where
            they are not known.
        margins: of each margin, what depends on it. Margins stand in
            the query between its columns and the identity of the row.
        has_margins: whether the set of its rows depends on no estimate but those margins.
    """

    values: tuple[Value, ...]
    query: exp.Query | None = None
    is_estimated: bool = True
    is_certain: bool = False
    keeps_groups: bool = False
    has_one_row: bool = False
    added: tuple[frozenset[tuple[int, int]], ...] = ()
    sets: Counter[str] | None = None
    keys: tuple[exp.Expr, ...] = ()
    margins: tuple[Margin, ...] = ()
    has_margins: bool = False


def level_of(query: exp.Query, parts: Sequence[PartPlan], *, may_decide: bool = False) -> Level:
    """Return what is known of a query over the answers of the parts. The query itself stays as it is.

    With `may_decide`, comparisons of estimates may decide about its rows, and its CASEs: the level has their
    margins.

    The plan shows what follows from it. A share of a total is smooth, and a rank is not:

    >>> share, place = "sum(km) / sum(sum(km)) OVER ()", "rank() OVER (ORDER BY sum(km))"
    >>> sql = f"SELECT zone, {share} AS share, {place} AS place FROM trips GROUP BY zone"
    >>> explained(sql, "columns")
    'zone: group key share: estimate with an interval place: value so far, no interval'
    """
    if isinstance(query, exp.SetOperation):
        return _combined(query, parts)
    assert isinstance(query, exp.Select)
    sources = sources_of(query)
    below = [_source_level(source, parts) for source in sources]
    names: Names = {
        (source.alias_or_name, name.lower()): value
        for source, level in zip(sources, below, strict=True)
        for name, value in zip(_column_names(source, parts), level.values, strict=True)
    }
    if not sources or _loses_rows(query) or any(level.query is None for level in below):
        return _blind([value_of(item.unalias(), names) for item in query.expressions])
    if len(sources) > 1:
        names = _joined_names(query, names, dict(zip((s.alias_or_name for s in sources), below, strict=True)))
    query = copied(query)
    for source, level in zip(sources_of(query), below, strict=True):
        if isinstance(source, exp.Subquery) and level.query is not None:
            source.set("this", copied(level.query))
    joined = _joined(query, names, below)
    if aggregates(query):
        return _grouped(query, names, joined, _rows(sources, below))
    values = tuple(smoothed(item, names, may_decide=may_decide) for item in query.expressions)
    of_rows = _margins_of_rows(query, names) if may_decide else None
    margins = [*_margins_of_outputs(query, values, names), *((Margin(None), each) for each in of_rows or ())]
    identity = [exp.column(GROUP, source.alias_or_name) for source in sources]
    one = identity[0] if len(identity) == 1 else exp.Anonymous(this="row", expressions=identity)
    query = query.select(
        *(exp.alias_(margin, margin_column(i)) for i, (_, margin) in enumerate(margins)),
        exp.alias_(one, GROUP),
        exp.alias_(_rows(sources, below), GROUP_ROWS),
        copy=False,
    )
    decided = of_rows is not None and all(level.is_certain for level in below)
    known = tuple(margin for margin, _ in margins)
    return replace(joined, values=values, query=query, margins=known, has_margins=decided)


def _margins_of_outputs(
    query: exp.Select, values: Sequence[Value], names: Names
) -> Iterator[tuple[Margin, exp.Expr]]:
    """Yield the margins of what the outputs of a query choose by, and the numbers themselves."""
    for i, (item, value) in enumerate(zip(query.expressions, values, strict=True)):
        if value.trust.is_smooth or value.is_chosen:
            yield from ((Margin(i), each) for each in margins_of_choices(item, names))
            yield from ((Margin(i, is_compared=False), each) for each in filled_in(item, names))


def _margins_of_rows(query: exp.Select, names: Names) -> list[exp.Expr] | None:
    """Return the margins of what chooses the rows, None where estimates choose them in another way."""
    conditions = [query.args["where"].this] if query.args.get("where") else []
    conditions += [join.args["on"] for join in query.args.get("joins") or [] if join.args.get("on")]
    if query.args.get("having") or query.args.get("qualify"):
        return None
    found = [margins_in(condition, names) for condition in conditions]
    return None if None in found else [margin for each in found for margin in each or ()]


def _blind(values: Iterable[Value]) -> Level:
    """Return the level of a query whose rows cannot be told apart. Only its keys are known."""
    return Level(tuple(value if value.trust is Trust.KEY else UNSURE for value in values))


def _loses_rows(query: exp.Select) -> bool:
    """Whether one row of the answer stands for several joined rows, or for a row without a match."""
    joins: list[exp.Join] = query.args.get("joins") or []
    return (
        bool(query.args.get("distinct"))
        or find_first(query, exp.UDTF, exp.Explode) is not None
        or any(join.method or join.args.get("using") for join in joins)
        or any(join.side not in ("", "LEFT") for join in joins)
        or any(join.kind not in ("", "INNER", "CROSS", "OUTER") for join in joins)
    )


def _joined_names(query: exp.Select, names: Names, levels: dict[str, Level]) -> Names:
    """Return what is known of the columns of joined tables.

    A column is a sum over rows no more where a group that was not seen yet leaves out a row of another table.
    An unmatched row may find its match yet.
    """
    estimated = [alias for alias, level in levels.items() if level.is_estimated]
    outer = {join.this.alias_or_name for join in query.args.get("joins") or [] if join.side == "LEFT"}
    unmatched = outer.intersection(estimated)

    def known(alias: str, value: Value) -> Value:
        if alias in unmatched:
            return UNSURE
        sources = value.sources if levels[alias].has_one_row else ()
        return replace(value, sources=sources, is_total=value.is_total and estimated == [alias])

    return {(alias, name): known(alias, value) for (alias, name), value in names.items()}


def _joined(query: exp.Select, names: Names, below: Sequence[Level]) -> Level:
    """Return what is known of the rows of FROM and WHERE."""
    conditions = [query.args.get(part) for part in ("where", "having", "qualify")]
    conditions += [join.args.get("on") for join in query.args.get("joins") or []]
    by_keys = all(c is None or trust_in(c, names) is Trust.KEY for c in conditions)
    return Level(
        (),
        is_estimated=any(level.is_estimated for level in below),
        is_certain=by_keys and all(level.is_certain for level in below),
        keeps_groups=len(below) == 1 and below[0].keeps_groups,
        has_one_row=all(level.has_one_row for level in below),
        added=tuple(dict.fromkeys(added for level in below for added in level.added)),
        sets=below[0].sets if len(below) == 1 else None,
    )


def _rows(sources: Sequence[exp.Expr], below: Sequence[Level]) -> exp.Expr:
    """Return the number of rows behind a joined row: the least of its tables that are estimated."""
    columns = [
        exp.column(GROUP_ROWS, source.alias_or_name)
        for source, level in zip(sources, below, strict=True)
        if level.is_estimated
    ]
    if not columns:
        return exp.Literal.number(1)
    return columns[0] if len(columns) == 1 else exp.Least(this=columns[0], expressions=columns[1:])


def _source_level(source: exp.Expr, parts: Sequence[PartPlan]) -> Level:
    if isinstance(source, exp.Table):
        part = answer_index(source.name)
        values = tuple(_answered(parts[part], part, i) for i in range(len(parts[part].outputs)))
        plan = parts[part]
        certain, one = plan.shows_every_group or plan.tells_certain_rows, plan.has_one_row
        known = Level(values, exp.Select(), plan.is_estimated, certain, keeps_groups=True, has_one_row=one)
        return replace(known, sets=_sets(plan))
    level = level_of(source.this, parts)
    limited = any(source.this.args.get(part) for part in ("limit", "offset"))
    return _blind(level.values) if limited else level


def _sets(plan: PartPlan) -> Counter[str] | None:
    """Return into how many groups of an answer a sampled row may fall, None where that is not known."""
    if not plan.is_estimated or plan.has_one_row:
        return Counter()
    certifiable = any(o.certifiable for o in plan.outputs if o.kind is OutputKind.ESTIMATE)
    known = plan.groups_of_a_row if certifiable else None
    return None if known is None else Counter({plan.leading: known})


def _answered(plan: PartPlan, part: int, position: int) -> Value:
    """Return what is known of an output of a plan."""
    output, source = plan.outputs[position], (part, position)
    if output.kind is OutputKind.KEY:
        return Value(Trust.KEY, not plan.is_estimated, (source,), is_scaled=False)
    estimated = output.kind is OutputKind.ESTIMATE and plan.method is Method.REPLICATES
    if not estimated or not plan.shows_every_group:
        return Value(Trust.NONE, sources=(source,), is_scaled=not output.side)
    return Value(
        Trust.OWN,
        output.total is not None,
        (source,),
        frozenset({source}),
        step=inf if output.moves_in_steps else output.rounding,
        type=output.type,
        sign=output.sign,
        motion=output.motion,
        counts_rows=output.counts_rows,
    )


def _column_names(source: exp.Expr, parts: Sequence[PartPlan]) -> list[str]:
    if isinstance(source, exp.Table):
        return [output.name for output in parts[answer_index(source.name)].outputs]
    return [str(name) for name in source.this.named_selects]


def _grouped(query: exp.Select, names: Names, below: Level, rows: exp.Expr) -> Level:
    """Return the level of an aggregation over groups. Only keys tell its rows apart."""
    keys, sets = group_keys(query)
    if any(trust_in(key, names) is not Trust.KEY for key in (keys[:-1] if sets else keys)):
        return _blind(value_of(item.unalias(), names) for item in query.expressions)
    values = tuple(_over_groups(item.unalias(), names, below) for item in query.expressions)
    arguments = [call.this.unnest() for item in query.expressions for call in _totals(item)]
    columns = [value_of(each, names).columns for each in arguments if isinstance(each, exp.Column)]
    identity = exp.Anonymous(this="row", expressions=[key.copy() for key in keys] or [exp.Literal.number(0)])
    sum_of_rows = exp.Coalesce(this=exp.Sum(this=rows), expressions=[exp.Literal.number(0)])
    query = query.select(exp.alias_(identity, GROUP), exp.alias_(sum_of_rows, GROUP_ROWS), copy=False)
    added = tuple(dict.fromkeys(each for each in columns if len(each) > 1))
    times = sum(len(each) > 1 for each in sets) if sets else int(bool(keys))
    each_set = None if below.sets is None else {table: n * times for table, n in below.sets.items()}
    at_once = None if each_set is None else Counter(each_set)
    below = replace(below, keeps_groups=False, has_one_row=False, sets=at_once)
    known = keys[:-1] if sets else keys
    return replace(below, values=values, query=query, added=below.added + added, keys=known)


def _over_groups(item: exp.Expr, names: Names, below: Level) -> Value:
    """Return what is known of an output over groups. A sum of exact values is none if rows may leave it."""
    value = value_over_groups(item, names)
    varies = value.trust is Trust.KEY and not below.is_certain and any(_totals(item))
    return UNSURE if varies else value


def _totals(item: exp.Expr) -> Iterator[exp.Expr]:
    return filter(is_total_of, find_all(item, exp.AggFunc))


def _combined(query: exp.SetOperation, parts: Sequence[PartPlan]) -> Level:
    """Return the level of a set operation. A column of UNION ALL is known where both sides are alike."""
    if query.args.get("by_name"):
        raise NotOnlineError("BY NAME may give its sides columns that they do not have")
    sides = [query.args[side].unnest() for side in ("this", "expression")]
    levels = [level_of(side, parts) for side in sides]
    limited = any(side.args.get(part) for side in sides for part in ("limit", "offset"))
    keeps_groups = all(level.keeps_groups for level in levels)
    values = tuple(_alike(a, b, keeps_groups) for a, b in zip(*(each.values for each in levels), strict=True))
    certain = all(level.is_certain for level in levels) and not limited
    if not isinstance(query, exp.Union) or query.args.get("distinct") or limited:
        by_keys = all(value.trust is Trust.KEY for value in values)
        grows = not isinstance(query, exp.Except)  # a row that is found so far stays
        return replace(_blind(values), is_certain=certain and by_keys and grows)
    if any(level.query is None for level in levels):
        return _blind(values)
    query = query.copy()
    for name, level in zip(("this", "expression"), levels, strict=True):
        query.args[name].unnest().replace(level.query)
    if not keeps_groups:
        _number_sides(query)
    return Level(
        values,
        query,
        any(level.is_estimated for level in levels),
        certain,
        keeps_groups,
        added=tuple(dict.fromkeys(added for level in levels for added in level.added)),
        sets=_added(levels),
    )


def _added(levels: Iterable[Level]) -> Counter[str] | None:
    """Return into how many rows of a UNION ALL a row of each table may fall."""
    sets = [level.sets for level in levels]
    return None if None in sets else sum((each for each in sets if each), Counter())


def _number_sides(query: exp.SetOperation) -> None:
    """Make the identities of all sides numbers of one type, which differ from side to side. In place."""
    for number, side in enumerate(_selects(query)):
        identity = side.expressions[-2]
        of_side = exp.Anonymous(
            this="hash", expressions=[exp.Literal.number(number), identity.unalias().copy()]
        )
        identity.replace(exp.alias_(of_side, GROUP))


def _selects(query: exp.Expr) -> list[exp.Select]:
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(query, exp.SetOperation):
        return _selects(query.this) + _selects(query.expression)
    assert isinstance(query, exp.Select)
    return [query]


def _alike(left: Value, right: Value, keeps_groups: bool) -> Value:
    """Return what is known of a column of UNION ALL."""
    trust, is_total = max(left.trust, right.trust), left.is_total and right.is_total
    is_scaled = left.is_scaled or right.is_scaled
    if trust is Trust.KEY:
        return Value(Trust.KEY, is_total, is_scaled=is_scaled)
    sources = set(left.sources + right.sources)
    taken_over = left.sources and right.sources and left.trust is not Trust.KEY is not right.trust
    # Only its answer tells a row apart, so all rows of one answer must take over the same output.
    if not keeps_groups or not taken_over or len({part for part, _ in sources}) < len(sources):
        sources = set()
    return Value(
        trust,
        is_total,
        tuple(sorted(sources)),
        left.columns | right.columns,
        is_scaled,
        step=max(left.step, right.step),
        sign=left.sign | right.sign,
        motion=most_folded((left.motion, right.motion)),
        counts_rows=left.counts_rows and right.counts_rows,
    )


def with_places(level: Level, rows_of_unit: int) -> exp.Select | None:
    """Return the level's query with the places of its rows by keys, as `unbounded.py` has them of groups.

    None where LIMIT picks no rows, or where a row may be missing that was seen in part.

    Args:
        level: of the whole query.
        rows_of_unit: how many rows a sampling unit may have.
    """
    query = level.query
    if not isinstance(query, exp.Select) or level.sets is None or query.args.get("limit") is None:
        return None
    if query.args.get("offset") is not None or find_first(query, exp.Distinct):
        return None
    order = list(_keys_of_order(query, level.values))
    over = exp.Window(this=exp.Count(this=exp.Star()), order=exp.Order(expressions=order) if order else None)
    rows = next(item.unalias() for item in query.expressions if item.alias == GROUP_ROWS)
    once = exp.Case().when(exp.LTE(this=rows.copy(), expression=exp.Literal.number(rows_of_unit)), "1")
    over_once = over.copy()
    over_once.set("this", exp.Sum(this=once.else_("0")))
    leading = order[: len(level.keys)]
    first = bool(level.keys) and {each.this for each in leading} == set(level.keys)
    first &= all(each.args["nulls_first"] for each in leading)
    nulls = [exp.Is(this=key.copy(), expression=exp.Null()) for key in level.keys]
    is_first = exp.and_(*nulls) if first else exp.false()
    places = ((over, BEFORE), (over_once, BEFORE_ONCE), (is_first, IS_FIRST))
    return query.select(*(exp.alias_(value, name) for value, name in places))


def _keys_of_order(query: exp.Select, values: Sequence[Value]) -> Iterator[exp.Ordered]:
    """Yield by which of its keys a query is ordered before any estimate is asked, each as its expression."""
    items = [item.unalias() for item in query.expressions[: len(values)]]
    names = [item.alias_or_name.lower() for item in query.expressions[: len(values)]]
    order = query.args.get("order")
    for each in order.expressions if order else []:
        is_name = isinstance(each.this, exp.Column) and not each.this.table
        place = names.index(each.this.name.lower()) if is_name and each.this.name.lower() in names else -1
        place = items.index(each.this) if place < 0 and each.this in items else place
        if place < 0 or values[place].trust is not Trust.KEY:
            return
        found = each.copy()
        found.set("this", items[place].copy())
        yield found


_NOTHING, _UNKNOWN = "0.0::DOUBLE", "'infinity'::DOUBLE"
# From the name of a column to the SQL of what a row could move it.
_Moves: TypeAlias = Callable[[str], str]
# Into how many rows of a query one row of each sampled table may fall.
_Rows: TypeAlias = Counter[str]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers that a query reads.

    Attributes:
        catalog: of the tables that are sampled for them.
    """

    parts: Sequence[PartPlan]
    catalog: Catalog

    def columns_of(self, table: exp.Table) -> tuple[_Moves, _Rows] | None:
        """Return what a row could move in an answer, None where a row may have any part in it."""
        part = self.parts[answer_index(table.name)]
        if not part.leading:
            return lambda _: _NOTHING, Counter()
        if not part.is_estimated or part.groups_of_a_row is None:
            return None
        if self.catalog.layout(part.leading).max_unit_rows > 1:
            return None
        estimates = (
            (i, output) for i, output in enumerate(part.outputs) if output.kind is OutputKind.ESTIMATE
        )
        totals = {output.name.lower(): moves_column(i) for i, output in estimates if output.total}
        rows = Counter({part.leading: part.groups_of_a_row})
        return _named(totals, table.alias_or_name), rows


def with_moves(query: exp.Query, answers: Answers) -> exp.Query | None:
    """Return the query with what one row could move each of its columns beside them, None where not known.

    `query` has the identity of each row as its last two columns. Its order is left out.
    """
    found = copied(query)
    for part in ("order", "limit", "offset"):
        found.set(part, None)
    return found if _add_moves(found, answers) is not None else None


def moves_of(part: PartPlan) -> list[str]:
    """Return the columns that an answer has beside its own, with what one row could move each estimate."""
    return [moves_column(i) for i, o in enumerate(part.outputs) if o.kind is OutputKind.ESTIMATE]


def _add_moves(query: exp.Expr, answers: Answers) -> _Rows | None:
    """Add the moves to a query in place, and return the rows that one row may fall into."""
    query = query.unnest()
    if isinstance(query, exp.Union):
        sides = [_add_moves(query.args[side], answers) for side in ("this", "expression")]
        return None if None in sides else sum((side for side in sides if side), Counter())
    if not isinstance(query, exp.Select) or len(sources := sources_of(query)) != 1:
        return None
    names = [name for name in query.named_selects if name not in (GROUP, GROUP_ROWS)]
    if (below := _below(sources[0], answers)) is None:
        return None
    moves, rows = below
    times = max(rows.values(), default=0) if aggregates(query) else None
    for i, item in enumerate(query.expressions[: len(names)]):
        query.select(f"{_Moved(moves, times)(item)} AS {moves_column(i)}", dialect=DIALECT, copy=False)
    sets = max(1, len(group_keys(query)[1]))
    return Counter({table: count * sets for table, count in rows.items()})


def _below(source: exp.Expr, answers: Answers) -> tuple[_Moves, _Rows] | None:
    if isinstance(source, exp.Table):
        return answers.columns_of(source)
    names = source.this.named_selects
    if (rows := _add_moves(source.this, answers)) is None:
        return None
    return _named({name.lower(): moves_column(i) for i, name in enumerate(names)}, source.alias_or_name), rows


def _named(columns: dict[str, str], alias: str) -> _Moves:
    def moves(name: str) -> str:
        known = columns.get(name.lower())
        return f"{quote_name(alias)}.{known}" if known else _UNKNOWN

    return moves


class _Moved(Question[str]):
    """The SQL of the most that one row could move an expression.

    Args:
        moves: of the columns that it reads.
        times: into how many of the rows that are added up one row may fall. None where none are added up.
    """

    def __init__(self, moves: _Moves, times: int | None) -> None:
        self._moves, self._times = moves, times

    def of_column(self, column: exp.Column) -> str:
        return self._moves(column.name) if self._times is None else _UNKNOWN

    def of(self, node: exp.Expr) -> str:
        if is_total_of(node) and self._times is not None:
            return f"{self._times} * MAX({_Moved(self._moves, None)(node.this)})"
        if (terms := terms_of(node)) is not None:
            moved = [f"{self(term.value)}{term.written}" for term in terms]
            return moved[0] if moved == [self(terms[0].value)] else f"({' + '.join(moved)})"
        if isinstance(node, exp.Coalesce) and all(self(each) == _NOTHING for each in node.expressions):
            return self(node.this)
        return _NOTHING if isinstance(node, exp.Null) or number_of(node) == 0.0 else _UNKNOWN
