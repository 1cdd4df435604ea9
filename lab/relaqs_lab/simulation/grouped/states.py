"""The jobs while time goes on: where each is, and what a policy may know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from relaqs_lab.groups.subtasks import Phase, SubtaskTimes
from relaqs_lab.simulation.grouped.running import RunningGroup
from relaqs_lab.simulation.grouped.turns import IterationSeconds
from relaqs_lab.simulation.grouped.workload import GroupedJob


class Place(IntEnum):
    """Where a job is."""

    TO_COME = 0
    OUTSIDE = 1  # no machine has anything of it but its rows and its last checkpoint
    LOADED = 2  # is being loaded
    RUNNING = 3
    SAVED = 4  # is being saved
    ENDED = 5


@dataclass(slots=True, eq=False)
class GroupedJobState:
    """One job.

    Attributes:
        job: what it does.
        told: by how much a policy is misled about its COMP and COMM, 1: not at all.
        target: the group that it is meant to be in.
        host: the group whose machines it takes now.
        spilled: its α.
        is_known: its times have been profiled.
        waited_seconds: until `since_seconds`, in which no machine had anything of it.
        loss_seconds: the integral of its loss over time, until `noted_seconds`.
        version: counts changes of place, so that what was to happen before means nothing.
    """

    job: GroupedJob
    told: tuple[float, float]
    is_known: bool
    place: Place = Place.TO_COME
    target: RunningGroup | None = None
    host: RunningGroup | None = None
    spilled: float = 0.0
    iterations_done: int = 0
    version: int = 0
    since_seconds: float = 0.0
    moves: int = 0
    paused_seconds: float = 0.0
    running_seconds: float = 0.0
    waited_seconds: float = 0.0
    loss_seconds: float = 0.0
    noted_seconds: float = 0.0
    end_seconds: float = np.nan
    was_saved: bool = False

    def enter(self, place: Place, now: float) -> None:
        """Be somewhere from now on."""
        passed = now - self.since_seconds
        if self.place is Place.OUTSIDE:
            self.waited_seconds += passed
        elif self.place is Place.RUNNING:
            self.running_seconds += passed
        elif self.place is Place.SAVED or (self.place is Place.LOADED and self.was_saved):
            self.paused_seconds += passed
        self.place, self.since_seconds = place, now
        self.version += 1

    def note_loss(self, now: float) -> None:
        """Add the loss since the last iteration ended, or since it came, to the integral."""
        self.loss_seconds += (now - self.noted_seconds) * self.job.loss(self.iterations_done)
        self.noted_seconds = now

    def needs(
        self, machines: int, disk_bytes_per_second: float, decode_seconds_per_byte: float
    ) -> IterationSeconds:
        """Return what an iteration takes on so many machines."""
        job = self.job
        comm = job.comm_seconds * (1.0 - 1.0 / machines)
        read = self.spilled * job.input_bytes / machines
        return IterationSeconds(
            pull=job.pull_share * comm,
            comp=job.comp_machine_seconds / machines + read * decode_seconds_per_byte,
            push=(1.0 - job.pull_share) * comm,
            reload=read / disk_bytes_per_second,
        )

    def seen(self, now: float, decode_seconds_per_byte: float) -> SubtaskTimes:
        """Return what a policy sees of it."""
        done = self.iterations_done
        outside = now - self.since_seconds if self.place is Place.OUTSIDE else 0.0
        phase = Phase.PROFILED if self.is_known else Phase.NEW
        if self.target is not None:
            phase = Phase.RUNNING
        elif done:
            phase = Phase.PAUSED
        comp, comm = self.told if self.is_known else (np.nan, np.nan)
        return SubtaskTimes(
            self.job.name,
            comp_machine_seconds=self.job.comp_machine_seconds * comp,
            comm_seconds=self.job.comm_seconds * comm,
            input_bytes=self.job.input_bytes,
            model_bytes=self.job.model_bytes,
            decode_seconds_per_byte=decode_seconds_per_byte,
            arrival_seconds=self.job.arrival_seconds,
            phase=phase,
            iterations_left=float(self.job.iterations - done),
            loss=self.job.loss(done),
            loss_fall=self.job.loss(done) - self.job.loss(done + 1),
            waited_seconds=self.waited_seconds + outside,
        )


def noisy(needs: IterationSeconds, factors: Sequence[float]) -> IterationSeconds:
    """Return an iteration whose pull, COMP and push take so many times as long."""
    pull, comp, push = factors
    return IterationSeconds(needs.pull * pull, needs.comp * comp, needs.push * push, needs.reload)


@dataclass(slots=True)
class Means:
    """Numbers that are averaged over time."""

    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, seconds: float, **values: float) -> None:
        self.seconds += seconds
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + seconds * value

    def of(self, name: str) -> float:
        return self.sums.get(name, 0.0) / self.seconds if self.seconds > 0 else 0.0
