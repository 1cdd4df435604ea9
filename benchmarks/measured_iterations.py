"""How long an iteration of a group takes when its jobs take turns, subtask by subtask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Sharing


def measured_iteration(
    group: Sharing,
    needs: Sequence[IterationSeconds],
    rounds: int,
    drawn: Callable[[IterationSeconds], IterationSeconds] = lambda each: each,
) -> float:
    """Return the longest mean iteration of a group's jobs in the second half of some rounds, in seconds.

    Args:
        group: without jobs; what happens in it afterwards can be read there.
        needs: what an iteration of each job takes.
        rounds: how many iterations each job makes at least.
        drawn: what an iteration takes this time.
    """
    ends: list[list[float]] = [[] for _ in needs]
    for job, each in enumerate(needs):
        group.begin(job, each, 0.0)
    while min(map(len, ends)) < rounds:
        now, ended = group.next_seconds(), group.step()
        if ended is not None:
            ends[ended].append(now)
            group.begin(ended, drawn(needs[ended]), now)
    half = rounds // 2
    return max((each[-1] - each[half]) / (len(each) - 1 - half) for each in ends)


def some_needs(count: int, random: np.random.Generator) -> list[IterationSeconds]:
    """Return what iterations of some random jobs take, that compute for 20 to 80 % of them."""
    needs = []
    for _ in range(count):
        seconds, comp = random.lognormal(0, 0.5), random.uniform(0.2, 0.8)
        pull, comm = random.uniform(0.3, 0.7), seconds * (1 - comp)
        needs.append(IterationSeconds(comm * pull, seconds * comp, comm * (1 - pull)))
    return needs


def equation_1(needs: Sequence[IterationSeconds]) -> float:
    """Return the iteration that the model says: the sum of COMP or of COMM, or the longest job."""
    sums = (sum(each.comp for each in needs), sum(each.pull + each.push for each in needs))
    return max(*sums, max(each.alone for each in needs))
