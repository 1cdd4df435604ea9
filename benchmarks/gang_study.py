"""ONES against other slot policies on the 50 jobs of its Table 2, and what is left of it without its parts.

    python -m benchmarks.gang_study reproduction --seeds 5 --keep gangs.jsonl
    python -m benchmarks.gang_study ablation --seeds 3 --keep gangs.jsonl
    python -m benchmarks.gang_study calibrate

The workload has two unknowns, how many passes jobs make and how often they come. `calibrate` prints what they
make of Tiresias, by which they were chosen. All else is what the simulator says then. What restarts jobs from
a checkpoint pauses them for 20 s, and what changes them while they run for 1 s, as in the paper. Policies
that weigh a change are told how long it takes.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.stats import wilcoxon

from relaqs.cli.gangs import both_parts
from relaqs.cli.studies import kept_or_computed
from relaqs.records.comparison import Figure
from relaqs.records.gang_comparison import compare_gangs, relative
from relaqs.records.gang_run import GangRun
from relaqs.simulation.machines.gang_study import GangCase, Table2, run_gang_case
from relaqs.simulation.machines.simulator import Timing

CHECKPOINT, LIVE, SLOW = 20.0, 1.0, 30.0  # seconds a rescale
AT_EVENTS, ROUND_SECONDS = 30.0, 600.0
MORE_NICE = 15
MOST_RATIO = 0.95  # of `completion_rate` to `ones`


USUAL = Table2()


@dataclass(frozen=True, slots=True)
class Setup:
    """A row of a table: a policy, when it plans, what a change costs, and on which jobs."""

    label: str
    policy: str
    rescale_seconds: float = LIVE
    rounds_only: bool = False
    mix: Table2 = USUAL
    parameters: tuple[tuple[str, Any], ...] = ()
    nodes: int = 16

    def cases(self, seeds: int) -> list[GangCase]:
        timing = (
            Timing(ROUND_SECONDS, at_events=False, rescale_seconds=self.rescale_seconds)
            if self.rounds_only
            else Timing(AT_EVENTS, at_events=True, rescale_seconds=self.rescale_seconds)
        )
        return [
            GangCase(self.policy, seed, self.mix, self.nodes, 4, timing, self.parameters)
            for seed in range(seeds)
        ]


PAPER = {  # mean seconds of completion, execution and queuing; the last two follow from its changes
    "tiresias": (450, 343, 107),
    "optimus, rounds of 10 min": (420, 220, 200),
    "one_at_a_time, for DRL": (335, 209, 127),
    "ones": (245, 158, 87),
}
FREE = (("sigma", 0.0),)
REPRODUCTION = (
    Setup("tiresias", "tiresias", CHECKPOINT),
    Setup("optimus, rounds of 10 min", "optimus", CHECKPOINT, rounds_only=True),
    Setup("optimus, at events", "optimus", CHECKPOINT),
    Setup("one_at_a_time, for DRL", "one_at_a_time"),
    Setup("equal_slots", "equal_slots"),
    Setup("exact_utilisation", "exact_utilisation"),
    Setup("ones", "ones"),
    Setup("ones, σ = 0, own pass", "ones", parameters=(*FREE, ("deploy", "own_pass"))),
    Setup("sia", "sia", CHECKPOINT, parameters=(("pause_seconds", CHECKPOINT),)),
    Setup("completion_rate", "completion_rate"),
)
OWN = ("ones", "ones, σ = 0, own pass", "completion_rate")
CLAIMS = (("tiresias", 0.456), ("optimus, rounds of 10 min", 0.417), ("optimus, at events", 0.417))

EXPECTED_PAUSE = {"completion_rate": LIVE, "sia": SLOW}  # without a parameter
FIXED, LINEAR = Table2(is_elastic=False), Table2(is_linear=True)
ABLATION = (
    Setup("ones", "ones"),
    Setup("ones, no mutation", "ones", parameters=(("mutation", 0.0),)),
    Setup("ones, no crossover", "ones", parameters=(("crossover", False),)),
    Setup("ones, neither", "ones", parameters=(("mutation", 0.0), ("crossover", False))),
    Setup("ones, 1 generation a plan", "ones", parameters=(("generations", 1),)),
    Setup("ones, own pass", "ones", parameters=(("deploy", "own_pass"),)),
    Setup("ones, σ = 0", "ones", parameters=FREE),
    Setup("ones, σ = 0, own pass", "ones", parameters=(*FREE, ("deploy", "own_pass"))),
    Setup("ones, σ = 0, fixed batch", "ones", mix=FIXED, parameters=FREE),
    Setup("ones, σ = 0, 30 s a rescale", "ones", SLOW, parameters=FREE),
    Setup("ones, σ = 0, rows count alike", "ones", mix=LINEAR, parameters=FREE),
    *(
        Setup(f"{policy}{words}", policy, rescale, mix=mix, parameters=known)
        for policy in ("exact_utilisation", "equal_slots", "completion_rate", "sia")
        for words, rescale, mix in (
            ("", LIVE, USUAL),
            (", fixed batch", LIVE, FIXED),
            (", 30 s a rescale", SLOW, USUAL),
            (", rows count alike", LIVE, LINEAR),
        )
        for known in [(("pause_seconds", rescale),) if EXPECTED_PAUSE.get(policy, rescale) != rescale else ()]
    ),
)


def studied(setups: Sequence[Setup], options: argparse.Namespace) -> dict[str, list[GangRun]]:
    """Return the runs of each setup, over seeds, computed in several processes at the lowest priorities."""
    cases = [case for setup in setups for case in setup.cases(options.seeds)]
    runs = iter(kept_or_computed(cases, GangRun, run_gang_case, options.keep, options.processes))
    return {setup.label: [next(runs) for _ in range(options.seeds)] for setup in setups}


def print_reproduction(runs: dict[str, list[GangRun]]) -> None:
    """Print times beside the paper's, and what `ones` and `completion_rate` are relative to the others."""
    table = Table("policy", "paper, s", "mean, s", "execution, s", "queuing, s", "within 200 s", "longest, s",
                  "p99, s", "slots used", box=SIMPLE_HEAD)  # fmt: skip
    for label, group in runs.items():
        paper = PAPER.get(label)
        table.add_row(label, f"{paper[0]}" if paper else "", *_cells(group))
    Console(width=130).print(table)
    claims = Table("ones less than", "paper", "ones", "p", *OWN[1:], box=SIMPLE_HEAD)
    for other, theirs in CLAIMS:
        changes = [_change(runs[own], runs[other]) for own in OWN]
        marks = [f"{text} {_reached(figure.mean <= 1 - theirs)}" for text, figure in changes]
        p = _wilcoxon(runs["ones"], runs[other])
        claims.add_row(other, f"−{theirs:.1%}", marks[0], f"{p:.2g}", *marks[1:])
    Console(width=130).print(claims)
    _print_default(runs)


def _print_default(runs: dict[str, list[GangRun]]) -> None:
    for other in OWN[:2]:
        mean = relative(runs["completion_rate"], runs[other])
        last = relative(runs["completion_rate"], runs[other], "completion_seconds_p99")
        is_better = mean.mean <= MOST_RATIO and last.mean <= 1.0
        print(
            f"completion_rate relative to {other}: mean {both_parts(mean, 1, '.2f')} (wanted at most "
            f"{MOST_RATIO}), p99 {both_parts(last, 1, '.2f')} (at most 1): {_reached(is_better)}"
        )


def print_ablation(runs: dict[str, list[GangRun]]) -> None:
    """Print each row, and its mean relative to that of `ones` of the same seeds."""
    table = Table("policy", "mean, s", "execution, s", "queuing, s", "within 200 s", "longest, s", "p99, s",
                  "slots used", "relative to ones", box=SIMPLE_HEAD)  # fmt: skip
    for label, group in runs.items():
        table.add_row(label, *_cells(group), both_parts(relative(group, runs["ones"]), 1, ".2f"))
    Console(width=130).print(table)


def _cells(group: Sequence[GangRun]) -> list[str]:
    (row,) = compare_gangs(group)
    seconds = [
        both_parts(row.figures[name], 1, ",.0f")
        for name in ("completion_seconds", "executed_seconds", "queuing_seconds")
    ]
    times = [run.jobs.completion_seconds for run in group]
    soon = Figure.of([float((each <= 200.0).mean()) for each in times])
    longest = Figure.of([float(each.max()) for each in times])
    return [
        *seconds,
        both_parts(soon, 100, ".0f") + " %",
        both_parts(longest, 1, ",.0f"),
        both_parts(row.figures["completion_seconds_p99"], 1, ",.0f"),
        both_parts(row.figures["used_share"], 100, ".0f") + " %",
    ]


def _change(own: Sequence[GangRun], other: Sequence[GangRun]) -> tuple[str, Figure]:
    ratio = relative(own, other)
    text = f"{100 * (ratio.mean - 1):+.1f} ± {100 * ratio.standard_error:.1f} %".replace("-", "−")
    return text, ratio


def _wilcoxon(own: Sequence[GangRun], other: Sequence[GangRun]) -> float:
    """Return the middle one over seeds of the two-sided p of the signed-rank test over a seed's 50 jobs."""
    pairs = zip(own, other, strict=True)
    values = [wilcoxon(a.jobs.completion_seconds, b.jobs.completion_seconds).pvalue for a, b in pairs]
    return float(np.median(values))


def _reached(is_reached: bool) -> str:
    return "(reached)" if is_reached else "(not reached)"


def print_calibration(options: argparse.Namespace) -> None:
    """Print what Tiresias makes of some values of the two unknowns."""
    table = Table("passes", "one every, s", "execution, s", "queuing, s", box=SIMPLE_HEAD)
    mixes = [Table2(every, passes) for passes in (0.575, 0.625, 0.675) for every in (2.4, 2.9, 3.4)]
    setups = [Setup(str(mix), "tiresias", CHECKPOINT, mix=mix) for mix in mixes]
    for mix, group in zip(mixes, studied(setups, options).values(), strict=True):
        table.add_row(f"{mix.passes_scale:g} ×", f"{mix.arrival_seconds:g}", *_cells(group)[1:3])
    Console().print(table)
    print(f"The paper: {PAPER['tiresias'][1]} and {PAPER['tiresias'][2]} s.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("reproduction", "ablation", "calibrate"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, help="at once; as many as there are cores without it")
    parser.add_argument("--keep", type=Path, help="a file of records; the same command goes on from there")
    options = parser.parse_args()
    os.nice(MORE_NICE)
    if options.part == "calibrate":
        print_calibration(options)
    elif options.part == "reproduction":
        print_reproduction(studied(REPRODUCTION, options))
    else:
        print_ablation(studied(ABLATION, options))


if __name__ == "__main__":
    main()
