"""ibis' backend: expressions that are exact, or queries that sharpen, and clear words for the rest."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import ibis
import pandas
import pytest
from ibis import _

import relaqs
from relaqs import dbapi
from relaqs.ibis import Backend
from tests.relaqs.doors.questions import QUESTIONS, assert_same, duckdbs_answer
from tests.relaqs.executors.clusters import eventually

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def con(warehouse: Path) -> Iterator[Any]:
    con = Backend().connect(str(warehouse), threads=2)
    yield con
    con.disconnect()


def _averages(f: Any, a: Any) -> Any:
    return f.group_by("origin").agg(late=f.dep_delay.mean(), n=f.count()).order_by("origin")


def _a_filter(f: Any, a: Any) -> Any:
    chosen = f.filter(f.month <= 3, f.carrier.isin(["UA", "AA"]), f.dest.startswith("S"))
    return chosen.agg(miles=chosen.distance.sum())


def _a_join(f: Any, a: Any) -> Any:
    joined = f.join(a, "carrier").group_by(airline=_.name)
    return joined.agg(worst=_.dep_delay.max()).order_by("airline")


def _having(f: Any, a: Any) -> Any:
    late = f.group_by("carrier").having(_.count() > 10000)
    return late.agg(late=_.arr_delay.mean()).order_by("carrier")


def _a_case(f: Any, a: Any) -> Any:
    return f.group_by("month").agg(bad=(f.dep_delay > 60).ifelse(1, 0).sum()).order_by("month")


def _rows(f: Any, a: Any) -> Any:
    worst = f.filter(f.dep_delay > 900).order_by(ibis.desc("dep_delay"), "flight")
    return worst.select("carrier", "flight", "dep_delay", "time_hour")


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a count": lambda f, a: f.count().as_table(),
    "averages by group": _averages,
    "a filter": _a_filter,
    "a join": _a_join,
    "a top five": lambda f, a: (
        f.group_by("dest").agg(n=f.count()).order_by(ibis.desc("n"), "dest").limit(5, offset=1)
    ),
    "having": _having,
    "distinct values": lambda f, a: f.filter(f.origin != "JFK").tailnum.nunique().as_table(),
    "a case": _a_case,
    "a subquery": lambda f, a: f.filter(f.distance > f.distance.mean()).count().as_table(),
    "rows": _rows,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_duckdbs(con: Any, files: Path, name: str) -> None:
    expected = duckdbs_answer(files, QUESTIONS[name])
    expression = EXPRESSIONS[name](con.table("flights"), con.table("airlines"))
    for asked in (expression, con.sql(QUESTIONS[name])):
        assert_same([tuple(row.values()) for row in asked.to_pyarrow().to_pylist()], expected)
        assert_same(list(asked.to_pandas().itertuples(index=False)), expected)


def test_tables_have_schemas(con: Any) -> None:
    assert sorted(con.list_tables()) == ["airlines", "flights"]
    assert con.list_tables(like="air") == ["airlines"]
    assert con.table("airlines").schema() == ibis.schema({"carrier": "string", "name": "string"})
    assert con.table("flights").time_hour.type().is_timestamp()
    assert con.version == relaqs.__version__
    with pytest.raises(ibis.common.exceptions.TableNotFound, match="nowhere"):
        con.table("nowhere")


def test_values_and_columns_and_batches(con: Any) -> None:
    airlines = con.table("airlines")
    assert airlines.count().execute() == 16
    assert airlines.carrier.max().to_pyarrow().as_py() == "YV"
    assert isinstance(airlines.carrier.execute(), pandas.Series)
    assert sum(batch.num_rows for batch in airlines.to_pyarrow_batches(chunk_size=5)) == 16
    assert airlines.to_polars().height == 16
    least = ibis.param("int64")
    far = con.table("flights").filter(_.distance > least).count()
    assert (
        con.execute(far, params={least: 4000})
        == con.table("flights").filter(_.distance > 4000).count().execute()
    )
    assert airlines.limit(3).execute().shape == (3, 2)


def test_intervals_are_those_of_pandas(con: Any) -> None:
    sql = "SELECT i, CASE WHEN i > 0 THEN i * INTERVAL '1 month 90 minutes' END AS wait FROM range(3) AS t(i)"
    expression = con.sql(sql).order_by("i")
    none, once, twice = expression.execute().wait
    assert none is None
    assert once == pandas.DateOffset(months=1, days=0, nanoseconds=5400 * 10**9)
    assert twice == pandas.DateOffset(months=2, days=0, nanoseconds=10800 * 10**9)
    assert expression.wait.max().execute() == twice


def test_online_gives_a_query_that_sharpens(con: Any) -> None:
    flights = con.table("flights")
    far = flights.group_by("origin").agg(far=flights.distance.mean())
    answer = con.online(far, target="10%").result(until="10%")
    assert answer.table.column_names == ["origin", "far", "far_low", "far_high", "far_certified"]
    assert answer.error <= 0.1
    exact = con.online(flights.distance.mean()).result()
    assert exact.estimate.column(0)[0].as_py() == pytest.approx(flights.distance.mean().execute())


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda con: con.create_table("x", con.table("airlines")), "nothing can be written"),
        (lambda con: con.create_view("x", con.table("airlines")), "nothing can be written"),
        (lambda con: con.insert("airlines", con.table("airlines")), "nothing can be written"),
        (lambda con: con.drop_table("airlines"), "nothing can be written"),
        (lambda con: con.create_database("x"), "nothing can be written"),
        (lambda con: con.list_tables(database="other"), "no database 'other'"),
        (lambda con: con.read_csv("a.csv", sep=";"), "takes no options"),
        (lambda con: con.table("airlines").mutate(x=_doubled(_.carrier)).execute(), "function of Python"),
    ],
)
def test_what_cannot_be_done_says_so(con: Any, use: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(ibis.common.exceptions.UnsupportedOperationError, match=words):
        use(con)
    assert con.table("airlines").count().execute() == 16


def test_frames_and_files_join_the_tables_of_a_session(
    con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ibis.memtable({"carrier": ["UA", "XX"], "price": [Decimal("1.25"), Decimal(2)], "at": [[1, 2], []]})
    known = con.table("airlines").join(few, "carrier").select("name", "price", "at").execute()
    assert known.values.tolist() == [["United Air Lines Inc.", Decimal("1.25"), [1, 2]]]
    assert (
        con.table("airlines").union(few.mutate(name=_.carrier).select("carrier", "name")).count().execute()
        == 18
    )
    assert ibis.memtable({"n": []}, schema={"n": "int64"}).pipe(con.execute).empty
    own = Backend().connect(con.con.tables["airlines"].directory.parent, threads=1)
    many = pandas.DataFrame({"n": range(2000)})
    assert own.execute(ibis.memtable(many).n.sum()) == 1_999_000
    many.to_parquet(tmp_path / "many.parquet")
    many.to_csv(tmp_path / "many.csv", index=False)
    assert own.read_parquet(tmp_path / "many.parquet").n.sum().execute() == 1_999_000
    assert own.read_csv(tmp_path / "many.csv", table_name="of_csv").n.max().execute() == 1999
    kept = own.table("airlines").filter(_.carrier < "B").cache()
    assert kept.count().execute() == own.table("airlines").filter(_.carrier < "B").count().execute()
    monkeypatch.chdir(tmp_path)
    assert own.read_csv("many.csv", table_name="of_csv").count().execute() == 2000
    monkeypatch.chdir("/")
    assert own.read_parquet(tmp_path / "many.parquet", table_name="late").count().execute() == 2000
    name = kept.op().name
    assert {"airlines", "of_csv", "late", name} <= set(own.list_tables())
    del kept
    # Other expressions refer to it in a circle. `collect` does nothing while another thread collects.
    eventually(lambda: gc.collect() >= 0 and name not in own.list_tables())
    own.disconnect()


def test_a_file_takes_the_place_of_one_that_was_read_and_of_no_other_table(con: Any, tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("x\n1\n")
    assert con.read_csv(file, table_name="few_read").count().execute() == 1
    for name, error in (("airlines", "there is a table airlines already"), ("few_read", "there is no file")):
        with pytest.raises(relaqs.RelaqsError, match=error):
            con.read_csv(tmp_path / "none.csv" if name == "few_read" else file, table_name=name)
    assert con.table("airlines").count().execute() == 16
    assert con.table("few_read").x.max().execute() == 1
    other = tmp_path / "other.csv"
    other.write_text("x\n2\n3\n")
    assert con.read_csv(other, table_name="few_read").x.max().execute() == 3
    con.con.remove_table("few_read")


def test_lists_keep_their_nulls_and_rows_become_json(con: Any, tmp_path: Path) -> None:
    lists = con.sql("SELECT [1, NULL, 3] AS xs, carrier FROM airlines ORDER BY carrier LIMIT 1")
    assert lists.execute().values.tolist() == [[[1, None, 3], "9E"]]
    lists.to_json(tmp_path / "rows.json")
    assert (tmp_path / "rows.json").read_text() == '[{"xs":[1,null,3],"carrier":"9E"}]'
    assert "airlines" in ibis.to_sql(con.table("airlines").limit(3), dialect="relaqs")


def test_decimals_of_any_size_are_fetched(con: Any) -> None:
    miles = con.table("flights").distance.cast("decimal(15, 2)")
    product = (miles * (1 - miles)).sum()
    ((true,),) = con.con.sql(
        "SELECT sum(distance::DECIMAL(15, 2) * (1 - distance::DECIMAL(15, 2))) FROM flights"
    ).fetchall()
    assert con.execute(product) == true
    assert con.to_pyarrow(product).as_py() == true


def test_names_of_databases_and_other_dialects_are_read(con: Any) -> None:
    assert (con.list_catalogs(), con.list_databases()) == (["relaqs"], ["main"])
    assert (con.current_catalog, con.current_database) == ("relaqs", "main")
    assert con.table("airlines", database="main").count().execute() == 16
    for dialect in ("postgres", "relaqs", "duckdb"):
        assert con.sql("SELECT count(*) AS n FROM airlines", dialect=dialect).execute().n.tolist() == [16]


@ibis.udf.scalar.python
def _doubled(text: str) -> str:
    return text * 2


def test_errors_of_queries_are_ours(con: Any) -> None:
    with pytest.raises(relaqs.SqlError, match="nope"):
        con.sql("SELECT nope FROM flights", schema={"nope": "int64"}).execute()
    with pytest.raises(dbapi.ProgrammingError, match="only SELECT"):
        con.raw_sql("DELETE FROM flights").close()
    assert con.raw_sql("SELECT count(*) FROM airlines").fetchall() == [(16,)]


def test_a_session_of_ones_own_may_be_used(warehouse: Path) -> None:
    with relaqs.connect(warehouse, views={"few": "SELECT * FROM airlines LIMIT 2"}, threads=1) as session:
        con = Backend.from_connection(session)
        assert con.table("few").count().execute() == 2
        assert con.execute(ibis.memtable(pandas.DataFrame({"n": range(2000)})).n.max()) == 1999


def test_ibis_finds_the_backend_by_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = import_module(project["entry-points"]["ibis.backends"]["relaqs"])
    assert module.Backend.name == "relaqs"
