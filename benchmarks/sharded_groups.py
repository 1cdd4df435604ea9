"""How exact equation 1 is for groups of real runs: what an iteration takes, predicted and measured.

    python -m benchmarks.sharded_groups [--groups 20] [--jobs 4] [--machines 2] [--megabits 200] [--seed 0]
                                       [--stretch 1]

Machines are emulated as `benchmarks.sharded_live` has them, and COMP sleeps. Jobs are drawn: how large their
parameters are, and how long COMP takes. Each trains alone first, and says what its iterations are made of
(`TrainingRun.subtask_seconds`): T_cpu, T_net, and a rest in which it has neither a core nor the network. Then
groups of two jobs and more train together. A job's priority is its T_cpu, and the policy goes by priorities
alone. So each makes an iteration in the same time, as a group's plan of cores has it. T_g is the longest mean
time of an iteration among the jobs of a group.

T_g is compared with equation 1 by three profiles:

- alone: what the jobs took alone, before the group was made.
- so far: the same, but T_cpu is the running mean that each job has when the passes begin that count. This is
  what a policy would know then. On a machine with other work it is nearer than what was measured before.
- there: T_cpu of the passes that count themselves. It is no prediction, and says for how long cores had no
  COMP while there was some to do.

The last line is for how long somebody waited for a core of this machine, because of other work or of this.

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
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from relaqs_lab.group_policies.group_model import Bound, GroupTimes

from benchmarks.sharded_live import (
    LONG_SECONDS,
    PARTITIONS,
    ROWS,
    WARM_PASSES,
    SleptTraining,
    can_emulate,
    emulated_machines,
    waited_seconds,
)
from relaqs import Session, connect, shuffle
from relaqs.training import SubtaskSeconds, TrainingRun

MEGABYTES = (1.0, 6.0)  # of a job's parameters
COMP_SECONDS = (0.15, 0.6)
SHAPES = 6  # different jobs, from which groups are drawn
MORE_WARM_PASSES = 3  # by which jobs know their times

Profiled = Literal["alone", "so far", "there"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A job and what its iteration is made of alone."""

    job: SleptTraining
    alone: SubtaskSeconds


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a job.

    Attributes:
        seconds: its mean iteration.
        so_far: what its iterations were made of when the passes began that count.
        there: the same at the end of them.
    """

    seconds: float
    so_far: SubtaskSeconds
    there: SubtaskSeconds


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """An iteration of a group, in seconds.

    Attributes:
        predicted: by each profile.
        bound: what it is predicted to be bound by, by what its jobs took alone.
    """

    predicted: dict[Profiled, float]
    measured: float
    bound: str

    def error(self, profile: Profiled) -> float:
        """The difference as a share of what was measured; above 0 where it was predicted too short."""
        return (self.measured - self.predicted[profile]) / self.measured


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if not can_emulate():
        return
    draws = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        shuffle(pa.table({"x": np.arange(ROWS) / ROWS}), Path(folder) / "points", partitions=PARTITIONS)
        with (
            emulated_machines(options.machines, round(options.megabits / options.stretch)) as client,
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
        for profile in get_args(Profiled):
            errors = np.array([group.error(profile) for group in found])
            sizes = np.abs(errors)
            print(
                f"{kind}, by {profile}: {len(found)} groups, |T_g - eq. 1| / T_g mean {sizes.mean():.1%}, "
                f"95th percentile {np.quantile(sizes, 0.95):.1%}, mean with its sign {errors.mean():+.1%}"
            )


def drawn_shape(db: Session, draws: random.Random, options: argparse.Namespace) -> Shape:
    comp = options.stretch * draws.uniform(*COMP_SECONDS)
    megabytes = draws.uniform(*MEGABYTES)
    job = SleptTraining("SELECT x FROM points", megabytes, comp * options.machines / ROWS)
    (found,) = trained(db, [(job, 1.0)], options.passes)
    parts = ", ".join(f"{name} {value:.3f}" for name, value in asdict(found.there).items())
    print(
        f"alone: {megabytes:.1f} MB, COMP {comp:.2f} s slept, an iteration {found.seconds:.2f} s: {parts}",
        flush=True,
    )
    return Shape(job, found.there)


def group_of(
    db: Session, draws: random.Random, shapes: Sequence[Shape], options: argparse.Namespace
) -> MeasuredGroup:
    group = draws.choices(shapes, k=draws.randint(2, options.jobs))
    alone = [shape.alone for shape in group]
    found = trained(db, [(shape.job, shape.alone.comp) for shape in group], options.passes)
    times = group_times(alone, alone)
    predicted: dict[Profiled, float] = {
        "alone": float(times.seconds[0]),
        "so far": float(group_times(alone, [each.so_far for each in found]).seconds[0]),
        "there": float(group_times(alone, [each.there for each in found]).seconds[0]),
    }
    made = MeasuredGroup(predicted, max(each.seconds for each in found), Bound(times.bound[0]).name)
    errors = ", ".join(
        f"by {name} {value:.2f} s ({made.error(name):+.0%})" for name, value in predicted.items()
    )
    jobs = " ".join(f"{each.seconds:.2f}" for each in found)
    print(
        f"{len(group)} jobs, bound by {made.bound}: {errors}, measured {made.measured:.2f} s ({jobs})",
        flush=True,
    )
    return made


def group_times(alone: Sequence[SubtaskSeconds], newest: Sequence[SubtaskSeconds]) -> GroupTimes:
    """Return what equation 1 says of jobs: T_cpu is the newest, and the others are as they were alone.

    In a group the network's times contain that others had it.
    """
    comp = np.array([each.comp for each in newest])
    comm, rest = (np.array([getattr(each, name) for each in alone]) for name in ("comm", "rest"))
    none = np.zeros(len(alone))
    return GroupTimes.of(comp, comm, none, none.astype(np.int64), 1, rest)


def trained(db: Session, jobs: Sequence[tuple[SleptTraining, float]], passes: int) -> list[Trained]:
    """Return what came of each job while all of them train. jobs: with their priorities."""
    begun, runs = [], []
    for job, priority in jobs:
        begun.append(time.monotonic())
        runs.append(db.train(job, parameters="sharded", priority=priority))
    try:
        _until_all_made(runs, [WARM_PASSES + MORE_WARM_PASSES] * len(runs))
        since, so_far = time.monotonic(), _subtasks_of(runs)
        _until_all_made(runs, [len(run.steps) + passes + 1 for run in runs])
        there = _subtasks_of(runs)
        ends = [
            [first + step.elapsed_seconds for step in run.steps]
            for first, run in zip(begun, runs, strict=True)
        ]
    finally:
        for run in runs:
            run.stop()
    until = min(each[-1] for each in ends)
    means = [_mean_gap([end for end in each if since <= end <= until]) for each in ends]
    return [Trained(*facts) for facts in zip(means, so_far, there, strict=True)]


def _until_all_made(runs: Sequence[TrainingRun], passes: Sequence[int]) -> None:
    """Wait until each run has made so many passes."""
    deadline = time.monotonic() + LONG_SECONDS
    while any(len(run.steps) < least for run, least in zip(runs, passes, strict=True)):
        if time.monotonic() > deadline or any(run.wait(0.05) for run in runs):
            raise RuntimeError(f"a run ended or hangs after {[len(run.steps) for run in runs]} passes")


def _subtasks_of(runs: Sequence[TrainingRun]) -> list[SubtaskSeconds]:
    found = [run.subtask_seconds for run in runs]
    return [each for each in found if each is not None]


def _mean_gap(ends: Sequence[float]) -> float:
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded_groups")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=4, help="of a group, at most")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each machine's link")
    parser.add_argument("--passes", type=int, default=10, help="of each job, that count")
    parser.add_argument(
        "--stretch",
        type=float,
        default=1.0,
        help="COMP takes so many times as long, and links have so many times less, so that other work on "
        "this machine counts less",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
