"""`relaqs simulate --grouped`: group policies side by side on machines that are only computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs.cli.parameters import numbers
from relaqs_lab.cli.policy_tables import (
    FigureColumn,
    console,
    figure_cell,
    named_policies,
    print_json,
    print_policies,
    seeds_of,
)
from relaqs_lab.cli.studies import kept_or_computed
from relaqs_lab.group_policies.registry import make_group_policy
from relaqs_lab.records.comparison import by_setting
from relaqs_lab.records.grouped_run import GroupedRun, compare_grouped
from relaqs_lab.simulation.grouped.studies import (
    STUDIES,
    Claim,
    GroupedCase,
    HarmonyJobs,
    cases_of_claims,
    run_grouped_case,
)

GROUP_POLICY_NAMES = "isolated,shortest_first,colocated,muri,harmony,harmony_progress"
MIXES = {
    "harmony": HarmonyJobs(),
    "harmony:computing": HarmonyJobs(mix="computing"),
    "harmony:communicating": HarmonyJobs(mix="communicating"),
    "harmony:poisson": HarmonyJobs("poisson"),
    "harmony:bursts": HarmonyJobs("bursts"),
}
CAPTION = (
    "mean: of the time from a job's arrival to its end. last end: from the first arrival. ×: how many times "
    "as long the first policy took. cpu, net: of all machines' time, in which they computed and sent. "
    "α: the mean share of rows on disk. loss: its integral over a job's time, from 1 to 0. "
    "Means over seeds ± standard error. –: a job did not end."
)
COLUMNS = (
    FigureColumn("mean, min", "completion_seconds", ",.0f", 1 / 60),
    FigureColumn("×", "completion_gain", ".2f"),
    FigureColumn("last end, min", "makespan_seconds", ",.0f", 1 / 60),
    FigureColumn("×", "makespan_gain", ".2f"),
    FigureColumn("cpu", "cpu_share", ".2f"),
    FigureColumn("net", "net_share", ".2f"),
    FigureColumn("jobs", "jobs_mean", ".1f"),
    FigureColumn("groups", "groups_mean", ".1f"),
    FigureColumn("α", "spilled_mean", ".2f"),
    FigureColumn("loss, min", "loss_mean_seconds", ",.0f", 1 / 60),
)
PAPER_CAPTION = (
    "a / b: how many times as long a took as b, of the mean time from arrival to end and of the last end. "
    "Means over seeds ± standard error. –: the paper has no such figure."
)


@dataclass(frozen=True, slots=True)
class GroupedOptions:
    """What the command line says of jobs in groups. None: as usual."""

    grouped: str
    policies: str | None
    machines: int
    arrival: str | None
    seeds: int


def simulate_grouped(
    options: GroupedOptions, records: Path | None, processes: int | None, output: str
) -> None:
    """Simulate all policies and seeds, and print them; or all figures of a study, and print these."""
    if (claims := STUDIES.get(options.grouped)) is not None:
        if options.policies is not None or options.arrival is not None or options.machines != 100:
            raise click.UsageError(
                f"{options.grouped} says the policies, the arrivals and the machines; leave --policies, "
                "--arrival and --machines out"
            )
        cases = cases_of_claims(options.seeds, claims)
        runs = kept_or_computed(cases, GroupedRun, run_grouped_case, records, processes)
        print_claims(claims, runs, output)
        return
    names = named_policies(options.policies or GROUP_POLICY_NAMES, make_group_policy, "isolated,harmony")
    cases = [
        GroupedCase(name, seed, mix, options.machines)
        for mix in grouped_mixes(options)
        for seed in range(options.seeds)
        for name in names
    ]
    print_grouped(kept_or_computed(cases, GroupedRun, run_grouped_case, records, processes), output)


def grouped_mixes(options: GroupedOptions) -> list[HarmonyJobs]:
    """Return the workloads that are asked for. Raises BadParameter, naming what is accepted."""
    if options.grouped not in MIXES:
        raise click.BadParameter(
            f"{options.grouped!r} are no jobs that take turns; write {', '.join([*MIXES, *STUDIES])}",
            param_hint="--grouped",
        )
    mix = MIXES[options.grouped]
    if options.arrival is None:
        return [mix]
    if mix.arrivals == "at once":
        raise click.UsageError(
            f"the jobs of {options.grouped} come at once; leave --arrival out, or write harmony:poisson"
        )
    return [replace(mix, arrival_seconds=mean) for mean in numbers("--arrival", options.arrival)]


def print_grouped(runs: Sequence[GroupedRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    for group in by_setting(runs):
        rows = compare_grouped(group)
        print_policies(rows, output, setting=title_of_grouped(group), columns=COLUMNS, caption=CAPTION)


def print_claims(claims: Sequence[Claim], runs: Sequence[GroupedRun], output: str) -> None:
    """Print each figure of a study beside the paper's: a table for people, or one JSON object a row."""
    title = f"Harmony's evaluation, {seeds_of(runs)}"
    table = Table(title=title, box=SIMPLE_HEAD, caption=PAPER_CAPTION, caption_justify="left")
    table.add_column("what")
    table.add_column("paper", justify="right")
    table.add_column("here", justify="right")
    for claim in claims:
        figure = claim.figure(runs)
        if output != "table":
            error = figure.standard_error
            print_json({"what": claim.what, "paper": claim.paper, "here": figure.mean, "here_error": error})
        form = ".3f" if abs(figure.mean) < 0.1 else ".2f"
        table.add_row(claim.what, claim.paper, figure_cell(figure, 1.0, form))
    if output == "table":
        console().print(table)


def title_of_grouped(runs: Sequence[GroupedRun]) -> str:
    """Return what a setting is, in a line."""
    return f"{runs[0].workload}, {runs[0].machines} machines, {seeds_of(runs)}"
