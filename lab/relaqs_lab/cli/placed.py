"""`relaqs simulate --placed`: policies that place the parts of models, side by side on simulated machines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from relaqs_engine.errors import DataError

from relaqs.placed_policies.registry import make_placed_policy
from relaqs.policies.registry import PolicyError
from relaqs_lab.cli.policy_tables import (
    FigureColumn,
    both_parts,
    console,
    named_policies,
    print_policies,
    seeds_of,
)
from relaqs_lab.cli.studies import kept_or_computed
from relaqs_lab.records.comparison import by_setting, policy_rows, ratio_to
from relaqs_lab.records.placed_run import PLACED_MEASURES, PlacedRun
from relaqs_lab.simulation.placed.placed_study import PlacedCase, run_placed_case
from relaqs_lab.simulation.placed.simulator import MoveCosts, PlacedRules
from relaqs_lab.simulation.placed.workload import SCENARIOS, Scenario, read_philly
from relaqs_lab.simulation.workload import EarlyStops

PRIVILEGED = "mlfs"  # it stops jobs early by its own rule
LEARNED = ("mlf_rl", "mlfs")  # they have weights
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
    _check_seconds(options)
    nodes = options.nodes or NODES
    restart = RESTART_SECONDS if options.restart_seconds is None else options.restart_seconds
    rules = PlacedRules(
        period_seconds=options.period_seconds or PERIOD_SECONDS,
        moves=MoveCosts(restart),
        until_seconds=options.until_seconds,
    )
    names = named_policies(options.policies or PLACED_POLICY_NAMES, make_placed_policy, "mlfs,fair")
    if options.weights is not None and not set(LEARNED).intersection(names):
        raise click.BadParameter(
            f"{options.weights} has weights, and none of the policies {', '.join(names)} takes any; "
            f"name {' or '.join(LEARNED)} in --policies, or leave --weights out",
            param_hint="--weights",
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
        for name in names
    ]
    print_placed(kept_or_computed(cases, PlacedRun, run_placed_case, records, processes), output)


def _check_seconds(options: PlacedOptions) -> None:
    """Raise BadParameter for times that cannot be simulated. "inf" and "nan" are numbers for the parser."""
    given = {"--epoch": options.period_seconds, "--rescale": options.restart_seconds}
    for name, seconds in given.items():
        if seconds is not None and not math.isfinite(seconds):
            raise click.BadParameter(f"{seconds} is no number of seconds, such as 60", param_hint=name)
    if math.isnan(options.until_seconds):
        raise click.BadParameter("nan is no number of seconds, such as 86400", param_hint="--until")


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
    parameters = () if weights is None or name not in LEARNED else (("weights", str(weights)),)
    try:
        make_placed_policy(name, **dict(parameters))
    except PolicyError as error:
        raise click.BadParameter(str(error), param_hint="--weights") from error
    return parameters


def print_placed(runs: Sequence[PlacedRun], output: str) -> None:
    """Print policies side by side: what is left of a lead first, or one JSON object a policy."""
    if output == "table":
        for line in placed_leads(runs):
            console().print(line, highlight=False)
    for group in by_setting(runs):
        rows = policy_rows(group, PLACED_MEASURES)
        print_policies(rows, output, setting=title_of_placed(group), columns=COLUMNS, caption=CAPTION)


def placed_leads(runs: Sequence[PlacedRun]) -> list[str]:
    """Return what MLFS has of another's mean completion time if it alone may stop jobs, and if all may.

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
    completion = PLACED_MEASURES["completion_seconds"]
    alone, all_ = (
        ratio_to([run for run in runs if run.stop == stop and run.policy == other], own, completion)
        for stop, own in by_rule.items()
    )
    return [
        f"Of {other}'s completion time {PRIVILEGED} has {both_parts(alone, 100, '.1f')} % if it alone may "
        f"stop jobs early, and {both_parts(all_, 100, '.1f')} % if all may."
    ]


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
