"""How long a decision about slots takes: a generation of ONES, its exact solution, completion rates, and Sia.

    python -m benchmarks.orchestration_time

Milliseconds of CPU time, the best of several runs, with numpy's linear algebra on one thread. A generation of
ONES is a fourth of what four more add to a plan of one: refresh, crossover, mutation, reorder and
selection. All of these run in a thread. What is left for the event loop of Dask's scheduler is to note what
is known, and to work out who is offered what.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

for library in ("OPENBLAS", "MKL", "OMP"):  # before numpy is imported: threads that wait burn CPU time
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import argparse  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from functools import partial  # noqa: E402

import numpy as np  # noqa: E402
from relaqs_lab.slot_baselines import ExactUtilisation  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.scheduling_time import cpu_ms  # noqa: E402
from benchmarks.slot_views import random_view  # noqa: E402
from relaqs.executors.slot_desk import SlotDesk, slots_of  # noqa: E402
from relaqs.prediction.passes_left import MOST_POINTS, PassesLeft  # noqa: E402
from relaqs.sharing.gangs import FINISHED_COLUMNS, Gang, SlotView  # noqa: E402
from relaqs.slot_policies import EqualSlots  # noqa: E402
from relaqs.slot_policies.ones import Ones  # noqa: E402
from relaqs.slot_policies.sia import CompletionRate, Sia  # noqa: E402

SLOTS_OF_A_NODE = 4
GENERATIONS = 4


@dataclass(frozen=True)
class Size:
    """So many jobs on so many nodes, and the budgets in milliseconds; None: there is none."""

    jobs: int
    nodes: int
    generation_ms: float
    completion_rate_ms: float
    sia_ms: float
    exact_ms: float | None = None


SIZES = (Size(50, 16, 15.0, 5.0, 5.0, 5.0), Size(500, 250, 150.0, 30.0, 30.0))
REGRESSION_MS = 60.0
LOOP_MS = 5.0  # for which the event loop may be held at once


def running_view(size: Size) -> SlotView:
    """Return a view in whose middle all slots are held, and the population of a first plan is remembered."""
    view = random_view(size.jobs, size.nodes, SLOTS_OF_A_NODE, seed=0)
    plan = Ones(sigma=0.0).plan(view)
    gangs = replace(view.gangs, held=plan.slots_by_node, batch_rows=plan.batch_rows)
    return replace(view, gangs=gangs, memory=plan.memory)


def generation_ms(view: SlotView) -> float:
    """Return what one more generation takes."""
    one, several = (Ones(sigma=0.0, generations=1 + more) for more in (0, GENERATIONS))
    return (cpu_ms(partial(several.plan, view)) - cpu_ms(partial(one.plan, view))) / GENERATIONS


def loop_ms(size: Size) -> float:
    """Return the longer of the two things that the event loop does for a plan. Half of all slots are held."""
    slots = slots_of({f"tcp://10.0.0.{node}:1": SLOTS_OF_A_NODE for node in range(size.nodes)})
    desk = SlotDesk()
    for number in range(size.jobs):
        desk.take_in(Gang(f"job {number}", rows_most=1024.0), float(number))
    ids, now_seconds = tuple(desk), float(size.jobs)
    plan = EqualSlots().plan(desk.facts(now_seconds, slots, {}, len(slots), ids).view())
    offered = desk.offers(plan, slots, {})
    held = {job: offered[job] for job in ids[: size.jobs // 2]}
    note = partial(desk.facts, now_seconds, slots, held, len(slots), ids)
    return max(cpu_ms(note), cpu_ms(partial(desk.offers, plan, slots, held)))


def points(count: int) -> np.ndarray:
    """Return what is known of ended jobs: made up, only their number matters."""
    return np.random.default_rng(0).uniform(1.0, 10.0, (count, len(FINISHED_COLUMNS)))


def time_table() -> Table:
    table = Table(title="Decisions about slots, ms of CPU time")
    for heading in ("jobs", "slots", "decision", "ms", "budget", ""):
        table.add_column(heading, justify="left" if heading == "decision" else "right")
    for size in SIZES:
        view = running_view(size)
        rows: list[tuple[str, float, float | None]] = [
            ("ones: one generation", generation_ms(view), size.generation_ms),
            ("ones: a plan of 4 generations", cpu_ms(partial(Ones(sigma=0.0).plan, view)), None),
            ("completion_rate", cpu_ms(partial(CompletionRate().plan, view)), size.completion_rate_ms),
            ("sia", cpu_ms(partial(Sia().plan, view)), size.sia_ms),
        ]
        if size.exact_ms is not None:
            rows.append(("exact_utilisation", cpu_ms(partial(ExactUtilisation().plan, view)), size.exact_ms))
        rows.append(("the event loop, at once", loop_ms(size), LOOP_MS))
        for name, taken, budget in rows:
            slots = size.nodes * SLOTS_OF_A_NODE
            table.add_row(str(size.jobs), f"{slots:,}", name, f"{taken:.1f}", *_judged(taken, budget))
    taken = cpu_ms(partial(PassesLeft.fitted, points(MOST_POINTS)))
    table.add_row(
        "", "", f"regression on {MOST_POINTS} points", f"{taken:.1f}", *_judged(taken, REGRESSION_MS)
    )
    return table


def _judged(taken: float, budget: float | None) -> tuple[str, str]:
    if budget is None:
        return "", ""
    return f"{budget:.0f}", "reached" if taken <= budget else "not reached"


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    Console(width=120).print(time_table())


if __name__ == "__main__":
    main()
