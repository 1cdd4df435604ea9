"""ONES against other slot policies on the 50 jobs of its Table 2, and what is left of it without its parts.

    python -m benchmarks.gang_study reproduction --seeds 20 --keep gangs.jsonl
    python -m benchmarks.gang_study ablation --seeds 3 --keep gangs.jsonl
    python -m benchmarks.gang_study slots        # 16 to 64 slots, at equal arrivals and at equal load
    python -m benchmarks.gang_study penalty      # of long runs: σ from 0 to the rate of arrivals
    python -m benchmarks.gang_study prediction   # errors of the passes that are left
    python -m benchmarks.gang_study faults       # machines that fail or are slow, and a spike of arrivals
    python -m benchmarks.gang_study calibrate

The workload has two unknowns, how many passes jobs make and how often they come. `calibrate` prints what they
make of Tiresias, by which they were chosen. All else is what the simulator says then. What restarts jobs from
a checkpoint pauses them for 20 s, and what changes them while they run for 1 s, as in the paper. Policies
that weigh a change know how long pauses were so far.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from relaqs_lab.cli.studies import both_parts
from relaqs_lab.records.simulated_runs import relative, wilcoxon_p
from relaqs_lab.simulation.machines.gang_study import Table2
from relaqs_lab.simulation.machines.table2 import ONES_LESS_THAN, PUBLISHED
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.gang_setups import (
    CHECKPOINT,
    COLUMNS,
    LIVE,
    SLOW,
    USUAL,
    Setup,
    StudyOptions,
    cells,
    change,
    studied,
)
from benchmarks.gang_sweeps import (
    BY_SLOTS,
    FAULTS,
    FREE,
    OWN_PASS,
    PENALTY,
    PREDICTION,
    WIDTH,
    Runs,
    print_by_slots,
    print_faults,
    print_rows,
)

MORE_NICE = 15
MOST_RATIO = 0.95  # of `completion_rate` to `ones`
QUANTILES = (10, 25, 50, 75, 90, 99)  # of the jobs' times, in per cent

ROUNDS = "optimus, rounds of 10 min"
REPRODUCTION = (
    Setup("tiresias", "tiresias", CHECKPOINT),
    Setup(ROUNDS, "optimus", CHECKPOINT, rounds_only=True),
    Setup("optimus, at events", "optimus", CHECKPOINT),
    Setup("one_at_a_time, for DRL", "one_at_a_time"),
    Setup("equal_slots", "equal_slots"),
    Setup("exact_utilisation", "exact_utilisation"),
    Setup("ones", "ones"),
    Setup("ones, σ = 0, own pass", "ones", parameters=(FREE, OWN_PASS)),
    Setup("sia", "sia", CHECKPOINT),
    Setup("completion_rate", "completion_rate"),
)
PAPERS = {  # rows that the paper has, by its names
    "tiresias": "tiresias",
    ROUNDS: "optimus",
    "one_at_a_time, for DRL": "one_at_a_time",
    "ones": "ones",
}
OWN = ("ones", "ones, σ = 0, own pass", "completion_rate")
CLAIMS = (("tiresias", "tiresias"), (ROUNDS, "optimus"), ("optimus, at events", "optimus"))

FIXED, LINEAR = Table2(is_elastic=False), Table2(is_linear=True)
ABLATION = (
    Setup("ones", "ones"),
    Setup("ones, no mutation", "ones", parameters=(("mutation", 0.0),)),
    Setup("ones, no crossover", "ones", parameters=(("crossover", False),)),
    Setup("ones, neither", "ones", parameters=(("mutation", 0.0), ("crossover", False))),
    Setup("ones, 1 generation a plan", "ones", parameters=(("generations", 1),)),
    Setup("ones, own pass", "ones", parameters=(OWN_PASS,)),
    Setup("ones, σ = 0", "ones", parameters=(FREE,)),
    Setup("ones, σ = 0, own pass", "ones", parameters=(FREE, OWN_PASS)),
    Setup("ones, σ = 0, fixed batch", "ones", mix=FIXED, parameters=(FREE,)),
    Setup("ones, σ = 0, 30 s a rescale", "ones", SLOW, parameters=(FREE,)),
    Setup("ones, σ = 0, rows count alike", "ones", mix=LINEAR, parameters=(FREE,)),
    *(
        Setup(f"{policy}{words}", policy, rescale, mix=mix)
        for policy in ("exact_utilisation", "equal_slots", "completion_rate", "sia")
        for words, rescale, mix in (
            ("", LIVE, USUAL),
            (", fixed batch", LIVE, FIXED),
            (", 30 s a rescale", SLOW, USUAL),
            (", rows count alike", LIVE, LINEAR),
        )
    ),
)


def print_reproduction(runs: Runs) -> None:
    """Print times beside the paper's, how they are spread, and what some are relative to others."""
    table = Table("policy", "paper, s", *COLUMNS, box=SIMPLE_HEAD)
    for label, group in runs.items():
        published = PUBLISHED.get(PAPERS.get(label, ""))
        table.add_row(label, "" if published is None else f"{published.mean_seconds:g}", *cells(group))
    Console(width=WIDTH).print(table)
    _print_quantiles(runs)
    claims = Table(
        "relative to", "paper: ones", *(word for own in OWN for word in (own, "p")), box=SIMPLE_HEAD
    )
    for other, name in CLAIMS:
        theirs = ONES_LESS_THAN[name]
        row = []
        for own in OWN:
            is_reached = relative(runs[own], runs[other]).mean <= 1 - theirs
            row += [f"{change(runs[own], runs[other])} {_reached(is_reached)}"]
            row += [f"{wilcoxon_p(runs[own], runs[other]):.2g}"]
        claims.add_row(other, f"−{theirs:.1%}", *row)
    Console(width=WIDTH).print(claims)
    _print_default(runs)


def _print_quantiles(runs: Runs) -> None:
    """Print within how many seconds a share of the jobs was done, all seeds together."""
    table = Table("policy", *(f"{each} % within, s" for each in QUANTILES), "longest, s", box=SIMPLE_HEAD)
    for label, group in runs.items():
        seconds = np.concatenate([run.jobs.completion_seconds for run in group])
        table.add_row(label, *(f"{each:,.0f}" for each in np.percentile(seconds, [*QUANTILES, 100])))
    Console(width=WIDTH).print(table)


def _print_default(runs: Runs) -> None:
    for other in OWN[:2]:
        mean = relative(runs["completion_rate"], runs[other])
        last = relative(runs["completion_rate"], runs[other], "completion_seconds_p99")
        is_better = mean.mean <= MOST_RATIO and last.mean <= 1.0
        print(
            f"completion_rate relative to {other}: mean {both_parts(mean, 1, '.2f')} (wanted at most "
            f"{MOST_RATIO}), p99 {both_parts(last, 1, '.2f')} (at most 1): {_reached(is_better)}"
        )


def print_ablation(runs: Runs) -> None:
    """Print each row, and its mean relative to that of `ones` of the same seeds."""
    table = Table("policy", *COLUMNS, "relative to ones", box=SIMPLE_HEAD)
    for label, group in runs.items():
        table.add_row(label, *cells(group), both_parts(relative(group, runs["ones"]), 1, ".2f"))
    Console(width=WIDTH).print(table)


def _reached(is_reached: bool) -> str:
    return "(reached)" if is_reached else "(not reached)"


def print_calibration(options: StudyOptions) -> None:
    """Print what Tiresias makes of some values of the two unknowns."""
    table = Table("passes", "one every, s", "execution, s", "queuing, s", box=SIMPLE_HEAD)
    mixes = [Table2(every, passes) for passes in (0.575, 0.625, 0.675) for every in (2.4, 2.9, 3.4)]
    setups = [Setup(str(mix), "tiresias", CHECKPOINT, mix=mix) for mix in mixes]
    for mix, group in zip(mixes, studied(setups, options).values(), strict=True):
        table.add_row(f"{mix.passes_scale:g} ×", f"{mix.arrival_seconds:g}", *cells(group)[1:3])
    Console().print(table)
    paper = PUBLISHED["tiresias"]
    print(f"The paper: {paper.executed_seconds:g} and {paper.queuing_seconds:g} s.")


PARTS: dict[str, tuple[tuple[Setup, ...], Callable[[Runs], None]]] = {
    "reproduction": (REPRODUCTION, print_reproduction),
    "ablation": (ABLATION, print_ablation),
    "slots": (BY_SLOTS, print_by_slots),
    "penalty": (PENALTY, print_rows),
    "prediction": (PREDICTION, print_rows),
    "faults": (FAULTS, print_faults),
}
WHOLE = ("reproduction", "ablation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, "calibrate"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, help="at once; as many as there are cores without it")
    parser.add_argument("--keep", type=Path, help="a file of records; the same command goes on from there")
    parser.add_argument("--only", help="of a sweep: comma-separated policies; all without it")
    given = parser.parse_args()
    os.nice(MORE_NICE)
    options = StudyOptions(given.seeds, given.processes, given.keep)
    if given.part == "calibrate":
        print_calibration(options)
        return
    setups, show = PARTS[given.part]
    if given.only is not None:
        if given.part in WHOLE:
            parser.error(f"--only has no meaning with {given.part}, which compares all of its rows")
        setups = tuple(setup for setup in setups if setup.policy in given.only.split(","))
    show(studied(setups, options))


if __name__ == "__main__":
    main()
