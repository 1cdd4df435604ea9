"""Whether mlf_rl places a kind of model well that it did not learn from.

    python -m benchmarks.placed_held_out [--jobs 100] [--seeds 5] [--weights DIR]

For each of the five algorithms of the simulated jobs, the lessons of `relaqs learn` are given jobs of the
other four alone. The weights then place jobs of the one that was left out, on 10 nodes of 4 devices, at 1.5
times the load, where every policy stops jobs early and where nobody does. *mlf_rl*: with these weights.
*shipped*: with those of the package, which learned from all five. Asked is a mean completion time within 5 %
of that of MLF-H, or below it. Lessons take a minute or two of a core each, and need PyTorch. --weights keeps
what was learned in a folder, and takes from there what it has.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from relaqs_lab.cli.studies import both_parts
from relaqs_lab.learning.lessons import Lessons, learn
from relaqs_lab.records.comparison import over_seeds
from relaqs_lab.records.simulated_runs import PLACED_MEASURES
from relaqs_lab.simulation.placed.placed_study import PlacedCase, run_placed_case
from relaqs_lab.simulation.placed.placed_workload import ALGORITHMS, Algorithm, Scenario
from relaqs_lab.simulation.workload import EarlyStops
from rich.console import Console
from rich.table import Table

NODES, DEVICES, LOAD = 10, 4, 1.5
ASKED = 0.05  # by which mlf_rl may be slower
LEARNING_SEED = 0
STOPS: tuple[EarlyStops, ...] = ("same", "none")


def main() -> None:
    options = _parser().parse_args()
    table = Table(
        title=f"{options.jobs} jobs of one algorithm, mean completion in minutes, {options.seeds} seeds"
    )
    for heading in ("left out", "who may stop", "mlf_h", "mlf_rl", "relative to mlf_h", "shipped", "≤ 5 %"):
        table.add_column(heading)
    with tempfile.TemporaryDirectory() as scratch:
        for algorithm in ALGORITHMS:
            weights = (options.weights or Path(scratch)) / f"without-{algorithm.name}.npz"
            if not weights.exists():
                weights.parent.mkdir(parents=True, exist_ok=True)
                learn_without(algorithm, weights)
            for stop in STOPS:
                table.add_row(
                    algorithm.name, stop, *_cells(algorithm, weights, stop, options.jobs, options.seeds)
                )
    Console(width=120).print(table)


def learn_without(algorithm: Algorithm, weights: Path) -> None:
    """Write the weights of lessons in which no job is of this algorithm."""
    print(f"lessons without {algorithm.name} …", file=sys.stderr, flush=True)
    others = tuple(each for each in ALGORITHMS if each != algorithm)
    lessons = Lessons()
    settings = tuple(
        replace(each, scenario=replace(each.scenario, algorithms=others)) for each in lessons.settings
    )
    learned = learn(replace(lessons, settings=settings), LEARNING_SEED, lambda share, what: None)
    with open(weights, "wb") as file:
        learned.networks.save(file)


def _cells(algorithm: Algorithm, weights: Path, stop: EarlyStops, jobs: int, seeds: int) -> list[str]:
    scenario = Scenario("paper", jobs, devices=NODES * DEVICES, load=LOAD, algorithms=(algorithm,))
    base = PlacedCase("mlf_h", 0, scenario, stop, NODES, DEVICES)
    own = replace(base, policy="mlf_rl", parameters=(("weights", str(weights)),))
    cases = {"mlf_h": base, "mlf_rl": own, "shipped": replace(base, policy="mlf_rl")}
    found = {
        name: np.array([minutes_of(replace(case, seed=seed)) for seed in range(seeds)])
        for name, case in cases.items()
    }
    relative = over_seeds((found["mlf_rl"] / found["mlf_h"] - 1).tolist())
    reached = "reached" if relative.mean <= ASKED else "not reached"
    told = {name: both_parts(over_seeds(each.tolist()), 1.0, ".1f") for name, each in found.items()}
    percent = both_parts(relative, 100.0, ".1f") + " %"
    return [told["mlf_h"], told["mlf_rl"], percent, told["shipped"], reached]


def minutes_of(case: PlacedCase) -> float:
    """Return the mean time from a job's arrival to its end."""
    return PLACED_MEASURES["completion_seconds"](run_placed_case(case, {}, lambda: 0.0)) / 60


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placed_held_out",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--weights", type=Path, metavar="DIR", help="where weights are kept, and found again")
    return parser


if __name__ == "__main__":
    main()
