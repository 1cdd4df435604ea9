"""Advice as users meet it: followed to the letter, it does what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from relaqs_tpch import query

import relaqs
from relaqs.cli import program
from relaqs.opening import connect
from tests.conftest import Oracle

DISTRIBUTION = query(13)  # orders per customer, over an outer join by customer key


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture
def warehouse(tpch_warehouse: Path, tmp_path: Path) -> Path:
    """A copy of the TPC-H tables that a test may add to."""
    return Path(shutil.copytree(tpch_warehouse, tmp_path / "warehouse", copy_function=os.link))


def test_following_advice_makes_the_query_progressive(warehouse: Path, tpch_oracle: Oracle) -> None:
    with connect(warehouse) as db:
        advice = db.advise(DISTRIBUTION)
        assert isinstance(advice, relaqs.Advice)
        assert db.online_sql(DISTRIBUTION).result().mode == "exact"
    for command in advice.commands:
        name, *arguments = shlex.split(command)
        assert name == "relaqs"
        assert run(*arguments).exit_code == 0
    with connect(warehouse) as db:
        snapshot = db.online_sql(DISTRIBUTION).result()
        assert snapshot.mode == advice.then.mode == "mergeable"
        assert snapshot.estimate.equals(tpch_oracle.table(DISTRIBUTION))
        plan = db.explain(DISTRIBUTION)
        assert "streams: " + ", ".join(advice.then.streams) in plan
        assert "the layout orders@o_custkey holds the rows of one o_custkey in one partition" in plan
        assert db.advise(DISTRIBUTION).layouts == ()


def test_views_are_advised_on_like_tables(tpch_warehouse: Path) -> None:
    view = "SELECT o_custkey AS who, count(*) AS orders FROM orders GROUP BY o_custkey"
    with connect(tpch_warehouse, views={"activity": view}) as db:
        (layout,) = db.advise("SELECT avg(orders) FROM activity").layouts
        assert (layout.table, layout.cluster_key) == ("orders", ("o_custkey",))
        with pytest.raises(relaqs.SqlError, match="ordrs"):
            db.advise("SELECT avg(ordrs) FROM activity")
    with pytest.raises(relaqs.RelaqsError, match="session is closed"):
        db.advise(DISTRIBUTION)


def test_the_program_prints_what_to_type(tpch_warehouse: Path) -> None:
    done = run("advise", DISTRIBUTION, "--data", tpch_warehouse)
    assert done.exit_code == 0
    orders = tpch_warehouse / "orders"
    assert done.stdout.splitlines()[-1] == (
        f"relaqs shuffle {orders} --into {orders}@o_custkey --cluster-by o_custkey --partitions 20 --seed 0"
    )
    none = run("advise", query(6), "--data", tpch_warehouse)
    assert none.stdout.startswith("No further layout is needed")
    assert run("advise", "SELECT 1 FROM nowhere", "--data", tpch_warehouse).exit_code == 1


def test_rows_that_are_guessed_are_said_to_be_guessed(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i % 7}\n" for i in range(60_000))
    (tmp_path / "trips.csv").write_text("id,zone\n" + lines)
    rows = r"rows     0 → about [\d,]+0 streamed, of about [\d,]+0 in its tables"
    assert re.search(
        rows, run("advise", "SELECT sum(id) FROM trips", "--data", tmp_path / "trips.csv").stdout
    )
    (tmp_path / "few.csv").write_text("id,zone\n1,2\n")
    said = run("advise", "SELECT sum(id) FROM few", "--data", tmp_path / "few.csv").stdout
    assert "its tables have about 1 rows together" in said
