"""Queries that share cores for real under several policies, compared by a clock of work done.

    python -m benchmarks.policies_live DIR [--policies fair,relaqs] [--seeds 0,1,2] [--arrival 0.1]

What `relaqs tpch schedule` measures by the clock on the wall, by core-seconds (benchmarks/live.py), so
that the figures of a busy machine can be compared. DIR: a warehouse made by `relaqs tpch generate`. Twelve
queries, drawn by the seed from those with estimates, arrive as a Poisson process and run to their exact ends.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from relaqs_lab.cli.studies import tables
from relaqs_lab.records.schedule_run import ScheduleRun
from relaqs_lab.simulation.workload import poisson_arrivals
from relaqs_tpch.warehouse import QUERIES, query
from rich.console import Console

from benchmarks.live import Driver, LiveJob
from benchmarks.live_record import query_trace, schedule_run
from benchmarks.record import circumstances, headline, write
from relaqs.executors.threads import usable_cores
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.session import Session
from relaqs.sharing.view import Kind


def query_job(number: int, seed: int) -> LiveJob:
    """Return a TPC-H query to come. seed: the order in which it takes the partitions."""

    def start(session: Session) -> OnlineQuery:
        return session.submit(query(number), QueryOptions(seed=seed))

    return LiveJob(f"Q{number}", Kind.QUERY, start)


def estimated_queries(session: Session) -> list[int]:
    """Return the queries that have estimates over the session's warehouse."""
    return [number for number in QUERIES if session.plan(query(number)).is_estimated]


def measure(options: argparse.Namespace, policy: str, seed: int, facts: dict[str, object]) -> ScheduleRun:
    """Return the record of one run."""
    random = np.random.default_rng(seed)
    with Driver(options.warehouse, options.cores, policy, options.clock) as driver:
        numbers = random.choice(options.queries or estimated_queries(driver.session), options.jobs)
        arrivals = poisson_arrivals(random, options.jobs, options.arrival)
        jobs = [query_job(int(number), seed * options.jobs + i) for i, number in enumerate(numbers)]
        run = driver.run(jobs, arrivals)
        plans = [driver.session.plan(query(int(number))) for number in numbers]
    return schedule_run(
        run,
        [query_trace(each, plan) for each, plan in zip(run.finished, plans, strict=True)],
        options.cores,
        seed=seed,
        arrival_seconds=options.arrival,
        workload=f"TPC-H in {options.warehouse.name}, {options.clock} clock",
        circumstances=facts,
    )


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies_live", description=__doc__)
    parser.add_argument("warehouse", type=Path, help="made by relaqs tpch generate")
    parser.add_argument("--policies", default="fair,relaqs,max_sum,fifo", help="fair is the reference")
    parser.add_argument("--seeds", default="0,1,2", help="of queries, arrivals and orders of partitions")
    parser.add_argument("--arrival", type=float, default=0.1, help="mean seconds between arrivals")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--queries", type=lambda text: [int(each) for each in text.split(",")], default=[])
    parser.add_argument("--cores", type=int, default=usable_cores())
    parser.add_argument("--clock", choices=["work", "wall"], default="work")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("policies_live", words)
    print("warming up …", flush=True)
    measure(options, "fair", 0, facts)
    runs = []
    for seed in map(int, options.seeds.split(",")):
        for policy in options.policies.split(","):
            print(f"{policy}, seed {seed} …", flush=True)
            runs.append(measure(options, policy, seed, facts))
    console = Console()
    console.print(headline(facts))
    for table in tables(runs):
        console.print(table)
    print(write("policies_live", facts, {"runs": [run.as_record() for run in runs]}))


if __name__ == "__main__":
    main()
