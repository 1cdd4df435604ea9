"""SQLAlchemy's dialect: expressions, reflection, pandas.read_sql, and answers that are good enough."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import distinct_on

from relaqs import dbapi
from relaqs.sqlalchemy.dialect import Quotes
from tests.relaqs.doors.questions import QUESTIONS, assert_same, duckdbs_answer

ROOT = Path(__file__).resolve().parents[3]
registry.register("relaqs", "relaqs.sqlalchemy", "RelaqsDialect")  # what the entry point does once installed


@pytest.fixture(scope="module")
def engine(warehouse: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"relaqs:///{warehouse}?threads=2")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def tables(engine: sa.Engine) -> sa.MetaData:
    tables = sa.MetaData()
    tables.reflect(engine)
    return tables


def _a_count(f: Any, a: Any) -> sa.Select[Any]:
    return sa.select(sa.func.count().label("n")).select_from(f)


def _averages(f: Any, a: Any) -> sa.Select[Any]:
    late = sa.func.avg(f.c.dep_delay).label("late")
    return sa.select(f.c.origin, late, sa.func.count()).group_by(f.c.origin).order_by(f.c.origin)


def _a_filter(f: Any, a: Any) -> sa.Select[Any]:
    return sa.select(sa.func.sum(f.c.distance)).where(
        f.c.month <= 3, f.c.carrier.in_(["UA", "AA"]), f.c.dest.startswith("S")
    )


def _a_join(f: Any, a: Any) -> sa.Select[Any]:
    joined = f.join(a, f.c.carrier == a.c.carrier)
    worst = sa.select(a.c.name, sa.func.max(f.c.dep_delay)).select_from(joined)
    return worst.group_by(a.c.name).order_by(a.c.name)


def _a_top_five(f: Any, a: Any) -> sa.Select[Any]:
    n = sa.func.count().label("n")
    return sa.select(f.c.dest, n).group_by(f.c.dest).order_by(n.desc(), f.c.dest).limit(5).offset(1)


def _having(f: Any, a: Any) -> sa.Select[Any]:
    late = sa.select(f.c.carrier, sa.func.avg(f.c.arr_delay)).group_by(f.c.carrier)
    return late.having(sa.func.count() > 10000).order_by(f.c.carrier)


def _distinct(f: Any, a: Any) -> sa.Select[Any]:
    return sa.select(sa.func.count(f.c.tailnum.distinct())).where(f.c.origin != "JFK")


def _a_case(f: Any, a: Any) -> sa.Select[Any]:
    bad = sa.func.sum(sa.case((f.c.dep_delay > 60, 1), else_=0))
    return sa.select(f.c.month, bad).group_by(f.c.month).order_by(f.c.month)


def _a_subquery(f: Any, a: Any) -> sa.Select[Any]:
    mean = sa.select(sa.func.avg(f.c.distance)).scalar_subquery()
    return sa.select(sa.func.count()).where(f.c.distance > mean)


def _rows(f: Any, a: Any) -> sa.Select[Any]:
    columns = sa.select(f.c.carrier, f.c.flight, f.c.dep_delay, f.c.time_hour)
    return columns.where(f.c.dep_delay > 900).order_by(f.c.dep_delay.desc(), f.c.flight)


EXPRESSIONS: dict[str, Callable[[Any, Any], sa.Select[Any]]] = dict(
    zip(
        QUESTIONS,
        [
            *(_a_count, _averages, _a_filter, _a_join, _a_top_five),
            *(_having, _distinct, _a_case, _a_subquery, _rows),
        ],
        strict=True,
    )
)


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_duckdbs(engine: sa.Engine, tables: sa.MetaData, files: Path, name: str) -> None:
    expected = duckdbs_answer(files, QUESTIONS[name])
    expression = EXPRESSIONS[name](tables.tables["flights"], tables.tables["airlines"])
    with engine.connect() as connection:
        assert_same(connection.execute(sa.text(QUESTIONS[name])).all(), expected)
        assert_same(connection.execute(expression).all(), expected)


def test_tables_are_reflected(engine: sa.Engine, tables: sa.MetaData) -> None:
    inspector = sa.inspect(engine)
    assert sorted(inspector.get_table_names()) == ["airlines", "flights"]
    assert inspector.get_view_names() == []
    assert inspector.has_table("Flights")
    assert not inspector.has_table("nowhere")
    columns = {column["name"]: column["type"] for column in inspector.get_columns("flights")}
    assert isinstance(columns["carrier"], sa.String)
    assert isinstance(columns["distance"], sa.BigInteger)
    assert isinstance(columns["time_hour"], sa.DateTime)
    with pytest.raises(sa.exc.NoSuchTableError, match="nowhere"):
        inspector.get_columns("nowhere")


def test_views_are_reflected(warehouse: Path) -> None:
    few = "SELECT carrier, name FROM airlines WHERE carrier < 'B'"
    engine = sa.create_engine(f"relaqs:///{warehouse}", connect_args={"views": {"few": few}})
    inspector = sa.inspect(engine)
    assert inspector.get_view_names() == ["few"]
    assert inspector.get_view_definition("few") == few
    assert [column["name"] for column in inspector.get_columns("few")] == ["carrier", "name"]
    view = sa.Table("few", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert [row.carrier for row in connection.execute(sa.select(view))] == ["9E", "AA", "AS"]
    engine.dispose()


TYPED = """
SELECT true AS yes, 1::TINYINT AS tiny, 2 AS small, 3::BIGINT AS big, 4::UBIGINT AS unsigned,
    5::HUGEINT AS huge, 1.5::FLOAT AS single, 2.5 AS double, 1.25::DECIMAL(10, 2) AS price,
    'x' AS name, 'x'::BLOB AS bytes, DATE '2020-01-02' AS day, TIME '10:11:12' AS clock,
    TIMESTAMP '2020-01-02 03:04:05' AS moment, TIMESTAMPTZ '2020-01-02 03:04:05+00' AS zoned,
    [1, 2] AS several, {'a': 1} AS fields
"""


def test_types_survive_the_way() -> None:
    engine = sa.create_engine("relaqs://", connect_args={"tables": {"typed": duckdb.sql(TYPED)}})
    table = sa.Table("typed", sa.MetaData(), autoload_with=engine)
    kinds = {column.name: type(column.type) for column in table.columns}
    assert kinds | {"several": sa.ARRAY, "fields": sa.types.NullType} == kinds
    with engine.connect() as connection:
        row = connection.execute(sa.select(table)).one()
        for column in table.columns:
            if column.name not in ("fields", "several"):
                found = connection.execute(sa.select(table).where(column == row._mapping[column])).all()
                assert found == [row], column.name
    assert (row.price, row.huge, row.day) == (Decimal("1.25"), 5, datetime.date(2020, 1, 2))
    assert (row.several, row.fields, row.bytes) == ([1, 2], {"a": 1}, b"x")
    engine.dispose()


def test_what_duckdb_means_otherwise_than_postgresql(engine: sa.Engine, tables: sa.MetaData) -> None:
    flights = tables.tables["flights"]
    carrier, distance = flights.c.carrier, flights.c.distance
    one = sa.select(
        sa.literal(7) / 2,
        sa.literal(7) // 2,
        sa.cast("1.23456", sa.Numeric),
        sa.cast("0.1", sa.Float),
        sa.cast("1.23456", sa.Numeric(8, 2)),
        sa.literal(6).bitwise_xor(3),
        sa.literal("abc").regexp_match("b"),
        ~sa.literal("abc").regexp_match("B"),
        sa.literal("abc").regexp_match("B", flags="i"),
        sa.literal("100%").contains("0%", autoescape=True),
        sa.literal("x").in_([]),
    )
    with engine.connect() as connection:
        values = connection.execute(one).one()
        assert [float(value) if isinstance(value, Decimal) else value for value in values] == [
            *(3.5, 3, 1.23456, 0.1, 1.23, 5, True, True, True, True, False)
        ]
        longest = sa.select(carrier, distance).ext(distinct_on(carrier)).order_by(carrier, distance.desc())
        assert connection.execute(longest).first() == ("9E", 1587)


def test_words_of_duckdbs_sql_are_quoted(engine: sa.Engine) -> None:
    words = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'")
    reserved = {word for (word,) in words.fetchall()}
    assert reserved <= Quotes.reserved_words
    with engine.connect() as connection:
        names = sorted(reserved | {"at", "by", "columns", "glob", "map", "semi", "A b"})
        row = connection.execute(sa.select(*(sa.literal(1).label(name) for name in names))).one()
        assert list(row._mapping) == names


def test_a_target_is_in_the_url_or_with_the_statement(warehouse: Path) -> None:
    engine = sa.create_engine(f"relaqs:///{warehouse}?target=10%25&threads=1&intervals=true")
    average = sa.text("SELECT avg(distance) AS far FROM flights")
    with engine.connect() as connection:
        row = connection.execute(average).one()
        assert row.far_low < row.far < row.far_high
        exact = {"relaqs_target": None, "relaqs_intervals": False}
        result = connection.execute(average, execution_options=exact)
        assert result.context.cursor.snapshot.is_exact
        assert tuple(result.keys()) == ("far",)
    engine.dispose()


def test_pandas_reads_it(engine: sa.Engine, files: Path) -> None:
    sql = QUESTIONS["averages by group"]
    found = pandas.read_sql(sql, engine)
    assert_same(list(found.itertuples(index=False)), duckdbs_answer(files, sql))
    assert len(pandas.read_sql_table("airlines", engine)) == 16
    some = pandas.read_sql(
        sa.text("SELECT * FROM airlines WHERE carrier > :c"), engine, params={"c": "V"}, chunksize=2
    )
    assert [len(chunk) for chunk in some] == [2, 1]


def test_connections_share_one_session_until_the_engine_is_disposed(warehouse: Path) -> None:
    engine = sa.create_engine(f"relaqs:///{warehouse}?threads=1", pool_size=3)

    def session_of_a_connection(_: int) -> object:
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM airlines")).scalar() == 16
            return _opened(connection).session

    with ThreadPoolExecutor(3) as threads:
        sessions = set(threads.map(session_of_a_connection, range(9)))
    assert len(sessions) == 1
    engine.dispose()
    assert "closed" in repr(sessions.pop())
    assert "closed" not in repr(session_of_a_connection(0))
    engine.dispose()


def _opened(connection: sa.Connection) -> dbapi.Connection:
    opened = connection.connection.dbapi_connection
    assert isinstance(opened, dbapi.Connection)
    return opened


def test_errors_are_sqlalchemys(
    engine: sa.Engine, tables: sa.MetaData, warehouse: Path, tmp_path: Path
) -> None:
    with engine.connect() as connection:
        with pytest.raises(sa.exc.ProgrammingError, match="nope"):
            connection.execute(sa.text("SELECT nope FROM flights"))
        with pytest.raises(sa.exc.ProgrammingError, match="only SELECT"):
            connection.execute(sa.insert(tables.tables["airlines"]).values(carrier="XX"))
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    with pytest.raises(sa.exc.OperationalError, match="nowhere"):
        sa.create_engine(f"relaqs:///{tmp_path / 'nowhere'}").connect()
    with pytest.raises(sa.exc.ProgrammingError, match="target is 'much'"):
        sa.create_engine(f"relaqs:///{warehouse}?target=much").connect()
    with pytest.raises(sa.exc.ArgumentError, match=r"no option 'aim'.*target"):
        sa.create_engine(f"relaqs:///{warehouse}?aim=5%25").connect()
    with pytest.raises(sa.exc.ArgumentError, match="relaqs:///warehouse"):
        sa.create_engine("relaqs://warehouse").connect()


def test_savepoints_do_nothing_as_commit_does(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        with connection.begin_nested():
            assert connection.execute(sa.text("SELECT 1")).scalar() == 1
        with pytest.raises(sa.exc.ProgrammingError, match="nope"), connection.begin_nested():
            connection.execute(sa.text("SELECT nope FROM flights"))
        assert connection.execute(sa.text("SELECT 2")).scalar() == 2


def test_a_dashboard_program_asks_by_a_raw_cursor(engine: sa.Engine, files: Path) -> None:
    """Superset looks tables up, compiles a chart's SELECT to text, and reads rows and types of a cursor."""
    assert sa.inspect(engine).get_schema_names() == []
    month = sa.literal_column("date_trunc('month', time_hour)").label("month")
    n = sa.func.count().label("n")
    chart = sa.select(month, n).select_from(sa.table("flights")).group_by(month).order_by(n.desc()).limit(2)
    text = str(chart.compile(engine, compile_kwargs={"literal_binds": True}))
    raw = engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute(text)
    assert [column[:2] for column in cursor.description or ()] == [("month", "TIMESTAMP"), ("n", "BIGINT")]
    assert cursor.fetchall() == duckdbs_answer(files, text)
    raw.close()


def test_sqlalchemy_finds_the_dialect_by_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["sqlalchemy.dialects"]["relaqs"].partition(":")
    assert getattr(import_module(module), name).name == "relaqs"
