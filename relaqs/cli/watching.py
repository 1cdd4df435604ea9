"""What a command that serves others lets operators see: metrics, and a log of queries."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relaqs.metrics import MetricsServer
    from relaqs.session import Session

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def watching_options(command: Decorated) -> Decorated:
    """Add --metrics-port, --metrics-host and --query-log."""
    options = (
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65_535),
            help="Serve metrics for Prometheus on this port, without a password. 0 takes any that is free.",
        ),
        click.option(
            "--metrics-host",
            default="127.0.0.1",
            show_default=True,
            help="The address of the metrics. Who reaches it reads the SQL of queries.",
        ),
        click.option(
            "--query-log",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write a line of JSON to this file for each query that is over.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def watch(
    session: Session, metrics_host: str, metrics_port: int | None, query_log: Path | None, open_now: ExitStack
) -> MetricsServer | None:
    """Let operators see what the session does, as long as `open_now` is open. Return what serves metrics."""
    if query_log is not None:
        from relaqs.metrics import QueryLog

        session.witnesses.append(open_now.enter_context(QueryLog(query_log)))
    if metrics_port is None:
        return None
    from relaqs.metrics import serve_metrics

    try:
        server = open_now.enter_context(serve_metrics(session, metrics_port, host=metrics_host))
    except OSError as error:
        raise click.ClickException(
            f"metrics cannot be served on {metrics_host}:{metrics_port}: {error.strerror}; "
            "give another --metrics-port, or 0"
        ) from None
    click.echo(f"Metrics: http://{metrics_host}:{server.port}/metrics")
    return server
