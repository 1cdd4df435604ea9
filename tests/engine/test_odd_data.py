"""Data and names that break what is not meant for them, through the whole way of a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.layouts import add_static, append, compact, shuffle
from relaqs_engine.layouts.pieces import Encodings
from relaqs_engine.plans.plan import Mode, OutputKind

from relaqs import connect
from tests.conftest import Oracle
from tests.engine.world import World, difference
from tests.rows import rows_of

# NaN, infinities, NULL and ordinary values fall into different groups of `kind`, and all into kind 5.
VALUES = """
SELECT i AS id,
    i % 6 AS kind,
    CASE WHEN i % 6 IN (1, 5) AND i % 4 = 1 THEN 'NaN'::DOUBLE
         WHEN i % 6 IN (2, 5) AND i % 4 = 2 THEN 'Infinity'::DOUBLE
         WHEN i % 6 = 5 AND i % 4 = 3 THEN '-Infinity'::DOUBLE
         WHEN i % 6 = 3 THEN NULL
         ELSE (i * 7919 % 1000) / 8 - 50 END AS x,
    CASE WHEN i % 5 > 0 THEN (i * 31 % 997)::DECIMAL(12, 3) / 7 END::DECIMAL(12, 3) AS d,
    (i::DECIMAL(38, 0) * 10 ** 20)::DECIMAL(38, 0) AS wide,
    NULL::INTEGER AS nothing,
    (i % 11)::FLOAT / 3 AS f,
    (18446744073709551615 - i)::UBIGINT AS unsigned,
    9223372036854775807 - i AS large,
    CASE WHEN i % 7 > 0 THEN i % 2 = 0 END AS yes,
    DATE '2020-01-01' + (i % 40)::INTEGER AS day,
    TIMESTAMP '1969-12-31 23:59:59.999999' + to_microseconds(i % 50) AS moment,
    TIME '10:00:00' + to_seconds(i % 30) AS clock,
    ('00000000-0000-0000-0000-0000000000' || lpad((i % 20)::VARCHAR, 2, '0'))::UUID AS uuid,
    [i % 3, NULL] AS list,
    {'a': i % 3, 'b c': CASE WHEN i % 2 = 0 THEN 'x' END} AS pair,
    MAP {'k': i % 2} AS entries,
    ('\\x0' || (i % 4)::VARCHAR)::BLOB AS bytes,
    ['', 'é 漢 🦆', 'O''Hara', 'say "hi"', NULL, ' ', 'a''; DROP x; --', '%_\\', 'NULL'][i % 9 + 1] AS text
FROM range(1200) AS t(i)
"""

NAMES = [
    *("a b", 'quo"te', "it's", "Upper", "select", "ünï", "1st", "a.b", "x", "x_low", "x_high_"),
    *(
        "k0",
        "b0",
        "m",
        "r",
        "g",
        "e0",
        "o0",
        "v0",
        "scale",
        "state",
        "merged",
        "variants",
        "shown",
        "partial",
    ),
    *("names", "stream_names", "_relaqs", "grand_b1", "count_star()", "%s", "{}"),
    *("delay ", " delay", "Delay \t", "'delay'", '""', "a;b", ":p", "line\nbreak", "漢 🦆 "),
]
TABLES = (
    "state",
    "merged",
    "select",
    "my table",
    'quo"te',
    "Ünï",
    "variants",
    "k0",
    "stream_figures",
    "Trips ",
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """`figures` and `names` sampled by row, `TABLES` in turn by cluster and static; a folder like Hive's."""
    warehouse = tmp_path_factory.mktemp("odd") / "kind=7" / "a [b]*"
    originals = tmp_path_factory.mktemp("originals")
    with closing(duckdb.connect()) as connection:
        numbered = enumerate(NAMES)
        columns = ", ".join(f"(i * {n + 3} % 17)::INTEGER AS {quoted(name)}" for n, name in numbered)
        small = 'SELECT i % 10 AS k, i AS "merged", i * 0.5 AS b0 FROM range(300) AS t(i)'
        queries = {"figures": VALUES, "names": f"SELECT {columns} FROM range(500) AS t(i)"}
        queries |= dict.fromkeys(TABLES, small)
        for position, (name, sql) in enumerate(queries.items()):
            relation = connection.sql(sql)
            relation.write_parquet(str(originals / f"t{position}.parquet"))
            if name in ("figures", "names"):
                shuffle(relation, warehouse / name, partitions=4)
            elif position % 2:
                shuffle(relation, warehouse / name, partitions=4, cluster_by="k")
            else:
                add_static(relation, warehouse / name)
    with closing(Oracle(originals)) as oracle:
        for position, name in enumerate(queries):
            oracle.rows(f"CREATE VIEW {quoted(name)} AS FROM '{originals}/t{position}.parquet'")
        yield World.open(warehouse, oracle)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


NUMBERS = ("x", "d", "wide", "nothing", "f", "unsigned", "large")
ORDERED = (*NUMBERS, "yes", "day", "moment", "clock", "uuid", "list", "pair", "bytes", "text")
KEYS = (*ORDERED, "kind", "entries")


def test_numbers_of_any_length_are_values_so_far(odd: World) -> None:
    """A literal of 41 digits is a BIGNUM. Arrow has its bytes, which no cast makes a number."""
    sql = f"SELECT kind, ({'9' * 41} + count(*))::VARCHAR AS n, sum(f) FROM figures GROUP BY kind"
    plan = odd.check(sql, batches=3)
    assert [output.kind for output in plan.outputs] == [
        OutputKind.KEY,
        OutputKind.OPAQUE,
        OutputKind.ESTIMATE,
    ]


@pytest.mark.parametrize(
    ("value", "type_text"),
    [
        (f"{'9' * 41} + count(*)", "BIGNUM"),
        ("TIMETZ '12:30:00+05:30'", "TIME WITH TIME ZONE"),
        ("['101'::BIT]", r"BIT\[\]"),
        ("42::VARIANT", "VARIANT"),
        ("max('340282366920938463463374607431768211455'::UHUGEINT)", "UHUGEINT"),
    ],
)
def test_an_answer_that_arrow_would_change_is_refused(odd: World, value: str, type_text: str) -> None:
    with pytest.raises(UnsupportedError, match=f"n is a {type_text}, .* text: CAST"):
        odd.check(f"SELECT {value} AS n FROM figures GROUP BY kind")
    odd.check(f"SELECT ({value})::VARCHAR AS n FROM figures GROUP BY kind")


@pytest.mark.parametrize(("value", "certified"), [("TINYINT", False), ("DOUBLE", True)])
def test_what_try_cast_may_make_null_is_not_certified(odd: World, value: str, certified: bool) -> None:
    """The total is far beyond a TINYINT, and its last answer is NULL."""
    plan = odd.check(f"SELECT TRY_CAST(sum(id) AS {value}) AS n FROM figures", batches=4)
    first = next(odd.estimates(plan, batches=4))
    assert bool(first.certified.any()) is certified


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize("group", ["", " GROUP BY kind"])
def test_every_aggregate_of_every_kind_of_number(odd: World, column: str, group: str) -> None:
    calls = [f"{name}({column})" for name in ("count", "sum", "avg", "min", "max")]
    # DuckDB refuses the variance of an infinity; doubles near 2**63 are a thousand apart.
    if column not in ("x", "large", "unsigned"):
        calls += [f"{name}({column})" for name in ("var_samp", "var_pop", "stddev_samp", "stddev_pop")]
    filtered = [f"{call} FILTER (WHERE id % 3 = 0)" for call in calls[:3]]
    key = "kind, " if group else ""
    plan = odd.check(f"SELECT {key}{', '.join(calls + filtered)}, count(*) FROM figures{group}")
    assert plan.mode is Mode.MERGEABLE


@pytest.mark.parametrize("aggregate", ["var_pop", "stddev"])
def test_spread_with_nan_and_null(odd: World, aggregate: str) -> None:
    odd.check(f"SELECT kind, {aggregate}(x) FROM figures WHERE kind NOT IN (2, 5) GROUP BY kind")


@pytest.mark.parametrize("group", ["", " GROUP BY kind"])
@pytest.mark.parametrize("method", ["sum(x), sum(f), count(f)", "sum(x), avg(x), sum(f), avg(f)"])
def test_one_column_of_nan_costs_no_other_its_interval(odd: World, method: str, group: str) -> None:
    with_nan = next(odd.estimates(odd.plan(f"SELECT {method} FROM figures{group}")))
    without = next(odd.estimates(odd.plan(f"SELECT {method.replace('x', 'id')} FROM figures{group}")))
    finite = [i for i, column in enumerate(with_nan.approximate) if "(f)" in column.name]
    halves = [np.sort(each.half_widths[:, finite], axis=0) for each in (with_nan, without)]
    np.testing.assert_allclose(*halves, rtol=1e-6)
    assert np.isfinite(halves[0]).any()


def test_the_last_interval_of_a_decimal_is_the_nearest_double(odd: World) -> None:
    *_, last = odd.estimates(odd.plan("SELECT id, sum(d * 1234567.1) FROM figures WHERE d > 0 GROUP BY id"))
    _, values, lows, highs, _ = (column.to_pylist() for column in last.table.columns)
    assert [float(value) for value in values] == lows == highs


@pytest.mark.parametrize("column", ORDERED)
def test_extremes_of_every_type(odd: World, column: str) -> None:
    odd.check(f"SELECT kind % 2, min({column}), max({column}), count({column}) FROM figures GROUP BY 1")


@pytest.mark.parametrize("column", [*NUMBERS, "yes", "day", "moment", "clock", "text"])
@pytest.mark.parametrize("key", ["kind", "id"])
def test_quantiles_of_every_type(odd: World, column: str, key: str) -> None:
    """Also of groups of one row, of equal values, and of none."""
    calls = f"quantile_disc({column}, 0.3), quantile_disc({column}, 0), count({column})"
    if column not in ("yes", "text"):
        calls += f", median({column}), quantile_cont({column}, 0.9), max({column})"
    plan = odd.check(f"SELECT {key}, {calls} FROM figures GROUP BY {key}")
    assert plan.mode is Mode.MERGEABLE


def test_quantiles_beside_everything_else(odd: World) -> None:
    odd.check(
        "SELECT kind, median(d), count(DISTINCT id % 7), sum(id), median(id) + 1, mode(kind), "
        "median(id) FILTER (WHERE id < 0), min(x) FROM figures GROUP BY kind HAVING median(id) > 500"
    )
    odd.check("SELECT kind, median(d), stddev(d), max(kind) FROM figures GROUP BY ROLLUP (kind)")
    odd.check("SELECT kind, median(id::HUGEINT + 1), quantile_disc(id::HUGEINT, 0.2) FROM figures GROUP BY 1")


def test_bits_of_integers_that_do_not_travel_as_such(odd: World) -> None:
    odd.check("SELECT kind, bit_and(id::HUGEINT), bit_or(id), bit_xor(id::HUGEINT) FROM figures GROUP BY 1")


@pytest.mark.parametrize("column", ["d", "f", "unsigned", "nothing", "id % 7"])
def test_several_sets_of_distinct_values(odd: World, column: str) -> None:
    calls = f"sum(DISTINCT {column}), avg(DISTINCT {column}), count(DISTINCT {column})"
    other = "count(DISTINCT text), count(DISTINCT day) FILTER (WHERE id > 40), sum(d), count(*)"
    plan = odd.check(f"SELECT kind, {calls}, {other} FROM figures GROUP BY kind")
    assert plan.mode is Mode.MERGEABLE


@pytest.mark.parametrize("key", KEYS)
def test_every_type_as_a_key(odd: World, key: str) -> None:
    plan = odd.check(f"SELECT {key}, count(*), sum(d), avg(f), max(id) FROM figures GROUP BY {key}")
    assert plan.mode is Mode.MERGEABLE


def test_parts_of_nested_keys(odd: World) -> None:
    odd.check("SELECT pair.a, pair.\"b c\", list[1], entries['k'], count(*) FROM figures GROUP BY ALL")
    odd.check("SELECT pair, pair.a + 1, list[2], count(*) FROM figures GROUP BY pair, list")


def test_keys_of_text_keep_their_quotes(odd: World) -> None:
    odd.check(
        "SELECT text || '!' AS loud, count(*) FROM figures WHERE text <> 'it''s' GROUP BY 1 ORDER BY 1",
        ordered=True,
    )
    odd.check(
        "SELECT count(*) FROM figures WHERE text = 'a''; DROP x; --' OR text = '漢' OR text LIKE '\\%%'"
    )


@pytest.mark.parametrize("group", ["", " GROUP BY kind", " GROUP BY kind, text"])
def test_no_row_matches(odd: World, group: str) -> None:
    key = "kind, " if group else ""
    calls = "count(*), count(x), sum(d), avg(x), min(day), max(text), stddev(f), sum(d) / count(*)"
    odd.check(f"SELECT {key}{calls} FROM figures WHERE id < 0{group}")
    odd.check(f"SELECT {key}{calls} FROM figures WHERE NULL{group} LIMIT 3")


def test_one_row_matches(odd: World) -> None:
    odd.check("SELECT count(*), sum(d), avg(x), stddev(f), var_pop(f) FROM figures WHERE id = 777")


FEW_NAMES = [NAMES[i : i + 6] for i in range(0, len(NAMES), 6)]


@pytest.mark.parametrize("names", FEW_NAMES, ids=" ".join)
def test_columns_of_any_name(odd: World, names: list[str]) -> None:
    first, *others = [quoted(name) for name in names]
    sums = ", ".join(f"sum(n.{name}) AS {name}, avg({name}) AS {name}" for name in others)
    plan = odd.check(
        f"SELECT {first} AS {first}, count(*) AS c, {sums}, stddev({first}), max({others[-1]}) - 1 "
        f"FROM names AS n WHERE {first} > 2 GROUP BY {first} HAVING c > 1 ORDER BY {first}",
        ordered=True,
    )
    assert plan.mode is Mode.MERGEABLE


@pytest.mark.parametrize("names", FEW_NAMES, ids=" ".join)
def test_outputs_and_aliases_of_any_name(odd: World, names: list[str]) -> None:
    outputs = ", ".join(f"sum(k0) AS {quoted(name)}, sum(r) AS {quoted(name + '_low')}" for name in names)
    source = quoted(names[0])
    odd.check(f"SELECT {source}.k0 % 3 AS {source}, {outputs} FROM names AS {source} GROUP BY 1")


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_any_name(odd: World, name: str) -> None:
    table = quoted(name)
    odd.check(f'SELECT k, count(*), sum("merged"), avg({table}.b0) FROM {table} GROUP BY k')
    odd.check(f"SELECT count(*), sum(t.b0 * v.kind) FROM {table} AS t JOIN figures AS v ON v.id = t.k")


# Each is planned in its own way: around aggregates, refined, by looking groups up, as a whole.
OVER_ANY_TABLE = {
    "a window": "SELECT k, sum(b0), sum(sum(b0)) OVER () FROM {} GROUP BY k",
    "a common table expression": (
        "WITH a AS (SELECT k, sum(b0) AS s FROM {} GROUP BY k) "
        "SELECT max(s) FROM a WHERE s > (SELECT avg(s) FROM a)"
    ),
    "a set operation": "SELECT k, sum(b0) FROM {0} GROUP BY k UNION ALL SELECT 99, count(*) FROM {0}",
    "a limited derived table": "SELECT count(*) FROM (SELECT * FROM {} LIMIT 7)",
    "IN with a limit": "SELECT count(*) FROM figures WHERE id IN (SELECT merged FROM {} ORDER BY 1 LIMIT 5)",
    "EXISTS with a limit": (
        "SELECT count(*) FROM figures AS f "
        "WHERE EXISTS (SELECT 1 FROM (SELECT merged FROM {} ORDER BY 1 LIMIT 5) AS q WHERE q.merged = f.id)"
    ),
    "an average inside": "SELECT count(*) FROM {0} WHERE b0 > (SELECT avg(b0) FROM {0})",
    "groups inside": (
        "SELECT count(*) FROM {0} WHERE k IN (SELECT k FROM {0} GROUP BY k HAVING sum(b0) > 2190)"
    ),
    "a value per row": (
        "SELECT id, (SELECT count(*) FROM {} AS t WHERE t.k = f.id) FROM figures AS f WHERE id < 9"
    ),
    "a filter": "SELECT kind, count(*) FILTER (WHERE id IN (SELECT k FROM {})) FROM figures GROUP BY kind",
}


@pytest.mark.parametrize("sql", OVER_ANY_TABLE.values(), ids=OVER_ANY_TABLE)
def test_the_name_of_a_table_changes_no_plan(odd: World, sql: str) -> None:
    """`Trips ` and `merged` hold the same rows in the same way."""
    capital, lower = (odd.check(sql.format(quoted(name))) for name in ("Trips ", "merged"))
    assert (capital.mode, capital.method) == (lower.mode, lower.method)


def test_sampled_and_static_tables_of_reserved_names_meet(odd: World) -> None:
    odd.check(
        'SELECT count(*), sum(a.b0) FROM "state" AS a JOIN "select" AS b USING (k) JOIN "merged" c USING (k)'
    )
    odd.check('SELECT count(*) FROM "merged" WHERE k IN (SELECT k FROM "state" WHERE b0 > 20)')


def test_a_long_list(odd: World) -> None:
    values = ", ".join(str(3 * n) for n in range(2_000))
    odd.check(f"SELECT count(*), sum(d) FROM figures WHERE id IN ({values})")


def test_deep_expressions(odd: World) -> None:
    total = " + ".join(["d"] * 150)
    odd.check(f"SELECT kind, sum({total}) FROM figures GROUP BY kind")
    condition = " AND ".join(f"id <> {n}" for n in range(150))
    odd.check(f"SELECT count(*) FROM figures WHERE {condition}")
    odd.check(f"SELECT sum({nested(12)}) FROM figures")


def nested(depth: int) -> str:
    return f"CASE WHEN id % 91 = {depth} THEN {depth} ELSE {nested(depth - 1)} END" if depth else "id"


def test_a_row_as_a_value_has_the_user_s_columns(odd: World) -> None:
    odd.check("SELECT to_json(figures)::VARCHAR AS j FROM figures WHERE id < 3 ORDER BY id")
    odd.check("SELECT count(DISTINCT md5(f::VARCHAR)) AS n FROM figures AS f")


def test_too_deep_expressions_are_refused_in_words(odd: World) -> None:
    with pytest.raises(SqlError, match="nested more than 30 brackets and CASEs deep"):
        odd.plan(f"SELECT sum({nested(90)}) FROM figures")


def test_many_outputs(odd: World) -> None:
    odd.check(
        "SELECT "
        + ", ".join(f"sum(d + {n}), count(x) FILTER (id > {n})" for n in range(30))
        + " FROM figures"
    )


def test_estimates_that_overflow_are_unknown_and_do_not_fail(odd: World) -> None:
    odd.check("SELECT (count(*) * 27)::SMALLINT AS n FROM figures")
    odd.check("SELECT kind, count(*) FROM figures GROUP BY kind HAVING (count(*) * 160)::SMALLINT > 0")
    odd.check(
        "SELECT kind, count(*) FROM figures GROUP BY kind ORDER BY (count(*) * 160)::SMALLINT, 1",
        ordered=True,
    )


FLOAT_ROWS = 2_000
FLOATS = f"""
SELECT i AS id, i % 4 AS g,
    CASE WHEN i % 97 = 0 THEN 'NaN'::DOUBLE WHEN i % 501 = 5 THEN 'Infinity'::DOUBLE
         WHEN i % 701 = 7 THEN '-Infinity'::DOUBLE WHEN i % 333 = 11 THEN '-0.0'::DOUBLE
         WHEN i % 20 = 3 THEN NULL ELSE i % 10 END AS x,
    x::FLOAT AS y,
    CASE WHEN i % 50 = 0 THEN 'NaN'::DOUBLE ELSE i % 50 END AS k,
    i % 100 + 0.5::DOUBLE AS c,
    {{'a': x, 'c': c}} AS nested
FROM range({FLOAT_ROWS}) AS t(i)
"""
ASKED_OF_FLOATS = (
    "count(*) FROM t WHERE x > 20",
    "count(*) FROM t WHERE NOT x <= 9",
    "count(*) FROM t WHERE x = 'NaN'::DOUBLE",
    "count(*) FROM t WHERE x NOT BETWEEN -1000 AND 1000",
    "count(*) FROM t WHERE isnan(x)",
    "count(*), avg(x) FROM t WHERE NOT isnan(x) AND isfinite(x)",
    "count(*) FROM t WHERE y > 20",
    "count(*) FROM t WHERE x > y OR x < 5",
    "max(x), min(x), max(y), count(DISTINCT x) FROM t",
    "median(x) FROM t WHERE x < 1000",
    "avg(nullif(x, 'NaN'::DOUBLE)) FROM t WHERE x < 100",
    "avg(CASE WHEN isnan(x) THEN 0 ELSE y END) FROM t WHERE x >= 9",
    "g, max(x), count(*) FILTER (WHERE x > 20) FROM t GROUP BY g ORDER BY g",
    "id FROM t ORDER BY x DESC, id LIMIT 7",
    "count(*) FROM t AS a JOIN t AS b USING (k)",
    "count(*) FROM t WHERE k IN (SELECT k FROM dim)",
    "count(*) FROM t JOIN dim USING (k)",
    "max(c) FROM t",
    "max(c), min(c), count(*), max(id) FROM t WHERE id >= 250",
    "max(x), max(y) FROM t WHERE isfinite(x)",
    "m FROM (SELECT max(c) AS m, sum(c) AS s FROM t)",
    "max(v) FROM (SELECT DISTINCT c AS v FROM t)",
    "max(DISTINCT c) FROM t WHERE c > -1",
    "count(*) FROM t WHERE c >= (SELECT max(c) FROM t)",
    "max(COLUMNS('^[ck]$')) FROM t",
    "count(*) FROM t WHERE k < (SELECT max(k) FROM few)",
    "count(*) FROM t JOIN (SELECT max(k) AS k FROM few WHERE k < 3) USING (k)",
)
FLOAT_TABLES = (
    *("arrow", "duck", "nested", "by_rows", "by_key", "by_float"),
    *("static", "with_ends", "appended", "compacted"),
)


@pytest.fixture(scope="module")
def float_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the same rows laid out in every way, and in plain files of two writers."""
    folder = tmp_path_factory.mktemp("floats")
    rows = duckdb.sql(FLOATS).to_arrow_table()
    flat = rows.drop_columns(["nested"])
    pq.write_table(rows, folder / "arrow.parquet", row_group_size=250)
    duckdb.sql(f"COPY (FROM rows) TO '{folder / 'duck.parquet'}'")
    made = folder / "made"
    shuffle(folder / "arrow.parquet", made / "nested", partitions=4)
    shuffle(flat, made / "by_rows", partitions=4)
    shuffle(folder / "duck.parquet", made / "by_key", partitions=4, cluster_by="id")
    shuffle(flat, made / "by_float", partitions=4, cluster_by="k")
    add_static(folder / "arrow.parquet", made / "static")
    with pytest.MonkeyPatch.context() as earlier:  # layouts had ends of all columns once
        earlier.setattr(Encodings, "_has_sound_ends", lambda *_: True)
        shuffle(flat, made / "with_ends", partitions=4)
    for name in ("appended", "compacted"):
        shuffle(flat.slice(0, FLOAT_ROWS // 2), made / name, partitions=4)
        append(flat.slice(FLOAT_ROWS // 2), made / name)
    compact(made / "compacted")
    pq.write_table(pa.table({"k": [1.0, 2.0, 3.0, 4.0] * 10}), folder / "few.parquet")
    plain = {name: folder / f"{name}.parquet" for name in ("arrow", "duck", "few")}
    return plain | {path.name: path for path in made.iterdir()}


@pytest.mark.parametrize("table", FLOAT_TABLES)
def test_nan_is_never_skipped(float_tables: dict[str, object], table: str) -> None:
    """Footers of Arrow leave NaN out of a column's ends, and DuckDB skips rows by such ends."""
    dim = pa.table({"k": [1.0, float("nan"), 3.0]})
    nested = ("count(*) FROM t WHERE nested.a > 20", "max(nested.c), max(nested) FROM t")
    truth = duckdb.connect()
    truth.execute(f"CREATE TABLE t AS {FLOATS}")
    truth.register("dim", dim)
    truth.execute(f"CREATE TABLE few AS FROM '{float_tables['few']}'")
    with connect(tables={"t": float_tables[table], "few": float_tables["few"], "dim": dim}) as session:
        for sql in (*ASKED_OF_FLOATS, *(nested if table in ("arrow", "duck", "nested", "static") else ())):
            answer = session.online_sql(f"SELECT {sql}").result().to_arrow()
            expected = truth.sql(f"SELECT {sql}").to_arrow_table()
            own = answer.select(answer.column_names[: expected.num_columns])
            assert list(difference(own, expected, ordered=False)) == [], (table, sql)


@pytest.mark.parametrize("folders", [["year=2022"], ["Year=2022"], ["year=2022", "year=2023"]])
def test_a_folders_name_wins_over_the_files_own_column(tmp_path: Path, folders: list[str]) -> None:
    for folder in folders:
        (tmp_path / "t" / folder).mkdir(parents=True)
        file = tmp_path / "t" / folder / "part.parquet"
        pq.write_table(pa.table({"year": pa.array([1999] * 100), "x": range(100)}), file)
    shuffle(tmp_path / "t", tmp_path / "made", partitions=2)
    expected = [(int(folder[-4:]), 100) for folder in folders]
    for source in (tmp_path / "t", tmp_path / "made"):
        with connect(tables={"t": source}) as session:
            answer = session.online_sql(
                "SELECT year, count(*) AS n FROM t GROUP BY year ORDER BY year"
            ).result()
        assert rows_of(answer.to_arrow().select(["year", "n"])) == expected
