"""`relaqs simulate --placed`: policies that place the parts of models, side by side on simulated machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from relaqs_engine.errors import DataError

from relaqs.cli.policy_tables import FigureColumn, named_policies, print_policies, seeds_of
from relaqs.cli.studies import kept_or_computed
from relaqs.placed_policies.registry import make_placed_policy
from relaqs.records.placed_comparison import PLACED_MEASURES
from relaqs.records.placed_run import PlacedRun
from relaqs.records.side_by_side import by_setting, policy_rows
from relaqs.simulation.early_stops import EarlyStops
from relaqs.simulation.placed.moves import MoveCosts
from relaqs.simulation.placed.placed_study import PlacedCase, run_placed_case
from relaqs.simulation.placed.simulator import PlacedRules
from relaqs.simulation.placed.workload import SCENARIOS, Scenario, read_philly

PLACED_POLICY_NAMES = "mlfs,mlf_h,tiresias,fair"
PERIOD_SECONDS, RESTART_SECONDS, NODES = 60.0, 5.0, 20
CAPTION = (
    "JCT: from a job's arrival to its end, the mean. makespan: from the first arrival to the last end. in "
    "time: jobs that ended by their deadline. accuracy: by the deadline; met: it was what the user needs. "
    "sent: between nodes. overloads: nodes with too much, over all plans. Means over seeds ± standard error. "
    "–: a job did not end."
)
COLUMNS = (
    FigureColumn("JCT, min", "completion_seconds", ".1f", 1 / 60),
    FigureColumn("makespan, h", "makespan_seconds", ".1f", 1 / 3600),
    FigureColumn("in time, %", "deadlines_met", ".1f", 100.0),
    FigureColumn("accuracy", "accuracy_at_deadline", ".3f"),
    FigureColumn("met, %", "accuracy_met", ".1f", 100.0),
    FigureColumn("sent, TB", "sent_bytes", ".0f", 1e-12),
    FigureColumn("overloads", "overloads", ",.0f"),
    FigureColumn("ms a plan", "decision_ms", ".1f"),
)


@dataclass(frozen=True, slots=True)
class PlacedOptions:
    """What the command line says of jobs whose parts are placed. None: as usual."""

    placed: str
    policies: str | None
    stops: Sequence[EarlyStops]
    philly: Path | None
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
        PlacedCase(name, seed, scenario, stop, nodes, options.devices, rules)
        for stop in options.stops
        for seed in range(options.seeds)
        for name in named_policies(options.policies or PLACED_POLICY_NAMES, make_placed_policy, "mlfs,fair")
    ]
    print_placed(kept_or_computed(cases, PlacedRun, run_placed_case, records, processes), output)


def scenario_of(text: str, philly: Path | None, devices: int) -> Scenario:
    """Return the scenario that is asked for, as in paper:1240. Raises BadParameter with what is accepted."""
    name, sign, count = text.partition(":")
    if name not in SCENARIOS or (sign and not (count.isdecimal() and int(count) > 0)):
        raise click.BadParameter(
            f"{text!r} is no scenario; write {', '.join(SCENARIOS)}, or one with a number of jobs, as in "
            "paper:1240",
            param_hint="--placed",
        )
    if philly is not None:
        try:
            read_philly(philly)
        except DataError as error:
            raise click.BadParameter(str(error), param_hint="--philly") from error
    return Scenario(name, int(count) if sign else Scenario().jobs, philly, devices)


def print_placed(runs: Sequence[PlacedRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    for group in by_setting(runs):
        rows = policy_rows(group, PLACED_MEASURES)
        print_policies(rows, output, setting=title_of_placed(group), columns=COLUMNS, caption=CAPTION)


STOP_WORDS = {
    "own": "only a policy's own rule stops jobs early",
    "same": "every policy stops jobs early by the same rule",
    "none": "no job stops early",
}


def title_of_placed(runs: Sequence[PlacedRun]) -> str:
    """Return what a setting is, in a line."""
    run = runs[0]
    where = f"{run.nodes} nodes of {run.node_devices} devices"
    return f"{len(run.jobs.names):,} jobs, {where} ({run.workload}), {STOP_WORDS[run.stop]}, {seeds_of(runs)}"
