"""Say which of the kept rows count: the conditions on stages, as SQL over the kept rows.

A row may be compared with one value of one stage, as in `fare > (SELECT avg(fare) FROM trips)`. Such a row is
decided once its own value lies outside the range in which the stage's value surely lies. Tasks add the rows
that are surely in to the sums, and drop those that are surely out. Only rows inside the range are kept.
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
    """A condition `row <operator> stage`.

    Attributes:
        row: what is compared, over columns of the query.
        operator: the comparison.
        look_up: the subquery that gives the stage's value, the same for all rows.
        stage: the stage's name.
    """

    row: exp.Expr
    operator: type[exp.Binary]
    look_up: exp.Expr
    stage: str


@dataclass(frozen=True, slots=True)
class Late:
    """The conditions that stages decide.

    Attributes:
        conditions: all of them.
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
    """Return what rows are kept by besides their group: what is compared, and whether they surely count.

    Args:
        late: the conditions on stages.
        fits: the look-ups by their SQL. What a row adds to its own group is then kept as well.

    For example, rows are kept by their fare. The second column is TRUE for rows that surely count:

    >>> from relaqs_engine.planning.example import explained
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
        for look_up in condition.find_all(exp.Select):
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
    """Return the condition with stages' values as the other rows of a group show them.

    Args:
        condition: a condition on stages.
        fits: how each look-up is computed from the other rows, by the look-up's SQL.
        first: the position among the keys of the first value that a row adds to its own group.
    """
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
