"""Queries and training that share all cores, against a static split: half for queries, half for training.

    python -m benchmarks.mixed_live DIR [--seeds 0,1,2] [--policy relaqs] [--arrival 0.2]

DIR: a warehouse made by `relaqs tpch generate`. As many training runs as queries on its tables arrive as a
Poisson process and are really run, in seconds on the wall: it is for a machine that does nothing else.
`shared`: one session with all cores under the policy. `split`: two sessions at the same time, one a kind,
with half of the cores each, shared by the same policy. Work that is no task, as folding, counts in both.
Printed: for each kind the integral of the true normalised error over time, and the time to 90 % reduction,
means over jobs and seeds, and the change from split to shared with its standard error over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from relaqs_lab.records.comparison import Figure
from relaqs_lab.simulation.workload import poisson_arrivals
from relaqs_tpch.warehouse import ALGORITHMS, query, training_job
from rich.console import Console
from rich.table import Table

from benchmarks.live import Driver, FloatArray, LiveJob, LiveRun
from benchmarks.live_record import Traced, lowest_losses, outcome_of, query_trace, training_trace
from benchmarks.policies_live import estimated_queries, query_job
from benchmarks.record import circumstances, headline, write
from benchmarks.training_data import live_job
from relaqs.executors.threads import usable_cores
from relaqs.sharing.view import Kind

MOST_STEPS = 40
REDUCTION = np.array([0.9])
KINDS = (Kind.QUERY, Kind.TRAINING)


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs to come, and when each arrives, shape (jobs,)."""

    jobs: tuple[LiveJob, ...]
    arrival_seconds: FloatArray

    def of_kind(self, kind: Kind) -> Mix:
        chosen = np.array([job.kind is kind for job in self.jobs])
        jobs = tuple(job for job in self.jobs if job.kind is kind)
        return Mix(jobs, self.arrival_seconds[chosen])


@dataclass(frozen=True, slots=True)
class Means:
    """Means over the jobs of one kind: the integral of the error, and the seconds to 90 % reduction."""

    error_seconds: float
    reduced_seconds: float


def drawn_mix(options: argparse.Namespace, seed: int) -> Mix:
    """Return as many queries as training runs, in an order and at times that the seed draws."""
    random = np.random.default_rng(seed)
    with Driver(options.warehouse, 1, "fair", "work") as driver:
        numbers = random.choice(estimated_queries(driver.session), options.each).tolist()
    algorithms = [ALGORITHMS[i] for i in random.permutation(len(ALGORITHMS))][: options.each]
    jobs = [query_job(number, seed * options.each + i) for i, number in enumerate(numbers)]
    jobs += [live_job(name, training_job(name, seed), MOST_STEPS) for name in algorithms]
    order: NDArray[np.int64] = random.permutation(len(jobs))
    return Mix(tuple(jobs[i] for i in order), poisson_arrivals(random, len(jobs), options.arrival))


def run_mix(options: argparse.Namespace, mix: Mix, cores: int) -> tuple[LiveRun, dict[str, Traced]]:
    """Return what came of the mix on so many cores, and the queries' traces."""
    with Driver(options.warehouse, cores, options.policy, "wall") as driver:
        run = driver.run(mix.jobs, mix.arrival_seconds)
        traced = {
            each.id: query_trace(each, driver.session.plan(query(int(each.job.name[1:]))))
            for each in run.finished
            if each.job.kind is Kind.QUERY
        }
    return run, traced


def means(run: LiveRun, traced: dict[str, Traced], lowest: dict[str, float], kind: Kind) -> Means:
    """Return the means of one kind's jobs in a run."""
    every = [
        traced[each.id] if each.id in traced else training_trace(each, lowest[each.job.name])
        for each in run.finished
    ]
    outcome = outcome_of(run, every)
    chosen = [each.job.kind is kind for each in run.finished]
    reduced = outcome.seconds_to(REDUCTION)[:, 0]
    return Means(float(outcome.error_seconds()[chosen].mean()), float(reduced[chosen].mean()))


def compare(options: argparse.Namespace, seed: int) -> dict[Kind, tuple[Means, Means]]:
    """Return each kind's means, split and shared."""
    mix, half = drawn_mix(options, seed), options.cores // 2
    shared = run_mix(options, mix, options.cores)
    with ThreadPoolExecutor(len(KINDS)) as pool:
        halves = pool.map(lambda kind: run_mix(options, mix.of_kind(kind), half), KINDS)
        split = dict(zip(KINDS, halves, strict=True))
    lowest = lowest_losses([shared[0], *(run for run, _ in split.values())])
    return {kind: (means(*split[kind], lowest, kind), means(*shared, lowest, kind)) for kind in KINDS}


def table_of(compared: Sequence[dict[Kind, tuple[Means, Means]]]) -> Table:
    table = Table("", "error, s: split", "shared", "change", "s to 90 %: split", "shared", "change")
    for kind in KINDS:
        cells = []
        for name in ("error_seconds", "reduced_seconds"):
            pairs = [tuple(getattr(each, name) for each in result[kind]) for result in compared]
            change = Figure.of([shared / split - 1.0 for split, shared in pairs])
            cells += [f"{np.mean([pair[side] for pair in pairs]):.3f}" for side in (0, 1)]
            cells.append(f"{change.mean:+.0%} ± {change.standard_error:.0%}")
        table.add_row(kind.name.lower(), *cells)
    return table


def described(kind: Kind, split: Means, shared: Means) -> str:
    return f"{kind.name.lower()} {split.error_seconds:.3f} split, {shared.error_seconds:.3f} shared"


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixed_live", description=__doc__)
    parser.add_argument("warehouse", type=Path, help="made by relaqs tpch generate")
    parser.add_argument("--policy", default="relaqs")
    parser.add_argument("--seeds", default="0,1,2", help="of jobs, arrivals and orders of partitions")
    parser.add_argument("--arrival", type=float, default=0.2, help="mean seconds between arrivals")
    parser.add_argument("--each", type=int, default=9, help="so many queries, and so many training runs")
    parser.add_argument("--cores", type=int, default=max(2, usable_cores()), help="an even number")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("mixed_live", words)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    print("warming up …", flush=True)
    run_mix(options, drawn_mix(options, seeds[0]), options.cores)
    compared = []
    for seed in seeds:
        print(f"seed {seed} …", flush=True)
        compared.append(compare(options, seed))
        print("  error, s: " + ", ".join(described(kind, *pair) for kind, pair in compared[-1].items()))
    console = Console()
    console.print(headline(facts))
    console.print(table_of(compared))
    figures = [
        {
            kind.name.lower(): [[m.error_seconds, m.reduced_seconds] for m in pair]
            for kind, pair in each.items()
        }
        for each in compared
    ]
    print(write("mixed_live", facts, {"split_and_shared": figures}))


if __name__ == "__main__":
    main()
