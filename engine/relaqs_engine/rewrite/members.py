"""Rule: EXISTS and IN over all partitions ask a table of members, which is read whole before the sample.

    SELECT count(*) FROM items WHERE EXISTS (SELECT 1 FROM orders WHERE customer = part AND total > 9)

Items and orders do not meet by partition here: the order that an item asks for may lie anywhere. So the
*members*, the distinct values by which inner rows are found, are collected once. The outer rows are sampled:

    members:  SELECT DISTINCT customer AS c0 FROM orders WHERE total > 9
    instead:  EXISTS (SELECT 1 FROM members WHERE c0 = part)

Members are the same in all mini-batches, so they are one more static side, and nothing else of the plan
differs. What they cost is time before the first mini-batch. It is predicted from the bytes and rows of the
columns that are read. Where the members are most of the query, a sample of the rest comes too late to be of
use, and the query runs as a whole.

Aggregates over all partitions are no members. They are estimated while they are read (`rewrite/stages.py`).

The decision: docs/decisions/0033-members.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.rewrite.draft import (
    Draft,
    aliases_in,
    as_table,
    conjuncts_of,
    relates_all_rows,
    tables_in,
)
from relaqs_engine.rewrite.read_whole import repeats_values
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.rewrite.sources import choose_streams
from relaqs_engine.rewrite.subqueries import is_local_query
from relaqs_engine.sql.parse import DIALECT

_ALIAS = "relaqs_members_"
_A_ROW_IS_THERE = exp.Literal.number(1)  # what members say where nothing of them is compared


def read_members_whole(draft: Draft) -> Draft:
    """Return the draft with each EXISTS and IN over all partitions asking a table of members.

    >>> from relaqs_engine.planning.example import after, shown
    >>> sql = "SELECT count(*) AS n FROM items WHERE EXISTS (SELECT * FROM orders WHERE customer = part)"
    >>> print(shown(after(read_members_whole, sql).select.args["where"].this))
    EXISTS(SELECT relaqs_members_0.c0 FROM (SELECT DISTINCT orders.customer AS c0 FROM orders AS orders)
    AS relaqs_members_0 WHERE relaqs_members_0.c0 = items.part)
    """
    tree = draft.select.copy()
    own = replace(draft, tree=tree)
    aliases: dict[exp.Query, str] = {}  # equal queries have one, so that a group key stays equal to an output
    made: set[str] = set()
    for query in [each for each in _asked(tree) if not is_local_query(own, each)]:
        alias = aliases.setdefault(query.copy(), f"{_ALIAS}{len(aliases)}")
        if _put_members(draft, query, alias):
            made.add(alias)
    if not made:
        return draft
    return replace(choose_streams(own), members=frozenset(made))


def _asked(tree: exp.Select) -> list[exp.Query]:
    """Return the queries of EXISTS and IN, but for those inside other subqueries."""
    found = [
        node.this if isinstance(node, exp.Exists) else node.args.get("query")
        for node in tree.find_all(exp.Exists, exp.In)
    ]
    queries = [node.this if isinstance(node, exp.Subquery) else node for node in found]
    return [each for each in queries if isinstance(each, exp.Query) and each.parent_select is tree]


def _put_members(draft: Draft, query: exp.Query, alias: str) -> bool:
    """Let a query ask its members. False where more than the values of its single rows decides."""
    found = members_and_asking(query, alias, lambda members: repeats_values(draft, members))
    if found is None:
        return False
    members, asking = found
    draft.binder.describe(members.sql(DIALECT))  # a name may mean another table where the members stand
    query.replace(asking)
    return True


def members_and_asking(
    query: exp.Query, alias: str, repeats: Callable[[exp.Select], bool]
) -> tuple[exp.Query, exp.Select] | None:
    """Return the members that a query of EXISTS or IN asks, and the query over them that takes its place.

    None where more than the values of its single rows decides.

    Args:
        query: the query, qualified. It stays as it is.
        alias: the name of the table of members.
        repeats: whether members are to be made distinct.
    """
    if query.find(exp.AggFunc, exp.TableSample) or any(map(relates_all_rows, query.find_all(exp.Select))):
        return None
    if not all(isinstance(table.this, exp.Identifier) for table in tables_in(query)):
        return None
    found = _of_select(query, alias, repeats) if isinstance(query, exp.Select) else _of_whole(query, alias)
    return None if found is None or outer_columns(found[0]) else found


def _of_whole(query: exp.Query, alias: str) -> tuple[exp.Query, exp.Select]:
    """Return a set operation as members, and the query over them."""
    columns = [exp.column(name, alias, quoted=True) for name in query.named_selects]
    return query, exp.select(*columns).from_(query.subquery(alias))


def _of_select(
    query: exp.Select, alias: str, repeats: Callable[[exp.Select], bool]
) -> tuple[exp.Query, exp.Select] | None:
    """Return the members of a SELECT, and the query over them with the conditions that name outer rows.

    None where other parts of it name outer rows, or could not stand over members.
    """
    outside = {column.table for column in outer_columns(query)}
    conditions = conjuncts_of(where.this if (where := query.args.get("where")) else None)
    correlated = [each for each in conditions if outside & aliases_in(each)]
    is_grouped = query.args.get("group") or query.args.get("having")
    if correlated and (is_grouped or any(each.find(exp.Query) for each in correlated)):
        return None
    outputs = [] if isinstance(query.parent, exp.Exists) else [each.unalias() for each in query.expressions]
    columns = (column for condition in correlated for column in condition.find_all(exp.Column))
    values = dict.fromkeys([*outputs, *(column for column in columns if column.table not in outside)])
    names = {
        value: exp.column(f"c{i}", alias, quoted=True) for i, value in enumerate(values or [_A_ROW_IS_THERE])
    }
    members = _with_outputs(query, names)
    members = members.where(*(each.copy() for each in conditions if each not in correlated))
    if repeats(members):
        members = members.distinct()
    asking = exp.select(*(names[each].copy() for each in outputs or list(names)[:1]))
    asking = asking.from_(as_table(members, alias))
    return members, asking.where(*(_over(names, each) for each in correlated))


def _with_outputs(query: exp.Select, names: dict[exp.Expr, exp.Column]) -> exp.Select:
    """Return the query without WHERE and order, with the values under their names."""
    members = query.copy()
    members.set("order", None)
    members.set("where", None)
    outputs = [exp.alias_(value.copy(), column.name, quoted=True) for value, column in names.items()]
    members.set("expressions", outputs)
    return members


def _over(names: dict[exp.Expr, exp.Column], condition: exp.Expr) -> exp.Expr:
    """Return a condition with the columns of members in the place of the columns that they were."""
    return condition.transform(lambda node: names[node].copy() if node in names else node)
