"""How good and how fast Harmony's grouping is, and how exact its model of a group's iteration.

    python -m benchmarks.grouping oracle [--workloads 200] [--jobs 8]
    python -m benchmarks.grouping time
    python -m benchmarks.grouping lanes [--groups 200]

`oracle`: u of the best prefix beside that of the best partition of any prefix, where the machines are given
by the rule and then moved between groups while that is better. `time`: CPU time of one plan. `lanes`: the
measured iteration of random groups over equation 1, by the rule of the lanes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from relaqs.group_policies.arrangement import Arrangement
from relaqs.group_policies.considered import considered
from relaqs.group_policies.group_model import Bound, GroupModel
from relaqs.group_policies.harmony import Harmony
from relaqs.group_policies.machines import apportioned
from relaqs.group_policies.prefixes import PrefixSearch
from relaqs.groups.plan import GroupPlan, TurnTaking
from relaqs.groups.subtasks import Subtasks, SubtaskTimes
from relaqs.groups.view import Fleet, GroupView
from relaqs.simulation.grouped.turns import IterationSeconds, sharing
from relaqs.simulation.grouped.workload import PAPER_FLEET, harmony_jobs

SIZES = ((80, 100), (1_000, 1_000), (8_000, 10_000))
BUDGET_SECONDS = 0.5  # of CPU, for the largest
ROUNDS = 200


def some_jobs(count: int, seed: int) -> Subtasks:
    """Return jobs as in the evaluation of Harmony, as many as are asked for."""
    rows, number = [], 0
    while len(rows) < count:
        for job in harmony_jobs(seed + 1000 * number)[: count - len(rows)]:
            rows.append(
                SubtaskTimes(
                    f"{len(rows):05} {job.name}",
                    comp_machine_seconds=job.comp_machine_seconds,
                    comm_seconds=job.comm_seconds,
                    input_bytes=job.input_bytes,
                    model_bytes=job.model_bytes,
                    arrival_seconds=float(len(rows)),
                )
            )
        number += 1
    return Subtasks.of(rows)


def partitions(items: list[int]) -> Iterator[list[int]]:
    """Yield each partition as the number of the group of each item, counted from 0 in the order they come."""
    if not items:
        yield []
        return
    for shorter in partitions(items[:-1]):
        for group in range(max(shorter, default=-1) + 2):
            yield [*shorter, group]


def best_partition(jobs: Subtasks, fleet: Fleet, model: GroupModel) -> float:
    """Return the best u of all partitions of the jobs, with machines by the rule and then by climbing."""
    best, kept = -1.0, None
    for numbers in partitions(list(range(len(jobs)))):
        group = np.array(numbers)
        count = int(group.max()) + 1
        if count > fleet.machines:
            continue
        machines = apportioned(jobs, group, np.ones(count, dtype=np.int64), fleet.machines, model)
        found = Arrangement.of(jobs, group, machines, fleet, model)
        if found.score > best:
            best, kept = found.score, found
    assert kept is not None
    return climbed(kept, fleet, model)


def climbed(start: Arrangement, fleet: Fleet, model: GroupModel) -> float:
    """Return the u of an arrangement whose machines moved between groups one by one while that was better."""
    best, machines, count = start.score, start.machines.copy(), len(start.machines)
    improved = True
    while improved:
        improved = False
        for giver in range(count):
            for taker in range(count):
                if giver == taker or machines[giver] == 1:
                    continue
                tried = machines.copy()
                tried[giver] -= 1
                tried[taker] += 1
                score = Arrangement.of(start.jobs, start.group, tried, fleet, model).score
                if score > best + 1e-12:
                    best, machines, improved = score, tried, True
    return best


def oracle(workloads: int, count: int) -> Table:
    """Return how far the rule is from the best of all partitions of the jobs that it runs."""
    model, fleet = GroupModel(), Fleet(20)
    short = []
    for seed in range(workloads):
        jobs = some_jobs(count, seed)
        found = PrefixSearch(model, tolerance=0.0).best(jobs, fleet)
        assert found is not None
        prefixes = [jobs.of_jobs(np.arange(size)) for size in range(1, count + 1)]
        best = max(best_partition(each, fleet, model) for each in prefixes)
        short.append(1 - found.score / best)
    table = Table(title=f"u below the best partition, {workloads} workloads of {count} jobs on 20 machines")
    for heading in ("mean", "median", "p95", "most", "within 2 %"):
        table.add_column(heading, justify="right")
    values = np.array(short)
    points = (
        values.mean(),
        np.median(values),
        np.percentile(values, 95),
        values.max(),
        (values <= 0.02).mean(),
    )
    table.add_row(*(f"{value:.1%}" for value in points))
    return table


def timed() -> Table:
    """Return the CPU time of a plan without groups, and of one that changes nothing."""
    table = Table(title=f"One plan, ms of CPU time; {BUDGET_SECONDS * 1e3:.0f} for the largest")
    for heading in (
        "jobs × machines",
        "first plan",
        "same view again",
        "jobs in groups",
        "groups",
        "bound by",
        "u",
    ):
        table.add_column(heading, justify="right")
    for count, machines in SIZES:
        jobs = some_jobs(count, seed=0)
        fleet = Fleet(machines, PAPER_FLEET.memory_bytes, PAPER_FLEET.disk_bytes_per_second)
        policy, view = Harmony(), GroupView(0.0, fleet, jobs)
        first, plan = cpu_ms(policy, view)
        again, _ = cpu_ms(policy, GroupView(1.0, fleet, jobs, plan.groups))
        found = policy.rules.regrouped(view, considered(jobs))
        assert found is not None
        bound = np.bincount(found.times.bound, minlength=len(Bound))
        words = ", ".join(f"{Bound(i).name} {each}" for i, each in enumerate(bound.tolist()) if each)
        cells = (f"{first:.0f}", f"{again:.0f}", f"{len(plan.running):,}", f"{len(plan.groups):,}", words)
        table.add_row(f"{count:,} × {machines:,}", *cells, f"{found.score:.3f}")
    return table


def cpu_ms(policy: Harmony, view: GroupView) -> tuple[float, GroupPlan]:
    """Return the least CPU time of two plans in milliseconds, and the plan."""
    times = []
    for _ in range(2):
        start = time.process_time()
        plan = policy.plan(view)
        times.append(time.process_time() - start)
    return min(times) * 1e3, plan


def lanes(groups: int) -> Table:
    """Return how much longer an iteration is than equation 1 says, by the jobs and the rule of the lanes."""
    table = Table(title=f"Measured iteration over equation 1, less 1; {groups} random groups each")
    for heading in ("jobs", "noise", "PULL first, mean", "most", "first in first out, mean", "most"):
        table.add_column(heading, justify="right")
    for noise in (0.0, 0.1):
        for count in (1, 2, 3, 4, 6):
            cells = []
            for turns in ("pull_first", "fifo"):
                excess = np.array([_excess(turns, count, seed, noise) for seed in range(groups)])
                cells += [f"{excess.mean():.1%}", f"{excess.max():.1%}"]
            table.add_row(str(count), f"{noise:.0%}", *cells)
    return table


def _excess(turns: TurnTaking, count: int, seed: int, noise: float) -> float:
    random = np.random.default_rng([seed, count])
    needs = []
    for _ in range(count):
        seconds, comp = random.lognormal(0, 0.5), random.uniform(0.2, 0.8)
        pull, comm = random.uniform(0.3, 0.7), seconds * (1 - comp)
        needs.append(IterationSeconds(comm * pull, seconds * comp, comm * (1 - pull)))
    sums = (sum(each.comp for each in needs), sum(each.pull + each.push for each in needs))
    said = max(*sums, max(each.alone for each in needs))
    group, ends = sharing(turns), [[] for _ in needs]  # type: ignore[var-annotated]
    for job, each in enumerate(needs):
        group.begin(job, each, 0.0)
    while min(map(len, ends)) < ROUNDS:
        now, ended = group.next_seconds(), group.step()
        if ended is not None:
            ends[ended].append(now)
            group.begin(ended, _drawn(needs[ended], noise, random), now)
    half = ROUNDS // 2
    return float(max((each[-1] - each[half]) / (len(each) - 1 - half) for each in ends) / said - 1)


def _drawn(needs: IterationSeconds, noise: float, random: np.random.Generator) -> IterationSeconds:
    if not noise:
        return needs
    pull, comp, push = np.exp(random.normal(-noise * noise / 2, noise, 3)).tolist()
    return IterationSeconds(needs.pull * pull, needs.comp * comp, needs.push * push)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("oracle", "time", "lanes"))
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--groups", type=int, default=200)
    given = parser.parse_args(arguments)
    console = Console(width=120)
    if given.what == "oracle":
        console.print(oracle(given.workloads, given.jobs))
    else:
        console.print(timed() if given.what == "time" else lanes(given.groups))


if __name__ == "__main__":
    main()
