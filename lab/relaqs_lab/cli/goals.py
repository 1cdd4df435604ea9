"""`relaqs simulate --goals`: training runs with deadlines and accuracies, with and without early stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from relaqs.cli.parameters import numbers
from relaqs_lab.cli.policy_tables import FigureColumn, both_parts, console, print_policies, seeds_of
from relaqs_lab.cli.shared_cores import core_policies
from relaqs_lab.cli.studies import kept_or_computed
from relaqs_lab.records.comparison import Figure, by_setting, policy_rows
from relaqs_lab.records.goal_run import GOAL_MEASURES, GoalRun
from relaqs_lab.simulation.simulator import Options
from relaqs_lab.simulation.study import CONTROL, DeadlineRule, GoalCase, run_goal_case
from relaqs_lab.simulation.workload import EarlyStops

GOAL_POLICY_NAMES = "fair,index,shortest_remaining_time,deadlines,load_control:index,load_control:deadlines"
ARRIVAL = "150"
EPOCH_SECONDS = 60.0
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
COLUMNS = (
    FigureColumn("mean, s", "completion_seconds", ",.0f"),
    FigureColumn("last end, s", "makespan_seconds", ",.0f"),
    FigureColumn("met", "deadlines_met", ".1f", 100.0, " %"),
    FigureColumn("urgent met", "urgent_met", ".1f", 100.0, " %"),
    FigureColumn("accurate", "accuracy_met", ".1f", 100.0, " %"),
    FigureColumn("accuracy then", "accuracy_by_deadline", ".1f", 100.0, " %"),
    FigureColumn("stopped", "stopped", ".1f", 100.0, " %"),
    FigureColumn("ms a plan", "decision_ms", ".1f"),
)


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """What the command line says of runs with goals. None: as usual."""

    deadlines: str
    policies: str | None
    stops: Sequence[EarlyStops]
    jobs: int
    arrival: str | None
    core_seconds: float
    cores: float
    seeds: int
    epoch_seconds: float | None
    at_events: bool
    until_seconds: float


def simulate_goals(asked: GoalOptions, records: Path | None, processes: int | None, output: str) -> None:
    """Simulate all policies, stop rules and seeds, and print them."""
    options = Options(asked.epoch_seconds or EPOCH_SECONDS, asked.at_events, asked.until_seconds)
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
            options,
        )
        for mean in numbers("--arrival", asked.arrival or ARRIVAL)
        for stop in asked.stops
        for seed in range(asked.seeds)
        for name in core_policies(asked.policies or GOAL_POLICY_NAMES)
    ]
    print_goals(kept_or_computed(cases, GoalRun, run_goal_case, records, processes), output)


def print_goals(runs: Sequence[GoalRun], output: str) -> None:
    """Print policies side by side: what is left of a lead first, or one JSON object a policy."""
    by_workload: dict[tuple[object, ...], list[GoalRun]] = {}
    for run in runs:
        by_workload.setdefault((run.workload, run.capacity_cores), []).append(run)
    for group in by_workload.values():
        if output == "table":
            for line in leads(group):
                console().print(line, highlight=False)
        for each in by_setting(group):
            print_policies(
                policy_rows(each, GOAL_MEASURES),
                output,
                setting=title_of_goals(each),
                columns=COLUMNS,
                caption=CAPTION,
                stop=each[0].stop,
            )


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


def title_of_goals(runs: Sequence[GoalRun]) -> str:
    """Return what a setting is, in a line."""
    run = runs[0]
    where = f"{run.capacity_cores:,.0f} cores, load {run.load:.2g}"
    return f"simulated: {run.workload}, {where}, {seeds_of(runs)}; {STOPS[run.stop]}"
