"""The jobs of a view in the order in which a policy considers them, with times for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.groups.subtasks import Subtasks

QueueOrder: TypeAlias = Literal["arrival", "shortest"]
"""Who is considered first: who came first, or who needs the fewest machine-seconds to the end."""

_FEW_COMPUTED = 16.0  # machine-seconds of COMP a second of COMM, where nothing is known of any job


def considered(jobs: Subtasks, order: QueueOrder = "arrival", *, by_phase: bool = True) -> Subtasks:
    """Return the jobs in order, and with the mean of the others' times where a job's own are not known.

    Running jobs come first, then paused, profiled and new ones (A3 of the reading of Algorithm 1). Within
    these they come by arrival, or by what they need to the end. Ties go by id, so the order of a view changes
    nothing.

    Args:
        jobs: any jobs.
        order: within a phase.
        by_phase: if not, the phases count alike.

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("b", 60.0, 4.0, arrival_seconds=5.0), SubtaskTimes("a")])
    >>> found = considered(jobs)
    >>> found.ids, found.comp_machine_seconds.tolist()
    (('a', 'b'), [60.0, 60.0])
    """
    filled = with_means(jobs)
    rank = np.argsort(np.argsort(np.array(jobs.ids, dtype=object)))
    phase = jobs.phase if by_phase else np.zeros(len(jobs), dtype=np.int64)
    first = filled.arrival_seconds if order == "arrival" else needed(filled)
    return filled.of_jobs(np.lexsort((rank, filled.arrival_seconds, first, phase)))


def needed(jobs: Subtasks) -> FloatArray:
    """Return the seconds of each job to its end on 16 machines; of one iteration where no end is known."""
    left = np.where(np.isnan(jobs.iterations_left), 1.0, jobs.iterations_left)
    return np.asarray(left * (jobs.comp_machine_seconds / 16 + jobs.comm_seconds))


def with_means(jobs: Subtasks) -> Subtasks:
    """Return the jobs, those with unknown times as the mean of the others."""
    known = jobs.is_known
    if known.all():
        return jobs
    comp = float(jobs.comp_machine_seconds[known].mean()) if known.any() else _FEW_COMPUTED
    comm = float(jobs.comm_seconds[known].mean()) if known.any() else 1.0
    return replace(
        jobs,
        comp_machine_seconds=np.where(known, jobs.comp_machine_seconds, comp),
        comm_seconds=np.where(known, jobs.comm_seconds, comm),
    )
