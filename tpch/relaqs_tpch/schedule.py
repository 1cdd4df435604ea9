"""Really runs a mix of jobs under one policy, each from its arrival to its end.

Which jobs come when is drawn from a seed, the same for every policy.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from relaqs_engine.errors import RelaqsError
from relaqs_lab.records.schedule_run import Ran, ScheduleRun
from relaqs_lab.records.trace import Outcome, TraceTable
from relaqs_lab.simulation.study import load, record_of
from relaqs_lab.simulation.workload import poisson_arrivals

from relaqs.executors import open_executor
from relaqs.jobs.executor import background_thread
from relaqs.jobs.job import ClusterStatus
from relaqs.policies import make_policy
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session
from relaqs.sharing.view import Kind
from relaqs_tpch.measuring import (
    MeteredExecutor,
    NotedPolicy,
    decisions_of,
    steps_of_query,
    steps_of_training,
)
from relaqs_tpch.truth import Truth
from relaqs_tpch.warehouse import ALGORITHMS, MOST_STEPS, Warehouse, query, training_job

if TYPE_CHECKING:
    from relaqs.training.run import TrainingRun

_ARRIVALS, _JOBS = 0, 1  # streams of one seed: who comes does not depend on when


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job to come.

    Attributes:
        number: of the query, None for training by `algorithm`.
        seed: of its own order.
    """

    at_seconds: float
    folder: Path
    label: str
    number: int | None
    algorithm: str
    seed: int

    @property
    def name(self) -> str:
        job = self.algorithm if self.number is None else f"Q{self.number}"
        return f"{job}, {self.label}"


def arrivals(
    warehouses: Sequence[Warehouse],
    queries: Sequence[int],
    *,
    jobs: int,
    mean_seconds: float,
    training_share: float,
    seed: int,
) -> list[Arrival]:
    """Return so many jobs: queries, and this share of training runs, each on one of the warehouses.

    queries: to draw from; empty: all that a warehouse can estimate. Raises RelaqsError if it can estimate
    none.
    """
    random = np.random.default_rng([seed, _JOBS])
    times = poisson_arrivals(np.random.default_rng([seed, _ARRIVALS]), jobs, mean_seconds)
    choices = {each.folder: list(queries) or each.progressive_queries() for each in warehouses}
    for warehouse in warehouses:
        if not choices[warehouse.folder]:
            raise RelaqsError(
                f"none of the queries has estimates on {warehouse.folder}; name some by --queries"
            )
    drawn = []
    for index, at in enumerate(times.tolist()):
        warehouse = warehouses[int(random.integers(len(warehouses)))]
        trains = bool(random.random() < training_share)
        number = int(random.choice(choices[warehouse.folder]))
        algorithm = ALGORITHMS[int(random.integers(len(ALGORITHMS)))]
        drawn.append(
            Arrival(
                at_seconds=at,
                folder=warehouse.folder,
                label=warehouse.label,
                number=None if trains else number,
                algorithm=algorithm if trains else "",
                seed=seed * jobs + index,
            )
        )
    return drawn


def in_words(
    warehouses: Sequence[Warehouse],
    queries: Sequence[int],
    training_share: float,
    *,
    is_on_cluster: bool = False,
) -> str:
    """Return the workload as records name it: equal words, comparable runs."""
    places = "; ".join(warehouse.contents for warehouse in warehouses)
    chosen = "Q" + ", ".join(map(str, queries)) if queries else "all queries with estimates"
    training = f", {100 * training_share:.9g}% training" if training_share else ""
    return f"TPC-H {places}: {chosen}{training}{', on a Dask cluster' if is_on_cluster else ''}"


LOOK_SECONDS = 0.25  # between pictures for whoever watches


@dataclass(slots=True)
class LiveJob:
    """One job of a running schedule.

    Attributes:
        snapshots: of a query.
        failure: what ended it before its time.
    """

    arrival: Arrival
    submitted_seconds: float = math.nan
    handle: OnlineQuery | TrainingRun | None = None
    snapshots: list[Snapshot] = field(default_factory=list)
    is_over: bool = False
    failure: BaseException | None = None

    @property
    def id(self) -> str:
        return "" if self.handle is None else self.handle.id


Watcher = Callable[[float, ClusterStatus, Sequence[LiveJob]], None]
"""(seconds since the start, how the cluster stands, all jobs) → shows it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a live schedule runs on.

    Attributes:
        cluster: a Dask scheduler's address, or None for threads.
        security: its TLS files.
    """

    policy: str
    seed: int
    mean_arrival_seconds: float
    workload: str
    threads: int
    cluster: str | None = None
    security: Mapping[str, str] | None = None


def run_schedule(
    setting: Setting,
    arrivals: Sequence[Arrival],
    warehouses: Sequence[Warehouse],
    circumstances: dict[str, Any],
    watch: Watcher = lambda at, status, jobs: None,
) -> ScheduleRun:
    """Return the record of one run, in which every job runs to its end. Raises what fails a job."""
    policy = NotedPolicy(make_policy(setting.policy))
    executor = MeteredExecutor(
        open_executor(
            setting.cluster,
            cores=setting.threads,
            policy=policy if setting.cluster is None else setting.policy,
            security=setting.security,
        )
    )
    sessions = {
        each.folder: each.session(executor, is_embedded=setting.cluster is None, of=len(warehouses))
        for each in warehouses
    }
    run = _LiveRun(arrivals, sessions, executor, watch)
    try:
        capacity = float(executor.capacity)
        run.until_all_are_over()
        return run.record(setting, capacity, policy, circumstances)
    finally:
        run.stop()
        for session in sessions.values():
            session.close()


class _LiveRun:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        sessions: dict[Path, Session],
        executor: MeteredExecutor,
        watch: Watcher,
    ) -> None:
        self._jobs = [LiveJob(arrival) for arrival in arrivals]
        self._sessions = sessions
        self._executor = executor
        self._watch = watch
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._started = time.perf_counter()
        self._core_started = time.process_time()
        self._core_seconds = math.nan

    def until_all_are_over(self) -> None:
        """Return when the last job has ended. Raises the first failure."""
        for job in self._jobs:
            background_thread(lambda job=job: self._live(job), "relaqs-arrival").start()  # type: ignore[misc]
        while True:
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
            self._look()
            for job in self._jobs:
                if job.failure is not None:
                    raise job.failure
            if all(job.is_over for job in self._jobs):
                self._core_seconds = time.process_time() - self._core_started
                return

    def stop(self) -> None:
        self._stopping.set()

    def _live(self, job: LiveJob) -> None:
        """Wait for the job's arrival, submit it, and take in what it gives until it ends."""
        try:
            until = self._started + job.arrival.at_seconds
            if self._stopping.wait(max(until - time.perf_counter(), 0.0)):
                return
            job.submitted_seconds = time.perf_counter() - self._started
            session = self._sessions[job.arrival.folder]
            if job.arrival.number is None:
                self._train(job, session)
            else:
                self._query(job, session, query(job.arrival.number))
        except BaseException as failure:  # the main thread raises it
            job.failure = failure
        finally:
            job.is_over = True
            self._changed.set()

    def _query(self, job: LiveJob, session: Session, sql: str) -> None:
        handle = session.submit(sql, QueryOptions(seed=job.arrival.seed))
        job.handle = handle
        for snapshot in handle:
            job.snapshots.append(snapshot)
        handle.wait()

    def _train(self, job: LiveJob, session: Session) -> None:
        handle = session.train(training_job(job.arrival.algorithm, job.arrival.seed), max_steps=MOST_STEPS)
        job.handle = handle
        handle.result()

    def _look(self) -> None:
        self._watch(time.perf_counter() - self._started, self._executor.status(), self._jobs)

    def record(
        self, setting: Setting, capacity_cores: float, policy: NotedPolicy, circumstances: dict[str, Any]
    ) -> ScheduleRun:
        ran = [self._ran(job) for job in self._jobs]
        outcome = self._outcome(ran)
        needed = sum(float(each.steps.core_seconds.sum()) for each in ran)
        return record_of(
            outcome,
            np.array(policy.decision_seconds),
            names=[each.name for each in ran],
            kinds=[each.kind for each in ran],
            source="live",
            policy=policy.name,
            seed=setting.seed,
            arrival_seconds=setting.mean_arrival_seconds,
            workload=setting.workload,
            capacity_cores=capacity_cores,
            cores_most=math.inf,
            load=load(needed, capacity_cores, outcome.arrival_seconds),
            epoch_seconds=0.5,
            other_core_seconds=max(self._core_seconds - needed, 0.0),
            ran=tuple(ran),
            circumstances=circumstances,
        )

    def _ran(self, job: LiveJob) -> Ran:
        assert job.handle is not None, job
        meters = self._executor.steps(job.id)
        submitted_at = self._started + job.submitted_seconds
        if not isinstance(job.handle, OnlineQuery):
            steps = steps_of_training(job.handle.steps, meters, submitted_at=submitted_at)
            return Ran(job.arrival.name, Kind.TRAINING, steps)
        assert job.arrival.number is not None, job
        last = job.snapshots[-1]
        plan = self._sessions[job.arrival.folder].plan(query(job.arrival.number))
        kind = Kind.QUERY if job.handle.plan.is_estimated else Kind.EXACT
        truth = Truth(plan, last.estimate)
        return Ran(
            job.arrival.name, kind, steps_of_query(job.snapshots, meters, truth, submitted_at=submitted_at)
        )

    def _outcome(self, ran: Sequence[Ran]) -> Outcome:
        traces = TraceTable.of([each.steps.trace(each.name, each.kind) for each in ran])
        arrival = np.array([job.submitted_seconds for job in self._jobs])
        times = np.full(traces.cost_to.shape, np.nan)
        for row, submitted, each in zip(times, arrival, ran, strict=True):
            row[: len(each.steps.elapsed_seconds)] = submitted + each.steps.elapsed_seconds
        outcome = Outcome(traces, np.arange(len(ran)), arrival, times, float(np.nanmax(times)))
        held = [
            [each for meter in self._executor.steps(job.id).values() for each in meter.held]
            for job in self._jobs
        ]
        return replace(outcome, decisions=decisions_of(outcome, held, self._started))
