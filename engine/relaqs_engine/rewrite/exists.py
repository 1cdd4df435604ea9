"""EXISTS as a join key, a value or a set, and conditions that are asked once the rows are known.

Whether there are rows is an aggregate, and by which key there are some is a set:

    EXISTS (SELECT 1 FROM items WHERE items.order_id = orders.id AND price > 9)
    orders.id IN (SELECT order_id FROM items WHERE price > 9)

    read_no_outputs_of_exists    a rule: EXISTS reads no columns but those of its conditions
    as_aggregate                 for `one_row_tables`: an EXISTS that is the same for all rows
    keys_for_exists              for `carve`: an EXISTS that is tied to the rows around it by one key
    ask_groups_by_key            for `refine`: the same of groups, in WHERE
    ask_rows_by_key              for the SQL of tasks: the same of rows, in WHERE

**Deferred predicates.** A condition that asks a subquery can wait, if the rows are found by the other
conditions:

    SELECT t.name FROM t WHERE t.zone = 'A' AND t.age > (SELECT avg(age) FROM t)

The average is known at the end. So the rows are found without it, and compared with the average so far:

    rows:    SELECT t.name AS c0, t.age AS c1 FROM t WHERE t.zone = 'A'
    around:  SELECT c0 AS name FROM rows WHERE c1 > (SELECT avg(age) FROM t)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.rewrite.draft import Draft, aliases_in, conjuncts_of, own_nodes
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.parse import DIALECT

# With one of these, the outputs may decide which rows there are, or how many.
DECIDE_ROWS = ("group", "having", "distinct", "qualify", "order", "limit", "offset")


def read_no_outputs_of_exists(draft: Draft) -> Draft:
    """Return the draft with 1 in the place of the columns that an EXISTS selects.

    DuckDB would read every column of `EXISTS (SELECT * …)` below the join: TPC-H 4 took 2.7 times as long.

    >>> sql = "SELECT count(*) AS n FROM orders WHERE EXISTS (SELECT * FROM items WHERE order_id = id)"
    >>> print(shown(after(read_no_outputs_of_exists, sql).select))
    SELECT COUNT(*) AS n FROM orders AS orders
    WHERE EXISTS(SELECT 1 AS 1 FROM items AS items WHERE items.order_id = orders.id)
    """
    tree = copied(draft.select)
    for exists in find_all(tree, exp.Exists):
        query = exists.this
        if isinstance(query, exp.Select) and _selects_columns(query):
            query.set("expressions", [exp.alias_(exp.Literal.number(1), "1", quoted=True)])
    return replace(draft, tree=tree)


def _selects_columns(query: exp.Select) -> bool:
    """Whether the subquery has the same rows whatever it selects.

    An aggregate would make one row of them, and UNNEST any number of rows.
    """
    if any(query.args.get(part) for part in DECIDE_ROWS):
        return False
    return all(isinstance(item.unalias(), exp.Column) for item in query.expressions)


def as_aggregate(query: exp.Expr) -> exp.Select | None:
    """Return a query of one row that says whether another has rows. None where its outputs may decide that.

    The value is a bound: once a row is found, it stays true.

    >>> query = sqlglot.parse_one("SELECT * FROM trips WHERE km > 9", dialect="duckdb")
    >>> print(as_aggregate(query).sql("duckdb"))
    SELECT COALESCE(BOOL_OR(CAST(TRUE AS BOOLEAN)), FALSE) FROM trips WHERE km > 9
    """
    if not isinstance(query, exp.Select) or not _selects_rows(query):
        return None
    found = exp.Coalesce(this=exp.LogicalOr(this=exp.true()), expressions=[exp.false()])
    return query.select(found, append=False)


def ask_groups_by_key(draft: Draft) -> Draft:
    """Return the draft with IN for each EXISTS in its WHERE that asks one derived table by its key.

    It stays as it is where DuckDB would not compare the key by IN, as a number with a text.
    """
    tree = draft.select.copy()
    where = tree.args.get("where")
    for condition in conjuncts_of(where.this if where else None):
        if not isinstance(condition, exp.Exists) or (tied := _tied(condition.this)) is None:
            continue
        if (values := _of_groups(tied)) is not None:
            condition.replace(exp.In(this=tied.as_known(tied.outer), query=values.subquery()))
    if tree == draft.select:
        return draft
    try:
        draft.binder.describe(tree.sql(DIALECT))
    except SqlError:
        return draft
    return replace(draft, tree=tree)


def ask_rows_by_key(scan: exp.Select) -> exp.Select:
    """Return a scan with IN for each EXISTS in its WHERE that is tied to its rows by one key.

    Both keep the same rows there, and DuckDB plans them differently. For EXISTS it expects that four fifths
    of the keys in the subquery are NULL. So it takes the subquery for small and hashes its rows: those of
    lineitem in TPC-H 4, four times as many as there are orders. A scan without EXISTS is returned itself.

    >>> sql = "SELECT FROM orders AS o WHERE EXISTS(SELECT 1 FROM items AS i WHERE i.order = o.id AND i.late)"
    >>> print(ask_rows_by_key(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb"))
    SELECT FROM orders AS o WHERE o.id IN (SELECT i."order" FROM items AS i WHERE i.late)
    """
    if scan.args.get("where") is None or find_first(scan.args["where"], exp.Exists) is None:
        return scan
    scan = scan.copy()
    for condition in conjuncts_of(scan.args["where"].this):
        if not isinstance(condition, exp.Exists) or (tied := _tied(condition.this)) is None:
            continue
        if not tied.equates_nulls:
            query = tied.query.select(tied.key.copy(), append=False)
            query.set("where", None)
            asked = query.where(*(each.copy() for each in tied.rest)).subquery()
            condition.replace(exp.In(this=tied.outer.copy(), query=asked))
    return scan


def keys_for_exists(query: exp.Select) -> exp.Select:
    """Return a query with IN for each EXISTS that is tied to its rows by one key. Changes it in place."""
    parts = (*query.expressions, query.args.get("where"), query.args.get("order"))
    for exists in [node for part in parts if part is not None for node in own_nodes(part, exp.Exists)]:
        assert isinstance(exists, exp.Exists)
        if (tied := _tied(exists.this)) is not None:
            member = exp.In(this=tied.as_known(tied.outer), query=tied.values().subquery())
            exists.replace(exp.Coalesce(this=member, expressions=[exp.false()]))
    return query


@dataclass(frozen=True, slots=True)
class _Tied:
    """A subquery whose rows are tied to one value outside.

    Attributes:
        key: its own expression that must equal the value.
        outer: the value.
        equates_nulls: whether NULL equals NULL here.
        rest: its other conditions.
    """

    query: exp.Select
    key: exp.Expr
    outer: exp.Expr
    equates_nulls: bool
    rest: tuple[exp.Expr, ...]

    def as_known(self, value: exp.Expr) -> exp.Expr:
        """Return what is compared. Lists with a NULL each are equal, and never NULL themselves."""
        return exp.Array(expressions=[value.copy()]) if self.equates_nulls else value.copy()

    def values(self) -> exp.Select:
        """Return the keys of the subquery's rows. No NULL is among them that would make an IN unknown."""
        query = self.query.copy()
        query.set("expressions", [exp.alias_(self.as_known(self.key), "k", quoted=True)])
        query.set("where", None)
        known = [] if self.equates_nulls else [self.key.copy().is_(exp.null()).not_()]
        return query.where(*(each.copy() for each in self.rest), *known)


def _tied(query: exp.Expr) -> _Tied | None:
    """Return what ties a subquery of EXISTS to the rows outside. None where that is not one key."""
    if not isinstance(query, exp.Select) or not _selects_rows(query):
        return None
    where = query.args.get("where")
    outside = {id(column) for column in outer_columns(query)}
    ties: list[exp.Expr] = []
    rest: list[exp.Expr] = []
    for condition in conjuncts_of(where.this if where else None):
        inside = {id(column) for column in find_all(condition, exp.Column)}
        (ties if inside & outside else rest).append(condition)
        outside -= inside
    if len(ties) != 1 or outside:
        return None
    own = {source.alias_or_name for source in _sources(query)}
    found = _equal(ties[0])
    keys = [side for side in found if aliases_in(side) and aliases_in(side) <= own]
    outer = [side for side in found if not aliases_in(side) & own]
    if len(keys) != 1 or len(outer) != 1 or any(find_first(side, exp.Query) for side in found):
        return None
    return _Tied(query, keys[0], outer[0], not isinstance(ties[0], exp.EQ), tuple(rest))


def _equal(condition: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return the sides of `a = b`, `a IS NOT DISTINCT FROM b`, or `a = b OR a IS NULL AND b IS NULL`."""
    if isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return condition.left.unnest(), condition.right.unnest()
    if not isinstance(condition, exp.Or):
        return ()
    either, both = condition.left.unnest(), conjuncts_of(condition.right)
    sides = _equal(either) if isinstance(either, exp.EQ) else ()
    tested = [each.this.unnest() for each in both if isinstance(each, exp.Is) and _is_null(each.expression)]
    return sides if len(tested) == len(both) == 2 and all(side in tested for side in sides) else ()


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Null)


def _sources(query: exp.Select) -> list[exp.Expr]:
    return [query.args["from_"].this, *(join.this for join in query.args.get("joins") or [])]


def _of_groups(tied: _Tied) -> exp.Select | None:
    """Return the derived table that a subquery asks, with its key alone. None where it asks anything else."""
    [source, *others] = _sources(tied.query)
    if others or tied.rest or not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select):
        return None
    query = source.this.copy()
    if query.args.get("distinct") or _makes_rows(query) or not isinstance(tied.key, exp.Column):
        return None
    items = {item.alias_or_name: item.unalias() for item in query.expressions}
    for column in list(find_all(query.args["order"], exp.Column)) if query.args.get("order") else ():
        if not column.table and column.name in items:
            column.replace(items[column.name].copy())
    query.set("expressions", [tied.as_known(items[tied.key.name])])
    return query


def _makes_rows(query: exp.Select) -> bool:
    """Whether an output gives any number of rows, as UNNEST does."""
    return any(own_nodes(item, kind) for item in query.expressions for kind in (exp.UDTF, exp.Explode))


def _selects_rows(query: exp.Select) -> bool:
    """Whether the subquery has a row for each row of its FROM and WHERE, whatever it selects."""
    if any(query.args.get(part) for part in DECIDE_ROWS) or query.args.get("from_") is None:
        return False
    aggregates = any(own_nodes(item, exp.AggFunc) for item in query.expressions)
    return not aggregates and not _makes_rows(query)


@dataclass(frozen=True, slots=True)
class Listing:
    """A query in two.

    Attributes:
        rows: the rows by the conditions without subqueries, with the columns that the rest needs.
        around: picks among them. It has no FROM, and its columns are those of the table ROWS.
    """

    rows: exp.Select
    around: exp.Select


ROWS = "relaqs_rows_found"  # until the answer has a name
_OF_ALL_ROWS = ("distinct", "qualify", "windows", "sample", "pivots")


def listing_of(query: exp.Select) -> Listing | None:
    """Return a query without aggregates in two. None where no condition asks a subquery of its own."""
    where = query.args.get("where")
    conditions = conjuncts_of(where.this if where else None)
    late = [each for each in conditions if find_first(each, exp.Query)]
    if not late or any(query.args.get(part) for part in _OF_ALL_ROWS) or find_first(query, exp.Window):
        return None
    around = exp.select(*(item.copy() for item in query.expressions)).where(*(each.copy() for each in late))
    rows = query.copy()
    rows.set("where", None)
    for part in ("order", "limit", "offset"):
        if (value := rows.args.get(part)) is not None:
            rows.set(part, None)
            around.set(part, value)
    if any(_depends(inner) for inner in find_all(around, exp.Query) if inner is not around):
        return None
    names: dict[exp.Expr, str] = {}
    for column in _own_columns(around):
        if column.table:
            name = names.setdefault(column.copy(), f"c{len(names)}")
            column.replace(exp.column(name, ROWS, quoted=True))
    items = [exp.alias_(column.copy(), name, quoted=True) for column, name in names.items()]
    rows.set("expressions", items or [exp.alias_(exp.Literal.number(1), "c0", quoted=True)])
    return Listing(rows.where(*(each.copy() for each in conditions if each not in late)), around)


def _depends(inner: exp.Expr) -> bool:
    """Whether a subquery reads a column of the query around it."""
    return not isinstance(inner, exp.Subquery) and bool(outer_columns(inner))


def _own_columns(around: exp.Select) -> list[exp.Column]:
    parts = (around.args["where"].this, *around.expressions, around.args.get("order"))
    found = [node for part in parts if part is not None for node in own_nodes(part, exp.Column)]
    return [column for column in found if isinstance(column, exp.Column)]
