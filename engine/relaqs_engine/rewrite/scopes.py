"""Which query a column or an aggregate belongs to. All rules ask this one.

    SELECT t.zone, (SELECT count(*) FROM z WHERE z.id = t.zone AND z.size < sum(t.km)) FROM t GROUP BY t.zone

A column belongs to the innermost query around it that reads a table of its name. An aggregate belongs to
the innermost query that its columns belong to. So sum(t.km) is one of the query outside. An aggregate
without a column, such as count(*), belongs to the query that it stands in.

Outputs get names of their own first, since the rules find an output by its name (`with_output_names`):

    SELECT q.v FROM (SELECT t.zone AS v, t.km AS v, count(*) FROM t GROUP BY ALL) AS q

DuckDB calls the second v of a derived table v_1, and takes the first for v. The answer itself has the
names that DuckDB's binder gives (`Draft.schema`), whatever they are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from sqlglot import exp

from relaqs_engine.rewrite.draft import NotOnlineError, own_nodes, said, without_brackets
from relaqs_engine.sql.dialect import find_all, find_first, find_own

AGGREGATES = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.AggFunc)
"""An aggregate's call, and what is written around it."""

_READ = (exp.Table, exp.Subquery, exp.UDTF)
_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)
_AFTER_GROUPS = ("expressions", "distinct", "having", "qualify", "windows", "order")


class Scopes:
    """The SELECTs of a qualified query, and by which names each knows its tables.

    >>> sql = "SELECT (SELECT max(z.size) - max(t.km) FROM z WHERE z.id = t.zone) AS v FROM t GROUP BY t.zone"
    >>> tree = sqlglot.parse_one(sql, dialect="duckdb")
    >>> [call.sql() for call in Scopes(tree).aggregates_of(tree)]
    ['MAX(t.km)']
    """

    def __init__(self, query: exp.Expr) -> None:
        self._query = query
        self._names: dict[int, frozenset[str]] = {}

    def owner(self, column: exp.Column) -> exp.Expr | None:
        """Return the SELECT that a column belongs to, None where that is outside of the query."""
        node: exp.Expr | None = column
        while node is not None:
            if isinstance(node, exp.Select) and column.table in self._names_of(node):
                return node
            node = None if node is self._query else node.parent
        return None

    def _names_of(self, select: exp.Select) -> frozenset[str]:
        if id(select) not in self._names:
            self._names[id(select)] = names_of(select)
        return self._names[id(select)]

    def depends_on(self, query: exp.Expr, select: exp.Expr) -> bool:
        """Whether a subquery names a column of a SELECT around it."""
        columns = (each for each in find_all(query, exp.Column) if each.table)
        return any(self.owner(column) is select for column in columns)

    def owner_of_aggregate(self, call: exp.Expr) -> exp.Expr | None:
        """Return the SELECT that an aggregate belongs to. None where that is outside of the query."""
        columns = [] if is_of_window(call) else [each for each in find_all(call, exp.Column) if each.table]
        owners = [owner for owner in map(self.owner, columns) if owner is None or not is_below(owner, call)]
        select = call.parent_select
        while owners and select is not None and not any(owner is select for owner in owners):
            select = select.parent_select
        return select

    def aggregates_of(self, select: exp.Select) -> list[exp.Expr]:
        """Return the aggregates that belong to a SELECT, in it and in its subqueries."""
        return [
            call
            for place in after_groups(select)
            for call in find_all(place, *AGGREGATES)
            if not isinstance(call.parent, AGGREGATES)
            and not is_of_window(call)
            and self.owner_of_aggregate(call) is select
        ]


def names_of(select: exp.Expr) -> frozenset[str]:
    """Return the names of the tables that a SELECT reads."""
    return frozenset(node.alias_or_name for node in tables_of(select))


def tables_of(select: exp.Expr) -> list[exp.Expr]:
    """Return what a SELECT reads: tables, derived tables and functions that give rows."""
    first = select.args.get("from_")
    others = [*(select.args.get("joins") or []), *(select.args.get("laterals") or [])]
    parts = others if first is None else [first, *others]
    return [node for part in parts for node in find_own(part, *_READ, queries=(exp.Select, exp.SetOperation))]


def after_groups(select: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a SELECT that are computed after its groups are made."""
    parts = [select.args.get(part) for part in _AFTER_GROUPS]
    return [each for part in parts if part for each in (part if isinstance(part, list) else [part])]


def is_below(node: exp.Expr, other: exp.Expr) -> bool:
    """Whether a node stands below another one, or is that one."""
    place: exp.Expr | None = node
    while place is not None and place is not other:
        place = place.parent
    return place is not None


def is_of_window(call: exp.Expr) -> bool:
    """Whether a call is a window's own function."""
    node, parent = call, call.parent
    while isinstance(parent, _AROUND):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def outer_columns(query: exp.Expr) -> list[exp.Column]:
    """Return the columns in a qualified query that are those of another query around it.

    A table deeper inside may have the name of one around the query:

    >>> sql = "SELECT 1 FROM (SELECT t.zone FROM t) AS top WHERE top.zone = t.zone"
    >>> [column.sql() for column in outer_columns(sqlglot.parse_one(sql, dialect="duckdb"))]
    ['t.zone']
    """
    scopes = Scopes(query)
    return [each for each in find_all(query, exp.Column) if each.table and scopes.owner(each) is None]


def check_columns_are_where_they_are_named(
    tree: exp.Query, columns_of: Callable[[str], Iterable[str]]
) -> None:
    """Raise NotOnlineError where a column is written with the name of a table that has no such column.

    sqlglot does so where a table hides another one of its name, and where a derived table has an output of a
    name that is used inside of it.

    Args:
        columns_of: gives the columns of a table of the catalog.
    """
    if len(list(find_all(tree, exp.Select))) == 1:
        return
    scopes, hides = Scopes(tree), _hides_names(tree)
    for column in find_all(tree, exp.Column):
        if not column.table or (owner := scopes.owner(column)) is None:
            continue
        source = _table_of(owner, column.table)
        if is_below(column, source) or (hides and not _may_have(source, column.name, columns_of)):
            raise NotOnlineError(f"{said(column)} is a column of another table than the one so named")


def _may_have(source: exp.Expr, name: str, columns_of: Callable[[str], Iterable[str]]) -> bool:
    names: Iterable[str] = (name,)
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        names = columns_of(source.name)
    elif isinstance(source, exp.Subquery) and isinstance(source.this, exp.Query):
        names = source.this.named_selects
    return name.lower() in {each.lower() for each in names}


def _hides_names(tree: exp.Query) -> bool:
    """Whether a SELECT reads a table under a name that one around it has, too."""
    for select in find_all(tree, exp.Select):
        names, around = names_of(select) - {""}, select.parent_select
        while names and around is not None:
            if names & names_of(around):
                return True
            around = around.parent_select
    return False


def with_one_name_each(tree: exp.Query) -> exp.Query:
    """Return a qualified query in which no subquery hides the name of a table beside what it depends on.

    So a column that is put in the place of another, or seen without the queries around it, keeps its table.
    Names that nothing depends on stay.
    """
    names = [name for select in find_all(tree, exp.Select) for name in names_of(select)]
    if len(set(names)) == len(names) or not any(_hiding(*each) for each in _depending(tree, _owners(tree))):
        return tree
    tree = tree.copy()
    owners = _owners(tree)
    depending = list(_depending(tree, owners))
    while any(_rename_inside(query, source, owners, frozenset(names)) for query, source in depending):
        pass
    return tree


_Owners = Mapping[int, exp.Expr | None]


def _owners(tree: exp.Query) -> _Owners:
    """Return the SELECT that each column belongs to, by the column's id."""
    scopes = Scopes(tree)
    return {id(column): scopes.owner(column) for column in find_all(tree, exp.Column) if column.table}


def _depending(tree: exp.Query, owners: _Owners) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield each subquery that depends on a query around it, with the table there that it names."""
    for column in find_all(tree, exp.Column):
        owner, query = owners.get(id(column)), column.parent_select
        if owner is None or query is owner:
            continue
        yield _subquery_of(owner, column), _table_of(owner, column.table)


def _subquery_of(select: exp.Expr, column: exp.Column) -> exp.Expr:
    """Return the whole subquery of a SELECT in which a column stands."""
    query: exp.Expr = column
    while query.parent_select is not select or isinstance(query.parent, exp.SetOperation | exp.Subquery):
        assert query.parent is not None
        query = query.parent
    return query


def _table_of(select: exp.Expr, name: str) -> exp.Expr:
    return next(each for each in tables_of(select) if each.alias_or_name == name)


def _hiding(query: exp.Expr, source: exp.Expr) -> list[tuple[exp.Expr, str]]:
    """Return the SELECTs in a subquery that know a table by the name of one around it, or of one in that."""
    outside = {source.alias_or_name}.union(*map(names_of, find_all(source, exp.Select)))
    selects = find_all(query, exp.Select)
    return [(select, name) for select in selects for name in sorted(names_of(select) & outside)]


def _rename_inside(query: exp.Expr, source: exp.Expr, owners: _Owners, known: frozenset[str]) -> bool:
    """Give another name to what hides a table around a subquery, in place. Whether there was any."""
    hiding = _hiding(query, source)
    inside = [name for select in find_all(query, exp.Select) for name in names_of(select)]
    taken = known.union(inside, *map(names_of, find_all(source, exp.Select)))
    for select, name in hiding:
        fresh = next(each for i in count(2) if (each := f"{name}_{i}") not in taken)
        taken |= {fresh}
        _rename(select, name, fresh, owners)
    return bool(hiding)


def _rename(select: exp.Expr, name: str, fresh: str, owners: _Owners) -> None:
    for table in tables_of(select):
        if table.alias_or_name == name:
            if table.args.get("pivots"):
                raise NotOnlineError(f"a PIVOT of {name} stands inside a query of a table with this name")
            columns = table.args["alias"].args.get("columns") if table.args.get("alias") else None
            alias = exp.TableAlias(this=exp.to_identifier(fresh, quoted=True), columns=columns)
            table.set("alias", alias)
    for column in find_all(select, exp.Column):
        if column.table == name and owners.get(id(column)) is select:
            column.set("table", exp.to_identifier(fresh, quoted=True))


_UNNAMED = "_col_"  # as sqlglot calls them
_BY_NAME = ("where", "group", "having", "qualify", "order", "distinct")


def with_named_outputs(tree: exp.Query) -> exp.Query:
    """Return a query, before its names are qualified, in which each output has a name of its own. In place.

    Raises NotOnlineError where it depends on DuckDB which of several outputs is meant.

    >>> sql = "SELECT zone, count(*), km::TEXT, -km AS zone FROM t ORDER BY 4"
    >>> print(with_named_outputs(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb").replace('"', ""))
    SELECT zone, COUNT(*) AS _col_1, CAST(km AS TEXT) AS _col_2, -km AS zone_1 FROM t ORDER BY 4
    """
    written = {each.name.lower() for each in find_all(tree, exp.Identifier)}
    prefix = next(each for i in count() if not _begins(each := "_" * i + _UNNAMED, written))
    for select in find_all(tree, exp.Select):
        for place, item in enumerate(list(select.expressions)):
            if not _is_named(item):
                item.replace(_named(item.copy(), f"{prefix}{place}"))
        _tell_apart(select)
    return tree


def _is_named(item: exp.Expr) -> bool:
    """Whether an output has a name of its own, or stands for several columns."""
    named = isinstance(without_brackets(item), exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star)
    return named or find_first(item, exp.Columns, exp.UDTF, exp.Explode) is not None


def _begins(prefix: str, names: set[str]) -> bool:
    return any(name.startswith(prefix) for name in names)


def _named(item: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))


def with_columns_told_apart(tree: exp.Query, *, has_star_over_query: bool) -> exp.Query:
    """Return a qualified query in which no two columns that * stands for have one name. In place.

    What is asked for by its number is asked for by its name.

    Args:
        has_star_over_query: see there, of the query before it was qualified.
    """
    for select in find_all(tree, exp.Select):
        if (names := _tell_apart(select)) and select is not tree and has_star_over_query:
            raise NotOnlineError(f"* stands for outputs of which two are called {min(names)}")
        _name_positions(select)
    return tree


def _name_positions(select: exp.Select) -> None:
    """Write the name of an output for its number in ORDER BY and DISTINCT ON. In place."""
    order, distinct = select.args.get("order"), select.args.get("distinct")
    asked = [ordered.this for ordered in order.expressions] if order else []
    if distinct is not None and (on := distinct.args.get("on")) is not None:
        asked += on.expressions
    for node in asked:
        if isinstance(node, exp.Literal) and node.is_int and not select.is_star:
            name = select.expressions[int(node.this) - 1].alias_or_name
            node.replace(exp.column(name, quoted=True))


def _tell_apart(select: exp.Select) -> frozenset[str]:
    """Give each output after the first of its name another one. Return the names that several had."""
    items = [item for item in select.expressions if not item.is_star and item.alias_or_name]
    names = [item.alias_or_name.lower() for item in items]
    several = frozenset(name for name, times in Counter(names).items() if times > 1)
    if not several:
        return several
    values = {(name, item.unalias()) for name, item in zip(names, items, strict=True)}
    unlike = {name for name, times in Counter(name for name, _ in values).items() if times > 1}
    if found := next((name for name in _asked_by_name(select) if name in unlike), None):
        raise NotOnlineError(f"two of its outputs are called {found}, and it names that")
    taken = set(names)
    for place, (item, name) in enumerate(zip(items, names, strict=True)):
        if name in names[:place]:
            fresh = next(each for i in count(1) if (each := f"{name}_{i}") not in taken)
            taken.add(fresh)
            item.replace(_named(item.unalias().copy(), fresh))
    return several


def _asked_by_name(select: exp.Select) -> Iterator[str]:
    """Yield the names of outputs that a SELECT orders and selects by, or the set operation it begins."""
    asking: exp.Expr | None = select
    while isinstance(asking, exp.Query):
        parts = _BY_NAME if isinstance(asking, exp.Select) else ("order",)
        for part in parts:
            for node in [asking.args[part]] if asking.args.get(part) else []:
                columns = (each for each in own_nodes(node, exp.Column) if isinstance(each, exp.Column))
                yield from (each.name.lower() for each in columns if not each.table)
        if isinstance(asking, exp.SetOperation) and asking.args.get("by_name"):
            yield from (item.alias_or_name.lower() for item in select.expressions)
        asking = asking.parent


def has_star_over_query(written: exp.Query) -> bool:
    """Whether * is an output of a SELECT that reads another query."""
    if not any(item.is_star for select in find_all(written, exp.Select) for item in select.expressions):
        return False
    ctes = {cte.alias.lower() for cte in find_all(written, exp.CTE)}
    return any(
        isinstance(table, exp.Subquery) or table.name.lower() in ctes
        for select in find_all(written, exp.Select)
        if any(item.is_star for item in select.expressions)
        for table in tables_of(select)
    )
