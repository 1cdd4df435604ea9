"""`relaqs cluster status`: what people and programs see of a cluster, here one of real processes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster
from rich.console import Console

from relaqs.cli import cluster as module
from relaqs.cli import program
from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport
from relaqs.policies import Fair
from relaqs.rendering.terminal import status_table
from relaqs.scheduling import Allocator
from relaqs.sharing.view import Kind
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    address_of,
    free_port,
    scheduler_command,
    started,
    workers_command,
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


def half_way() -> ClusterStatus:
    """A query of somebody and a training run, on four cores."""
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("q", Kind.QUERY, "SELECT [b]1[/b]", "ann@box:1", 2.0, target=0.01), 0.0)
    allocator.enter(JobDescription("t", Kind.TRAINING, "KMeans", "bob@box:2", work_total=float("inf")), 0.0)
    for step in range(3):
        allocator.report("q", StepReport(step, 0.1 / (step + 1), 0.25 * (step + 1), 0.5, False))
        allocator.report("t", StepReport(step, 900.0 - step, None, 0.5, False))
    allocator.charge("q", 1.5, 1.0)  # spread over its last 1.5 s: 0.78 of it count, in 0.63 of a window
    allocator.plan(1.0, 4.0)
    return allocator.status(1.0, 4.0)


def test_a_row_a_job_with_errors_as_percentages_and_losses_as_they_are() -> None:
    console = Console(width=200, file=io.StringIO())
    console.print(status_table(half_way(), console.width))
    title, header, query, training = (
        line.split()
        for line in console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    )
    assert " ".join(title) == "4 cores, 1.2 used, shared by policy fair"
    assert header[:3] == ["job", "kind", "state"]
    assert " ".join(query) == ("SELECT [b]1[/b] query running ann@box:1 2 2.00 1.23 3.33% 1.00% 75% 1.5 0.5")
    assert " ".join(training) == "KMeans training waiting bob@box:2 1 2.00 0.00 898 3 steps 0.0"


def test_on_a_narrow_screen_no_number_is_cut() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(status_table(half_way(), console.width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[2].split()) == "SELECT [b]1[/b] query running 2.00 1.23 3.33% 75% 0.5"


def test_one_look_as_a_table_and_as_json(address: str) -> None:
    shown = CliRunner().invoke(program, ["cluster", "status", address])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "2 cores, 0.0 used" in shown.stdout
    assert "no jobs" in shown.stdout
    line = CliRunner().invoke(program, ["cluster", "status", address, "--format", "jsonl"]).stdout
    assert json.loads(line)["capacity_cores"] == 2


def test_watching_looks_again_and_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", sleep)
    done = CliRunner().invoke(program, ["cluster", "status", address, "--watch", "--format", "jsonl"])
    assert done.exit_code == 130
    assert len(done.stdout.splitlines()) == 3


def test_json_has_no_infinity() -> None:
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("q", Kind.QUERY), 0.0)
    allocator.report("q", StepReport(0, float("inf"), 0.1, 0.1, False))
    line = module.json_line(allocator.status(0.0, 1.0))
    assert json.loads(line)["jobs"][0]["quality"] is None


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DaskExecutor.__init__.__kwdefaults__, "connect_seconds", 0.5)
    done = CliRunner().invoke(program, ["cluster", "status", "tcp://127.0.0.1:1"])
    assert done.exit_code == 1
    assert "no Dask scheduler answered" in done.stderr


@pytest.mark.slow
def test_a_query_waits_for_a_worker_and_says_so(tpch_warehouse: Path) -> None:
    port = free_port()
    address = address_of(port)
    query = ["sql", "SELECT count(*) FROM lineitem", "--data", str(tpch_warehouse), "--cluster", address]
    with ExitStack() as stack:
        stack.enter_context(started(*scheduler_command(port)))
        Client(address, timeout=LONG_SECONDS, set_as_default=False).close()  # it is there
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "relaqs", *query, "--format", "csv"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        assert process.stderr is not None
        said = process.stderr.readline()
        stack.enter_context(started(*workers_command(address, 1)))
        out, more = process.communicate(timeout=LONG_SECONDS)
    assert said == (
        f"Warning: the cluster at {address} has no workers, and what runs there waits for one; start one by "
        f"`dask worker {address}`\n"
    )
    assert (process.returncode, more) == (0, "")
    assert out.splitlines()[1] == "60175"
