"""`relaqs simulate --goals`: training runs with deadlines and accuracies, with and without early stops."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.cli.gangs import both_parts
from relaqs.cli.parameters import numbers
from relaqs.cli.studies import WIDTH, kept_or_computed
from relaqs.records.comparison import Figure
from relaqs.records.goal_run import NUMBERS, GoalRun
from relaqs.records.store import json_value
from relaqs.simulation.early_stops import EarlyStops
from relaqs.simulation.goal_study import CONTROL, DeadlineRule, GoalCase, run_goal_case
from relaqs.simulation.simulator import Options

POLICIES = "fair,index,shortest_remaining_time,deadlines,load_control:index,load_control:deadlines"
ARRIVAL = "150"
STOPS = {
    "own": "load_control alone may stop runs",
    "same": "every policy may stop runs",
    "none": "no run is stopped",
}
CAPTION = (
    "mean: of the time from a run's arrival to its end or stop. met: runs that were over by their deadline; "
    "urgent: those of urgency 9 and 10. accurate: runs that had their required accuracy by their deadline. "
    "stopped: by a plan. Means over seeds ± standard error."
)
COLUMNS = {
    "mean, s": "completion_seconds",
    "last end, s": "makespan_seconds",
    "met": "deadlines_met",
    "urgent met": "urgent_met",
    "accurate": "accuracy_met",
    "accuracy then": "accuracy_by_deadline",
    "stopped": "stopped",
    "ms a plan": "decision_ms",
}


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """What the command line says of runs with goals. None: as usual."""

    deadlines: str
    policies: Sequence[str]
    stops: Sequence[EarlyStops]
    jobs: int
    arrival: str | None
    core_seconds: float
    cores: float
    seeds: int
    options: Options


def simulate_goals(asked: GoalOptions, records: Path | None, processes: int | None, output: str) -> None:
    """Simulate all policies, stop rules and seeds, and print them."""
    cases = [
        GoalCase(
            name,
            seed,
            asked.jobs,
            mean,
            asked.core_seconds,
            asked.cores,
            cast(DeadlineRule, asked.deadlines),
            stop,
            asked.options,
        )
        for mean in numbers("--arrival", asked.arrival or ARRIVAL)
        for stop in asked.stops
        for seed in range(asked.seeds)
        for name in asked.policies
    ]
    print_goals(kept_or_computed(cases, GoalRun, run_goal_case, records, processes), output)


def print_goals(runs: Sequence[GoalRun], output: str) -> None:
    """Print policies side by side: what is left of a lead first, or one JSON object a policy."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    by_workload: dict[tuple[object, ...], list[GoalRun]] = {}
    for run in runs:
        by_workload.setdefault((run.workload, run.capacity_cores), []).append(run)
    for group in by_workload.values():
        if output == "table":
            for line in leads(group):
                console.print(line, highlight=False)
        for stop in dict.fromkeys(run.stop for run in group):
            _print_rule([run for run in group if run.stop == stop], console, output)


def leads(runs: Sequence[GoalRun]) -> list[str]:
    """Return for each policy with load control how far it leads if it alone may stop runs, and if all may.

    The lead is that in mean time over the first policy without load control, seed by seed. Nothing where one
    of both rules, or such a policy, was not simulated.
    """
    names = list(dict.fromkeys(run.policy for run in runs))
    others = [name for name in names if not name.startswith(CONTROL)]
    if not others or not {"own", "same"} <= {run.stop for run in runs}:
        return []
    found = {(run.stop, run.policy, run.seed): run.completion_seconds for run in runs}
    seeds = sorted({run.seed for run in runs})
    lines = []
    for name in (each for each in names if each.startswith(CONTROL)):
        alone, all_ = (
            Figure.of([1 - found[stop, name, seed] / found[stop, others[0], seed] for seed in seeds])
            for stop in ("own", "same")
        )
        lines.append(
            f"{name} ends runs {both_parts(alone, 100, '.1f')} % sooner than {others[0]} if it alone may "
            f"stop them, and {both_parts(all_, 100, '.1f')} % sooner if all may."
        )
    return lines


def _print_rule(runs: Sequence[GoalRun], console: Console, output: str) -> None:
    run, seeds = runs[0], len({each.seed for each in runs})
    title = (
        f"simulated: {run.workload}, {run.capacity_cores:,.0f} cores, load {run.load:.2g}, "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}; {STOPS[run.stop]}"
    )
    rows = {name: _figures([each for each in runs if each.policy == name]) for name in _policies(runs)}
    if output == "table":
        console.print(_table(rows, title))
        return
    for name, figures in rows.items():
        errors = {f"{each}_error": figure.standard_error for each, figure in figures.items()}
        means = {each: figure.mean for each, figure in figures.items()}
        values = {"setting": title, "stop": run.stop, "policy": name, **means, **errors}
        click.echo(json.dumps(json_value(values), allow_nan=False))


def _policies(runs: Sequence[GoalRun]) -> list[str]:
    return list(dict.fromkeys(run.policy for run in runs))


def _figures(runs: Sequence[GoalRun]) -> dict[str, Figure]:
    return {name: Figure.of([getattr(run, name) for run in runs]) for name in NUMBERS}


def _table(rows: dict[str, dict[str, Figure]], title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for name, figures in rows.items():
        table.add_row(name, *(_cell(column, figures[column]) for column in COLUMNS.values()))
    return table


def _cell(column: str, figure: Figure) -> str:
    if math.isnan(figure.mean):
        return "–"
    if column in ("completion_seconds", "makespan_seconds"):
        return both_parts(figure, 1.0, ",.0f")
    if column == "decision_ms":
        return both_parts(figure, 1.0, ".1f")
    return both_parts(figure, 100.0, ".1f") + " %"
