"""`relaqs simulate --gangs`: slot policies side by side on machines that are only computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from relaqs_engine.errors import DataError

from relaqs.cli.parameters import numbers
from relaqs.slot_policies.registry import make_slot_policy
from relaqs_lab.cli.policy_tables import FigureColumn, named_policies, print_policies, seeds_of
from relaqs_lab.cli.studies import kept_or_computed
from relaqs_lab.records.comparison import by_setting, policy_rows
from relaqs_lab.records.gang_run import GANG_MEASURES, GangRun
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.gang_study import AdaptDl, GangCase, Table2, run_gang_case
from relaqs_lab.simulation.machines.simulator import Timing
from relaqs_lab.simulation.machines.table2 import ARRIVAL_SECONDS

SLOT_POLICY_NAMES = "tiresias,optimus,ones,sia,completion_rate"
ROUND_SECONDS, RESCALE_SECONDS, NODES = 60.0, 1.0, 16
CAPTION = (
    "mean, median, p99: of the time from a job's arrival to its end. last end: from the first arrival. "
    "slots used: of all, until the last end. rescales: changes of a job's slots after its start. Means over "
    "seeds ± standard error. –: a job did not end."
)
COLUMNS = (
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
        GangCase(name, seed, mix, options.nodes or NODES, options.slots, timing, faults=options.faults)
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
            columns=(*COLUMNS, LOST) if has_lost else COLUMNS,
            caption=CAPTION + LOST_CAPTION if has_lost else CAPTION,
        )


def title_of_gangs(runs: Sequence[GangRun]) -> str:
    """Return what a setting is, in a line."""
    run = runs[0]
    where = f"{run.nodes} nodes of {run.node_slots} slots"
    return f"{run.source}: {len(run.jobs.names):,} elastic jobs, {where} ({run.workload}), {seeds_of(runs)}"
