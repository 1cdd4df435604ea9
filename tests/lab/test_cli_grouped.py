"""`relaqs simulate --grouped`: for people and pipes, gone on with, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from relaqs_lab.records.simulated_runs import QUERY_NUMBERS, GroupedRun
from relaqs_lab.records.store import RecordFile
from relaqs_lab.simulation.grouped.grouped_studies import (
    STUDIES,
    GroupedCase,
    HarmonyJobs,
    cases_of_claims,
    run_grouped_case,
)

from relaqs.cli import program

SMALL = ("--grouped", "harmony", "--policies", "isolated,shortest_first", "--seeds", "2", "--processes", "1")


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed, on one line."""
    ended = CliRunner().invoke(program, ["simulate", *arguments])
    return ended.exit_code, " ".join(ended.output.split())


def test_group_policies_as_json_lines() -> None:
    ended = CliRunner().invoke(program, ["simulate", *SMALL, "--format", "jsonl"])
    assert ended.exit_code == 0
    isolated, shortest = (json.loads(line) for line in ended.output.splitlines())
    assert (isolated["policy"], shortest["policy"]) == ("isolated", "shortest_first")
    assert isolated["seeds"] == [0, 1]
    assert isolated["completion_gain"] == 1.0
    assert shortest["completion_gain"] > 1.2
    assert 0.3 < isolated["cpu_share"] < 0.6


def test_a_study_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    arguments = (*SMALL, "--out", str(tmp_path))
    code, first = run(*arguments)
    assert code == 0
    lines = (tmp_path / "simulate.jsonl").read_text().splitlines()
    assert {json.loads(line)["record"] for line in lines} == {"grouped run"}
    assert len(lines) == 4
    assert run(*arguments) == (0, first)
    assert (tmp_path / "simulate.jsonl").read_text().splitlines() == lines
    kept = next(RecordFile(tmp_path / "simulate.jsonl").read("grouped run", GroupedRun.of_record))
    again = run_grouped_case(GroupedCase("isolated", 0), {}, lambda: 0.0)
    assert kept.makespan_seconds == pytest.approx(again.makespan_seconds)
    assert kept.key == GroupedCase("isolated", 0).key


def test_a_table_says_what_was_simulated() -> None:
    few = ("--grouped", "harmony:poisson", "--arrival", "60", "--policies", "isolated", "--seeds", "1")
    code, output = run(*few, "--machines", "150", "--processes", "1")
    assert code == 0
    assert "the 80 jobs of Harmony, one every 60 s, 150 machines, 1 seed" in output


@pytest.mark.parametrize("study", STUDIES)
def test_every_claim_is_computed_from_the_runs_of_its_cases(study: str) -> None:
    """Each case has a made-up run: a mean of 1,000 s for isolated jobs, and of 400 s for others."""
    runs = []
    claims = STUDIES[study]
    for case in cases_of_claims(2, claims):
        seconds = (1000.0 if case.policy == "isolated" else 400.0) + case.seed
        values = dict.fromkeys((*RUN_NUMBERS, *QUERY_NUMBERS), 0.5)
        columns = {"arrival_seconds": [0.0], "completion_seconds": [seconds], "circumstances": {}}
        workload, machines, policy, seed = case.key
        content = {"workload": workload, "machines": machines, "policy": policy, "seed": seed}
        runs.append(GroupedRun.of_record({**content, **columns, **values}))
    figures = {claim.what: claim.figure(runs) for claim in claims}
    assert len(figures) == len(claims)
    slower, equal = {
        "harmony:paper": ("isolated / Harmony, last end", "Muri / Harmony, mean completion"),
        "harmony:baselines": ("alone, 16 machines / Harmony, last end", None),
        "harmony:progress": (None, "Muri / by progress, mean completion"),
        "harmony:queries": (None, "queries every 600 s: Harmony with / without, last end"),
    }[study]
    if slower is not None:
        assert figures[slower].mean == pytest.approx((1000 / 400 + 1001 / 401) / 2)
    if equal is not None:
        assert figures[equal].mean == 1.0
    assert all(figure.standard_error == figure.standard_error for figure in figures.values())


RUN_NUMBERS = (
    "cpu_share",
    "net_share",
    "jobs_mean",
    "groups_mean",
    "spilled_mean",
    "moving_share",
    "loss_mean_seconds",
    "waited_most_seconds",
    "model_error_mean",
    "model_error_p95",
    "decision_ms_mean",
)


def test_workloads_are_told_apart_in_words() -> None:
    mixes = (HarmonyJobs(), HarmonyJobs("bursts"), HarmonyJobs(mix="computing"))
    words = {str(mix) for mix in (*mixes, HarmonyJobs(iteration_spread=0.3, iterations_spread=0.6))}
    assert words == {
        "the 80 jobs of Harmony, all at once",
        "the 80 jobs of Harmony, one every 480 s in bursts",
        "the 60 most computing jobs of Harmony, all at once",
        "the 80 jobs of Harmony with spreads 0.3 and 0.6, all at once",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--grouped", "harmonie"),
            "'harmonie' are no jobs that take turns; write harmony, ",
        ),
        (
            ("--grouped", "harmony", "--arrival", "9"),
            "come at once; leave --arrival out",
        ),
        (("--grouped", "harmony", "--nodes", "3"), "--nodes says nothing about jobs in groups; leave it out"),
        (("--grouped", "harmony", "--epoch", "3"), "--epoch says nothing about jobs in groups"),
        (("--machines", "3"), "--machines says nothing about shared cores; give --grouped too"),
        (("--gangs", "table2", "--machines", "3"), "--machines says nothing about elastic jobs"),
        (("--gangs", "table2", "--grouped", "harmony"), "are two studies; give one of them"),
        (("--grouped", "harmony", "--policies", "harmonie"), "did you mean 'harmony'"),
        (("--grouped", "harmony", "--policies", ","), "no policy is named"),
        (("--grouped", "harmony:paper", "--policies", "muri"), "harmony:paper says the policies"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert says in output.replace("│ ", "").replace(" │", "")
