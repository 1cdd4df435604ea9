"""Which functions a query may call: nothing that sees more than its arguments, everything else."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.aggregate_laws import mark_aggregates
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.functions import (
    VOLATILE_NAMES,
    allowed_functions,
    check_functions,
    volatile_function,
)
from sqlglot import exp
from sqlglot.errors import ParseError

SAME_AS_VOLATILE = {"current_date", "current_localtime", "current_localtimestamp", "get_current_time"}


def check(sql: str) -> None:
    check_functions(sqlglot.parse_one(sql, dialect="duckdb"))


@pytest.mark.parametrize(
    "call",
    [
        "getenv('HOME')",
        "current_setting('threads')",
        "getvariable('x')",
        "current_user",
        "current_schema()",
        "current_database()",
        "current_query()",
        "current_role()",
        "session_user",
        "pg_backend_pid()",
        "nextval('s')",
        "currval('s')",
        "txid_current()",
        "version()",
        "in_search_path('a', 'b')",
        "query('SELECT 1')",
        "read_text('/etc/passwd')",
        "sleep(1)",
        "write_log('x')",
        "no_such_function(1)",
    ],
)
def test_what_tells_of_the_process_is_refused(call: str) -> None:
    with pytest.raises(SqlError, match="not allowed"):
        check(f"SELECT {call}")


def test_every_function_of_duckdb_that_is_not_allowed_is_refused() -> None:
    """sqlglot has types for many functions: none of them may slip past the list of names."""
    others = Binder(Catalog(())).functions() - allowed_functions() - VOLATILE_NAMES - SAME_AS_VOLATILE
    calls = [
        f"{name}({argument})" for name in sorted(others) if name.isidentifier() for argument in ("", "x")
    ]
    assert [call for call in calls if not is_refused(call)] == []


def is_refused(call: str) -> bool:
    try:
        check(f"SELECT {call}")
    except (SqlError, ParseError):
        return True
    return False


def test_a_misspelt_function_has_candidates() -> None:
    with pytest.raises(SqlError) as caught:
        check("SELECT regexp_extractt(x, 'a')")
    assert "regexp_extract" in caught.value.candidates


def test_a_function_of_another_database_has_the_one_that_does_the_same_here() -> None:
    for name, here in (("nvl(a, 1)", "coalesce(a, 1)"), ("percentile(a, 0.5)", "quantile_cont(a, 0.5)")):
        with pytest.raises(SqlError) as caught:
            check_functions(sqlglot.parse_one(f"SELECT {name} FROM t", dialect="relaqs"))
        assert caught.value.candidates == (here.partition("(")[0],)
        check(f"SELECT {here} FROM t")


@pytest.mark.parametrize(
    "call",
    [
        "sum(x)",
        "median(x)",
        "regexp_extract(x, 'a')",
        "date_trunc('month', x)",
        "list_transform([1], lambda y: y + 1)",
        "struct_pack(a := 1)",
        "strftime(x, '%Y')",
        "hash(x)",
        "approx_quantile(x, 0.5)",
        "random()",
        "now()",
    ],
)
def test_functions_of_their_arguments_are_let_through(call: str) -> None:
    check(f"SELECT {call}")


def test_every_name_allowed_is_a_function_of_this_duckdb() -> None:
    known = Binder(Catalog(())).functions()
    assert sorted(allowed_functions() - known) == []


@pytest.mark.parametrize(
    ("expression", "call"),
    [
        ("random() < 0.5", "random()"),
        ("x < now()", "now()"),
        ("x < current_date", "current_date"),
        ("x < current_timestamp", "current_timestamp"),
        ("x = uuid()", "uuid()"),
        ("x = gen_random_uuid()", "uuid()"),
        ("x < today()", "current_date"),
        ("age(x) > y", "age(x)"),
        ("age(x, y) > z", None),
        ("hash(x) = 1", None),
        ("date_trunc('day', x) = y", None),
    ],
)
def test_functions_of_the_moment_or_of_chance_are_found(expression: str, call: str | None) -> None:
    tree = sqlglot.parse_one(f"SELECT count(*) FROM t WHERE {expression}", dialect="duckdb")
    assert volatile_function(tree) == call


def test_every_aggregate_of_duckdb_is_known_as_one() -> None:
    """An aggregate taken for a function of one row would answer once for each task."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (x DOUBLE, y INTEGER, s VARCHAR)")
        names = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() "
            "WHERE function_type IN ('aggregate', 'macro')"
        ).fetchall()
        arguments = ("", "x", "s", "y", "x, y", "s, s", "x, 0.5", "y, x, 3", "x, [1.5]")
        calls = [f"{name}({given})" for (name,) in names if name.isidentifier() for given in arguments]
        aggregates = [call for call in calls if is_aggregate(connection, call)]
    assert len({call.partition("(")[0] for call in aggregates}) > 80
    assert [call for call in aggregates if not is_known_aggregate(call)] == []


def is_aggregate(connection: duckdb.DuckDBPyConnection, call: str) -> bool:
    """Whether DuckDB knows the call and refuses it where rows are still single."""
    try:
        connection.execute(f"DESCRIBE SELECT 1 FROM t WHERE ({call}) IS NULL")
    except duckdb.Error as error:
        return "cannot contain aggregates" in str(error)
    return False


def is_known_aggregate(call: str) -> bool:
    """Whether it is an aggregate after parsing. What does not parse is refused with an error."""
    try:
        tree = sqlglot.parse_one(f"SELECT {call}", dialect="duckdb")
    except ParseError:
        return True
    mark_aggregates(tree)
    return tree.find(exp.AggFunc) is not None
