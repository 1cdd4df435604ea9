"""`relaqs cluster`: look at a Dask cluster that several programs share."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.console import Console
from rich.live import Live

from relaqs.cli.output import plain
from relaqs.cli.parameters import format_option, tls_options
from relaqs.executors import Executor, open_executor
from relaqs.jobs.status import ClusterStatus
from relaqs.rendering.jobs import status_table

WATCH_SECONDS = 1.0


@click.group("cluster")
def cluster() -> None:
    """Look at a Dask cluster that several programs share."""


@cluster.command("status")
@click.argument("address")
@tls_options
@click.option("--watch", is_flag=True, help="Show it every second, until ctrl-C.")
@format_option("For people, or one JSON object a look.")
def status(address: str, security: dict[str, str] | None, watch: bool, output: str) -> None:
    """Show every job on the cluster whose scheduler is at ADDRESS: its share, its use, how good it is.

    share and used are cores; quality is the relative error of a query or the loss of a training run; core-s
    and left are core-seconds, used so far and predicted until the target or the end.
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
