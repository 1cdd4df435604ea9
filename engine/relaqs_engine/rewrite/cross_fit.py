"""Rows that are compared with an aggregate they are part of themselves, while their group is small.

A row of few seen in its group pulls the estimate of the group towards itself: a row alone is never below a
fifth of the mean. So it is compared with the group as the *other* rows show it, and itself added once: with m
rows seen of about M, a sum is y + (M − 1)·(mean of the others), and the number of rows M. A row that is alone
in its group is compared with nothing, and does not count until another is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.names import ROWS, SCALE
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.plans.refined import Stage
from relaqs_engine.rewrite.draft import Draft, Source
from relaqs_engine.sql.parse import DIALECT


@dataclass(frozen=True, slots=True)
class Correlation:
    """How a correlated subquery reads its one table. conditions: its own ones.

    equalities: (column of the table, expression outside it).
    """

    stage: Stage
    table: str
    alias: str
    conditions: tuple[exp.Expr, ...]
    equalities: tuple[tuple[exp.Column, exp.Expr], ...]


@dataclass(frozen=True, slots=True)
class CrossFit:
    """own: for each column of the stage's basis, then its rows, what the outer row adds to its own group."""

    correlation: Correlation
    own: tuple[exp.Expr, ...]

    def value(self, own_names: Sequence[str]) -> exp.Expr:
        """Return the stage's value for one row, over the stage's table. own_names: the columns of `own`."""
        stage, own_rows = self.correlation.stage, own_names[-1]
        rows, scale = f"{stage.name}.{ROWS}", f"{stage.name}.{SCALE}"
        others = f"(({rows} * {scale} - {own_rows}) / nullif({rows} - {own_rows}, 0))"
        totals = {
            column.name: f"({own} + (CAST({stage.name}.{column.name} AS DOUBLE) - {own}) * {others})"
            for column, own in zip(stage.plan.columns.basis, own_names, strict=False)
        }

        def fill(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            return sqlglot.parse_one("1.0" if node.name == SCALE else totals[node.name], dialect=DIALECT)

        return sqlglot.parse_one(stage.plan.outputs[-1].estimate_sql, dialect=DIALECT).transform(fill)


def cross_fit_of(draft: Draft, correlation: Correlation) -> CrossFit | None:
    """Return how rows of the query are compared with others of their group, None where they are in none."""
    plan = correlation.stage.plan
    if plan.outputs[-1].kind is not OutputKind.ESTIMATE or not all(map(_adds_rows, plan.columns.basis)):
        return None
    alias = next((s.alias for s in draft.streams if _is_same_table(draft, s, correlation)), None)
    if alias is None or any(condition.find(exp.Query) for condition in correlation.conditions):
        return None

    def of_row(expression: exp.Expr) -> exp.Expr:
        moved = expression.copy()
        for column in moved.find_all(exp.Column):
            if column.table == correlation.alias:
                column.set("table", exp.to_identifier(alias, quoted=True))
        return moved

    tests = [exp.EQ(this=of_row(inner), expression=outer.copy()) for inner, outer in correlation.equalities]
    belongs = exp.and_(*tests, *map(of_row, correlation.conditions), copy=False)
    rows = [*(column.row_sql for column in plan.columns.basis), "1"]
    values = (of_row(sqlglot.parse_one(row, dialect=DIALECT)) for row in rows)
    return CrossFit(correlation, tuple(_zero_or(belongs, value) for value in values))


def _zero_or(belongs: exp.Expr, value: exp.Expr) -> exp.Expr:
    added = exp.case().when(belongs.copy(), exp.cast(value, "DOUBLE"))
    return exp.Coalesce(this=added, expressions=[exp.Literal.number(0)])


def _adds_rows(column: BasisColumn) -> bool:
    return column.kind in (Basis.COUNT, Basis.SUM) and bool(column.row_sql)


def _is_same_table(draft: Draft, source: Source, correlation: Correlation) -> bool:
    layout = draft.catalog.table(correlation.table)
    return source.layout is layout and not source.nullable and not source.is_derived
