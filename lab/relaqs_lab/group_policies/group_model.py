"""How long an iteration of a group takes, and what it uses of the machines: equations 1 to 4 of Harmony.

What groups are good for is one number a group (`goal`): machines that are used, or what iterations are
worth. Jobs make so many groups that equal groups compute for as long as they communicate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.groups import Fleet, Subtasks


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


WORK, FIXED, COMM, COMM_FIXED, INPUT, MODEL, DECODE, VALUE, COUNT = range(9)


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The worth of groups of n jobs: (m·(cpu·ΣT_cpu + net·ΣT_net) + Σ value) / T_g each, and their sum.

    Attributes:
        fleet: the machines' memory and disks.
        spills: rows may lie on disk. If not, a group whose rows do not fit is worth −∞.
        own_share: of what is sent on one machine; 1 where a machine sends itself nothing, else 0.
        cpu, net: of a machine that computes, or communicates, all the time.
        features: of each job, shape (n + 1, 9), by WORK to COUNT. The last row is no job: zeros.
    """

    fleet: Fleet
    spills: bool
    own_share: float
    cpu: float
    net: float
    features: FloatArray

    @classmethod
    def use(cls, jobs: Subtasks, fleet: Fleet, model: GroupModel, *, spills: bool) -> Goal:
        """Return the goal that is u: equation 4, as the one number of `GroupModel.score`."""
        cpu, net = model.cpu_weight / fleet.machines, (1 - model.cpu_weight) / fleet.machines
        return cls._of(jobs, fleet, model, spills, cpu, net, np.zeros(len(jobs)))

    @classmethod
    def worth_a_second(
        cls, jobs: Subtasks, fleet: Fleet, model: GroupModel, value: FloatArray, *, spills: bool
    ) -> Goal:
        """Return the goal that is what all iterations are worth a second. value: of each job's, (n,)."""
        return cls._of(jobs, fleet, model, spills, 0.0, 0.0, value)

    @classmethod
    def _of(
        cls,
        jobs: Subtasks,
        fleet: Fleet,
        model: GroupModel,
        spills: bool,
        cpu: float,
        net: float,
        value: FloatArray,
    ) -> Goal:
        nothing = np.zeros(len(jobs))
        columns = (
            jobs.comp_machine_seconds,
            nothing if model.literal else jobs.comp_fixed_seconds,
            jobs.comm_seconds,
            nothing if model.literal else jobs.comm_fixed_seconds,
            jobs.input_bytes,
            jobs.model_bytes,
            jobs.input_bytes * jobs.decode_seconds_per_byte,
            value,
            np.ones(len(jobs)),
        )
        features = np.zeros((len(jobs) + 1, len(columns)))
        features[:-1] = np.stack(columns, axis=1)
        return cls(fleet, spills, 0.0 if model.literal else 1.0, cpu, net, features)

    def of_jobs(self, chosen: IntArray) -> Goal:
        """Return the goal of some of the jobs, by their positions."""
        return replace(self, features=self.features[np.append(chosen, -1)])

    @property
    def slope(self) -> FloatArray:
        """What an iteration of each job alone takes times its machines, but for `base`. Shape (n + 1,)."""
        return np.asarray(self.features[:, WORK] - self.own_share * self.features[:, COMM])

    @property
    def base(self) -> FloatArray:
        """The other part: an iteration alone takes slope / m + base seconds on m machines. Shape (n + 1,)."""
        return np.asarray(self.features[:, [FIXED, COMM, COMM_FIXED]].sum(axis=1))

    def of_groups(self, sums: FloatArray, longest: FloatArray, machines: IntArray) -> FloatArray:
        """Return the worth of k groups, shape (k,): 0 without a job, −∞ where they do not fit.

        What must be decoded is taken to be of the mean job of a group.

        Args:
            sums: of the features over the jobs of each, shape (k, 9).
            longest: the longest iteration of one of its jobs alone, shape (k,).
            machines: shape (k,).
        """
        own = np.maximum(machines, 1)
        room = own * self.fleet.memory_bytes
        held = sums[:, INPUT] + sums[:, MODEL]
        lacking = np.maximum(held - room, 0.0) if np.isfinite(self.fleet.memory_bytes) else np.zeros(len(own))
        decode = np.divide(sums[:, DECODE], sums[:, INPUT], out=np.zeros(len(own)), where=sums[:, INPUT] > 0)
        comp = (sums[:, WORK] + lacking * decode) / own + sums[:, FIXED]
        comm = sums[:, COMM] * (1.0 - self.own_share / own) + sums[:, COMM_FIXED]
        disk = lacking / (own * self.fleet.disk_bytes_per_second)
        seconds = np.maximum(np.maximum(comp, comm), np.maximum(longest, disk))
        gained = own * (self.cpu * comp + self.net * comm) + sums[:, VALUE]
        has_jobs = sums[:, COUNT] > 0.5
        worth = np.divide(gained, seconds, out=np.zeros(len(own)), where=has_jobs & (seconds > 0))
        too_large = sums[:, MODEL] if self.spills else held
        fits = (machines >= 1) & (too_large <= room * (1 + 1e-12))
        return np.asarray(np.where(has_jobs & ~fits, -np.inf, np.where(machines < 0, -np.inf, worth)))


def group_counts(jobs: Subtasks, machines: int, model: GroupModel) -> list[int]:
    """Return the one or two numbers of groups beside which ΣT_cpu = ΣT_net, if groups have equal machines.

    On m machines a job computes for W/m + s and communicates for N·(1 − 1/m) + e. So the sums over jobs are
    equal on m = (ΣW + ΣN) / (ΣN + Σe − Σs) machines, and on ΣW/ΣN where equation 2 is taken literally. The
    number is cut to at least 1, and to the jobs and machines.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1, line 6. The closed form is ours.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes(name, 60.0, 4.0) for name in "abcdefgh"])
    >>> group_counts(jobs, machines=100, model=GroupModel(literal=True))
    [6, 7]
    """
    work, comm = float(jobs.comp_machine_seconds.sum()), float(jobs.comm_seconds.sum())
    sent = comm
    if not model.literal:
        work += comm
        sent += float(jobs.comm_fixed_seconds.sum() - jobs.comp_fixed_seconds.sum())
    balanced = machines * sent / work if work > 0 else math.inf
    most = min(len(jobs), machines)
    return sorted({int(min(max(count, 1), most)) for count in _neighbours(balanced, most)})


def _neighbours(value: float, most: int) -> tuple[int, int]:
    cut = min(value, float(most))
    return math.floor(cut), math.ceil(cut)
