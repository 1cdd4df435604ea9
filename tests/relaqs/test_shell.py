"""`relaqs shell` at a terminal, and SQL from files and from standard input."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.read import _by_tokens, is_finished, statements_of
from rich.console import Console

import relaqs
from relaqs.cli import program
from relaqs.cli.prompt import Prompt, SqlCompleter, kept_history

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"
# 600 million joined rows: a first estimate comes at once, the last long after it was stopped.
LONG = "SELECT sum((l_orderkey * p_partkey * r_regionkey) % 7) AS n FROM lineitem, part, region"


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plain") / "trips.parquet"
    duckdb.sql('SELECT i % 3 AS zone, i AS "Fare paid" FROM range(3000) AS t(i)').write_parquet(str(file))
    return file


@pytest.fixture
def session(trips: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(trips, threads=1) as opened:
        yield opened


def typed(session: relaqs.Session, *keys: str, history: InMemoryHistory | None = None) -> str:
    """Return what is shown after these keys, the last of which leave the prompt."""
    shown = Console(file=io.StringIO(), width=100)
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text("".join(keys))
        Prompt(session, shown, history or InMemoryHistory()).run()
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_a_select_of_several_lines_is_answered_at_its_semicolon(session: relaqs.Session) -> None:
    shown = typed(
        session, "SELECT zone,", ENTER, " count(*) AS n FROM trips", ENTER, "GROUP BY 1;", ENTER, CTRL_D
    )
    assert shown.count("Exact") == 1
    assert shown.count("1,000") == 3


def test_several_selects_of_one_entry_are_answered_in_turn(session: relaqs.Session) -> None:
    assert typed(session, "SELECT 1 AS a; SELECT ';' AS b;", ENTER, CTRL_D).count("Exact") == 2


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(session: relaqs.Session) -> None:
    assert typed(session, "SELECT nonsense", CTRL_C, "SELECT 7 AS n;", ENTER, CTRL_D).count("Exact") == 1


def test_an_error_is_said_and_the_prompt_goes_on(
    session: relaqs.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = typed(
        session, "SELECT zome FROM trips;", ENTER, ".schemas", ENTER, "SELECT 7 AS n;", ENTER, CTRL_D
    )
    assert shown.count("Exact") == 1
    said = capsys.readouterr().err
    assert "did you mean 'zone'?" in said
    assert "there is no command .schemas; did you mean .schema? .help lists them" in said


def test_the_commands_of_the_prompt(session: relaqs.Session, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (".tables", ".schema trips", ".explain SELECT 1;", ".target 5%", ".target off", ".help")
    lines += (".exact-below", ".exact-below 2s", ".exact-below off", ".quit")
    shown = typed(session, *(line + ENTER for line in lines))
    said = capsys.readouterr().out
    assert "trips  3,000  plain" in shown
    assert "Fare paid  BIGINT" in shown
    assert "mode: exact" in said
    assert "within ± 5" in said
    assert ".explain SELECT" in shown
    assert said.splitlines()[-3:] == [
        "queries run as a whole where they are there soon, after a first estimate",
        "queries run as a whole where one core reads their tables in less than 2 s",
        "queries run as a whole never",
    ]
    assert session.exact_below_seconds == 0


def test_the_commands_of_psql_do_the_same_here(
    session: relaqs.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("\\dt", "\\d trips", "\\help", "help", "\\timing", "SELECT 7 AS n;")
    shown = typed(session, *(line + ENTER for line in lines), CTRL_D)
    assert "trips  3,000  plain" in shown
    assert "Fare paid  BIGINT" in shown
    assert ".explain SELECT" in shown
    assert shown.count("Exact") == 1
    assert "there is no command \\timing; .help lists them" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["quit", "EXIT;", ".exit", "\\q"])
def test_the_words_that_leave_other_prompts_leave_this_one(session: relaqs.Session, word: str) -> None:
    assert "Exact" not in typed(session, word, ENTER, "SELECT 7 AS n;", ENTER, CTRL_C, CTRL_D)


def test_rows_that_were_not_counted_are_shown_as_a_guess(tmp_path: Path) -> None:
    duckdb.sql("SELECT i % 10 AS digit FROM range(5000) AS t(i)").write_csv(str(tmp_path / "digits.csv"))
    with relaqs.connect(tmp_path / "digits.csv", threads=1) as opened:
        assert "about 1,300" in typed(opened, ".tables", ENTER, CTRL_D)
        assert "about 1,300 rows" in repr(opened.tables["digits"])
        assert not opened.tables["digits"].rows_are_counted


def test_what_was_typed_is_kept(session: relaqs.Session) -> None:
    history = InMemoryHistory()
    typed(session, "SELECT 7", ENTER, " AS n;", ENTER, ".tables", ENTER, CTRL_D, history=history)
    assert history.get_strings() == ["SELECT 7\n AS n;", ".tables"]


def test_history_is_kept_where_nobody_else_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept_history().store_string("SELECT secret")
    file = tmp_path / "relaqs" / "history"
    assert "SELECT secret" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a file"))
    assert isinstance(kept_history(), InMemoryHistory)
    assert "is not kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("SEL", ["SELECT"]),
        ("select * from tri", ["trips"]),
        ("SELECT far", ['"Fare paid"']),
        ('SELECT "Fa', ['"Fare paid"']),
        ("SELECT trips.zo", ["zone"]),
        (".ta", [".tables", ".target"]),
        ("SELECT .ta", []),
        ("", []),
    ],
)
def test_completion(session: relaqs.Session, text: str, offered: list[str]) -> None:
    completer = SqlCompleter(lambda: session.tables, (".tables", ".target", ".quit"))
    found = completer.get_completions(Document(text), CompleteEvent())
    assert [each.text for each in found] == offered


class OnTerminal:
    """The program on a terminal of its own, typed at and read from."""

    def __init__(self, *arguments: str | Path, home: Path) -> None:
        self._end, terminal = pty.openpty()
        size = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color", "XDG_STATE_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "relaqs", *map(str, arguments)],
            **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
            env=os.environ | size | {"PROMPT_TOOLKIT_NO_CPR": "1"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)
        self.written = ""

    def send(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Read until the text was written, behind all that was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self.written:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; there is {self.written!r}"
            try:
                self.written += os.read(self._end, 65536).decode(errors="replace")
            except OSError:  # nobody has the other end of the terminal
                raise AssertionError(f"it ended before {text!r}; there is {self.written!r}") from None
        self.written = self.written.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def _take_terminal() -> None:
    """Make standard input the terminal that Ctrl-C of this process comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_ctrl_c_stops_a_query_and_not_the_shell(tpch_warehouse: Path, tmp_path: Path) -> None:
    terminal = OnTerminal("shell", "--data", tpch_warehouse, home=tmp_path)
    try:
        terminal.wait_for("relaqs>")
        terminal.send(LONG + ";" + ENTER)
        terminal.wait_for("% of rows")  # an estimate is on screen
        terminal.send(CTRL_C)
        terminal.wait_for("stopped by ctrl-C")
        terminal.wait_for("relaqs>")
        terminal.send("SELECT 41 + 1 AS n;" + ENTER)
        terminal.wait_for("Exact")
        terminal.wait_for("42")
        terminal.wait_for("relaqs>")
        terminal.send(CTRL_D)
        assert terminal.process.wait(20) == 0
    finally:
        terminal.close()


def test_a_shell_without_a_terminal_is_refused(trips: Path) -> None:
    done = run("shell", "--data", trips)
    assert done.exit_code == 2
    assert "give --file FILE or - to `relaqs sql`" in done.stderr


def run(*arguments: str | Path, typed: str | None = None) -> Result:
    return CliRunner().invoke(program, [str(argument) for argument in arguments], input=typed)


SCRIPT = """-- two questions; of trips
SELECT count(*) AS n FROM trips;
/* and ; then */
SELECT zone, ';' AS mark -- done
FROM trips WHERE "Fare paid" = 4
"""


def test_a_file_of_statements(trips: Path, tmp_path: Path) -> None:
    file = tmp_path / "questions.sql"
    file.write_text(SCRIPT)
    done = run("sql", "--file", file, "--data", trips, "--format", "csv")
    assert (done.exit_code, done.stdout) == (0, "n\n3000\n\nzone,mark\n1,;\n")


def test_statements_of_standard_input_are_numbered(trips: Path) -> None:
    done = run("sql", "-", "--data", trips, "--format", "jsonl", typed=SCRIPT)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["statement"] for line in lines] == [1, 2]
    one = run("sql", "SELECT 1 AS n", "--data", trips, "--format", "jsonl")
    assert "statement" not in json.loads(one.stdout)


def test_an_error_says_which_statement_and_where_it_is(trips: Path) -> None:
    script = "SELECT 1 AS n;\n\n  SELECT zone,\n  zome FROM trips; SELECT 3"
    done = run("sql", "-", "--data", trips, typed=script)
    assert done.exit_code == 1
    assert "Exact" in done.stdout
    assert "statement 2 of 3, which begins at line 3: " in done.stderr
    assert "at line 4, column 3; did you mean 'zone'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "said"),
    [
        (("-",), "-- nothing;", 1, "standard input has no statement"),
        (("-",), "SELECT 'a", 1, "a quote or a comment is opened and never closed"),
        ((), None, 2, "give one, or - to read from standard input"),
        (("SELECT 1", "--file", "-"), "SELECT 1", 2, "there are both SELECT and --file"),
    ],
)
def test_scripts_that_are_none(
    trips: Path, arguments: tuple[str, ...], typed: str | None, code: int, said: str
) -> None:
    done = run("sql", *arguments, "--data", trips, typed=typed)
    assert done.exit_code == code
    assert said in done.stderr


def test_statements_end_at_semicolons_outside_of_quotes_and_comments() -> None:
    text = "SELECT ';', \";\", $$;$$ -- ;\n /* ; */; ;\n SELECT 2"
    assert [(each.sql, each.line, each.column) for each in statements_of(text)] == [
        ("SELECT ';', \";\", $$;$$", 1, 1),
        ("SELECT 2", 3, 2),
    ]
    assert not is_finished(text)
    assert is_finished(f"{text};")
    with pytest.raises(SqlError, match="never closed"):
        statements_of("SELECT /* 1")


PIECES = st.sampled_from(
    [
        *("SELECT", "count", "SHOW", "CALL", "EXPLAIN", "'a;b'", "'it''s'", '"x;y"', "1e3", "1_000", "::"),
        *("||", "e'x'", "--", "/*", "*/", ";", "$", "'", "\\", "{#", "é", "\u00a0"),
        *"(),.=*:[]<>|%+! \t\n",
    ]
)


@given(st.lists(PIECES, max_size=10).map("".join))
def test_a_plain_text_is_told_apart_as_by_its_tokens(text: str) -> None:
    try:
        expected = [(each.sql.strip(), each.line, each.column) for each in _by_tokens(text)]
    except SqlError:
        with pytest.raises(SqlError):
            statements_of(text)
    else:
        assert [(each.sql.strip(), each.line, each.column) for each in statements_of(text)] == expected
