"""`relaqs simulate --gangs`: for people and pipes, gone on with, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from relaqs.cli import program

SMALL = ("--gangs", "table2", "--policies", "tiresias,equal_slots", "--seeds", "2", "--processes", "1")


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed, on one line."""
    ended = CliRunner().invoke(program, ["simulate", *arguments])
    return ended.exit_code, " ".join(ended.output.split())


def test_slot_policies_as_json_lines() -> None:
    ended = CliRunner().invoke(program, ["simulate", *SMALL, "--format", "jsonl"])
    assert ended.exit_code == 0
    tiresias, equal = (json.loads(line) for line in ended.output.splitlines())
    assert (tiresias["policy"], equal["policy"]) == ("tiresias", "equal_slots")
    assert tiresias["seeds"] == [0, 1]
    assert equal["completion_seconds"] < tiresias["completion_seconds"]
    assert equal["used_share"] == pytest.approx(1.0, abs=0.02)
    assert tiresias["completion_seconds_error"] > 0


def test_a_study_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    arguments = (*SMALL, "--out", str(tmp_path))
    code, first = run(*arguments)
    assert code == 0
    lines = (tmp_path / "simulate.jsonl").read_text().splitlines()
    assert {json.loads(line)["record"] for line in lines} == {"gang run"}
    assert len(lines) == 4
    assert run(*arguments) == (0, first)
    assert (tmp_path / "simulate.jsonl").read_text().splitlines() == lines


def test_a_table_says_what_was_simulated() -> None:
    code, output = run(*SMALL, "--nodes", "8", "--rescale", "20", "--arrival", "30", "--epochs-only")
    assert code == 0
    assert "50 elastic jobs, 8 nodes of 4 slots (the 50 jobs of Table 2, one every 30 s" in output
    assert "a plan every 60 s, 20 s a rescale), 2 seeds" in output


def test_what_did_not_end_has_no_figure() -> None:
    code, output = run(*SMALL, "--until", "100", "--format", "jsonl")
    assert code == 0
    assert json.loads(output[: output.index("}") + 1])["completion_seconds"] is None


def test_machines_that_fail_and_jobs_that_come_at_once_are_told() -> None:
    code, output = run(*SMALL[:-4], "--seeds", "1", "--failures", "20", "--repair", "30", "--spike", "20")
    assert code == 0
    assert "20 of them at once" in output
    assert "a node fails 20 times an hour, for 30 s" in output
    assert "lost: of all rows processed" in output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gangs", "table3"), "'table3' are no elastic jobs; write table2, or adaptdl:DIR"),
        (("--gangs", "adaptdl:/nowhere"), "/nowhere has no files workloads/workload-1.csv"),
        (("--gangs", "table2", "--cores", "3"), "--cores says nothing about elastic jobs"),
        (("--gangs", "table2", "--stragglers", "nan"), "Invalid value for '--stragglers': nan is no finite"),
        (("--gangs", "table2", "--rescale", "inf"), "Invalid value for '--rescale': inf is no finite number"),
        (("--failures", "3"), "--failures says nothing about shared cores; give --gangs too"),
        (("--gangs", "adaptdl:/nowhere", "--spike", "3"), "leave --arrival and --spike out"),
        (("--nodes", "3"), "--nodes says nothing about shared cores; give --gangs or --placed too"),
        (("--gangs", "table2", "--policies", "onez"), "did you mean 'ones'"),
        (("--gangs", "table2", "--policies", ","), "no policy is named"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in output
