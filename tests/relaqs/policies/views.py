"""Views for tests: a few jobs written out by hand, and any jobs at all for laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaqs.policies import POLICIES, Utility
from relaqs.sharing.view import History, Jobs, JobView, Kind, Observation, Policy, View

STEPS_OF_A_QUERY = 50


def every_policy(**parameters: Any) -> list[Policy]:
    """Each policy of the registry; those that take the parameters get them."""
    made = []
    for make in POLICIES.values():
        takes = {key: value for key, value in parameters.items() if key in make.__dataclass_fields__}
        if make is Utility:
            takes["utility"] = lambda errors, jobs: 1.0 * (errors <= 0.3) - errors
        made.append(make(**takes))
    return made


def query(id: str, steps_done: int, *, error: float = 0.2, seconds: float = 0.0, **more: Any) -> JobView:
    """A query after so many of 50 mini-batches of a core-second each; `error` is that after the first."""
    step = np.arange(1.0, steps_done + 1)
    errors = error * np.sqrt((STEPS_OF_A_QUERY / step - 1.0) / (STEPS_OF_A_QUERY - 1.0))
    progress = np.where(step == 1, 1.0, 1.0 / np.sqrt(step * np.maximum(step - 1, 1)))
    seen = [
        Observation(i / STEPS_OF_A_QUERY, e, 1.0, p) for i, e, p in zip(step, errors, progress, strict=True)
    ]
    settings = {
        "step_work": 1 / STEPS_OF_A_QUERY,
        "step_core_seconds": 1.0,
        "attained_core_seconds": steps_done,
    }
    return JobView(id, Kind.QUERY, seconds, history=History().followed_by(*seen), **{**settings, **more})


def training(id: str, steps_done: int, *, rate: float = 0.3, seconds: float = 0.0, **more: Any) -> JobView:
    """A training run after so many steps of a core-second each, its loss 1/(1 + rate·k)."""
    step = np.arange(1.0, steps_done + 1)
    seen = [Observation(k, 1 / (1 + rate * k), 1.0) for k in step]
    settings = {"step_work": 1.0, "step_core_seconds": 1.0, "work_total": math.inf}
    settings["attained_core_seconds"] = steps_done
    return JobView(id, Kind.TRAINING, seconds, history=History().followed_by(*seen), **{**settings, **more})


def view(*jobs: JobView, cores: float = 8.0, epoch_seconds: float = 0.5) -> View:
    return View(100.0, cores, Jobs.of(jobs), epoch_seconds)


def cores(policy: Policy, *jobs: JobView, cores: float = 8.0) -> dict[str, float]:
    """What the policy gives each of the jobs."""
    return policy.plan(view(*jobs, cores=cores)).cores_by_job()


@st.composite
def any_job(draw: st.DrawFn, id: str) -> JobView:
    """A job of any kind, at any stage, with any limits; also with results that nobody would wish for."""
    kind = draw(st.sampled_from(Kind))
    steps = draw(st.integers(0, 30))
    more: dict[str, Any] = {
        "seconds": draw(st.floats(0, 100)),
        "weight": draw(st.sampled_from([0.1, 1.0, 1.0, 2.0, 7.5])),
        "cores_most": draw(st.sampled_from([0.5, 1.0, 3.0, 64.0, math.inf])),
        "step_core_seconds": draw(st.floats(0.01, 100.0)),
        "growth_core_seconds": draw(st.sampled_from([0.0, 0.1])),
        "spent_core_seconds": draw(st.floats(0.0, 5.0)),
        "target": draw(st.sampled_from([math.nan, 0.01, 0.3])),
    }
    if kind is Kind.TRAINING:
        return training(id, steps, rate=draw(st.floats(0.0, 3.0)), **more)
    job = query(id, steps, error=draw(st.sampled_from([0.0, 0.01, 0.5, 3.0, math.inf])), **more)
    return job if kind is Kind.QUERY else JobView(id, kind, more.pop("seconds"), **more)


@st.composite
def any_view(draw: st.DrawFn, most_jobs: int = 8) -> View:
    count = draw(st.integers(0, most_jobs))
    jobs = [draw(any_job(f"job {i}")) for i in range(count)]
    capacity = draw(st.sampled_from([0.0, 0.5, 2.0, 8.0, 100.0]))
    return View(100.0, capacity, Jobs.of(jobs), draw(st.sampled_from([0.1, 0.5, 10.0])))
