"""From what was seen of a job to the steps of its record: snapshots and meters, or losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from relaqs_lab.records.query_run import Steps

from relaqs.queries.snapshot import Snapshot
from relaqs_tpch.metered_executor import StepMeter
from relaqs_tpch.truth import Truth, Verdict

if TYPE_CHECKING:
    from relaqs.training import TrainingStep

Meters = Mapping[int, StepMeter]


def steps_of_query(
    snapshots: Sequence[Snapshot], meters: Meters, truth: Truth, *, submitted_at: float = math.nan
) -> Steps:
    """Return a query's steps, one a snapshot. What steps without a snapshot took counts with the next one.

    submitted_at: when the query was, on `time.perf_counter`.
    """
    verdicts = [truth.verdict(snapshot) for snapshot in snapshots]
    last = [snapshot.batch - 1 for snapshot in snapshots]
    begins = [0, *(batch + 1 for batch in last[:-1])]
    within = [
        [meters[step] for step in range(begin, end + 1) if step in meters]
        for begin, end in zip(begins, last, strict=True)
    ]
    moved = [meters[step].progress if step in meters else math.nan for step in last]
    elapsed = [snapshot.elapsed_seconds for snapshot in snapshots]
    return _steps(
        work_done=[snapshot.fraction for snapshot in snapshots],
        quality=[snapshot.error for snapshot in snapshots],
        progress=[0.0 if math.isnan(each) else each for each in moved],
        elapsed_seconds=elapsed,
        core_seconds=[sum(meter.core_seconds for meter in each) for each in within],
        verdicts=verdicts,
        **_pipeline(within, elapsed, submitted_at),
    )


def steps_of_training(
    passes: Sequence[TrainingStep], meters: Meters, *, submitted_at: float = math.nan
) -> Steps:
    """Return a training run's steps, one a pass; the first look at the data counts with the first.

    submitted_at: when the run was, on `time.perf_counter`.
    """
    losses = np.array([step.loss for step in passes])
    taken = [step.core_seconds for step in passes]
    taken[0] += max(sum(meter.core_seconds for meter in meters.values()) - sum(taken), 0.0)
    change = np.abs(np.diff(losses, prepend=np.nan))
    largest = np.fmax.accumulate(change)
    moved = np.where(largest > 0, change / np.where(largest > 0, largest, 1.0), 0.0)
    above_least = [Verdict(float(loss), math.nan, 0, 0, 0) for loss in losses - losses.min()]
    looks = len(meters) - len(passes)  # steps before the first pass
    ordered = [meters[step] for step in sorted(meters)]
    within = [ordered[: looks + 1], *([meter] for meter in ordered[looks + 1 :])]
    elapsed = [step.elapsed_seconds for step in passes]
    return _steps(
        work_done=[float(count) for count in range(1, len(passes) + 1)],
        quality=losses.tolist(),
        progress=[1.0, *moved[1:].tolist()],
        elapsed_seconds=elapsed,
        core_seconds=taken,
        verdicts=above_least,
        **_pipeline(within, elapsed, submitted_at),
    )


def _pipeline(
    within: Sequence[Sequence[StepMeter]], elapsed_seconds: Sequence[float], submitted_at: float
) -> dict[str, Sequence[float]]:
    """Return how each step was worked off. within: the meters of the executor's steps that it is made of."""
    at = [submitted_at + seconds for seconds in elapsed_seconds]
    folds, before = [], -math.inf
    for meters, end in zip(within, at, strict=True):
        ended = max(meters[-1].ended_at, before) if meters else before
        between = sum(max(b.queued_at - a.ended_at, 0.0) for a, b in pairwise(meters))
        folds.append(max(end - ended, 0.0) + between)
        before = end
    return {
        "tasks": [float(max((meter.cores for meter in meters), default=0)) for meters in within],
        "held_seconds": [sum(meter.held_seconds for meter in meters) for meters in within],
        "queued_seconds": [meters[0].queued_at - submitted_at if meters else math.nan for meters in within],
        "fold_seconds": folds,
    }


def _steps(*, verdicts: Sequence[Verdict], **columns: Sequence[float]) -> Steps:
    return Steps(
        half_width=np.array([verdict.half_width for verdict in verdicts]),
        true_error=np.array([verdict.error for verdict in verdicts]),
        cells=np.array([verdict.cells for verdict in verdicts], dtype=np.float64),
        certified=np.array([verdict.certified for verdict in verdicts], dtype=np.float64),
        held=np.array([verdict.held for verdict in verdicts], dtype=np.float64),
        **{name: np.array(values, dtype=np.float64) for name, values in columns.items()},
    )
