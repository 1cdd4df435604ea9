"""Groups of jobs that share machines in turns: what a group policy sees and says, in columns of numpy arrays.

A job of a parameter server computes (COMP), and pulls and pushes its model over the network (COMM). Jobs
of one group have the same machines: while one computes, another communicates. A policy sees a `GroupView`:
the time, the machines, what is known of the jobs (`Subtasks`), and which jobs share which machines now. It
says a `GroupPlan`: which jobs share which machines, how they take turns, and what lies on disk.

Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves are
in `relaqs_lab.group_policies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.view import Columns, PolicyOf


class Phase(IntEnum):
    """Where a job is on its way. The order is that in which Harmony considers jobs.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1, line 2, which names three of them without an order.
    """

    RUNNING = 0
    PAUSED = 1
    PROFILED = 2  # waits, and its times are known
    NEW = 3  # waits or is being profiled, and its times are not known


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """One job, as a row of `Subtasks`, with what a job mostly has. Attributes as there."""

    id: str
    comp_machine_seconds: float = np.nan
    comm_seconds: float = np.nan
    comp_fixed_seconds: float = 0.0
    comm_fixed_seconds: float = 0.0
    input_bytes: float = 0.0
    model_bytes: float = 0.0
    decode_seconds_per_byte: float = 0.0
    arrival_seconds: float = 0.0
    phase: Phase = Phase.PROFILED
    iterations_left: float = np.nan
    loss: float = np.nan
    loss_fall: float = np.nan
    weight: float = 1.0
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Subtasks(Columns):
    """J jobs, columns of shape (J,). Times are of one iteration, NaN where they are not known.

    Attributes:
        comp_machine_seconds: W, the computing that is divided by the machines of a group.
        comp_fixed_seconds: the computing that is not divided.
        comm_seconds: N, PULL and PUSH together on very many machines. On m they take N·(1 − 1/m): a machine
            sends itself nothing.
        comm_fixed_seconds: what PULL and PUSH take on any number of machines.
        input_bytes: the rows of all machines together, as they lie in memory.
        model_bytes: the parameters of all machines together.
        decode_seconds_per_byte: what it takes to use a byte that comes from the disk.
        phase: one of `Phase`.
        iterations_left: to the end, NaN where no one knows.
        loss: now, where it is 1 at the start and 0 at the end; NaN where no one knows.
        loss_fall: by which the next iteration is predicted to lower it, NaN where no one knows.
        weight: how much a job counts.
        waited_seconds: in no group since it came, in all.

    Raises:
        ValueError: two jobs have one name, the columns have different lengths, or a value is negative.

    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 30.0, 8.0)])
    >>> jobs.comp_machine_seconds.tolist(), len(jobs)
    ([60.0, 30.0], 2)
    """

    arrival_seconds: FloatArray
    phase: IntArray
    comp_machine_seconds: FloatArray
    comp_fixed_seconds: FloatArray
    comm_seconds: FloatArray
    comm_fixed_seconds: FloatArray
    input_bytes: FloatArray
    model_bytes: FloatArray
    decode_seconds_per_byte: FloatArray
    iterations_left: FloatArray
    loss: FloatArray
    loss_fall: FloatArray
    weight: FloatArray
    waited_seconds: FloatArray

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        for name in self.names():
            values = getattr(self, name)
            if name != "arrival_seconds" and (values < 0).any():
                worst = int(np.argmin(np.where(np.isnan(values), np.inf, values)))
                raise ValueError(
                    f"{name} of job {self.ids[worst]!r} is {values[worst]:g}; give 0 or more, or NaN where "
                    "it is not known"
                )

    @classmethod
    def of(cls, rows: Sequence[SubtaskTimes]) -> Subtasks:
        """Return the columns of some rows."""
        return cls.of_rows(rows)

    @property
    def is_known(self) -> BoolArray:
        """Whose times are known, shape (J,)."""
        return ~(np.isnan(self.comp_machine_seconds) | np.isnan(self.comm_seconds))


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

    >>> from relaqs_lab.groups import SubtaskTimes
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


TurnTaking: TypeAlias = Literal["pull_first", "fifo", "shared"]
"""How the jobs of a group share its machines.

pull_first: one computes and one communicates at a time, and a PULL goes before a PUSH.
fifo: one computes and one communicates at a time, in the order in which they ask.
shared: all at once. Who computes shares the cores equally, and who communicates the network.
"""

_ROUNDING = 1.0 + 1e-9


class UnplannableError(ValueError):
    """A plan breaks what every plan must keep. The message names the group."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """Who shares which machines until the next plan. A job in no group waits.

    Attributes:
        groups: disjoint, with all machines of the fleet at most.
        spilled: α of each job whose rows lie on disk in part: the share of them. Others have 0.
        turns: how the jobs of each group share its machines.
        memory: what the policy wants to be handed with the next view.

    >>> from relaqs_lab.groups import Subtasks, SubtaskTimes
    >>> from relaqs_lab.groups import Fleet
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0, input_bytes=9e9)])
    >>> view = GroupView(0.0, Fleet(2, memory_bytes=3e9), jobs)
    >>> GroupPlan.of(view, (Group(("a",), 2),), {"a": 0.5}).spilled
    {'a': 0.5}
    """

    groups: tuple[Group, ...]
    spilled: Mapping[str, float] = field(default_factory=dict)
    turns: TurnTaking = "pull_first"
    memory: object | None = None

    @classmethod
    def of(
        cls,
        view: GroupView,
        groups: tuple[Group, ...],
        spilled: Mapping[str, float] | None = None,
        turns: TurnTaking = "pull_first",
        memory: object | None = None,
    ) -> GroupPlan:
        """Return the plan for a view. Raises UnplannableError where it breaks what a plan must keep."""
        plan = cls(groups, dict(spilled or {}), turns, memory)
        try:
            check_groups(groups, view.subtasks.ids, view.fleet.machines)
        except ValueError as error:
            raise UnplannableError(str(error)) from error
        position = {job: i for i, job in enumerate(view.subtasks.ids)}
        inputs, models = view.subtasks.input_bytes.tolist(), view.subtasks.model_bytes.tolist()
        for group in groups:
            rows = sum((1 - plan.spilled.get(job, 0.0)) * inputs[position[job]] for job in group.jobs)
            held = rows + sum(models[position[job]] for job in group.jobs)
            room = group.machines * view.fleet.memory_bytes
            if held > room * _ROUNDING:
                raise UnplannableError(
                    f"the group of {', '.join(group.jobs)} keeps {held:.3g} bytes in memory, and its "
                    f"{group.machines} machines have {room:.3g}"
                )
        return plan

    @property
    def running(self) -> frozenset[str]:
        """The jobs that are in a group."""
        return frozenset(job for group in self.groups for job in group.jobs)


@runtime_checkable
class GroupPolicy(PolicyOf[GroupView, GroupPlan], Protocol):
    """A pure function from what is known to who shares which machines: equal views give equal plans.

    It reads no clock and no file, and draws no random numbers. What it wants to remember travels as
    `GroupPlan.memory`, a frozen value that can be pickled. Tests hold laws for every group policy of this
    package (`tests/lab/group_policies/test_group_laws.py`): a job is in one group at most, the machines
    and their memory are enough, and the order of the jobs in the view changes nothing.
    """
