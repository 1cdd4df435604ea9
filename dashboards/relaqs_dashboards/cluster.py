"""The cores and who has them, as a page shows it; and in words, when cores move, where to and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaqs.policies import why_cores_moved
from relaqs_dashboards.wire import ClusterJob, ClusterUpdate

if TYPE_CHECKING:
    from relaqs.jobs.job import ClusterStatus, JobStatus

MOVE_SHARE = 0.15  # of the capacity: smaller moves are not worth a line
SECONDS_BETWEEN_LINES = 1.5
MOST_CURVE_POINTS = 50


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page may know of a job: its panel's title, and the panel's id if the page has it."""

    name: str
    panel: str | None = None


def cluster_update(status: ClusterStatus, shown: Mapping[str, Shown], at_ms: int) -> ClusterUpdate:
    """Return the cluster as one page sees it. shown: by job; of other jobs the page learns the kind alone."""
    jobs = tuple(_job(job, shown.get(job.id, Shown(_anonymous(job)))) for job in status.jobs)
    return ClusterUpdate(at_ms, status.capacity_cores, status.policy, jobs)


def _anonymous(job: JobStatus) -> str:
    return "another query" if job.kind == "query" else job.kind


def _job(job: JobStatus, shown: Shown) -> ClusterJob:
    return ClusterJob(
        id=job.id,
        name=shown.name,
        kind=job.kind,
        state=job.state,
        share=round(job.share_cores, 3),
        used=round(job.used_cores, 3),
        weight=job.weight,
        quality=_finite(job.quality),
        target=job.target,
        work_done=_finite(job.work_done),
        core_seconds_left=_finite(job.core_seconds_left),
        history=_curve(job.history),
        predicted=_curve(job.predicted),
        panel=shown.panel,
        slots=job.slots,
        batch_rows=job.batch_rows,
        rescales=job.rescales,
        workers=job.workers,
        urgency=job.urgency,
        due=job.deadline_seconds_left,
        accuracy=job.accuracy,
        accuracy_required=job.accuracy_required,
    )


def _curve(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return what can be drawn of a curve; an unknown error is infinite, and is left out."""
    drawn = [(work, quality) for work, quality in points if abs(quality) < float("inf")]
    return tuple((_short(work), _short(quality)) for work, quality in drawn[-MOST_CURVE_POINTS:])


def _short(value: float) -> float:
    """Return the value with as many digits as a drawing can show."""
    return float(f"{value:.4g}")


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None


class Moves:
    """Notices when cores move between jobs: the largest move, and not more often than people read.

    Compares with what was last said of a job, so that slow drifts count too.
    """

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._last_seconds = -math.inf

    def see(self, status: ClusterStatus) -> tuple[str, str] | None:
        """Return the job with the largest move of its share, and why it moved; None for a small move."""
        jobs = {job.id: job for job in status.jobs}
        change = {id: job.share_cores - self._said.get(id, 0.0) for id, job in jobs.items()}
        moved = max(change, key=lambda id: abs(change[id]), default=None)
        is_quiet = status.time_seconds < self._last_seconds + SECONDS_BETWEEN_LINES
        if moved is None or is_quiet or abs(change[moved]) < max(0.25, MOVE_SHARE * status.capacity_cores):
            return None
        have_ended = bool(set(self._said) - set(jobs))
        why = self._why(jobs[moved], change[moved], status.policy, have_ended)
        self._said = {id: job.share_cores for id, job in jobs.items()}
        self._weights = {id: job.weight for id, job in jobs.items()}
        self._last_seconds = status.time_seconds
        cores = f"{change[moved]:+.1f}".replace("-", "−")
        return moved, f"{cores} cores: {why}"

    def _why(self, job: JobStatus, change: float, policy: str, have_ended: bool) -> str:
        if job.state == "paused":
            return "it is paused"
        if job.id not in self._said:
            return "it is new"
        if job.target is not None and job.quality is not None and job.quality <= job.target and change < 0:
            return "it is good enough"
        if job.weight != self._weights[job.id]:
            return f"its weight is now {job.weight:g}"
        if change > 0 and have_ended:
            return "another job ended"
        return why_cores_moved(policy, is_more=change > 0)
