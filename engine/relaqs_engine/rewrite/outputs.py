"""Rule: tell what is known of each output before the end: a key, an estimate, a bound, or nothing sound."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.layouts.manifest import is_number
from relaqs_engine.plans.aggregate import (
    DISTINCT_ESTIMATE,
    DISTINCT_SEEN,
    ROWS,
    SCALE,
    SHARED_SCALE,
    Basis,
    BasisColumn,
)
from relaqs_engine.plans.plan import OfDistinct, OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.expressions import (
    KeptSigns,
    Sign,
    moves_in_steps,
    number_of,
    rounded,
    sign_of_bounds,
    unfolded,
    widest_certified,
)
from relaqs_engine.sql.parse import DIALECT

if TYPE_CHECKING:
    from relaqs_engine.rewrite.listed_values import MergedValue
    from relaqs_engine.rewrite.statistics import AveragedTime

_OF_DISTINCT = (
    "what is computed from COUNT(DISTINCT) has an interval only where it is multiplied or divided by it; its "
    "parts have, as columns of their own"
)


def classify_outputs(draft: Draft) -> Draft:
    """Return the draft with one OutputColumn for each column of the answer.

    >>> values = "avg(fare) AS mean, max(fare) AS top, median(km) AS middle, count(DISTINCT driver) AS seen"
    >>> draft = after(classify_outputs, f"SELECT zone, {values}, mode(km) AS usual FROM trips GROUP BY zone")
    >>> for output in draft.outputs:
    ...     print(output.name, "is", output.kind.value)
    zone is key
    mean is estimate
    top is bound
    middle is quantile
    seen is distinct
    usual is opaque
    """
    assert draft.estimate_tree is not None
    items = draft.estimate_tree.expressions
    if len(items) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    basis = {column.name: column for column in (*draft.basis, *draft.shared_basis)}
    of_values = {value.name: value for value in draft.of_values}
    outputs = tuple(
        _output(name, type_, item.unalias(), basis, of_values, averaged_time_in(item.unalias(), draft))
        for (name, type_), item in zip(draft.schema, items, strict=True)
    )
    return replace(draft, outputs=outputs)


def _output(
    name: str,
    type_: str,
    value: exp.Expr,
    basis: dict[str, BasisColumn],
    of_values: dict[str, MergedValue],
    averaged: tuple[AveragedTime, float] | None,
) -> OutputColumn:
    sql = value.sql(DIALECT)
    if any(column.name == DISTINCT_ESTIMATE for column in _own_columns(value)):
        if isinstance(value.unnest(), exp.Column):
            return OutputColumn(name, OutputKind.DISTINCT, type_, sql, sign=Sign.POSITIVE)
        before, rounding = rounded(value.unnest())
        if not is_number(type_) or (of_distinct := _of_distinct(before, basis)) is None:
            return OutputColumn(name, OutputKind.OPAQUE, type_, sql, never_certified=_OF_DISTINCT)
        return OutputColumn(
            *(name, OutputKind.OF_DISTINCT, type_, sql),
            rounding=rounding,
            sign=of_distinct.factor.sign,
            of_distinct=of_distinct,
        )
    if taken := [of_values[column.name] for column in _own_columns(value) if column.name in of_values]:
        is_alone = isinstance(value.unnest(), exp.Column)
        if is_alone and taken[0].side:
            return OutputColumn(name, OutputKind.BOUND, type_, sql, side=taken[0].side)
        time = taken[0].time if is_alone else None
        quantile = taken[0].quantile if is_alone and (time is not None or is_number(type_)) else None
        kind = OutputKind.OPAQUE if quantile is None else OutputKind.QUANTILE
        sign = _sign_of_sums(basis[taken[0].listed])
        return OutputColumn(name, kind, type_, sql, quantile=quantile, sign=sign, time=time)
    used = [basis[column.name] for column in _own_columns(value) if column.name in basis]
    bare = value.unnest()
    if not used:
        return OutputColumn(name, OutputKind.KEY, type_, sql)
    if isinstance(bare, exp.Column) and used[0].kind in (Basis.MIN, Basis.MAX):
        side = "most" if used[0].kind is Basis.MIN else "least"
        return OutputColumn(name, OutputKind.BOUND, type_, sql, side=side)
    if averaged is not None:
        average, rounding = averaged
        return OutputColumn(
            *(name, OutputKind.ESTIMATE, type_, sql),
            unrounded_sql=average.number.sql(DIALECT),
            rounding=rounding,
            rounding_a_row=average.rounding_a_row,
            time=average.scale,
        )
    if not is_number(type_) or not all(column.is_additive for column in used):
        return OutputColumn(name, OutputKind.OPAQUE, type_, sql)
    before, rounding = rounded(bare)
    total = plain_total(before, basis)
    straight, folds = unfolded(before, lambda column: sign_of_column(column, basis))
    return OutputColumn(
        *(name, OutputKind.ESTIMATE, type_, sql),
        total=total,
        counts_rows=total is not None and basis[total].kind is Basis.COUNT,
        unrounded_sql="" if straight is bare else straight.sql(DIALECT),
        folds=folds,
        rounding=rounding,
        moves_in_steps=moves_in_steps(before),
        widest=widest_certified(before),
        sign=_SignsOfState(basis)(value),
    )


def averaged_time_in(value: exp.Expr, draft: Draft) -> tuple[AveragedTime, float] | None:
    """Return the average of moments that a value is, and by how many microseconds it is rounded, if it is."""
    if not draft.averaged_times:
        return None
    from relaqs_engine.rewrite.statistics import averaged_time_in

    times = {average.estimate.sql(DIALECT): average for average in draft.averaged_times}
    return averaged_time_in(value, times)


class _SignsOfState(KeptSigns):
    """Signs that values over merged state keep."""

    def __init__(self, basis: Mapping[str, BasisColumn]) -> None:
        super().__init__(lambda column: sign_of_column(column, basis))
        self._basis = basis

    def of(self, node: exp.Expr) -> Sign:
        """Return the sign of a function. A sum of squares is 0 where its own count is 1 at most."""
        match node:
            case exp.Div(
                this=exp.Column(name=name),
                expression=exp.Nullif(this=exp.Sub(this=exp.Cast(this=exp.Column(name=count))) as less),
            ):
                column, few = self._basis.get(name), number_of(less.expression)
                if column is not None and column.is_square and column.count_of == count and few == 1.0:
                    return Sign.POSITIVE
        return super().of(node)


def _of_distinct(value: exp.Expr, basis: dict[str, BasisColumn]) -> OfDistinct | None:
    """Return how a value is made of COUNT(DISTINCT) and one factor, None where it is made otherwise."""
    found = _factor_and_power(value)
    if found is None or abs(found[1]) != 1:
        return None
    factor = _output("factor", "DOUBLE", found[0], basis, {}, None)
    return OfDistinct(factor, found[1] < 0) if factor.kind is OutputKind.ESTIMATE else None


def _factor_and_power(value: exp.Expr) -> tuple[exp.Expr, int] | None:
    """Return a value without COUNT(DISTINCT), and which power of that it is multiplied by."""
    value = value.unnest()
    if isinstance(value, exp.Column) and value.name == DISTINCT_ESTIMATE:
        return exp.Literal.number(1), 1
    if all(column.name != DISTINCT_ESTIMATE for column in _own_columns(value)):
        return value, 0
    if isinstance(value, exp.Cast) and value.to.is_type(exp.DType.DOUBLE):
        return _factor_and_power(value.this)
    if not isinstance(value, exp.Mul | exp.Div):
        return None
    left, right = _factor_and_power(value.left), _factor_and_power(value.right)
    if left is None or right is None:
        return None
    operation, sign = (exp.Mul, 1) if isinstance(value, exp.Mul) else (exp.Div, -1)
    return operation(this=exp.paren(left[0]), expression=exp.paren(right[0])), left[1] + sign * right[1]


def sign_of_column(column: exp.Column, basis: Mapping[str, BasisColumn]) -> Sign:
    """Return the signs that merged state may have."""
    if column.name in (SCALE, SHARED_SCALE, ROWS, DISTINCT_SEEN, DISTINCT_ESTIMATE):
        return Sign.POSITIVE
    return _sign_of_sums(basis[column.name]) if column.name in basis else Sign.EITHER


def _sign_of_sums(column: BasisColumn) -> Sign:
    """Return the signs that a column's sums can have, or the values that it lists."""
    if column.kind is Basis.COUNT or column.is_square:
        return Sign.POSITIVE
    if column.kind is Basis.M2:
        return Sign.EITHER
    return sign_of_bounds(column.lowest, column.highest)


def plain_total(value: exp.Expr, basis: Container[str]) -> str | None:
    """Return the column whose scaled total the value is, None where it is anything else.

    Args:
        value: an output over merged state.
        basis: the names of the merged columns.
    """
    if isinstance(value, exp.Mul) and isinstance(value.left, exp.Cast):
        column = value.left.this
        if isinstance(column, exp.Column) and column.name in basis and value.right.name == "scale":
            return column.name
    return None


def _own_columns(value: exp.Expr) -> Iterator[exp.Column]:
    for column in find_all(value, exp.Column):
        if not column.table:
            yield column
