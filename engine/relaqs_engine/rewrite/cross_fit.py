"""Compare a row with an aggregate over its own group, while few rows of the group were seen.

    SELECT sum(price) FROM items AS i
    WHERE price < (SELECT 0.2 * avg(price) FROM items AS j WHERE j.part = i.part)

In a small group, one row shifts the group's estimate towards itself. If it is the only row seen, it equals
the mean, and `y < 0.2 * y` can never hold. Such a row is never counted, and the answer comes out far too low.
For TPC-H 17 it was 0.42 of the truth after 4 % of the rows. Compared with the other rows of the group, it was
0.86.

So a row is compared with its group as the *other* rows show it, and is added itself once. Of the group, m
rows were seen; in the whole table it has about M = m · scale. The seen rows sum to S, and the row adds y to
that:

    sum of the group    y + (S − y) · (M − 1) / (m − 1)
    rows of the group   1 + (m − 1) · (M − 1) / (m − 1)  =  M

The second factor is the same in every sum of the stage, and is called `others` in the code.

*Example.* Seen are the prices 2, 10 and 12, a quarter of the table, so M = 12. With the row itself, the mean
is 8, and 2 < 0.2 · 8 = 1.6 does not hold. From the others, the sum is 2 + 22 · 11 / 2 = 123 and the mean 123
/ 12 = 10.25. Then 2 < 0.2 · 10.25 = 2.05 holds, and the row counts.

A row that is alone in its group has m − 1 = 0. It is compared with NULL, and does not count until another row
of the group is seen. At the end the plain look-up decides, so the answer is exact.

What is ugly. What a row adds to its own group becomes a key of the kept rows, so fewer of them can be summed
to one. The look-up is found again by its SQL text. And no interval is known for such a query.

The decision: docs/decisions/0006-refined-mode.md, point 6.
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
    """How a correlated subquery reads its one table.

    Attributes:
        stage: the stage that it became.
        table: the table's name in the catalog.
        alias: the table's alias in the subquery.
        conditions: all conditions of the subquery.
        equalities: pairs (column of the table, expression outside the subquery).
    """

    stage: Stage
    table: str
    alias: str
    conditions: tuple[exp.Expr, ...]
    equalities: tuple[tuple[exp.Column, exp.Expr], ...]


@dataclass(frozen=True, slots=True)
class CrossFit:
    """How a row is compared with the other rows of its group.

    Attributes:
        correlation: the subquery that reads the group.
        own: what the outer row adds to its own group: for each column of the stage's basis, then its rows.
    """

    correlation: Correlation
    own: tuple[exp.Expr, ...]

    def value(self, own_names: Sequence[str]) -> exp.Expr:
        """Return the stage's value for one row, as SQL over the stage's table.

        Args:
            own_names: the columns that hold the values of `own`.
        """
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
    """Return how rows of the query are compared with others of their group, None where they are in no group.

    For example, k2, k3 and k4 are what a row adds to its part's sum of prices, to their count, and to its
    rows:

    >>> from relaqs_engine.planning.example import explained
    >>> mean = "SELECT avg(price) FROM items AS j WHERE j.part = i.part"
    >>> sql = f"SELECT count(*) FROM items AS i WHERE price < ({mean})"
    >>> print(explained(sql, "partial SQL, per task:"))
    SELECT i.price AS k0, i.part AS k1,
           COALESCE(CASE WHEN i.part = i.part THEN CAST(i.price AS DOUBLE) END, 0) AS k2,
           COALESCE(CASE WHEN ... THEN CAST(CASE WHEN NOT i.price IS NULL THEN 1 END AS DOUBLE) END, 0) AS k3,
           COALESCE(CASE WHEN i.part = i.part THEN CAST(1 AS DOUBLE) END, 0) AS k4, ...
    """
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
