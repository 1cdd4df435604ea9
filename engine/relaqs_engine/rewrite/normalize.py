"""Rules that read a query before anything is sampled: it becomes one flat SELECT of a shape that is known.

`flatten` qualifies names, puts CTEs in their places and merges derived tables where that is sound. On the
way:

- A column that USING shares is the left table's, unless a RIGHT or FULL JOIN can leave that one NULL.
- SELECT DISTINCT ON becomes an aggregation: of each key, the first row in the query's order.
- SEMI and ANTI JOIN become EXISTS and NOT EXISTS: they join no rows, and leave some out.
- An IN that is met by every row, because the row itself is among those that it asks about, becomes `IS NOT
  NULL`:

    SELECT shop, sum(paid) FROM sales JOIN shops ON shop = id WHERE year = 2000 AND state IN (
        SELECT state FROM (
            SELECT state, rank() OVER (PARTITION BY state ORDER BY sum(paid)) AS place
            FROM sales JOIN shops ON shop = id WHERE year = 2000 GROUP BY state)
        WHERE place <= 5)

A partition by all group keys has one group, so its rank is 1, and 1 <= 5. What is left of the subquery are
the states of the rows outside. So IN is true wherever the state is not NULL.

`check_shape` then asks that the outermost SELECT returns rows, or is one level of aggregation with nothing
around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from relaqs_engine.catalog import Catalog
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, conjuncts_of, own_nodes, revive_rows, said
from relaqs_engine.rewrite.grouping import (
    check_each_key_has_one_name,
    with_groups_below,
    with_written_keys,
    write_out_order_by_all,
)
from relaqs_engine.rewrite.scopes import (
    check_columns_are_where_they_are_named,
    has_star_over_query,
    outer_columns,
    with_columns_told_apart,
    with_named_outputs,
    with_one_name_each,
)
from relaqs_engine.sql.dialect import DIALECT, copied, find_all, find_first
from relaqs_engine.sql.functions import is_array_of_query, volatile_function
from relaqs_engine.sql.parse import referenced_cte


def shared_columns_as_left(tree: exp.Query) -> exp.Query:
    """Return a qualified query with the left column in the place of each COALESCE that stands for USING.

    Without it, `GROUP BY zone` and `z.zone` would be two things. Changes the tree in place.

    >>> joined = "zones AS z LEFT JOIN trips AS t ON z.zone = t.zone"
    >>> tree = sqlglot.parse_one(f"SELECT COALESCE(z.zone, t.zone) AS zone FROM {joined}")
    >>> shared_columns_as_left(tree).sql()
    'SELECT z.zone AS zone FROM zones AS z LEFT JOIN trips AS t ON z.zone = t.zone'
    """
    for select in list(find_all(tree, exp.Select)):
        joins = select.args.get("joins") or []
        if joins and not revive_rows(joins):
            _replace_shared(select, joins)
    return tree


def _replace_shared(select: exp.Select, joins: list[exp.Join]) -> None:
    equal: set[tuple[exp.Expr, exp.Expr]] = set()
    for join in joins:
        _replace_column(join, equal)
        on = join.args.get("on")
        for condition in on.flatten() if isinstance(on, exp.And) else [on]:
            if isinstance(condition, exp.EQ) and condition.expression.name == condition.this.name:
                equal.add((condition.this.copy(), condition.expression.copy()))
    for part in list(select.iter_expressions()):
        _replace_column(part, equal)


def _replace_column(part: exp.Expr, equal: set[tuple[exp.Expr, exp.Expr]]) -> None:
    for choice in own_nodes(part, exp.Coalesce):
        left = choice.this
        if isinstance(left, exp.Column) and all((left, each) in equal for each in choice.expressions):
            choice.replace(left.copy())


def is_first_of_each(tree: exp.Select) -> bool:
    """Whether the SELECT is a DISTINCT ON over plain rows."""
    return _is_distinct_over_rows(tree, has_on=True)


def _is_distinct_over_rows(tree: exp.Select, *, has_on: bool) -> bool:
    """Whether a DISTINCT, with ON or without, is all that makes one row of several."""
    distinct = tree.args.get("distinct")
    if distinct is None or bool(distinct.args.get("on")) != has_on or tree.args.get("group"):
        return False
    return not any(own_nodes(item, kind) for item in tree.expressions for kind in (exp.AggFunc, exp.Window))


def first_of_each(tree: exp.Select) -> exp.Select:
    """Return a qualified DISTINCT ON as GROUP BY its keys.

    All other outputs are fields of one FIRST, so they come from one row.

    >>> sql = "SELECT DISTINCT ON (zone) zone AS zone, km AS km FROM trips ORDER BY zone, fare"
    >>> print(first_of_each(sqlglot.parse_one(sql, dialect=DIALECT)).sql("duckdb").replace('"', ""))
    SELECT zone AS zone, STRUCT_EXTRACT(FIRST({'f0': km, 'f1': fare} ORDER BY fare), 'f0') AS km
    FROM trips GROUP BY zone ORDER BY zone, STRUCT_EXTRACT(FIRST({'f0': km, 'f1': fare} ORDER BY fare), 'f1')
    """
    tree = tree.copy()
    outputs = {item.alias: item.unalias() for item in tree.expressions}
    on = tree.args["distinct"].args["on"]
    keys = [_meant(key, outputs) for key in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    order = tree.args.get("order")
    ordered = [_by_meaning(each, outputs) for each in (order.expressions if order else [])]
    values = [item.unalias() for item in tree.expressions] + [each.this for each in ordered]
    fields = list(dict.fromkeys(value for value in values if value not in keys))
    first = _first(fields, [each for each in ordered if each.this not in keys])

    def of_group(value: exp.Expr) -> exp.Expr:
        if value in keys:
            return value.copy()
        name = exp.Literal.string(f"f{fields.index(value)}")
        return exp.func("struct_extract", first.copy(), name, dialect=DIALECT)

    items = [exp.alias_(of_group(item.unalias()), item.alias, quoted=True) for item in tree.expressions]
    tree.set("expressions", items)
    tree.set("distinct", None)
    tree.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    for each in ordered:
        each.set("this", of_group(each.this))
    if order:
        order.set("expressions", ordered)
    return tree


def _first(fields: list[exp.Expr], ordered: list[exp.Expr]) -> exp.Expr:
    parts = [
        exp.PropertyEQ(this=exp.to_identifier(f"f{i}"), expression=field.copy())
        for i, field in enumerate(fields)
    ]
    struct: exp.Expr = exp.Struct(expressions=parts)
    if ordered:
        struct = exp.Order(this=struct, expressions=[each.copy() for each in ordered])
    return exp.First(this=struct)


def _by_meaning(ordered: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    found = ordered.copy()
    found.set("this", _meant(ordered.this, outputs))
    return found


def _meant(expression: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    """Return the output that a name alone stands for, and any other expression as it is."""
    if isinstance(expression, exp.Column) and not expression.table and expression.name in outputs:
        return outputs[expression.name].copy()
    return expression.copy()


_SEMI_KINDS = ("SEMI", "ANTI")
_NATURAL = "NATURAL"


def semi_joins_as_exists(tree: exp.Query, catalog: Catalog) -> exp.Query:
    """Return a query with a condition in the place of each SEMI and ANTI JOIN, where that has one meaning.

    A RIGHT or FULL JOIN later on revives rows that were left out. The join stays where there is one.
    """
    tree = copied(tree)
    for select in find_all(tree, exp.Select):
        joins = select.args.get("joins") or []
        for position in reversed(range(len(joins))):
            if joins[position].kind in _SEMI_KINDS and not revive_rows(joins[position + 1 :]):
                _replace_join(select, position, catalog)
    return tree


def _replace_join(select: exp.Select, position: int, catalog: Catalog) -> None:
    """Replace one join by a condition, if it is known which columns it compares."""
    joins = select.args["joins"]
    join = joins[position]
    condition = join.args.get("on")
    if condition is None:
        before = [select.args["from_"].this, *(each.this for each in joins[:position])]
        condition = _equal_names(join, before, catalog)
    if condition is None:
        return
    found: exp.Expr = exp.Exists(this=exp.select("1").from_(join.this.copy()).where(condition.copy()))
    select.set("joins", [*joins[:position], *joins[position + 1 :]])
    select.where(found if join.kind == "SEMI" else exp.not_(found), copy=False)


def _equal_names(join: exp.Join, before: Sequence[exp.Expr], catalog: Catalog) -> exp.Expr | None:
    """Return the condition of USING or NATURAL. None where a column may be one of two tables."""
    of_right = _columns(join.this, catalog)
    of_left = [(node.alias_or_name, _columns(node, catalog)) for node in before]
    if of_right is None or any(columns is None for _, columns in of_left):
        return None
    named = [identifier.name for identifier in join.args.get("using") or ()]
    if join.method == _NATURAL:
        everywhere = {name for _, columns in of_left for name in columns or ()}
        named = sorted(of_right & everywhere)
    equal = []
    for name in named:
        owners = [alias for alias, columns in of_left if name.lower() in (columns or ())]
        if len(owners) != 1:
            return None
        left, right = (exp.column(name, table) for table in (owners[0], join.this.alias_or_name))
        equal.append(exp.EQ(this=left, expression=right))
    return exp.and_(*equal) if equal else None


def _columns(node: exp.Expr, catalog: Catalog) -> frozenset[str] | None:
    """Return the columns of a table of the catalog in lower case, None for what is anything else."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        return None
    alias = node.args.get("alias")
    if node.args.get("joins") or (alias is not None and alias.columns) or referenced_cte(node) is not None:
        return None
    return frozenset(column.name.lower() for column in catalog.table(node.name).columns)


_RANKS = (exp.Rank, exp.DenseRank, exp.RowNumber)
_COMPARED: dict[type[exp.Expr], Callable[[int, int], bool]] = {
    exp.EQ: int.__eq__,
    exp.NEQ: int.__ne__,
    exp.LT: int.__lt__,
    exp.LTE: int.__le__,
    exp.GT: int.__gt__,
    exp.GTE: int.__ge__,
}
# What a SELECT of plain rows may have.
_OF_ROWS = frozenset({"expressions", "from_", "joins", "where"})
_MORE_THAN_VALUES = (exp.Query, exp.AggFunc, exp.Window, exp.UDTF)


def without_own_members(tree: exp.Query) -> exp.Query:
    """Return a qualified query without each IN that asks for its own rows. NULL is left out as before."""
    if not any(_asked(each) for each in find_all(tree, exp.In)):
        return tree
    tree = tree.copy()
    for asked in list(find_all(tree, exp.In)):
        select, inner = asked.parent_select, _asked(asked)
        if select is not None and inner is not None and not outer_columns(inner):
            rows = _as_rows(inner)
            if rows is not None and _asks_own_rows(asked, rows, select):
                asked.replace(exp.not_(asked.this.is_(exp.null())))
    return tree


def _as_rows(query: exp.Select) -> exp.Select | None:
    """Return a query of plain rows with the same set of values, None where it is not known.

    How often a value is there is no matter.
    """
    query = query.copy()
    for select in _chain(query):
        _set_ranks_alone(select)
        if _has_keys_alone(select):
            select.set("group", None)
    if any(_sources(select) is None for select in find_all(query, exp.Select)):
        return None
    found = merge_subqueries(query)
    return found if isinstance(found, exp.Select) else None


def _asked(condition: exp.In) -> exp.Select | None:
    query = condition.args.get("query")
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    return query if isinstance(query, exp.Select) else None


def _chain(select: exp.Select | None) -> Iterator[exp.Select]:
    """Yield a SELECT, and each one that is all of the FROM of the one before, where that keeps the set."""
    while select is not None:
        yield select
        from_ = select.args.get("from_")
        source = from_.this if from_ and not select.args.get("joins") else None
        is_plain = not _more_than(select, _OF_ROWS | {"group"}) and not _own(select, exp.AggFunc, exp.Window)
        if not is_plain or not isinstance(source, exp.Subquery) or source.args.get("sample"):
            return
        select = source.this if isinstance(source.this, exp.Select) else None


def _set_ranks_alone(select: exp.Select) -> None:
    """Write 1 in the place of each rank in a partition by all group keys, in place."""
    keys = _plain_keys(select)
    if not keys:
        return
    for window in [node for item in select.expressions for node in own_nodes(item, exp.Window)]:
        partition = window.args.get("partition_by") or []
        if isinstance(window.this, _RANKS) and all(key in partition for key in keys):
            window.replace(exp.cast(exp.Literal.number(1), exp.DType.BIGINT))


def _has_keys_alone(select: exp.Select) -> bool:
    """Whether a SELECT groups by keys, and nothing else depends on the groups."""
    more = _more_than(select, _OF_ROWS | {"group"}) or _own(select, exp.AggFunc, exp.Window, exp.UDTF)
    return bool(_plain_keys(select)) and not more


def _plain_keys(select: exp.Select) -> list[exp.Expr]:
    """Return the keys of GROUP BY, none where there are several sets of them, or `()`."""
    group = select.args.get("group")
    if group is None or any(value for name, value in group.args.items() if name != "expressions"):
        return []
    keys: list[exp.Expr] = group.expressions
    return [] if any(isinstance(key, exp.Tuple) for key in keys) else keys


def _more_than(select: exp.Select, parts: frozenset[str]) -> bool:
    return any(value for name, value in select.args.items() if name not in parts)


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> bool:
    return any(own_nodes(item, kind) for item in select.expressions for kind in kinds)


def _asks_own_rows(asked: exp.In, inner: exp.Select, select: exp.Select) -> bool:
    """Whether each row of a SELECT that meets its other conditions is among those that one of them asks.

    inner: what that one asks, as plain rows.
    """
    where = select.args.get("where")
    if where is None or len(inner.expressions) != 1 or _more_than(inner, _OF_ROWS):
        return False
    others = [each for each in conjuncts_of(where.this) if each is not asked]
    if len(others) == len(conjuncts_of(where.this)) or (names := _same_tables(inner, select)) is None:
        return False
    conditions = [each for each in _conditions(inner) if not _is_true(each)]
    value = inner.expressions[0].unalias()
    if any(each.find(*_MORE_THAN_VALUES) for each in (value, *conditions)):
        return False
    met = {_text(each, {}) for each in (*others, *_joined(select))}
    is_same = _text(value, names) == _text(asked.this, {})
    return is_same and all(_text(each, names) in met for each in conditions)


def _same_tables(inner: exp.Select, outer: exp.Select) -> dict[str, str] | None:
    """Return the outer name of each table that the inner SELECT reads, by its inner name.

    None where either is no inner join, or a table is not there once in both.
    """
    inside, outside = _sources(inner), _sources(outer)
    if inside is None or outside is None or any(_is_no_table(each) for each in inside):
        return None
    found: dict[str, str] = {}
    for source in inside:
        of_inner, of_outer = (
            [each for each in sources if isinstance(each, exp.Table) and each.name == source.name]
            for sources in (inside, outside)
        )
        if len(of_inner) != 1 or len(of_outer) != 1 or _is_no_table(of_outer[0]):
            return None
        found[source.alias_or_name] = of_outer[0].alias_or_name
    return found


def _sources(select: exp.Select) -> list[exp.Expr] | None:
    """Return what an inner join reads, None where it is another join."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    if from_ is None or select.args.get("laterals") or any(map(_is_no_inner_join, joins)):
        return None
    return [from_.this, *(join.this for join in joins)]


def _is_no_table(source: exp.Expr) -> bool:
    more = {name for name, value in source.args.items() if value} - {"this", "alias"}
    return not isinstance(source, exp.Table) or bool(more)


def _is_no_inner_join(join: exp.Join) -> bool:
    return bool(join.side or join.method or join.args.get("using")) or join.kind not in ("", "INNER", "CROSS")


def _conditions(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return [*conjuncts_of(where.this if where else None), *_joined(select)]


def _joined(select: exp.Select) -> list[exp.Expr]:
    joins = select.args.get("joins") or []
    return [each for join in joins for each in conjuncts_of(join.args.get("on"))]


def _is_true(condition: exp.Expr) -> bool:
    """Whether a comparison of two whole numbers is true."""
    compare = _COMPARED.get(type(condition))
    if compare is None or not isinstance(condition, exp.Binary):
        return False
    left, right = (_whole(side.unnest()) for side in (condition.left, condition.right))
    return left is not None and right is not None and compare(left, right)


def _whole(value: exp.Expr) -> int | None:
    if isinstance(value, exp.Cast) and value.to.is_type(exp.DType.BIGINT):
        value = value.this
    return int(value.name) if isinstance(value, exp.Literal) and value.is_int else None


def _text(condition: exp.Expr, names: Mapping[str, str]) -> str:
    """Return a condition as text, with other names of its tables. Both sides of = may change places."""
    condition = exp.paren(condition.copy()).unnest()
    for column in find_all(condition, exp.Column):
        column.set("table", exp.to_identifier(names.get(column.table, column.table), quoted=True))
    if isinstance(condition, exp.EQ):
        return " = ".join(sorted(side.unnest().sql(DIALECT) for side in (condition.left, condition.right)))
    return condition.sql(DIALECT)


_KINDS = ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI", "POSITIONAL", "ASOF")
_SIDES = ("", "LEFT", "RIGHT", "FULL")
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(
        (
            *("with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "windows"),
            *("qualify", "distinct", "order", "limit", "offset", "sample", "pivots"),
        )
    ),
    exp.Join: frozenset(("this", "on", "side", "kind", "using", "method")),
    exp.Table: frozenset(("this", "alias", "sample", "pivots")),
    exp.Subquery: frozenset(("this", "alias", "sample", "pivots", "with_")),
}
_CTE = "cte"  # the key of a CTE's number in the metadata of nodes


def flatten(draft: Draft) -> Draft:
    """Return the draft with its tree as one qualified SELECT.

    >>> sql = "WITH far AS (SELECT fare FROM trips WHERE km > 9) SELECT sum(fare) AS s FROM far"
    >>> print(shown(after(flatten, sql).select))
    SELECT SUM(trips.fare) AS s FROM trips AS trips WHERE trips.km > 9
    >>> refusal(flatten, "SELECT zone FROM trips UNION SELECT zone FROM zones")
    'UNION combines whole answers'
    """
    if not isinstance(draft.tree, exp.Select):
        raise NotOnlineError(f"{draft.tree.key.upper()} combines whole answers")
    tree = copied(qualified(draft).tree)
    assert isinstance(tree, exp.Select)
    return replace(draft, tree=with_explicit_keys(tree), is_qualified=True)


def qualified(draft: Draft) -> Draft:
    """Return the draft without WITH, its names qualified, its derived tables merged where that is sound."""
    if draft.is_qualified:
        return draft
    if call := volatile_function(draft.tree):
        raise NotOnlineError(f"{call} must have one value for the whole query, so it runs once")
    tree = semi_joins_as_exists(draft.tree, draft.catalog)
    if any(with_.recursive for with_ in find_all(tree, exp.With)):
        raise NotOnlineError("a recursive WITH needs all rows at each round")
    _check_parts(tree)
    if any(map(is_array_of_query, find_all(tree, exp.Anonymous))):
        raise NotOnlineError("ARRAY takes all rows of its query")
    tree = inline_ctes(_qualified(draft, _with_renamed_columns_selected(draft, tree)))
    if (row := find_first(tree, exp.TableColumn)) is not None:
        raise NotOnlineError(f"it takes whole rows of {row.name} as values")
    check_columns_are_where_they_are_named(tree, lambda name: _columns_of(draft, name))
    tree = with_groups_below(with_one_name_each(tree))
    tree = shared_columns_as_left(without_own_members(merged(tree)))
    check_each_key_has_one_name(draft.tree, tree)
    return replace(draft, tree=tree, is_qualified=True)


def merged(tree: exp.Query) -> exp.Query:
    """Return a qualified query with its derived tables merged where that is sound."""
    if find_first(tree, exp.Subquery) is None:
        return tree
    tree = with_plain_outer_sides(copied(tree))
    if _has_outer_join_over_derived_table(tree) or _has_pivot_without_name(tree):
        return tree
    try:
        tree = merge_subqueries(tree)
    except (KeyError, OptimizeError) as error:  # it takes a scalar subquery of ON for a table that is joined
        raise NotOnlineError("its subqueries in FROM could not be read as one query") from error
    assert isinstance(tree, exp.Query)
    return tree


def _has_pivot_without_name(tree: exp.Query) -> bool:
    """Whether there is a FROM (PIVOT …). Qualifying gives it no alias, and sqlglot cannot merge around it."""
    return any(isinstance(each.this, exp.Pivot) and not each.alias for each in find_all(tree, exp.Subquery))


def _qualified(draft: Draft, tree: exp.Query) -> exp.Query:
    tree = with_named_outputs(tree)
    has_star = has_star_over_query(tree)
    try:
        qualified = qualify(tree, schema=draft.binder.schema, dialect=DIALECT, quote_identifiers=True)
    except (OptimizeError, AssertionError) as error:  # it asserts that 1 in ORDER BY 1 is no column of a *
        # The error's line and column are those of the text that is being rewritten, which nobody wrote.
        found = str(error).partition(". Line:")[0]
        name = f" ({found})" if found else ""
        raise NotOnlineError(f"not all of its names could be resolved{name}") from error
    assert isinstance(qualified, exp.Query)
    _forget_positions(qualified)
    return with_columns_told_apart(qualified, has_star_over_query=has_star)


def _check_parts(tree: exp.Query) -> None:
    """Raise NotOnlineError for what a SELECT, a join or an item of FROM has and no rule knows.

    `a JOIN BY (TYPE single) b` is one. So is `a LEFT JOIN (b JOIN c ON p) ON q`: parse_query has written out
    the brackets of all other joins.
    """
    for node in find_all(tree, *_PARTS):
        for part in sorted(set(_given(node)) - _PARTS[type(node)]):
            joined_in_brackets = (
                part == "joins" and isinstance(node.parent, exp.Subquery) and node.parent.alias
            )
            if not joined_in_brackets:
                raise NotOnlineError(f"no rule knows the {part} of {_quoted(node)}")
        if isinstance(node, exp.Join) and (node.kind not in _KINDS or node.side not in _SIDES):
            raise NotOnlineError(f"no rule knows {_quoted(node)}")


def _quoted(node: exp.Expr) -> str:
    text = said(node).strip()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _with_renamed_columns_selected(draft: Draft, tree: exp.Query) -> exp.Query:
    """Return a query that reads `(SELECT zone AS z FROM zones) AS t` for `zones AS t(z)`."""
    renaming = [
        table
        for table in find_all(tree, exp.Table)
        if (alias := table.args.get("alias")) is not None
        and alias.columns
        and isinstance(table.this, exp.Identifier)
        and referenced_cte(table) is None
        and set(_given(table)) <= {"this", "alias"}
    ]
    if not renaming:
        return tree
    for table in renaming:
        names = [_identifier(name) for name in _columns_of(draft, table.name)]
        renamed = [each.name for each in table.args["alias"].columns]
        # DuckDB lets fewer names be given than there are columns
        shown = [*renamed, *(each.name for each in names[len(renamed) :])]
        columns = [
            exp.alias_(exp.column(name), new, quoted=True) for name, new in zip(names, shown, strict=True)
        ]
        select = exp.select(*columns).from_(exp.Table(this=table.this.copy()))
        table.replace(exp.Subquery(this=select, alias=exp.TableAlias(this=_identifier(table.alias))))
    return tree


def _columns_of(draft: Draft, table: str) -> list[str]:
    return [column.name for column in draft.catalog.table(table).columns]


def _forget_positions(tree: exp.Query) -> None:
    """Drop where each name stands in the text, which copies would carry along. No error needs it any more.

    An empty dictionary would be copied with each node, too, and that takes a third of all copying.
    """
    for node in tree.walk():
        if node.meta_get("line") is not None:
            node._meta = None


def inline_ctes(tree: exp.Query) -> exp.Query:
    """Return the tree with each reference to a CTE replaced by its query.

    This is sound because volatile functions, such as random(), were refused before.
    """
    _number_ctes(tree)
    while with_ := next((node for node in find_all(tree, exp.With) if node.expressions), None):
        scope = with_.parent
        assert scope is not None
        cte = with_.expressions[0]
        cte.pop()
        if not with_.expressions:
            with_.pop()
        for table in list(find_all(scope, exp.Table)):
            if table.meta_get(_CTE) == cte.meta[_CTE]:
                body = copied(cte.this)
                alias = exp.TableAlias(this=_identifier(table.alias_or_name))
                table.replace(exp.Subquery(this=body, alias=alias))
    return tree


def _number_ctes(tree: exp.Query) -> None:
    """Give each CTE a number, and the same number to each reference to it.

    A body that moves elsewhere in the tree so keeps the meaning of the names in it.
    """
    for number, cte in enumerate(find_all(tree, exp.CTE)):
        cte.meta[_CTE] = number
    for table in find_all(tree, exp.Table):
        if not table.db and (referenced := referenced_cte(table)) is not None:
            table.meta[_CTE] = referenced.meta[_CTE]


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def with_explicit_keys(tree: exp.Select) -> exp.Select:
    """Return the tree with its group keys written out, and DISTINCT as group keys. In place."""
    write_out_order_by_all(tree)
    if is_first_of_each(tree):
        return first_of_each(tree)
    if _is_distinct_over_rows(tree, has_on=False):  # it only groups by its outputs
        tree.set("distinct", None)
        tree.set("group", exp.Group(expressions=[item.unalias() for item in tree.expressions]))
    return with_written_keys(tree)


def with_plain_outer_sides(tree: exp.Query) -> exp.Query:
    """Return a qualified query with tables themselves on the outer side of LEFT JOINs, where that is sound.

    Changes the query in place.

    Each row of the outer side is in the join with its own values, so it may be dropped after the join as well
    as before.
    """
    for select in list(find_all(tree, exp.Select)):
        joins = select.args.get("joins") or []
        if not any(join.side == "LEFT" for join in joins) or not all(map(_keeps_its_outer_side, joins)):
            continue
        from_ = select.args["from_"]
        if (rows := _plain_rows(from_.this)) is None:
            continue
        table, condition = rows
        name = from_.this.alias
        table.set("alias", exp.TableAlias(this=_identifier(name)))
        from_.set("this", table)
        if condition is not None:
            for column in find_all(condition, exp.Column):
                column.set("table", _identifier(name))
            select.where(condition, copy=False)
    return tree


def _keeps_its_outer_side(join: exp.Join) -> bool:
    return join.side in ("", "LEFT") and join.kind in ("", "INNER", "CROSS", "OUTER") and not join.method


def _plain_rows(item: exp.Expr) -> tuple[exp.Table, exp.Expr | None] | None:
    """Return the table and the condition of `SELECT a, b FROM t WHERE …`; None for what is more than that."""
    if not isinstance(item, exp.Subquery) or not isinstance(body := item.this, exp.Select) or not item.alias:
        return None
    more = {key for key, value in body.args.items() if value} - {"expressions", "from_", "where"}
    table = body.args["from_"].this if body.args.get("from_") else None
    where = body.args.get("where")
    if more or not isinstance(table, exp.Table) or set(_given(table)) - {"this", "alias", "db", "catalog"}:
        return None
    if item.args["alias"].args.get("columns") or (
        where is not None and find_first(where, exp.Query, exp.Window)
    ):
        return None
    if not all(
        isinstance(each.unalias(), exp.Column) and each.alias == each.unalias().name
        for each in body.expressions
    ):
        return None
    return table.copy(), None if where is None else where.this.copy()


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value]


def _has_outer_join_over_derived_table(tree: exp.Expr) -> bool:
    """Whether an outer join reads a derived table.

    Merging that table could turn its NULL-filled columns into constants.
    """
    for select in find_all(tree, exp.Select):
        joins = select.args.get("joins") or []
        outer = any(join.side in ("LEFT", "RIGHT", "FULL") for join in joins)
        from_ = select.args.get("from_")
        items = [join.this for join in joins] + ([from_.this] if from_ else [])
        if outer and any(isinstance(item, exp.Subquery) for item in items):
            return True
    return False


def check_shape(draft: Draft) -> Draft:
    """Return the draft with the note whether it returns rows. Raises NotOnlineError for any other shape.

    >>> after(check_shape, "SELECT fare FROM trips").returns_rows
    True
    >>> refusal(check_shape, "SELECT sum(fare) OVER () FROM trips")
    'a window function needs all rows of its window'
    """
    select = draft.select
    if select.args.get("distinct") and select.args.get("group"):
        raise NotOnlineError("SELECT DISTINCT of aggregates needs all groups")
    for part, words in (("qualify", "QUALIFY"), ("sample", "TABLESAMPLE"), ("pivots", "PIVOT")):
        if select.args.get(part):
            raise NotOnlineError(f"{words} is not rewritten")
    if find_first(select, exp.Collate):
        raise NotOnlineError("text that COLLATE makes equal would not be equal between partial answers")
    if find_first(select, exp.Columns):
        raise NotOnlineError("COLUMNS stands for several columns")
    if any(own_nodes(item, exp.Window) for item in select.expressions):
        raise NotOnlineError("a window function needs all rows of its window")
    _check_subqueries_after_rows(select)
    _check_group(select)
    _check_order_and_limit(select)
    grouped = select.args.get("group") or select.args.get("having")
    if grouped or any(own_nodes(item, exp.AggFunc) for item in select.expressions):
        return draft
    if select.args.get("distinct"):
        raise NotOnlineError("SELECT DISTINCT ON picks one row of several")
    return replace(draft, returns_rows=True)


def check_aggregates(draft: Draft, otherwise: str) -> Draft:
    """Return the draft. Raises NotOnlineError, with the text `otherwise`, where it has no aggregates."""
    if draft.returns_rows:
        raise NotOnlineError(otherwise)
    return draft


def _check_subqueries_after_rows(select: exp.Select) -> None:
    """Raise NotOnlineError for a subquery after WHERE, but for EXISTS and IN about a row that is read."""
    group = select.args.get("group")
    keys = group.expressions if group else []
    is_of_rows = not group and not any(own_nodes(item, exp.AggFunc) for item in select.expressions)
    allowed = {
        id(query)
        for item in select.expressions
        for query in own_nodes(item, exp.Query)
        if _asks(query) and (is_of_rows or _is_about_a_row(query, keys))
    }
    after = [*select.expressions, select.args.get("having"), select.args.get("order")]
    for part in filter(None, after):
        if any(id(query) not in allowed for query in own_nodes(part, exp.Query)):
            raise NotOnlineError("a subquery stands among its outputs, its HAVING or its ORDER BY")


def _asks(query: exp.Expr) -> bool:
    """Whether a subquery is that of EXISTS or IN."""
    return isinstance(query.parent, exp.Exists | exp.In)


def _is_about_a_row(query: exp.Expr, keys: list[exp.Expr]) -> bool:
    """Whether a subquery stands inside an aggregate or a group key."""
    node = query.parent
    while node is not None and not isinstance(node, exp.Select):
        if isinstance(node, exp.AggFunc | exp.Filter) or node in keys:
            return True
        node = node.parent
    return False


def _check_group(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None:
        return
    if any(not _asks(query) for key in group.expressions for query in own_nodes(key, exp.Query)):
        raise NotOnlineError("a group key is a subquery")
    names = (each for key in group.expressions for each in own_nodes(key, exp.Column))
    if name := next((each.name for each in names if isinstance(each, exp.Column) and not each.table), None):
        raise NotOnlineError(f"a group key computes with the output {name}; write out what that stands for")


def _check_order_and_limit(select: exp.Select) -> None:
    order = select.args.get("order")
    for ordered in order.expressions if order else ():
        if isinstance(ordered.this, exp.Var) or ordered.args.get("with_fill"):
            raise NotOnlineError(f"ORDER BY {said(ordered)} is not rewritten")
    limit = select.args.get("limit")
    options = limit.args.get("limit_options") if limit else None
    if isinstance(limit, exp.Fetch) or (options and options.args.get("percent")):
        raise NotOnlineError("LIMIT is only rewritten with a number of rows")
    for part in (limit, select.args.get("offset")):
        if part is not None and not isinstance(part.expression, exp.Literal):
            raise NotOnlineError("LIMIT and OFFSET are only rewritten with a plain number")
