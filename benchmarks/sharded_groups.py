"""How exact equation 1 is for groups of real runs: what an iteration takes, predicted and measured.

    python -m benchmarks.sharded_groups [--groups 20] [--jobs 4] [--machines 2] [--megabits 200] [--seed 0]

Machines are emulated as `benchmarks.sharded_live` has them, and COMP sleeps. Jobs are drawn: how large their
parameters are, and how long COMP takes. Each trains alone first, and says what its iterations are made of
(`TrainingRun.subtask_seconds`): T_cpu, T_net, and a rest in which it has neither a core nor the network. Then
groups of two jobs and more train together. A job's priority is its T_cpu, and the policy goes by priorities
alone. So each makes an iteration in the same time, as a group's plan of cores has it. T_g is the longest mean
time of an iteration among the jobs of a group.

Each line of a group ends with what its jobs' subtasks took there, over what they took alone. So it can be
seen where an error comes from. Beside all groups is for how long somebody waited for a core of this machine.

Source: Lee et al., Harmony, ICDCS 2021, section IV-B2 (the equation) and Fig. 13b (an error below 5 %).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.sharded_live import (
    LONG_SECONDS,
    PARTITIONS,
    ROWS,
    WARM_PASSES,
    SleptTraining,
    can_emulate,
    emulated_machines,
)
from relaqs import Session, connect, shuffle
from relaqs.group_policies.group_model import Bound, GroupTimes
from relaqs.training.sharded.subtask_seconds import SubtaskSeconds

MEGABYTES = (1.0, 6.0)  # of a job's parameters
COMP_SECONDS = (0.15, 0.6)
SHAPES = 6  # different jobs, from which groups are drawn


@dataclass(frozen=True, slots=True)
class Shape:
    """A job and what its iteration is made of alone."""

    job: SleptTraining
    alone: SubtaskSeconds


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a job: its mean iteration in seconds, and what its iterations were made of."""

    seconds: float
    subtasks: SubtaskSeconds


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """An iteration of a group, in seconds. bound: what it is predicted to be bound by."""

    predicted: float
    measured: float
    bound: str

    @property
    def error(self) -> float:
        """The difference as a share of what was measured; above 0 where it was predicted too short."""
        return (self.measured - self.predicted) / self.measured


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if not can_emulate():
        return
    draws = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        shuffle(pa.table({"x": np.arange(ROWS) / ROWS}), Path(folder) / "points", partitions=PARTITIONS)
        with (
            emulated_machines(options.machines, options.megabits) as client,
            connect(folder, cluster=client, policy="weighted_fair") as db,
        ):
            shapes = [drawn_shape(db, draws, options) for _ in range(SHAPES)]
            waited, begun = waited_seconds(), time.monotonic()
            report([group_of(db, draws, shapes, options) for _ in range(options.groups)])
            share = (waited_seconds() - waited) / (time.monotonic() - begun)
            print(f"somebody waited for a core in {share:.0%} of the seconds")


def report(groups: Sequence[MeasuredGroup]) -> None:
    """Print how far off the prediction is, over all groups and by what they are bound by."""
    kinds = defaultdict[str, list[MeasuredGroup]](list)
    for group in groups:
        kinds["all"].append(group)
        kinds[group.bound].append(group)
    for kind, found in kinds.items():
        errors = np.array([group.error for group in found])
        sizes = np.abs(errors)
        print(
            f"{kind}: {len(found)} groups, |T_g - eq. 1| / T_g mean {sizes.mean():.1%}, "
            f"95th percentile {np.quantile(sizes, 0.95):.1%}, mean with its sign {errors.mean():+.1%}"
        )


def drawn_shape(db: Session, draws: random.Random, options: argparse.Namespace) -> Shape:
    comp = draws.uniform(*COMP_SECONDS)
    megabytes = draws.uniform(*MEGABYTES)
    job = SleptTraining("SELECT x FROM points", megabytes, comp * options.machines / ROWS)
    (found,) = trained(db, [(job, 1.0)], options.passes)
    print(
        f"alone: {megabytes:.1f} MB, COMP {comp:.2f} s slept, an iteration {found.seconds:.2f} s: "
        f"{_parts_told(found.subtasks)}",
        flush=True,
    )
    return Shape(job, found.subtasks)


def group_of(
    db: Session, draws: random.Random, shapes: Sequence[Shape], options: argparse.Namespace
) -> MeasuredGroup:
    group = draws.choices(shapes, k=draws.randint(2, options.jobs))
    comp, comm, rest = (
        np.array([getattr(shape.alone, name) for shape in group]) for name in ("comp", "comm", "rest")
    )
    none, one = np.zeros(len(group)), np.zeros(len(group), dtype=np.int64)
    times = GroupTimes.of(comp, comm, none, one, 1, rest)
    found = trained(db, [(shape.job, shape.alone.comp) for shape in group], options.passes)
    made = MeasuredGroup(
        float(times.seconds[0]), max(each.seconds for each in found), Bound(times.bound[0]).name
    )
    print(
        f"{len(group)} jobs, bound by {made.bound}: eq. 1 {made.predicted:.2f} s, measured "
        f"{made.measured:.2f} s ({made.error:+.0%}); jobs "
        f"{' '.join(f'{each.seconds:.2f}' for each in found)}; there over alone: "
        f"{_ratios_told([each.subtasks for each in found], [shape.alone for shape in group])}",
        flush=True,
    )
    return made


def _parts_told(subtasks: SubtaskSeconds) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in asdict(subtasks).items())


def _ratios_told(there: Sequence[SubtaskSeconds], alone: Sequence[SubtaskSeconds]) -> str:
    """Return how many times as long each kind of subtask took in a group, over all of its jobs."""
    sums = [
        {name: sum(getattr(each, name) for each in some) for name in asdict(some[0])}
        for some in (there, alone)
    ]
    return ", ".join(f"{name} {sums[0][name] / value:.2f}" for name, value in sums[1].items())


def trained(db: Session, jobs: Sequence[tuple[SleptTraining, float]], passes: int) -> list[Trained]:
    """Return what came of each job while all of them train. jobs: with their priorities."""
    begun, runs = [], []
    for job, priority in jobs:
        begun.append(time.monotonic())
        runs.append(db.train(job, parameters="sharded", priority=priority))
    deadline = time.monotonic() + LONG_SECONDS
    try:
        while any(len(run.steps) < passes + WARM_PASSES for run in runs):
            if time.monotonic() > deadline or any(run.wait(0.05) for run in runs):
                raise RuntimeError(f"a run ended or hangs after {[len(run.steps) for run in runs]} passes")
        ends = [
            [first + step.elapsed_seconds for step in run.steps]
            for first, run in zip(begun, runs, strict=True)
        ]
        subtasks = [run.subtask_seconds for run in runs]
    finally:
        for run in runs:
            run.stop()
    since, until = max(each[WARM_PASSES - 1] for each in ends), min(each[-1] for each in ends)
    means = [_mean_gap([end for end in each if since <= end <= until]) for each in ends]
    return [Trained(mean, parts) for mean, parts in zip(means, subtasks, strict=True) if parts is not None]


def waited_seconds() -> float:
    """Return for how long somebody has waited for a core since this machine was started, in all."""
    some = Path("/proc/pressure/cpu").read_text().split()
    return int(some[4].removeprefix("total=")) / 1e6


def _mean_gap(ends: Sequence[float]) -> float:
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded_groups")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=4, help="of a group, at most")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each machine's link")
    parser.add_argument("--passes", type=int, default=10, help="of each job, that count")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
