"""Studies: cases of policy, arrivals and seed, each simulated to the record that live runs leave, too.

- `run_case`: jobs that share cores. Training runs with deadlines and accuracies, simulated under policies
  that may or may not stop them.

The rules are those of the evaluation of Wang, Liu, Shen 2020, Job Scheduling for Large-Scale Machine
Learning Clusters (CoNEXT), section 4.1, as far as it tells them. There only the paper's own policies may
stop runs early, and a policy that alone may stop wins by that. So each policy is simulated with the same
right, too. The accuracy that is required is not public; here it is 90 to 100 % of the best that a run
reaches with all its passes.
- How well the simulator agrees with the world: live runs simulated, and both side by side.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies.registry import make_policy
from relaqs.sharing.view import MOST_URGENCY, Kind
from relaqs_lab.records.schedule_run import JobTimes, RunSeries, ScheduleRun
from relaqs_lab.records.simulated_runs import GoalRun
from relaqs_lab.records.trace import LEVELS, Outcome, Trace
from relaqs_lab.simulation.simulator import Options, Run, simulate
from relaqs_lab.simulation.workload import (
    EarlyStops,
    JobGoals,
    Workload,
    poisson_arrivals,
    synthetic_workload,
    training_trace,
    workload_of,
)

_ARRIVALS, _JOBS = 0, 1  # streams of one seed: who comes does not depend on when


@dataclass(frozen=True, slots=True)
class JobMix:
    """Which jobs there are.

    Attributes:
        traces: to draw from; empty: made-up ones of about core_seconds each.
        training_share: of the made-up ones.
        cost_scale: what the core-seconds of traces are multiplied by.
    """

    traces: tuple[Trace, ...] = ()
    traces_name: str = ""
    core_seconds: float = 30_000.0
    training_share: float = 0.0
    cost_scale: float = 1.0
    cores_most: float = math.inf

    def __str__(self) -> str:
        if self.traces:
            columns = [column for each in self.traces for column in each.columns]
            scaled = "" if self.cost_scale == 1 else f", costs × {self.cost_scale:.9g}"
            return f"{len(self.traces)} traces of {self.traces_name}, {checksum(columns)}{scaled}"
        training = f", {100 * self.training_share:.9g}% of them training" if self.training_share else ""
        return f"made-up jobs of {self.core_seconds:,.9g} core-seconds{training}"

    def workload(self, arrival_seconds: FloatArray, seed: int) -> Workload:
        random = np.random.default_rng([seed, _JOBS])
        if not self.traces:
            return synthetic_workload(
                random,
                arrival_seconds,
                core_seconds=self.core_seconds,
                training_share=self.training_share,
                cores_most=self.cores_most,
            )
        return workload_of(
            self.traces,
            arrival_seconds,
            trace=random.integers(0, len(self.traces), len(arrival_seconds)),
            cost_scale=self.cost_scale,
            cores_most=self.cores_most,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation. mean_arrival_seconds: of Poisson arrivals; NaN where arrivals are given."""

    policy: str
    seed: int
    jobs: int
    mean_arrival_seconds: float
    mix: JobMix
    capacity_cores: float
    options: Options = field(default_factory=Options)
    arrivals: tuple[float, ...] = ()

    @property
    def workload(self) -> str:
        """The jobs and the rules of time, in words that are equal only where records would be."""
        options = self.options
        words = [str(self.mix), f"a plan every {options.epoch_seconds:.9g} s"]
        if not options.reacts_at_once:
            words[-1] += " only"
        if math.isfinite(options.until_seconds):
            words.append(f"until {options.until_seconds:.9g} s")
        if self.arrivals:
            words.append(f"arrivals of {checksum([np.array(self.arrivals)])}")
        return ", ".join(words)

    @property
    def setting(self) -> tuple[object, ...]:
        """As in `ScheduleRun.setting`, known before it has run."""
        return (
            "simulated",
            self.workload,
            self.capacity_cores,
            self.mix.cores_most,
            self.mean_arrival_seconds,
            self.jobs,
        )

    @property
    def key(self) -> tuple[object, ...]:
        return (*self.setting, make_policy(self.policy).name, self.seed)

    def arrival_seconds(self) -> FloatArray:
        if self.arrivals:
            return np.array(self.arrivals)
        random = np.random.default_rng([self.seed, _ARRIVALS])
        return poisson_arrivals(random, self.jobs, self.mean_arrival_seconds)


def run_case(case: Case, circumstances: dict[str, Any], stopwatch: Callable[[], float]) -> ScheduleRun:
    """Return the record of one case. The same case gives the same record but for the time of decisions."""
    workload = case.mix.workload(case.arrival_seconds(), case.seed)
    policy = make_policy(case.policy)
    run = simulate(workload, policy, case.capacity_cores, case.options, stopwatch=stopwatch)
    kinds = [workload.traces[index].kind for index in workload.trace]
    return record_of(
        run.outcome,
        run.decision_seconds,
        names=workload.names,
        kinds=kinds,
        source="simulated",
        policy=policy.name,
        seed=case.seed,
        arrival_seconds=case.mean_arrival_seconds,
        workload=case.workload,
        capacity_cores=case.capacity_cores,
        cores_most=case.mix.cores_most,
        load=load(workload.core_seconds, case.capacity_cores, workload.arrival_seconds),
        epoch_seconds=case.options.epoch_seconds,
        other_core_seconds=0.0,
        ran=(),
        circumstances=circumstances,
    )


def checksum(columns: Sequence[FloatArray]) -> str:
    """Return a few letters that tell these numbers from others."""
    total = 0
    for column in columns:
        total = zlib.crc32(np.ascontiguousarray(column).tobytes(), total)
    return f"checksum {total:08x}"


def load(core_seconds: float, capacity_cores: float, arrival_seconds: FloatArray) -> float:
    """Return the core-seconds asked for relative to what there is while jobs arrive, inf for a single job."""
    spacing = float(arrival_seconds[-1] - arrival_seconds[0]) / max(len(arrival_seconds) - 1, 1)
    available = capacity_cores * spacing * len(arrival_seconds)
    return core_seconds / available if available > 0 else math.inf


def record_of(
    outcome: Outcome,
    decision_seconds: FloatArray,
    *,
    names: Sequence[str],
    kinds: Sequence[Kind],
    capacity_cores: float,
    **rest: Any,
) -> ScheduleRun:
    """Return the record of an outcome; rest: the fields of `ScheduleRun` an outcome does not know."""
    has_decided = len(decision_seconds) > 0
    return ScheduleRun(
        jobs=JobTimes.of(outcome, names, kinds),
        mean_level_seconds=outcome.seconds_to(LEVELS).mean(axis=0),
        series=RunSeries.of(outcome, capacity_cores),
        plans=len(decision_seconds),
        decision_ms_mean=float(decision_seconds.mean() * 1e3) if has_decided else math.nan,
        decision_ms_most=float(decision_seconds.max() * 1e3) if has_decided else math.nan,
        capacity_cores=capacity_cores,
        **rest,
    )


DeadlineRule: TypeAlias = Literal["paper", "tight"]
CONTROL = "load_control"
WIDTHS = (1, 2, 4, 8, 16, 32)  # the most cores that a run can use, drawn evenly
HOUR_SECONDS = 3600.0
ACCURACY_NOISE = 0.003  # of a measured accuracy, standard deviation: 20,000 rows held out
SIZE_SPREAD = 0.9  # runs need this much more or less than the mean
URGENT = 8.0  # a run of a higher urgency is urgent


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
