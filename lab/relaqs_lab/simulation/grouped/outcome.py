"""What came of jobs that shared machines in groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.simulation.grouped.queries import QueryOutcome


@dataclass(frozen=True, slots=True, eq=False)
class GroupedOutcome:
    """What each of J jobs did, columns of shape (J,) in the order of arrival. Times in seconds, NaN: never.

    Attributes:
        end_seconds: on the clock of the arrivals.
        moves: how often a job was started on machines after its first time.
        paused_seconds: how long it was being saved and loaded.
        running_seconds: how long it made iterations.
        waited_seconds: how long no machine had anything of it.
        loss_seconds: the integral of its loss over time, from its arrival to its end, where the loss is 1 at
            the start and 0 at the end.
        cpu_share, net_share: of all machines' time, from the first arrival to the last end, in which they
            computed and communicated.
        jobs_mean, groups_mean: how many jobs were in groups, and how many groups there were, on average.
        spilled_mean: the mean α of jobs in groups.
        model_errors: |measured − predicted| / measured of the iteration of each group, over the times between
            changes in which each of its jobs made 3 iterations or more, shape (k,).
        decision_seconds: what each plan took by the stopwatch, shape (plans,).
        queries: beside the jobs. None: there were none.
    """

    names: tuple[str, ...]
    arrival_seconds: FloatArray
    end_seconds: FloatArray
    moves: FloatArray
    paused_seconds: FloatArray
    running_seconds: FloatArray
    waited_seconds: FloatArray
    loss_seconds: FloatArray
    cpu_share: float
    net_share: float
    jobs_mean: float
    groups_mean: float
    spilled_mean: float
    model_errors: FloatArray
    decision_seconds: FloatArray
    queries: QueryOutcome | None = None

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to end."""
        return self.end_seconds - self.arrival_seconds

    @property
    def makespan_seconds(self) -> float:
        """The time from the first arrival to the last end; NaN if a job did not end."""
        return float(np.max(self.end_seconds) - self.arrival_seconds[0])

    @property
    def moving_share(self) -> float:
        """The part of the jobs' time on machines in which they were saved and loaded again."""
        total = float(self.paused_seconds.sum() + self.running_seconds.sum())
        return float(self.paused_seconds.sum()) / total if total > 0 else 0.0
