"""What lies ahead of jobs, for all that reported anything new at once: curves and costs of steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.curves import Curves
from relaqs.prediction.runtime import constant_cost, line_cost
from relaqs.prediction.series import Series
from relaqs.scheduling.ledger import Account, QualityCurve, StepAhead
from relaqs.sharing.outlook import QUALITY_FAMILIES, fit_quality_curves
from relaqs.sharing.view import Jobs, JobView, Kind

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
