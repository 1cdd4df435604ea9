"""The keys of GROUP BY written out, and ROLLUP, CUBE and GROUPING SETS as plain keys.

Each task groups once per set. The number that GROUPING gives to all keys together becomes one more key. So a
group of one set never meets a group of another set, and everything after the tasks sees ordinary groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from sqlglot import exp

from relaqs_engine.rewrite.draft import NotOnlineError, own_nodes, without_brackets
from relaqs_engine.rewrite.scopes import Scopes, is_below, outer_columns
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
            raise NotOnlineError(f"{argument.sql(DIALECT)} of GROUPING is no group key")
        shift = len(keys) - 1 - list(keys).index(key)
        bits.append(exp.maybe_parse(f"((k{len(keys)} >> {shift}) & 1) * {1 << place}", dialect=DIALECT))
    total = bits[0]
    for bit in bits[1:]:
        total = exp.Add(this=total, expression=bit)
    return exp.cast(exp.paren(total, copy=False), "BIGINT")


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
    for count in range(len(units), -1, -1):
        for chosen in combinations(units, count):
            yield _joined(chosen)


def _keys_of(part: exp.Expr, select: exp.Select) -> _Set:
    """Return the keys of an element: one, or those of a tuple. A number means an output."""
    if isinstance(part, exp.Tuple):
        return _joined([_keys_of(inner, select) for inner in part.expressions])
    part = without_brackets(part)
    if isinstance(part, exp.Literal) and not part.is_string:
        return (without_brackets(select.expressions[int(part.this) - 1].unalias()),)
    return (part,)
