"""How things stand, for people: every job, what it gets, what it uses, how good it is and will be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JobState = Literal["waiting", "running", "paused"]

Curve = tuple[tuple[float, float], ...]
"""(work, quality) pairs, work rising, in the units of the job's reports."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job. Core-seconds are measured; shares are cores, i.e. core-seconds a second.

    kind: in words, as in `Kind`. state: waiting until something of it is computed. share_cores: as planned.
    used_cores: over the last second or so, as measured of tasks that have ended, and as held by those that
    run. quality: error or loss of the newest step, None before. work_total: None where nobody knows.
    core_seconds_left: to its target or its end, None if nobody knows. history: the newest steps. predicted:
    what lies ahead, beginning with now.
    """

    id: str
    name: str
    kind: str
    state: JobState
    client: str
    weight: float
    arrived_seconds_ago: float
    share_cores: float
    used_cores: float
    quality: float | None
    target: float | None
    work_done: float
    work_total: float | None
    attained_core_seconds: float
    core_seconds_left: float | None
    history: Curve
    predicted: Curve


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything at one moment. time_seconds: on the scheduler's clock. jobs: in the order they arrived."""

    time_seconds: float
    capacity_cores: float
    policy: str
    jobs: tuple[JobStatus, ...]
