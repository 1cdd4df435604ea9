"""Which of the kept rows count: conditions on stages, as SQL over the kept rows.

A comparison of a row's value with one stage's one value is decided where the value lies outside the stage's
range: such rows are folded, or dropped, by the tasks already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from relaqs_engine.plans.deciders import MembershipRules
from relaqs_engine.plans.merge import MergePlan, MergeTexts
from relaqs_engine.plans.names import BLOCK, RANGE_HIGH, RANGE_LOW, STATE
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.plans.refined import Belonging, Threshold
from relaqs_engine.rewrite.carried_types import check_types_travel
from relaqs_engine.rewrite.cross_fit import CrossFit, cross_fit_of
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, tables_in
from relaqs_engine.rewrite.render import (
    block_of,
    key_names,
    merge_of,
    partial_of,
    partial_query,
    partial_types,
)
from relaqs_engine.rewrite.stages import StageMaker, look_up_of
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
    """`row <operator> stage`: row reads columns of the query, the stage has one value for all rows."""

    row: exp.Expr
    operator: type[exp.Binary]
    look_up: exp.Expr
    stage: str


@dataclass(frozen=True, slots=True)
class Late:
    """The conditions that stages decide. comparison: where it is one alone, and of a number."""

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
            for column in condition.find_all(exp.Column):
                if column.table:
                    found.setdefault(column.sql(DIALECT), column)
        return tuple(found.values())


def _comparison(condition: exp.Expr, maker: StageMaker) -> Comparison | None:
    if not isinstance(condition, _COMPARISONS):
        return None
    left, right = _bare(condition.left), _bare(condition.right)
    for row, other, kind in ((left, right, type(condition)), (right, left, _MIRRORED[type(condition)])):
        name = look_up_of(other)
        if name is None or row.find(exp.Query):
            continue
        if maker.stage(name).plan.outputs[0].kind is OutputKind.ESTIMATE:
            return Comparison(row, kind, other, name)
    return None


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def kept_columns(late: Late, fits: Mapping[str, CrossFit]) -> tuple[exp.Expr, ...]:
    """Return what rows are kept by beside the groups: what is compared, and whether they count for sure.

    fits: of the look-ups by their text; what a row adds to its own group is compared as well.
    """
    if late.comparison is None:
        return (*late.columns, *(own for fit in fits.values() for own in fit.own))
    return late.comparison.row, exp.cast(exp.null(), "BOOLEAN")


def cross_fits(draft: Draft, late: Late, maker: StageMaker) -> dict[str, CrossFit]:
    """Return the look-ups, by their text, of groups that the row itself is in."""
    found: dict[str, CrossFit] = {}
    for condition in late.conditions if late.comparison is None else ():
        for look_up in condition.find_all(exp.Select):
            correlation = maker.correlation(look_up)
            if correlation is not None and (fit := cross_fit_of(draft, correlation)) is not None:
                found[look_up.sql(DIALECT)] = fit
    return found


def kept_plan(draft: Draft, plan: MergePlan, late: Late, fits: Mapping[str, CrossFit]) -> MergePlan:
    """Return how the rows are kept: a mergeable plan, by the query's keys and what is compared."""
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
    """Return which kept rows count. fits: as `kept_columns` has them."""
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
    """Return the SQL from kept rows to partial rows of the query: those that count, summed."""
    source = f"(SELECT * FROM {STATE} WHERE {condition})"
    return merge_of(draft, (*key_names(draft), BLOCK), source)


def _ranged(draft: Draft, comparison: Comparison, *, by_block: bool) -> str:
    """Return the partial query inside a range: rows surely out are dropped, those surely in summed."""
    rises = comparison.operator in (exp.GT, exp.GTE)
    loose, tight = (RANGE_LOW, RANGE_HIGH) if rises else (RANGE_HIGH, RANGE_LOW)

    def compared(end: str) -> exp.Expr:
        value = exp.cast(exp.Literal.string(end), "DOUBLE")
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
    """Return the condition with values of the other rows of a group. first: the key of the first `own`."""
    condition = condition.copy()
    for text, fit in fits.items():
        names = [f"{STATE}.k{first + i}" for i in range(len(fit.own))]
        for look_up in list(condition.find_all(exp.Select)):
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
