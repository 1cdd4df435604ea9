"""Cut a query in two: aggregations over tables, and the SQL that computes the rest from their answers.

Windows over aggregates, DISTINCT of aggregates, set operations and aggregates of aggregates are all ordinary
SQL over the answers of simpler queries. That SQL reads the answers as tables `answer_0`, `answer_1`, …

Aggregates without groups inside a query: each has one row, and those over the same rows are one query.

    SELECT (SELECT count(*) FROM t WHERE a) AS n, (SELECT sum(x) FROM t WHERE b) AS s

One scan gives both, with what differs in WHERE as FILTER:

    SELECT one.n, one.s FROM (SELECT count(*) FILTER (WHERE a) AS n, sum(x) FILTER (WHERE b) AS s
                              FROM t WHERE a OR b) AS one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from relaqs_engine.plans.composite import PartPlan
from relaqs_engine.rewrite.draft import (
    NotOnlineError,
    as_table,
    conjuncts_of,
    own_nodes,
    relates_all_rows,
    revive_rows,
    said,
)
from relaqs_engine.rewrite.eager_aggregation import before_it_is_decided, below_union, without_distinct
from relaqs_engine.rewrite.exists import ROWS, as_aggregate, keys_for_exists, listing_of
from relaqs_engine.rewrite.grouping import asks_after_groups, split_at_groups
from relaqs_engine.rewrite.normalize import with_explicit_keys
from relaqs_engine.rewrite.sampling import members_and_asking
from relaqs_engine.rewrite.scalar_subqueries import decorrelated, mark_keys, put_look_up, those_looked_up
from relaqs_engine.rewrite.scopes import is_of_window, outer_columns
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.parse import DIALECT
from relaqs_engine.sql.statements import Describe

_ONE = "relaqs_one_"
_OF_ROWS = (exp.In, exp.Any, exp.All, exp.Exists)


def with_one_row_tables(query: exp.Select) -> exp.Select:
    """Return a query with one table for all inner aggregates over the same rows. It has none of its own.

    Changes the query in place.

    >>> counts = [f"(SELECT COUNT(*) FROM t WHERE t.a = {i} AND t.b > 0)" for i in (1, 2)]
    >>> query = sqlglot.parse_one(f"SELECT {counts[0]} / {counts[1]} AS ratio", dialect="duckdb")
    >>> print(with_one_row_tables(query).sql("duckdb").replace('"', ""))
    SELECT relaqs_one_0.c0 / relaqs_one_0.c1 AS ratio
    FROM (SELECT COUNT(*) FILTER(WHERE t.a = 1) AS c0, COUNT(*) FILTER(WHERE t.a = 2) AS c1 FROM t
    WHERE t.b > 0 AND (t.a = 1 OR t.a = 2)) AS relaqs_one_0
    """
    _ask_as_values(query)
    for number, subquery in enumerate(list(_one_row_values(query))):
        table = f"{_ONE}{number}"
        inner = subquery.this
        column = exp.column("c0", table, quoted=True)
        inner.set("expressions", [exp.alias_(inner.expressions[0].unalias(), "c0", quoted=True)])
        subquery.replace(column)
        query = _joined(query, exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(table))))
    return _merged(query)


def _ask_as_values(query: exp.Select) -> None:
    """Put a value in the place of each EXISTS that is the same for all rows. In place."""
    for exists in _own(query, exp.Exists):
        if (value := as_aggregate(exists.this)) is not None and not outer_columns(value):
            exists.replace(value.subquery())


def _own(query: exp.Select, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the nodes of a kind among outputs, in WHERE and in ORDER BY."""
    parts = (*query.expressions, query.args.get("where"), query.args.get("order"))
    return [node for part in parts if part is not None for node in own_nodes(part, kind)]


def _one_row_values(query: exp.Select) -> Iterator[exp.Subquery]:
    """Yield the subqueries among outputs and in WHERE that have one row, whatever row they stand in."""
    for inner in _own(query, exp.Subquery):
        assert isinstance(inner, exp.Subquery)
        if not isinstance(inner.parent, _OF_ROWS) and _has_one_row(inner.this) and not outer_columns(inner):
            yield inner


def _has_one_row(query: exp.Expr) -> bool:
    if not isinstance(query, exp.Select) or relates_all_rows(query) or query.args.get("from_") is None:
        return False
    grouped = any(query.args.get(part) for part in ("group", "having", "distinct"))
    return not grouped and all(own_nodes(item, exp.AggFunc) for item in query.expressions)


def _joined(query: exp.Select, table: exp.Subquery) -> exp.Select:
    if query.args.get("from_") is None:
        return query.from_(table, copy=False)
    return query.join(table, join_type="cross", copy=False)


def _merged(query: exp.Select) -> exp.Select:
    """Return the query with one table in the place of those with one row each, over the same rows."""
    found: dict[str, list[exp.Subquery]] = {}
    for source in _crossed(query):
        if _has_one_row(source.this) and _can_be_filtered(source.this):
            found.setdefault(_rows(source), []).append(source)
    for same in (each for each in found.values() if len(each) > 1):
        _merge(query, same)
    return query


def _rows(source: exp.Subquery) -> str:
    """Return the tables that a derived table reads, and what relates them: in FILTER, all would meet all."""
    joins: list[exp.Join] = source.this.args.get("joins") or []
    parts = [source.this.args["from_"], *joins]
    if joins:
        parts += [each for each in _conjuncts(source) if not _reads_one_table(each)]
    return " ".join(part.sql(DIALECT) for part in parts)


def _reads_one_table(condition: exp.Expr) -> bool:
    names = {column.table for column in find_all(condition, exp.Column)}
    return len(names) < 2 and "" not in names


def _crossed(query: exp.Select) -> list[exp.Subquery]:
    """Return the derived tables that are joined without a condition, so that each row meets theirs."""
    from_ = query.args.get("from_")
    joins: list[exp.Join] = query.args.get("joins") or []
    if from_ is None or revive_rows(joins) or any(join.method for join in joins):
        return []
    plain = [join.this for join in joins if not join.side and join.kind in ("", "CROSS", "INNER")]
    return [
        source
        for source in (from_.this, *plain)
        if isinstance(source, exp.Subquery) and not (source.parent and source.parent.args.get("on"))
    ]


def _can_be_filtered(query: exp.Select) -> bool:
    """Whether FILTER can stand for WHERE: no subquery in it, no cast that other rows could fail."""
    where = query.args.get("where")
    calls = [node for item in query.expressions for node in own_nodes(item, exp.AggFunc)]
    apart = any(find_first(call, exp.Distinct, exp.Order, exp.Cast) for call in calls)
    return not apart and (where is None or find_first(where, exp.Query, exp.Cast) is None)


def _merge(query: exp.Select, same: Sequence[exp.Subquery]) -> None:
    """Put all columns of the tables into the first one. In place."""
    conditions = [_conjuncts(each) for each in same]
    common = [c for c in conditions[0] if all(c in others for others in conditions)]
    own = [[c.copy() for c in each if c not in common] for each in conditions]
    items: list[exp.Expr] = []
    places: dict[tuple[str, str], str] = {}
    for table, conjuncts in zip(same, own, strict=True):
        for item in table.this.expressions:
            places[table.alias_or_name, item.alias_or_name] = name = f"c{len(items)}"
            items.append(exp.alias_(_filtered(item.unalias(), conjuncts), name, quoted=True))
    first = same[0]
    first.this.set("expressions", items)
    first.this.set("where", None)
    either = [exp.or_(*(exp.and_(*each) for each in own))] if all(own) else []
    if common or either:
        first.this.where(*(c.copy() for c in common), *either, copy=False)
    for table in same[1:]:
        assert table.parent is not None
        table.parent.pop()
    for column in list(find_all(query, exp.Column)):
        if (place := places.get((column.table, column.name))) is not None:
            column.replace(exp.column(place, first.alias_or_name, quoted=True))


def _conjuncts(table: exp.Subquery) -> tuple[exp.Expr, ...]:
    where = table.this.args.get("where")
    return conjuncts_of(where.this if where else None)


def _filtered(item: exp.Expr, conjuncts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the expression with the conditions in the FILTER of its aggregates."""
    if not conjuncts:
        return item.copy()
    holder = exp.paren(item)
    for call in own_nodes(holder, exp.AggFunc):
        around = call.parent if isinstance(call.parent, exp.Filter) else None
        given = [around.expression.this] if around else []
        condition = exp.Where(this=exp.and_(*(c.copy() for c in (*given, *conjuncts))))
        (around or call).replace(exp.Filter(this=call.copy(), expression=condition))
    found: exp.Expr = holder.this
    return found


_CORE = "relaqs_core"  # the groups of an aggregation, until their answer has a name
_FIRST = "relaqs_first"  # the finer groups that are made first
_GROUPS = "relaqs_groups"  # the groups of a subquery that depends on rows around it


@dataclass(frozen=True, slots=True)
class Carved:
    """A query cut in two.

    Attributes:
        outer: the query around the answers. It reads the tables `answer_0`, … and nothing else.
        parts: the plans of the queries that give those answers.
        looked_up: the positions of those that only give values to rows which others make.
    """

    outer: exp.Query
    parts: tuple[PartPlan, ...]
    queries: tuple[exp.Select, ...]
    looked_up: frozenset[int] = frozenset()


# Plans a query on its own. None where it has no estimate, or reads static tables only and needs none.
PlanPart = Callable[[exp.Query, str], PartPlan | None]


def answer_name(index: int) -> str:
    return f"answer_{index}"


def answer_index(name: str) -> int:
    return int(name.removeprefix("answer_"))


def carve(
    tree: exp.Query,
    plan_part: PlanPart,
    describe: Describe,
    is_sampled: Callable[[str], bool] = lambda table: True,
    plan_whole: PlanPart | None = None,
    *,
    at_groups: bool = False,
) -> Carved:
    """Return a qualified query without WITH, cut at its aggregations. Raises NotOnlineError.

    Args:
        plan_part: plans one inner query, which it is given as a tree and as text. It returns None for a
            query that cannot be planned on its own.
        describe: gives the columns of a query, as (name, DuckDB type).
        is_sampled: whether the table of a name is sampled.
        plan_whole: plans an aggregation that is read whole. With it, aggregations are cut as well that
            have no plan because other answers decide about their rows.
        at_groups: the query is an aggregation, and is cut above its groups in any case.

    >>> sql = "SELECT t.zone AS zone, rank() OVER (ORDER BY sum(t.km)) AS place FROM t GROUP BY t.zone"
    >>> tree = sqlglot.parse_one(sql, dialect="duckdb")
    >>> carved = carve(tree, lambda inner, text: text, [].append)   # texts stand for plans
    >>> print(*carved.parts)
    SELECT t.zone AS "key_0", SUM(t.km) AS "value_0" FROM t GROUP BY t.zone
    >>> print(carved.outer.sql("duckdb"))
    SELECT answer_0."key_0" AS zone, RANK() OVER (ORDER BY answer_0."value_0") AS place FROM answer_0
    """
    names = {each.alias_or_name for each in find_all(tree, exp.Table, exp.Subquery)}
    carver = _Carver(plan_part, describe, is_sampled, plan_whole, names)
    tree = copied(tree)
    if plan_whole:
        mark_keys(tree, describe)
        _ask_fewer_groups(tree, is_sampled)
    outer = carver.cut_at_groups(tree) if at_groups else carver.cut(tree)
    looked_up = frozenset(range(len(carver.parts))) - carver.of_rows
    return Carved(outer, tuple(carver.parts), tuple(carver.queries), looked_up)


class _Carver:
    """Puts answers in the place of inner queries, and collects the plans of those, equal ones once."""

    def __init__(
        self,
        plan_part: PlanPart,
        describe: Describe,
        is_sampled: Callable[[str], bool],
        plan_whole: PlanPart | None,
        names: set[str],
    ) -> None:
        self.parts: list[PartPlan] = []
        self.queries: list[exp.Select] = []
        self.of_rows: set[int] = set()  # parts that make rows
        self._looking_up = 0  # how many look-ups are around what is cut
        self._plan_part = plan_part
        self._is_sampled = is_sampled
        self._plan_whole = plan_whole
        self._members = 0
        self._names = names
        self._firsts: set[str] = set()
        self._groups = self._fresh(_GROUPS)  # one name, so that equal look-ups stay equal
        self._sets = 0  # how many IN are around what is cut
        self._describe = describe
        self._index_of: dict[str, int] = {}

    def cut(self, query: exp.Expr) -> exp.Query:
        """Return the query over answers. Changes it in place."""
        if isinstance(query, exp.SetOperation):
            without_distinct(query, self._types_of)
            for side in ("this", "expression"):
                operand = query.args[side]
                if query.args.get("distinct"):
                    _group_rows(operand.unnest())
                if isinstance(operand, exp.Subquery):
                    operand.set("this", self.cut(operand.this))
                else:
                    query.set(side, self.cut(operand))
            return query
        if not isinstance(query, exp.Select):
            raise NotOnlineError(f"{said(query)} is no SELECT")
        query = with_explicit_keys(query)
        if not aggregates(query):
            return self._whole(query) or self._listing(query) or self._around(query)
        if self._plan_whole:
            return self._aggregation(query) or self._deeper_aggregation(query, self._plan_whole)
        return self._aggregation(query) or self._around(
            self._below_union(query) or self._of_static_rows(query) or query
        )

    def _of_static_rows(self, query: exp.Select) -> exp.Select | None:
        """Return an aggregation of static tables over finer groups, None where it reads others, too."""
        tables = [source for source in sources_of(query) if isinstance(source, exp.Table)]
        if len(tables) < len(sources_of(query)) or any(self._is_sampled(table.name) for table in tables):
            return None
        return self._before_it_is_decided(query)

    def _deeper_aggregation(self, query: exp.Select, plan_whole: PlanPart) -> exp.Query:
        """Return an aggregation about which other answers decide. What cannot be cut is read whole."""
        count = len(self.parts)
        try:
            finer = self._below_union(query) or self._before_it_is_decided(query) or query
            cut = self._around(copied(finer))
            if any(part.is_estimated and not part.tells_certain_rows for part in self.parts[count:]):
                raise NotOnlineError("rows are combined that can only be combined when all of them are there")
            return cut
        except NotOnlineError:
            self._forget_from(count)
            whole = self._whole(query, plan_whole)
            if whole is None:
                raise
            return whole

    def _forget_from(self, count: int) -> None:
        """Drop the parts of a cut that was given up."""
        del self.parts[count:], self.queries[count:]
        self._index_of = {text: index for text, index in self._index_of.items() if index < count}
        self.of_rows = {index for index in self.of_rows if index < count}

    def _listing(self, query: exp.Select) -> exp.Query | None:
        """Return the query over rows by the conditions without subqueries, None where it has no others."""
        found = listing_of(keys_for_exists(query))
        if found is None or (answer := self._add(found.rows, self._plan_part)) is None:
            return None
        for column in find_all(found.around, exp.Column):
            if column.table == ROWS:
                column.set("table", exp.to_identifier(answer))
        around = with_one_row_tables(found.around.from_(exp.to_table(answer), copy=False))
        for joined in sources_of(around)[1:]:
            joined.set("this", self.cut(joined.this))
        self._cut_parts(around)
        return around

    def _around(self, query: exp.Select) -> exp.Query:
        """Return the query with its derived tables cut. Its own tables are read whole."""
        query = keys_for_exists(query)
        if not aggregates(query):
            query = with_one_row_tables(query)
        for source in sources_of(query):
            if isinstance(source, exp.Subquery):
                source.set("this", self.cut(source.this))
            elif isinstance(source, exp.Table):
                source.replace(self._table(source, query))
            else:
                raise NotOnlineError(f"{said(source)} is not a table of the catalog")
        self._cut_parts(query)
        for join in query.args.get("joins") or []:
            self._cut_subqueries(join.args.get("on"))
        return query

    def _cut_parts(self, query: exp.Select) -> None:
        for name, part in query.args.items():
            if name not in ("from_", "joins"):
                for each in part if isinstance(part, list) else [part]:
                    self._cut_subqueries(each)

    def _cut_subqueries(self, part: object) -> None:
        if isinstance(part, exp.Expr):
            for inner in own_nodes(part, exp.Query):
                inner = self._asking_members(inner) if self._plan_whole else inner
                container = inner.parent
                assert container is not None
                is_set = isinstance(container, exp.In)
                if is_set:
                    _group_rows(inner.unnest())
                query = inner.this if isinstance(inner, exp.Subquery) else inner
                if not is_set and self._looked_up(query):
                    continue
                self._sets += is_set
                try:
                    cut = self.cut(query.copy())
                finally:
                    self._sets -= is_set
                query.replace(_as_one_value(query, cut) if self._sets and not is_set else cut)

    def _looked_up(self, query: exp.Expr) -> bool:
        """Put the value of its group in the place of a subquery that depends on rows around it, if it can."""
        value = query.parent
        if not self._plan_whole or not isinstance(query, exp.Select) or not isinstance(value, exp.Subquery):
            return False
        if isinstance(value.parent, _OF_ROWS) or len(query.expressions) != 1 or not outer_columns(query):
            return False
        count = len(self.parts)
        try:
            groups, equalities = decorrelated(query)
        except NotOnlineError:
            return False
        names = groups.named_selects
        self._looking_up += 1
        try:
            cut = self.cut(groups)
        except NotOnlineError:
            self._forget_from(count)
            return False
        finally:
            self._looking_up -= 1
        columns: list[exp.Expr] = [exp.column(name, self._groups, quoted=True) for name in names]
        if self._sets:  # see `_as_one_value`
            columns[-1] = exp.AnyValue(this=columns[-1])
        put_look_up(query, equalities, columns, cut.subquery(self._groups))
        return True

    def _asking_members(self, query: exp.Expr) -> exp.Expr:
        """Return what EXISTS or IN asks about outer rows as a query over members. In place."""
        inner = query.unnest()
        if not isinstance(query.parent, exp.Exists | exp.In) or not isinstance(inner, exp.Query):
            return query
        if not outer_columns(inner):
            return query
        found = members_and_asking(inner, f"relaqs_members_{self._members}", lambda members: True)
        if found is None:
            return query
        self._members += 1
        inner.replace(found[1])
        return found[1] if inner is query else query

    def _table(self, table: exp.Table, query: exp.Select) -> exp.Subquery:
        """Return a derived table with those columns of a static table that the query uses."""
        used = {column.name for column in find_all(query, exp.Column) if column.table == table.alias_or_name}
        columns: list[exp.Expr] = [
            exp.column(name, table.alias_or_name, quoted=True) for name in sorted(used)
        ]
        rows = exp.select(*(columns or [exp.alias_("1", "one")])).from_(table.copy())
        whole = self._whole(rows)
        if whole is None:
            raise NotOnlineError(f"rows of {table.name} are combined with an answer that is not known yet")
        return as_table(whole, table.alias_or_name)

    def _whole(self, query: exp.Select, plan_part: PlanPart | None = None) -> exp.Select | None:
        """Return a SELECT of all columns of the query's answer, None where it has no plan of its own."""
        answer = self._add(query, plan_part or self._plan_part)
        if answer is None:
            return None
        names = [exp.column(name, answer, quoted=True) for name in query.named_selects]
        return exp.select(*names).from_(exp.to_table(answer))

    def cut_at_groups(self, query: exp.Expr) -> exp.Query:
        """Return what is computed from the groups of an aggregation. Changes it in place."""
        is_one = isinstance(query, exp.Select) and aggregates(query := with_explicit_keys(query))
        found = self._above_groups(query) if is_one and isinstance(query, exp.Select) else None
        if found is None:
            raise NotOnlineError("it is no aggregation with a plan")
        return found

    def _aggregation(self, query: exp.Select) -> exp.Select | None:
        """Return what stands around the aggregates of a query: windows, DISTINCT, QUALIFY, ORDER BY."""
        around = any(query.args.get(part) for part in ("distinct", "qualify", "windows"))
        around = around or (self._plan_whole is not None and asks_after_groups(query))
        if not around and find_first(query, exp.Window) is None:
            return self._whole(query)
        return self._above_groups(query)

    def _above_groups(self, query: exp.Select) -> exp.Select | None:
        """Return the query over the answer of its groups, None where that has no plan."""
        outer, inner = split_at_groups(query, _CORE)
        answer = self._add(inner, self._plan_part)
        if answer is None:
            return None
        for column in find_all(outer, exp.Column):
            if column.table == _CORE:
                column.set("table", exp.to_identifier(answer))
        self._cut_parts(outer)
        return outer.from_(exp.to_table(answer))

    def _below_union(self, query: exp.Select) -> exp.Select | None:
        """Return the query over the aggregates of a UNION ALL's branches, None where it reads none."""
        if not any(isinstance(each.args.get("this"), exp.Union) for each in sources_of(query)):
            return None
        outer, inner = split_at_groups(query, core := self._fresh(_CORE))
        merged = below_union(inner, self._types_of)
        return outer.from_(merged.subquery(core)) if merged else None

    def _before_it_is_decided(self, query: exp.Select) -> exp.Select | None:
        """Return the query over finer groups, about which other answers decide. None where there are none."""
        if any(source.alias_or_name in self._firsts for source in sources_of(query)):
            return None  # it is over finer groups already
        outer, inner = split_at_groups(query, core := self._fresh(_CORE))
        self._firsts.add(first := self._fresh(_FIRST))
        merged = before_it_is_decided(inner, self._is_sampled, first)
        return outer.from_(merged.subquery(core)) if merged else None

    def _fresh(self, name: str) -> str:
        """Return a name that no table has. Where one query stands inside of another, each has its own."""
        found = next(each for i in count() if (each := f"{name}_{i}" if i else name) not in self._names)
        self._names.add(found)
        return found

    def _types_of(self, query: exp.Query) -> list[str]:
        return [type_ for _, type_ in self._describe(query.sql(DIALECT))]

    def _add(self, query: exp.Select, plan_part: PlanPart) -> str | None:
        """Return the name of the query's answer, None where it cannot be planned on its own."""
        text = query.sql(DIALECT)
        if text not in self._index_of:
            if (plan := plan_part(query, text)) is None:
                return None
            self._index_of[text] = len(self.parts)
            self.parts.append(plan)
            self.queries.append(query)
        if not self._looking_up:
            self.of_rows.add(self._index_of[text])
        return answer_name(self._index_of[text])


def _ask_fewer_groups(tree: exp.Query, is_sampled: Callable[[str], bool]) -> None:
    """Have subqueries that depend on static rows around them read only what those rows ask for. In place."""

    def is_estimated(table: exp.Table) -> bool:
        return isinstance(table.this, exp.Identifier) and is_sampled(table.name)

    for value in list(find_all(tree, exp.Subquery)):
        query = value.this
        if isinstance(query, exp.Select) and len(query.expressions) == 1 and outer_columns(query):
            try:
                _, equalities = decorrelated(query)
            except NotOnlineError:
                continue
            query.where(*those_looked_up(query, equalities, is_estimated), copy=False)


def _as_one_value(query: exp.Expr, cut: exp.Query) -> exp.Query:
    """Return what an aggregation without groups was cut to, as an aggregation again.

    In a subquery of IN that depends on rows around it, DuckDB 2.0 takes no scalar subquery for one value that
    reads a table and does not aggregate: `x NOT IN (SELECT (SELECT n FROM one) FROM t WHERE t.y > x)`.
    """
    is_value = isinstance(query, exp.Select) and aggregates(query) and not query.args.get("group")
    if not is_value or not isinstance(cut, exp.Select) or len(cut.expressions) != 1 or aggregates(cut):
        return cut
    [item] = cut.expressions
    value = exp.AnyValue(this=item.unalias().copy())
    cut.set("expressions", [exp.alias_(value, item.alias_or_name, quoted=True)])
    return cut


def _group_rows(side: exp.Expr) -> None:
    """Make a query distinct whose rows make a set: that of an IN, or a side of UNION. In place.

    Rows that are found once are kept once, and are known to stay. A query without FROM has one row.
    """
    if any(side.args.get(part) for part in ("group", "distinct", "order", "limit", "offset", "windows")):
        return
    if isinstance(side, exp.Select) and side.args.get("from_") and not aggregates(side):
        side.set("distinct", exp.Distinct())
    elif isinstance(side, exp.Union):
        _group_rows(side.this.unnest())
        _group_rows(side.expression.unnest())


def aggregates(query: exp.Select) -> bool:
    """Whether the query groups or has an aggregate that is not a window's own function."""
    found = (node for item in query.expressions for node in own_nodes(item, exp.AggFunc))
    return bool(query.args.get("group") or query.args.get("having")) or any(
        not is_of_window(node) for node in found
    )


def sources_of(query: exp.Select) -> list[exp.Expr]:
    from_ = query.args.get("from_")
    return [from_.this, *(join.this for join in query.args.get("joins") or [])] if from_ else []
