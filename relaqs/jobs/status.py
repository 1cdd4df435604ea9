"""How things stand, for people: every job, what it gets, what it uses, how good it is and will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

JobState = Literal["waiting", "running", "paused"]

Curve = tuple[tuple[float, float], ...]
"""(work, quality) pairs, work rising, in the units of the job's reports."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, as `Session.status` tells of it. Core-seconds are measured; a share of 2.0 is two cores.

    Attributes:
        client: the process that the job belongs to.
        user: who asked for it, "" where nobody was named.
        kind: the kind of the job in words, as in `Kind`.
        state: "waiting" until something of it is computed.
        share_cores: what the policy has planned for it.
        used_cores: what it used over the last second or so: measured for tasks that have ended, held for
            those that run.
        quality: error or loss of the newest step, None before.
        target: the error or loss it may stop at.
        work_done: the share of its rows, or its steps.
        work_total: the work at its end, None where that is unknown.
        core_seconds_left: to its target or its end, None where that is unknown.
        history: the newest steps.
        predicted: what lies ahead, beginning with now.
        slots: those that a gang holds now; None where the job is none (see `relaqs.training`).
        batch_rows: the rows of a gang's steps.
        rescales: how often a gang's slots or rows have changed.
        workers: the addresses of those that have parts of its model; empty where it is not cut.
        deadline_seconds_left: until its user wants it done, negative once that is over; None: no hurry.
        urgency: from 1 to 10, how much that counts.
        accuracy: of a classifier in training, after its last pass; None where it is not measured.
        accuracy_required: what its user wants, None where nothing.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(10_000) AS t(x)"), "data/numbers", force=True)
    >>> with relaqs.connect("data", threads=1) as db:
    ...     query = db.online_sql("SELECT avg(x) AS mean FROM numbers", priority=2.0)
    ...     query.pause()
    ...     [(job.name, job.weight) for job in db.status().jobs]
    [('SELECT avg(x) AS mean FROM numbers', 2.0)]
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
    user: str = ""
    slots: int | None = None
    batch_rows: int | None = None
    rescales: int | None = None
    workers: tuple[str, ...] = ()
    deadline_seconds_left: float | None = None
    urgency: float = 1.0
    accuracy: float | None = None
    accuracy_required: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything that shares the cores at one moment. `Session.status` returns it.

    Attributes:
        time_seconds: on the scheduler's clock.
        capacity_cores: what there is to share.
        policy: who decides, by name.
        jobs: in the order in which they arrived.
        core_seconds: what jobs were charged so far, by their kind, with those that are over.
        slot_policy: who divides slots among gangs, by name; "" where there are no gangs.

    >>> ClusterStatus(time_seconds=12.5, capacity_cores=8.0, policy="fair", jobs=()).capacity_cores
    8.0
    """

    time_seconds: float
    capacity_cores: float
    policy: str
    jobs: tuple[JobStatus, ...]
    core_seconds: Mapping[str, float] = field(default_factory=dict)
    slot_policy: str = ""
