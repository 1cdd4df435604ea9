"""How well the simulator agrees with the world: live runs simulated, and both side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies import make_policy
from relaqs_lab.records.outcome import Outcome
from relaqs_lab.records.schedule_run import ScheduleRun
from relaqs_lab.simulation.simulator import Options, simulate
from relaqs_lab.simulation.workload import workload_of

AGREES = 0.10  # relative: what the mean time to a 90 % reduction may differ by


@dataclass(frozen=True, slots=True)
class Agreement:
    """One live run beside its simulation.

    Each of `first` (until the first result), `reduced` (until errors are reduced by 90 %) and `completed`
    (until jobs end) is there twice, live and simulated, in seconds, as a mean over jobs.

    Attributes:
        predicted_reduced: `reduced` of the simulation in which each step takes as long as it took under the
            other policies, the mean over these. NaN if there are none.
        share_points: how far the shares of the cores that went to the worst, middle and best third of the
            jobs are apart, the mean over the thirds. NaN where there never were three jobs.
    """

    policy: str
    seed: int
    cores: float
    jobs: int
    live_first: float
    simulated_first: float
    live_reduced: float
    simulated_reduced: float
    predicted_reduced: float
    live_completed: float
    simulated_completed: float
    share_points: float


def agreements(runs: Sequence[ScheduleRun]) -> list[Agreement]:
    """Return each live run of these beside its simulation. Runs of the same jobs predict one another."""
    live = [run for run in runs if run.source == "live"]
    return [agreement(run, [other for other in live if _has_same_jobs(run, other)]) for run in live]


def agreement(run: ScheduleRun, others: Sequence[ScheduleRun] = ()) -> Agreement:
    """Return a live run beside its simulation: the same arrivals, steps, times, cores and policy.

    others: live runs of the same jobs under other policies. Raises ValueError for a run that was itself
    simulated.
    """
    if not run.ran:
        raise ValueError(f"the {run.source} run of {run.policy} has no steps of jobs to simulate")
    outcome = _simulated(run, run)
    predicted = [_mean_reduced(_simulated(run, other)) for other in others]
    return Agreement(
        policy=run.policy,
        seed=run.seed,
        cores=run.capacity_cores,
        jobs=len(run.ran),
        live_first=float(run.jobs.first_seconds.mean()),
        simulated_first=float(outcome.first_seconds.mean()),
        live_reduced=float(run.jobs.reduced(0.9).mean()),
        simulated_reduced=_mean_reduced(outcome),
        predicted_reduced=float(np.mean(predicted)) if predicted else math.nan,
        live_completed=float(run.jobs.completion_seconds.mean()),
        simulated_completed=float(outcome.completion_seconds.mean()),
        share_points=float(np.abs(_thirds(run) - _thirds_of(outcome)).mean()),
    )


def _has_same_jobs(run: ScheduleRun, other: ScheduleRun) -> bool:
    steps = [[len(each.steps.work_done) for each in which.ran] for which in (run, other)]
    is_same = run.setting == other.setting and run.seed == other.seed and steps[0] == steps[1]
    return is_same and run.policy != other.policy


def _simulated(run: ScheduleRun, timed: ScheduleRun) -> Outcome:
    """Return a run's simulation, in which steps take what they took in a run, that one or another."""
    other = timed.other_core_seconds / len(timed.ran)
    traces = [each.steps.trace(each.name, each.kind, other) for each in timed.ran]
    order = np.argsort(run.jobs.arrival_seconds, kind="stable")
    workload = workload_of([traces[job] for job in order], run.jobs.arrival_seconds[order])
    options = Options(run.epoch_seconds)
    return simulate(workload, make_policy(run.policy), run.capacity_cores, options).outcome


def _mean_reduced(outcome: Outcome) -> float:
    return float(outcome.seconds_to(np.array([0.9])).mean())


def difference(agreements: Sequence[Agreement]) -> float:
    """Return by how much simulated times to 90 % differ from live ones, the mean over runs, relative."""
    live = np.mean([each.live_reduced for each in agreements])
    return float(np.mean([each.simulated_reduced for each in agreements]) / live - 1.0)


def predicted_difference(agreements: Sequence[Agreement]) -> float:
    """Return the same of times predicted from runs under other policies, NaN where there are none."""
    chosen = [each for each in agreements if math.isfinite(each.predicted_reduced)]
    if not chosen:
        return math.nan
    live = np.mean([each.live_reduced for each in chosen])
    return float(np.mean([each.predicted_reduced for each in chosen]) / live - 1.0)


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
