"""Dask clusters of real processes for the tests, started from the shell, and what is run on them."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import dask
from distributed import Client

from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import JobRunner, RunState
from tests.relaqs.executors.toy_jobs import ToyJob
from tests.relaqs.listening import Listens

# Dask's programs are forked from one that has imported what they need: so a cluster takes no time to start.
multiprocessing.get_context("forkserver").set_forkserver_preload(
    [
        "distributed.cli.dask_scheduler",
        "distributed.cli.dask_worker",
        "relaqs.executors.dask",
        "relaqs.training",
    ]
)

POLL_SECONDS = 0.05
LONG_SECONDS = 60.0  # nothing here takes as long unless it hangs
FIRST_PORT, LAST_PORT = 20_000, 32_000  # below those that Linux gives to whoever connects

# One death of a task's worker is forgiven, not three, so that a poisonous task is found sooner. The scheduler
# checks its own state all the time.
ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    "DASK_DISTRIBUTED__SCHEDULER__VALIDATE": "True",
}


class Process(ForkServerProcess):
    """A command of Dask's command line, as `python -m dask` runs it.

    environment: all of its environment variables. log: the file that its output goes to.
    """

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str], log: str | Path) -> None:
        super().__init__()
        self._command = command
        self._environment = environment
        self._log = log

    def run(self) -> None:
        from dask.__main__ import main

        output = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.clear()
        os.environ.update(self._environment)
        dask.config.refresh()
        sys.argv = ["dask", *self._command]
        main()


def free_port() -> int:
    """Return a port that is free now, and that the system gives to nobody who asks for any.

    So a scheduler that is killed and started again finds its port free, whatever others connect meanwhile.
    """
    while True:
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def started(*command: str, settings: Mapping[str, str] = {}, log: Path | None = None) -> Iterator[Process]:
    """Run a command of Dask's command line inside the block.

    settings: environment variables beside `ENVIRONMENT`. log: where its output goes; else nowhere.
    """
    process = Process(command, {**os.environ, **ENVIRONMENT, **settings}, os.devnull if log is None else log)
    process.start()
    try:
        yield process
    finally:
        process.kill()  # a nanny's workers end with it
        process.join(LONG_SECONDS)


def scheduler_command(port: int) -> list[str]:
    return ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]


def workers_command(address: str, count: int = 2) -> list[str]:
    return ["worker", address, "--nworkers", str(count), "--nthreads", "1", "--no-dashboard"]


def lone_worker_command(address: str) -> list[str]:
    """Return that of a worker without a nanny, which nobody replaces."""
    return ["worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]


def address_of(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


@contextmanager
def running_cluster(
    log: Path, *, workers: int = 2, nannies: bool = True, settings: Mapping[str, str] = {}
) -> Iterator[str]:
    """Give the address of a scheduler with worker processes of one thread.

    nannies: they have one, which replaces one that dies.
    log: of the scheduler, in which at the end no broken invariant of its state may stand.
    """
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        stack.enter_context(started(*scheduler_command(port), settings=settings, log=log))
        if nannies:
            stack.enter_context(started(*workers_command(address, workers)))
        for _ in range(0 if nannies else workers):
            stack.enter_context(started(*lone_worker_command(address)))
        with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=LONG_SECONDS)
        yield address
    said = log.read_text(errors="replace")
    assert "AssertionError" not in said, said
    assert "Plugin failed" not in said, said


def eventually(is_so: Callable[[], object]) -> None:
    """Ask another process until it is so."""
    deadline = time.monotonic() + LONG_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(POLL_SECONDS)


def run_to_end(runner: JobRunner) -> JobRunner:
    runner.start()
    assert runner.wait(LONG_SECONDS), runner.state
    return runner


def error_of(executor: DaskExecutor, job: ToyJob) -> BaseException:
    runner = run_to_end(JobRunner(job, executor))
    assert runner.state is RunState.FAILED
    assert runner.error is not None
    return runner.error


def steps_of_light_meanwhile(heavy: ToyJob, light: ToyJob, executor: DaskExecutor) -> int:
    """Return how many steps a job of weight 1 has when one of weight 4 beside it has ended."""
    folded_of_light: list[int] = []
    first = JobRunner(
        heavy,
        executor,
        JobDescription(heavy.id, weight=4.0),
        listener=Listens(on_end=lambda: folded_of_light.append(len(light.folded))),
    )
    second = JobRunner(light, executor)
    second.start()
    first.start()
    assert first.wait(LONG_SECONDS)
    second.stop()
    assert second.wait(LONG_SECONDS)
    assert first.state is RunState.EXACT
    return folded_of_light[0]


WITHOUT_RELAQS = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "relaqs":
            raise ModuleNotFoundError("No module named 'relaqs'", name=name)

for name in [name for name in sys.modules if name.partition(".")[0] == "relaqs"]:
    del sys.modules[name]
sys.meta_path.insert(0, Hidden())
"""
