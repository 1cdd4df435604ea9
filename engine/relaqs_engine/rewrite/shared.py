"""Values of stages that groups are compared with, in HAVING, ORDER BY and the outputs.

Each such value becomes a column of every group. In the exact answer it is the stage's own value. In an
estimate it is the stage's expression over the stage's merged columns. So error bars see how the stage and the
groups vary together.
"""

from __future__ import annotations

from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.plans.basis import BasisColumn
from relaqs_engine.plans.names import SCALE, SHARED_SCALE
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, SharedValue, conjuncts_of
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.groups_below import is_before_groups
from relaqs_engine.rewrite.stages import StageMaker, child_queries, look_up_of
from relaqs_engine.sql.parse import DIALECT

_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ)


def share_values(draft: Draft, maker: StageMaker) -> Draft:
    """Return the draft with a column in the place of each look-up that stands around its aggregates.

    For example, the total stands beside each zone as `stage_0_value`:

    >>> from relaqs_engine.planning.example import explained
    >>> sql = "SELECT zone, sum(km) / (SELECT sum(km) FROM trips) AS share FROM trips GROUP BY zone"
    >>> print(explained(sql, "merge SQL"))
    SELECT merged_groups.*, CAST(stage_0_value AS DOUBLE) AS stage_0_value, stage_0_b0, shared_scale
    FROM (SELECT k0, CAST(SUM(b0) AS DOUBLE) AS b0, CAST(COALESCE(SUM(m), 0) AS BIGINT) AS m
          FROM state GROUP BY k0) AS merged_groups CROSS JOIN shared
    """
    tree = draft.select
    keys, _ = group_keys(tree)
    names: dict[str, SharedValue] = {}
    for subquery in list(tree.find_all(exp.Subquery)):
        if not (stages := maker.stages_in(subquery)) or subquery.find_ancestor(exp.From, exp.Join):
            continue
        if is_before_groups(subquery, keys):
            raise NotOnlineError("a group key or an aggregate depends on an aggregate over all partitions")
        name = look_up_of(subquery)
        if name is None:
            raise NotOnlineError("a subquery per group reads sampled rows of all partitions")
        value = names.setdefault(stages[0], _shared_value(stages[0], maker))
        subquery.replace(exp.column(value.name))
    if taken := next((item.alias for item in tree.expressions if item.alias in names), None):
        raise NotOnlineError(f"an output is called {taken}")
    return replace(draft, shared=tuple(names.values()))


def _shared_value(name: str, maker: StageMaker) -> SharedValue:
    plan = maker.stage(name).plan
    output = plan.outputs[0]
    if output.kind is not OutputKind.ESTIMATE or not plan.has_one_row:
        raise NotOnlineError(f"{maker.stage(name).title} has no estimate that groups could be compared with")
    columns = {column.name: f"{name}_{column.name}" for column in plan.columns.basis}

    def rename(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.column(SHARED_SCALE if node.name == SCALE else columns[node.name])
        return node

    return SharedValue(
        name=f"{name}_value",
        stage=name,
        type=output.type,
        estimate=sqlglot.parse_one(output.estimate_sql, dialect=DIALECT).transform(rename),
        basis=tuple(_prefixed(column, name) for column in plan.columns.basis),
    )


def _prefixed(column: BasisColumn, stage: str) -> BasisColumn:
    return replace(
        column,
        name=f"{stage}_{column.name}",
        count_of=column.count_of and f"{stage}_{column.count_of}",
        means=tuple(f"{stage}_{mean}" for mean in column.means),
    )


def push_arithmetic_inside(tree: exp.Select) -> None:
    """Turn `2 * (SELECT avg(x) …) + 1` on one side of a condition into `(SELECT 2 * avg(x) + 1 …)`.

    Then the stage's value itself is what is compared. A correlated subquery stays as it is: over no rows it
    would still have a row.
    """
    where = tree.args.get("where")
    for condition in conjuncts_of(where.this if where else None):
        if isinstance(condition, _COMPARISONS):
            for side in (condition.left, condition.right):
                _push(side)


def _push(side: exp.Expr) -> None:
    queries = child_queries(side)
    if len(queries) != 1 or isinstance(side.unnest(), exp.Select | exp.Subquery):
        return
    query = queries[0]
    inside = {id(column) for column in query.find_all(exp.Column)}
    plain = isinstance(query, exp.Select) and isinstance(query.parent, exp.Subquery)
    if not plain or any(id(column) not in inside for column in side.find_all(exp.Column)):
        return
    if side.find(exp.In, exp.Exists, exp.Any, exp.All) or len(query.expressions) != 1:
        return
    select = query.copy()
    value = select.expressions[0].unalias()
    if select.args.get("group") or not value.find(exp.AggFunc):
        return
    assert query.parent is not None
    query.parent.replace(exp.paren(value))
    pushed = side.copy()
    select.set("expressions", [exp.alias_(pushed, "value", quoted=True)])
    side.replace(exp.Subquery(this=select))
