"""Who held which cores in each little span of a live run: what its tasks took, laid beside its errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_lab.records.trace import Decisions, Outcome

from relaqs_tpch.metered_executor import Held

SPAN_SECONDS = 0.05


def decisions_of(outcome: Outcome, held: Sequence[Sequence[Held]], started_at: float) -> Decisions:
    """Return which tasks held how many cores when, and how far each job was off at that moment.

    Args:
        held: the tasks of each job of the outcome.
        started_at: the run's beginning, on `time.perf_counter`.
    """
    decisions = Decisions()
    begins = np.arange(0.0, outcome.end_seconds, SPAN_SECONDS)
    begins = begins[begins < outcome.end_seconds]  # arange may round up to the end
    edges = np.append(begins, outcome.end_seconds)
    spans = np.diff(edges)
    cores = np.array([cores_in(tasks, started_at + edges) for tasks in held])
    errors = errors_at(outcome, begins)
    ends = outcome.arrival_seconds + outcome.completion_seconds
    is_present = (outcome.arrival_seconds[:, None] < edges[1:]) & (ends[:, None] > begins)
    for index in np.flatnonzero(is_present.any(axis=0)):
        present = is_present[:, index]
        decisions.add(
            float(begins[index]), float(spans[index]), errors[present, index], cores[present, index]
        )
    return decisions


def cores_in(tasks: Sequence[Held], edges_at: FloatArray) -> FloatArray:
    """Return how many cores these tasks held on average between each edge and the next, shape (edges − 1,).

    edges_at: rising, on `time.perf_counter`.
    """
    if not tasks:
        return np.zeros(len(edges_at) - 1)
    cores = np.array([each.cores for each in tasks], dtype=float)
    ended_at = np.array([each.ended_at for each in tasks])
    began_at = ended_at - np.array([each.held_seconds for each in tasks]) / cores
    changes = np.concatenate([cores, -cores])
    changed_at = np.concatenate([began_at, ended_at])
    order = np.argsort(changed_at, kind="stable")
    changed_at, holding = changed_at[order], changes[order].cumsum()
    taken = np.concatenate([[0.0], (holding[:-1] * np.diff(changed_at)).cumsum()])  # core-seconds until then
    return np.asarray(np.diff(np.interp(edges_at, changed_at, taken)) / np.diff(edges_at))


def errors_at(outcome: Outcome, at_seconds: FloatArray) -> FloatArray:
    """Return each job's true normalised error at each moment, 1 before its first result, (J, moments)."""
    errors = outcome.traces.error[outcome.trace]
    done = np.array([np.searchsorted(row, at_seconds, side="right") for row in outcome.step_seconds])
    newest = np.take_along_axis(errors, np.maximum(done - 1, 0), axis=1)
    return np.where(done > 0, newest, 1.0)
