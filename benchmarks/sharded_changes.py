"""What it costs two jobs in shards when a third one comes and ends, and when a machine dies.

    python -m benchmarks.sharded_changes [--machines 3] [--passes 8] [--times 3]

Machines are emulated as `benchmarks.sharded_live` has them, and COMP sleeps. Two jobs train together, for
some passes each time: alone, with a third job, without it again, and after a machine was killed.

*Pause*: the longest iteration of one of the two jobs from a change to the next, beyond their median one
there, in such iterations. *Cost*: by how much their iterations are longer than the median ones, of all their
time. Where nothing changes both are not 0 either, so the time before the first change is printed as well.
Passes that are made again after a machine died count as one long iteration. Both models must have the bits of
client mode at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client

from benchmarks.sharded_live import (
    LONG_SECONDS,
    PARTITIONS,
    ROWS,
    WARM_PASSES,
    SleptTraining,
    can_emulate,
    emulated_machines,
    megabytes_of,
    told,
    waited_seconds,
)
from relaqs import Session, connect, shuffle
from relaqs.training import TrainingRun

CHANGES = ("nothing", "a job comes", "it ends", "a machine dies")


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if not can_emulate():
        return
    begun, waited = time.monotonic(), waited_seconds()
    found: dict[str, list[tuple[float, float]]] = {change: [] for change in CHANGES}
    with tempfile.TemporaryDirectory() as folder:
        shuffle(pa.table({"x": np.arange(ROWS) / ROWS}), Path(folder) / "points", partitions=PARTITIONS)
        row_seconds = options.seconds * options.machines / ROWS
        job = SleptTraining("SELECT x FROM points", megabytes_of(options), row_seconds)
        for _ in range(options.times):
            with (
                emulated_machines(options.machines, options.megabits) as client,
                connect(folder, cluster=client, policy="weighted_fair") as db,
            ):
                for change, pause_and_cost in disturbed(db, client, job, options.passes).items():
                    found[change].append(pause_and_cost)
    for change, each in found.items():
        pauses, costs = zip(*each, strict=True)
        print(f"{change}: pause {told(pauses)} iterations, cost {told([100 * cost for cost in costs])} %")
    share = (waited_seconds() - waited) / (time.monotonic() - begun)
    print(f"somebody waited for a core in {share:.0%} of the seconds")


def disturbed(db: Session, client: Client, job: SleptTraining, passes: int) -> dict[str, tuple[float, float]]:
    """Return the pause and the cost of each change. Raises AssertionError where a model has other bits."""
    most = WARM_PASSES + 6 * passes
    begun = time.monotonic()
    runs = [db.train(job, parameters="sharded", max_steps=most) for _ in range(2)]
    _until_all_made(runs, WARM_PASSES + 1)
    times = [time.monotonic()]
    _until_all_made(runs, len(runs[0].steps) + passes)
    times.append(time.monotonic())
    third = db.train(job, parameters="sharded", max_steps=passes)
    third.result(timeout=LONG_SECONDS)
    times.append(time.monotonic())
    _until_all_made(runs, len(runs[0].steps) + passes)
    times.append(time.monotonic())
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    models = [run.result(timeout=LONG_SECONDS) for run in runs]
    times.append(time.monotonic())
    ends = [[begun + step.elapsed_seconds for step in run.steps] for run in runs]
    expected = db.train(replace(job, row_seconds=0.0), parameters="client", max_steps=most)
    whole: Any = expected.result(timeout=LONG_SECONDS)
    assert all(np.array_equal(model, whole) for model in models)
    return {
        change: _pause_and_cost(ends, *window)
        for change, window in zip(CHANGES, pairwise(times), strict=True)
    }


def _pause_and_cost(ends: Sequence[Sequence[float]], since: float, until: float) -> tuple[float, float]:
    """Return the longest iteration in a window beyond the median one, and the share beyond it of all time."""
    gaps = [
        [end - last for last, end in pairwise(each) if last < until and end > since and end <= until]
        for each in ends
    ]
    usual = [statistics.median(each) for each in gaps]
    pause = max(max(each) / median - 1 for each, median in zip(gaps, usual, strict=True))
    beyond = sum(sum(each) - len(each) * median for each, median in zip(gaps, usual, strict=True))
    return pause, beyond / sum(map(sum, gaps))


def _until_all_made(runs: Sequence[TrainingRun], passes: int) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while any(len(run.steps) < passes for run in runs):
        if time.monotonic() > deadline or any(run.wait(0.02) for run in runs):
            raise RuntimeError(f"a run ended or hangs after {[len(run.steps) for run in runs]} passes")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded_changes")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each machine's link")
    parser.add_argument("--megabytes", type=float, help="of the parameters; not said: as sharded_live has it")
    parser.add_argument("--seconds", type=float, default=0.3, help="of COMP in a step, on each machine")
    parser.add_argument("--passes", type=int, default=8, help="between two changes")
    parser.add_argument("--times", type=int, default=3)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
