"""Scalar subqueries over all partitions become stages, queries of their own whose answers are looked up.

    SELECT count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips)

Each row is compared with an average that is known only at the end. Waiting for it would mean no early
answer. So the subquery is taken out. It becomes a *stage*, a mergeable query that reads the same
partitions in the same mini-batches. In its place stands a look-up in a table with the stage's answer so
far:

    stage_0:   SELECT avg(fare) FROM trips
    look-up:   fare > (SELECT o0 FROM stage_0)

After each mini-batch the look-up reads the estimate, and after the last one the exact value. Nothing new
has to merge, to be estimated or to end exactly.

**Correlated subqueries.** `(SELECT avg(j.price) FROM items AS j WHERE j.part = i.part)` has another value
for each part. It becomes one group for each value of the columns that an equality correlates it by:

    stage_0:   SELECT j.part AS c0, avg(j.price) AS value FROM items AS j GROUP BY j.part
    look-up:   (SELECT o1 FROM stage_0 WHERE o0 = i.part)

Is the look-up equal to the subquery? For a part with rows it is. For a part without rows the look-up finds
nothing, which is NULL, so the subquery must be NULL over no rows too. SUM, AVG, MIN, MAX, STDDEV and
arithmetic over them are. COUNT is 0 there, so its look-up is `coalesce(…, 0)`. Everything else is refused,
such as `coalesce(avg(x), 1)`, and so is correlation by anything but equality. The value outside must also
equal one group at most. DuckDB compares a text with a number as numbers, so that '1' and '01' both equal 1,
and a BIGINT with a DOUBLE as DOUBLE. Such equalities are refused (`mark_keys`).

*Example.* Part 7 has the prices 2, 10 and 12, part 9 has none. The stage's table is the one row (7, 8.0).
The look-up gives 8.0 for part 7 and NULL for part 9. With count(*) it gives 3 and 0.

**Fewer groups.** Conditions on a static table of the outer query carry over. `p.brand = 'A'` beside
`p.part = j.part` adds `j.part IN (SELECT part FROM p WHERE brand = 'A')` to the stage. No other group is
ever looked up, so no other one is kept.

What is ugly. Equal subqueries are one stage, so that `t = (SELECT max(t) …)` compares equal numbers, and
they are found equal by their text. Stage and outer query are separate tasks, so a partition is read once
for each. EXISTS, ANY and ALL over all partitions have no estimate here.

The decision: docs/decisions/0006-refined-mode.md, points 1 and 8.

**Compared with its own group**, while few rows of the group were seen:

    SELECT sum(price) FROM items AS i
    WHERE price < (SELECT 0.2 * avg(price) FROM items AS j WHERE j.part = i.part)

In a small group, one row shifts the group's estimate towards itself. If it is the only row seen, it equals
the mean, and `y < 0.2 * y` can never hold. Such a row is never counted, and the answer comes out far too
low. For TPC-H 17 it was 0.42 of the truth after 4 % of the rows. Compared with the other rows of the
group, it was 0.86.

So a row is compared with its group as the *other* rows show it, and is added itself once. Of the group, m
rows were seen; in the whole table it has about M = m · scale. The seen rows sum to S, and the row adds y
to that:

    sum of the group    y + (S − y) · (M − 1) / (m − 1)
    rows of the group   1 + (m − 1) · (M − 1) / (m − 1)  =  M

The second factor is the same in every sum of the stage, and is called `others` in the code.

*Example.* Seen are the prices 2, 10 and 12, a quarter of the table, so M = 12. With the row itself, the
mean is 8, and 2 < 0.2 · 8 = 1.6 does not hold. From the others, the sum is 2 + 22 · 11 / 2 = 123 and the
mean 123 / 12 = 10.25. Then 2 < 0.2 · 10.25 = 2.05 holds, and the row counts.

A row that is alone in its group has m − 1 = 0. It is compared with NULL, and does not count until another
row of the group is seen. At the end the plain look-up decides, so the answer is exact.

What is ugly. What a row adds to its own group becomes a key of the kept rows, so fewer of them can be
summed to one. The look-up is found again by its SQL text. And no interval is known for such a query.

The decision: docs/decisions/0006-refined-mode.md, point 6.

**Beside groups**, in HAVING, ORDER BY and the outputs, a stage's value becomes a column of every group. In
the exact answer it is the stage's own value. In an estimate it is the stage's expression over the stage's
merged columns. So error bars see how the stage and the groups vary together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import sqlglot
from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.plans.aggregate import ROWS, SCALE, SHARED_SCALE, Basis, BasisColumn, MergePlan
from relaqs_engine.plans.composite import Stage
from relaqs_engine.plans.plan import OutputKind
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    SharedValue,
    Source,
    aliases_in,
    conjuncts_of,
    own_nodes,
    said,
    tables_in,
    without_brackets,
)
from relaqs_engine.rewrite.grouping import group_keys, is_before_groups
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.aggregate_laws import call_of, is_aggregate
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.parse import DIALECT
from relaqs_engine.sql.statements import Describe


@dataclass(frozen=True, slots=True)
class Correlation:
    """How a correlated subquery reads its one table.

    Attributes:
        table: the table's name in the catalog.
        alias: the table's alias in the subquery.
        equalities: pairs (column of the table, expression outside the subquery).
    """

    stage: Stage
    table: str
    alias: str
    conditions: tuple[exp.Expr, ...]
    equalities: Equalities


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
    if alias is None or any(find_first(condition, exp.Query) for condition in correlation.conditions):
        return None

    def of_row(expression: exp.Expr) -> exp.Expr:
        moved = expression.copy()
        for column in find_all(moved, exp.Column):
            if column.table == correlation.alias:
                column.set("table", exp.to_identifier(alias, quoted=True))
        return moved

    tests = [exp.EQ(this=of_row(inner), expression=outer.copy()) for inner, outer in correlation.equalities]
    belongs = exp.and_(*tests, *map(of_row, correlation.conditions), copy=False)
    rows = [*(column.row_sql for column in plan.columns.basis), "1"]
    values = (of_row(sqlglot.parse_one(row, dialect=DIALECT)) for row in rows)
    return CrossFit(correlation, tuple(_zero_or(belongs, value) for value in values))


def _zero_or(belongs: exp.Expr, value: exp.Expr) -> exp.Expr:
    added = exp.case().when(belongs.copy(), exp.cast(value, exp.DType.DOUBLE))
    return exp.Coalesce(this=added, expressions=[exp.Literal.number(0)])


def _adds_rows(column: BasisColumn) -> bool:
    return column.kind in (Basis.COUNT, Basis.SUM) and bool(column.row_sql)


def _is_same_table(draft: Draft, source: Source, correlation: Correlation) -> bool:
    layout = draft.catalog.table(correlation.table)
    return source.table is layout and not source.nullable and not source.is_derived


PlanStage = Callable[[exp.Select, Draft], MergePlan]
# What correlates a subquery: pairs (its own column, expression outside).
Equalities: TypeAlias = Sequence[tuple[exp.Column, exp.Expr]]

# These are NULL over no rows if their aggregates are. Other expressions may have a value there.
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast, exp.Literal, exp.DataType)
_TITLE_LENGTH = 60


class StageMaker:
    """Puts look-ups in the place of subqueries, and collects the stages. Equal subqueries are one stage.

    Args:
        draft: the query, flattened, with its layouts chosen.
        plan_stage: plans one SELECT, or raises NotOnlineError.

    >>> from relaqs_engine.rewrite.normalize import flatten
    >>> inner = "SELECT avg(j.price) FROM items AS j WHERE j.part = i.part"
    >>> draft = after(flatten, f"SELECT count(*) AS n FROM items AS i WHERE i.price < ({inner})")
    >>> from types import SimpleNamespace   # stands for a stage's plan: only types are read
    >>> plan = SimpleNamespace(outputs=[SimpleNamespace(type="INTEGER"), SimpleNamespace(type="DOUBLE")])
    >>> maker, selects = StageMaker(draft, lambda select, _: selects.append(shown(select)) or plan), []
    >>> query = draft.select.copy()
    >>> mark_keys(query, draft.binder.describe)
    >>> maker.put(child_queries(query)[0])
    >>> print(*selects)
    SELECT j.part AS c0, AVG(j.price) AS value FROM items AS j GROUP BY j.part
    >>> print(shown(query))
    SELECT COUNT(*) AS n FROM items AS i
    WHERE i.price < (SELECT CAST(o1 AS DOUBLE) FROM stage_0 WHERE CAST(o0 AS INT) = i.part)
    """

    def __init__(self, draft: Draft, plan_stage: PlanStage) -> None:
        self._draft = draft
        self._plan_stage = plan_stage
        self._stages: dict[str, Stage] = {}
        self._correlations: dict[str, Correlation] = {}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(self._stages.values())

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self._stages.values() if stage.name == name)

    def correlation(self, look_up: exp.Expr) -> Correlation | None:
        """Return how the subquery behind this look-up was correlated, None if it read a join."""
        return self._correlations.get(look_up.sql(DIALECT))

    def is_stage(self, table: exp.Table) -> bool:
        return any(table.name == stage.name for stage in self._stages.values())

    def stages_in(self, node: exp.Expr) -> tuple[str, ...]:
        return tuple(dict.fromkeys(table.name for table in tables_in(node) if self.is_stage(table)))

    def reads_sampled(self, node: exp.Expr) -> bool:
        """Whether the node reads a sampled table other than through a stage."""
        return any(self._is_sampled(table) for table in tables_in(node))

    def put(self, query: exp.Expr) -> None:
        """Put a look-up in the place of a subquery. Raises NotOnlineError where it cannot be a stage."""
        if not isinstance(query, exp.Select):
            raise NotOnlineError(f"{query.key.upper()} inside it combines whole answers")
        container = query.parent
        if isinstance(container, exp.Exists):
            raise NotOnlineError("EXISTS over all partitions is known at the end only")
        if isinstance(container, exp.Subquery):
            container = container.parent
        if isinstance(container, exp.Lateral):
            raise NotOnlineError("LATERAL over all partitions is not rewritten")
        if isinstance(container, exp.SetOperation):
            raise NotOnlineError("a subquery over all partitions is a side of a set operation")
        if isinstance(container, exp.Any | exp.All):
            raise NotOnlineError("ANY and ALL over all partitions are not rewritten")
        if isinstance(container, exp.In):
            self._put_set(query)
        elif len(query.expressions) == 1:
            self._put_value(query)
        else:
            raise NotOnlineError("a subquery with several columns is compared as a whole")

    def _is_sampled(self, table: exp.Table) -> bool:
        if self.is_stage(table) or not isinstance(table.this, exp.Identifier):
            return False
        return self._draft.catalog.table(table.name).is_sampled

    def _put_set(self, query: exp.Select) -> None:
        _refuse_correlation(query)
        if len(query.expressions) != 1:
            raise NotOnlineError("a subquery with several columns is compared as a whole")
        stage = self._stage(query)
        query.replace(exp.select(_column(stage, 0)).from_(stage.name))

    def _put_value(self, query: exp.Select) -> None:
        if not outer_columns(query):
            stage = self._stage(query)
            value = _column(stage, 0)
            if query.find_ancestor(exp.In):  # see `_as_one_value` in carve.py
                value = exp.AnyValue(this=value)
            query.replace(exp.select(value).from_(stage.name))
            return
        select, equalities = decorrelated(query)
        conditions = conjuncts_of(where.this if (where := select.args.get("where")) else None)
        select = select.where(*those_looked_up(query, equalities, self._is_estimated))
        stage = self._stage(select)
        columns = [_column(stage, i) for i in range(len(equalities) + 1)]
        look_up = put_look_up(query, equalities, columns, exp.to_table(stage.name))
        self._note(look_up, Correlation(stage, "", "", conditions, tuple(equalities)), select)

    def _note(self, look_up: exp.Select, correlation: Correlation, select: exp.Select) -> None:
        source = select.args["from_"].this
        if isinstance(source, exp.Table) and not select.args.get("joins"):
            named = replace(correlation, table=source.name, alias=source.alias_or_name)
            self._correlations[look_up.sql(DIALECT)] = named

    def _is_estimated(self, table: exp.Table) -> bool:
        return self.is_stage(table) or self._is_sampled(table)

    def _stage(self, select: exp.Select) -> Stage:
        sql = select.sql(DIALECT)
        if sql not in self._stages:
            plan = self._plan_stage(select.copy(), self._draft)
            self._stages[sql] = Stage(f"stage_{len(self._stages)}", _title(select), plan)
        return self._stages[sql]


def _title(select: exp.Select) -> str:
    """Return what a stage computes, for people: its value, or else the condition that chooses its groups."""
    value, having = select.expressions[-1].unalias(), select.args.get("having")
    about = exp.paren(value if find_first(value, exp.AggFunc) or not having else having.this).copy()
    for column in list(find_all(about, exp.Column)):
        column.replace(exp.column(column.name))
    title: str = about.this.sql(DIALECT)
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"


def look_up_of(node: exp.Expr) -> str | None:
    """Return the stage whose one value a subquery reads, None where the subquery is anything else."""
    select = node.this if isinstance(node, exp.Subquery) else None
    if not isinstance(select, exp.Select) or select.args.get("where") or node.alias:
        return None
    tables = tables_in(select)
    is_column = (
        isinstance(find_first(select.expressions[0], exp.Column), exp.Column) and len(select.expressions) == 1
    )
    return str(tables[0].name) if len(tables) == 1 and is_column else None


def child_queries(query: exp.Expr) -> list[exp.Expr]:
    """Return the SELECTs and set operations directly inside a query, without those that are inside them."""
    found: list[exp.Expr] = []

    def visit(node: exp.Expr) -> None:
        for child in node.iter_expressions():
            if isinstance(child, exp.Select | exp.SetOperation):
                found.append(child)
            else:
                visit(child)

    visit(query)
    return found


def _column(stage: Stage, position: int) -> exp.Expr:
    """Return a column of the stage's answer, cast to its DuckDB type: Arrow lacks some of these types."""
    return exp.cast(exp.column(f"o{position}"), stage.plan.outputs[position].type, dialect=DIALECT)


def _refuse_correlation(query: exp.Select) -> None:
    if columns := outer_columns(query):
        raise NotOnlineError(f"a subquery over all partitions depends on {said(columns[0])} outside it")


def _table_of(select: exp.Select, alias: str) -> exp.Table | None:
    """Return the table with this alias, None where an outer join may fill its columns with NULL."""
    joins = select.args.get("joins") or []
    if any(join.side for join in joins) or select.args.get("from_") is None:
        return None
    items = [select.args["from_"].this, *(join.this for join in joins)]
    return next((t for t in items if isinstance(t, exp.Table) and t.alias_or_name == alias), None)


def put_look_up(
    query: exp.Select, equalities: Equalities, columns: Sequence[exp.Expr], table: exp.Expr
) -> exp.Select:
    """Put the value of its group in the place of a subquery, in place. Return the SELECT that looks it up.

    Args:
        equalities: what correlates it.
        columns: of the table: its keys, as they are in `equalities`, and then its value.
        table: of the groups.
    """
    *keys, value = columns
    look_up = exp.select(value).from_(table)
    look_up = look_up.where(
        *(exp.EQ(this=key, expression=outer.copy()) for key, (_, outer) in zip(keys, equalities, strict=True))
    )
    if (call := call_of(query.expressions[0].unalias())) is None or call.law.of_nothing == "NULL":
        query.replace(look_up)
        return look_up
    of_nothing = exp.Literal.number(call.law.of_nothing)
    zero = exp.Coalesce(this=look_up.subquery(), expressions=[of_nothing])
    place = query.parent if isinstance(query.parent, exp.Subquery) else query
    assert place is not None
    place.replace(zero)
    return look_up


def those_looked_up(
    query: exp.Select, equalities: Equalities, is_estimated: Callable[[exp.Table], bool]
) -> Iterator[exp.Expr]:
    """Yield `inner IN (SELECT outer FROM static WHERE …)`. No other group of the subquery is looked up."""
    enclosing = query.parent_select
    if not isinstance(enclosing, exp.Select):
        return
    conditions = conjuncts_of(where.this if (where := enclosing.args.get("where")) else None)
    for inner, outer in equalities:
        table = _table_of(enclosing, outer.table) if isinstance(outer, exp.Column) else None
        if table is None or is_estimated(table):
            continue
        own = [c for c in conditions if _is_about(table, c) and not any(map(is_estimated, tables_in(c)))]
        if own:
            keys = exp.select(outer.copy()).from_(table.copy()).where(*(c.copy() for c in own))
            yield exp.In(this=inner.copy(), query=keys.subquery())


def _is_about(table: exp.Table, condition: exp.Expr) -> bool:
    inside = {each.alias_or_name for each in tables_in(condition)}
    own = table.alias_or_name
    return own not in inside and aliases_in(condition) - inside == {own}


def decorrelated(query: exp.Select) -> tuple[exp.Select, Equalities]:
    """Return the subquery grouped by what correlates it, and the pairs (its own column, expression outside).

    Raises:
        NotOnlineError: the subquery is more than one aggregate, has a value over no rows, or is correlated by
            something other than an equality with one group (`mark_keys`).
    """
    value = query.expressions[0].unalias()
    _check_value_over_nothing(query, value)
    equalities, kept = [], []
    for condition in conjuncts_of(where.this if (where := query.args.get("where")) else None):
        if not _is_correlated(query, condition):
            kept.append(condition)
        else:
            equalities.append(_equality(query, condition))
            if not condition.meta.get(_IS_KEY):
                raise NotOnlineError(f"by {said(condition)}, a value may equal several groups")
    select = query.copy()
    select.set("where", None)
    select = select.where(*(condition.copy() for condition in kept))
    keys = [exp.alias_(inner.copy(), f"c{i}", quoted=True) for i, (inner, _) in enumerate(equalities)]
    select.set("expressions", [*keys, exp.alias_(value.copy(), "value", quoted=True)])
    select = select.group_by(*(inner.copy() for inner, _ in equalities))
    _refuse_correlation(select)
    return select, equalities


def _check_value_over_nothing(query: exp.Select, value: exp.Expr) -> None:
    parts = ("group", "having", "limit", "offset", "distinct", "qualify", "order")
    aggregates = own_nodes(value, exp.AggFunc)
    if any(query.args.get(part) for part in parts) or not aggregates:
        raise NotOnlineError("a correlated subquery over all partitions is more than one aggregate")
    if call_of(value) is not None:  # the look-up gives what it is over no rows
        return

    def is_strict(node: exp.Expr) -> bool:
        if is_aggregate(node):
            call = call_of(node)
            return call is not None and call.law.of_nothing == "NULL"
        return isinstance(node, _STRICT) and all(is_strict(child) for child in node.iter_expressions())

    if not is_strict(value):
        raise NotOnlineError(f"{said(value)} may have a value over no rows")


def _is_correlated(query: exp.Select, condition: exp.Expr) -> bool:
    outside = {id(column) for column in outer_columns(query)}
    return any(id(column) in outside for column in find_all(condition, exp.Column))


def _equality(query: exp.Select, condition: exp.Expr) -> tuple[exp.Column, exp.Expr]:
    if isinstance(condition, exp.EQ):
        outside = {id(column) for column in outer_columns(query)}
        for inner, outer in ((condition.left, condition.right), (condition.right, condition.left)):
            inner, outer = without_brackets(inner), without_brackets(outer)
            columns = list(find_all(outer, exp.Column))
            is_outer = bool(columns) and all(id(column) in outside for column in columns)
            if isinstance(inner, exp.Column) and id(inner) not in outside and is_outer:
                return inner, outer
    raise NotOnlineError(f"a subquery over all partitions is correlated by {said(condition)}")


_IS_KEY = "equals one group"
_SMALL_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"})
_INTEGERS = _SMALL_INTEGERS | {"BIGINT", "HUGEINT"}
_EXACT_DIGITS = 15  # of a decimal number, so that no other one is the same DOUBLE


def mark_keys(tree: exp.Expr, describe: Describe) -> None:
    """Mark the equalities that correlate scalar subqueries by whole groups, in place. Copies keep the marks.

    `decorrelated` takes marked ones alone. The types are DuckDB's, so the tree must still be as it was
    qualified: with its tables, and each subquery where it stands.

    Args:
        describe: gives the columns of a query, as (name, DuckDB type).
    """
    if find_first(tree, exp.Collate):
        return  # by a collation, several texts are equal, and no type tells of it
    for value in find_all(tree, exp.Subquery):
        query = value.this
        if not isinstance(query, exp.Select) or len(query.expressions) != 1 or not outer_columns(query):
            continue
        where = query.args.get("where")
        for condition in conjuncts_of(where.this if where else None):
            if not _is_correlated(query, condition):
                continue
            try:
                sides = _equality(query, condition)
                inner, outer = describe(exp.select(*(_seen_from(query, side) for side in sides)).sql(DIALECT))
            except (NotOnlineError, SqlError):
                continue
            condition.meta[_IS_KEY] = _equals_one_group(inner[1], outer[1])


def _seen_from(query: exp.Select, value: exp.Expr) -> exp.Expr:
    """Return a value of a subquery's rows as one that reads all tables which are seen there."""
    inside: exp.Select | None = query
    while inside is not None:
        around = exp.select(value.copy())
        for part in ("from_", "joins"):
            if (found := inside.args.get(part)) is not None:
                around.set(part, [each.copy() for each in found] if part == "joins" else found.copy())
        value, inside = around.subquery(), inside.parent_select
    return value


def _equals_one_group(key: str, other: str) -> bool:
    """Whether a value of the one type equals one key of the other at most, as DuckDB compares them.

    It does where the key keeps its type, or becomes one in which different keys are different.

    >>> _equals_one_group("INTEGER", "BIGINT"), _equals_one_group("VARCHAR", "INTEGER")
    (True, False)
    """
    if key == other:
        return True
    kinds = tuple(type_.partition("(")[0] for type_ in (key, other))
    if all(kind in _INTEGERS or kind == "DECIMAL" for kind in kinds):
        return True
    if "DOUBLE" in kinds:
        others = _INTEGERS | {"DECIMAL", "FLOAT"}
        return kinds[1] in others if kinds[0] == "DOUBLE" else _is_exact_as_double(key)
    return set(kinds) in ({"DATE", "TIMESTAMP"}, {"VARCHAR", "ENUM"})


def _is_exact_as_double(type_: str) -> bool:
    kind, _, rest = type_.partition("(")
    if kind == "DECIMAL":
        return int(rest.partition(",")[0]) <= _EXACT_DIGITS
    return kind in _SMALL_INTEGERS or kind == "FLOAT"


_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ)


def share_values(draft: Draft, maker: StageMaker) -> Draft:
    """Return the draft with a column in the place of each look-up that stands around its aggregates.

    For example, the total stands beside each zone as `stage_0_value`:

    >>> sql = "SELECT zone, sum(km) / (SELECT sum(km) FROM trips) AS share FROM trips GROUP BY zone"
    >>> print(explained(sql, "merge SQL"))
    SELECT merged_groups.*, CAST(stage_0_value AS DOUBLE) AS stage_0_value, stage_0_b0, shared_scale
    FROM (SELECT k0, CAST(SUM(b0) AS DOUBLE) AS b0, CAST(COALESCE(SUM(m), 0) AS BIGINT) AS m
          FROM state GROUP BY k0) AS merged_groups CROSS JOIN shared
    """
    tree = draft.select
    keys, _ = group_keys(tree)
    names: dict[str, SharedValue] = {}
    for subquery in list(find_all(tree, exp.Subquery)):
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
    inside = {id(column) for column in find_all(query, exp.Column)}
    plain = isinstance(query, exp.Select) and isinstance(query.parent, exp.Subquery)
    if not plain or any(id(column) not in inside for column in find_all(side, exp.Column)):
        return
    if find_first(side, exp.In, exp.Exists, exp.Any, exp.All) or len(query.expressions) != 1:
        return
    select = query.copy()
    value = select.expressions[0].unalias()
    if select.args.get("group") or not find_first(value, exp.AggFunc):
        return
    assert query.parent is not None
    query.parent.replace(exp.paren(value))
    pushed = side.copy()
    select.set("expressions", [exp.alias_(pushed, "value", quoted=True)])
    side.replace(exp.Subquery(this=select))
