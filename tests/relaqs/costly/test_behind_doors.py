"""Costly functions behind the doors: only where the operator names them, and within what each may ask."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from click.testing import CliRunner, Result
from mcp.client import Client

import relaqs
from benchmarks.server_process import serving
from relaqs.cli import program
from relaqs.cli.parameters import register_functions
from relaqs.mcp.tools import agent_server
from relaqs.queries.options import asked_by
from tests.dashboards.conftest import panel
from tests.dashboards.conftest import serving as serving_pages
from tests.relaqs.test_mcp import refused, told

SHARE = "SELECT avg(complains(text)::INT) AS share FROM reviews"
FUNCTIONS = """
def register(db):
    def complains(text):
        return [each.as_py().endswith("bad") for each in text]

    db.function("complains", complains, cache=False, cost=0.002)
"""
PASSWORD = "a secret"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    rows = "SELECT i AS id, 'text ' || i || if(i % 3 = 0, ' bad', ' good') AS text FROM range(4000) AS t(i)"
    relaqs.shuffle(duckdb.sql(rows), folder / "reviews", partitions=8)
    return folder


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS, encoding="utf-8")
    return file


@pytest.fixture
def db(data: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(data, threads=2, exact_below_seconds=0.3) as session:
        named: dict[str, object] = {}
        exec(FUNCTIONS, named)
        register = named["register"]
        assert callable(register)
        register(session)
        yield session


def test_a_short_query_is_asked_and_not_run_without_its_function(db: relaqs.Session) -> None:
    """Read whole it would take less than `exact_below_seconds`, but DuckDB does not know the function."""
    assert db.online_sql(SHARE, budget=500).result().calls == 500
    assert db.sql(SHARE).fetchall() == [(1334 / 4000,)]


@pytest.mark.parametrize(("budget", "calls"), [(None, 500), (200, 200), ("$3", 500)])
def test_the_smaller_budget_is_kept(db: relaqs.Session, budget: int | str | None, calls: int) -> None:
    with asked_by("ann", budget="$1"):
        assert db.online_sql(SHARE, budget=budget).result().calls == calls


def test_who_has_no_budget_asks_nothing(db: relaqs.Session) -> None:
    with asked_by("ben", budget=0), pytest.raises(relaqs.UnsupportedError, match="ben has no budget to ask"):
        db.online_sql(SHARE)
    for budget in (-1, "", "much"):
        with pytest.raises(relaqs.RelaqsError, match=f"budget is {budget!r}"), asked_by("eve", budget=budget):
            pass


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def test_on_the_command_line(data: Path, functions: Path, tmp_path: Path) -> None:
    asked = run("sql", SHARE, "--data", data, "--functions", functions, "--format", "jsonl")
    assert f'"share": {1334 / 4000}' in asked.stdout.splitlines()[-1]
    assert "500 calls" in run("sql", SHARE, "--data", data, "--functions", functions, "--budget", "$1").stdout
    assert "'complains' is not known" in run("sql", SHARE, "--data", data).stderr
    (empty := tmp_path / "empty.py").write_text("x = 1")
    (keyless := tmp_path / "keyless.py").write_text("def register(db):\n    {}['a']")
    assert "failed: KeyError" in run("sql", SHARE, "--data", data, "--functions", keyless).stderr
    (broken := tmp_path / "broken.py").write_text("def register(db):\n    db.function(3)")
    assert "has no register" in run("sql", SHARE, "--data", data, "--functions", empty).stderr
    assert "failed: TypeError" in run("sql", SHARE, "--data", data, "--functions", broken).stderr
    assert "neither a number of calls" in run("sql", SHARE, "--data", data, "--budget", "much").stderr


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_users_of_a_server_ask_within_their_budgets(
    data: Path, functions: Path, tmp_path: Path, processes: str
) -> None:
    users = tmp_path / "users.toml"
    for name, budget in (("ana", 'budget = "$1"'), ("ben", "budget = 5000"), ("eve", "")):
        added = ["serve", "add-user", name, "--users", str(users), "--password-stdin"]
        CliRunner().invoke(program, added, input=f"{PASSWORD}\n", catch_exceptions=False)
        users.write_text(users.read_text(encoding="utf-8") + budget + "\n", encoding="utf-8")
    options = ("--users", str(users), "--functions", str(functions), "--processes", processes)
    with serving(data, *options) as running:

        def connected(name: str) -> psycopg.Connection[tuple[float]]:
            return psycopg.connect(running.address(name), password=PASSWORD, autocommit=True)

        does_not_pay = pytest.raises(psycopg.Error, match="the budget does not pay the exact answer")
        with connected("ana") as ana, does_not_pay:
            ana.execute(SHARE)
        with connected("ben") as ben:
            said: list[str] = []
            ben.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
            ((share,),) = ben.execute(f"/*+ relaqs budget=300 */ {SHARE}").fetchall()
            assert share != 1334 / 4000
            assert re.search(
                "after (7.5|20) % of the rows", said[0]
            )  # ana's 500 answers are kept in a process
            assert ben.execute(SHARE).fetchall() == [(1334 / 4000,)]
            with pytest.raises(psycopg.Error, match="number of calls such as 500"):
                ben.execute("SET relaqs.budget = 'much'")
        with (
            connected("eve") as eve,
            pytest.raises(psycopg.Error, match="eve has no budget to ask complains"),
        ):
            eve.execute(SHARE)


@pytest.mark.parametrize(
    ("budget", "state", "spent", "reason"),
    [
        ("$0.4", "stopped", "200 calls · $0.40 of $0.40 spent", "the budget of $0.4 for functions is spent"),
        (300, "stopped", "300 of 300 calls · 0.60 spent", "the budget of 300 for functions is spent"),
        ("$10", "exact", "4,000 calls · $8.00 of $10.00 spent", None),
        (0, "failed", None, None),
    ],
)
def test_a_page_says_what_its_panels_spend(
    data: Path, functions: Path, tmp_path: Path, budget: int | str, state: str, spent: str, reason: str | None
) -> None:
    with serving_pages(tmp_path / "pages", data, panel(SHARE), budget=budget) as served:
        register_functions(served.dashboard.session, functions)
        with served.page() as page:
            shown = page.until_panel("p1", state=state)
    assert (shown["spent"], shown["reason"]) == (spent, reason)
    if state == "failed":
        assert "you has no budget to ask complains" in shown["failure"]["message"]


def test_a_panel_asks_no_more_once_its_target_is_reached(data: Path, functions: Path, tmp_path: Path) -> None:
    page_ = panel(SHARE, target=0.1)
    with serving_pages(tmp_path / "pages", data, page_, budget="$10") as served:
        register_functions(served.dashboard.session, functions)
        with served.page() as page:
            shown = page.until_panel("p1", state="stopped")
    assert shown["reason"] == "its target is reached, and more calls would cost more"
    assert 0 < shown["error"] <= 0.1
    assert shown["rows_read"] is None or shown["fraction"] < 0.5


def test_an_agent_asks_within_the_budget_that_it_is_given(db: relaqs.Session) -> None:
    async def session() -> None:
        async with Client(agent_server(db)) as client:
            assert "has no budget to ask complains" in await refused(client, "ask", sql=SHARE)
        async with Client(agent_server(db, 400)) as client:
            answer = await told(client, "ask", sql=SHARE, error=0.001)
            assert not answer["is_good_enough"]
            assert "the budget for functions was spent before an error of 0.10 %" in answer["notes"][-1]

    asyncio.run(session())


def test_a_budget_that_ends_before_the_first_row_shows_none(db: relaqs.Session) -> None:
    with asked_by("ann", budget=3):
        found = db.online_sql("SELECT id, complains(text || 'x') AS bad FROM reviews ORDER BY id").result()
    assert not found.is_exact
    assert (found.calls, found.fraction) == (3, 3 / 4000)


@pytest.mark.parametrize("budget", [None, 0, 3])
def test_functions_of_no_table_are_refused(db: relaqs.Session, budget: int | None) -> None:
    with asked_by("ann", budget=budget), pytest.raises(relaqs.RelaqsError, match="asked of rows"):
        db.online_sql("VALUES (complains('x'))").result()


@pytest.mark.slow
def test_what_a_function_says_stays_inside(data: Path, tmp_path: Path) -> None:
    """Its operator sees it where the function runs. Clients are told what kind of error it was."""
    file = tmp_path / "failing.py"
    file.write_text(
        "def register(db):\n"
        "    def complains(text):\n"
        "        raise ValueError('401 key sk-SECRET')\n"
        "    db.function('complains', complains, cache=False, retries=0)\n",
        encoding="utf-8",
    )
    options = ("--functions", str(file))
    with (
        serving(data, *options) as running,
        psycopg.connect(running.address(), autocommit=True) as connection,
    ):
        with pytest.raises(psycopg.Error, match=r"complains failed once .* ValueError") as raised:
            connection.execute(SHARE)
        assert "SECRET" not in str(raised.value)
        with pytest.raises(psycopg.Error, match="number of calls such as 500"):
            connection.execute("SET relaqs.budget = '0'")
    named: dict[str, object] = {}
    exec(file.read_text(encoding="utf-8"), named)

    async def session() -> None:
        with relaqs.connect(data, threads=2) as db:
            register = named["register"]
            assert callable(register)
            register(db)
            async with Client(agent_server(db, 400)) as client:
                said = await refused(client, "ask", sql=SHARE)
                assert "ValueError" in said
                assert "SECRET" not in said

    asyncio.run(session())
