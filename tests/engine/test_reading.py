"""SQL means what DuckDB reads: features that meet in one statement, and words that only DuckDB knows."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
import sqlglot
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.sql.binder import check_reading
from relaqs_engine.sql.dialect import DIALECT

from relaqs import connect
from relaqs.session import Session
from tests.engine.world import difference

TABLES = {
    "t": "SELECT i AS id, CASE WHEN i % 4 > 0 THEN i % 3 END AS g, i % 5 AS v, i * 0.5 AS x, [i, i + 1] AS l "
    "FROM range(100) AS r(i)",
    "u": "SELECT i AS id, i % 7 AS v, 'n' || i % 5 AS name FROM range(60) AS r(i)",
    "dim": "SELECT i AS g, 'd' || i AS name FROM range(4) AS r(i)",
}
ANSWERED = (
    "SELECT g, count(*) AS n FROM t WHERE v >= (SELECT avg(v) FROM t r WHERE r.g = t.g) GROUP BY ROLLUP (g)",
    "SELECT name, count(DISTINCT name) AS d, count(*) AS c FROM u GROUP BY ROLLUP (name)",
    "SELECT g, count(DISTINCT g) AS d, count(*) AS c FROM t GROUP BY CUBE (g, v)",
    "SELECT max(id, 3) FROM t WHERE v > (SELECT avg(v) FROM u)",
    "SELECT g, max(id, 3) FROM t WHERE id IN (SELECT id FROM u WHERE v > (SELECT avg(v) FROM t)) GROUP BY g",
    "SELECT 2 IN (SELECT max(t.v)) AS e FROM t",
    "SELECT EXISTS (SELECT 1 FROM dim WHERE dim.g = max(t.g)) FROM t",
    "SELECT id, last(g ORDER BY id IGNORE NULLS) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM t",
    "SELECT count_if(v > 1), count_if(v > 1) FILTER (WHERE v > 9) FROM t WHERE id < 0",
    "SELECT bit_xor(DISTINCT v) FROM t",
    "SELECT CASE WHEN v > (SELECT avg(v) FROM t) THEN 'hi' ELSE 'lo' END AS k, count(*) FROM u GROUP BY k",
    "SELECT DISTINCT v > (SELECT avg(v) FROM t) FROM u",
    "SELECT g, (SELECT max(v) FROM t) FROM t GROUP BY g",
    "SELECT t.g, (SELECT name FROM dim WHERE dim.g = t.g) FROM t GROUP BY t.g",
    "SELECT count(*) FROM t WHERE v IN (SELECT (SELECT max(v) FROM t))",
    "SELECT count(*) FROM t a LEFT JOIN (SELECT * FROM t) b LEFT JOIN t c ON b.id = c.id ON a.id = b.id",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT r.x + 1 FROM u JOIN r ON r.x = u.id WHERE r.x < 10) "
    "SELECT count(*) FROM r",
    "SELECT fsum(DISTINCT v), favg(DISTINCT v), sumkahan(x ORDER BY id), sum_no_overflow(v) FROM t",
    "SELECT id, l[:g] FROM t",
    "SELECT map {} AS m",
    "SELECT count(*) FROM dim AS d(a, b)",
    "SELECT count(*), max(main.t.id) FROM main.t JOIN main.dim USING (g)",
    "WITH t AS (SELECT 1 AS id) SELECT count(*) FROM t",
    "SELECT g > 1, count(*) FROM t GROUP BY ROLLUP (g > 1)",
    "SELECT g IS NULL AS a, v IN (1, 2) AS b, count(*) FROM t GROUP BY CUBE (g IS NULL, v IN (1, 2))",
    "SELECT g IS NULL AS a, v = 1 AS b, sum(id) FROM t GROUP BY GROUPING SETS ((g IS NULL, v = 1), (v = 1))",
    "SELECT count(*), sum(u.v) FROM t LEFT JOIN (u JOIN dim ON u.v = dim.g) ON t.id = u.id",
    "SELECT count(*) FROM t, (dim CROSS JOIN u)",
    "SELECT count(*) FROM (dim JOIN u ON u.v = dim.g) JOIN t ON t.id = u.id",
    "SELECT id, place, val FROM t UNPIVOT (val FOR place IN (g, v))",
    "SELECT g, v FROM t ORDER BY * DESC",
    "SELECT count(*) FROM t WHERE v > (SELECT max(a) FROM dim AS d(a, b))",
    "SELECT count(*) FROM t JOIN (dim AS d JOIN u ON d.g = u.v) ON t.id = u.id",
    "SELECT dim.name, count(*) FROM ((t JOIN dim ON t.g = dim.g)) GROUP BY ALL",
    "SELECT count(*), sum(x) FROM (t JOIN dim USING (g)) JOIN u USING (id)",
    "SELECT dim.name, count(*) FROM t a JOIN u b JOIN dim ON dim.g = b.v ON a.id = b.id GROUP BY ALL",
    "SELECT count(*) FROM (t JOIN u ON t.id = u.id) AS j",
    "SELECT count(*) FROM t FULL JOIN (dim JOIN u ON dim.g = u.v) ON t.id = u.id",
    "SELECT count(*) FROM t JOIN (dim LEFT JOIN u ON dim.g = u.v) ON t.id = u.id",
    "SELECT place, sum(val) FROM (UNPIVOT t ON id, v INTO NAME place VALUE val) GROUP BY place",
    "SELECT max(id) FROM (SELECT id, v FROM t ORDER BY * LIMIT 10)",
    "SELECT g, count(*) FROM t GROUP BY g ORDER BY * DESC NULLS FIRST",
    "SELECT d.b, sum(v) FROM t JOIN dim AS d(a, b) ON d.a = t.g GROUP BY ALL",
    "SELECT sum(a), max(t2.v) FROM t AS t2(a, b)",
    "SELECT t.g, (SELECT d.b FROM dim d(a, b) WHERE d.a = t.g) AS name, sum(v) FROM t GROUP BY t.g",
    "SELECT g, array(SELECT a.g FROM dim AS a WHERE a.g < dim.g ORDER BY 1) AS l FROM dim",
    "SELECT count(*) AS n, array(SELECT v FROM t WHERE id < 3 ORDER BY id) AS l FROM t",
    "WITH RECURSIVE r(i, p) USING KEY (i) AS (SELECT 1, 10 UNION ALL SELECT n.i + 1, old.p + 10 FROM r AS n "
    "JOIN recurring.r AS old ON old.i = n.i WHERE n.i < 5) SELECT count(*), sum(p) FROM r JOIN dim ON g = i",
    "SELECT count(*) FROM t AS a JOIN t AS b ON (SELECT a.id = b.id)",
    "SELECT * FROM ((VALUES (1, 'a'), (2, 'b')) AS p(k, \"T\"))",
    "SELECT sum(x), k FROM t JOIN ((VALUES (1, 2), (2, 4)) p(k,i) JOIN dim d ON k = d.g) ON v = i GROUP BY 2",
    "SELECT count(k), sum(v) FROM ((VALUES (1), (9)) p(k) RIGHT JOIN t ON k = v)",
    "SELECT r.k, q.i FROM (((VALUES (1)) p(k) JOIN (VALUES (1)) q(i) ON k = i)) LEFT JOIN (VALUES (1)) r(k) "
    "ON EXISTS (SELECT 1 WHERE q.i = r.k)",
    "SELECT 'it''s'\n'so' AS a, 'b' -- and\n 'c' || v, DATE '2020-'\n'01-02' AS 'd'\n'e' FROM t WHERE id < 2",
    "SELECT count(*) FROM u WHERE name IN ('n'\n'1', 'n2') OR name LIKE 'n'\n'3%'",
    "SELECT list(id), string_agg(v, ','), first(v), last(id) FROM (SELECT id, v FROM t ORDER BY v, id DESC)",
    "WITH r AS (FROM t ORDER BY id DESC), s AS (SELECT g, id FROM r WHERE id < 50) "
    "SELECT g, array_agg(id), any_value(id) FROM s GROUP BY g",
    "SELECT arg_max(id, v), arg_min(id, v), count(*) FROM (SELECT v, id FROM t ORDER BY id DESC)",
    "SELECT DISTINCT ON (g) g, id FROM (SELECT g, id FROM t ORDER BY id DESC) ORDER BY g",
    "SELECT json_group_array(id) FROM ((SELECT id FROM t WHERE id < 9) ORDER BY id DESC)",
    "SELECT list(s.id) FILTER (u.v > 3) FROM (SELECT id FROM t ORDER BY id DESC) s JOIN u ON u.id = s.id",
    "SELECT list(id) FROM (SELECT id FROM t UNION ALL SELECT -id FROM u ORDER BY 1)",
    "SELECT list(n) FROM (SELECT v, count(*) AS n FROM u GROUP BY v ORDER BY v DESC)",
    "SELECT list(id ORDER BY id), sum(v) FROM (SELECT * FROM t ORDER BY id DESC)",
    "SELECT count(*) FROM ((SELECT v FROM t) LIMIT 1)",
    "SELECT count(*), sum(v) FROM ((FROM t) ORDER BY id LIMIT 7)",
    "SELECT g, count(*) FROM ((SELECT id, g FROM t) ORDER BY id DESC LIMIT 9) JOIN dim USING (g) GROUP BY g",
    "SELECT count(*) FROM dim JOIN ((SELECT id FROM t) LIMIT 5) ON TRUE",
    "SELECT count(*) FROM ((SELECT id FROM t UNION ALL SELECT id FROM u) LIMIT 3) WHERE id >= 0",
    "SELECT sum(id) FROM ((SELECT id FROM t ORDER BY id LIMIT 9) ORDER BY id DESC LIMIT 2)",
    "SELECT sum(id) FROM ((SELECT id FROM t ORDER BY id LIMIT 9) ORDER BY id DESC LIMIT 2) JOIN u USING (id)",
    "SELECT EXISTS(((SELECT id FROM t) LIMIT 0)), EXISTS(((SELECT id FROM t) LIMIT 1)) FROM dim",
    "SELECT ARRAY(((SELECT id FROM t) ORDER BY id DESC LIMIT 2)) FROM dim",
    "SELECT ARRAY((SELECT id FROM t) ORDER BY id DESC LIMIT 2), EXISTS((FROM t) LIMIT 0) FROM dim",
    "SELECT count(*) FROM u WHERE v >= ALL ((SELECT v FROM t) ORDER BY v LIMIT 9)",
    "SELECT id FROM ((SELECT id, v FROM t) ORDER BY id LIMIT 5) ORDER BY v DESC, id LIMIT 2",
    "(SELECT id, v FROM t ORDER BY id) LIMIT 3",
    "((SELECT g, sum(v) AS n FROM t GROUP BY g)) ORDER BY n DESC NULLS LAST LIMIT 2",
    "(SELECT max(id) FROM t UNION ALL SELECT min(id) FROM u) ORDER BY 1 LIMIT 1 OFFSET 1",
    "WITH w AS (SELECT avg(v) AS a FROM t) (SELECT count(*) FROM t, w WHERE v > a) LIMIT 1",
    "(VALUES (1), (2)) ORDER BY 1 DESC LIMIT 1",
    "WITH w AS (SELECT 1) (VALUES (1), (2)) LIMIT 1",
    "SELECT (WITH w(a) AS (VALUES (v)) VALUES ((SELECT a + 1 FROM w))) FROM t WHERE id < 3",
    "SELECT EXISTS(VALUES (v)), ARRAY(VALUES (1), (v)), ARRAY((VALUES (1))) FROM t WHERE id < 3",
    "SELECT count(*) FROM t WHERE EXISTS((SELECT 1 FROM u WHERE u.id = t.id AND u.v > 3))",
    "SELECT count(*) FROM t WHERE v = SOME (VALUES (1), (2)) AND v >= ALL (VALUES (0), (1))",
    "SELECT id, a FROM t JOIN BY (TYPE single) (SELECT i AS a FROM range(3) AS r(i)) ON v = a",
    "SELECT count(*), max(b.v) FROM t JOIN BY (TYPE left) u AS b ON t.id = b.v",
    "SELECT * FROM (PIVOT t ON g IN (1, 2) USING sum(v) GROUP BY v) ORDER BY *",
    "PIVOT (SELECT a.g, b.v FROM t AS a JOIN u AS b ON a.id = b.id) ON g IN (1, 2) USING sum(v) AS s",
    "FROM (SELECT t.g, t.v FROM t WHERE t.v > (SELECT avg(u.v) FROM u)) PIVOT (max(v) FOR g IN (1, 2))",
)
READ_ALIKE = (
    "SELECT log10(x), log2(x), log(x), log(3, x) FROM t",
    "SELECT list[1], [1, 2][1], array[3] FROM t",
    "SELECT x -> 'a', DATE '2020-01-01' + INTERVAL '2 days', INTERVAL (n) HOUR FROM t",
    "SELECT any_value(x), first(x ORDER BY y), percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t",
)


@pytest.fixture(scope="module", params=["rows", "key", "files"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Return a session over layouts by rows, layouts by a key, or Parquet files as they are."""
    folder = tmp_path_factory.mktemp("read")
    for name, sql in TABLES.items():
        rows = duckdb.sql(sql)
        if request.param == "files":
            rows.write_parquet(str(folder / f"{name}.parquet"))
        elif name == "dim":
            add_static(rows.to_arrow_table(), folder / name)
        else:
            key = "id" if request.param == "key" else None
            shuffle(rows.to_arrow_table(), folder / name, partitions=4, cluster_by=key)
    with connect(folder, threads=1) as session:
        yield session


@pytest.mark.parametrize("sql", ANSWERED)
def test_the_answer_is_duckdbs(session: Session, sql: str) -> None:
    oracle = duckdb.connect()
    for name, rows in TABLES.items():
        oracle.execute(f"CREATE TABLE {name} AS {rows}")
    expected = oracle.sql(sql).to_arrow_table()
    answer = session.online_sql(sql, batches=3).result().to_arrow()
    assert (
        list(difference(answer.select(answer.column_names[: expected.num_columns]), expected, ordered=False))
        == []
    )


@pytest.mark.parametrize("sql", READ_ALIKE)
def test_what_is_written_back_is_read_alike(sql: str) -> None:
    check_reading(sql, sqlglot.parse_one(sql, dialect=DIALECT).sql(DIALECT))


@pytest.mark.parametrize("clause", ["ORDER BY id", "LIMIT 1", "OFFSET 1"])
def test_brackets_with_a_limit_are_limited_again_by_a_select_from_them(session: Session, clause: str) -> None:
    limited = "(SELECT id FROM t ORDER BY id DESC LIMIT 3)"
    with pytest.raises(SqlError, match=r"write SELECT \* FROM \(…\) AS q before ORDER BY and LIMIT"):
        session.online_sql(f"{limited} {clause}")
    answer = session.online_sql(f"SELECT * FROM {limited} AS q {clause}", batches=3).result().to_arrow()
    assert set(answer["id"].to_pylist()) <= {97, 98, 99}


def test_a_word_that_only_duckdb_knows_is_no_alias(session: Session) -> None:
    with pytest.raises(SqlError, match=r"EXPORT_STATE.*, and DuckDB does not; put parentheses, or write"):
        session.online_sql("SELECT corr(id, x) EXPORT_STATE FROM t")


def test_two_parameters_without_a_blank_are_no_quote(session: Session) -> None:
    query = session.online_sql("SELECT count(*) AS n FROM t WHERE v IN ($1,$2)", params={1: 1, 2: 2})
    assert query.result().to_arrow()["n"].to_pylist() == [40]
