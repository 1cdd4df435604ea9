"""Training runs with deadlines and accuracies, simulated under policies that may or may not stop them.

The rules are those of the evaluation of Wang, Liu, Shen 2020, Job Scheduling for Large-Scale Machine Learning
Clusters (CoNEXT), section 4.1, as far as it tells them. There only the paper's own policies may stop runs
early, and a policy that alone may stop wins by that. So each policy is simulated with the same right, too.
The accuracy that is required is not public; here it is 90 to 100 % of the best that a run reaches with all
its passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies.registry import make_policy
from relaqs.sharing.goals import MOST_URGENCY
from relaqs_lab.records.goal_run import GoalRun
from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.early_stops import EarlyStops
from relaqs_lab.simulation.families import training_trace
from relaqs_lab.simulation.job_goals import JobGoals
from relaqs_lab.simulation.simulator import Options, Run, simulate
from relaqs_lab.simulation.workload import Workload, poisson_arrivals, workload_of

DeadlineRule: TypeAlias = Literal["paper", "tight"]
CONTROL = "load_control"
WIDTHS = (1, 2, 4, 8, 16, 32)  # the most cores that a run can use, drawn evenly
HOUR_SECONDS = 3600.0
ACCURACY_NOISE = 0.003  # of a measured accuracy, standard deviation: 20,000 rows held out
SIZE_SPREAD = 0.9  # runs need this much more or less than the mean
URGENT = 8.0  # a run of a higher urgency is urgent
_ARRIVALS, _JOBS = 0, 1  # streams of one seed: who comes does not depend on when


@dataclass(frozen=True, slots=True)
class GoalCase:
    """One simulation.

    Attributes:
        stop: "own": only `load_control` stops runs. "same": every policy has load control around it. "none":
            no run may be stopped.
    """

    policy: str
    seed: int
    jobs: int
    mean_arrival_seconds: float
    core_seconds: float
    capacity_cores: float
    deadlines: DeadlineRule
    stop: EarlyStops
    options: Options

    @property
    def carried_out(self) -> str:
        """The name of the policy that shares the cores out."""
        has_control = self.policy.partition(":")[0] == CONTROL
        return f"{CONTROL}:{self.policy}" if self.stop == "same" and not has_control else self.policy

    @property
    def workload(self) -> str:
        """The jobs and the rules of time, in words that are equal only where records would be."""
        return (
            f"{self.jobs} made-up runs of {self.core_seconds:,.9g} core-seconds, one every "
            f"{self.mean_arrival_seconds:.9g} s, {self.deadlines} deadlines, a plan every "
            f"{self.options.epoch_seconds:.9g} s{'' if self.options.reacts_at_once else ' only'}"
        )

    @property
    def key(self) -> tuple[object, ...]:
        return (self.workload, self.capacity_cores, self.stop, make_policy(self.policy).name, self.seed)


def run_goal_case(case: GoalCase, circumstances: dict[str, Any], stopwatch: Callable[[], float]) -> GoalRun:
    """Return the record of one case. The same case gives the same record but for the time of decisions."""
    workload = _workload(
        case.seed,
        case.jobs,
        case.mean_arrival_seconds,
        case.core_seconds,
        case.capacity_cores,
        case.deadlines,
        case.stop != "none",
    )
    run = simulate(
        workload, make_policy(case.carried_out), case.capacity_cores, case.options, stopwatch=stopwatch
    )
    return _record(case, workload, run, circumstances)


@lru_cache(maxsize=8)  # policies are compared on the same one
def _workload(
    seed: int,
    jobs: int,
    mean_arrival_seconds: float,
    core_seconds: float,
    capacity_cores: float,
    deadlines: DeadlineRule,
    may_stop: bool,
) -> Workload:
    return runs_with_goals(
        np.random.default_rng([seed, _JOBS]),
        poisson_arrivals(np.random.default_rng([seed, _ARRIVALS]), jobs, mean_arrival_seconds),
        core_seconds=core_seconds,
        deadlines=deadlines,
        capacity_cores=capacity_cores,
        may_stop=may_stop,
    )


def _record(case: GoalCase, workload: Workload, run: Run, circumstances: dict[str, Any]) -> GoalRun:
    goals, outcome = workload.goals, run.outcome
    assert goals is not None
    ends = np.where(
        np.isnan(run.stopped_seconds),
        outcome.completion_seconds + outcome.arrival_seconds,
        run.stopped_seconds,
    )
    due = outcome.arrival_seconds + goals.deadline_seconds
    steps = outcome.step_seconds
    in_time = np.where(steps <= due[:, None], goals.accuracy, np.nan)
    by_deadline = np.nan_to_num(np.fmax.reduce(in_time, axis=1))
    reached = by_deadline >= goals.required
    is_met, is_urgent = ends <= due, goals.urgency > URGENT
    return GoalRun(
        policy=make_policy(case.policy).name,
        seed=case.seed,
        workload=case.workload,
        capacity_cores=case.capacity_cores,
        stop=case.stop,
        load=workload.core_seconds / (case.capacity_cores * max(outcome.arrival_seconds[-1], 1.0)),
        completion_seconds=float(np.mean(ends - outcome.arrival_seconds)),
        makespan_seconds=float(ends.max() - outcome.arrival_seconds[0]),
        deadlines_met=float(is_met.mean()),
        urgent_met=float(is_met[is_urgent].mean()) if is_urgent.any() else float("nan"),
        accuracy_met=float(reached.mean()),
        accuracy_by_deadline=float(by_deadline.mean()),
        stopped=float(np.isfinite(run.stopped_seconds).mean()),
        decision_ms=float(run.decision_seconds.mean() * 1e3),
        circumstances=circumstances,
    )


def runs_with_goals(
    random: np.random.Generator,
    arrival_seconds: FloatArray,
    *,
    core_seconds: float,
    deadlines: DeadlineRule,
    capacity_cores: float,
    may_stop: bool = True,
) -> Workload:
    """Return made-up training runs that arrive at these times, and what their users want.

    Args:
        core_seconds: what a run needs on average.
        deadlines: "paper": the larger of 1.1 times the time that the run takes alone, and half an hour to a
            day. "tight": 1.1 to 3 times the time alone.
        capacity_cores: of the cluster, which bounds how many cores a run can use.
        may_stop: whether users allow stops at the best and at the required accuracy.
    """
    jobs = len(arrival_seconds)
    traces = [training_trace(random, core_seconds) for _ in range(jobs)]
    scale = random.uniform(1 - SIZE_SPREAD, 1 + SIZE_SPREAD, jobs)
    widths = np.minimum(random.choice(WIDTHS, jobs), capacity_cores).astype(np.float64)
    accuracy = np.stack([_accuracies(random, trace) for trace in traces])
    alone = np.array([trace.core_seconds.sum() for trace in traces]) * scale / widths
    late = random.uniform(0.5, 24.0, jobs) * HOUR_SECONDS
    slack = random.uniform(1.1, 3.0, jobs)
    goals = JobGoals.of(
        accuracy,
        required=random.uniform(0.9, 1.0, jobs) * accuracy.max(axis=1),
        deadline_seconds=np.maximum(1.1 * alone, late) if deadlines == "paper" else slack * alone,
        urgency=random.integers(1, int(MOST_URGENCY) + 1, jobs).astype(np.float64),
        may_stop=may_stop,
    )
    return workload_of(traces, arrival_seconds, cost_scale=scale, cores_most=widths, goals=goals)


def _accuracies(random: np.random.Generator, trace: Trace) -> FloatArray:
    """Return accuracies that rise as the loss falls, from a guess to a top, with noise, shape (steps,)."""
    top, guess = random.uniform(0.7, 0.98), random.uniform(0.1, 0.5)
    noise = random.normal(scale=ACCURACY_NOISE, size=trace.steps)
    return np.asarray(np.clip(top - (top - guess) * trace.normalised_error + noise, 0.0, 1.0))
