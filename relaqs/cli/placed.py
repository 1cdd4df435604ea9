"""`relaqs simulate --placed`: policies that place the parts of models, side by side on simulated machines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from relaqs_engine.errors import DataError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.cli.gangs import both_parts
from relaqs.cli.studies import WIDTH, kept_or_computed
from relaqs.placed_policies.registry import make_placed_policy
from relaqs.policies.registry import PolicyError
from relaqs.records.comparison import Figure
from relaqs.records.placed_comparison import PlacedRow, compare_placed, placed_change, settings_of_placed
from relaqs.records.placed_run import PlacedRun
from relaqs.records.store import json_value
from relaqs.simulation.early_stops import EarlyStops
from relaqs.simulation.placed.moves import MoveCosts
from relaqs.simulation.placed.placed_study import PlacedCase, run_placed_case
from relaqs.simulation.placed.simulator import PlacedRules
from relaqs.simulation.placed.workload import SCENARIOS, Scenario, read_philly

PRIVILEGED = "mlfs"  # it stops jobs early by its own rule
PLACED_POLICY_NAMES = "mlfs,mlf_h,tiresias,fair"
PERIOD_SECONDS, RESTART_SECONDS, NODES = 60.0, 5.0, 20
CAPTION = (
    "JCT: from a job's arrival to its end, the mean. makespan: from the first arrival to the last end. in "
    "time: jobs that ended by their deadline. accuracy: by the deadline; met: it was what the user needs. "
    "sent: between nodes. overloads: nodes with too much, over all plans. Means over seeds ± standard error. "
    "–: a job did not end."
)
_SCENARIO = re.compile(
    rf"({'|'.join(SCENARIOS)})(?::0*([1-9][0-9]*))?(?:@(?=[0-9.]*[1-9])([0-9]+(?:\.[0-9]*)?))?"
)
COLUMNS: dict[str, tuple[str, float, str]] = {
    "JCT, min": ("completion_seconds", 1 / 60, ".1f"),
    "makespan, h": ("makespan_seconds", 1 / 3600, ".1f"),
    "in time, %": ("deadlines_met", 100.0, ".1f"),
    "accuracy": ("accuracy_at_deadline", 1.0, ".3f"),
    "met, %": ("accuracy_met", 100.0, ".1f"),
    "sent, TB": ("sent_bytes", 1e-12, ".0f"),
    "overloads": ("overloads", 1.0, ",.0f"),
    "ms a plan": ("decision_ms", 1.0, ".1f"),
}


@dataclass(frozen=True, slots=True)
class PlacedOptions:
    """What the command line says of jobs whose parts are placed. None: as usual."""

    placed: str
    policies: str | None
    stops: Sequence[EarlyStops]
    philly: Path | None
    weights: Path | None
    nodes: int | None
    devices: int
    restart_seconds: float | None
    seeds: int
    period_seconds: float | None
    until_seconds: float


def simulate_placed_jobs(
    options: PlacedOptions, records: Path | None, processes: int | None, output: str
) -> None:
    """Simulate all policies and seeds, and print them."""
    nodes = options.nodes or NODES
    restart = RESTART_SECONDS if options.restart_seconds is None else options.restart_seconds
    rules = PlacedRules(
        period_seconds=options.period_seconds or PERIOD_SECONDS,
        moves=MoveCosts(restart),
        until_seconds=options.until_seconds,
    )
    scenario = scenario_of(options.placed, options.philly, nodes * options.devices)
    cases = [
        PlacedCase(
            name,
            seed,
            scenario,
            stop,
            nodes,
            options.devices,
            rules,
            policy_parameters(name, options.weights),
        )
        for stop in options.stops
        for seed in range(options.seeds)
        for name in placed_policy_names(options.policies or PLACED_POLICY_NAMES)
    ]
    print_placed(kept_or_computed(cases, PlacedRun, run_placed_case, records, processes), output)


def scenario_of(text: str, philly: Path | None, devices: int) -> Scenario:
    """Return the scenario that is asked for, as in paper:1240. Raises BadParameter with what is accepted."""
    words = _SCENARIO.fullmatch(text)
    if words is None:
        raise click.BadParameter(
            f"{text!r} is no scenario; write {', '.join(SCENARIOS)}, or one with a number of jobs, as in "
            "paper:1240, or with a load of all devices above 0 as well, as in paper:200@0.9",
            param_hint="--placed",
        )
    if philly is not None:
        try:
            read_philly(philly)
        except DataError as error:
            raise click.BadParameter(str(error), param_hint="--philly") from error
    name, count, load = words.groups()
    jobs = Scenario().jobs if count is None else int(count)
    return Scenario(name, jobs, philly, devices, None if load is None else float(load))


def policy_parameters(name: str, weights: Path | None) -> tuple[tuple[str, object], ...]:
    """Return what a policy is made with beside its defaults. Raises BadParameter where it cannot be."""
    parameters = () if weights is None or name != "mlf_rl" else (("weights", str(weights)),)
    try:
        make_placed_policy(name, **dict(parameters))
    except PolicyError as error:
        raise click.BadParameter(str(error), param_hint="--weights") from error
    return parameters


def placed_policy_names(text: str) -> list[str]:
    """Return the placed policies named in a comma-separated list, each once. Raises BadParameter."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("no policy is named; give some, e.g. mlfs,fair", param_hint="--policies")
    for name in names:
        try:
            make_placed_policy(name)
        except PolicyError as error:
            raise click.BadParameter(str(error), param_hint="--policies") from error
    return names


def print_placed(runs: Sequence[PlacedRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row.

    A table comes after what is left of a lead (`placed_leads`).
    """
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    if output == "table":
        for line in placed_leads(runs):
            console.print(line, highlight=False)
    for group in settings_of_placed(runs):
        if output == "table":
            console.print(placed_table(compare_placed(group), title_of_placed(group)))
            continue
        for row in compare_placed(group):
            values = {"setting": title_of_placed(group), **plain_placed(row)}
            click.echo(json.dumps(json_value(values), allow_nan=False))


def placed_leads(runs: Sequence[PlacedRun]) -> list[str]:
    """Return how far MLFS leads in mean completion time if it alone may stop jobs, and if all may.

    It is compared with fair sharing, or else with the first other policy. Nothing where one of both rules,
    or one of both policies, was not simulated.
    """
    others = [name for name in dict.fromkeys(run.policy for run in runs) if name != PRIVILEGED]
    by_rule = {
        stop: [run for run in runs if run.stop == stop and run.policy == PRIVILEGED]
        for stop in ("own", "same")
    }
    if not others or not all(by_rule.values()):
        return []
    other = "fair" if "fair" in others else others[0]
    alone, all_ = (
        placed_change(own, [run for run in runs if run.stop == stop and run.policy == other])
        for stop, own in by_rule.items()
    )
    return [
        f"{PRIVILEGED} takes {both_parts(alone, 100, '+.1f')} % of the time of {other} more or less if it alone "
        f"may stop jobs, and {both_parts(all_, 100, '+.1f')} % if all may."
    ]


STOP_WORDS = {
    "own": "only a policy's own rule stops jobs early",
    "same": "every policy stops jobs early by the same rule",
    "none": "no job stops early",
}


def title_of_placed(runs: Sequence[PlacedRun]) -> str:
    """Return what a setting is, in a line."""
    run, seeds = runs[0], len({each.seed for each in runs})
    counted = "1 seed" if seeds == 1 else f"{seeds} seeds"
    where = f"{run.nodes} nodes of {run.node_devices} devices"
    return f"{len(run.jobs.names):,} jobs, {where} ({run.workload}), {STOP_WORDS[run.stop]}, {counted}"


def placed_table(rows: Sequence[PlacedRow], title: str) -> Table:
    """Return a table of a row for each policy."""
    table = Table(title=title, box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = (_cell(row.figures[name], scale, form) for name, scale, form in COLUMNS.values())
        table.add_row(row.policy, *cells)
    return table


def _cell(figure: Figure, scale: float, form: str) -> str:
    return "–" if figure.mean != figure.mean else both_parts(figure, scale, form)


def plain_placed(row: PlacedRow) -> dict[str, object]:
    """Return a row for other programs: each measure, and its standard error."""
    errors = {f"{name}_error": figure.standard_error for name, figure in row.figures.items()}
    means = {name: figure.mean for name, figure in row.figures.items()}
    return {"policy": row.policy, "seeds": list(row.seeds), **means, **errors}
