"""`%%relaqs` and queries as the last value of a cell: in a shell of this process, and in a real notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

import relaqs
from relaqs import OnlineQuery

FLAGS = "SELECT l_returnflag AS flag, avg(l_quantity) AS quantity FROM lineitem GROUP BY flag"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    shell.extension_manager.load_extension("relaqs")
    yield shell
    with suppress(UsageError):  # no tables were opened
        shell.run_line_magic("relaqs", "").close()  # IPython keeps the shell until the process ends


def asked(shell: InteractiveShell, line: str, sql: str = FLAGS) -> Any:
    return shell.run_cell_magic("relaqs", line, sql)


def test_a_cell_asks_the_tables_that_were_named_once(shell: InteractiveShell, tpch_warehouse: Path) -> None:
    first = asked(shell, f"--data {tpch_warehouse} --target 20% --wait")
    assert first.stop_reason is not None
    assert first.target == 0.2
    second = asked(shell, "--wait flags=")
    assert second.state == "exact"
    assert shell.user_ns["flags"] is second


def test_values_of_a_cell_are_parameters(shell: InteractiveShell, tpch_warehouse: Path) -> None:
    sql = "SELECT count(*) AS n FROM region WHERE r_name <> $name"
    query = asked(shell, f'--data {tpch_warehouse} -p "name=ASIA\' OR 1=1 --"', sql)
    assert query.result().estimate.to_pydict() == {"n": [5]}


def test_a_session_is_taken_by_its_name(shell: InteractiveShell, tpch_warehouse: Path) -> None:
    with relaqs.connect(tpch_warehouse, threads=1) as db:
        shell.user_ns["db"] = db
        assert asked(shell, "--data db --wait").state == "exact"
        assert shell.run_line_magic("relaqs", "again=") is db
        assert shell.user_ns["again"] is db


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "there are no tables yet; give --data PATH once"),
        ("--target 700% --data x", "is no share above 0"),
        ("2late= --data x", "'2late=' is no name of a variable; write it as late="),
        ("late --data x", "'late' is a word too many; --data late opens tables, late= names the query"),
        ("class= --data x", "'class=' is no name of a variable"),
        ("--sharpen", "No such option"),
        ("--data 'x", "No closing quotation"),
    ],
)
def test_what_is_not_accepted_is_said_in_a_line(shell: InteractiveShell, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(shell, line)


def test_help_is_printed(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_line_magic("relaqs", "--help") is None
    assert "Usage: %%relaqs [OPTIONS] [NAME=]" in capsys.readouterr().out


@pytest.fixture
def query(tpch_warehouse: Path) -> Iterator[OnlineQuery]:
    with relaqs.connect(tpch_warehouse, threads=2) as db:
        yield db.online_sql(FLAGS)


def test_a_query_at_the_end_of_a_cell_is_a_live_panel_and_text(query: OnlineQuery) -> None:
    assert set(query._repr_mimebundle_()[0]) >= {WIDGET, "text/plain"}
    query.wait()
    forms, _ = query._repr_mimebundle_()
    assert set(forms) == {WIDGET, "text/html", "text/plain"}
    assert "Exact" in forms["text/plain"]
    assert "quantity" in forms["text/html"]


def test_a_terminal_gets_text_and_no_widget(query: OnlineQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = InteractiveShell()
    terminal.display_formatter.active_types = ["text/plain"]
    monkeypatch.setattr("IPython.get_ipython", lambda: terminal)
    query.wait()
    assert set(query._repr_mimebundle_()[0]) == {"text/html", "text/plain"}


def test_without_widgets_a_cell_shows_the_first_answer(
    query: OnlineQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs.rendering.html.FACES", {})
    assert set(query._repr_mimebundle_()[0]) == {"text/html", "text/plain"}


@pytest.mark.slow
def test_a_notebook_runs_from_the_shell(tpch_warehouse: Path) -> None:
    cells = [
        "%load_ext relaqs",
        f"%%relaqs --data {tpch_warehouse} --target 20% late=\n{FLAGS}",
        "late.result()",
        "late",
        f"%%relaqs --wait\n{FLAGS}",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = [cell.outputs[0]["data"] if cell.outputs else {} for cell in notebook.cells]
    assert [WIDGET in each for each in shown] == [False, True, False, True, True]
    assert "Exact" in shown[4]["text/html"]
    widgets = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    panels = [each["state"]["panel"] for each in widgets.values() if "panel" in each["state"]]
    assert len(panels) == 3
    answers = [panel["answer"] for panel in panels if "answer" in panel]
    assert len(answers) >= 2  # the first cell may be over before its query has an answer
    assert all(answer["columns"][0]["name"] == "flag" for answer in answers)
    assert panels[-1]["state"] == "exact"


@pytest.mark.parametrize(
    ("cell", "said", "where"),
    [
        ("q = db.online_sql('SELECT kind FROM linitem')", "there is no table linitem", "line 1 of the cell"),
        ("def ask():\n    return db.sql('SELECT zone FROM lineitem')\nask()", "zone", "line 2 of ask"),
        ("db.online_sql('SELECT 1', target='7')", 'for 7 % write "7%"', "line 1 of the cell"),
    ],
)
def test_an_error_in_a_cell_is_two_lines(
    shell: InteractiveShell,
    tpch_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cell: str,
    said: str,
    where: str,
) -> None:
    monkeypatch.delenv("RELAQS_STRICT")
    with relaqs.connect(tpch_warehouse) as db:
        shell.user_ns["db"] = db
        shell.run_cell(cell)
        first, second = capsys.readouterr().out.splitlines()
        assert said in first
        assert where in second
        monkeypatch.setenv("RELAQS_STRICT", "1")
        shell.run_cell(cell)
        assert len(capsys.readouterr().out.splitlines()) > 10
