"""How large a statement may be, and what one call of a function may make: refused by name before it costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from relaqs_engine.duck import Cursor, Database, DatabaseConfig
from relaqs_engine.errors import DataError, SqlError
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import Mode
from relaqs_engine.sql import statements
from relaqs_engine.sql.parse import check_expansion, parse_query
from relaqs_engine.sql.read import Effort
from sqlglot import exp

from tests.engine.world import World

TABLES = {"t": ["i", "x", "s"]}
SECONDS = 10.0  # none of these takes half a second; without limits they take minutes, or for ever


def chain(part: str, count: int) -> str:
    ctes = ["c0 AS (SELECT i AS x FROM t)"]
    ctes += [f"c{k} AS ({part.format(k - 1)})" for k in range(1, count)]
    return f"WITH {', '.join(ctes)} SELECT count(*) FROM c{count - 1}"


def checked(sql: str) -> None:
    check_expansion(parse_query(sql, TABLES).tree, TABLES)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT " + "1" * 140_000, "140,007 characters; up to 131,072 are accepted"),
        ("SELECT " + "1," * 30_000 + "1", "words and signs; up to 40,000 are accepted"),
        ("SELECT 'a\0b'", "U+0000, which is no text"),
        ("SELECT '\ud800'", "U+D800, which is no text"),
        ("SELECT " + "(" * 31 + "1" + ")" * 31, "more than 30 brackets and CASEs deep"),
        ("SELECT s" + "[1]" * 40 + " FROM t", "more than 30 brackets deep"),
        ("SELECT " + "CASE WHEN true THEN " * 31 + "1" + " END" * 31, "more than 30 brackets and CASEs deep"),
        ("SELECT " + "+".join(["x"] * 300) + " FROM t", "more than 200 operators or functions deep"),
        ("SELECT " + "NOT " * 2000 + "true", "deep; name its inner parts in a WITH"),
        ("SELECT " + ".".join("a" * 5000) + " FROM t", "more than 200 operators or functions deep"),
        (f"SELECT {', '.join(['+'.join(['x'] * 190)] * 30)} FROM t", "by the squares of their nodes' depths"),
        ("SELECT 1 FROM t WHERE " + " AND ".join(["x > 1"] * 1500), "1,499 conditions by AND"),
        ("SELECT 1 FROM t" + ", t" * 60, "a FROM joins 60 tables; up to 50"),
        (chain("SELECT a.x FROM c{0} AS a, c{0} AS b", 30), "128 tables with its WITH"),
        (chain("SELECT x + x AS x FROM c{}", 30), "names, values and operators with its WITH"),
        (chain("SELECT x FROM c{}", 50), "41 SELECTs inside or upon each other"),
        ("SELECT x AS a0" + "".join(f", a{k} + a{k} AS a{k + 1}" for k in range(30)) + " FROM t", "values"),
        ("SELECT " + "*, " * 1200 + "1 FROM t", "a SELECT has 3,601 columns; up to 3,000"),
    ],
    ids=lambda text: text[:40].encode("unicode_escape").decode(),
)
def test_what_is_too_large_is_refused_by_its_size(sql: str, said: str) -> None:
    begun_at = time.perf_counter()
    with pytest.raises(SqlError) as caught:
        checked(sql)
    assert said in caught.value.message
    assert time.perf_counter() - begun_at < SECONDS


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x + x AS x, x + x AS y, x + x AS z, x * x AS w FROM t",
        "SELECT 1 FROM t WHERE " + " OR ".join(f"x = {k}" for k in range(2000)),
        f"SELECT 1 FROM t WHERE x IN ({', '.join(map(str, range(15_000)))})",
        chain("SELECT x FROM c{}", 38),
        "SELECT " + "(" * 29 + "x" + ")" * 29 + " FROM t",
    ],
    ids=lambda text: text[:40],
)
def test_what_people_and_tools_write_is_accepted(sql: str) -> None:
    checked(sql)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("lpad(s, 2000000000, 'x')", "lpad would make 2,000,000,000"),
        ("repeat('ab', 3000)", "repeat would make 6,000"),
        ("range(100000)", "range would make 100,000"),
        ("range(100000, 0, -1)", "range would make 100,000"),
        ("range(0, 100000, 10)", "range would make 10,000"),
        ("unnest(range(30000000))", "would make 30,000,000 characters or elements; 1,000,000 are the most"),
        ("unnest(range(30000000))", "write it in FROM, as in FROM range(…)"),
        (", ".join(["unnest(range(900000))"] * 4), "below unnest may make 3,600,000 elements"),
        ("range((random() * 1e9)::BIGINT)", "would be another number when its length is checked"),
        ("format('{:99999d}', i)", "format would make 99,999"),
        ("printf('%*d', i, i)", "takes a width from its arguments"),
        ("regexp_matches(s, '(a?){1000}')", "repetitions of the pattern come to 1,000"),
        ("list_reduce([s], lambda a, b: a || a)", "it doubles at each element"),
        ("replace(s, 'a', '" + "x" * 101 + "')", "a replacement has 101"),
        (" || ".join(f"lpad(s, i + {k}, 'x')" for k in range(20)), "and others like it may make"),
        ("count(DISTINCT s) OVER (ORDER BY x ROWS 5 PRECEDING EXCLUDE CURRENT ROW)", "EXCLUDEs rows"),
        ("list(s) OVER (ORDER BY x)", "collects all rows before it"),
    ],
)
def test_a_call_that_would_make_too_much_is_refused(call: str, said: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_query(f"SELECT {call} FROM t", TABLES)
    assert said in caught.value.message


@pytest.fixture(scope="module")
def cursor() -> Cursor:
    cursor = Database(DatabaseConfig((), 256 << 20)).cursor()
    cursor.run(
        "CREATE TABLE t AS SELECT i::INT AS i, i::BIGINT AS b, 'text ' || i AS s, [i, i + 1] AS l, "
        "'[0-9]' || i AS p, DATE '2020-01-01' + i::INT AS d FROM range(60) AS r(i)"
    )
    cursor.run("INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL)")
    return cursor


CALLS: dict[str, str] = {
    "lpad(s, i, 'x')": "lpad(s, i + 2000000000, 'x')",
    "repeat(s, i)": "repeat(s, i * 100000)",
    "repeat(l, b)": "repeat(l, b * 1000000)",
    "bitstring('101', i + 3)": "bitstring('101', i + 2000000000)",
    "range(b, b + 5)": "range(b, b + 3000)",
    "range(b, b + 5, i)": "range(b, b + 3000 * (i + 1), i + 1)",
    "range(b + 5, b, -1)": "range(b + 3000, b, -1)",
    "range(b + 5, b, -i)": "range(b + 3000 * (i + 1), b, -1 - i)",
    "generate_series(b, '8', 2)": "generate_series(b, '8000', 2)",
    "range(d, DATE '2020-01-01', -INTERVAL 1 DAY)": "range(d, DATE '2010-01-01', -INTERVAL 1 DAY)",
    "range(d, d + i, i * INTERVAL 1 DAY)": "range(d, d + i * 3000, sign(i) * INTERVAL 1 DAY)",
    "range(TIMESTAMP '2020-01-01', d, '1 day')": "range(TIMESTAMP '2010-01-01', d, '1 day')",
    "range(DATE '2020-01-01', d, INTERVAL 1 DAY)": "range(DATE '2010-01-01', d, INTERVAL 1 DAY)",
    "list_resize(l, b, 0)": "list_resize(l, b + 5000, 0)",
    "format(s || '{}', i)": "format('{:' || (i + 99999) || 'd}', i)",
    "levenshtein(s, 'text 5')": "levenshtein(repeat(s, i), repeat(s, i))",
    "damerau_levenshtein(s, p)": "damerau_levenshtein(repeat(s, i), repeat(s, i))",
    "regexp_matches(s, p)": "regexp_matches(s, p || '{9}')",
    "replace(s, 't', p)": "replace(s, 't', repeat(p, i))",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_guard_changes_no_value_and_no_type(cursor: Cursor, call: str) -> None:
    sql = f"SELECT {call} AS v FROM t"
    guarded = parse_query(sql, ["t"]).tree.sql("duckdb")
    assert "CASE WHEN" in guarded
    assert cursor.describe(guarded) == cursor.describe(sql)
    assert cursor.rows(guarded) == cursor.rows(sql)


@pytest.mark.parametrize("call", CALLS.values())
def test_a_guard_stops_what_would_be_too_much_and_says_so(cursor: Cursor, call: str) -> None:
    guarded = parse_query(f"SELECT {call} AS v FROM t", ["t"]).tree.sql("duckdb")
    with pytest.raises(DataError, match="the most allowed here"):
        cursor.rows(guarded)


@pytest.mark.parametrize(
    ("sql", "too_much"),
    [
        ("SELECT i, unnest(range(b)) AS v FROM t", "SELECT unnest(range(b * 50)) FROM t"),
        (
            "SELECT i, v FROM t, unnest(range(b)) AS u(v)",
            "SELECT v FROM t, unnest(range((b // 59) * 2000000)) AS u(v)",
        ),
        ("SELECT v FROM t, LATERAL (SELECT unnest(range(b))) AS u(v)", ""),
        ("SELECT i, unnest(range(1, 3 + 1)) AS v FROM t", "SELECT unnest(range(1, 3 * 1000000)) FROM t"),
        ("SELECT v FROM unnest(generate_series(9, 1, -2)) AS u(v)", ""),
        ("SELECT v FROM t, range(b) AS u(v)", ""),
    ],
)
def test_a_series_that_is_unnested_has_its_rows_or_is_refused(
    cursor: Cursor, sql: str, too_much: str
) -> None:
    assert cursor.rows(parse_query(sql, ["t"]).tree.sql("duckdb")) == cursor.rows(sql)
    if too_much:
        with pytest.raises(DataError, match="the most allowed here"):
            cursor.rows(parse_query(too_much, ["t"]).tree.sql("duckdb"))


def sums(count: int) -> str:
    return ", ".join(f"sum(l_quantity + {k}) AS s{k}" for k in range(count))


def steps_of(world: World, sql: str) -> int:
    effort = Effort()
    plan_query(sql, world.catalog, world.binder, effort=effort)
    return effort.steps


def test_planning_costs_in_proportion_to_the_query(tpch: World) -> None:
    few, many = (steps_of(tpch, f"SELECT l_tax, {sums(k)} FROM lineitem GROUP BY l_tax") for k in (40, 160))
    assert many < 5 * few  # each output was bound by itself, over all columns: sixteen times


def test_a_query_that_is_too_much_to_rewrite_runs_exactly(tpch: World) -> None:
    plan = plan_query(
        f"SELECT {sums(50)} FROM lineitem", tpch.catalog, tpch.binder, effort=Effort(most_steps=50_000)
    )
    assert plan.mode is Mode.EXACT
    assert "would take more than 50,000 steps" in plan.reasons[0]


class NobodyWaitsError(Exception):
    pass


@pytest.mark.parametrize("patience", [0, 1, 3, 10])
def test_planning_ends_when_nobody_waits(tpch: World, patience: int) -> None:
    with pytest.raises(NobodyWaitsError):
        plan_query(
            f"SELECT {sums(50)} FROM lineitem",
            tpch.catalog,
            tpch.binder,
            effort=Effort(after(patience, NobodyWaitsError())),
        )


def after(calls: int, error: Exception) -> Callable[[], None]:
    """Return a function that raises the error when it has been called so often."""
    left = iter(range(calls))

    def still_wanted() -> None:
        if next(left, None) is None:
            raise error

    return still_wanted


def test_an_interval_of_many_digits_is_refused_before_it_is_read() -> None:
    with pytest.raises(SqlError, match=r"INTERVAL has 60,000 characters; up to 100 are accepted"):
        parse_query(f"SELECT INTERVAL '{'9' * 60_000}' AS i", ())


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT s.repeat(50000) FROM t", r"s.repeat\(50000\) calls a function with a dot"),
        ("SELECT (5000000).range()", "calls a function with a dot"),
        ("SELECT * FROM (PIVOT t ON x USING sum(y))", "which columns this PIVOT gives depends on the data"),
        ("WITH p AS (PIVOT t ON x USING sum(y)) SELECT * FROM p", "name its values"),
    ],
)
def test_what_would_be_understood_otherwise_is_refused(sql: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        parse_query(sql, ("t",))


@pytest.mark.parametrize(("count", "is_written"), [(256, True), (257, False), (10_000, False)])
def test_a_pivot_of_many_columns_is_left_to_duckdb_before_they_are_written(
    monkeypatch: pytest.MonkeyPatch, count: int, is_written: bool
) -> None:
    made: list[object] = []
    filtered = statements._filtered
    monkeypatch.setattr(statements, "_filtered", lambda *given: made.append(given) or filtered(*given))
    values = ", ".join(f"'{number}'" for number in range(count))
    parsed = parse_query(f"SELECT * FROM (PIVOT t ON x IN ({values}) USING sum(y) GROUP BY z)", ("t",))
    assert (parsed.tree.find(exp.Pivot) is None) is is_written
    assert len(made) == (count if is_written else 0)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date_trunc('day', d), date_part('year', d) FROM t",
        "SELECT s.part.inner FROM t",
        "SELECT * FROM (PIVOT t ON x IN ('a', 'b') USING sum(y))",
        "SELECT format('{{\"a\": {}}}', x) FROM t",
    ],
)
def test_what_looks_like_it_is_read(sql: str) -> None:
    assert parse_query(sql, ("t",)).tables == {"t"}
