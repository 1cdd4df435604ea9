"""Refined plans over inner stages: the rest of the query reads only their answers, and static tables.

The query runs as it is, in the database that holds the stages' states: over the answers so far after each
mini-batch, and over the exact answers at the end. Static tables are fetched once. Such a query may do
anything with the estimates, so no interval is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sqlglot import exp

from relaqs_engine.layouts.reads import read_of_table
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.plans.refined import OverStages, RefinedPlan
from relaqs_engine.plans.streams import Hoist
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    Source,
    aliases_in,
    conjuncts_of,
    tables_in,
)
from relaqs_engine.rewrite.hoist import projection
from relaqs_engine.rewrite.passed_keys import IsKey, is_key
from relaqs_engine.rewrite.refine import all_streams, measured_with_stages
from relaqs_engine.rewrite.stages import PlanStage, StageMaker, child_queries
from relaqs_engine.sql.aggregates import Merge, call_of
from relaqs_engine.sql.parse import DIALECT

_EXTREMES = (Merge.MIN, Merge.MAX, Merge.BESIDE_MIN, Merge.BESIDE_MAX)


def refine_over_stages(draft: Draft, plan_stage: PlanStage) -> RefinedPlan:
    """Return the plan of a flattened query whose own FROM samples nothing. Raises NotOnlineError.

    >>> from relaqs_engine.planning.example import explained
    >>> mean = "SELECT avg(fare) FROM trips WHERE trips.zone = zones.zone"
    >>> sql = f"SELECT city FROM zones WHERE ({mean}) > 30"
    >>> print(explained(sql, "partial SQL of stage_0"))
    SELECT trips.zone AS k0, SUM(trips.fare) AS b0, COUNT(trips.fare) AS b1, COUNT(*) AS m
    FROM partitions_of_trips AS trips GROUP BY 1
    >>> print(explained(sql, "final SQL, after the last"))
    SELECT zones.city AS city FROM static_1 AS zones
    WHERE (SELECT CAST(o1 AS DOUBLE) FROM stage_0 WHERE CAST(o0 AS INT) = zones.zone) > 30
    """
    tree = draft.select.copy()
    maker = StageMaker(draft, plan_stage)
    _put_stages(tree, maker)
    if not maker.stages:
        raise NotOnlineError("no subquery of it aggregates sampled rows")
    streams = all_streams((), maker)
    layouts = [draft.catalog.table(stream.table) for stream in streams]
    if len({len(layout.partitions) for layout in layouts}) > 1:
        raise NotOnlineError("its tables are laid out in different numbers of partitions")
    outputs = tuple(
        OutputColumn(name, _kind(item, tree, maker), type_, "")
        for (name, type_), item in zip(draft.schema, _items(draft, tree), strict=True)
    )
    largest = max(layouts, key=lambda layout: (layout.row_count, layout.table)).table
    _check_binds(draft, tree, maker)
    picks = _picks_extremes(tree) or _compares(tree, maker)
    statics = tuple(dict.fromkeys(_statics(draft, tree, maker)))
    titles = ", ".join(stage.title for stage in maker.stages)
    return RefinedPlan(
        sql=draft.sql,
        reasons=(f"it is computed anew each time from {titles}, which are estimated per group",),
        streams=streams,
        outputs=outputs,
        measured_by=measured_with_stages((largest,), maker),
        stages=maker.stages,
        outer=OverStages(tree.sql(DIALECT), statics, picks),
        warnings=(f"computed from estimates of {titles}: rows may still enter or leave the answer",),
    )


def _put_stages(query: exp.Expr, maker: StageMaker) -> None:
    """Put look-ups in the place of the outermost subqueries that can be stages."""
    for child in child_queries(query):
        if not maker.reads_sampled(child):
            continue
        try:
            maker.put(child)
        except NotOnlineError:
            if not child_queries(child):
                raise
            _put_stages(child, maker)
    if maker.reads_sampled(query):
        tables = ", ".join(table.name for table in tables_in(query) if maker.reads_sampled(table))
        raise NotOnlineError(f"rows of the sampled table {tables} are compared with those of all partitions")


def _check_binds(draft: Draft, tree: exp.Select, maker: StageMaker) -> None:
    """Raise SqlError where the query does not bind over the answers of its stages."""
    stages = (
        (stage.name, ", ".join(f"NULL::{each.type} AS o{i}" for i, each in enumerate(stage.plan.outputs)))
        for stage in maker.stages
    )
    given = ", ".join(f"{name} AS (SELECT {columns})" for name, columns in stages)
    draft.binder.describe(f"WITH {given} {tree.sql(DIALECT)}")


def _items(draft: Draft, tree: exp.Select) -> list[exp.Expr]:
    if len(tree.expressions) != len(draft.schema):
        raise NotOnlineError("one of its outputs stands for several columns")
    return [item.unalias() for item in tree.expressions]


def _picks_extremes(tree: exp.Select) -> bool:
    """Whether the query shows the largest or smallest of the values that stages give."""
    if tree.find(exp.Limit, exp.Fetch, exp.Window, exp.All) is not None:
        return True
    calls = filter(None, map(call_of, tree.find_all(exp.AggFunc)))
    return any(call.law.merge in _EXTREMES for call in calls)


def _compares(tree: exp.Select, maker: StageMaker) -> bool:
    """Whether the estimated values of groups decide which groups the query shows."""
    return any(
        not is_key(condition.this, select, _is_key_of(maker))
        for select in tree.find_all(exp.Select)
        for condition in (select.args.get("where"), select.args.get("having"))
        if condition is not None
    )


def _kind(item: exp.Expr, tree: exp.Select, maker: StageMaker) -> OutputKind:
    """Return KEY for keys of stages and columns of static tables. The rest is computed from estimates."""
    return OutputKind.KEY if is_key(item, tree, _is_key_of(maker)) else OutputKind.OPAQUE


def _is_key_of(maker: StageMaker) -> IsKey:
    def is_key_of(table: exp.Table, name: str) -> bool:
        if not maker.is_stage(table):
            return True
        position = name.removeprefix("o")
        outputs = maker.stage(table.name).plan.outputs
        return position.isdigit() and outputs[int(position)].kind is OutputKind.KEY

    return is_key_of


def _statics(draft: Draft, tree: exp.Select, maker: StageMaker) -> Iterator[Hoist]:
    """Put the fetched table in the place of each static table, and yield what has to be fetched."""
    for table in list(tables_in(tree)):
        if maker.is_stage(table) or not isinstance(table.this, exp.Identifier):
            continue
        layout = draft.catalog.table(table.name)
        source = Source(table.alias_or_name, table, layout)
        sql = projection(tree, source, layout, _own_conditions(table))
        name = f"static_{hashlib.sha256(sql.encode()).hexdigest()[:16]}"
        fetched = exp.alias_(exp.to_table(name), source.alias, quoted=True, table=True)
        for part in ("joins", "laterals"):
            if value := table.args.get(part):
                fetched.set(part, value)
        table.replace(fetched)
        yield Hoist(name, sql, (layout.table,), (read_of_table(layout, draft.names),))


def _own_conditions(table: exp.Table) -> list[exp.Expr]:
    """Return a SELECT's conditions on one of its tables; none with an outer join, which could revive rows."""
    select = table.parent_select
    if select is None or any(join.side for join in select.args.get("joins") or []):
        return []
    conditions = conjuncts_of(where.this if (where := select.args.get("where")) else None)
    alias = table.alias_or_name
    return [c for c in conditions if aliases_in(c) == {alias} and not c.find(exp.Query)]
