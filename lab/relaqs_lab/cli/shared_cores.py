"""`relaqs simulate` of jobs that share cores, with `--goals` or `--validate` or without.

With `--goals` they are training runs with deadlines and accuracies, with and without early stops. With
`--validate`, live runs are printed beside their simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs.cli.parameters import numbers
from relaqs.policies import make_policy
from relaqs_lab.cli.studies import (
    FigureColumn,
    both_parts,
    console,
    kept_or_computed,
    named_policies,
    print_json,
    print_policies,
    print_runs,
    run_cases,
    seeds_of,
)
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.records.comparison import Figure, by_setting, policy_rows
from relaqs_lab.records.simulated_runs import GOAL_MEASURES, GoalRun
from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.simulator import Options
from relaqs_lab.simulation.study import (
    AGREES,
    CONTROL,
    Agreement,
    Case,
    DeadlineRule,
    GoalCase,
    JobMix,
    agreements,
    difference,
    predicted_difference,
    run_goal_case,
)
from relaqs_lab.simulation.workload import EarlyStops

CORE_POLICY_NAMES = "fair,relaqs,max_sum"
ARRIVAL = "10,40,120"
EPOCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOptions:
    """What the command line says of jobs that share cores. None: as usual.

    Attributes:
        plans_at_events: of a number of jobs, whether a plan is made when one comes or goes, too.
    """

    policies: str | None
    jobs: int
    arrival: str | None
    arrivals: Path | None
    seeds: int
    cores: float
    core_seconds: float
    training_share: float
    traces: Path | None
    cost_scale: float
    cores_most: float
    epoch_seconds: float | None
    plans_at_events: Callable[[int], bool]
    until_seconds: float


def simulate_shared_cores(
    asked: CoreOptions, records: Path | None, processes: int | None, output: str
) -> None:
    """Simulate all policies, arrivals and seeds, and print them."""
    names = core_policies(asked.policies or CORE_POLICY_NAMES)
    given = () if asked.arrivals is None else read_arrivals(asked.arrivals)
    count = len(given) or asked.jobs
    mix = JobMix(
        traces=() if asked.traces is None else read_traces(asked.traces),
        traces_name="" if asked.traces is None else asked.traces.name,
        core_seconds=asked.core_seconds,
        training_share=asked.training_share,
        cost_scale=asked.cost_scale,
        cores_most=asked.cores_most,
    )
    options = Options(asked.epoch_seconds or EPOCH_SECONDS, asked.plans_at_events(count), asked.until_seconds)
    cases = [
        Case(
            policy=name,
            seed=seed,
            jobs=count,
            mean_arrival_seconds=mean,
            mix=mix,
            capacity_cores=asked.cores,
            options=options,
            arrivals=given,
        )
        for mean in ([math.nan] if given else numbers("--arrival", asked.arrival or ARRIVAL))
        for seed in range(asked.seeds)
        for name in names
    ]
    print_runs(run_cases(cases, records, processes), output)


def core_policies(text: str) -> list[str]:
    """Return the policies named in a comma-separated list, each once. Raises BadParameter with candidates."""
    return named_policies(text, make_policy, "fair,relaqs")


def read_arrivals(path: Path) -> tuple[float, ...]:
    """Return times of arrival, one a line. Raises BadParameter naming a line that is none."""
    times = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            seconds = float(line)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise click.BadParameter(
                f"{path}, line {number}: {line!r} is no time of arrival; write seconds from 0 on, one a line",
                param_hint="--arrivals",
            )
        times.append(seconds)
    if not times:
        raise click.BadParameter(f"{path} has no times of arrival", param_hint="--arrivals")
    return tuple(sorted(times))


def read_traces(path: Path) -> tuple[Trace, ...]:
    """Return the traces of recorded runs. Raises BadParameter if there are none."""
    runs = RecordFile(path).read(QueryRun.kind_of_record, QueryRun.of_record)
    found = tuple(run.trace for run in runs)
    if not found:
        raise click.BadParameter(
            f"{path} has no recorded runs; `relaqs tpch run --data DIR --out OUT` writes "
            "them to OUT/run.jsonl",
            param_hint="--traces",
        )
    return found


def validate(path: Path, output: str) -> None:
    """Simulate every live run of a file of records, and print both side by side."""
    found = agreements(list(RecordFile(path).read(ScheduleRun.kind_of_record, ScheduleRun.of_record)))
    if not found:
        raise click.BadParameter(
            f"{path} has no live runs; `relaqs tpch schedule --data DIR --out OUT` writes them to "
            "OUT/schedule.jsonl",
            param_hint="--validate",
        )
    if output == "jsonl":
        for each in found:
            print_json(asdict(each))
        return
    off, predicted = difference(found), predicted_difference(found)
    verdict = "agree" if abs(off) <= AGREES else "do not agree"
    to = console()
    to.print(
        _table(found),
        f"Simulated times to a 90 % reduction are {off:+.1%} off live ones: within {AGREES:.0%}, the two "
        f"{verdict}.",
        highlight=False,
    )
    if math.isfinite(predicted):
        to.print(
            f"Predicted by what the same steps took under the other policies: {predicted:+.1%} off.",
            highlight=False,
        )


def _table(found: Sequence[Agreement]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Live runs, and their simulations")
    times = ("s to first", "simulated", "s to 90 %", "simulated", "predicted", "s to the end", "simulated")
    for heading in ("policy", "seed", "cores", "jobs", *times, "shares apart"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for each in found:
        table.add_row(
            each.policy,
            str(each.seed),
            f"{each.cores:g}",
            str(each.jobs),
            f"{each.live_first:.2f}",
            f"{each.simulated_first:.2f}",
            f"{each.live_reduced:.2f}",
            f"{each.simulated_reduced:.2f}",
            _or_dash(each.predicted_reduced, ".2f"),
            f"{each.live_completed:.2f}",
            f"{each.simulated_completed:.2f}",
            _or_dash(each.share_points * 100, ".0f", " points"),
        )
    return table


def _or_dash(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"


GOAL_POLICY_NAMES = "fair,index,shortest_remaining_time,deadlines,load_control:index,load_control:deadlines"
GOAL_ARRIVAL = "150"
GOAL_EPOCH_SECONDS = 60.0
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
    options = Options(asked.epoch_seconds or GOAL_EPOCH_SECONDS, asked.at_events, asked.until_seconds)
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
        for mean in numbers("--arrival", asked.arrival or GOAL_ARRIVAL)
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
