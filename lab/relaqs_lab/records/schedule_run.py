"""The record of many jobs that shared a cluster under one policy, really run or simulated: both alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.view import Kind
from relaqs_lab.records.query_run import Steps
from relaqs_lab.records.store import array, column, number
from relaqs_lab.records.trace import GROUPS, LEVELS, Outcome

RunSource = Literal["live", "simulated"]

REDUCTIONS = np.array([0.7, 0.9, 0.95])  # kept of each job; of all LEVELS the mean over jobs is kept
SERIES_POINTS = 200


@dataclass(frozen=True, slots=True, eq=False)
class JobTimes:
    """J jobs in the order of their arrival. Times are seconds from each one's arrival, NaN where never.

    Attributes:
        reduced_seconds: until the true error was reduced by REDUCTIONS, for good, shape (J, 3).
        error_seconds: the integral of the true normalised error.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    arrival_seconds: FloatArray
    first_seconds: FloatArray
    completion_seconds: FloatArray
    error_seconds: FloatArray
    reduced_seconds: FloatArray

    @classmethod
    def of(cls, outcome: Outcome, names: Sequence[str], kinds: Sequence[Kind]) -> JobTimes:
        return cls(
            names=tuple(names),
            kinds=tuple(kinds),
            arrival_seconds=outcome.arrival_seconds,
            first_seconds=outcome.first_seconds,
            completion_seconds=outcome.completion_seconds,
            error_seconds=outcome.error_seconds(),
            reduced_seconds=outcome.seconds_to(REDUCTIONS),
        )

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> JobTimes:
        columns = ("arrival_seconds", "first_seconds", "completion_seconds", "error_seconds")
        times = cls(
            names=tuple(map(str, content["names"])),
            kinds=tuple(Kind[str(kind).upper()] for kind in content["kinds"]),
            reduced_seconds=np.array([array(row) for row in content["reduced_seconds"]]),
            **{name: column(content, name) for name in columns},
        )
        count = len(times.names)
        if not count or any(len(getattr(times, each.name)) != count for each in fields(cls)):
            raise ValueError("the columns of the jobs have different lengths, or none")
        if times.reduced_seconds.shape != (count, len(REDUCTIONS)):
            raise ValueError(f"reduced_seconds is not {len(REDUCTIONS)} times of each job")
        return times

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**record, "kinds": [kind.name.lower() for kind in self.kinds]}

    def reduced(self, reduction: float) -> FloatArray:
        """Return each job's time to one of REDUCTIONS, shape (J,)."""
        return self.reduced_seconds[:, int(np.argmin(np.abs(REDUCTIONS - reduction)))]


@dataclass(frozen=True, slots=True, eq=False)
class RunSeries:
    """The run over time, shape (points,) each; third_shares: (3, points), of the cores, see `GROUPS`.

    Of a run that was over before anybody looked who has the cores, jobs, used_share and third_shares are NaN.
    """

    at_seconds: FloatArray
    mean_error: FloatArray
    mean_progress: FloatArray
    jobs: FloatArray
    used_share: FloatArray
    third_shares: FloatArray

    @classmethod
    def of(cls, outcome: Outcome, capacity_cores: float) -> RunSeries:
        at = np.linspace(0.0, outcome.end_seconds, SERIES_POINTS)
        error, progress = outcome.over_time(at)
        table = outcome.decisions.table
        held = table[table[:, 1] > 0]
        if not len(held):  # it was over before anybody looked
            held = np.full((1, table.shape[1]), np.nan)
        newest = np.maximum(np.searchsorted(held[:, 0], at, side="right") - 1, 0)
        jobs, thirds = held[newest, 2], held[newest, 3:].T
        used = thirds.sum(axis=0)
        shares = np.divide(thirds, used, out=np.zeros_like(thirds), where=used != 0)
        return cls(at, error, progress, jobs, used / capacity_cores, shares)

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> RunSeries:
        columns = ("at_seconds", "mean_error", "mean_progress", "jobs", "used_share")
        thirds = np.array([array(row) for row in content["third_shares"]])
        if thirds.shape[0] != len(GROUPS):
            raise ValueError(f"third_shares has {thirds.shape[0]} rows; {len(GROUPS)} are expected")
        known = {name: column(content, name) for name in columns}
        if {len(each) for each in known.values()} != {thirds.shape[-1]} or not thirds.size:
            raise ValueError("the columns of the series have different lengths, or none")
        return cls(**known, third_shares=thirds)

    def as_record(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What a live run remembers of one job, step by step, so that it can be simulated."""

    name: str
    kind: Kind
    steps: Steps

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> Ran:
        return cls(
            str(content["name"]), Kind[str(content["kind"]).upper()], Steps.of_record(content["steps"])
        )

    def as_record(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind.name.lower(), "steps": self.steps.as_record()}


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleRun:
    """Jobs that shared cores under one policy.

    Attributes:
        arrival_seconds: the mean between arrivals.
        workload: in words.
        load: core-seconds asked for, relative to those there were until the last arrival.
        mean_level_seconds: the mean over jobs of the time to each of LEVELS.
        other_core_seconds: what the process used meanwhile outside of tasks.
        decision_ms_mean, decision_ms_most: of the plans.
        ran: empty for simulated runs.
    """

    kind_of_record: ClassVar[str] = "schedule run"

    source: RunSource
    policy: str
    seed: int
    arrival_seconds: float
    workload: str
    capacity_cores: float
    cores_most: float
    load: float
    epoch_seconds: float
    jobs: JobTimes
    mean_level_seconds: FloatArray
    series: RunSeries
    plans: int
    decision_ms_mean: float
    decision_ms_most: float
    other_core_seconds: float
    ran: tuple[Ran, ...]
    circumstances: Mapping[str, Any]

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""
        return (
            self.source,
            self.workload,
            self.capacity_cores,
            self.cores_most,
            self.arrival_seconds,
            len(self.jobs.names),
        )

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs of one measurement have in common; one of them is enough."""
        return (*self.setting, self.policy, self.seed)

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> ScheduleRun:
        levels = column(content, "mean_level_seconds")
        if content["source"] not in ("live", "simulated") or len(levels) != len(LEVELS):
            raise ValueError(f"the source is {content['source']!r} with {len(levels)} levels")
        return cls(
            source=content["source"],
            policy=str(content["policy"]),
            seed=int(content["seed"]),
            workload=str(content["workload"]),
            cores_most=number(content, "cores_most", np.inf),
            jobs=JobTimes.of_record(content["jobs"]),
            mean_level_seconds=levels,
            series=RunSeries.of_record(content["series"]),
            plans=int(content["plans"]),
            ran=tuple(Ran.of_record(each) for each in content["ran"]),
            circumstances=dict(content["circumstances"]),
            **{name: number(content, name) for name in _NUMBERS},
        )

    def as_record(self) -> dict[str, Any]:
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **record,
            "jobs": self.jobs.as_record(),
            "series": self.series.as_record(),
            "ran": [each.as_record() for each in self.ran],
        }


_NUMBERS = (
    "arrival_seconds",
    "capacity_cores",
    "load",
    "epoch_seconds",
    "decision_ms_mean",
    "decision_ms_most",
    "other_core_seconds",
)
