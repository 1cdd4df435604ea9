"""Which jobs run: the first ones, as many as use the machines best."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from relaqs_lab.group_policies.arrangement import Arrangement
from relaqs_lab.group_policies.better_groups import better
from relaqs_lab.group_policies.exchange import exchanged
from relaqs_lab.group_policies.fill import filled
from relaqs_lab.group_policies.goal import Goal
from relaqs_lab.group_policies.group_count import group_counts
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.group_policies.machines import apportioned
from relaqs_lab.group_policies.spill import least_machines
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet

StopRule: TypeAlias = Literal["best", "first"]
"""When the loop over prefixes ends: after all of them, or at the first that is no better."""

Refinement: TypeAlias = Literal["rule", "climb"]
"""Whether groups are as the rule of the paper makes them, or made better from there."""

FEW_JOBS = 12
CLIMBED = 8  # prefixes of few jobs, the best ones by the rule
CLIMBED_OF_MANY = 2  # prefixes of more jobs, and starts of each
AROUND = 2  # numbers of groups, to either side of the rule's


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """Algorithm 1: groups and machines for the first jobs of a list, for as many of them as is best.

    Args:
        model: the times, and how the use of machines is one number.
        stop: "best" takes the best prefix of all. "first" is the loop as it is written: it adds a job
            while u grows, and stops at the first that adds nothing, which is after one job or a few.
        tolerance: of the prefixes with a u within this of the best, the one with the fewest jobs is taken.
        spills: rows may lie on disk. If not, a group has the machines that keep all rows in memory.
        band, swaps: as in `filled` and `exchanged`.
        prefixes: how many are tried where there are more jobs, geometrically spaced.
        refined: "climb" takes the best prefixes of the rule, and climbs from several numbers of groups
            (`better`). "rule" is the paper's.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1.
    """

    model: GroupModel = field(default_factory=GroupModel)
    stop: StopRule = "best"
    tolerance: float = 0.01
    spills: bool = True
    band: int = 8
    swaps: int = 200
    prefixes: int = 16
    refined: Refinement = "rule"

    def __post_init__(self) -> None:
        if self.stop not in ("best", "first"):
            raise ValueError(f"stop is {self.stop!r}; give 'best' or 'first'")
        if self.refined not in ("rule", "climb"):
            raise ValueError(f"refined is {self.refined!r}; give 'rule' or 'climb'")
        if self.tolerance < 0:
            raise ValueError(f"tolerance is {self.tolerance}; give 0 or more")

    def best(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        """Return the arrangement of the prefix to run, None where not even the first job fits into memory."""
        if self.stop == "first":
            return self._until_no_better(jobs, fleet)
        tried = self._tried(jobs, fleet)
        if self.refined == "climb":
            likely = sorted(tried, key=lambda count: (-tried[count].score, count))
            likely = likely[: CLIMBED if len(jobs) <= FEW_JOBS else CLIMBED_OF_MANY]
            tried |= {count: self.improved(tried[count], fleet) for count in likely}
        return self.preferred(tried)

    def preferred(self, tried: dict[int, Arrangement]) -> Arrangement | None:
        """Return the one with the fewest jobs among those within the tolerance of the best; None of none."""
        if not tried:
            return None
        top = max(each.score for each in tried.values())
        return next(tried[count] for count in sorted(tried) if tried[count].score >= top - self.tolerance)

    def arranged(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        """Return all these jobs in groups, lines 6 to 8; None where they do not fit into memory."""
        counts = group_counts(jobs, fleet.machines, self.model)
        found = [each for count in counts if (each := self._grouped(jobs, count, fleet)) is not None]
        if not found and 1 not in counts and (whole := self._grouped(jobs, 1, fleet)) is not None:
            found = [whole]
        return max(found, key=lambda each: each.score, default=None)

    def _grouped(self, jobs: Subtasks, count: int, fleet: Fleet) -> Arrangement | None:
        equal = np.full(len(jobs), fleet.machines / count)
        comp, comm = self.model.comp_seconds(jobs, equal), self.model.comm_seconds(jobs, equal)
        group = exchanged(comp - comm, filled(comp, comm, count, self.band), count, self.swaps)
        least = least_machines(jobs, group, count, fleet, spills=self.spills)
        if least.sum() > fleet.machines:
            return None
        machines = apportioned(jobs, group, least, fleet.machines, self.model)
        return Arrangement.of(jobs, group, machines, fleet, self.model)

    def improved(self, found: Arrangement, fleet: Fleet) -> Arrangement:
        """Return the best that climbing makes of the same jobs, from several numbers of groups.

        Each number of groups is filled twice: in bands, and one group after another. Of many jobs the best
        of these starts are climbed from.
        """
        jobs, present = found.jobs, len(found.machines)
        most = min(len(jobs), fleet.machines)
        counts = range(max(present - AROUND, 1), min(present + AROUND, most) + 1)
        fills = (self, replace(self, band=1))
        tried = (each._grouped(jobs, count, fleet) for count in counts for each in fills)
        starts = sorted((each for each in tried if each is not None), key=lambda each: -each.score)
        starts = [found, *starts][: None if len(jobs) <= FEW_JOBS else CLIMBED_OF_MANY]
        goal = Goal.use(jobs, fleet, self.model, spills=self.spills)
        return max((better(each, goal, fleet, self.model) for each in starts), key=lambda each: each.score)

    def _tried(self, jobs: Subtasks, fleet: Fleet) -> dict[int, Arrangement]:
        counts = np.arange(1, len(jobs) + 1)
        if len(jobs) > self.prefixes:
            counts = np.unique(np.round(np.geomspace(1, len(jobs), self.prefixes)).astype(np.int64))
        tried: dict[int, Arrangement] = {}
        for count in counts.tolist():
            found = self.arranged(jobs.of_jobs(np.arange(count)), fleet)
            if found is not None:
                tried[count] = found
        return tried

    def _until_no_better(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        best: Arrangement | None = None
        for count in range(1, len(jobs) + 1):
            found = self.arranged(jobs.of_jobs(np.arange(count)), fleet)
            if found is None or (best is not None and found.score <= best.score + 1e-12):
                break
            best = found
        return best
