"""`relaqs simulate --gangs`: slot policies side by side on machines that are only computed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from relaqs_engine.errors import DataError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.cli.parameters import numbers
from relaqs.cli.studies import WIDTH, kept_or_computed
from relaqs.policies.registry import PolicyError
from relaqs.records.comparison import Figure
from relaqs.records.gang_comparison import GangRow, compare_gangs, settings_of_gangs
from relaqs.records.gang_run import GangRun
from relaqs.records.store import json_value
from relaqs.simulation.machines.faults import Faults
from relaqs.simulation.machines.gang_study import AdaptDl, GangCase, Table2, run_gang_case
from relaqs.simulation.machines.simulator import Timing
from relaqs.simulation.machines.table2 import ARRIVAL_SECONDS
from relaqs.slot_policies.registry import make_slot_policy

SLOT_POLICY_NAMES = "tiresias,optimus,ones,sia,completion_rate"
ROUND_SECONDS = 60.0
CAPTION = (
    "mean, median, p99: of the time from a job's arrival to its end. last end: from the first arrival. "
    "slots used: of all, until the last end. rescales: changes of a job's slots after its start. Means over "
    "seeds ± standard error. –: a job did not end."
)
COLUMNS = {
    "mean, s": "completion_seconds",
    "median, s": "completion_seconds_median",
    "p99, s": "completion_seconds_p99",
    "last end, s": "makespan_seconds",
    "slots used": "used_share",
    "rescales": "rescales",
    "ms a plan": "decision_ms",
}
LOST = {"lost": "lost_share"}  # a column where machines failed
LOST_CAPTION = " lost: of all rows processed, those that were processed again."
IN_PERCENT = ("used_share", "lost_share")


@dataclass(frozen=True, slots=True)
class GangOptions:
    """What the command line says of elastic jobs on machines. None: as usual."""

    gangs: str
    policies: str | None
    nodes: int
    slots: int
    rescale_seconds: float
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
        options.rescale_seconds,
        options.until_seconds,
    )
    cases = [
        GangCase(name, seed, mix, options.nodes, options.slots, timing, faults=options.faults)
        for mix in mixes(options)
        for seed in range(options.seeds)
        for name in slot_policy_names(options.policies or SLOT_POLICY_NAMES)
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


def slot_policy_names(text: str) -> list[str]:
    """Return the slot policies named in a comma-separated list, each once. Raises BadParameter."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("no policy is named; give some, e.g. tiresias,ones", param_hint="--policies")
    for name in names:
        try:
            make_slot_policy(name)
        except PolicyError as error:
            raise click.BadParameter(str(error), param_hint="--policies") from error
    return names


def print_gangs(runs: Sequence[GangRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    for group in settings_of_gangs(runs):
        if output == "table":
            console.print(gang_table(compare_gangs(group), title_of_gangs(group)))
            continue
        for row in compare_gangs(group):
            values = {"setting": title_of_gangs(group), **plain_gangs(row)}
            click.echo(json.dumps(json_value(values), allow_nan=False))


def title_of_gangs(runs: Sequence[GangRun]) -> str:
    """Return what a setting is, in a line."""
    run, seeds = runs[0], len({each.seed for each in runs})
    counted = "1 seed" if seeds == 1 else f"{seeds} seeds"
    where = f"{run.nodes} nodes of {run.node_slots} slots"
    return f"{run.source}: {len(run.jobs.names):,} elastic jobs, {where} ({run.workload}), {counted}"


def gang_table(rows: Sequence[GangRow], title: str) -> Table:
    """Return a table of a row for each policy."""
    has_lost = any(row.figures["lost_share"].mean > 0 for row in rows)
    columns = COLUMNS | LOST if has_lost else COLUMNS
    caption = CAPTION + LOST_CAPTION if has_lost else CAPTION
    table = Table(title=title, box=SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*gang_cells(row, columns))
    return table


def gang_cells(row: GangRow, columns: Mapping[str, str] = COLUMNS) -> tuple[str, ...]:
    """Return the cells of a policy's row, its name first. columns: measures by their headings."""
    return (row.policy, *(_cell(name, row.figures[name]) for name in columns.values()))


def _cell(name: str, figure: Figure) -> str:
    if figure.mean != figure.mean:
        return "–"
    if name in IN_PERCENT:
        return both_parts(figure, 100.0, ".0f" if name == "used_share" else ".1f") + " %"
    return both_parts(figure, 1.0, ".1f" if name in ("rescales", "decision_ms") else ",.0f")


def both_parts(figure: Figure, scale: float, form: str) -> str:
    """Return a mean and its standard error as people read them; the mean alone where there is one seed."""
    mean = f"{figure.mean * scale:{form}}"
    if figure.standard_error != figure.standard_error:
        return mean
    return f"{mean} ± {figure.standard_error * scale:{form}}"


def plain_gangs(row: GangRow) -> dict[str, object]:
    """Return a row for other programs: each measure, and its standard error."""
    errors = {f"{name}_error": figure.standard_error for name, figure in row.figures.items()}
    means = {name: figure.mean for name, figure in row.figures.items()}
    return {"policy": row.policy, "seeds": list(row.seeds), **means, **errors}
