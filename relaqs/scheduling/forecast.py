"""Forecast: what lies ahead of jobs, for policies in columns and for people in words.

`refresh` fits the curve of quality over work, and the cost of the next step, of all accounts that reported
anything new since they were fitted. All are fitted at once, as columns of arrays: the cost of a fit is that
of its calls, not that of its jobs. The next step does as much work as the last one, and costs what a unit
of work has cost lately: a constant, as in SLAQ (Zhang et al., SoCC 2017), or the thesis's line where costs
grow.

`job_statuses` is the same for people: each job's state, its use of cores, and the curve that is expected of
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.jobs.job import Curve, JobState, JobStatus
from relaqs.prediction.curves import Curves
from relaqs.prediction.runtime import constant_cost, line_cost
from relaqs.prediction.series import Series
from relaqs.scheduling.accounts import Account, QualityCurve, StepAhead
from relaqs.sharing.outlook import QUALITY_FAMILIES, fit_quality_curves, is_predictable
from relaqs.sharing.view import Jobs, JobView, Kind, View

LEAST_STEP_WORK = 1e-9
LEAST_CORE_SECONDS = 1e-6  # of steps too quick to measure


def refresh(accounts: Sequence[Account]) -> None:
    """Look ahead for the accounts whose reports are newer than their curves; the others keep theirs."""
    stale = [account for account in accounts if account.curve is None]
    new, reported = [each for each in stale if each.is_new], [each for each in stale if not each.is_new]
    for account in new:
        account.curve = _curve_before_reports(account.description.kind)
    if reported:
        _look_at_costs(reported)
        for account, curve in zip(reported, _fitted([each.view() for each in reported]), strict=True):
            account.curve = curve


def _fitted(jobs: Sequence[JobView]) -> list[QualityCurve]:
    curves = fit_quality_curves(Jobs.of(jobs))
    return [QualityCurve(int(c), row) for c, row in zip(curves.chosen, curves.parameters, strict=True)]


@cache
def _curve_before_reports(kind: Kind) -> QualityCurve:
    """Return the curve of a job that has reported nothing: it depends on the kind alone."""
    [curve] = _fitted([JobView("new", kind, arrival_seconds=0.0)])
    return curve


def curves_of(accounts: Sequence[Account]) -> Curves:
    """Return the curves of accounts that are up to date, in their order."""
    fitted = [account.curve for account in accounts if account.curve is not None]
    assert len(fitted) == len(accounts), "refresh the accounts first"
    chosen = np.array([curve.chosen for curve in fitted], dtype=np.int64)
    parameters = np.stack([curve.parameters for curve in fitted])
    return Curves(QUALITY_FAMILIES, chosen, parameters)


def _look_at_costs(accounts: Sequence[Account]) -> None:
    newest = np.stack([account.history.newest for account in accounts])
    counts = np.array([account.history.count for account in accounts])
    totals = np.array([account.description.work_total for account in accounts])
    grows = np.array([account.description.costs_grow for account in accounts])
    steps = steps_ahead(newest[:, :, 0], newest[:, :, 2], counts, totals, grows)
    for account, step in zip(accounts, steps.tolist(), strict=True):
        account.ahead = StepAhead(*step)


def steps_ahead(
    work: FloatArray, core_seconds: FloatArray, counts: IntArray, totals: FloatArray, grows: BoolArray
) -> FloatArray:
    """Return work, core-seconds and growth of the core-seconds of each job's next step, shape (J, 3).

    work, core_seconds: of the steps so far, shape (J, W), oldest first, NaN where there are fewer. counts: of
    all steps; totals: the work at the end; grows: whether costs grow; shape (J,). The next step does as much
    as the last one, or what is left. Its cost is what a unit of work has cost lately, times its work: a
    constant, SLAQ's c·S over the same rows S each time, or the thesis's line where costs grow.
    """
    before = np.concatenate([np.full((len(work), 1), np.nan), work[:, :-1]], axis=1)
    is_first = np.arange(work.shape[1]) == work.shape[1] - counts[:, None]
    made = work - np.where(is_first, 0.0, before)
    step_work = np.maximum(np.minimum(made[:, -1], totals - work[:, -1]), LEAST_STEP_WORK)
    rates = Series.of(work, core_seconds / np.where(made > 0, made, np.nan))
    slope, offset = line_cost(rates)
    rate = np.where(grows, offset + slope * (work[:, -1] + step_work), constant_cost(rates))
    cost = np.where(np.isfinite(rate), rate, 0.0) * step_work
    growth = np.where(grows, slope * step_work**2, 0.0)
    return np.stack([step_work, np.maximum(cost, LEAST_CORE_SECONDS), growth], axis=1)


AHEAD_POINTS = 16
AHEAD_FACTOR = 2.0  # how far ahead a job without an end is shown: to so many times its work

KIND_WORDS = {Kind.QUERY: "query", Kind.TRAINING: "training", Kind.EXACT: "exact", Kind.FOREIGN: "foreign"}


def job_statuses(
    accounts: Sequence[Account],
    shares: Mapping[str, float],
    now_seconds: float,
    running: Mapping[str, Sequence[float]],
) -> tuple[JobStatus, ...]:
    """Return the jobs' statuses, in the order of the accounts. shares: planned cores by job, 0 if absent.

    running: as in `Allocator.status`.
    """
    if not accounts:
        return ()
    from relaqs.policies.shortest_remaining_time import remaining_core_seconds

    refresh(accounts)
    curves = curves_of(accounts)
    jobs = Jobs.of([account.view() for account in accounts])
    left = remaining_core_seconds(View(now_seconds, 0.0, jobs, curves=curves)).tolist()
    work = _work_ahead(jobs)
    ahead = np.stack([work, curves.at(work)], axis=2)
    is_known = is_predictable(jobs)
    return tuple(
        _status(
            account,
            now_seconds,
            state=_state(account, account.description.id in running),
            used_cores=account.usage.cores(now_seconds, running.get(account.description.id, ())),
            share_cores=shares.get(account.description.id, 0.0),
            core_seconds_left=_known(left[row]) if account.ahead.step_core_seconds > 0 else None,
            predicted=tuple(map(tuple, ahead[row].tolist())) if is_known[row] else (),
        )
        for row, account in enumerate(accounts)
    )


def _work_ahead(jobs: Jobs) -> FloatArray:
    """Return evenly spaced work from now to the end, or to twice of now, shape (J, AHEAD_POINTS)."""
    done = jobs.work_done
    end = np.where(np.isfinite(jobs.work_total), jobs.work_total, AHEAD_FACTOR * done)
    return np.linspace(done, np.maximum(end, done), AHEAD_POINTS, axis=1)


def _status(
    account: Account,
    now_seconds: float,
    *,
    state: JobState,
    used_cores: float,
    share_cores: float,
    core_seconds_left: float | None,
    predicted: Curve,
) -> JobStatus:
    described = account.description
    return JobStatus(
        id=described.id,
        name=described.name,
        kind=KIND_WORDS[described.kind],
        state=state,
        client=described.client,
        weight=account.weight,
        arrived_seconds_ago=now_seconds - account.arrived_seconds,
        share_cores=share_cores,
        used_cores=used_cores,
        quality=account.newest[-1][1] if account.newest else None,
        target=account.target,
        work_done=account.work_done,
        work_total=_known(described.work_total),
        attained_core_seconds=account.attained_core_seconds,
        core_seconds_left=core_seconds_left,
        history=tuple(account.newest),
        predicted=predicted,
        user=described.user,
        deadline_seconds_left=_known(account.arrived_seconds + described.deadline_seconds - now_seconds),
        urgency=described.goals.urgency,
        accuracy=None if account.accuracy is None else account.accuracy.newest,
        accuracy_required=_known(described.goals.accuracy),
    )


def _state(account: Account, is_running: bool) -> JobState:
    if not account.is_waiting:
        return "paused"
    return "running" if is_running or account.attained_core_seconds > 0 else "waiting"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
