"""`relaqs simulate --goals`: deadlines and accuracies by policy, with and without early stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from relaqs.cli import program

SMALL = (
    *("--goals", "tight", "--jobs", "12", "--arrival", "20", "--cores", "8", "--core-seconds", "600"),
    *("--seeds", "2", "--epoch", "20", "--epochs-only", "--processes", "1"),
    *("--policies", "fair,deadlines,load_control:fair"),
)


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed, on one line."""
    ended = CliRunner().invoke(program, ["simulate", *arguments])
    return ended.exit_code, " ".join(ended.output.split())


def rows(*arguments: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return the figures by stop rule and policy."""
    ended = CliRunner().invoke(program, ["simulate", *SMALL, *arguments, "--format", "jsonl"])
    assert ended.exit_code == 0, ended.output
    found = [json.loads(line) for line in ended.output.splitlines()]
    return {(row["stop"], row["policy"]): row for row in found}


@pytest.mark.slow
def test_who_may_stop_runs_is_what_the_rule_says() -> None:
    found = rows()
    assert {stop for stop, _ in found} == {"own", "same", "none"}
    stopped = {key: row["stopped"] > 0 for key, row in found.items()}
    assert stopped == {key: key[0] == "same" or key == ("own", "load_control:fair") for key in stopped}
    assert found["own", "load_control:fair"] | {"policy": ""} == found["same", "fair"] | {
        "policy": "",
        "stop": "own",
        "setting": found["own", "load_control:fair"]["setting"],
        "decision_ms": found["own", "load_control:fair"]["decision_ms"],
        "decision_ms_error": found["own", "load_control:fair"]["decision_ms_error"],
    }
    assert found["own", "fair"]["completion_seconds"] == found["none", "fair"]["completion_seconds"]


@pytest.mark.slow
def test_stopping_what_is_good_enough_meets_more_deadlines() -> None:
    found = rows("--stop", "own")
    control, fair = found["own", "load_control:fair"], found["own", "fair"]
    assert control["completion_seconds"] < fair["completion_seconds"]
    assert control["deadlines_met"] > fair["deadlines_met"]
    assert control["accuracy_met"] >= fair["accuracy_met"]


@pytest.mark.slow
def test_until_ends_the_simulation() -> None:
    ended, cut = rows("--stop", "none"), rows("--stop", "none", "--until", "100")
    assert ended["none", "fair"]["completion_seconds"] > 100.0
    assert cut["none", "fair"]["completion_seconds"] is None


@pytest.mark.slow
def test_the_first_line_says_what_is_left_of_the_lead() -> None:
    code, output = run(*SMALL, "--stop", "own,same")
    assert code == 0
    assert output.startswith("load_control:fair ends runs ")
    assert "% sooner than fair if it alone may stop them, and 0.0 ± 0.0 % sooner if all may." in output
    assert "tight deadlines" in output


@pytest.mark.slow
def test_a_study_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    arguments = (*SMALL, "--stop", "none", "--out", str(tmp_path))
    code, first = run(*arguments)
    assert code == 0
    lines = (tmp_path / "simulate.jsonl").read_text().splitlines()
    assert {json.loads(line)["record"] for line in lines} == {"goal run"}
    assert len(lines) == 6
    assert run(*arguments) == (0, first)
    assert (tmp_path / "simulate.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--goals", "tight", "--stop", "some"), "'some' is none of own, same and none"),
        (
            ("--goals", "tight", "--training", "50%"),
            "--training says nothing about runs with goals; leave it",
        ),
        (("--stop", "own"), "--stop says nothing about shared cores; give --goals or --placed too"),
        (("--goals", "tight", "--gangs", "table2"), "--goals and --gangs are two studies"),
        (("--goals", "loose"), "'loose' is not one of 'paper', 'tight'"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in output
