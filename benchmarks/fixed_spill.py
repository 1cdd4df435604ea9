"""How long an iteration of a group takes, by how much of its jobs' rows lies on disk.

    python -m benchmarks.fixed_spill [--seeds 20] [--faster 10]

Eight jobs, one of each algorithm and data set in the evaluation of Harmony, are one group on 32 machines.
Each job has the same share α of its rows on disk, from 0.1 to 1, or the knapsack says what each has. An
iteration is measured by lanes, subtask by subtask. Where the rest does not fit into memory, there is no
iteration: what a collector of garbage would do there is not simulated. `--faster` divides the times of COMP
and COMM: with our calibrated ones a group takes minutes, and the disk is never what it waits for.

Source: Lee et al., Harmony, ICDCS 2021, section V-G: 52.9 s at the best fixed α, 0.3, and 44.3 s climbed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_lab.group_policies.arrangement import spilled_shares
from relaqs_lab.groups import Fleet, Subtasks, SubtaskTimes
from relaqs_lab.records.comparison import Figure
from relaqs_lab.simulation.grouped.grouped_workload import PAPER_FLEET, TABLE, GroupedJob, harmony_jobs
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Lanes
from rich.console import Console
from rich.table import Table

from benchmarks.measured_iterations import measured_iteration

MACHINES = 32
DECODE_SECONDS_PER_BYTE = 1e-9
FIXED = tuple(tenth / 10 for tenth in range(1, 11))
ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to choose what lies on disk, and the iterations that came of it, seed by seed; NaN: no room."""

    name: str
    seconds: tuple[float, ...]


def eight_jobs(seed: int, faster: float) -> list[GroupedJob]:
    """Return one job of each algorithm and data set, whose COMP and COMM take so many times less long."""
    jobs = {job.name: job for job in harmony_jobs(seed)}
    chosen = [jobs[f"{name}, setting 0"] for name, _, _ in TABLE]
    return [
        replace(
            job,
            comp_machine_seconds=job.comp_machine_seconds / faster,
            comm_seconds=job.comm_seconds / faster,
        )
        for job in chosen
    ]


def choices(seeds: int, faster: float, fleet: Fleet) -> list[Choice]:
    """Return the iterations of a group by all ways to choose α."""
    found: dict[str, list[float]] = {f"α = {share:g}": [] for share in FIXED}
    found["knapsack"] = []
    for seed in range(seeds):
        jobs = eight_jobs(seed, faster)
        for share in FIXED:
            shares = np.full(len(jobs), share)
            found[f"α = {share:g}"].append(iteration_seconds(jobs, shares, fleet))
        found["knapsack"].append(iteration_seconds(jobs, by_knapsack(jobs, fleet), fleet))
    return [Choice(name, tuple(values)) for name, values in found.items()]


def by_knapsack(jobs: Sequence[GroupedJob], fleet: Fleet) -> FloatArray:
    """Return α of each job so that all fit, cheapest first, shape (n,)."""
    rows = [
        SubtaskTimes(
            job.name,
            input_bytes=job.input_bytes,
            model_bytes=job.model_bytes,
            decode_seconds_per_byte=DECODE_SECONDS_PER_BYTE,
        )
        for job in jobs
    ]
    one = np.zeros(len(jobs), dtype=np.int64)
    return spilled_shares(Subtasks.of(rows), one, np.array([fleet.machines]), fleet)


def iteration_seconds(jobs: Sequence[GroupedJob], shares: FloatArray, fleet: Fleet) -> float:
    """Return the measured iteration of jobs that share all machines of a fleet; NaN where they do not fit."""
    own = fleet.machines
    held = sum(
        (1 - share) * job.input_bytes + job.model_bytes for job, share in zip(jobs, shares, strict=True)
    )
    if held > own * fleet.memory_bytes * (1 + 1e-9):
        return float("nan")
    needs = []
    for job, share in zip(jobs, shares.tolist(), strict=True):
        comm, read = job.comm_seconds * (1 - 1 / own), share * job.input_bytes / own
        comp = job.comp_machine_seconds / own + read * DECODE_SECONDS_PER_BYTE
        pull = job.pull_share * comm
        needs.append(IterationSeconds(pull, comp, comm - pull, read / fleet.disk_bytes_per_second))
    return measured_iteration(Lanes(pull_first=True), needs, ROUNDS)


def table_of(found: Sequence[Choice]) -> Table:
    """Return a row for each choice: the mean over seeds, and that of the knapsack over it."""
    table = Table(title=f"Iteration of eight jobs on {MACHINES} machines")
    for heading in ("on disk", "iteration, s", "knapsack / this"):
        table.add_column(heading, justify="right")
    best = np.array(found[-1].seconds)
    for each in found:
        if np.isnan(each.seconds).any():
            table.add_row(each.name, "no room", "–")
            continue
        mean, ratio = Figure.of(each.seconds), Figure.of((best / np.array(each.seconds)).tolist())
        cells = [f"{part.mean:.4g} ± {part.standard_error:.1g}" for part in (mean, ratio)]
        table.add_row(each.name, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--faster", type=float, default=1.0)
    given = parser.parse_args(arguments)
    fleet = Fleet(MACHINES, PAPER_FLEET.memory_bytes, PAPER_FLEET.disk_bytes_per_second)
    Console(width=120).print(table_of(choices(given.seeds, given.faster, fleet)))


if __name__ == "__main__":
    main()
