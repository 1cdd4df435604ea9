"""How much a job still computes, and who runs: what several policies order jobs by."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.parts.resources import DEVICES
from relaqs.parts.view import PlacedView


def device_shares(view: PlacedView) -> FloatArray:
    """Return the devices that each job uses while it runs, counted by shares; shape (J,), above 0."""
    used = np.bincount(view.parts.job, weights=view.parts.demand[:, DEVICES], minlength=len(view.jobs))
    return np.maximum(used, 1e-9)


def device_seconds_left(view: PlacedView) -> FloatArray:
    """Return what each job still needs of devices, alone, in seconds of whole devices; shape (J,)."""
    return device_shares(view) * view.jobs.iterations_left * view.jobs.iteration_seconds


def runs(view: PlacedView) -> BoolArray:
    """Return which jobs have a part that is placed, shape (J,)."""
    running = np.zeros(len(view.jobs), dtype=np.bool_)
    running[view.parts.job[view.parts.is_placed]] = True
    return running


def iterations_to_accuracy(view: PlacedView) -> FloatArray:
    """Return how many iterations each job is expected to make until it has its accuracy or ends, shape (J,).

    Accuracy is taken to approach its end as a/(n + a) does: a gain g in the last n₀ iterations, after n, is
    one of about g·(n/n₀)·m/(n + m) in the next m. A job that may not stop makes all iterations.
    """
    jobs = view.jobs
    left, done = jobs.iterations_left, jobs.iterations_done
    lacks = np.maximum(jobs.accuracy_required - jobs.accuracy, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = jobs.accuracy_gain * done / (0.1 * jobs.iterations_most)
        needed = np.where(lacks < most, done * lacks / (most - lacks), left)
    known = jobs.may_stop & ~np.isnan(jobs.accuracy_gain)
    return np.where(known, np.minimum(needed, left), left)
