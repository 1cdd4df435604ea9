"""Traces made up from theory, for studies beyond the recorded: sampling, and two kinds of convergence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.view import Kind
from relaqs_lab.records.trace import Trace

CONFIDENT = 1.96  # standard errors of a 95 % interval
COST_SPREAD = 0.2  # steps take this much more or less than their mean
QUERY_STEPS, TRAINING_STEPS = 50, 60
MOST_CELLS = 50


def query_trace(random: np.random.Generator, core_seconds: float, *, steps: int = QUERY_STEPS) -> Trace:
    """Return an aggregation query in equal mini-batches: after i of N the standard error is √((N−i)/(iN)).

    Its 1 to 50 cells are means over the mini-batches so far of normal values, so that estimates, their true
    errors and how far they move from one to the next belong together as they do in sampling.
    """
    cells = int(random.integers(1, MOST_CELLS + 1))
    deviation = random.uniform(0.02, 0.5)
    i = np.arange(1, steps + 1.0)
    means = random.normal(size=(cells, steps)).cumsum(axis=1) / i
    moves = np.abs(np.diff(means, axis=1, prepend=np.nan))
    largest = np.fmax.accumulate(moves, axis=1)
    half_width = CONFIDENT * deviation * np.sqrt((steps - i) / (i * steps))
    return Trace(
        name="query",
        kind=Kind.QUERY,
        work_done=i / steps,
        quality=half_width * random.uniform(0.95, 1.05, steps),
        true_error=deviation * np.abs(means - means[:, -1:]).mean(axis=0),
        core_seconds=_costs(random, core_seconds, steps),
        progress=np.concatenate([[1.0], (moves[:, 1:] / largest[:, 1:]).mean(axis=0)]),
    )


def training_trace(random: np.random.Generator, core_seconds: float, *, steps: int = TRAINING_STEPS) -> Trace:
    """Return a training run: its loss falls like 1/(1 + r·k), or like μᵏ, each half of the time.

    Source: SLAQ, sublinear and linear convergence.
    """
    k = np.arange(float(steps))
    is_sublinear = random.random() < 0.5
    rate, ratio = random.uniform(0.1, 1.0), random.uniform(0.8, 0.95)
    shape = 1 / (1 + rate * k) if is_sublinear else ratio**k
    loss = random.uniform(0.1, 1000.0) * (shape + random.uniform(0.0, 1.0))
    change = np.abs(np.diff(loss, prepend=np.nan))
    return Trace(
        name="sublinear training" if is_sublinear else "linear training",
        kind=Kind.TRAINING,
        work_done=k + 1.0,
        quality=loss,
        true_error=loss - loss.min(),
        core_seconds=_costs(random, core_seconds, steps),
        progress=np.where(k == 0, 1.0, change / np.nanmax(change)),
    )


def _costs(random: np.random.Generator, core_seconds: float, steps: int) -> FloatArray:
    return core_seconds / steps * random.uniform(1 - COST_SPREAD, 1 + COST_SPREAD, steps)


TraceFamily = Callable[[np.random.Generator, float], Trace]

FAMILIES: dict[str, TraceFamily] = {"query": query_trace, "training": training_trace}
