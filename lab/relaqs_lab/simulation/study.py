"""A study: cases of policy, arrivals and seed, each simulated to the record that live runs leave, too."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies import make_policy
from relaqs.sharing.view import Kind
from relaqs_lab.records.outcome import LEVELS, Outcome
from relaqs_lab.records.schedule_run import JobTimes, RunSeries, ScheduleRun
from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.simulator import Options, simulate
from relaqs_lab.simulation.workload import Workload, poisson_arrivals, synthetic_workload, workload_of

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
