"""The program as its users meet it, in processes of its own where pipes, terminals and signals matter."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relaqs.cli import COMMANDS, OTHERS, program
from tests.conftest import Oracle

PROGRAM = [sys.executable, "-m", "relaqs"]
REVENUE = "SELECT l_returnflag, sum(l_tax) AS tax FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag"
# 600 million joined rows: a first estimate comes at once, the last long after a signal.
LONG = "SELECT sum((l_orderkey * p_partkey * r_regionkey) % 7) AS n FROM lineitem, part, region"


def run(*arguments: str | Path) -> Result:
    """Run the program in this process."""
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def test_files_given_one_by_one_are_tables_of_one_query(tmp_path: Path) -> None:
    (left := tmp_path / "sales.csv").write_text("id,paid\n1,2.5\n2,4\n")
    (right := tmp_path / "people.csv").write_text("id,name\n1,ann\n2,ben\n")
    asked = "SELECT name, paid FROM sales JOIN people USING (id) ORDER BY name"
    told = run("sql", asked, "--data", left, "--data", right, "--format", "csv")
    assert told.output == "name,paid\nann,2.5\nben,4.0\n"
    told = run("tables", "--data", left, "--data", right, "--format", "jsonl")
    assert {json.loads(line)["table"] for line in told.output.splitlines()} == {"people", "sales"}
    twice = run("sql", "SELECT 1", "--data", left, "--data", left)
    assert twice.exit_code == 1
    assert "would both be table 'sales'" in " ".join(twice.output.split())
    missing = run("sql", "SELECT 1", "--data", left, "--data", tmp_path / "people.cvs")
    assert "did you mean" in missing.output


def run_alone(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


@contextmanager
def started(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_help_names_every_command_and_each_has_its_own() -> None:
    text = run("--help").stdout
    names = re.findall(r"^  ([a-z]+)  ", text.partition("Ask:")[2], re.MULTILINE)
    assert sorted(names) == sorted({*COMMANDS, "dashboard", "demo", "learn", "simulate", "tpch"})
    assert OTHERS not in text
    for name in names:
        shown = run(name, "--help")
        assert (shown.exit_code, shown.stderr) == (0, "")
    assert run("--version").stdout.startswith("relaqs ")


@pytest.mark.parametrize("group", ["cache", "cluster", "serve", "tpch"])
def test_a_group_says_what_each_of_its_commands_does_in_whole_words(group: str) -> None:
    listed = run(group, "--help").stdout.partition("Commands:")[2].splitlines()[1:]
    assert listed
    assert [line for line in listed if not re.fullmatch(r"  [a-z-]+ +[A-Z].*\.", line)] == []


def test_json_lines(tpch_warehouse: Path, tpch_oracle: Oracle) -> None:
    options = ("--format", "jsonl", "--batches", "4", "--confidence", "0.9")
    done = run_alone("sql", REVENUE, "--data", tpch_warehouse, *options)
    assert (done.returncode, done.stderr) == (0, "")
    snapshots = [json.loads(line) for line in done.stdout.splitlines()]
    fractions = [snapshot["fraction"] for snapshot in snapshots]
    assert fractions == sorted(fractions)
    last = snapshots[-1]
    assert (last["is_exact"], last["error"], last["confidence"], last["batches"]) == (True, 0.0, 0.9, 4)
    expected = [(flag, float(tax)) for flag, tax in tpch_oracle.rows(REVENUE)]
    assert [(row["l_returnflag"], row["tax"]) for row in last["estimate"]] == expected


def test_csv_into_a_pipe(tpch_warehouse: Path, tpch_oracle: Oracle) -> None:
    done = run("sql", REVENUE, "--data", tpch_warehouse, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["l_returnflag"], row["tax"]) for row in rows] == [
        (flag, str(tax)) for flag, tax in tpch_oracle.rows(REVENUE)
    ]


def test_a_table_into_a_pipe(tpch_warehouse: Path) -> None:
    options = ("--target", "50%", "--interval", "anytime", "--confidence-for", "table")
    done = run_alone("sql", REVENUE, "--data", tpch_warehouse, *options, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "anytime table interval" in done.stdout
    assert "+/-" in done.stdout
    assert "\x1b" not in done.stdout


def test_explain(tpch_warehouse: Path) -> None:
    done = run("explain", REVENUE, "--data", tpch_warehouse)
    assert done.stdout.startswith("mode: mergeable\n")


@pytest.mark.parametrize("comment", ["-- of all", "-- tax = x", "--all\t", "--"])
@pytest.mark.parametrize("command", ["explain", "sql", "advise"])
def test_sql_may_begin_with_a_comment(tpch_warehouse: Path, command: str, comment: str) -> None:
    done = run(command, f"{comment}\nSELECT count(*) AS n FROM nation", "--data", tpch_warehouse)
    assert (done.exit_code, done.stderr) == (0, "")
    assert {"explain": "mode: exact", "sql": "25", "advise": "No layout is needed"}[command] in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["sql", "SELECT count(*) FROM lineitms"], 1, "did you mean 'lineitem'?"),
        (["sql", "SELECT 1; SELECT 2"], 1, "2 statements"),
        (["sql", "SELECT count(*) FROM lineitem", "--watch", "x"], 1, "watch names 'x'"),
        (["explain", "SELEC"], 1, "'SELEC' is no SELECT"),
        (["sql", "SELECT 1", "--confidence", "40%"], 2, "between 0.5 and 1"),
        (["sql", "SELECT 1", "--target", "much"], 2, "'much' is no share"),
        (["sql", "SELECT 1", "--timeout", "0"], 2, "timeout"),
        (["sql"], 2, "Missing argument"),
        (["sql", "SELECT 1", "--taget", "1%"], 2, "No such option '--taget'"),
        (["sql", "SELECT 1", "--taget=1 %"], 2, "No such option '--taget'"),
    ],
)
def test_errors_are_one_line_and_have_their_exit_code(
    tpch_warehouse: Path, arguments: list[str], code: int, complaint: str
) -> None:
    done = run(*arguments, "--data", tpch_warehouse)
    assert (done.exit_code, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_bad_usage(tmp_path: Path) -> None:
    assert run("sql", "SELECT 1", "--data", tmp_path / "nothing").exit_code == 2
    assert run("sing").exit_code == 2
    assert "there is no command 'sqll'; did you mean sql" in run("sqll").stderr
    assert "there is no command 'xyz'; program --help lists all" in run("xyz").stderr
    empty = run("sql", "SELECT 1", "--data", tmp_path)
    assert (empty.exit_code, "relaqs shuffle" in empty.stderr) == (1, True)


@pytest.mark.parametrize("target", ["5", "half", "-1%", "0"])
def test_a_target_is_a_share_of_the_value(tpch_warehouse: Path, target: str) -> None:
    done = run("sql", REVENUE, "--data", tpch_warehouse, "--target", target)
    assert (done.exit_code, "write it as 1% or 0.01" in done.stderr) == (2, True)


def test_a_file_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("n\n1\n2\n")
    question = ("SELECT sum(n) AS n FROM few", "--data", tmp_path / "few.csv", "--format", "csv")
    done = run_alone("sql", *question, RELAQS_CACHE=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (0, "n\n3\n"), done.stderr


def test_a_timeout_without_a_snapshot_fails(tpch_warehouse: Path) -> None:
    done = run("sql", LONG, "--data", tpch_warehouse, "--batches", "1", "--timeout", "0.2")
    assert done.exit_code == 1
    assert "no snapshot came within 0.2 s" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_quietly_and_at_once(tpch_warehouse: Path, number: int, code: int) -> None:
    arguments = ("sql", LONG, "--data", tpch_warehouse, "--format", "jsonl")
    with started(*arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["is_exact"] is False
        process.send_signal(number)
        assert process.wait(10) == code
        assert process.stderr.read().strip() == b""


@pytest.mark.parametrize(
    "module", ["click", "relaqs.cli.sql", "relaqs.opening", "duckdb", "pyarrow", "numpy"]
)
def test_ctrl_c_while_modules_are_loaded_ends_it_quietly(module: str, tpch_warehouse: Path) -> None:
    program = (
        "import os, runpy, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "runpy.run_module('relaqs', run_name='__main__', alter_sys=True)\n"
    )
    words = ("sql", REVENUE, "--data", str(tpch_warehouse))
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_quietly(tpch_warehouse: Path) -> None:
    arguments = ("sql", LONG, "--data", tpch_warehouse, "--format", "jsonl")
    with started(*arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """Return what the program writes to a terminal of 80 × 24."""
    controller, terminal = pty.openpty()
    size = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
    with started(*arguments, stdout=terminal, env=os.environ | size | environment) as process:
        os.close(terminal)
        written = b""
        try:
            while part := os.read(controller, 65536):
                written += part
        except OSError:  # the terminal's last user has left
            pass
        assert process.wait(60) == 0
    os.close(controller)
    return written.decode()


@pytest.mark.slow
def test_an_answer_sharpens_in_place_on_a_terminal(tpch_warehouse: Path) -> None:
    arguments = ("sql", REVENUE, "--data", tpch_warehouse, "--batches", "5")
    text = on_a_terminal(*arguments)
    assert "\x1b[1A" in text  # the cursor goes up again before the next snapshot
    assert text.rindex("Exact · ") > text.index("Estimate · ")
    assert "\x1b[2m" in text
    no_colour = on_a_terminal(*arguments, NO_COLOR="1", TERM="dumb")
    assert not re.search(r"\x1b\[[\d;]*m", no_colour)


def test_the_demo(tmp_path: Path) -> None:
    arguments = ("demo", "--data", tmp_path / "demo", "--scale", "0.01")
    first = run_alone(*arguments)
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert lines[0].startswith("Making TPC-H data at scale 0.01")
    assert any(line.startswith("Estimate · ") for line in lines)
    assert sum(line.startswith("Exact · ") for line in lines) == 1
    assert any(re.fullmatch(r"First estimate: +\d+\.\d\d s, .* of the rows read", line) for line in lines)
    assert lines[-1] == "The last answer equals DuckDB's."
    again = on_a_terminal(*arguments)
    assert "Making" not in again
    assert "The last answer equals DuckDB's." in again


def test_a_process_ends_with_what_was_to_be_done_at_its_end() -> None:
    """It leaves without taking modules apart, but not without what others have registered."""
    script = (
        "import atexit, sys, threading, time\n"
        "from relaqs.__main__ import main\n"
        "atexit.register(print, 'registered')\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
        "sys.argv = ['relaqs', 'explain', 'SELEC', '--data', 'nowhere']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stdout.split() == ["thread", "registered"]


def test_the_doctor_says_what_there_is_and_what_to_do(tmp_path: Path) -> None:
    told = CliRunner().invoke(program, ["doctor", "--no-measure", "--cache", str(tmp_path / "new")])
    assert told.exit_code == 0, told.output
    assert re.search(r"versions: +relaqs \d.* duckdb \d", told.output)
    assert re.search(r"extras: .*dashboard.*train", told.output)
    assert not (tmp_path / "new").exists()


def test_the_doctor_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    told = CliRunner().invoke(program, ["doctor", "--no-measure", "--cache", str(tmp_path)])
    assert told.exit_code == 1
    assert re.search(
        r"^! cache: .*\n +set RELAQS_CACHE to a folder on a larger disk$", told.output, re.MULTILINE
    )


@pytest.mark.slow
def test_the_doctor_measures(tmp_path: Path) -> None:
    told = CliRunner().invoke(program, ["doctor", "--cache", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "the last estimate equals DuckDB's answer" in told.output
    assert re.search(r"estimate: +[\d.]+ s to ± [\d.]+ %, .*to exact", told.output), told.output


@pytest.mark.parametrize(
    ("arguments", "name"), [(("--user", "ada", "--viewer", "ada"), "ada"), (("--viewer", "you"), "you")]
)
def test_nobody_is_a_user_and_a_viewer_of_one_dashboard(
    tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    told = CliRunner().invoke(program, ["dashboard", "--data", str(tmp_path), *arguments])
    assert told.exit_code == 2
    assert f"{name} is a --user (you, if none is given) and a --viewer" in " ".join(told.output.split())
