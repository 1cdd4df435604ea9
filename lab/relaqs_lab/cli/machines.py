"""`relaqs simulate --gangs`, `--placed` and `--grouped`: policies side by side on simulated machines.

Slot policies give slots to gangs, placed policies place the parts of models, and group policies let jobs
take turns. Each study has its options, its cases and its table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from relaqs_engine.errors import DataError
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs.cli.parameters import numbers
from relaqs.policies.registry import PolicyError, make_placed_policy, make_slot_policy
from relaqs_lab.cli.studies import (
    FigureColumn,
    both_parts,
    console,
    figure_cell,
    kept_or_computed,
    named_policies,
    print_json,
    print_policies,
    seeds_of,
)
from relaqs_lab.group_policies import make_group_policy
from relaqs_lab.records.comparison import by_setting, policy_rows, ratio_to
from relaqs_lab.records.simulated_runs import (
    GANG_MEASURES,
    PLACED_MEASURES,
    GangRun,
    GroupedRun,
    PlacedRun,
    compare_grouped,
)
from relaqs_lab.simulation.grouped.grouped_studies import (
    STUDIES,
    Claim,
    GroupedCase,
    HarmonyJobs,
    cases_of_claims,
    run_grouped_case,
)
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.gang_study import AdaptDl, GangCase, Table2, run_gang_case
from relaqs_lab.simulation.machines.machine_simulator import Timing
from relaqs_lab.simulation.machines.table2 import ARRIVAL_SECONDS
from relaqs_lab.simulation.placed.placed_simulator import MoveCosts, PlacedRules
from relaqs_lab.simulation.placed.placed_study import PlacedCase, run_placed_case
from relaqs_lab.simulation.placed.placed_workload import SCENARIOS, Scenario, read_philly
from relaqs_lab.simulation.workload import EarlyStops

SLOT_POLICY_NAMES = "tiresias,optimus,ones,sia,completion_rate"
ROUND_SECONDS, RESCALE_SECONDS, GANG_NODES = 60.0, 1.0, 16
GANG_CAPTION = (
    "mean, median, p99: of the time from a job's arrival to its end. last end: from the first arrival. "
    "slots used: of all, until the last end. rescales: changes of a job's slots after its start. Means over "
    "seeds ± standard error. –: a job did not end."
)
GANG_COLUMNS = (
    FigureColumn("mean, s", "completion_seconds", ",.0f"),
    FigureColumn("median, s", "completion_seconds_median", ",.0f"),
    FigureColumn("p99, s", "completion_seconds_p99", ",.0f"),
    FigureColumn("last end, s", "makespan_seconds", ",.0f"),
    FigureColumn("slots used", "used_share", ".0f", 100.0, " %"),
    FigureColumn("rescales", "rescales", ".1f"),
    FigureColumn("ms a plan", "decision_ms", ".1f"),
)
LOST = FigureColumn("lost", "lost_share", ".1f", 100.0, " %")  # a column where machines failed
LOST_CAPTION = " lost: of all rows processed, those that were processed again."


@dataclass(frozen=True, slots=True)
class GangOptions:
    """What the command line says of elastic jobs on machines. None: as usual."""

    gangs: str
    policies: str | None
    nodes: int | None
    slots: int
    rescale_seconds: float | None
    arrival: str | None
    seeds: int
    epoch_seconds: float | None
    at_events: bool
    until_seconds: float
    spike_jobs: int
    faults: Faults | None


def simulate_gangs(options: GangOptions, records: Path | None, processes: int | None, output: str) -> None:
    """Simulate all policies, mixes and seeds, and print them."""
    timing = Timing(
        options.epoch_seconds or ROUND_SECONDS,
        options.at_events,
        RESCALE_SECONDS if options.rescale_seconds is None else options.rescale_seconds,
        options.until_seconds,
    )
    cases = [
        GangCase(name, seed, mix, options.nodes or GANG_NODES, options.slots, timing, faults=options.faults)
        for mix in mixes(options)
        for seed in range(options.seeds)
        for name in named_policies(options.policies or SLOT_POLICY_NAMES, make_slot_policy, "tiresias,ones")
    ]
    print_gangs(kept_or_computed(cases, GangRun, run_gang_case, records, processes), output)


def mixes(options: GangOptions) -> list[Table2 | AdaptDl]:
    """Return the workloads that are asked for. Raises BadParameter, naming what is accepted."""
    kind, sign, folder = options.gangs.partition(":")
    if kind == "table2" and not sign:
        given, spike = options.arrival, options.spike_jobs
        every = [ARRIVAL_SECONDS] if given is None else numbers("--arrival", given)
        return [Table2(each, spike_jobs=spike) for each in every]
    if kind != "adaptdl" or not folder:
        raise click.BadParameter(
            f"{options.gangs!r} are no elastic jobs; write table2, or adaptdl:DIR", param_hint="--gangs"
        )
    if options.arrival is not None or options.spike_jobs:
        raise click.UsageError(
            "the workloads of AdaptDL say when jobs arrive; leave --arrival and --spike out"
        )
    mix = AdaptDl(Path(folder))
    try:
        mix.check(options.seeds)
    except DataError as error:
        raise click.BadParameter(str(error), param_hint="--gangs") from error
    return [mix]


def print_gangs(runs: Sequence[GangRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    for group in by_setting(runs):
        rows = policy_rows(group, GANG_MEASURES)
        has_lost = any(row.figures["lost_share"].mean > 0 for row in rows)
        print_policies(
            rows,
            output,
            setting=title_of_gangs(group),
            columns=(*GANG_COLUMNS, LOST) if has_lost else GANG_COLUMNS,
            caption=GANG_CAPTION + LOST_CAPTION if has_lost else GANG_CAPTION,
        )


def title_of_gangs(runs: Sequence[GangRun]) -> str:
    """Return what a setting is, in a line."""
    run = runs[0]
    where = f"{run.nodes} nodes of {run.node_slots} slots"
    return f"{run.source}: {len(run.jobs.names):,} elastic jobs, {where} ({run.workload}), {seeds_of(runs)}"


PRIVILEGED = "mlfs"  # it stops jobs early by its own rule
LEARNED = ("mlf_rl", "mlfs")  # they have weights
PLACED_POLICY_NAMES = "mlfs,mlf_h,tiresias,fair"
PERIOD_SECONDS, RESTART_SECONDS, PLACED_NODES = 60.0, 5.0, 20
PLACED_CAPTION = (
    "JCT: from a job's arrival to its end, the mean. makespan: from the first arrival to the last end. in "
    "time: jobs that ended by their deadline. accuracy: by the deadline; met: it was what the user needs. "
    "sent: between nodes. overloads: nodes with too much, over all plans. Means over seeds ± standard error. "
    "–: a job did not end."
)
_SCENARIO = re.compile(
    rf"({'|'.join(SCENARIOS)})(?::0*([1-9][0-9]*))?(?:@(?=[0-9.]*[1-9])([0-9]+(?:\.[0-9]*)?))?"
)
PLACED_COLUMNS = (
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
    nodes = options.nodes or PLACED_NODES
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
        print_policies(
            rows, output, setting=title_of_placed(group), columns=PLACED_COLUMNS, caption=PLACED_CAPTION
        )


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


GROUP_POLICY_NAMES = "isolated,shortest_first,colocated,muri,harmony,harmony_progress"
MIXES = {
    "harmony": HarmonyJobs(),
    "harmony:computing": HarmonyJobs(mix="computing"),
    "harmony:communicating": HarmonyJobs(mix="communicating"),
    "harmony:poisson": HarmonyJobs("poisson"),
    "harmony:bursts": HarmonyJobs("bursts"),
}
GROUPED_CAPTION = (
    "mean: of the time from a job's arrival to its end. last end: from the first arrival. ×: how many times "
    "as long the first policy took. cpu, net: of all machines' time, in which they computed and sent. "
    "α: the mean share of rows on disk. loss: its integral over a job's time, from 1 to 0. "
    "Means over seeds ± standard error. –: a job did not end."
)
GROUPED_COLUMNS = (
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
        print_policies(
            rows, output, setting=title_of_grouped(group), columns=GROUPED_COLUMNS, caption=GROUPED_CAPTION
        )


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
