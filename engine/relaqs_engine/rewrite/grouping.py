"""The keys of GROUP BY written out, and ROLLUP, CUBE and GROUPING SETS as plain keys.

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

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, count, product

from sqlglot import exp

from relaqs_engine.rewrite.draft import NotOnlineError, as_table, own_nodes, said, without_brackets
from relaqs_engine.rewrite.scopes import (
    AGGREGATES,
    Scopes,
    after_groups,
    is_below,
    is_of_window,
    outer_columns,
)
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.parse import DIALECT

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
        sorted(len(_names(select)) for select in find_all(tree, exp.Select) if groups_several_times(select))
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
    """Return a qualified query in which no subquery depends on keys or aggregates of a query around it."""
    if not any(map(_asks_about_groups, find_all(tree, exp.Select))):
        return tree
    tree = tree.copy()
    taken = {each.alias_or_name for each in find_all(tree, exp.Table, exp.Subquery)}
    names = (name for i in count() if (name := f"{_GROUPS}_{i}" if i else _GROUPS) not in taken)
    for select in reversed(list(find_all(tree, exp.Select))):
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
    query = copied(query)
    keys, sets = group_keys(query)
    names = [item.alias_or_name for item in query.expressions]
    inner = exp.Select()
    decides_outside = _asks_in_having(query)
    for part in (*_BEFORE, *([] if decides_outside else ["having"])):
        if (value := query.args.get(part)) is not None:
            inner.set(part, [copied(each) for each in value] if isinstance(value, list) else copied(value))
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
    return any(find_first(place, exp.Query) is not None for place in after_groups(query))


def _asks_in_having(query: exp.Select) -> bool:
    having = query.args.get("having")
    return having is not None and find_first(having, exp.Query) is not None


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
        columns = (column for each in below for column in find_all(each, exp.Column) if column.table)
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
        columns = [id(column) for column in find_all(node, exp.Column)]
        return bool(columns) and self._columns.issuperset(columns)

    def _value(self, call: exp.Expr) -> str:
        return self._values.setdefault(call.copy(), f"value_{len(self._values)}")

    def _put(self, node: exp.Expr, name: str) -> None:
        node.replace(exp.column(name, self._table, quoted=True))
