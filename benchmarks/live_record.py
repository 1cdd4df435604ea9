"""From jobs that really ran to the record that simulated runs leave too, and so to the same tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_lab.records.schedule_run import ScheduleRun
from relaqs_lab.records.trace import Decisions, Outcome, Trace, TraceTable
from relaqs_lab.simulation.study import load, record_of
from relaqs_tpch.measuring import StepMeter, steps_of_query
from relaqs_tpch.truth import Truth

from benchmarks.live import Finished, FloatArray, LiveRun
from relaqs.scheduling import EPOCH_SECONDS
from relaqs.sharing.view import Kind

Traced = tuple[Trace, FloatArray]
"""What a job did step by step, and when each step ended, shape (steps,), on the run's clock."""


def lowest_losses(runs: Sequence[LiveRun]) -> dict[str, float]:
    """Return the lowest loss that any run of each training job came to: what its errors are counted from."""
    lowest: dict[str, float] = {}
    for each in (finished for run in runs for finished in run.finished):
        if each.job.kind is Kind.TRAINING:
            losses = [report.quality for report in each.reports if np.isfinite(report.quality)]
            lowest[each.job.name] = min([lowest.get(each.job.name, np.inf), *losses])
    return lowest


def training_trace(finished: Finished, lowest: float) -> Traced:
    """Return what a training run did, pass by pass; the first look at the data counts with the first.

    Its true error is the loss above the lowest known, of the best model so far.
    """
    passes = [index for index, report in enumerate(finished.reports) if np.isfinite(report.quality)]
    losses = np.array([finished.reports[index].quality for index in passes])
    cost = finished.core_seconds
    cost[passes[0]] += cost[: passes[0]].sum()
    trace = Trace(
        name=finished.job.name,
        kind=Kind.TRAINING,
        work_done=np.arange(1.0, len(passes) + 1),
        quality=losses,
        true_error=np.maximum(np.minimum.accumulate(losses) - lowest, 0.0),
        core_seconds=cost[passes],
        progress=np.nan_to_num([finished.reports[index].progress for index in passes]),
    )
    return trace, finished.at_seconds[passes]


def query_trace(finished: Finished, plan: OnlinePlan) -> Traced:
    """Return what a query did, snapshot by snapshot, with true errors: the last of them is exact."""
    truth = Truth(plan, finished.snapshots[-1].estimate)
    meters = {report.step: StepMeter([report.core_seconds], report.progress) for report in finished.reports}
    kind = Kind.QUERY if plan.is_estimated else Kind.EXACT
    trace = steps_of_query(finished.snapshots, meters, truth).trace(finished.job.name, kind)
    at_seconds = dict(zip((report.step for report in finished.reports), finished.at_seconds, strict=True))
    return trace, np.array([at_seconds[snapshot.batch - 1] for snapshot in finished.snapshots])


def schedule_run(run: LiveRun, traced: Sequence[Traced], cores: int, **rest: Any) -> ScheduleRun:
    """Return the record of a run. traced: of each job.

    rest: seed, arrival_seconds (the mean between arrivals), workload and circumstances.
    """
    outcome = outcome_of(run, traced)
    needed = sum(float(trace.core_seconds.sum()) for trace, _ in traced)
    return record_of(
        outcome,
        np.array([plan.decision_seconds for plan in run.plans]),
        names=[each.job.name for each in run.finished],
        kinds=[each.job.kind for each in run.finished],
        source="live",
        policy=run.policy,
        capacity_cores=float(cores),
        cores_most=float("inf"),
        load=load(needed, cores, outcome.arrival_seconds),
        epoch_seconds=EPOCH_SECONDS,
        other_core_seconds=0.0,
        ran=(),
        **rest,
    )


def outcome_of(run: LiveRun, traced: Sequence[Traced]) -> Outcome:
    """Return what came of a run's jobs: errors and times of every step, and who was planned how much."""
    table = TraceTable.of([trace for trace, _ in traced])
    step_seconds = np.full(table.error.shape, np.nan)
    for row, (_, at_seconds) in zip(step_seconds, traced, strict=True):
        row[: len(at_seconds)] = at_seconds
    ends = float(np.nanmax(step_seconds))
    arrivals = np.array([each.arrival_seconds for each in run.finished])
    decisions = _decisions(run, table, step_seconds, ends)
    return Outcome(table, np.arange(len(run.finished)), arrivals, step_seconds, ends, decisions)


def _decisions(run: LiveRun, table: TraceTable, step_seconds: FloatArray, end_seconds: float) -> Decisions:
    decisions = Decisions()
    row_of = {each.id: row for row, each in enumerate(run.finished)}
    until = [*(plan.at_seconds for plan in run.plans), end_seconds][1:]
    for plan, next_seconds in zip(run.plans, until, strict=True):
        rows = [row_of[id] for id in plan.cores]
        folded = (step_seconds[rows] <= plan.at_seconds).sum(axis=1)
        errors = np.where(folded > 0, table.error[rows, np.maximum(folded - 1, 0)], 1.0)
        cores = np.array(list(plan.cores.values()))
        decisions.add(plan.at_seconds, max(next_seconds - plan.at_seconds, 0.0), errors, cores)
    return decisions
