"""What groups are good for, as one number a group: machines that are used, or what iterations are worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet

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
