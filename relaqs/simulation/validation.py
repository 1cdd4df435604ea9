"""How well the simulator agrees with the world: live runs simulated, and both side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaqs.arrays import FloatArray
from relaqs.policies import Node, make_policy
from relaqs.records.schedule_run import ScheduleRun
from relaqs.simulation.outcome import Outcome
from relaqs.simulation.simulator import Options, simulate
from relaqs.simulation.workload import workload_of

AGREES = 0.10  # relative: what the mean time to a 90 % reduction may differ by


@dataclass(frozen=True, slots=True)
class Agreement:
    """One live run beside its simulation. Seconds are means over jobs; share_points: of the cores.

    reduced: until errors are reduced by 90 %. completed: until jobs end. share_points: how far the shares of
    the cores that went to the worst, middle and best third of the jobs are apart, the mean over the thirds.
    """

    policy: str
    seed: int
    cores: float
    jobs: int
    live_reduced: float
    simulated_reduced: float
    live_completed: float
    simulated_completed: float
    share_points: float


def agreement(run: ScheduleRun, *, shared_machine: bool = False) -> Agreement:
    """Return a live run beside its simulation: the same arrivals, steps, costs, cores and policy.

    What the process used outside of tasks costs each step of each job the same. shared_machine: give the
    simulation only the cores that the live run had, on average while it had work: what others left it.
    Raises ValueError for a run that was itself simulated.
    """
    if not run.ran:
        raise ValueError(f"the {run.source} run of {run.policy} has no steps of jobs to simulate")
    steps = sum(len(each.steps.core_seconds) for each in run.ran)
    other = run.other_core_seconds / steps
    traces = [each.steps.trace(each.name, each.kind, other) for each in run.ran]
    order = np.argsort(run.jobs.arrival_seconds, kind="stable")
    workload = workload_of([traces[job] for job in order], run.jobs.arrival_seconds[order])
    cores = used_cores(run) if shared_machine else run.capacity_cores
    servers = (Node("all", cores, math.nan),)
    outcome = simulate(workload, make_policy(run.policy), servers, Options(run.epoch_seconds)).outcome
    return Agreement(
        policy=run.policy,
        seed=run.seed,
        cores=cores,
        jobs=len(run.ran),
        live_reduced=float(run.jobs.reduced(0.9).mean()),
        simulated_reduced=float(outcome.seconds_to(np.array([0.9])).mean()),
        live_completed=float(run.jobs.completion_seconds.mean()),
        simulated_completed=float(outcome.completion_seconds.mean()),
        share_points=float(np.abs(_thirds(run) - _thirds_of(outcome)).mean()),
    )


def used_cores(run: ScheduleRun) -> float:
    """Return the cores that a live run used, on average over the times at which some job was there."""
    arrivals, ends = run.jobs.arrival_seconds, run.jobs.arrival_seconds + run.jobs.completion_seconds
    order = np.argsort(arrivals, kind="stable")
    gone = np.maximum.accumulate(ends[order])
    idle = np.maximum(arrivals[order][1:] - gone[:-1], 0.0).sum()
    tasks = sum(float(each.steps.core_seconds.sum()) for each in run.ran)
    return float((tasks + run.other_core_seconds) / (gone[-1] - arrivals[order][0] - idle))


def difference(agreements: Sequence[Agreement]) -> float:
    """Return by how much simulated times to 90 % differ from live ones, the mean over runs, relative."""
    live = np.mean([each.live_reduced for each in agreements])
    return float(np.mean([each.simulated_reduced for each in agreements]) / live - 1.0)


def _thirds(run: ScheduleRun) -> FloatArray:
    busy = run.series.jobs >= 3  # fewer jobs have no thirds
    if not busy.any():
        return np.full(3, math.nan)
    return np.asarray(run.series.third_shares[:, busy].mean(axis=1))


def _thirds_of(outcome: Outcome) -> FloatArray:
    table = outcome.decisions.table
    busy = table[table[:, 2] >= 3]
    if not len(busy):
        return np.full(3, math.nan)
    given = busy[:, 3:] * busy[:, 1:2]
    return np.asarray(given.sum(axis=0) / given.sum())
