"""How soon nothing is left on a cluster of a model in parts whose client is killed.

    python -m benchmarks.killed_clients [--times 10] [--workers 2]

A process trains a model in two parts on a scheduler and workers of one thread, and is killed. From then on
the scheduler is asked every two milliseconds for the run, which holds slots, and for its tasks.
The time counts until it has neither, so that another run may have the workers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client
from rich.console import Console

from benchmarks.cluster_shares import WAIT_SECONDS, cluster
from benchmarks.placed_live import BATCH_ROWS, SQL, warehouse
from benchmarks.record import circumstances, headline, write
from relaqs.executors.dask.messages import job_of
from relaqs.executors.dask.plugin import RelaqsPlugin

LOOK_SECONDS = 0.002
ASKED_SECONDS = 0.1
CLIENT = """
import sys, time
from relaqs import connect
from relaqs.training import ModelParts, TorchModule

data, cluster, sql, batch_rows = sys.argv[1:]
model = TorchModule(
    sql, "y", "benchmarks.placed_models:perceptron", scaling="none", passes_most=10**6, patience_passes=10**6
)
with connect(data, cluster=cluster) as db:
    run = db.train(model, batch=int(batch_rows), parts=ModelParts(2))
    while not run.steps:
        time.sleep(0.01)
    print("trains", flush=True)
    time.sleep(1000)
"""


def is_free(dask_scheduler: Any) -> bool:
    """Return whether the scheduler knows no job and has no task of one. To be run on the scheduler."""
    plugin = next(each for each in dask_scheduler.plugins.values() if isinstance(each, RelaqsPlugin))
    return not plugin._homes and not any(job_of(key) is not None for key in dask_scheduler.tasks)


def seconds_left(dask: Any, command: Sequence[str]) -> float:
    """Let a client train, kill it, and return for how long something of it was left."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == b"trains\n"
            assert not dask.run_on_scheduler(is_free)
            killed_seconds = time.monotonic()
        finally:
            client.kill()  # also where it does not train: nobody else would end it
        while not dask.run_on_scheduler(is_free):
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - killed_seconds


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.killed_clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=10, help="how many clients are killed, default 10")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread, default 2")
    options = parser.parse_args(words)
    facts, data = circumstances("killed_clients", words), warehouse(0.05)
    with cluster(options.workers) as address, Client(address, set_as_default=False) as dask:
        dask.wait_for_workers(options.workers, timeout=WAIT_SECONDS)
        command = [sys.executable, "-c", CLIENT, str(data), address, SQL, str(BATCH_ROWS)]
        found = [seconds_left(dask, command) for _ in range(options.times)]
    asked = f"{1000 * ASKED_SECONDS:.0f} asked"
    median, most = 1000 * np.median(found), 1000 * max(found)
    Console().print(headline(facts), f"{median:.0f} ms, {most:.0f} at most ({asked})", sep="\n")
    print(f"Record: {write('killed_clients', facts, {'seconds': found})}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
