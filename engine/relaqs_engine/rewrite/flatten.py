"""Rule: make the query one flat SELECT.

Names are qualified, CTEs are put in their places, and derived tables are merged where that is sound.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from relaqs_engine.rewrite.draft import Draft, NotOnlineError, own_nodes
from relaqs_engine.rewrite.first_of_each import first_of_each, is_first_of_each
from relaqs_engine.rewrite.grouping import (
    check_each_key_has_one_name,
    with_written_keys,
    write_out_order_by_all,
)
from relaqs_engine.rewrite.groups_below import with_groups_below
from relaqs_engine.rewrite.named_outputs import (
    has_star_over_query,
    with_columns_told_apart,
    with_named_outputs,
)
from relaqs_engine.rewrite.own_members import without_own_members
from relaqs_engine.rewrite.scopes import check_columns_are_where_they_are_named, with_one_name_each
from relaqs_engine.rewrite.semi_joins import semi_joins_as_exists
from relaqs_engine.rewrite.shared_columns import shared_columns_as_left
from relaqs_engine.sql.functions import is_array_of_query, volatile_function
from relaqs_engine.sql.parse import DIALECT, referenced_cte

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

    >>> from relaqs_engine.planning.example import after, refusal, shown
    >>> sql = "WITH far AS (SELECT fare FROM trips WHERE km > 9) SELECT sum(fare) AS s FROM far"
    >>> print(shown(after(flatten, sql).select))
    SELECT SUM(trips.fare) AS s FROM trips AS trips WHERE trips.km > 9
    >>> refusal(flatten, "SELECT zone FROM trips UNION SELECT zone FROM zones")
    'UNION combines whole answers'
    """
    if not isinstance(draft.tree, exp.Select):
        raise NotOnlineError(f"{draft.tree.key.upper()} combines whole answers")
    tree = qualified(draft).tree.copy()
    assert isinstance(tree, exp.Select)
    return replace(draft, tree=with_explicit_keys(tree), is_qualified=True)


def qualified(draft: Draft) -> Draft:
    """Return the draft without WITH, its names qualified, its derived tables merged where that is sound."""
    if draft.is_qualified:
        return draft
    if call := volatile_function(draft.tree):
        raise NotOnlineError(f"{call} must have one value for the whole query, so it runs once")
    tree = semi_joins_as_exists(draft.tree, draft.catalog)
    if any(with_.recursive for with_ in tree.find_all(exp.With)):
        raise NotOnlineError("a recursive WITH needs all rows at each round")
    _check_parts(tree)
    if any(map(is_array_of_query, tree.find_all(exp.Anonymous))):
        raise NotOnlineError("ARRAY takes all rows of its query")
    tree = inline_ctes(_qualified(draft, _with_renamed_columns_selected(draft, tree)))
    if (row := tree.find(exp.TableColumn)) is not None:
        raise NotOnlineError(f"it takes whole rows of {row.name} as values")
    check_columns_are_where_they_are_named(tree, lambda name: _columns_of(draft, name))
    tree = with_groups_below(with_one_name_each(tree))
    tree = shared_columns_as_left(without_own_members(merged(tree)))
    check_each_key_has_one_name(draft.tree, tree)
    return replace(draft, tree=tree, is_qualified=True)


def merged(tree: exp.Query) -> exp.Query:
    """Return a qualified query with its derived tables merged where that is sound."""
    if tree.find(exp.Subquery) is None:
        return tree
    tree = with_plain_outer_sides(tree.copy())
    if _has_outer_join_over_derived_table(tree) or _has_pivot_without_name(tree):
        return tree
    try:
        tree = merge_subqueries(tree)
    except (KeyError, OptimizeError) as error:  # it takes a scalar subquery of ON for a table that is joined
        raise NotOnlineError(f"its derived tables could not be merged ({error})") from None
    assert isinstance(tree, exp.Query)
    return tree


def _has_pivot_without_name(tree: exp.Query) -> bool:
    """Whether there is a FROM (PIVOT …). Qualifying gives it no alias, and sqlglot cannot merge around it."""
    return any(isinstance(each.this, exp.Pivot) and not each.alias for each in tree.find_all(exp.Subquery))


def _qualified(draft: Draft, tree: exp.Query) -> exp.Query:
    tree = with_named_outputs(tree)
    has_star = has_star_over_query(tree)
    try:
        qualified = qualify(tree, schema=draft.binder.schema, dialect=DIALECT, quote_identifiers=True)
    except (OptimizeError, AssertionError) as error:  # it asserts that 1 in ORDER BY 1 is no column of a *
        raise NotOnlineError(f"its names could not be resolved for rewriting ({error})") from None
    assert isinstance(qualified, exp.Query)
    _forget_positions(qualified)
    return with_columns_told_apart(qualified, has_star_over_query=has_star)


def _check_parts(tree: exp.Query) -> None:
    """Raise NotOnlineError for what a SELECT, a join or an item of FROM has and no rule knows.

    `a JOIN BY (TYPE single) b` is one. So is `a LEFT JOIN (b JOIN c ON p) ON q`: parse_query has written out
    the brackets of all other joins.
    """
    for node in tree.find_all(*_PARTS):
        for part in sorted(set(_given(node)) - _PARTS[type(node)]):
            joined_in_brackets = (
                part == "joins" and isinstance(node.parent, exp.Subquery) and node.parent.alias
            )
            if not joined_in_brackets:
                raise NotOnlineError(f"no rule knows the {part} of {_quoted(node)}")
        if isinstance(node, exp.Join) and (node.kind not in _KINDS or node.side not in _SIDES):
            raise NotOnlineError(f"no rule knows {_quoted(node)}")


def _quoted(node: exp.Expr) -> str:
    text = node.sql(DIALECT).strip()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _with_renamed_columns_selected(draft: Draft, tree: exp.Query) -> exp.Query:
    """Return a query that reads `(SELECT zone AS z FROM zones) AS t` for `zones AS t(z)`."""
    renaming = [
        table
        for table in tree.find_all(exp.Table)
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
    while with_ := next((node for node in tree.find_all(exp.With) if node.expressions), None):
        scope = with_.parent
        assert scope is not None
        cte = with_.expressions[0]
        cte.pop()
        if not with_.expressions:
            with_.pop()
        for table in list(scope.find_all(exp.Table)):
            if table.meta_get(_CTE) == cte.meta[_CTE]:
                body = cte.this.copy()
                alias = exp.TableAlias(this=_identifier(table.alias_or_name))
                table.replace(exp.Subquery(this=body, alias=alias))
    return tree


def _number_ctes(tree: exp.Query) -> None:
    """Give each CTE a number, and the same number to each reference to it.

    A body that moves elsewhere in the tree so keeps the meaning of the names in it.
    """
    for number, cte in enumerate(tree.find_all(exp.CTE)):
        cte.meta[_CTE] = number
    for table in tree.find_all(exp.Table):
        if not table.db and (referenced := referenced_cte(table)) is not None:
            table.meta[_CTE] = referenced.meta[_CTE]


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _is_plain_distinct(tree: exp.Select) -> bool:
    """Whether SELECT DISTINCT only groups by its outputs."""
    distinct = tree.args.get("distinct")
    if distinct is None or distinct.args.get("on") or tree.args.get("group"):
        return False
    return not any(own_nodes(item, kind) for item in tree.expressions for kind in (exp.AggFunc, exp.Window))


def with_explicit_keys(tree: exp.Select) -> exp.Select:
    """Return the tree with its group keys written out, and DISTINCT as group keys. In place."""
    write_out_order_by_all(tree)
    if is_first_of_each(tree):
        return first_of_each(tree)
    if _is_plain_distinct(tree):
        tree.set("distinct", None)
        tree.set("group", exp.Group(expressions=[item.unalias() for item in tree.expressions]))
    return with_written_keys(tree)


def with_plain_outer_sides(tree: exp.Query) -> exp.Query:
    """Return a qualified query with tables themselves on the outer side of LEFT JOINs, where that is sound.

    Changes the query in place.

    Each row of the outer side is in the join with its own values, so it may be dropped after the join as well
    as before.

    >>> from relaqs_engine.planning.example import after, shown
    >>> few = "(SELECT zone, fare FROM trips WHERE fare > 9) AS few"
    >>> sql = f"SELECT sum(fare) AS s FROM {few} LEFT JOIN zones ON few.zone = zones.zone"
    >>> print(shown(after(flatten, sql).select))
    SELECT SUM(few.fare) AS s FROM trips AS few
    LEFT JOIN zones AS zones ON few.zone = zones.zone WHERE few.fare > 9
    """
    for select in list(tree.find_all(exp.Select)):
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
            for column in condition.find_all(exp.Column):
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
    if item.args["alias"].args.get("columns") or (where is not None and where.find(exp.Query, exp.Window)):
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
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        outer = any(join.side in ("LEFT", "RIGHT", "FULL") for join in joins)
        from_ = select.args.get("from_")
        items = [join.this for join in joins] + ([from_.this] if from_ else [])
        if outer and any(isinstance(item, exp.Subquery) for item in items):
            return True
    return False
