"""Which query a column, a key or an aggregate belongs to, and the keys of GROUP BY written out.

Which query a column or an aggregate belongs to. All rules ask this one.

    SELECT t.zone, (SELECT count(*) FROM z WHERE z.id = t.zone AND z.size < sum(t.km)) FROM t GROUP BY t.zone

A column belongs to the innermost query around it that reads a table of its name. An aggregate belongs to
the innermost query that its columns belong to. So sum(t.km) is one of the query outside. An aggregate
without a column, such as count(*), belongs to the query that it stands in.

Outputs get names of their own first, since the rules find an output by its name (`with_output_names`):

    SELECT q.v FROM (SELECT t.zone AS v, t.km AS v, count(*) FROM t GROUP BY ALL) AS q

DuckDB calls the second v of a derived table v_1, and takes the first for v. The answer itself has the
names that DuckDB's binder gives (`Draft.schema`), whatever they are here.

The keys of GROUP BY written out, and ROLLUP, CUBE and GROUPING SETS as plain keys.

Each task groups once per set. The number that GROUPING gives to all keys together becomes one more key. So
a group of one set never meets a group of another set, and everything after the tasks sees ordinary groups.

**A query that aggregates as two**: its groups, and what is computed from them.

    SELECT t.zone, (SELECT z.name FROM z WHERE z.id = t.zone AND z.size > sum(t.km)) AS name
    FROM t GROUP BY ROLLUP (t.zone)

The subquery depends on a key after ROLLUP has set it NULL, and on an aggregate of the query around it.
Both are columns of the groups:

    SELECT groups.key_0 AS zone, (SELECT z.name FROM z WHERE z.id = groups.key_0 AND z.size > groups.value_0)
    FROM (SELECT t.zone AS key_0, sum(t.km) AS value_0 FROM t GROUP BY ROLLUP (t.zone)) AS groups

Written like this, no query depends on what another one aggregates, and a key has one meaning. In WHERE, in
a key and inside an aggregate, which are computed before there are groups, it is the column itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, count, product

from sqlglot import exp

from relaqs_engine.rewrite.draft import NotOnlineError, as_table, own_nodes, said, without_brackets
from relaqs_engine.sql.parse import DIALECT

AGGREGATES = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.AggFunc)
"""An aggregate's call, and what is written around it."""

_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)
_AFTER_GROUPS = ("expressions", "distinct", "having", "qualify", "windows", "order")


class Scopes:
    """The SELECTs of a qualified query, and by which names each knows its tables.

    >>> import sqlglot
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
        columns = (each for each in query.find_all(exp.Column) if each.table)
        return any(self.owner(column) is select for column in columns)

    def owner_of_aggregate(self, call: exp.Expr) -> exp.Expr | None:
        """Return the SELECT that an aggregate belongs to. None where that is outside of the query."""
        columns = [] if is_of_window(call) else [each for each in call.find_all(exp.Column) if each.table]
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
            for call in place.find_all(*AGGREGATES)
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
    nodes = [node for part in parts for node in part.walk(prune=_is_a_query)]
    return [node for node in nodes if isinstance(node, exp.Table | exp.Subquery | exp.UDTF)]


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

    >>> import sqlglot
    >>> sql = "SELECT 1 FROM (SELECT t.zone FROM t) AS top WHERE top.zone = t.zone"
    >>> [column.sql() for column in outer_columns(sqlglot.parse_one(sql, dialect="duckdb"))]
    ['t.zone']
    """
    scopes = Scopes(query)
    return [each for each in query.find_all(exp.Column) if each.table and scopes.owner(each) is None]


def check_columns_are_where_they_are_named(
    tree: exp.Query, columns_of: Callable[[str], Iterable[str]]
) -> None:
    """Raise NotOnlineError where a column is written with the name of a table that has no such column.

    sqlglot does so where a table hides another one of its name, and where a derived table has an output of a
    name that is used inside of it.

    Args:
        tree: the qualified query.
        columns_of: gives the columns of a table of the catalog.
    """
    if len(list(tree.find_all(exp.Select))) == 1:
        return
    scopes, hides = Scopes(tree), _hides_names(tree)
    for column in tree.find_all(exp.Column):
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
    for select in tree.find_all(exp.Select):
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

    >>> import sqlglot
    >>> rows = "SELECT t.zone AS k FROM t"
    >>> sql = f"SELECT q.k FROM ({rows}) AS q WHERE EXISTS(SELECT 1 FROM t WHERE t.km = q.k)"
    >>> print(with_one_name_each(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb").replace('"', ""))
    SELECT q.k FROM (SELECT t.zone AS k FROM t) AS q WHERE EXISTS(SELECT 1 FROM t AS t_2 WHERE t_2.km = q.k)
    """
    names = [name for select in tree.find_all(exp.Select) for name in names_of(select)]
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
    return {id(column): scopes.owner(column) for column in tree.find_all(exp.Column) if column.table}


def _depending(tree: exp.Query, owners: _Owners) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield each subquery that depends on a query around it, with the table there that it names."""
    for column in tree.find_all(exp.Column):
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
    outside = {source.alias_or_name}.union(*map(names_of, source.find_all(exp.Select)))
    selects = query.find_all(exp.Select)
    return [(select, name) for select in selects for name in sorted(names_of(select) & outside)]


def _rename_inside(query: exp.Expr, source: exp.Expr, owners: _Owners, known: frozenset[str]) -> bool:
    """Give another name to what hides a table around a subquery, in place. Whether there was any."""
    hiding = _hiding(query, source)
    inside = [name for select in query.find_all(exp.Select) for name in names_of(select)]
    taken = known.union(inside, *map(names_of, source.find_all(exp.Select)))
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
    for column in select.find_all(exp.Column):
        if column.table == name and owners.get(id(column)) is select:
            column.set("table", exp.to_identifier(fresh, quoted=True))


def _is_a_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Select | exp.SetOperation)


_UNNAMED = "_col_"  # as sqlglot calls them
_BY_NAME = ("where", "group", "having", "qualify", "order", "distinct")


def with_named_outputs(tree: exp.Query) -> exp.Query:
    """Return a query, before its names are qualified, in which each output has a name of its own. In place.

    Raises NotOnlineError where it depends on DuckDB which of several outputs is meant.

    >>> import sqlglot
    >>> sql = "SELECT zone, count(*), km::TEXT, -km AS zone FROM t ORDER BY 4"
    >>> print(with_named_outputs(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb").replace('"', ""))
    SELECT zone, COUNT(*) AS _col_1, CAST(km AS TEXT) AS _col_2, -km AS zone_1 FROM t ORDER BY 4
    """
    written = {each.name.lower() for each in tree.find_all(exp.Identifier)}
    prefix = next(each for i in count() if not _begins(each := "_" * i + _UNNAMED, written))
    for select in tree.find_all(exp.Select):
        for place, item in enumerate(list(select.expressions)):
            if not _is_named(item):
                item.replace(_named(item.copy(), f"{prefix}{place}"))
        _tell_apart(select)
    return tree


def _is_named(item: exp.Expr) -> bool:
    """Whether an output has a name of its own, or stands for several columns."""
    named = isinstance(without_brackets(item), exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star)
    return named or item.find(exp.Columns, exp.UDTF, exp.Explode) is not None


def _begins(prefix: str, names: set[str]) -> bool:
    return any(name.startswith(prefix) for name in names)


def _named(item: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))


def with_columns_told_apart(tree: exp.Query, *, has_star_over_query: bool) -> exp.Query:
    """Return a qualified query in which no two columns that * stands for have one name. In place.

    What is asked for by its number is asked for by its name.

    Args:
        tree: the qualified query.
        has_star_over_query: see there, of the query before it was qualified.
    """
    for select in tree.find_all(exp.Select):
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
    if not any(item.is_star for select in written.find_all(exp.Select) for item in select.expressions):
        return False
    ctes = {cte.alias.lower() for cte in written.find_all(exp.CTE)}
    return any(
        isinstance(table, exp.Subquery) or table.name.lower() in ctes
        for select in written.find_all(exp.Select)
        if any(item.is_star for item in select.expressions)
        for table in tables_of(select)
    )


_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)
_AROUND_KEYS = (exp.Group, exp.Tuple, exp.Paren, *_SEVERAL)
_MOST_SETS = 64

_Set = tuple[exp.Expr, ...]


def groups_several_times(select: exp.Select) -> bool:
    group = select.args.get("group")
    return group is not None and any(isinstance(part, _SEVERAL) for part in group.expressions)


def group_keys(select: exp.Select) -> tuple[tuple[exp.Expr, ...], tuple[tuple[int, ...], ...]]:
    """Return the keys of GROUP BY, and each grouping set as positions of its keys. Plain keys have no sets.

    With grouping sets the last key is the number that tells them apart.

    >>> import sqlglot
    >>> keys, sets = group_keys(sqlglot.parse_one("SELECT a, b, sum(x) FROM t GROUP BY ROLLUP (a, b)"))
    >>> [key.sql() for key in keys]
    ['a', 'b', 'GROUPING_ID(a, b)']
    >>> sets
    ((0, 1, 2), (0, 2), (2,))
    """
    group = select.args.get("group")
    if group is None:
        return (), ()
    if not groups_several_times(select):
        return tuple(group.expressions), ()
    sets = [_joined(parts) for parts in product(*(_sets_of(part, select) for part in group.expressions))]
    if len(sets) > _MOST_SETS:
        raise NotOnlineError(f"it groups {len(sets)} times over; up to {_MOST_SETS} are rewritten")
    keys = _joined(sets)
    positions = tuple(tuple(sorted(keys.index(key) for key in each)) for each in sets)
    if len(set(positions)) < len(positions):
        raise NotOnlineError("it groups by the same keys twice, which gives each group twice")
    number = exp.GroupingId(expressions=[key.copy() for key in keys])
    return (*keys, number), tuple((*each, len(keys)) for each in positions)


def write_out_order_by_all(tree: exp.Select) -> None:
    """Write ORDER BY ALL out, in place. It means each output, from left to right."""
    order = tree.args.get("order")
    names = [item.alias for item in tree.expressions]
    if order is None or len(order.expressions) != 1 or len(set(names)) < len(names):
        return
    [ordered] = order.expressions
    if isinstance(ordered.this, exp.Var) and ordered.this.name.upper() == "ALL":
        each = [ordered.copy() for _ in names]
        for copy, name in zip(each, names, strict=True):
            copy.set("this", exp.column(name, quoted=True))
        order.set("expressions", each)


def with_written_keys(tree: exp.Select) -> exp.Select:
    """Return a SELECT with its group keys written out. In place.

    GROUP BY ALL means the outputs that read a column and have no aggregate.
    """
    write_out_order_by_all(tree)
    group = tree.args.get("group")
    if group is None:
        return tree
    keys = group.expressions
    is_one_group = exp.Tuple() in keys
    if group.args.get("all"):
        calls = Scopes(tree).aggregates_of(tree)
        keys = [item.unalias() for item in tree.expressions if _is_key_of_all(item, calls)]
        group.set("all", None)
    group.set("expressions", [without_brackets(key).copy() for key in keys if key != exp.Tuple()])
    if not group.args.get("expressions") and not any(group.args.values()):
        tree.set("group", None)  # GROUP BY (), or ALL of nothing but aggregates
        aggregates = any(own_nodes(item, exp.AggFunc) for item in tree.expressions)
        if is_one_group and not aggregates and not tree.args.get("having"):
            tree.set("having", exp.Having(this=exp.true()))  # that makes one group of all rows, too
    return tree


def _is_key_of_all(item: exp.Expr, aggregates: Sequence[exp.Expr]) -> bool:
    if any(is_below(call, item) for call in aggregates):
        return False
    # sqlglot takes list[1] for a type, where `list` is a column.
    if own_nodes(item, exp.Column) or any(node.args.get("values") for node in own_nodes(item, exp.DataType)):
        return True
    return any(map(outer_columns, own_nodes(item, exp.Query)))


def check_each_key_has_one_name(written: exp.Query, qualified: exp.Query) -> None:
    """Raise NotOnlineError where GROUP BY writes one key in two ways. DuckDB takes it for two keys."""
    before, after = (
        sorted(len(_names(select)) for select in tree.find_all(exp.Select) if groups_several_times(select))
        for tree in (written, qualified)
    )
    if before != after:
        raise NotOnlineError("its grouping sets write one key in two ways, which DuckDB keeps apart")


def _names(select: exp.Select) -> set[str]:
    return {
        node.sql(DIALECT).lower()
        for node in select.args["group"].walk(prune=lambda node: not isinstance(node, _AROUND_KEYS))
        if not isinstance(node, _AROUND_KEYS)
    }


def grouping_number(
    node: exp.Grouping | exp.GroupingId, keys: Sequence[exp.Expr], outputs: Mapping[str, exp.Expr]
) -> exp.Expr:
    """Return GROUPING(x, y, …), computed from the number over all keys.

    Args:
        node: the call of GROUPING.
        keys: the plain keys, without the number.
        outputs: the query's outputs by alias.
    """
    bits: list[exp.Expr] = []
    for place, argument in enumerate(reversed(node.expressions)):
        is_name = isinstance(argument, exp.Column) and not argument.table
        key = without_brackets(outputs.get(argument.name, argument) if is_name else argument)
        if key not in keys:
            raise NotOnlineError(f"{said(argument)} of GROUPING is no group key")
        shift = len(keys) - 1 - list(keys).index(key)
        bits.append(exp.maybe_parse(f"((k{len(keys)} >> {shift}) & 1) * {1 << place}", dialect=DIALECT))
    total = bits[0]
    for bit in bits[1:]:
        total = exp.Add(this=total, expression=bit)
    return exp.cast(exp.paren(total, copy=False), exp.DType.BIGINT)


def _joined(sets: Sequence[_Set]) -> _Set:
    return tuple(dict.fromkeys(key for each in sets for key in each))


def _sets_of(part: exp.Expr, select: exp.Select) -> list[_Set]:
    """Return the grouping sets of one element of GROUP BY."""
    if isinstance(part, exp.GroupingSets):
        return [each for inner in part.expressions for each in _sets_of(inner, select)]
    if not isinstance(part, exp.Rollup | exp.Cube):
        return [_keys_of(part, select)]
    units = [_keys_of(unit, select) for unit in part.expressions]
    if isinstance(part, exp.Rollup):
        return [_joined(units[:count]) for count in range(len(units), -1, -1)]
    return list(_subsets(units))


def _subsets(units: Sequence[_Set]) -> Iterator[_Set]:
    for size in range(len(units), -1, -1):
        for chosen in combinations(units, size):
            yield _joined(chosen)


def _keys_of(part: exp.Expr, select: exp.Select) -> _Set:
    """Return the keys of an element: one, or those of a tuple. A number means an output."""
    if isinstance(part, exp.Tuple):
        return _joined([_keys_of(inner, select) for inner in part.expressions])
    part = without_brackets(part)
    if isinstance(part, exp.Literal) and not part.is_string:
        return (without_brackets(select.expressions[int(part.this) - 1].unalias()),)
    return (part,)


_GROUPS = "relaqs_groups"
_FUNCTIONS_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)
_AFTER = ("expressions", "distinct", "qualify", "windows", "order", "limit", "offset")
_BEFORE = ("from_", "joins", "laterals", "where", "group")


def with_groups_below(tree: exp.Query) -> exp.Query:
    """Return a qualified query in which no subquery depends on keys or aggregates of a query around it.

    >>> import sqlglot
    >>> sql = "SELECT (SELECT max(z.size) - max(t.km) FROM z WHERE z.id = t.zone) AS v FROM t GROUP BY t.zone"
    >>> print(with_groups_below(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb").replace('"', ""))
    SELECT (SELECT MAX(z.size) - relaqs_groups.value_0 FROM z WHERE z.id = relaqs_groups.key_0) AS v
    FROM (SELECT t.zone AS key_0, MAX(t.km) AS value_0 FROM t GROUP BY t.zone) AS relaqs_groups
    """
    if not any(map(_asks_about_groups, tree.find_all(exp.Select))):
        return tree
    tree = tree.copy()
    taken = {each.alias_or_name for each in tree.find_all(exp.Table, exp.Subquery)}
    names = (name for i in count() if (name := f"{_GROUPS}_{i}" if i else _GROUPS) not in taken)
    for select in reversed(list(tree.find_all(exp.Select))):
        if not _asks_about_groups(select):
            continue
        outer, inner = split_at_groups(with_written_keys(select), name := next(names))
        found = outer.from_(as_table(inner, name))
        if select is tree:
            return found
        select.replace(found)
    return tree


def _asks_about_groups(select: exp.Select) -> bool:
    """Whether a SELECT aggregates, and a subquery after that depends on it."""
    queries = [query for place in after_groups(select) for query in own_nodes(place, exp.Query)]
    if not queries:
        return False
    scopes = Scopes(select)
    depending = [query for query in queries if scopes.depends_on(query, select)]
    is_grouped = bool(select.args.get("group") or select.args.get("having"))
    if not depending or not (is_grouped or scopes.aggregates_of(select)):
        return False
    keys, _ = group_keys(with_written_keys(select.copy()))
    return not all(is_before_groups(query, keys) for query in depending)


def is_before_groups(query: exp.Expr, keys: Sequence[exp.Expr]) -> bool:
    """Whether a subquery stands inside an aggregate or a group key."""
    node = query if isinstance(query, exp.Subquery) else query.parent
    while node is not None and not isinstance(node, exp.Select):
        if (isinstance(node, AGGREGATES) and not is_of_window(node)) or node in keys:
            return True
        node = node.parent
    return False


def split_at_groups(query: exp.Select, groups: str) -> tuple[exp.Select, exp.Select]:
    """Return what stands around a query's groups, without FROM, and the query of the groups themselves.

    Args:
        query: its keys are written out. It stays as it is.
        groups: the name of the table of groups in the query around it.
    """
    query = query.copy()
    keys, sets = group_keys(query)
    names = [item.alias_or_name for item in query.expressions]
    inner = exp.Select()
    decides_outside = _asks_in_having(query)
    for part in (*_BEFORE, *([] if decides_outside else ["having"])):
        if (value := query.args.get(part)) is not None:
            inner.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    places = [each for each in after_groups(query) if decides_outside or not isinstance(each, exp.Having)]
    found = _Groups(query, keys[:-1] if sets else keys, groups)
    for place in places:
        found.replace_in(place)
    inner.set("expressions", found.outputs())
    outer = exp.Select(**{part: value for part in _AFTER if (value := query.args.get(part)) is not None})
    for item, name in zip(outer.expressions, names, strict=True):
        if not isinstance(item, exp.Alias):
            item.replace(exp.Alias(this=item.copy(), alias=exp.to_identifier(name, quoted=True)))
    if decides_outside:
        outer.set("where", exp.Where(this=query.args["having"].this))
    return outer, inner


def asks_after_groups(query: exp.Select) -> bool:
    """Whether a SELECT has a subquery in what is computed after its groups are made."""
    return any(place.find(exp.Query) is not None for place in after_groups(query))


def _asks_in_having(query: exp.Select) -> bool:
    having = query.args.get("having")
    return having is not None and having.find(exp.Query) is not None


class _Groups:
    """Collects the keys and aggregates of a query, and puts columns of its groups in their places.

    Args:
        query: in which that happens.
        keys: its group keys.
        table: the name of the table of groups.
    """

    def __init__(self, query: exp.Select, keys: tuple[exp.Expr, ...], table: str) -> None:
        self._keys = tuple(key.copy() for key in keys)
        self._table = table
        self._values: dict[exp.Expr, str] = {}
        scopes = Scopes(query)
        below = [each for place in after_groups(query) for each in own_nodes(place, exp.Query)]
        columns = (column for each in below for column in each.find_all(exp.Column) if column.table)
        self._columns = {id(column) for column in columns if scopes.owner(column) is query}
        self._calls = {id(call) for call in scopes.aggregates_of(query)} if self._columns else set()

    def outputs(self) -> list[exp.Expr]:
        """Return the keys, then the aggregates. Unused keys are there too: keys tell the groups apart."""
        keys = [exp.alias_(key.copy(), f"key_{i}", quoted=True) for i, key in enumerate(self._keys)]
        values = [exp.alias_(value.copy(), name, quoted=True) for value, name in self._values.items()]
        return [*keys, *values] or [exp.alias_(exp.Count(this=exp.Star()), "value_0")]

    def replace_in(self, node: exp.Expr) -> None:
        """Put columns of the groups in the place of keys and aggregates below a node, and in its own."""
        if not isinstance(node, exp.Alias) and node in self._keys:
            self._put(node, f"key_{self._keys.index(node)}")
        elif isinstance(node, AGGREGATES):
            self._put(node, self._value(node))
        elif isinstance(node, exp.Column) and node.table:
            raise NotOnlineError(f"{said(node)} is neither a group key nor part of an aggregate")
        elif isinstance(node, exp.Query):
            self._replace_below(node)
        elif isinstance(node, exp.Window):
            self._replace_in_window(node)
        else:
            for child in list(node.iter_expressions()):
                self.replace_in(child)

    def _replace_in_window(self, window: exp.Window) -> None:
        """Do so in a window, whose own function is no aggregate of the query."""
        for child in list(window.iter_expressions()):
            if child is not window.this:
                self.replace_in(child)
        self._replace_in_arguments(window.this)

    def _replace_in_arguments(self, function: exp.Expr) -> None:
        for child in list(function.iter_expressions()):
            if isinstance(function, _FUNCTIONS_AROUND) and child is function.this:
                self._replace_in_arguments(child)
            else:
                self.replace_in(child)

    def _replace_below(self, node: exp.Expr) -> None:
        """Do so in a subquery, with what is of this query there."""
        if id(node) in self._calls:
            self._put(node, self._value(node))
        elif node in self._keys and self._is_of_query(node):
            self._put(node, f"key_{self._keys.index(node)}")
        elif id(node) in self._columns:
            raise NotOnlineError(f"{said(node)} is neither a group key nor part of an aggregate")
        elif self._columns:
            for child in list(node.iter_expressions()):
                self._replace_below(child)

    def _is_of_query(self, node: exp.Expr) -> bool:
        columns = [id(column) for column in node.find_all(exp.Column)]
        return bool(columns) and self._columns.issuperset(columns)

    def _value(self, call: exp.Expr) -> str:
        return self._values.setdefault(call.copy(), f"value_{len(self._values)}")

    def _put(self, node: exp.Expr, name: str) -> None:
        node.replace(exp.column(name, self._table, quoted=True))
