"""`relaqs simulate --grouped`: group policies side by side on machines that are only computed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.cli.gangs import both_parts
from relaqs.cli.parameters import numbers
from relaqs.cli.studies import WIDTH, kept_or_computed
from relaqs.group_policies.registry import make_group_policy
from relaqs.policies.registry import PolicyError
from relaqs.records.comparison import Figure
from relaqs.records.grouped_run import GroupedRow, GroupedRun, compare_grouped, settings_of_grouped
from relaqs.records.store import json_value
from relaqs.simulation.grouped.grouped_study import GroupedCase, HarmonyJobs, run_grouped_case
from relaqs.simulation.grouped.reproduction import CLAIMS, cases_of_claims

GROUP_POLICY_NAMES = "isolated,shortest_first,colocated,muri,harmony"
MIXES = {
    "harmony": HarmonyJobs(),
    "harmony:computing": HarmonyJobs(mix="computing"),
    "harmony:communicating": HarmonyJobs(mix="communicating"),
    "harmony:poisson": HarmonyJobs("poisson"),
    "harmony:bursts": HarmonyJobs("bursts"),
}
PAPER = "harmony:paper"
CAPTION = (
    "mean: of the time from a job's arrival to its end. last end: from the first arrival. ×: how many times "
    "as long the first policy took. cpu, net: of all machines' time, in which they computed and sent. "
    "α: the mean share of rows on disk. Means over seeds ± standard error. –: a job did not end."
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
    """Simulate all policies and seeds, and print them; or all figures of the paper, and print these."""
    if options.grouped == PAPER:
        if options.policies is not None or options.arrival is not None or options.machines != 100:
            raise click.UsageError(
                f"{PAPER} says the policies, the arrivals and the machines; leave --policies, --arrival and "
                "--machines out"
            )
        cases = cases_of_claims(options.seeds)
        print_claims(kept_or_computed(cases, GroupedRun, run_grouped_case, records, processes), output)
        return
    names = group_policy_names(options.policies or GROUP_POLICY_NAMES)
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
            f"{options.grouped!r} are no jobs that take turns; write {', '.join(MIXES)} or {PAPER}",
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


def group_policy_names(text: str) -> list[str]:
    """Return the group policies named in a comma-separated list, each once. Raises BadParameter."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter(
            "no policy is named; give some, e.g. isolated,harmony", param_hint="--policies"
        )
    for name in names:
        try:
            make_group_policy(name)
        except PolicyError as error:
            raise click.BadParameter(str(error), param_hint="--policies") from error
    return names


def print_grouped(runs: Sequence[GroupedRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    for group in settings_of_grouped(runs):
        title = title_of_grouped(group)
        if output == "table":
            _console().print(grouped_table(compare_grouped(group), title))
            continue
        for row in compare_grouped(group):
            _print_json({"setting": title, **plain_grouped(row)})


def print_claims(runs: Sequence[GroupedRun], output: str) -> None:
    """Print each figure of the paper beside ours: a table for people, or one JSON object a row."""
    seeds = len({run.seed for run in runs})
    title = f"Harmony's evaluation, {seeds} seed{'s' if seeds > 1 else ''}"
    table = Table(title=title, box=SIMPLE_HEAD, caption=PAPER_CAPTION, caption_justify="left")
    table.add_column("what")
    table.add_column("paper", justify="right")
    table.add_column("here", justify="right")
    for claim in CLAIMS:
        figure = claim.figure(runs)
        if output != "table":
            error = figure.standard_error
            _print_json({"what": claim.what, "paper": claim.paper, "here": figure.mean, "here_error": error})
        table.add_row(claim.what, claim.paper, _cell(figure, 1.0, ".3f" if abs(figure.mean) < 0.1 else ".2f"))
    if output == "table":
        _console().print(table)


def title_of_grouped(runs: Sequence[GroupedRun]) -> str:
    """Return what a setting is, in a line."""
    seeds = len({each.seed for each in runs})
    return f"{runs[0].workload}, {runs[0].machines} machines, {seeds} seed{'s' if seeds > 1 else ''}"


def grouped_table(rows: Sequence[GroupedRow], title: str) -> Table:
    """Return a table of a row for each policy."""
    table = Table(title=title, box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for heading in ("mean, min", "×", "last end, min", "×", "cpu", "net", "jobs", "groups", "α"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = row.figures
        table.add_row(
            row.policy,
            _cell(figures["completion_seconds"], 1 / 60, ",.0f"),
            _cell(row.completion_gain, 1.0, ".2f"),
            _cell(figures["makespan_seconds"], 1 / 60, ",.0f"),
            _cell(row.makespan_gain, 1.0, ".2f"),
            *(_cell(figures[name], 1.0, ".2f") for name in ("cpu_share", "net_share")),
            *(_cell(figures[name], 1.0, ".1f") for name in ("jobs_mean", "groups_mean")),
            _cell(figures["spilled_mean"], 1.0, ".2f"),
        )
    return table


def plain_grouped(row: GroupedRow) -> dict[str, object]:
    """Return a row for other programs: each measure, and its standard error."""
    figures = {
        **row.figures,
        "completion_gain": row.completion_gain,
        "makespan_gain": row.makespan_gain,
    }
    errors = {f"{name}_error": figure.standard_error for name, figure in figures.items()}
    means = {name: figure.mean for name, figure in figures.items()}
    return {"policy": row.policy, "seeds": list(row.seeds), **means, **errors}


def _cell(figure: Figure, scale: float, form: str) -> str:
    return "–" if figure.mean != figure.mean else both_parts(figure, scale, form)


def _print_json(values: dict[str, object]) -> None:
    click.echo(json.dumps(json_value(values), allow_nan=False))


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)
