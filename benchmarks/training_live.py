"""Training runs that share cores for real: SLAQ's comparison of quality-driven and fair sharing.

    python -m benchmarks.training_live [--policies relaqs,fair] [--seeds 0,1,2] [--arrival 0.8] [--keep FILE]

25 runs of the nine algorithms on TPC-H lineitem, the flights and scikit-learn's bundled sets arrive as a
Poisson process, in an order that the seed draws, and share the cores of this process. A run's error is its
loss above the lowest that any run of the same job came to, relative to its first: SLAQ's normalised loss.
Printed: its integral over time and the time to 70, 90 and 95 % loss reduction, means over runs and seeds,
beside fair sharing. max_sum is SLAQ's rule, and the thesis's. A seed takes two cores 80 s a policy; with
`--keep` it is kept in a file when it is complete, and the next call prints it, too. `--clock work`, the
default, tells the time by core-seconds: see benchmarks/live.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from relaqs_lab.cli.studies import tables
from relaqs_lab.records.schedule_run import ScheduleRun
from relaqs_lab.records.store import RecordFile
from relaqs_lab.simulation.workload import poisson_arrivals
from rich.console import Console

from benchmarks.live import Driver, LiveRun
from benchmarks.live_record import lowest_losses, schedule_run, training_trace
from benchmarks.record import circumstances, headline, write
from benchmarks.training_data import training_jobs, warehouse
from relaqs.executors.threads import usable_cores

WARM_STEPS = 2  # of every job, before anything is measured: imports and files are cold only once


def measure(options: argparse.Namespace, policy: str, seed: int) -> LiveRun:
    """Run the jobs under a policy; arrivals and their order are the seed's."""
    random = np.random.default_rng(seed)
    jobs = training_jobs()
    order = random.permutation(len(jobs))[: options.jobs]
    arrivals = poisson_arrivals(random, len(order), options.arrival)
    with Driver(options.warehouse, options.cores, policy, options.clock) as driver:
        return driver.run([jobs[index] for index in order], arrivals)


def of_seed(options: argparse.Namespace, seed: int, facts: Mapping[str, Any]) -> list[ScheduleRun]:
    """Return a run of the seed's jobs under each policy. Errors count from the best that any came to."""
    ran = []
    for policy in options.policies.split(","):
        print(f"{policy}, seed {seed} …", flush=True)
        ran.append(measure(options, policy, seed))
    lowest = lowest_losses(ran)
    return [
        schedule_run(
            run,
            [training_trace(each, lowest[each.job.name]) for each in run.finished],
            options.cores,
            seed=seed,
            arrival_seconds=options.arrival,
            workload=f"nine algorithms, {options.clock} clock",
            circumstances=facts,
        )
        for run in ran
    ]


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_live", description=__doc__)
    parser.add_argument("--policies", default="relaqs,fair,fifo,max_sum", help="fair is the reference")
    parser.add_argument("--seeds", default="0,1,2", help="of arrivals and their order")
    parser.add_argument("--arrival", type=float, default=0.8, help="mean seconds between arrivals")
    parser.add_argument("--jobs", type=int, default=25, help="the first so many of each seed's order")
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H's lineitem")
    parser.add_argument("--cores", type=int, default=usable_cores())
    parser.add_argument("--keep", type=Path, help="a file of JSON lines, which grows by every seed")
    parser.add_argument("--clock", choices=["work", "wall"], default="work")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("training_live", words)
    options.warehouse = warehouse(options.scale)
    kept = None if options.keep is None else RecordFile(options.keep)
    runs = [] if kept is None else list(kept.read(ScheduleRun.kind_of_record, ScheduleRun.of_record))
    print("warming up …", flush=True)
    with Driver(options.warehouse, options.cores, "fair", "work") as driver:
        driver.run(training_jobs(most_steps=WARM_STEPS), np.zeros(len(training_jobs())))
    for seed in map(int, options.seeds.split(",")):
        made = of_seed(options, seed, facts)
        runs += made
        if kept is None:
            continue
        for run in made:
            kept.append(ScheduleRun.kind_of_record, run.as_record())
    console = Console()
    console.print(headline(facts))
    for table in tables(runs):
        console.print(table)
    print(write("training_live", facts, {"runs": [run.as_record() for run in runs]}))


if __name__ == "__main__":
    main()
