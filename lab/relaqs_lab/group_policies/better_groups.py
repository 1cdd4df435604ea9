"""An arrangement made better by climbing: all of a few groups, the worst of many."""

from __future__ import annotations

import numpy as np

from relaqs_lab.group_policies.arrangement import Arrangement
from relaqs_lab.group_policies.climb import climbed
from relaqs_lab.group_policies.goal import Goal
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.groups.view import Fleet

MOST_GROUPS = 12  # that change at once
MOST_JOBS = 160  # in them


def better(start: Arrangement, goal: Goal, fleet: Fleet, model: GroupModel) -> Arrangement:
    """Return an arrangement of the same jobs with a score as high or higher.

    Where there are many groups, those change that use the least of their machines, 12 of them or so few that
    they have 160 jobs: to look at all pairs of jobs takes time in the square of their number.

    Args:
        start: n jobs in groups.
        goal: of these jobs in this order.
        fleet, model: of both.
    """
    seconds = start.times.seconds
    used = goal.cpu * start.times.comp / seconds + goal.net * start.times.comm / seconds
    order = np.argsort(used, kind="stable")
    sizes = np.bincount(start.group, minlength=len(used))[order]
    chosen = order[:MOST_GROUPS][np.cumsum(sizes[:MOST_GROUPS]) <= MOST_JOBS]
    if not len(chosen):
        return start
    jobs = np.flatnonzero(np.isin(start.group, chosen))
    number = np.full(len(used), -1)
    number[chosen] = np.arange(len(chosen))
    found = climbed(goal.of_jobs(jobs), number[start.group[jobs]], start.machines[chosen])
    kept = np.setdiff1d(np.arange(len(used)), chosen)
    number[kept] = np.arange(len(kept))
    group = number[start.group]
    group[jobs] = len(kept) + found.group
    machines = np.concatenate([start.machines[kept], found.machines])
    after = Arrangement.of(start.jobs, group, machines, fleet, model)
    return after if after.score > start.score else start
