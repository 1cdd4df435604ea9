"""Refined plans: inner stages decide which rows count, or are compared with groups.

Conditions on stages are taken out of WHERE. What is left is an ordinary mergeable query. Its rows are kept
with the values that the conditions compare, and rows with equal values are summed to one (`OuterRows.kept`).
A stage that is compared after aggregation becomes a column of every group (`rewrite/scalar_subqueries.py`).

The theory of stages is in `scalar_subqueries.py`, that of running such a plan in `execution/refined.py`. The
decision: docs/decisions/0006-refined-mode.md.

**Which kept rows count.** Say which of the kept rows count: the conditions on stages, as SQL over the kept
rows.

A row may be compared with one value of one stage, as in `fare > (SELECT avg(fare) FROM trips)`. Such a row is
decided once its own value lies outside the range in which the stage's value surely lies. Tasks add the rows
that are surely in to the sums, and drop those that are surely out. Only rows inside the range are kept.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from relaqs_engine.plans.aggregate import (
    BLOCK,
    RANGE_HIGH,
    RANGE_LOW,
    STATE,
    Basis,
    MembershipRules,
    MergePlan,
    MergeTexts,
)
from relaqs_engine.plans.composite import Belonging, OuterRows, RefinedPlan, Threshold
from relaqs_engine.plans.plan import MANY_GROUPS, Method, OutputColumn, OutputKind, Stream
from relaqs_engine.rewrite import AGGREGATING, SAMPLING
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, conjuncts_of, tables_in
from relaqs_engine.rewrite.normalize import check_aggregates, check_shape
from relaqs_engine.rewrite.render import (
    block_of,
    check_types_travel,
    key_names,
    merge_of,
    partial_of,
    partial_query,
    partial_types,
)
from relaqs_engine.rewrite.sampling import choose_streams, is_local_query
from relaqs_engine.rewrite.scalar_subqueries import (
    CrossFit,
    PlanStage,
    StageMaker,
    child_queries,
    cross_fit_of,
    look_up_of,
    mark_keys,
    push_arithmetic_inside,
    share_values,
)
from relaqs_engine.rewrite.scans import hoist_statics
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.parse import DIALECT

_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_MIRRORED: dict[type[exp.Binary], type[exp.Binary]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition `row <operator> stage`.

    Attributes:
        row: what is compared, over columns of the query.
        look_up: the subquery that gives the stage's value, the same for all rows.
    """

    row: exp.Expr
    operator: type[exp.Binary]
    look_up: exp.Expr
    stage: str


@dataclass(frozen=True, slots=True)
class Late:
    """The conditions that stages decide.

    Attributes:
        comparison: the one condition, where there is only one and it compares a row with a number.
    """

    conditions: tuple[exp.Expr, ...]
    comparison: Comparison | None = None

    @classmethod
    def of(cls, conditions: tuple[exp.Expr, ...], maker: StageMaker) -> Late:
        for condition in conditions:
            if others := [table for table in tables_in(condition) if not maker.is_stage(table)]:
                raise NotOnlineError(f"{others[0].name} is read beside an aggregate over all partitions")
        comparison = _comparison(conditions[0], maker) if len(conditions) == 1 else None
        return cls(conditions, comparison)

    @property
    def columns(self) -> tuple[exp.Column, ...]:
        """Return the query's columns that occur in the conditions, each once."""
        found: dict[str, exp.Column] = {}
        for condition in self.conditions:
            for column in find_all(condition, exp.Column):
                if column.table:
                    found.setdefault(column.sql(DIALECT), column)
        return tuple(found.values())


def _comparison(condition: exp.Expr, maker: StageMaker) -> Comparison | None:
    if not isinstance(condition, _COMPARISONS):
        return None
    left, right = _bare(condition.left), _bare(condition.right)
    for row, other, kind in ((left, right, type(condition)), (right, left, _MIRRORED[type(condition)])):
        name = look_up_of(other)
        if name is None or find_first(row, exp.Query):
            continue
        if maker.stage(name).plan.outputs[0].kind is OutputKind.ESTIMATE:
            return Comparison(row, kind, other, name)
    return None


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def kept_columns(late: Late, fits: Mapping[str, CrossFit]) -> tuple[exp.Expr, ...]:
    """Return what rows are kept by besides their group: what is compared, and whether they surely count.

    Args:
        late: the conditions on stages.
        fits: the look-ups by their SQL. What a row adds to its own group is then kept as well.

    For example, rows are kept by their fare. The second column is TRUE for rows that surely count:

    >>> sql = "SELECT count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips)"
    >>> print(explained(sql, "partial SQL, per task:"))
    SELECT trips.fare AS k0, CAST(NULL AS BOOLEAN) AS k1, COUNT(*) AS b0, COUNT(*) AS m
    FROM partitions_of_trips AS trips GROUP BY 1, 2
    >>> print(explained(sql, "rows that count"))
    SELECT r, CAST(COALESCE(SUM(b0), 0) AS BIGINT) AS b0, CAST(COALESCE(SUM(m), 0) AS BIGINT) AS m
    FROM (SELECT * FROM state WHERE k1 OR k0 > (SELECT v0 FROM stage_0)) GROUP BY r
    """
    if late.comparison is None:
        return (*late.columns, *(own for fit in fits.values() for own in fit.own))
    return late.comparison.row, exp.cast(exp.null(), "BOOLEAN")


def cross_fits(draft: Draft, late: Late, maker: StageMaker) -> dict[str, CrossFit]:
    """Return the look-ups that read the group of the row itself, by their SQL."""
    found: dict[str, CrossFit] = {}
    for condition in late.conditions if late.comparison is None else ():
        for look_up in find_all(condition, exp.Select):
            correlation = maker.correlation(look_up)
            if correlation is not None and (fit := cross_fit_of(draft, correlation)) is not None:
                found[look_up.sql(DIALECT)] = fit
    return found


def kept_plan(draft: Draft, plan: MergePlan, late: Late, fits: Mapping[str, CrossFit]) -> MergePlan:
    """Return how the rows are kept: a mergeable plan, grouped by the query's keys and by what is compared."""
    kept = replace(draft, keys=(*draft.keys, *kept_columns(late, fits)), shared=())
    if late.conditions:
        check_types_travel(kept, partial_types(kept))
    return replace(
        plan,
        columns=replace(plan.columns, keys=key_names(kept), shared=()),
        partial=partial_query(kept),
        texts=MergeTexts(merge_of(kept, key_names(kept))),
        membership=MembershipRules(),
    )


def belonging_of(draft: Draft, late: Late, fits: Mapping[str, CrossFit]) -> Belonging:
    """Return which kept rows count. `fits` are the look-ups that `kept_columns` had."""
    first = len(draft.keys)
    if late.comparison is None:
        names = {column.sql(DIALECT): f"k{first + i}" for i, column in enumerate(late.columns)}
        fitted = [_fitted(condition, fits, first + len(names)) for condition in late.conditions]
        return Belonging(
            sql=_counted(draft, _all_of(fitted, names)),
            exact_sql=_counted(draft, _all_of(late.conditions, names)),
        )
    comparison = late.comparison
    operator = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}[comparison.operator]
    threshold = Threshold(comparison.stage, "v0", operator, f"k{first}", f"k{first + 1}")

    def counted(value: str) -> str:
        return _counted(draft, f"{threshold.sure_key} OR {threshold.row_key} {operator} {value}")

    return Belonging(
        sql=counted(threshold.compared_with),
        exact_sql=counted(comparison.look_up.sql(DIALECT)),
        threshold=threshold,
        ranged_sql=_ranged(draft, comparison, by_block=False),
        ranged_by_block_sql=_ranged(draft, comparison, by_block=True),
    )


def _counted(draft: Draft, condition: str) -> str:
    """Return the SQL from kept rows to partial rows of the query: those that meet the condition, summed."""
    source = f"(SELECT * FROM {STATE} WHERE {condition})"
    return merge_of(draft, (*key_names(draft), BLOCK), source)


def _ranged(draft: Draft, comparison: Comparison, *, by_block: bool) -> str:
    """Return the partial query for a known range.

    It drops the rows that are surely out, keeps those in the range by their value, and sums those that are
    surely in. With `x > value` and a range from 3 to 5: rows up to 3 are out, rows above 5 are in. So 3 is
    the loose end and 5 the tight end. With `x < value` the ends change places.
    """
    rises = comparison.operator in (exp.GT, exp.GTE)
    loose, tight = (RANGE_LOW, RANGE_HIGH) if rises else (RANGE_HIGH, RANGE_LOW)

    def compared(end: str) -> exp.Expr:
        value = exp.cast(exp.Literal.string(end), exp.DType.DOUBLE)
        return comparison.operator(this=exp.paren(comparison.row.copy()), expression=value)

    row = exp.case().when(exp.not_(exp.paren(compared(tight))), comparison.row.copy())
    sure = exp.case().when(compared(tight), exp.true())
    kept = replace(draft, keys=(*draft.keys, row, sure), shared=())
    assert draft.scan is not None
    scan = draft.scan.copy().where(compared(loose))
    return partial_of(kept, scan, block_of(kept) if by_block else None)


def _all_of(conditions: Sequence[exp.Expr], names: dict[str, str]) -> str:
    return " AND ".join(f"({_renamed(condition, names).sql(DIALECT)})" for condition in conditions)


def _fitted(condition: exp.Expr, fits: Mapping[str, CrossFit], first: int) -> exp.Expr:
    """Return the condition with stages' values as the other rows of a group show them.

    Args:
        condition: a condition on stages.
        fits: how each look-up is computed from the other rows, by the look-up's SQL.
        first: the position among the keys of the first value that a row adds to its own group.
    """
    condition = condition.copy()
    for text, fit in fits.items():
        names = [f"{STATE}.k{first + i}" for i in range(len(fit.own))]
        for look_up in list(find_all(condition, exp.Select)):
            if look_up.sql(DIALECT) == text:
                look_up.set("expressions", [fit.value(names)])
        first += len(names)
    return condition


def _renamed(condition: exp.Expr, names: dict[str, str]) -> exp.Expr:
    def rename(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.sql(DIALECT) in names:
            return exp.column(names[node.sql(DIALECT)], STATE)  # a stage's table has keys of its own
        return node

    return condition.copy().transform(rename)


Complete = Callable[[Draft], MergePlan]


def refine_rows(draft: Draft, plan_stage: PlanStage, complete: Complete) -> RefinedPlan:
    """Return the plan of a flattened query that samples tables of its own FROM.

    Args:
        plan_stage: plans a stage by itself.
        complete: makes a plan of a draft to which all rules were applied.

    Raises:
        NotOnlineError: the query has no such plan. The text says why.

    >>> sql = "SELECT zone FROM trips GROUP BY zone HAVING sum(km) > (SELECT 0.01 * sum(km) FROM trips)"
    >>> explained(sql, "mode")
    'refined'
    >>> explained(sql, "why")
    'groups are compared with 0.01 * SUM(km), which is estimated from the same mini-batches'
    >>> print(explained(sql, "partial SQL of stage_0"))
    SELECT SUM(trips.km) AS b0, COUNT(*) AS m FROM partitions_of_trips AS trips
    """
    tree = draft.select.copy()
    push_arithmetic_inside(tree)
    mark_keys(tree, draft.binder.describe)
    maker = StageMaker(draft, plan_stage)
    sampled = choose_streams(replace(draft, tree=tree))
    for query in _subqueries(tree):
        is_member = isinstance(query.parent, exp.Exists)  # read whole, see `rewrite/sampling.py`
        if maker.reads_sampled(query) and not is_member and not is_local_query(sampled, query):
            maker.put(query)
    if not maker.stages:
        raise NotOnlineError("no subquery of it aggregates sampled rows of all partitions")
    late = _taken_out(tree, maker)
    draft = share_values(replace(draft, tree=tree), maker)
    draft = check_aggregates(check_shape(draft), "its rows depend on an aggregate over all partitions")
    for rule in (*SAMPLING, *AGGREGATING):
        draft = rule(draft)
    draft = _as_far_as_known(_with_columns(draft, late), late)
    plan = complete(draft)
    draft = replace(draft, basis=plan.columns.basis)
    _check_partitions(draft, plan, maker)
    fits = cross_fits(draft, late, maker)
    measured_by = measured_with_stages(plan.measured_by, maker)
    if measured_by != plan.measured_by:  # the rows of other tables are counted with its own
        plan = replace(plan, bars=plan.bars.of_fewer_rows())
    warnings, streams = (*plan.warnings, *_warnings(late, maker)), all_streams(plan.streams, maker)
    return RefinedPlan(
        sql=plan.sql,
        outputs=plan.outputs,
        reasons=(_reason(late, maker), *plan.reasons[1:]),
        streams=streams,
        hoists=plan.hoists,
        warnings=warnings,
        measured_by=measured_by,
        stages=maker.stages,
        outer=OuterRows(
            plan=replace(plan, streams=streams, warnings=warnings),
            kept=kept_plan(draft, plan, late, fits),
            belonging=belonging_of(draft, late, fits) if late.conditions else None,
            shared=draft.shared_stages,
        ),
    )


def _subqueries(tree: exp.Select) -> list[exp.Expr]:
    """Return the subqueries of a SELECT, but not those in its FROM."""

    def is_source(query: exp.Expr) -> bool:
        derived = query.parent
        return isinstance(derived, exp.Subquery) and isinstance(derived.parent, exp.From | exp.Join)

    return [query for query in child_queries(tree) if not is_source(query)]


def _taken_out(tree: exp.Select, maker: StageMaker) -> Late:
    """Take the conditions on stages out of WHERE and return them."""
    if any(maker.stages_in(join) for join in tree.args.get("joins") or []):
        raise NotOnlineError("an aggregate over all partitions stands in the condition of a join")
    conditions = conjuncts_of(where.this if (where := tree.args.get("where")) else None)
    late = tuple(condition for condition in conditions if maker.stages_in(condition))
    rest = [condition for condition in conditions if condition not in late]
    tree.set("where", exp.Where(this=exp.and_(*rest, copy=True)) if rest else None)
    return Late.of(late, maker)


def _with_columns(draft: Draft, late: Late) -> Draft:
    """Return the draft with static sides that keep the columns which the late conditions compare."""
    tree = draft.select.copy()
    tree.set("expressions", [*tree.expressions, *(column.copy() for column in late.columns)])
    hoisted = hoist_statics(replace(draft, tree=tree))
    return replace(draft, hoists=hoisted.hoists, scan=hoisted.scan)


def _as_far_as_known(draft: Draft, late: Late) -> Draft:
    """Return the draft with what can still be said where rows may leave, or where groups are compared."""
    basis = tuple(column for column in draft.basis if column.kind is not Basis.PRODUCT)
    has_bars = draft.bars.method is not Method.NONE and draft.groups.expected <= MANY_GROUPS
    if draft.groups.are_local and draft.shared:  # the groups are complete; the stages' blocks tell the rest
        has_bars = draft.intervals
    if any(column.kind is Basis.VALUES for column in basis):
        raise NotOnlineError("it keeps all values of its groups, and compares with what is estimated")
    if late.conditions:
        # Distinct values of a complete group too: its rows are folded in several parts.
        counted = any(column.kind is Basis.COUNT and not column.row_sql for column in basis)
        if draft.distinct is not None or counted or draft.grouping_sets:
            raise NotOnlineError(
                "it groups several times over, or counts distinct values, of rows that may leave"
            )
        moments = any(column.is_moment for column in basis)
        decides = late.comparison is not None and not moments and not draft.groups.are_local
        has_bars = has_bars and decides
        outputs = tuple(_without_bounds(output) for output in draft.outputs)
        bars = draft.bars.of_fewer_rows()
        draft = replace(draft, outputs=outputs, bars=bars, membership=_of_rows_that_may_leave(draft, late))
    bars = replace(draft.bars, method=Method.REPLICATES if has_bars else Method.NONE)
    return replace(draft, basis=basis, bars=bars)


def _of_rows_that_may_leave(draft: Draft, late: Late) -> MembershipRules:
    """Return which groups belong to the answer where rows that were counted may stop counting."""
    rules = draft.membership
    return replace(
        rules,
        deciders=tuple(replace(each, value=_without_bounds(each.value)) for each in rules.deciders),
        is_opaque=rules.is_opaque or late.comparison is None,
        rows_may_leave=True,
    )


def _without_bounds(output: OutputColumn) -> OutputColumn:
    """Return the output without bounds. Rows that may still leave the answer bound nothing."""
    if output.kind is OutputKind.BOUND:
        return replace(output, kind=OutputKind.OPAQUE, side=None)
    return replace(output, total=None)


def _check_partitions(draft: Draft, plan: MergePlan, maker: StageMaker) -> None:
    """Raise NotOnlineError unless stages and outer query, which are read together, have equal partitions."""
    streams = all_streams(plan.streams, maker)
    if len({len(draft.catalog.layout(stream.table).partitions) for stream in streams}) > 1:
        raise NotOnlineError("its tables are laid out in different numbers of partitions")


def all_streams(streams: Sequence[Stream], maker: StageMaker) -> tuple[Stream, ...]:
    """Return these streams and those of the stages, each once, sorted by name."""
    found = {stream.table: stream for stream in streams}
    found |= {stream.table: stream for stage in maker.stages for stream in stage.plan.streams}
    return tuple(found[table] for table in sorted(found))


def measured_with_stages(own: Sequence[str], maker: StageMaker) -> tuple[str, ...]:
    """Return the tables whose rows measure a query and its stages: own, then the stages'."""
    of_stages = (table for stage in maker.stages for table in stage.plan.measured_by)
    return tuple(dict.fromkeys((*own, *of_stages)))


def _reason(late: Late, maker: StageMaker) -> str:
    titles = ", ".join(stage.title for stage in maker.stages)
    if not late.conditions:
        return f"groups are compared with {titles}, which is estimated from the same mini-batches"
    if late.comparison is None:
        return f"which rows count depends on {titles}; all candidates are kept, and tried again each time"
    return (
        f"which rows count depends on {titles}; rows far from it are folded at once, the others kept and "
        "tried again each time, which costs more as they grow in number"
    )


def _warnings(late: Late, maker: StageMaker) -> tuple[str, ...]:
    if not late.conditions or late.comparison is not None:
        return ()
    titles = ", ".join(stage.title for stage in maker.stages)
    return (f"which rows count depends on {titles}, an estimate per row: no interval is known",)
