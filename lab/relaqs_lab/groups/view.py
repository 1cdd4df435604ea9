"""What a group policy sees: the time, the machines, the jobs, and which jobs share which machines now."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaqs_lab.groups.subtasks import Subtasks


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines that are all alike.

    Attributes:
        machines: how many there are.
        memory_bytes: of each machine, for rows and parameters.
        disk_bytes_per_second: at which a machine reads its disk.

    Raises:
        ValueError: there are no machines, or they have no memory or no disk.

    >>> Fleet(machines=100).memory_bytes
    inf
    """

    machines: int
    memory_bytes: float = math.inf
    disk_bytes_per_second: float = math.inf

    def __post_init__(self) -> None:
        if self.machines < 1:
            raise ValueError(f"machines is {self.machines}; a fleet has at least 1")
        for name in ("memory_bytes", "disk_bytes_per_second"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that have the same machines in turns.

    Attributes:
        jobs: their ids.
        machines: how many. Which ones is the carrier's choice, who keeps as many as it can.

    Raises:
        ValueError: there is no job or no machine.
    """

    jobs: tuple[str, ...]
    machines: int

    def __post_init__(self) -> None:
        if not self.jobs or self.machines < 1:
            raise ValueError(f"a group has {len(self.jobs)} jobs and {self.machines} machines; give it both")


@dataclass(frozen=True, slots=True)
class Lost:
    """A job that ended since the last plan.

    Attributes:
        group: the position of its group among the view's groups.
        comp_machine_seconds, comm_seconds: what it took from that group, as in `Subtasks`.
    """

    group: int
    comp_machine_seconds: float
    comm_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class GroupView:
    """All that one decision of a group policy may depend on.

    Attributes:
        time_seconds: now, on the clock of the arrivals.
        fleet: the machines.
        subtasks: the jobs that have not ended, running or waiting.
        groups: who shares machines now. A job in none of them waits.
        lost: the jobs that ended since the last plan, where others of their groups are left.
        memory: what this policy put into its last plan. None at first, and after a restart.

    Raises:
        ValueError: a group has an unknown job, a job is in two groups, or there are not so many machines.

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0)])
    >>> len(GroupView(0.0, Fleet(4), jobs, (Group(("a",), 4),)).groups)
    1
    """

    time_seconds: float
    fleet: Fleet
    subtasks: Subtasks
    groups: tuple[Group, ...] = ()
    lost: tuple[Lost, ...] = ()
    memory: object | None = None

    def __post_init__(self) -> None:
        check_groups(self.groups, self.subtasks.ids, self.fleet.machines)
        if any(not 0 <= each.group < len(self.groups) for each in self.lost):
            raise ValueError(f"a job was lost from a group that is none of the {len(self.groups)}")


def check_groups(groups: tuple[Group, ...], ids: tuple[str, ...], machines: int) -> None:
    """Raise ValueError where groups have jobs twice or jobs that are unknown, or too many machines."""
    grouped = [job for group in groups for job in group.jobs]
    if len(set(grouped)) != len(grouped):
        raise ValueError("a job is in two groups; each job is in one at most")
    if unknown := set(grouped) - set(ids):
        raise ValueError(f"a group has the job {min(unknown)!r}, which is not among the jobs")
    if (taken := sum(group.machines for group in groups)) > machines:
        raise ValueError(f"the groups have {taken} machines together, and there are {machines}")
