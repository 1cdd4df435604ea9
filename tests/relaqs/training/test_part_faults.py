"""Models in parts whose workers, clients and schedulers are really killed, stopped or started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client

from relaqs import ClusterError, Session, connect
from relaqs.training import ModelParts
from relaqs.training.parted.parted_job import PartCarrier
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    address_of,
    eventually,
    free_port,
    lone_worker_command,
    running_cluster,
    scheduler_command,
    started,
    workers_command,
)
from tests.relaqs.training.test_parts_on_dask import BATCH_ROWS, ENDLESS, as_in_one_piece, workers_of
from tests.relaqs.training.test_turn_faults import free_all

pytest.importorskip("torch")
pytestmark = pytest.mark.slow  # each worker imports torch

CLIENT = """
import sys, time
from relaqs import connect
from tests.relaqs.training.test_parts_on_dask import BATCH_ROWS, ENDLESS

with connect(sys.argv[1], cluster=sys.argv[2]) as db:
    run = db.train(ENDLESS, batch=BATCH_ROWS, parts=2)
    while not run.steps:
        time.sleep(0.05)
    print("trains", flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("part-faults") / "scheduler.log") as address:
        yield address


@pytest.fixture
def db(cluster: str, training_warehouse: Path) -> Iterator[Session]:
    with connect(training_warehouse, cluster=cluster) as session:
        yield session


def test_the_slots_of_a_client_that_is_killed_are_free(
    db: Session, cluster: str, training_warehouse: Path
) -> None:
    command = [sys.executable, "-c", CLIENT, str(training_warehouse), cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"trains\n"
        client.kill()
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=2) as run:
        eventually(lambda: run.steps)
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_what_a_layer_raises_ends_the_run_and_no_other(db: Session) -> None:
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=2) as other:
        eventually(lambda: other.steps)
        run = db.train(
            replace(ENDLESS, module="tests.relaqs.training.torch_modules:fails_on_workers"),
            batch=BATCH_ROWS,
            parts=2,
        )
        with pytest.raises(ZeroDivisionError, match="this layer fails on workers"):
            run.result(timeout=LONG_SECONDS)
        passes = len(other.steps)
        eventually(lambda: len(other.steps) > passes)


def test_a_run_whose_driver_has_ended_between_two_turns_says_why(db: Session) -> None:
    run = db.train(ENDLESS, batch=BATCH_ROWS, parts=2)
    eventually(lambda: run.steps)
    carrier = run.runner._executor
    assert isinstance(carrier, PartCarrier)
    run.pause()
    eventually(lambda: carrier._wanted is None)
    carrier.unreachable(ClusterError("out of reach between two turns"))
    assert carrier.ends(LONG_SECONDS)
    run.resume()
    with pytest.raises(ClusterError, match="out of reach between two turns"):
        run.result(timeout=LONG_SECONDS)


def test_parts_that_were_freed_meanwhile_are_prepared_once_more(
    db: Session, cluster: str, training_warehouse: Path
) -> None:
    """A worker frees those that had no turn for half a minute, as if their driver had died."""
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=2) as run:
        eventually(lambda: run.steps)
        with Client(cluster, set_as_default=False) as client:
            client.run(free_all)
        passes = len(run.steps)
        eventually(lambda: len(run.steps) > passes + 1)
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_a_worker_that_hangs_costs_no_bit(db: Session, cluster: str, training_warehouse: Path) -> None:
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=ModelParts(2, replicas=2)) as run:
        eventually(lambda: run.steps)
        victim = workers_of(run)[0]
        with Client(cluster, set_as_default=False) as client:
            process = client.run(os.getpid, workers=[victim])[victim]
        os.kill(process, signal.SIGSTOP)
        try:
            eventually(lambda: victim not in workers_of(run))
            passes = len(run.steps)
            eventually(lambda: len(run.steps) > passes)
        finally:
            os.kill(process, signal.SIGCONT)
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_the_scheduler_is_started_again_and_a_worker_joins(training_warehouse: Path) -> None:
    """Its workers end with it, and all parts with them. Of two runs on the one new worker, one moves on."""
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        first = stack.enter_context(started(*scheduler_command(port)))
        stack.enter_context(started(*workers_command(address)))
        with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=LONG_SECONDS)
        db = stack.enter_context(connect(training_warehouse, cluster=address))
        runs = [stack.enter_context(db.train(ENDLESS, batch=BATCH_ROWS, parts=1)) for _ in range(2)]
        eventually(lambda: all(run.steps for run in runs))
        first.kill()
        first.join(LONG_SECONDS)
        stack.enter_context(started(*scheduler_command(port)))
        stack.enter_context(started(*lone_worker_command(address)))
        before = {*workers_of(runs[0]), *workers_of(runs[1])}
        eventually(
            lambda: workers_of(runs[0]) == workers_of(runs[1]) != [] and not before & {*workers_of(runs[0])}
        )
        stack.enter_context(started(*lone_worker_command(address)))
        eventually(lambda: workers_of(runs[0]) != workers_of(runs[1]))
        made = [len(run.steps) for run in runs]
        eventually(lambda: all(len(run.steps) > passes for run, passes in zip(runs, made, strict=True)))
        for run in runs:
            run.stop()
        assert all(run.wait(LONG_SECONDS) for run in runs)
    assert all(as_in_one_piece(run, training_warehouse) for run in runs)
