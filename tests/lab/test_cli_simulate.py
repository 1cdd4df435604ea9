"""`relaqs simulate`: for people and pipes, stopped and gone on with, and what it says of bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from relaqs_lab.cli.simulate import ONLY_FOR, STUDIES

from relaqs.cli import program

SMALL = ("--jobs", "4", "--arrival", "20", "--core-seconds", "2000", "--seeds", "2", "--processes", "1")


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed."""
    ended = CliRunner().invoke(program, ["simulate", *arguments])
    return ended.exit_code, ended.output


def test_policies_as_json_lines() -> None:
    code, output = run(*SMALL, "--policies", "fair,relaqs", "--format", "jsonl")
    assert code == 0
    fair, index = (json.loads(line) for line in output.splitlines())
    assert (fair["policy"], index["policy"]) == ("fair", "index")
    assert fair["seeds"] == [0, 1]
    assert fair["change_to_90"] == 0.0
    assert index["error_seconds"] == pytest.approx(
        (1 + index["error_change"]) * fair["error_seconds"], rel=0.1
    )


def test_policies_as_a_table() -> None:
    code, output = run(*SMALL, "--policies", "relaqs", "--training", "50%", "--servers", "4")
    assert code == 0
    assert "index (relaqs)" in output
    assert "4 jobs, one every 20 s, 256 cores" in output


def test_two_processes_give_what_one_does() -> None:
    arguments = (*SMALL[:-1], "2", "--policies", "fair", "--format", "jsonl")
    one, two = (json.loads(run(*each)[1]) for each in ((*SMALL, *arguments[-4:]), arguments))
    one.pop("decision_ms"), two.pop("decision_ms")
    assert one == two


def test_a_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    assert run(*SMALL, "--policies", "fair", "--out", str(tmp_path))[0] == 0
    kept = (tmp_path / "simulate.jsonl").read_bytes()
    assert kept.count(b"\n") == 2
    assert run(*SMALL, "--policies", "fair,fifo", "--out", str(tmp_path))[0] == 0
    assert (tmp_path / "simulate.jsonl").read_bytes().startswith(kept)
    assert (tmp_path / "simulate.jsonl").read_bytes().count(b"\n") == 4


def test_a_record_is_taken_for_no_other_study(tmp_path: Path) -> None:
    early, late = tmp_path / "early.txt", tmp_path / "late.txt"
    early.write_text("0\n1\n2\n3\n")
    late.write_text("0\n100\n200\n300\n")
    study = (*SMALL, "--policies", "fair", "--out", str(tmp_path))
    for count, other in enumerate(
        (
            (),
            ("--epoch", "3"),
            ("--epochs-only",),
            ("--until", "30"),
            ("--core-seconds", "2000.5"),
            ("--training", "33.4%"),
            ("--training", "33.3%"),
            ("--arrivals", str(early)),
            ("--arrivals", str(late)),
        ),
        start=1,
    ):
        assert run(*study, *other)[0] == 0
        assert (tmp_path / "simulate.jsonl").read_bytes().count(b"\n") == 2 * count, other


def test_ctrl_c_ends_every_process_of_a_study(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relaqs", "simulate", "--processes", "2", "--out", str(tmp_path)]
    command += ["--jobs", "10", "--arrival", "20", "--seeds", "200", "--policies", "fair"]
    # A session of its own, so that the signal reaches all its processes, as a terminal's ctrl-C does.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while process.poll() is None and not (tmp_path / "simulate.jsonl").exists():
            time.sleep(0.01)  # a busy wait would take the core that it waits for
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)  # until nobody holds the pipe any more
    assert process.returncode == 130
    assert "The same command goes on" in said
    assert "Traceback" not in said


def test_given_arrivals(tmp_path: Path) -> None:
    times = tmp_path / "times.txt"
    times.write_text("5\n0\n\n1e1\n")
    code, output = run(
        "--arrivals", str(times), "--core-seconds", "100", "--seeds", "1", "--policies", "fair"
    )
    assert code == 0
    assert "3 jobs, given arrivals" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "fare"), "there is no policy 'fare'; did you mean 'fair'"),
        (("--policies", ","), "no policy is named"),
        (("--arrival", "10,soon"), "'soon' is no number above 0"),
        (("--arrival", "-1"), "'-1' is no number above 0"),
        (("--cores", "0"), "--cores"),
        (("--training", "much"), "write it as 1% or 0.01"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert message in " ".join(output.split())


def test_help_has_every_option_once_below_the_study_it_is_for() -> None:
    code, output = run("--help")
    assert code == 0
    titles = re.split(r"^(\S.*):$", output, flags=re.MULTILINE)[1:]
    sections = {
        title: re.findall(r"^  (?:-h, )?--([a-z-]+)", lines, re.MULTILINE)
        for title, lines in zip(titles[::2], titles[1::2], strict=True)
    }
    listed = [name for names in sections.values() for name in names]
    assert sorted(listed) == sorted({*listed})
    assert {name.replace("-", "_") for name in listed} >= ONLY_FOR.keys() | STUDIES.keys()
    assert sections["What is simulated, one of"] == [*STUDIES]
    assert sections["With --gangs or --placed"] == ["nodes", "slots", "rescale"]
    for title in (title for title in sections if title.startswith("With ")):
        for name in sections[title]:
            assert title == "With " + " or ".join(f"--{each}" for each in ONLY_FOR[name.replace("-", "_")])


@pytest.mark.parametrize("content", ["1\ntwo\n", "1\n-2\n", "\n"])
def test_an_arrivals_file_that_is_none(tmp_path: Path, content: str) -> None:
    times = tmp_path / "times.txt"
    times.write_text(content)
    code, output = run("--arrivals", str(times))
    assert code == 2
    assert "time of arrival" in output or "no times of arrival" in output


def test_traces_that_are_not_there_or_broken(tmp_path: Path) -> None:
    traces = tmp_path / "run.jsonl"
    traces.write_text("")
    code, output = run("--traces", str(traces))
    assert code == 2
    assert "relaqs tpch run" in output
    traces.write_text("{broken\n")
    code, output = run("--traces", str(traces))
    assert code == 1
    assert "line 1" in output
