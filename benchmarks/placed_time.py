"""How long one decision about parts takes on 80 and on 2,474 devices, and how long 1,860 jobs are simulated.

    python -m benchmarks.placed_time [--jobs 1860] [--only-decisions]
    python -m benchmarks.placed_time --large trace:117325@0.9 [--stop none]

The cluster is full, and eight times as many parts wait as it has devices, or more. Jobs come as in scenario
"paper", all at once. mlf_h places them, and after ten minutes some have ended and demands have swung. Then
each policy plans once for each of five minutes. Milliseconds of CPU time, the mean of the five, each the best
of several runs. Beside them: the first plan of all, on an empty cluster.

The plans of a session whose models in parts train live are timed, too: another run comes to 20.

--large simulates one policy on 2,474 devices and nothing else, so that the process's memory is that of the
simulation. The load is relative to these devices.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from relaqs_lab.cli.machines import scenario_of
from relaqs_lab.mlf_rl import MlfRl, PlacedLoadControl
from relaqs_lab.simulation.placed.placed_simulator import MoveCosts, PlacedStates, simulate_placed
from relaqs_lab.simulation.placed.placed_study import PlacedCase
from relaqs_lab.simulation.placed.placed_workload import Scenario
from relaqs_lab.simulation.workload import EarlyStops
from rich.console import Console
from rich.table import Table

from benchmarks.scheduling_time import cpu_ms
from relaqs.executors.slot_desk import slot_name
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.placed_policies.mlf_h import MlfH
from relaqs.policies.registry import make_placed_policy
from relaqs.sharing.parts import DEVICES, NodeResources, PlacedPolicy, PlacedView
from relaqs.training.parted.placing import ModelCut, PartSizes, RunHistory, RunInParts, placed_by

ASKED_MS = {"mlf_h": (10.0, 100.0), "mlf_rl": (20.0, 250.0), "mlf_rl with MLF-C": (25.0, 300.0)}
ASKED_LIVE_MS = 5.0  # for a plan of 20 live runs
ASKED_SECONDS = 60.0  # for the simulation of 1,860 jobs
ASKED_MINUTES, ASKED_GIGABYTES = 20.0, 2.0  # for the simulation of 117,325 jobs
FIRST_SECONDS, MINUTES = 600.0, 5


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and how many jobs come to it at once: so many that 2,000 or 20,000 parts wait."""

    nodes: NodeResources
    jobs: int

    @property
    def devices(self) -> int:
        return int(self.nodes.device_counts.sum())


def sizes() -> list[Size]:
    """Return MLFS's two clusters: 20 nodes of 4 devices, and 550 of 8 or 2, which are 2,474 devices."""
    many = NodeResources.equal(550, 8)
    capacity = many.capacity.copy()
    capacity[229:, DEVICES] = 2.0
    return [
        Size(NodeResources.equal(20, 4), 200),
        Size(NodeResources(many.ids, capacity, many.alive), 2_364),
    ]


def policies() -> dict[str, PlacedPolicy]:
    """Return those of which times are asked, and others beside them."""
    asked: dict[str, PlacedPolicy] = {
        "mlf_h": MlfH(),
        "mlf_rl": MlfRl(),
        "mlf_rl with MLF-C": PlacedLoadControl(MlfRl()),
    }
    return asked | {name: make_placed_policy(name) for name in ("slack_index", "srpt", "tiresias")}


def views(nodes: NodeResources, jobs: int, seconds: Sequence[float], seed: int = 0) -> Iterator[PlacedView]:
    """Yield the view of a cluster at each of these times. All jobs have come before the first."""
    workload = Scenario("paper", jobs=jobs).workload(seed)
    at_once = tuple(replace(job, arrival_seconds=0.0) for job in workload.jobs)
    states = PlacedStates(replace(workload, jobs=at_once), nodes, MoveCosts(), 0.2, seed)
    for now, then in zip(seconds, [*seconds[1:], seconds[-1]], strict=True):
        states.set_demand(now)
        active = states.active(now)
        view = states.view(active, now, 60.0)
        yield view
        states.carry_out(active, MlfH().plan(view), now)
        states.set_pace(now)
        states.pass_time(now, then)
        states.end_jobs(then)


def views_of(size: Size) -> Iterator[PlacedView]:
    """Yield the view of an empty cluster, and then one for each of some minutes of a full one."""
    return views(size.nodes, size.jobs, [0.0, *(FIRST_SECONDS + 60.0 * minute for minute in range(MINUTES))])


def decision_table(size: Size) -> Table:
    """Return what a plan takes on one cluster."""
    empty, *full = list(views_of(size))
    running = np.mean([len(np.unique(view.parts.job[view.parts.is_placed])) for view in full])
    waiting = np.mean([(~view.parts.is_placed).sum() for view in full])
    title = f"{size.devices:,} devices, {running:,.0f} running jobs, {waiting:,.0f} waiting parts"
    table = Table(title=title)
    for heading in ("policy", "placed or moved", "ms a plan", "asked", "held", "ms, empty cluster"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for name, policy in policies().items():
        placed = np.mean([(policy.plan(view).node != view.parts.node).sum() for view in full])
        each = float(np.mean([cpu_ms(partial(policy.plan, view), 0.2) for view in full]))
        first = cpu_ms(partial(policy.plan, empty), 0.2)
        cells = [f"{placed:.0f}", f"{each:.1f}", "–", "–", f"{first:.0f}"]
        if name in ASKED_MS:
            asked = ASKED_MS[name][size.devices > 80]
            cells[2:4] = f"{asked:.0f}", "yes" if each <= asked else "not reached"
        table.add_row(name, *cells)
    return table


LIVE_RUNS, LIVE_WORKERS = 20, 8


def live_run(number: int) -> RunInParts:
    """Return a run in two or three stages, some with two replicas, that has told a few losses."""
    stages, replicas = 2 + number % 2, 1 + number % 2
    history = RunHistory(JobDescription(f"run {number:02}", work_total=100), float(number))
    for loss in (2.0, 1.5, 1.2):
        history.turned(stages, 1.0)
        history.reported(StepReport(0, loss, None, 1.0, False))
    history.begin_turn((3, 100))
    cut = ModelCut(tuple(range(stages)), stages, replicas=replicas)
    sizes = PartSizes(np.arange(1.0, stages + 1), np.full(stages - 1, 1e4), pieces=4)
    return RunInParts(MlfH(), history, cut, sizes)


def live_table() -> Table:
    """Return what a plan takes when a run comes to those that train on workers of one thread."""
    slots = [slot_name(f"tcp://10.0.0.{worker}:1", 0) for worker in range(LIVE_WORKERS)]
    runs = [live_run(number) for number in range(LIVE_RUNS + 1)]
    table = Table(title=f"a run comes to {LIVE_RUNS} live ones on {LIVE_WORKERS} workers")
    for heading in ("policy", "ms a plan", "asked", "held"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for name, policy in {**policies(), "mlfs": make_placed_policy("mlfs")}.items():
        there = placed_by(policy, runs[1:], slots, 100.0)
        stand = [replace(run, present=own) for run, own in zip(runs[1:], there, strict=True)]
        each = cpu_ms(partial(placed_by, policy, [runs[0], *stand], slots, 100.0), 0.2)
        held = "yes" if each <= ASKED_LIVE_MS else "not reached"
        table.add_row(name, f"{each:.1f}", f"{ASKED_LIVE_MS:.0f}", held)
    return table


def simulation_table(jobs: int) -> Table:
    """Return what whole simulations take."""
    table = Table(title=f"{jobs:,} jobs of scenario paper within 40 hours, 20 nodes of 4 devices")
    for heading in ("policy", "may stop", "plans", "CPU seconds", f"at most {ASKED_SECONDS:.0f} s"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for name, stop in (("mlf_h", "same"), ("mlf_rl", "same"), ("mlf_h", "none"), ("mlf_rl", "none")):
        case = PlacedCase(name, 0, Scenario("paper", jobs), "same" if stop == "same" else "none")
        workload = case.scenario.workload(0)
        started = time.process_time()
        outcome = simulate_placed(workload, case.made(), NodeResources.equal(20, 4), case.rules)
        seconds = time.process_time() - started
        held = "yes" if seconds <= ASKED_SECONDS else "not reached"
        table.add_row(name, stop, f"{len(outcome.decision_seconds):,}", f"{seconds:.0f}", held)
    return table


def large_table(text: str, policy: str, stop: EarlyStops, seed: int) -> Table:
    """Return what one simulation on 2,474 devices took, and what came of it. text: as for `--placed`."""
    nodes = sizes()[1].nodes
    scenario = scenario_of(text, None, int(nodes.device_counts.sum()))
    case = PlacedCase(policy, seed, scenario, stop)
    started = time.process_time()
    workload = scenario.workload(seed)
    made = time.process_time()
    outcome = simulate_placed(
        workload, case.made(), nodes, case.rules, seed=seed, stopwatch=time.process_time
    )
    ended = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    minutes = (ended - started) / 60
    unknown = np.isnan(outcome.end_seconds).sum()
    table = Table(title=f"{scenario.jobs:,} jobs, {scenario}, {policy}, stop {stop}, 2,474 devices")
    for heading in ("what", "here", "asked"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row("CPU minutes", f"{minutes:.1f}", f"{ASKED_MINUTES:.0f}")
    table.add_row("of these, to make the jobs", f"{(made - started) / 60:.1f}")
    table.add_row("of these, plans", f"{outcome.decision_seconds.sum() / 60:.1f}")
    table.add_row("GB of memory at most", f"{peak:.2f}", f"{ASKED_GIGABYTES:.0f}")
    table.add_row("plans", f"{len(outcome.decision_seconds):,}")
    table.add_row("ms a plan, mean", f"{outcome.decision_seconds.mean() * 1e3:.1f}")
    table.add_row("ms a plan, most", f"{outcome.decision_seconds.max() * 1e3:.1f}")
    table.add_row("jobs that did not end", f"{unknown:,}")
    table.add_row("hours simulated", f"{np.nanmax(outcome.end_seconds) / 3600:.1f}")
    table.add_row("JCT, minutes", f"{np.nanmean(outcome.completion_seconds) / 60:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1860, help="of the simulation")
    parser.add_argument("--only-decisions", action="store_true", help="simulate nothing")
    parser.add_argument("--large", help="simulate this scenario on 2,474 devices, such as trace:117325@0.9")
    parser.add_argument("--policy", default="mlf_h", help="of --large")
    parser.add_argument("--stop", default="none", choices=("own", "same", "none"), help="of --large")
    options = parser.parse_args()
    console = Console()
    if options.large is not None:
        console.print(large_table(options.large, options.policy, options.stop, 0))
        return
    for size in sizes():
        console.print(decision_table(size))
    console.print(live_table())
    if not options.only_decisions:
        console.print(simulation_table(options.jobs))


if __name__ == "__main__":
    main()
