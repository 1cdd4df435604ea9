"""How long one decision takes: every policy from 100 to 100,000 jobs, and the greedy step beside a heap.

    python -m benchmarks.scheduling_time [--most-jobs 100000]

Milliseconds of CPU time, the best of several runs. Half of the jobs train; four cores a job. Curves are
fitted by whoever fills the view, and only for jobs that have reported since; `fit all` is the cost of fitting
every one.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from relaqs.policies import POLICIES, Utility
from relaqs.sharing.division import allocate_greedily
from relaqs.sharing.outlook import fit_quality_curves
from relaqs.sharing.view import Jobs, Kind, Policy, View

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SIZES = (100, 1_000, 4_000, 10_000, 100_000)
CORES_PER_JOB = 4
WINDOW = 16
STEPS_OF_A_QUERY = 50.0
BUDGET_MS = 20.0  # for 4,000 jobs on 16,000 cores


def random_view(job_count: int, training_share: float, seed: int = 0) -> View:
    """Return jobs in the middle of their runs: errors √(1/x − 1) and losses 1/(1 + r·k), four cores each."""
    random = np.random.default_rng(seed)
    count = random.integers(2, 40, job_count)
    step = count[:, None] - np.arange(WINDOW - 1, -1, -1.0)
    step = np.where(step > 0, step, np.nan)
    trains = random.random(job_count) < training_share
    error = random.uniform(0.02, 0.5, (job_count, 1)) * np.sqrt(STEPS_OF_A_QUERY / step - 1.0)
    loss = 1.0 / (1.0 + random.uniform(0.1, 1.0, (job_count, 1)) * step)
    unknown, unlimited = np.full(job_count, np.nan), np.full(job_count, np.inf)
    nothing = np.zeros(job_count, dtype=np.bool_)
    jobs = Jobs(
        ids=tuple(f"job-{i:06}" for i in range(job_count)),
        kind=np.where(trains, Kind.TRAINING, Kind.QUERY).astype(np.int64),
        arrival_seconds=random.uniform(0, 100, job_count),
        weight=np.ones(job_count),
        cores_most=unlimited,
        work_total=np.where(trains, np.inf, 1.0),
        step_work=np.where(trains, 1.0, 1.0 / STEPS_OF_A_QUERY),
        step_core_seconds=random.uniform(0.5, 20.0, job_count),
        growth_core_seconds=np.zeros(job_count),
        spent_core_seconds=np.zeros(job_count),
        attained_core_seconds=random.uniform(0, 100, job_count),
        target=unknown,
        deadline_seconds=unlimited,
        urgency=np.ones(job_count),
        accuracy=unknown,
        accuracy_required=unknown,
        is_best=nothing,
        work_needed=unknown,
        may_stop_best=nothing,
        may_stop_required=nothing,
        count=count,
        first_quality=np.ones(job_count),
        largest_change=np.full(job_count, 0.3),
        work=np.where(trains[:, None], step, step / STEPS_OF_A_QUERY),
        quality=np.where(trains[:, None], loss, error),
        core_seconds=np.ones((job_count, WINDOW)),
        progress=1.0 / np.sqrt(step * np.maximum(step - 1.0, 1.0)),
    )
    return View(100.0, float(CORES_PER_JOB * job_count), jobs)


def heap_allocation(gains: FloatArray, units: int) -> IntArray:
    """Return the plain greedy loop's allocation over concave gains (J, K), one unit after another."""
    marginal = np.diff(gains, axis=1)
    taken = np.zeros(len(gains), dtype=np.int64)
    best = [(-marginal[job, 0], job) for job in range(len(gains))]
    heapq.heapify(best)
    for _ in range(units):
        _, job = best[0]
        taken[job] += 1
        heapq.heapreplace(best, (-marginal[job, taken[job]], job))
    return taken


def cpu_ms(call: Callable[[], object], budget_seconds: float = 0.5) -> float:
    """Return the least CPU time of several calls, at least two, in milliseconds."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < budget_seconds:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def policies() -> list[Policy]:
    """Return every policy of the registry with its defaults, utility as the number of jobs below 10 %."""
    plain = [make() for name, make in POLICIES.items() if name != "utility"]
    return [*plain, Utility(lambda errors, jobs: (errors <= 0.1).astype(np.float64))]


def decision_table(sizes: list[int]) -> Table:
    table = Table(title="One decision, ms of CPU time")
    table.add_column("jobs × cores", no_wrap=True)
    for size in sizes:
        table.add_column(f"{size:,} × {CORES_PER_JOB * size:,}", justify="right")
    views = [random_view(size, training_share=0.5) for size in sizes]
    fitted = [replace(view, curves=fit_quality_curves(view.jobs)) for view in views]
    for policy in policies():
        table.add_row(policy.name, *(f"{cpu_ms(partial(policy.plan, view)):.1f}" for view in fitted))
    table.add_section()
    table.add_row("fit all", *(f"{cpu_ms(partial(fit_quality_curves, view.jobs)):.0f}" for view in views))
    return table


def greedy_table(sizes: list[int]) -> Table:
    table = Table(title="The greedy step alone, ms of CPU time")
    for heading in ("jobs × cores", "heap", "top-k", "ratio", "jobs that differ"):
        table.add_column(heading, justify="right")
    for size in sizes:
        table.add_row(*_greedy_row(size))
    return table


def _greedy_row(size: int) -> list[str]:
    """Both get the same table of concave gains, so that neither pays for predicting."""
    random = np.random.default_rng(0)
    units, columns = CORES_PER_JOB * size, 256
    weight, pace = random.uniform(0.1, 1.0, (size, 1)), random.uniform(1.0, 20.0, (size, 1))
    gains = -weight / (1.0 + np.arange(columns + 1) / pace)
    most = np.full(size, columns - 1)

    def looked_up(jobs: IntArray, points: FloatArray) -> FloatArray:
        at: IntArray = points.astype(np.int64)
        return np.asarray(gains[jobs[:, None], at])

    heap = cpu_ms(lambda: heap_allocation(gains, units), budget_seconds=0.1)
    top = cpu_ms(lambda: allocate_greedily(looked_up, most, units), budget_seconds=0.1)
    differ = np.count_nonzero(heap_allocation(gains, units) != allocate_greedily(looked_up, most, units))
    return [f"{size:,} × {units:,}", f"{heap:.1f}", f"{top:.1f}", f"{heap / top:.1f}", str(differ)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most-jobs", type=int, default=SIZES[-1])
    sizes = [size for size in SIZES if size <= parser.parse_args(arguments).most_jobs]
    console = Console(width=120)
    console.print(
        decision_table(sizes), f"Budget at 4,000 × 16,000: {BUDGET_MS:.0f} ms.\n", greedy_table(sizes)
    )


if __name__ == "__main__":
    main()
