"""What is let through as a query, and what each refusal says."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import sqlglot
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.sql.dialect import DIALECT, copied, from_text, tokens_of
from relaqs_engine.sql.parse import is_cte_reference, parse_query
from sqlglot import exp

TABLES = ("lineitem", "orders", "Nation")


def refusal(sql: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_query(sql, TABLES)
    return caught.value


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("INSERT INTO orders VALUES (1)", "INSERT"),
        ("UPDATE orders SET x = 1", "UPDATE"),
        ("DELETE FROM orders", "DELETE"),
        ("MERGE INTO orders USING lineitem ON true WHEN MATCHED THEN DELETE", "MERGE"),
        ("CREATE TABLE t AS SELECT 1", "CREATE"),
        ("CREATE MACRO f(x) AS x", "CREATE"),
        ("DROP TABLE orders", "DROP"),
        ("ALTER TABLE orders ADD COLUMN x INT", "ALTER"),
        ("TRUNCATE orders", "TRUNCATE"),
        ("COPY orders TO 'x.csv'", "COPY"),
        ("COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("DETACH x", "DETACH"),
        ("INSTALL httpfs", "INSTALL"),
        ("LOAD httpfs", "LOAD"),
        ("SET threads = 1", "SET"),
        ("RESET threads", "RESET"),
        ("PRAGMA database_list", "PRAGMA"),
        ("CALL pragma_version()", "CALL"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("DESCRIBE orders", "DESCRIBE"),
        ("SUMMARIZE orders", "SUMMARIZE"),
        ("SHOW TABLES", "SHOW"),
        ("USE x", "USE"),
        ("BEGIN", "TRANSACTION"),
        ("VACUUM", "VACUUM"),
    ],
)
def test_anything_but_a_select_is_refused_by_name(sql: str, kind: str) -> None:
    message = refusal(sql).message
    assert message.startswith("only SELECT is accepted, this is ")
    assert kind in message


@pytest.mark.parametrize(
    ("sql", "instead"),
    [
        ("EXPLAIN SELECT 1", "`relaqs explain`"),
        ("CREATE VIEW v AS SELECT 1", "views={"),
        ("SET threads = 1", "threads=2"),
        ("ATTACH 'x.db'", "give its file to connect"),
        ("COPY orders TO 'x.csv'", "--output FILE"),
        ("INSERT INTO orders VALUES (1)", "`relaqs append`"),
    ],
)
def test_the_error_says_what_to_do_instead(sql: str, instead: str) -> None:
    assert instead in refusal(sql).message


@pytest.mark.parametrize("sql", ["SELEC", "checkpoint", "1 + 1", "'x'", "SAVEPOINT a"])
def test_an_expression_alone_is_quoted(sql: str) -> None:
    assert refusal(sql).message.startswith(f"{sql!r} is no SELECT; begin with SELECT or FROM")


@pytest.mark.parametrize(
    "sql", ["EXPORT DATABASE 'x'", "CHECKPOINT", "IMPORT DATABASE 'x'", "FORCE INSTALL x"]
)
def test_statements_unknown_to_the_parser_are_refused(sql: str) -> None:
    refusal(sql)


@pytest.mark.parametrize("sql", ["SELECT * INTO t FROM orders", "WITH t AS (DELETE FROM orders) SELECT 1"])
def test_a_select_that_writes_is_refused(sql: str) -> None:
    refusal(sql)


@pytest.mark.parametrize(
    ("sql", "count"), [("SELECT 1; SELECT 2", 2), ("SELECT 1; DROP TABLE orders;", 2), ("SELECT 1;;;", 1)]
)
def test_one_statement_at_a_time(sql: str, count: int) -> None:
    if count == 1:
        assert parse_query(sql, TABLES).tables == frozenset()
    else:
        assert refusal(sql).message == f"{count} statements were given; give one SELECT at a time"


@pytest.mark.parametrize("sql", ["", "   ", ";", "-- nothing but a comment", "/* nothing */"])
def test_nothing_is_refused(sql: str) -> None:
    assert refusal(sql).message == "the SQL is empty; give one SELECT"


def test_a_syntax_error_tells_where() -> None:
    error = refusal("SELECT count(*)\nFROM orders WHERE WHERE x")
    assert error.position is not None
    assert error.position[0] == 2
    assert "WHERE" in str(error)


@pytest.mark.parametrize("sql", ["SELECT 'open", 'SELECT "open', "SELECT $$open"])
def test_an_open_quote_is_a_syntax_error(sql: str) -> None:
    error = refusal(sql)
    assert error.message.endswith("a quote or a comment is opened and never closed; close it")
    assert error.position == (1, 8)


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("selct * from b", "selct"),
        ("SELECT * FROM b WHERE", "WHERE"),
        ("SELECT sum(a FROM b", "FROM"),
        ("SELECT a,\n  b c d\nFROM t", "d"),
        ("SELECT 1 WHERE x = = 3", "= 3"),
    ],
)
def test_a_syntax_error_points_at_the_word_at_which_duckdb_stops(sql: str, word: str) -> None:
    error = refusal(sql)
    assert error.message.startswith("the SQL does not parse: syntax error at or near ")
    assert error.position is not None
    line, column = error.position
    assert sql.split("\n")[line - 1][column - 1 :].startswith(word)
    assert "<" not in str(error)


def test_sql_that_duckdb_alone_can_read_says_so() -> None:
    assert "DuckDB can read this SQL, but ReLAQS cannot" in refusal("EXPORT DATABASE 'x'").message


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM read_parquet('x.parquet')",
        "SELECT * FROM read_csv('x.csv')",
        "SELECT * FROM read_csv_auto('x.csv')",
        "SELECT * FROM read_json('x.json')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM glob('*')",
        "SELECT * FROM parquet_scan('x')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM pragma_table_info('orders')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('orders')",
        "SELECT * FROM sniff_csv('x.csv')",
        "SELECT count(*) FROM orders, read_text('/etc/passwd')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "WITH t AS (FROM read_blob('/etc/passwd')) SELECT * FROM t",
    ],
)
def test_table_functions_are_refused(sql: str) -> None:
    error = refusal(sql)
    assert "table function" in error.message or "not allowed" in error.message


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM 'x.parquet'",
        'SELECT * FROM "x.parquet"',
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT * FROM memory.main.orders",
        "SELECT * FROM duckdb_tables",
        "SELECT * FROM sqlite_master",
    ],
)
def test_names_outside_the_catalog_are_refused(sql: str) -> None:
    assert refusal(sql).message.startswith("there is no table ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM orders, unnest([1, 2]) AS u(x)",
        "SELECT count(*) FROM orders, range(3) AS r(i)",
        "SELECT count(*) FROM orders, generate_series(1, 3) AS r(i)",
    ],
)
def test_table_functions_that_only_make_numbers_are_let_through(sql: str) -> None:
    assert parse_query(sql, TABLES).tables == {"orders"}


@pytest.mark.parametrize(
    "sql", ["SELECT ?", "SELECT $1", "SELECT $name", "SELECT count(*) FROM orders WHERE x = ?"]
)
def test_parameters_are_refused(sql: str) -> None:
    assert "parameter" in refusal(sql).message


def test_an_unknown_table_comes_with_candidates_and_its_position() -> None:
    error = refusal("SELECT count(*)\nFROM orders, lineitems AS l")
    assert error.position == (2, 14)
    assert error.candidates == ("lineitem",)
    assert error.message == "there is no table lineitems in the catalog, which has: Nation, lineitem, orders"
    assert str(error).endswith("at line 2, column 14; did you mean 'lineitem'?")


def test_of_very_many_tables_the_first_are_named_and_how_files_are_one_table() -> None:
    tables = [f"part_{i:03}" for i in range(300)]
    with pytest.raises(SqlError, match=r"part_019 and 280 more; to read files as one table, give a pattern"):
        parse_query("SELECT * FROM trips", tables)


def test_where_tables_may_be_parts_of_one_an_error_says_how_to_read_them_so() -> None:
    with pytest.raises(SqlError, match=r"part_0, part_1; to read files as one table, give a pattern, as in"):
        parse_query("SELECT * FROM trips", ["part_0", "part_1"])


def test_an_unknown_table_like_no_other_has_no_candidates() -> None:
    assert refusal("SELECT * FROM zzz").candidates == ()


def test_an_empty_catalog_says_so() -> None:
    with pytest.raises(SqlError, match="which has: none"):
        parse_query("SELECT * FROM orders", ())


def test_names_are_compared_without_case_and_given_as_the_catalog_has_them() -> None:
    assert parse_query('SELECT * FROM ORDERS, "nation"', TABLES).tables == {"orders", "Nation"}


def test_parentheses_around_the_whole_are_taken_off() -> None:
    assert isinstance(parse_query("((SELECT 1 FROM orders))", TABLES).tree, exp.Select)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("WITH t AS (SELECT * FROM orders) SELECT * FROM t", {"orders"}),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", {"orders"}),
        ("WITH orders AS (SELECT 1) SELECT * FROM orders", set()),
        ("WITH T AS (SELECT 1) SELECT * FROM t", set()),
        ("WITH a AS (SELECT * FROM nation), nation AS (SELECT 1) SELECT * FROM a", {"Nation"}),
        ("WITH nation AS (SELECT 1), a AS (SELECT * FROM nation) SELECT * FROM a", set()),
        ("WITH nation AS (SELECT 1) SELECT * FROM (SELECT * FROM nation)", set()),
        ("SELECT * FROM (WITH nation AS (SELECT 1) SELECT * FROM nation) t, nation", {"Nation"}),
        ("WITH RECURSIVE nation AS (SELECT 1 UNION ALL SELECT * FROM nation) SELECT * FROM nation", set()),
        ("WITH RECURSIVE nation AS (SELECT * FROM nation) SELECT * FROM nation", {"Nation"}),
        ("WITH t AS (WITH orders AS (SELECT 1) SELECT * FROM orders) SELECT * FROM t, orders", {"orders"}),
        ("SELECT * FROM orders UNION SELECT * FROM nation", {"orders", "Nation"}),
        (
            "SELECT (SELECT max(x) FROM nation) FROM orders WHERE EXISTS (FROM lineitem)",
            {"orders", "Nation", "lineitem"},
        ),
    ],
)
def test_the_tables_read_are_those_no_cte_hides(sql: str, tables: set[str]) -> None:
    assert parse_query(sql, TABLES).tables == tables


def test_a_cte_is_not_seen_outside_its_query() -> None:
    error = refusal("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) AS a, t")
    assert error.message.startswith("there is no table t ")


def test_a_qualified_name_is_no_cte() -> None:
    refusal("WITH t AS (SELECT 1) SELECT * FROM main.t")
    shadowed = refusal("WITH orders AS (SELECT max(o_orderkey) FROM main.orders) SELECT * FROM orders")
    assert "cannot be read where WITH calls something orders; give that another name" in str(shadowed)


def test_a_reference_knows_its_scope() -> None:
    tree = sqlglot.parse_one(
        "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b", dialect="duckdb"
    )
    found = [(table.name, is_cte_reference(table)) for table in tree.find_all(exp.Table)]
    assert sorted(found) == [("a", True), ("b", False), ("b", True)]


def test_errors_survive_pickling() -> None:
    error = refusal("SELECT * FROM lineitems")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.position, copy.candidates) == (error.message, error.position, error.candidates)


@pytest.mark.parametrize(
    ("sql", "instead"),
    [
        (
            "SELECT * FROM 'data/lineitem.parquet'",
            "write FROM lineitem in the place of 'data/lineitem.parquet'",
        ),
        (
            "FROM 'x/*.csv'",
            "relaqs.connect(tables={'data': 'x/*.csv'}), or by --data 'x/*.csv', and write FROM data",
        ),
        (
            "SELECT * FROM read_parquet('my trips.parquet')",
            "connect(tables={'my_trips': 'my trips.parquet'})",
        ),
        ("SELECT * FROM read_csv_auto('a/b.csv.gz')", "and write FROM b"),
        (
            "FROM read_csv('lineitem.csv', delim=';')",
            "or by --data \"read_csv('lineitem.csv', delim = ';')\", and write FROM lineitem",
        ),
        ("FROM read_json(['a.json', 'b.json'])", "--data \"read_json(['a.json', 'b.json'])\""),
    ],
)
def test_a_file_in_a_query_names_the_line_to_write(sql: str, instead: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_query(sql, ["lineitem"])
    assert "a query reads tables, not files" in str(caught.value)
    assert instead in str(caught.value)


def test_modules_that_are_compiled_are_loaded_from_their_texts(tmp_path: Path) -> None:
    """The package sqlglotc compiles sqlglot's parser, and no class of Python's can derive from that one."""
    names = ("sqlglot.tokenizer_core", "sqlglot.parser", "sqlglot.parsers.duckdb")
    others: dict[str, ModuleType] = {}
    for name in names:
        others[name] = from_text(import_module(name), others)
    own, theirs = others["sqlglot.parser"], import_module("sqlglot.parser")
    assert own.Parser is not theirs.Parser
    assert issubclass(others["sqlglot.parsers.duckdb"].DuckDBParser, own.Parser)
    sql = "SELECT a -> 'b', sum(x) FROM t GROUP BY ALL"
    parsed = others["sqlglot.parsers.duckdb"].DuckDBParser(dialect="duckdb").parse(tokens_of(sql), sql)
    assert parsed == sqlglot.parse(sql, dialect="duckdb")
    away = ModuleType("sqlglot.parser")
    away.__file__ = str(tmp_path / "parser.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(UnsupportedError, match=r"parser\.py is missing"):
        from_text(away, {})


def test_an_error_beside_a_view_has_its_place_in_what_the_user_wrote() -> None:
    views = {"late": "SELECT *\nFROM trips WHERE km > 9"}
    with pytest.raises(SqlError, match="no table zone") as caught:
        parse_query("SELECT *\nFROM late JOIN zone USING (z)", ["trips", "zones"], views=views)
    assert caught.value.position == (2, 16)
    with pytest.raises(SqlError, match="no table trips") as caught:
        parse_query("SELECT * FROM late", ["zones"], views=views)
    assert caught.value.position is None


def test_a_copied_tree_is_the_copy_of_sqlglot_and_shares_nothing() -> None:
    sql = """
        WITH w AS (SELECT a, count(*) AS n /* how many */ FROM t GROUP BY GROUPING SETS ((a), ()))
        SELECT CASE WHEN n > 1.5 THEN 'x' ELSE upper(b) END, sum(n) FILTER (WHERE a IN (SELECT 1))
        FROM w JOIN (VALUES (1, DATE '2020-01-01'), (2, NULL)) AS v(a, b) USING (a) WHERE a BETWEEN 1 AND 2
    """
    tree = sqlglot.parse_one(sql, dialect=DIALECT)
    for each in tree.find_all(exp.Literal):
        each.type = exp.DataType.build("INT")
        each.meta["position"] = [1]
    hash(tree)
    made, theirs, before = copied(tree), tree.copy(), tree.sql(DIALECT)
    assert made == theirs
    assert made.sql(DIALECT) == before
    names = ("__class__", "arg_key", "index", "comments", "_type", "_meta")
    for own, node, old in zip(made.walk(), theirs.walk(), tree.walk(), strict=True):
        assert own is not old
        assert [getattr(own, name) for name in names] == [getattr(node, name) for name in names]
        plain = [
            {name: value for name, value in each.args.items() if not isinstance(value, exp.Expr | list)}
            for each in (own, node)
        ]
        assert plain[0] == plain[1]
        assert own._meta is None or own._meta is not old._meta
        assert own.comments is None or own.comments is not old.comments
        assert own.parent is None or own in own.parent.iter_expressions()
        assert all(own is each.parent for each in own.iter_expressions())
    made.find(exp.Literal).replace(exp.Null())
    made.set("with_", None)
    assert tree.sql(DIALECT) == before
    assert made.sql(DIALECT) != before


@pytest.mark.parametrize("given", ["LAMBDA x : x + 1", "LAMBDA x, i : x + i"])
def test_a_lambda_may_stand_in_brackets_as_duckdb_writes_it(given: str) -> None:
    sql = "SELECT list_transform([1, 2], {}) AS found"
    in_brackets, bare = (parse_query(sql.format(each), TABLES) for each in (f"({given})", given))
    assert in_brackets.tree == bare.tree
    assert '("lambda" + 1) * 2' in parse_query(
        "SELECT abs((lambda + 1) * 2) AS n FROM orders", TABLES
    ).tree.sql(DIALECT)
