"""`relaqs simulate` without a study's option, and with `--validate`: policies that share cores.

With `--validate`, live runs are printed beside their simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs.cli.parameters import numbers
from relaqs.policies import make_policy
from relaqs_lab.cli.policy_tables import console, named_policies, print_json
from relaqs_lab.cli.studies import print_runs, run_cases
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.simulator import Options
from relaqs_lab.simulation.study import (
    AGREES,
    Agreement,
    Case,
    JobMix,
    agreements,
    difference,
    predicted_difference,
)

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
