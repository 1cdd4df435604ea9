"""A snapshot as a value: its attributes, and the ways into other libraries."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate

import relaqs
from relaqs.queries.snapshot import snapshot_of
from tests.relaqs.examples import REVENUE, revenue, snapshot

CONTRACT = {
    *("table", "estimate", "fraction", "error", "confidence", "interval", "batch", "batches"),
    *("elapsed_seconds", "is_exact", "mode", "unseen_groups", "warnings", "certain_rows"),
}


def test_it_has_the_attributes_of_the_contract() -> None:
    answer = revenue()
    assert set(dir(answer)) >= CONTRACT
    assert answer.table.column_names[2:] == ["revenue", "revenue_low", "revenue_high", "revenue_certified"]
    assert answer.estimate.column_names == ["n_name", "year", "revenue"]
    assert len(answer) == 6


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        revenue().error = 0.0  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        revenue().note = "x"  # type: ignore[attr-defined]


def test_an_estimate_becomes_a_snapshot() -> None:
    table = pa.table({"x": [1.0], "x_low": [3], "x_low_": [0.9], "x_high": [1.1], "x_certified": [True]})
    estimate = Estimate(
        table=table,
        columns=("x", "x_low"),
        approximate=(ApproximateColumn("x", "x_low_", "x_high", "x_certified", 0),),
        fraction=0.5,
        is_exact=False,
        values=np.array([[1.0]]),
        half_widths=np.array([[0.1]]),
        doubts=np.array([[0]]),
        unseen_groups=2,
    )
    circumstances: dict[str, Any] = {
        "error": 0.1,
        "confidence": 0.9,
        "interval": "anytime",
        "batch": 1,
        "batches": 2,
        "elapsed_seconds": 0.5,
        "mode": "mergeable",
        "warnings": ("slow",),
    }
    answer = snapshot_of(estimate, **circumstances)
    assert answer.estimate.column_names == ["x", "x_low"]
    assert answer.columns[0].low == "x_low_"
    assert answer.certain_rows is not None
    assert answer.certain_rows.to_pylist() == [True]
    may_leave = dataclasses.replace(estimate, certain_rows=np.array([False]))
    assert snapshot_of(may_leave, **circumstances).certain_rows == pa.array([False])
    assert (answer.fraction, answer.unseen_groups, answer.warnings) == (0.5, 2, ("slow",))


def test_other_libraries_take_it() -> None:
    answer = revenue()
    assert answer.to_arrow() is answer.table
    assert pa.table(answer).equals(answer.table)
    assert pa.schema(answer) == answer.table.schema
    assert answer.to_pandas()["revenue"].tolist() == list(REVENUE)
    assert answer.to_polars()["revenue"].to_list() == list(REVENUE)
    assert pl.DataFrame(answer)["revenue_low"].to_list() == answer.table["revenue_low"].to_pylist()


def test_duckdb_takes_it() -> None:
    cursor = Database(DatabaseConfig(readable=(), memory_limit_bytes=64 << 20)).cursor()
    with cursor.registered(answer=revenue()):  # type: ignore[arg-type]  # anything with the Arrow capsule
        assert cursor.rows("SELECT max(revenue) FROM answer") == [(57.1e6,)]


def test_it_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(revenue()))
    assert copy.table.equals(revenue().table)
    assert copy.columns == revenue().columns


def test_a_prompt_shows_it_as_a_table() -> None:
    head = "Estimate · 42 % of rows · ± 2.8 % (95 % intervals) · 1.10 s\n"
    assert repr(revenue()).startswith(head)
    assert repr(revenue()) == str(revenue())
    assert len(repr(revenue()).splitlines()) >= 2 + 6
    assert "a\nb" not in repr(snapshot({"name": ["a\nb"]}))


def test_an_answer_without_rows_is_true() -> None:
    assert snapshot({"name": []})


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_df_has_the_values_and_types_of_duckdbs(zone: str) -> None:
    rows = duckdb.sql(
        "SELECT i, CASE WHEN i > 0 THEN 9007199254740993 END AS large, (i * 1.5)::DECIMAL(9, 2) AS paid, "
        "DATE '2020-01-01' + i::INT AS day, INTERVAL (i) DAY AS span, i > nullif(i, 2) AS is_more, "
        "TIMESTAMPTZ '2020-01-01 00:00:00+00' AS at, MAP {'a': i} AS m, 'x' || i AS text FROM range(3) t(i)"
    ).to_arrow_table()
    queries = (
        "FROM t",
        "SELECT sum(i) AS n, avg(paid) AS n, count(*) AS c FROM t",
        "SELECT large FROM t WHERE i > 9",
    )
    with relaqs.connect(tables={"t": rows}, timezone=zone) as db, duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        connection.register("t", rows)
        for query in queries:
            ours, theirs = db.sql(query).df(), connection.sql(query).df()
            assert list(ours.columns) == list(theirs.columns)
            assert [str(kind).replace("Etc/UTC", "UTC") for kind in ours.dtypes] == list(
                map(str, theirs.dtypes)
            )
            assert ours.astype(str).equals(theirs.astype(str))
        assert db.sql("SELECT large FROM t").to_pandas()["large"].tolist()[1:] == [9007199254740993] * 2


def test_rows_are_fetched_one_after_another_as_of_duckdbs_results(capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT range AS i, 'x' || range AS text FROM range(5)"
    with relaqs.connect(tables={"t": duckdb.sql(sql).to_arrow_table()}) as db, duckdb.connect() as connection:
        ours, rows = db.execute("SELECT i, text FROM t ORDER BY i"), connection.sql(sql).fetchall()
        assert ours.fetchall() == ours.fetchall() == rows
        theirs = connection.execute(sql)
        assert ours.fetchone() == theirs.fetchone() == (0, "x0")
        assert ours.fetchmany() == theirs.fetchmany(1)
        assert ours.fetchmany(2) == theirs.fetchmany(2)
        assert ours.fetchmany(0) == theirs.fetchmany(0) == []
        assert ours.fetchall() == theirs.fetchall() == [(4, "x4")]
        assert (theirs.fetchone(), theirs.fetchmany(3), theirs.fetchall()) == (None, [], [])
        assert (ours.fetchone(), ours.fetchmany(3), ours.fetchall()) == (None, [], [])
        with pytest.raises(relaqs.ArgumentError, match="size"):
            ours.fetchmany(-1)
        assert db.execute("SELECT i, text FROM t ORDER BY i").fetchmany(10**20) == rows
        assert db.sql("SELECT avg(i) AS mean FROM t").arrow().read_all().to_pydict() == {"mean": [2.0]}
        db.sql("SELECT avg(i) AS mean FROM t").show()
    assert "mean\n────\n   2" in capsys.readouterr().out


def test_names_that_users_of_duckdb_type_work_or_say_what_to_write() -> None:
    with relaqs.connect(tables={"t": pa.table({"x": [1]})}) as db:
        assert db.query("SELECT x AS one FROM t").fetchdf().one.tolist() == [1]
        for name in ("df", "fetchall", "pl", "arrow", "show"):
            with pytest.raises(AttributeError, match=rf"no '{name}': \.result\(\)\.{name} waits for"):
                getattr(db.online_sql("SELECT x AS one FROM t"), name)
        with pytest.raises(AttributeError, match=r"no 'nothing_of_this_name'$"):
            db.online_sql("SELECT x AS one FROM t").nothing_of_this_name  # noqa: B018
