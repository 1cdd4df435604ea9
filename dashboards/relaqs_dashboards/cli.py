"""`relaqs dashboard`: parses arguments, opens the session and prints the address."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relaqs.cli.parameters import (
    DataPath,
    budget_option,
    cluster_option,
    data_option,
    functions_option,
    register_functions,
    said,
    timezone_option,
    tls_options,
)
from relaqs.cli.serve import watch, watching_options

if TYPE_CHECKING:
    from relaqs.queries.snapshot import ConfidenceFor, Interval

_SMALLEST_PORT, _LARGEST_PORT = 0, 65_535
_RESULT_LIMIT_BYTES = 64 << 20


@click.command("dashboard", short_help="Serve pages of queries that sharpen.")
@data_option
@click.option(
    "--page",
    "pages",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A page, as TOML; saving writes it back. May be given several times.",
)
@click.option(
    "--port",
    type=click.IntRange(_SMALLEST_PORT, _LARGEST_PORT),
    default=8765,
    show_default=True,
    help="0 takes any that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to serve on. 0.0.0.0 lets other machines connect, without TLS.",
)
@click.option(
    "--address",
    metavar="URL",
    help="What others open in their browsers, as https://charts.example.org of a proxy with TLS.",
)
@cluster_option
@tls_options
@timezone_option
@click.option(
    "--interval",
    type=click.Choice(["pointwise", "anytime"]),
    default="pointwise",
    show_default=True,
    help="Valid at any one moment, or however often you look.",
)
@click.option(
    "--confidence-for",
    type=click.Choice(["cell", "table"]),
    default="cell",
    show_default=True,
    help="The confidence of each interval for itself, or of all certified ones of a panel together.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    help="Give an address of its own to each of several people. May be given several times.",
)
@click.option(
    "--viewer",
    "readers",
    multiple=True,
    metavar="NAME",
    help="As --user, for somebody who may look and change nothing. May be given several times.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where pages, the state of queries and the audit log are kept. Default: below ~/.local/state.",
)
@functions_option
@budget_option
@watching_options
def dashboard(
    data: DataPath,
    pages: tuple[Path, ...],
    port: int,
    host: str,
    address: str | None,
    cluster: str | None,
    security: dict[str, str] | None,
    timezone: str | None,
    interval: Interval,
    confidence_for: ConfidenceFor,
    users: tuple[str, ...],
    readers: tuple[str, ...],
    state: Path | None,
    functions: Path | None,
    budget: float | str | None,
    metrics_host: str,
    metrics_port: int | None,
    query_log: Path | None,
) -> None:
    """Serve pages of panels, each a query whose chart sharpens, for this machine alone.

    Prints an address with a token: open it in a browser. There are pages for TPC-H and for the flights of
    2013 where these tables are there, and one for every other table. Ctrl-C stops; started again over the
    same data, it shows the same pages, and queries go on where they were. Panels say which do not.
    """
    try:
        from relaqs_dashboards.server import DashboardServer, default_state
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the dashboard needs the package {error.name}; install it with pip install 'relaqs[dashboard]'"
        ) from None
    from relaqs import connect
    from relaqs.memory import bound_process_memory
    from relaqs_dashboards.dashboard import Dashboard
    from relaqs_dashboards.settings import check_name

    for user in (*users, *readers):
        check_name("user", user)
    users = users or ("you",)
    if both := set(users) & set(readers):
        raise click.UsageError(
            f"{min(both)} is a --user (you, if none is given) and a --viewer; give two names"
        )
    bound_process_memory()
    place = state or default_state(data)
    with (
        ExitStack() as watching,  # is closed last, so that it hears of queries that the end stops
        connect(
            data,
            cluster=cluster,
            security=security,
            result_limit=_RESULT_LIMIT_BYTES,
            timezone=timezone,
        ) as session,
    ):
        watch(session, metrics_host, metrics_port, query_log, watching)
        register_functions(session, functions)
        board = Dashboard(
            session,
            place,
            data=said(data),
            given=pages,
            interval=interval,
            confidence_for=confidence_for,
            readers=readers,
            budget=budget or 0,
        )
        names = (*users, *readers)
        server = DashboardServer(board, place, host=host, port=port, users=names, address=address)
        for user, start in server.start_addresses.items():
            may = ", who changes nothing" if user in readers else ""
            click.echo(f"{user}{may}: {start}" if len(names) > 1 else f"Open {start}")
        if host not in ("127.0.0.1", "localhost") and address is None:
            click.echo(
                "Others can connect, without TLS: whoever reads the network's traffic can come in too.",
                err=True,
            )
        click.echo(f"Pages and the state of queries are kept in {place}. Ctrl-C stops.")
        server.run(ends_process=True)
