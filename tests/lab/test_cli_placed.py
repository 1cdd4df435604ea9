"""`relaqs simulate --placed`: for people and pipes, gone on with, and what it says of bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from relaqs.cli import program

SMALL = (
    "--placed",
    "paper:20",
    "--nodes",
    "8",
    "--policies",
    "mlfs,srpt",
    "--seeds",
    "2",
    "--processes",
    "1",
)


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed, on one line."""
    ended = CliRunner().invoke(program, ["simulate", *arguments])
    return ended.exit_code, " ".join(ended.output.split())


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "shares"), [("own", (0, 1)), ("same", (0, 0)), ("none", (1, 1))])
def test_who_may_stop_jobs(stop: str, shares: tuple[int, int]) -> None:
    """1 where a policy makes all iterations, and 0 where it makes less."""
    ended = CliRunner().invoke(program, ["simulate", *SMALL, "--stop", stop, "--format", "jsonl"])
    assert ended.exit_code == 0
    rows = [json.loads(line) for line in ended.output.splitlines()]
    assert [row["policy"] for row in rows] == ["mlfs", "srpt"]
    assert [int(row["iterations_share"] == 1) for row in rows] == list(shares)
    assert all(row["accuracy_met"] > 0.9 for row in rows)


@pytest.mark.slow
def test_mlfs_is_mlf_rl_with_the_rule_of_stopping() -> None:
    figures = []
    for policy, stop in (("mlfs", "own"), ("mlf_rl", "same"), ("mlfs", "none"), ("mlf_rl", "own")):
        arguments = (
            "--placed",
            "paper:20",
            "--nodes",
            "8",
            "--policies",
            policy,
            "--seeds",
            "1",
            "--stop",
            stop,
        )
        ended = CliRunner().invoke(program, ["simulate", *arguments, "--format", "jsonl"])
        figures.append(json.loads(ended.output)["completion_seconds"])
    assert figures[0] == figures[1] < figures[2] == figures[3]


@pytest.mark.slow
def test_what_is_left_of_a_lead_comes_first() -> None:
    """Alone, MLFS ends jobs early; where all may, fair sharing does as well."""
    arguments = ("--placed", "paper:12@0.8", "--nodes", "8", "--policies", "mlfs,fair", "--stop", "own,same")
    code, output = run(*arguments, "--seeds", "2", "--processes", "1")
    assert code == 0
    assert "12 jobs, 8 nodes of 4 devices (scenario paper, load 0.8, durations made up" in output
    said = re.match(
        r"Of fair's completion time mlfs has ([\d.]+) ± [\d.]+ % if it alone may stop jobs early, "
        r"and ([\d.]+) ± [\d.]+ % if all may\.",
        output,
    )
    assert said is not None, output[:200]
    alone, all_ = map(float, said.groups())
    assert alone < all_


@pytest.mark.slow
def test_a_study_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    arguments = (*SMALL, "--out", str(tmp_path))
    code, first = run(*arguments)
    assert code == 0
    assert "20 jobs, 8 nodes of 4 devices (scenario paper, durations made up, a plan every 60 s" in first
    assert "only a policy's own rule stops jobs early, 2 seeds" in first
    lines = (tmp_path / "simulate.jsonl").read_text().splitlines()
    assert {json.loads(line)["record"] for line in lines} == {"placed run"}
    assert len(lines) == 4
    assert run(*arguments) == (0, first)
    assert (tmp_path / "simulate.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--placed", "paperr"), "'paperr' is no scenario; write paper, tight, network, trace"),
        (("--placed", "paper:x"), "'paper:x' is no scenario"),
        (("--placed", "paper:20@0"), "'paper:20@0' is no scenario"),
        (("--weights", __file__), "--weights says nothing about shared cores; give --placed too"),
        (("--placed", "paper", "--policies", "mlf"), "did you mean 'mlfs'"),
        (("--placed", "paper", "--policies", ","), "no policy is named"),
        (
            ("--placed", "paper", "--policies", "fair", "--weights", __file__),
            "none of the policies fair takes any; name mlf_rl or mlfs",
        ),
        (("--placed", "paper", "--epoch", "inf"), "--epoch"),
        (("--placed", "paper", "--epoch", "nan"), "--epoch"),
        (("--placed", "paper", "--until", "nan"), "--until"),
        (("--placed", "paper", "--rescale", "inf"), "--rescale"),
        (("--placed", "paper", "--rescale", "nan"), "--rescale"),
        (("--placed", "paper", "--cores", "3"), "--cores says nothing about placed jobs"),
        (("--placed", "paper", "--arrival", "3"), "leave it out, or leave --placed out"),
        (("--placed", "paper", "--gangs", "table2"), "--gangs and --placed are two studies"),
        (("--stop", "none"), "--stop says nothing about shared cores; give --goals or --placed too"),
        (("--gangs", "table2", "--stop", "none"), "--stop says nothing about elastic jobs"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in output


def test_a_trace_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "philly.csv").write_text("a,b\n1,2\n")
    code, output = run("--placed", "paper", "--philly", str(tmp_path / "philly.csv"))
    assert code == 2
    assert "is not the trace of Philly" in output
