"""How many groups some jobs make: so many that equal groups compute for as long as they communicate."""

from __future__ import annotations

import math

from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.groups.subtasks import Subtasks


def group_counts(jobs: Subtasks, machines: int, model: GroupModel) -> list[int]:
    """Return the one or two numbers of groups beside which ΣT_cpu = ΣT_net, if groups have equal machines.

    On m machines a job computes for W/m + s and communicates for N·(1 − 1/m) + e. So the sums over jobs are
    equal on m = (ΣW + ΣN) / (ΣN + Σe − Σs) machines, and on ΣW/ΣN where equation 2 is taken literally. The
    number is cut to at least 1, and to the jobs and machines.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1, line 6. The closed form is ours.

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
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
