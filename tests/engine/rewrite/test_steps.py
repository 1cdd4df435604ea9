"""Single steps of the rewriter and of reading SQL, each by the smallest query that shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlglot
from relaqs_engine.bounds import Bounds
from relaqs_engine.errors import SqlError
from relaqs_engine.execution.state import EstimateCosts
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.planning.aggregate_plan import time_to_estimate
from relaqs_engine.planning.exact import costly_calls
from relaqs_engine.plans.aggregate import UnitSum
from relaqs_engine.rewrite.costly_calls import calls_in, of_counted, split
from relaqs_engine.rewrite.eager_aggregation import before_it_is_decided, sides_are_apart
from relaqs_engine.rewrite.exists import ask_groups_by_key, keys_for_exists, listing_of
from relaqs_engine.rewrite.grouping import with_groups_below
from relaqs_engine.rewrite.having_and_limit import decide_membership
from relaqs_engine.rewrite.method import share_kept
from relaqs_engine.rewrite.normalize import _as_rows, flatten, semi_joins_as_exists, without_own_members
from relaqs_engine.rewrite.render import with_places
from relaqs_engine.rewrite.sampling import choose_streams
from relaqs_engine.rewrite.scans import measuring_tables
from relaqs_engine.rewrite.scopes import with_one_name_each
from relaqs_engine.rewrite.statistics import time_to_average
from relaqs_engine.rewrite.unbounded import check_kept_values
from relaqs_engine.rewrite.units import _bounds_of_sum
from relaqs_engine.sql.aggregate_laws import mark_aggregates, taken_in_order
from relaqs_engine.sql.binder import Binder, check_reading
from relaqs_engine.sql.expressions import Sign, unfolded
from relaqs_engine.sql.functions import check_functions
from sqlglot import exp

from tests.engine.example import CATALOG, after, refusal, shown


def read(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect="duckdb")


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("zone = 7", 0.004),
        ("zone IN (7, 8)", 0.008),
        ("comment LIKE '%a%'", 1.0),
        ("driver > 20000 AND driver <= 30000", 0.2),
    ],
)
def test_conditions_keep_a_share_of_the_rows(condition: str, share: float) -> None:
    draft = after(choose_streams, f"SELECT count(*) FROM trips WHERE {condition}")
    assert round(share_kept(draft.conjuncts, draft.column_of), 4) == share


@pytest.mark.parametrize(("where", "share"), [("", 0.923), ("WHERE zone <= 50", 0.984)])
def test_small_groups_are_within_five_percent_late(where: str, share: float) -> None:
    sql = f"SELECT driver, sum(fare) FROM trips {where} GROUP BY driver"
    assert round(time_to_estimate(after(choose_streams, sql)).share, 3) == share


GROUPS = "SELECT t.a AS a, 0 AS level, SUM(t.x) AS s FROM t GROUP BY t.a"


@pytest.mark.parametrize(
    ("other", "are_apart"),
    [
        ("SELECT NULL, 1, SUM(t.x) FROM t", True),
        (GROUPS, False),
        ("SELECT t.a, 1, t.x FROM t", False),
    ],
)
def test_sides_of_a_union_are_apart_by_a_constant_and_rows_that_differ(other: str, are_apart: bool) -> None:
    union = read(f"{GROUPS} UNION {other}")
    assert isinstance(union, exp.Union)
    assert sides_are_apart(union, lambda query: ["INTEGER"] * len(query.selects)) is are_apart


def test_exists_over_groups_by_their_key_is_in() -> None:
    most = "SELECT part, sum(price) AS s FROM items GROUP BY part ORDER BY s DESC LIMIT 3"
    asked = f"EXISTS (SELECT 1 FROM ({most}) AS t WHERE t.part = i.part)"
    draft = after(flatten, f"SELECT count(*) AS n FROM items AS i WHERE {asked}")
    groups = (
        "SELECT items.part FROM items AS items GROUP BY items.part ORDER BY SUM(items.price) DESC LIMIT 3"
    )
    found = " ".join(shown(ask_groups_by_key(draft).select).split())
    assert found == f"SELECT COUNT(*) AS n FROM items AS i WHERE i.part IN ({groups})"


def test_days_are_averaged_as_microseconds_from_the_middle_of_their_ends() -> None:
    day = Column("day", "DATE", "2020-01-01", "2020-01-03", 0, 3, 12)
    found = time_to_average(read("day"), "DATE", lambda column: day)
    assert found is not None
    assert found.microseconds.sql("duckdb") == "EPOCH_US(CAST(day AS TIMESTAMP)) - 1577923200000000"
    assert found.scale.span_microseconds == 2 * 86_400e6


def test_every_aggregate_is_marked_by_itself() -> None:
    tree = read("SELECT wavg(a, b), mean(a), sem(DISTINCT a), mode() WITHIN GROUP (ORDER BY a)")
    mark_aggregates(tree)
    assert [item.sql("duckdb") for item in tree.expressions] == [
        "(SUM((a) * (b)) / SUM(CASE WHEN NOT (a) IS NULL THEN b ELSE 0 END))",
        "AVG(a)",
        "SEM(DISTINCT a)",
        "MODE(a ORDER BY a)",
    ]


def test_what_duckdb_reads_otherwise_is_refused_with_its_place() -> None:
    check_reading("select x::varchar, len(x) from t", "SELECT CAST(x AS TEXT), LENGTH(x) FROM t")
    with pytest.raises(SqlError) as refused:
        check_reading("SELECT corr(x, y) EXPORT_STATE FROM t", "SELECT CORR(x, y) AS EXPORT_STATE FROM t")
    assert str(refused.value).startswith(
        "ReLAQS takes `corr(x, y) EXPORT_STATE` for `CORR(x, y)`, and DuckDB does not; put parentheses, or "
        "write it otherwise; at line 1, column 8"
    )


def test_values_take_the_place_of_parameters() -> None:
    binder = Binder(CATALOG)
    written = binder.with_constants("SELECT avg(fare) FROM trips WHERE zone = $zone", {"zone": "it's"})
    assert written.sql == "SELECT avg(fare) FROM trips WHERE zone = 'it''s'"
    with pytest.raises(SqlError) as refused:
        binder.with_constants("SELECT 1 WHERE 2 < ?")
    assert str(refused.value).startswith(
        "the query has the parameter ? and no value for it; give one with params=[…], in the shell with "
        "--param 1=…; at line 1, column 20"
    )


def test_a_function_that_sees_more_than_its_arguments_is_refused() -> None:
    with pytest.raises(SqlError, match="the function 'getenv' is not known or not allowed in a query"):
        check_functions(read("SELECT getenv('HOME')"))


def test_groups_are_made_finer_by_what_others_decide() -> None:
    where = "t.km > 9 AND t.driver IN (SELECT b.driver FROM b)"
    query = read(f"SELECT t.zone AS zone, SUM(t.fare) AS fare FROM t WHERE {where} GROUP BY t.zone")
    found = before_it_is_decided(query, lambda table: True, "relaqs_first")
    assert found.sql("duckdb").replace('"', "") == (
        "SELECT relaqs_first.key_0 AS zone, SUM(relaqs_first.value_0) AS fare FROM (SELECT t.zone AS key_0, "
        "t.driver AS key_1, SUM(t.fare) AS value_0 FROM t WHERE t.km > 9 GROUP BY t.zone, t.driver) "
        "AS relaqs_first WHERE relaqs_first.key_1 IN (SELECT b.driver FROM b) GROUP BY relaqs_first.key_0"
    )


def test_rows_are_listed_before_what_a_subquery_decides() -> None:
    found = listing_of(
        read("SELECT t.name AS name FROM t WHERE t.zone = 1 AND t.age > (SELECT AVG(u.age) FROM u)")
    )
    assert found.rows.sql("duckdb") == 'SELECT t.age AS "c0", t.name AS "c1" FROM t WHERE t.zone = 1'
    assert found.around.sql("duckdb").replace('"', "") == (
        "SELECT relaqs_rows_found.c1 AS name WHERE relaqs_rows_found.c0 > (SELECT AVG(u.age) FROM u)"
    )


@pytest.mark.parametrize(
    ("joined", "asked"),
    [
        (
            "SELECT COUNT(*) FROM orders ANTI JOIN items ON id = order_id WHERE total > 9",
            "SELECT COUNT(*) FROM orders WHERE total > 9 "
            "AND NOT EXISTS(SELECT 1 FROM items WHERE id = order_id)",
        ),
        (
            "SELECT AVG(fare) FROM trips SEMI JOIN zones USING (zone)",
            "SELECT AVG(fare) FROM trips WHERE EXISTS(SELECT 1 FROM zones WHERE trips.zone = zones.zone)",
        ),
    ],
)
def test_semi_joins_are_conditions(joined: str, asked: str) -> None:
    assert semi_joins_as_exists(read(joined), CATALOG).sql("duckdb") == asked


OWN = "SELECT u.k AS k FROM t AS u WHERE u.year = 2000 GROUP BY u.k"
RANKED = "SELECT t.k AS k, rank() OVER (PARTITION BY t.k ORDER BY sum(t.x)) AS r FROM t GROUP BY t.k"


@pytest.mark.parametrize(
    ("step", "sql", "found"),
    [
        (
            with_one_name_each,
            "SELECT q.k FROM (SELECT t.zone AS k FROM t) AS q WHERE EXISTS(SELECT 1 FROM t WHERE t.km = q.k)",
            "SELECT q.k FROM (SELECT t.zone AS k FROM t) AS q "
            "WHERE EXISTS(SELECT 1 FROM t AS t_2 WHERE t_2.km = q.k)",
        ),
        (
            without_own_members,
            f"SELECT sum(t.x) FROM t WHERE t.year = 2000 AND t.x > 1 AND t.k IN ({OWN})",
            "SELECT SUM(t.x) FROM t WHERE t.year = 2000 AND t.x > 1 AND NOT t.k IS NULL",
        ),
        (
            _as_rows,
            f"SELECT s.k AS k FROM ({RANKED}) AS s WHERE s.r <= 5",
            "SELECT t.k AS k FROM t WHERE CAST(1 AS BIGINT) <= 5",
        ),
        (
            with_groups_below,
            "SELECT (SELECT max(z.size) - max(t.km) FROM z WHERE z.id = t.zone) AS v FROM t GROUP BY t.zone",
            "SELECT (SELECT MAX(z.size) - relaqs_groups.value_0 FROM z WHERE z.id = relaqs_groups.key_0) "
            "AS v FROM (SELECT t.zone AS key_0, MAX(t.km) AS value_0 FROM t GROUP BY t.zone) "
            "AS relaqs_groups",
        ),
        (
            keys_for_exists,
            "SELECT z.name FROM z WHERE NOT EXISTS(SELECT * FROM t WHERE t.zone = z.id AND t.km > 9)",
            "SELECT z.name FROM z WHERE NOT COALESCE(z.id IN (SELECT t.zone AS k FROM t WHERE t.km > 9 "
            "AND NOT t.zone IS NULL), FALSE)",
        ),
    ],
)
def test_queries_are_written_anew(step: Callable[[exp.Expr], exp.Expr], sql: str, found: str) -> None:
    assert step(read(sql)).sql("duckdb").replace('"', "") == found


def test_places_of_groups_are_counted_where_a_limit_picks_them() -> None:
    sql = "SELECT zone, count(*) AS n FROM trips GROUP BY 1 ORDER BY zone NULLS FIRST LIMIT 3"
    assert with_places(after(decide_membership, sql)).replace('"', "") == (
        "(SELECT *, count(*) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before, "
        "count(CASE WHEN m <= 1 THEN 1 END) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before_once, "
        "k0 IS NULL AS relaqs_is_first FROM merged)"
    )


def test_the_outer_side_of_a_left_join_is_a_table_itself() -> None:
    few = "(SELECT zone, fare FROM trips WHERE fare > 9) AS few"
    draft = after(flatten, f"SELECT sum(fare) AS s FROM {few} LEFT JOIN zones ON few.zone = zones.zone")
    assert draft.select.sql("duckdb").replace('"', "") == (
        "SELECT SUM(few.fare) AS s FROM trips AS few "
        "LEFT JOIN zones AS zones ON few.zone = zones.zone WHERE few.fare > 9"
    )


def test_sums_over_units_are_bounded_by_their_rows_and_by_what_is_known_of_them() -> None:
    assert _bounds_of_sum(Bounds(-1.0, 5.0), 10, None) == Bounds(-10.0, 50.0)
    of_unit = UnitSum(3.0, above=4.0, below=6.0, squares=9.0)
    assert _bounds_of_sum(Bounds(2.0, 5.0), 10, of_unit) == Bounds(2.0, 34.0)


def test_sums_of_orders_are_columns_with_ends() -> None:
    # The orders have up to nine items, whose prices are between 0.5 and 99.
    inner = "SELECT order_id, count(*) AS n, sum(price) - 1 AS s FROM items GROUP BY order_id"
    (table,) = after(choose_streams, f"SELECT avg(n), avg(s), min(order_id) FROM ({inner})").streams
    assert [(column.name, column.minimum, column.maximum) for column in table.columns] == [
        ("order_id", 1, 256000),
        ("n", 1.0, 9.0),
        ("s", -0.5, 890.0),
    ]


@pytest.mark.parametrize(
    ("sql", "straight", "folds"),
    [
        ("1 - greatest(gain / n, 0)", "gain / n", [("Greatest", 0.0), ("Mul", -1.0), ("Add", 1.0)]),
        ("abs(gain) / n", "(gain) / n", [("Abs", 0.0)]),
        ("abs(paid)", "ABS(paid)", []),
        ("abs(gain) + gain", "ABS(gain) + gain", []),
    ],
)
def test_folds_are_taken_off(sql: str, straight: str, folds: list[tuple[str, float]]) -> None:
    found = unfolded(read(sql), lambda each: Sign.EITHER if each.name == "gain" else Sign.POSITIVE)
    assert (found[0].sql(), [(fold.by.__name__, fold.number) for fold in found[1]]) == (straight, folds)


def test_costly_calls_are_cut_out() -> None:
    sql = "SELECT zone, count(*) AS n FROM trips WHERE km > 1 AND odd(fare) GROUP BY zone"
    found = split(sql, {"odd": "BOOLEAN"}, CATALOG, Binder(CATALOG))
    assert found.frame_sql.replace('"', "") == (
        "SELECT trips.zone AS c0, trips.fare AS a0 FROM trips AS trips WHERE trips.km > 1"
    )
    assert (found.condition, found.keys, found.sums) == ("(f0)", ("c0",), ("1.0",))
    assert calls_in("SELECT count(*) FROM trips WHERE complains(note)", {"complains": "BOOLEAN"})
    assert not calls_in("SELECT 'complains' AS word FROM trips", {"complains": "BOOLEAN"})
    case = "CASE WHEN (f0 > 0.5) THEN CAST((c0) AS DOUBLE) ELSE 0.0 END"
    assert of_counted(case, ["f0"]) == "CAST((c0) AS DOUBLE)"
    assert of_counted("CAST((f0) IS NOT NULL AS DOUBLE)", ["f0"]) == "1.0"


@pytest.mark.parametrize(
    ("join", "tables"),
    [
        ("INNER", ("items",)),
        ("RIGHT", ("items",)),
        ("LEFT", ("items", "orders")),
        ("FULL", ("items", "orders")),
    ],
)
def test_tables_that_an_outer_join_keeps_measure_too(join: str, tables: tuple[str, ...]) -> None:
    draft = after(choose_streams, f"SELECT count(*) FROM orders {join} JOIN items ON id = order_id")
    assert measuring_tables(draft) == tables


def test_more_values_than_are_kept_are_refused() -> None:
    assert refusal(check_kept_values, "SELECT median(price) FROM items") == ""
    assert refusal(check_kept_values, "SELECT median(fare) FROM trips") == (
        "it would keep 12,800,000 values; up to 12,500,000 are kept"
    )


def test_estimates_are_due_where_they_are_worth_their_cost() -> None:
    costs, shares = EstimateCosts(scan_seconds=0.2), (0.01, 0.015, 0.0199, 0.03, 0.05)
    assert [costs.is_due(2_000_000, each) for each in shares] == [True, False, True, False, True]
    assert costs.is_due(10_000, 0.06)
    assert costs.is_due(10_000, 0.07)
    costs, fractions = EstimateCosts(scan_seconds=1.5), (0.01, 0.02, 0.04, 0.08, 0.16, 1.0)
    listed = (100_000, 6_000_000, 60_000_000)
    assert [costs.last_of_values(fractions, 0, each) for each in listed] == [5, 3, 1]
    assert [costs.last_of_values(fractions, each, 0) for each in (1_000_000, 1_400_000)] == [5, 0]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT regexp_extract(page, '[0-9]+') AS n, props->>'$.a' AS a, sum(x + 1) FROM t", 2),
        ("SELECT year(day), regexp_split_to_array(page, '/') FROM t", 1),
        ("SELECT corr(DISTINCT x, y) FROM t", 0),
    ],
)
def test_functions_that_take_long_are_counted(sql: str, count: int) -> None:
    assert costly_calls(sql) == count


def test_what_depends_on_the_order_of_rows_is_named() -> None:
    ordered = "SELECT string_agg(name, ', ') FROM (SELECT name FROM zones ORDER BY name)"
    assert taken_in_order(read(ordered)) == "string_agg"
    free = "SELECT string_agg(name, ', ' ORDER BY name), sum(n) FROM (SELECT * FROM zones ORDER BY n)"
    assert taken_in_order(read(free)) is None
