"""`relaqs cluster`: look at a Dask cluster that several programs share, and end or bound their jobs."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from relaqs_engine.errors import ClusterError
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relaqs.cli.output import plain
from relaqs.cli.parameters import format_option, tls_options
from relaqs.executors import Executor, open_executor
from relaqs.jobs.job import ClusterStatus, JobStatus
from relaqs.rendering.terminal import status_table

if TYPE_CHECKING:
    from relaqs.executors.dask import DaskExecutor

WATCH_SECONDS = 1.0


@click.group("cluster")
def cluster() -> None:
    """Look at a Dask cluster that several programs share, and end or bound their jobs."""


@cluster.command("status", short_help="Show each job: its share, its use, how good it is.")
@click.argument("address")
@tls_options
@click.option("--watch", is_flag=True, help="Show it every second, until ctrl-C.")
@format_option("For people, or one JSON object a look.")
def status(address: str, security: dict[str, str] | None, watch: bool, output: str) -> None:
    """Show every job on the cluster whose scheduler is at ADDRESS: its share, its use, how good it is.

    share and used are cores; quality is the relative error of a query or the loss of a training run; core-s
    and left are core-seconds, used so far and predicted until the target or the end. Models in training by
    mini-batches have slots, the rows of a batch, and how often these changed. accuracy is what a classifier
    has and what it must have; due is the time until a deadline.
    """
    executor = open_executor(address, security=security)
    try:
        looks = _looks(executor, 0 if watch else 1)
        if output == "jsonl":
            for each in looks:
                click.echo(json_line(each))
                sys.stdout.flush()
        else:
            _show(looks, Console())
    finally:
        executor.close()


@cluster.command("list", short_help="List the jobs by the ids that cancel and cap take.")
@click.argument("address")
@tls_options
@format_option("For people, or one JSON object a job.")
def list_jobs(address: str, security: dict[str, str] | None, output: str) -> None:
    """List the jobs on the cluster whose scheduler is at ADDRESS, by the ids that cancel and cap take."""
    with closing(_connected(address, security)) as executor:
        jobs = executor.status().jobs
    if output == "jsonl":
        for job in jobs:
            click.echo(json.dumps(plain(asdict(job)), allow_nan=False))
        return
    table = Table("id", "kind", "state", "client", "share", "used", "core-s", "job", box=None)
    for job in jobs:
        numbers = (f"{each:.2f}" for each in (job.share_cores, job.used_cores, job.attained_core_seconds))
        table.add_row(job.id, job.kind, job.state, job.client, *numbers, Text(job.name))
    Console().print(table)


@cluster.command("cancel", short_help="Stop a job, of whatever program.")
@click.argument("address")
@click.argument("job")
@tls_options
def cancel(address: str, job: str, security: dict[str, str] | None) -> None:
    """Stop JOB, of whatever program. It ends with what it has, as if its owner had stopped it.

    JOB is an id of `relaqs cluster list`, or how one begins.
    """
    with closing(_connected(address, security)) as executor:
        found = _only_job(executor, job)
        executor.stop_of_any(found.id)
    click.echo(f"stopped {found.id} of {found.client}: {found.name}")


@cluster.command("cap", short_help="Let a job have no more than some cores.")
@click.argument("address")
@click.argument("job")
@tls_options
@click.option("--cores", type=click.IntRange(min=1), required=True, help="How many it may have at once.")
def cap(address: str, job: str, security: dict[str, str] | None, cores: int) -> None:
    """Let JOB have no more than some cores at once, even if others are idle.

    JOB is an id of `relaqs cluster list`, or how one begins. A larger number lifts an earlier one.
    """
    with closing(_connected(address, security)) as executor:
        found = _only_job(executor, job)
        executor.cap_of_any(found.id, cores)
    click.echo(f"capped {found.id} of {found.client} at {cores} cores: {found.name}")


def _connected(address: str, security: dict[str, str] | None) -> DaskExecutor:
    from relaqs.executors.dask import DaskExecutor

    return DaskExecutor(address, security=security)


def _only_job(executor: DaskExecutor, beginning: str) -> JobStatus:
    """Return the one job whose id begins so. Raises ClusterError if there is none, or another."""
    jobs = executor.status().jobs
    wanted = beginning.removeprefix("relaqs-")
    found = [job for job in jobs if job.id.removeprefix("relaqs-").startswith(wanted)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(job.id for job in found or jobs) or "none"
    what = "several jobs" if found else "no job"
    raise ClusterError(f"there is {what} whose id begins with {beginning!r}; there are: {known}")


def _looks(executor: Executor, count: int) -> Iterator[ClusterStatus]:
    """Yield how things stand now and every second after. count: how often, 0 for ever."""
    for number in range(count) if count else itertools.count():
        if number:
            time.sleep(WATCH_SECONDS)
        yield executor.status()


def _show(looks: Iterator[ClusterStatus], console: Console) -> None:
    """Redraw in place on a terminal, else print one table after another."""
    if not console.is_terminal:
        for each in looks:
            console.print(status_table(each, console.width))
        return
    with Live(console=console, auto_refresh=False) as live:
        for each in looks:
            live.update(status_table(each, console.width), refresh=True)


def json_line(status: ClusterStatus) -> str:
    """Return the status as one line of JSON, with the attributes of `ClusterStatus`; infinity is null."""
    return json.dumps(plain(asdict(status)), allow_nan=False)
