"""How good and how fast Harmony's grouping is, and how exact its model of a group's iteration.

    python -m benchmarks.grouping oracle [--workloads 200] [--jobs 8]
    python -m benchmarks.grouping annealing [--workloads 200] [--jobs 80] [--steps 100000]
    python -m benchmarks.grouping time
    python -m benchmarks.grouping lanes [--groups 200]
    python -m benchmarks.grouping queries [--groups 200]

`oracle`: u of the best prefix, by the rule and by climbing, beside that of the best of all partitions of any
prefix on all numbers of machines. `annealing`: the same for all of many jobs, beside annealing. `time`: CPU
time of one plan. `lanes`: the measured iteration of random groups over equation 1, by the rule of the lanes.
`queries`: the same where the cores do tasks of queries whenever no job of the group wants them.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from relaqs_lab.group_policies.arrangement import Arrangement
from relaqs_lab.group_policies.group_model import Bound, GroupModel
from relaqs_lab.group_policies.harmony import Harmony, considered
from relaqs_lab.group_policies.prefixes import PrefixSearch, Refinement
from relaqs_lab.groups import Fleet, GroupPlan, GroupView, Subtasks, SubtaskTimes, TurnTaking
from relaqs_lab.simulation.grouped.grouped_workload import PAPER_FLEET, harmony_jobs
from relaqs_lab.simulation.grouped.queries import EndlessQueries
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Lanes, sharing
from rich.console import Console
from rich.table import Table

from benchmarks.grouping_oracles import annealed, best_of_prefixes
from benchmarks.measured_iterations import equation_1, measured_iteration, some_needs

SIZES = ((80, 100), (1_000, 1_000), (8_000, 10_000))
BUDGET_SECONDS = 0.5  # of CPU, for the largest
ROUNDS = 200


def some_jobs(count: int, seed: int) -> Subtasks:
    """Return jobs as in the evaluation of Harmony, as many as are asked for."""
    rows: list[SubtaskTimes] = []
    number = 0
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


def oracle(workloads: int, count: int) -> Table:
    """Return how far the rule and climbing are below the best groups of any prefix of some jobs."""
    model, fleet = GroupModel(), Fleet(20)
    short: dict[Refinement, list[float]] = {"rule": [], "climb": []}
    for seed in range(workloads):
        jobs = some_jobs(count, seed)
        best = float(best_of_prefixes(jobs, fleet.machines, model).max())
        for refined, values in short.items():
            found = PrefixSearch(model, tolerance=0.0, refined=refined).best(jobs, fleet)
            assert found is not None
            values.append(1 - found.score / best)
    return short_table(
        f"u below the best groups of any prefix, {workloads} workloads of {count} jobs on 20 machines", short
    )


def annealing(workloads: int, count: int, steps: int) -> Table:
    """Return how far the rule and climbing are below what annealing finds for all of some jobs in groups."""
    model, fleet = GroupModel(), Fleet(100)
    some = [some_jobs(count, seed) for seed in range(workloads)]
    found: dict[Refinement, list[Arrangement]] = {"rule": [], "climb": []}
    for refined, arrangements in found.items():
        for jobs in some:
            search = PrefixSearch(model)
            arranged = search.arranged(jobs, fleet)
            assert arranged is not None
            arrangements.append(arranged if refined == "rule" else search.improved(arranged, fleet))
    starts = [(each.group, each.machines) for each in found["rule"]]
    best = annealed(some, starts, fleet.machines, model, steps)
    short = {
        name: (1 - np.array([each.score for each in own]) / best).tolist() for name, own in found.items()
    }
    return short_table(
        f"u below that of {steps:,} steps of annealing, {workloads} workloads of {count} jobs, 100 machines",
        short,
    )


def short_table(title: str, short: Mapping[Refinement, Sequence[float]]) -> Table:
    table = Table(title=title)
    table.add_column("groups")
    for heading in ("mean", "median", "p95", "most", "within 2 %", "within 3 %"):
        table.add_column(heading, justify="right")
    for name, values in short.items():
        below = np.array(values)
        points = [below.mean(), *np.percentile(below, [50, 95, 100])]
        points += [float((below <= within).mean()) for within in (0.02, 0.03)]
        error = below.std(ddof=1) / np.sqrt(len(below)) if len(below) > 1 else np.nan
        table.add_row(name, f"{points[0]:.2%} ± {error:.2%}", *(f"{value:.1%}" for value in points[1:]))
    return table


def timed() -> Table:
    """Return the CPU time of a plan without groups, and of one where nothing changed."""
    table = Table(title=f"One plan, ms of CPU time; {BUDGET_SECONDS * 1e3:.0f} for the largest")
    for heading in (
        "jobs × machines",
        "first plan",
        "nothing changed",
        "after a restart",
        "first, climbing",
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
        later = pickle.loads(pickle.dumps(GroupView(1.0, fleet, jobs, plan.groups)))
        again, _ = cpu_ms(policy, replace(later, memory=plan.memory))
        forgot, _ = cpu_ms(policy, later)
        climbing, _ = cpu_ms(Harmony(refined="climb"), view)
        found = policy.rules.regrouped(view, considered(jobs))
        assert found is not None
        bound = np.bincount(found.times.bound, minlength=len(Bound))
        words = ", ".join(f"{Bound(i).name} {each}" for i, each in enumerate(bound.tolist()) if each)
        cells = (
            f"{first:.0f}",
            f"{again:.1f}",
            f"{forgot:.0f}",
            f"{climbing:.0f}",
            f"{len(plan.running):,}",
            f"{len(plan.groups):,}",
            words,
        )
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


def queries(groups: int) -> Table:
    """Return how much longer iterations are with queries, and how much of the idle cores these have."""
    table = Table(title=f"Groups whose idle cores do tasks of queries; {groups} random groups each")
    for heading in (
        "jobs",
        "a task, of an iteration",
        "iteration longer",
        "most",
        "idle before",
        "queries have",
    ):
        table.add_column(heading, justify="right")
    for count in (2, 4, 6):
        for share in (0.001, 0.01, 0.03, 0.1):
            found = np.array([_with_queries(count, seed, share) for seed in range(groups)])
            longer, idle, had = found.T
            cells = (longer.mean(), longer.max(), idle.mean(), had.mean())
            table.add_row(str(count), f"{share:.1%}", *(f"{value:.1%}" for value in cells))
    return table


def _with_queries(count: int, seed: int, share: float) -> tuple[float, float, float]:
    """Return by how much an iteration is longer, and the cores' share that was idle and that queries have."""
    needs = some_needs(count, np.random.default_rng([seed, count]))
    said = equation_1(needs)
    lanes = Lanes(pull_first=True, queries=EndlessQueries(share * said))
    measured = measured_iteration(lanes, needs, ROUNDS)
    idle = 1 - sum(each.comp for each in needs) / said
    return measured / said - 1, idle, lanes.query_seconds / (lanes.comp_seconds + lanes.query_seconds)


def _excess(turns: TurnTaking, count: int, seed: int, noise: float) -> float:
    random = np.random.default_rng([seed, count])
    needs = some_needs(count, random)
    measured = measured_iteration(sharing(turns), needs, ROUNDS, lambda each: _drawn(each, noise, random))
    return measured / equation_1(needs) - 1


def _drawn(needs: IterationSeconds, noise: float, random: np.random.Generator) -> IterationSeconds:
    if not noise:
        return needs
    pull, comp, push = np.exp(random.normal(-noise * noise / 2, noise, 3)).tolist()
    return IterationSeconds(needs.pull * pull, needs.comp * comp, needs.push * push)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("oracle", "annealing", "time", "lanes", "queries"))
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=200)
    given = parser.parse_args(arguments)
    studies: dict[str, Callable[[], Table]] = {
        "oracle": lambda: oracle(given.workloads, given.jobs or 8),
        "annealing": lambda: annealing(given.workloads, given.jobs or 80, given.steps),
        "time": timed,
        "lanes": lambda: lanes(given.groups),
        "queries": lambda: queries(given.groups),
    }
    Console(width=120).print(studies[given.what]())


if __name__ == "__main__":
    main()
