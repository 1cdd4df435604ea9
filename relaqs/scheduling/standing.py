"""From accounts to what people are shown of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.job import Curve, JobState, JobStatus
from relaqs.scheduling.forecasts import curves_of, refresh
from relaqs.scheduling.ledger import Account
from relaqs.sharing.outlook import is_predictable
from relaqs.sharing.view import Jobs, Kind, View

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
