"""Jobs in groups on machines, and what the model says of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.group_model import GroupModel, GroupTimes
from relaqs_lab.group_policies.spill import spilled_shares
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, Group


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """n jobs in G groups. Shapes: group and spilled (n,), machines (G,).

    Attributes:
        jobs: those that run.
        group: the group of each.
        machines: of each group.
        spilled: α of each job.
        times: what the iterations of the groups are made of.
        cpu, net: U over all machines of the fleet, idle ones too: equation 4.
        score: both as one number.
    """

    jobs: Subtasks
    group: IntArray
    machines: IntArray
    spilled: FloatArray
    times: GroupTimes
    cpu: float
    net: float
    score: float

    @classmethod
    def of(
        cls, jobs: Subtasks, group: IntArray, machines: IntArray, fleet: Fleet, model: GroupModel
    ) -> Arrangement:
        """Return jobs in groups on machines of a fleet; what does not fit into memory is spilled."""
        spilled = spilled_shares(jobs, group, machines, fleet)
        own = machines[group]
        read = spilled * jobs.input_bytes / own
        times = GroupTimes.of(
            model.comp_seconds(jobs, own) + read * jobs.decode_seconds_per_byte,
            model.comm_seconds(jobs, own),
            read / fleet.disk_bytes_per_second,
            group,
            len(machines),
        )
        cpu, net = times.utilisation(machines, fleet.machines)
        return cls(jobs, group, machines, spilled, times, cpu, net, model.score(cpu, net))

    def groups(self) -> tuple[Group, ...]:
        """Return the groups, each with its jobs in the order of the columns."""
        names = np.array(self.jobs.ids, dtype=object)
        return tuple(
            Group(tuple(names[self.group == i]), int(count)) for i, count in enumerate(self.machines.tolist())
        )

    def spilled_by_id(self) -> dict[str, float]:
        """Return α of the jobs with rows on disk."""
        return {self.jobs.ids[i]: float(self.spilled[i]) for i in np.flatnonzero(self.spilled > 0).tolist()}
