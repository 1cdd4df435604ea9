"""Columns are found behind aliases, derived tables, CTEs and subqueries, whichever way they are equated."""

from __future__ import annotations

import pytest
from relaqs_engine.advisor.advise import JoinColumns, join_columns
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.normalize import flatten
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.parse import parse_query

from tests.engine.rewrite.in_memory import CATALOG

ORDER_LINES = {(("lineitem", "l_orderkey"), ("orders", "o_orderkey"))}


@pytest.fixture(scope="module")
def binder() -> Binder:
    return Binder(CATALOG)


def found_in(sql: str, binder: Binder) -> JoinColumns:
    parsed = parse_query(sql, CATALOG.tables)
    draft = flatten(Draft(parsed.sql, CATALOG, binder, parsed.tree, schema=()))
    return join_columns(draft.tree, {name: CATALOG.table(name) for name in parsed.tables})


@pytest.mark.parametrize(
    ("sql", "pairs"),
    [
        ("SELECT count(*) FROM lineitem, orders WHERE l_orderkey = o_orderkey", ORDER_LINES),
        ("SELECT count(*) FROM lineitem l LEFT JOIN orders o ON l.l_orderkey = o.o_orderkey", ORDER_LINES),
        ("SELECT count(*) FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM orders)", ORDER_LINES),
        (
            "SELECT count(*) FROM orders, (SELECT l_orderkey AS k, sum(l_tax) FROM lineitem GROUP BY k) AS t "
            "WHERE t.k = o_orderkey",
            ORDER_LINES,
        ),
        (
            "WITH t AS (SELECT L_ORDERKEY AS k, count(*) AS n FROM LineItem GROUP BY 1) "
            "SELECT avg(n) FROM t WHERE EXISTS (SELECT 1 FROM orders WHERE t.k = o_orderkey)",
            ORDER_LINES,
        ),
        (
            "SELECT count(*) FROM lineitem a JOIN lineitem b USING (l_partkey)",
            {(("lineitem", "l_partkey"), ("lineitem", "l_partkey"))},
        ),
        (
            "SELECT count(*) FROM lineitem t WHERE t.l_orderkey IN (SELECT t.o_orderkey FROM orders t)",
            ORDER_LINES,
        ),
        ("SELECT count(*) FROM lineitem, orders WHERE l_orderkey = o_orderkey + 1", set()),
        ("SELECT count(*) FROM lineitem WHERE l_orderkey IN (1, 2)", set()),
        (
            "SELECT count(*) FROM orders, (SELECT max(l_orderkey) AS k FROM lineitem GROUP BY l_tax) AS t "
            "WHERE t.k = o_orderkey",
            set(),
        ),
    ],
)
def test_equated_columns(sql: str, pairs: set[object], binder: Binder) -> None:
    def unordered(pair: object) -> frozenset[object]:
        return frozenset(pair)  # type: ignore[call-overload, no-any-return]

    assert set(map(unordered, found_in(sql, binder).equated)) == set(map(unordered, pairs))


def test_grouped_columns(binder: Binder) -> None:
    sql = "SELECT n, max(t) FROM (SELECT l_partkey, l_suppkey + 1 AS s, count(*) AS n, max(l_tax) AS t "
    sql += "FROM lineitem GROUP BY l_partkey, s) GROUP BY n"
    found = found_in(sql, binder)
    assert found.grouped == (("lineitem", "l_partkey"),)
    assert found.columns == found.grouped


def test_each_column_is_named_once(binder: Binder) -> None:
    sql = (
        "SELECT l_orderkey, count(*) FROM lineitem, orders WHERE l_orderkey = o_orderkey GROUP BY l_orderkey"
    )
    assert found_in(sql, binder).columns == (("lineitem", "l_orderkey"), ("orders", "o_orderkey"))
