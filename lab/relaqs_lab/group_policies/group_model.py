"""How long an iteration of a group takes, and what it uses of the machines: equations 1 to 4 of Harmony."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.groups.subtasks import Subtasks


class Bound(IntEnum):
    """What the time of a group's iteration is made of."""

    COMP = 0
    COMM = 1
    JOB = 2
    DISK = 3


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The times of subtasks on some machines, and how the use of cores and of the network is one number.

    Args:
        cpu_weight: u = cpu_weight·U_cpu + (1 − cpu_weight)·U_net. The paper prefers the cores and has no
            number. A half cannot be: one job alone has U_cpu + U_net = 1 on any machines.
        literal: equation 2 as it is written, so COMP falls as 1/m and COMM is the same on any m. Otherwise
            a machine sends itself nothing, COMM = N·(1 − 1/m) + e, and COMP has a part that is not divided.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B2.
    """

    cpu_weight: float = 2 / 3
    literal: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.cpu_weight <= 1:
            raise ValueError(f"cpu_weight is {self.cpu_weight}; give a number from 0 to 1, such as 0.67")

    def comp_seconds(self, jobs: Subtasks, machines: IntArray | FloatArray) -> FloatArray:
        """Return T_cpu of each job on so many machines, shape (n,): equation 2."""
        fixed = 0.0 if self.literal else jobs.comp_fixed_seconds
        return np.asarray(jobs.comp_machine_seconds / machines + fixed)

    def comm_seconds(self, jobs: Subtasks, machines: IntArray | FloatArray) -> FloatArray:
        """Return T_net of each job on so many machines, PULL and PUSH together, shape (n,)."""
        if self.literal:
            return jobs.comm_seconds
        return np.asarray(jobs.comm_seconds * (1.0 - 1.0 / machines) + jobs.comm_fixed_seconds)

    def score(self, cpu: float, net: float) -> float:
        """Return the one number u of two shares of use."""
        return self.cpu_weight * cpu + (1.0 - self.cpu_weight) * net


@dataclass(frozen=True, slots=True, eq=False)
class GroupTimes:
    """What the iterations of G groups are made of, seconds, columns of shape (G,).

    Attributes:
        comp: the sum of its jobs' COMP. It includes the decoding of what comes from the disk.
        comm: the sum of its jobs' COMM.
        longest: the longest iteration of one of its jobs alone.
        disk: to read what its jobs have on the disk.

    >>> two = GroupTimes.of(np.array([3.0, 2.0]), np.array([1.0, 1.0]), np.zeros(2), np.array([0, 0]), 1)
    >>> two.seconds.tolist(), Bound(two.bound[0]).name
    ([5.0], 'COMP')
    """

    comp: FloatArray
    comm: FloatArray
    longest: FloatArray
    disk: FloatArray

    @classmethod
    def of(
        cls,
        comp: FloatArray,
        comm: FloatArray,
        disk: FloatArray,
        group: IntArray,
        count: int,
        rest: FloatArray | float = 0.0,
    ) -> GroupTimes:
        """Return the times of `count` groups from those of their jobs; `group` is that of each job.

        rest: what an iteration takes beside COMP and COMM, in which others have the cores and the network.
        """
        longest = np.zeros(count)
        np.maximum.at(longest, group, comp + comm + rest)
        return cls(
            summed(comp, group, count), summed(comm, group, count), longest, summed(disk, group, count)
        )

    @property
    def seconds(self) -> FloatArray:
        """T_g, in which each job of a group ends one iteration: equation 1, and the disk as a third lane."""
        return np.asarray(np.max([self.comp, self.comm, self.longest, self.disk], axis=0))

    @property
    def bound(self) -> IntArray:
        """What each group is bound by, as `Bound`; the first of equal ones."""
        return np.asarray(np.argmax([self.comp, self.comm, self.longest, self.disk], axis=0))

    def utilisation(self, machines: IntArray, all_machines: int) -> tuple[float, float]:
        """Return U_cpu and U_net over all machines, groups' and idle ones': equations 3 and 4."""
        seconds = self.seconds
        cpu = float((machines * self.comp / seconds).sum()) / all_machines
        return cpu, float((machines * self.comm / seconds).sum()) / all_machines


def summed(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Return the sum of the jobs' values in each of `count` groups; `group` is that of each job."""
    return np.asarray(np.bincount(group, values, count), dtype=np.float64)
