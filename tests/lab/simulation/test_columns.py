"""The simulated view is the live one: fed the same reports, both ledgers lead to the same plans."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_lab.simulation import synthetic_workload
from relaqs_lab.simulation.simulator import JobColumns

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.policies import Index, LeastAttainedService, MaxSum, ShortestRemainingTime
from relaqs.scheduling import Allocator
from relaqs.sharing.view import Kind, Policy

CORES = 16.0
EPOCH_SECONDS = 0.5
JOBS = 6


@pytest.mark.parametrize(
    "policy", [Index(), MaxSum(), ShortestRemainingTime(), LeastAttainedService()], ids=lambda each: each.name
)
def test_the_same_reports_give_the_same_plan_as_live(policy: Policy) -> None:
    random = np.random.default_rng(3)
    workload = synthetic_workload(random, np.zeros(JOBS), core_seconds=200.0, training_share=0.5)
    assert {trace.kind for trace in workload.traces} == {Kind.QUERY, Kind.TRAINING}
    columns, allocator = JobColumns(workload, CORES), Allocator(policy, epoch_seconds=EPOCH_SECONDS)
    everyone = np.arange(JOBS)
    ids = columns.view(everyone, 0.0, EPOCH_SECONDS, CORES).jobs.ids
    for job, id in enumerate(ids):
        kind = workload.traces[workload.trace[job]].kind
        total = np.inf if kind is Kind.TRAINING else 1.0
        allocator.enter(JobDescription(id, kind, work_total=total), 0.0)
    compared = 0
    for epoch in range(60):
        now = epoch * EPOCH_SECONDS
        running = everyone[~columns.is_over(everyone)]
        view = columns.view(running, now, EPOCH_SECONDS, CORES)
        planned, live = policy.plan(view).cores_by_job(), allocator.plan(now, CORES).cores_by_job()
        assert planned == pytest.approx(live, rel=1e-6, abs=1e-9)
        compared += 1
        cores = random.dirichlet(np.ones(len(running))) * CORES
        before = columns.step.copy()
        columns.work(running, cores, now, EPOCH_SECONDS)
        for job, given in zip(running, cores, strict=True):
            allocator.charge(ids[job], given * EPOCH_SECONDS, now)
            for step in range(before[job], columns.step[job]):
                allocator.report(ids[job], report_of(columns, job, step))
            if columns.is_over(np.array([job]))[0]:
                allocator.leave(ids[job])
        if columns.is_over(everyone).any():
            break
    assert compared > 10


def report_of(columns: JobColumns, job: int, step: int) -> StepReport:
    table, trace = columns.traces, columns.trace[job]
    before = table.cost_to[trace, step - 1] if step else 0.0
    return StepReport(
        step=step,
        quality=table.quality[trace, step],
        work_done=table.work_to[trace, step],
        core_seconds=(table.cost_to[trace, step] - before) * columns.cost_scale[job],
        is_final=False,
        progress=table.progress[trace, step],
    )
