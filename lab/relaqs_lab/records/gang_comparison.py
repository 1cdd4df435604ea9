"""What is told of elastic jobs under slot policies, so that policies can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from relaqs_lab.records.comparison import Figure
from relaqs_lab.records.gang_run import GangRun
from relaqs_lab.records.side_by_side import ratio_to

GANG_MEASURES: dict[str, Callable[[GangRun], float]] = {
    "completion_seconds": lambda run: float(run.jobs.completion_seconds.mean()),
    "completion_seconds_median": lambda run: float(np.median(run.jobs.completion_seconds)),
    "completion_seconds_p99": lambda run: float(np.percentile(run.jobs.completion_seconds, 99)),
    "longest_seconds": lambda run: float(run.jobs.completion_seconds.max()),
    "executed_seconds": lambda run: float(run.jobs.executed_seconds.mean()),
    "queuing_seconds": lambda run: float(run.jobs.queuing_seconds.mean()),
    "makespan_seconds": lambda run: run.makespan_seconds,
    "used_share": lambda run: run.used_share,
    "lost_share": lambda run: run.lost_share,
    "rescales": lambda run: float(run.jobs.rescales.mean()),
    "decision_ms": lambda run: run.decision_ms_mean,
}
"""What is told of a run: one number each. NaN where a job did not end."""


def relative(
    runs: Sequence[GangRun], reference: Sequence[GangRun], measure: str = "completion_seconds"
) -> Figure:
    """Return the mean over seeds of a number of some runs relative to other runs of the same seeds."""
    return ratio_to(reference, runs, GANG_MEASURES[measure])


def share_within(runs: Sequence[GangRun], seconds: float) -> Figure:
    """Return the share of the jobs that ended so many seconds after they came at most."""
    return Figure.of([float((run.jobs.completion_seconds <= seconds).mean()) for run in runs])


def wilcoxon_p(runs: Sequence[GangRun], reference: Sequence[GangRun]) -> float:
    """Return the two-sided p of the signed-rank test over a seed's jobs, the middle one of all seeds.

    A pair is a job's time from arrival to end under both. NaN where no seed has both, or a job did not end.
    """
    from scipy.stats import wilcoxon

    theirs = {run.seed: run.jobs.completion_seconds for run in reference}
    pairs = [(run.jobs.completion_seconds, theirs[run.seed]) for run in runs if run.seed in theirs]
    return float(np.median([wilcoxon(a, b).pvalue for a, b in pairs])) if pairs else math.nan
