"""`relaqs serve`: answer many users over the wire protocol of Postgres.

A command that serves others lets operators see metrics and a log of queries (`watching_options`, `watch`).
"""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from relaqs_engine.layouts.manifest import SOON_SECONDS

from relaqs.cli.parameters import (
    DataPath,
    cluster_option,
    data_option_of_a_group,
    functions_option,
    memory_size,
    register_functions,
    timezone_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from relaqs.metrics import MetricsServer
    from relaqs.session import Session

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])
    from relaqs.serve.entry import Door


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
    _log_queries(session, query_log, open_now)
    if metrics_port is None:
        return None
    from relaqs.metrics import metrics_of

    return _serve_metrics(metrics_of(session), metrics_host, metrics_port, open_now)


def _log_queries(session: Session, query_log: str | Path | None, open_now: ExitStack) -> None:
    if query_log is not None:
        from relaqs.metrics import QueryLog

        session.witnesses.append(open_now.enter_context(QueryLog(query_log)))


def _serve_metrics(registry: CollectorRegistry, host: str, port: int, open_now: ExitStack) -> MetricsServer:
    from relaqs.metrics import MetricsServer

    try:
        server = open_now.enter_context(MetricsServer(registry, host, port))
    except OSError as error:
        raise click.ClickException(
            f"metrics cannot be served on {host}:{port}: {error.strerror}; give another --metrics-port, or 0"
        ) from None
    click.echo(f"Metrics: http://{host}:{server.port}/metrics")
    return server


_LEAST_THREADS = 2  # of each process: with one, a small statement takes half as much time again
_ANSWERS = 8  # so many of the largest size have room in --memory-limit: DuckDB does not count them
_FILE = click.Path(exists=True, dir_okay=False)
_USERS = click.option(
    "--users",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Who may connect. `relaqs serve add-user` writes it. Without it, anybody on this machine may.",
)


@click.group("serve", invoke_without_command=True)
@data_option_of_a_group
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=5433,
    show_default=True,
    help="0 takes any that is free.",
)
@_USERS
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The server's certificate, in PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of the certificate.")
@click.option("--allow-plain", is_flag=True, help="Let clients in without TLS. Their answers can be read.")
@click.option("--memory-limit", type=memory_size, metavar="SIZE", help="Of all queries, such as 4GB.")
@click.option("--threads", type=click.IntRange(min=1), help="That answer queries. One for each core.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="That answer users. All connections of a user are in one. They share --memory-limit and --threads.",
)
@cluster_option
@timezone_option
@functions_option
@watching_options
@click.pass_context
def serve(
    context: click.Context,
    data: DataPath | None,
    host: str,
    port: int,
    users: Path | None,
    tls_cert: str | None,
    tls_key: str | None,
    allow_plain: bool,
    memory_limit: int | None,
    threads: int | None,
    processes: int,
    cluster: str | None,
    timezone: str | None,
    functions: Path | None,
    metrics_host: str,
    metrics_port: int | None,
    query_log: Path | None,
) -> None:
    """Answer many users over the wire protocol of Postgres: psql, Superset, Metabase, Grafana, any driver.

    A SELECT is answered exactly. After SET relaqs.target = '5%' or SET relaqs.within = '2s' the first answer
    that is good enough is sent, and a NOTICE says how good it is. Ctrl-C stops.
    """
    if context.invoked_subcommand is not None:
        return
    if data is None:
        raise click.UsageError("Missing option '--data'; name the folder of tables to serve")
    if processes > 1 and sys.platform == "win32":
        raise click.UsageError("--processes must be 1 on Windows, which hands no connections to processes")
    _need_packages()
    from relaqs.memory import bound_process_memory, usual_memory_bytes
    from relaqs.opening import FOLLOW_SECONDS, connect
    from relaqs.serve.health import Health, add_metrics
    from relaqs.serve.server import Conversations, run

    health = Health()
    door = _door(host, users, tls_cert, tls_key, allow_plain=allow_plain)
    names = ["relaqs"] if door.users is None else [user.name for user in door.users]
    shared_bytes = _shared_bytes(memory_limit, door, processes, on_cluster=cluster is not None)
    whole_bytes = usual_memory_bytes(on_cluster=cluster is not None) if memory_limit is None else memory_limit
    opening: dict[str, Any] = {
        "data": [os.fspath(path) for path in data] if isinstance(data, list) else os.fspath(data),
        "cluster": cluster,
        "memory_limit": shared_bytes,
        "result_limit": whole_bytes // processes // _ANSWERS,
        "threads": threads and min(threads, max(_LEAST_THREADS, threads // processes)),
        "exact_below_seconds": None if cluster else SOON_SECONDS,
        "timezone": timezone,
        "follow": FOLLOW_SECONDS,
    }
    with ExitStack() as watching:  # is closed last, so that it hears of queries that the end stops
        if processes == 1:
            bound_process_memory()
            session = watching.enter_context(connect(**opening))
            register_functions(session, functions)
            metrics = watch(session, metrics_host, metrics_port, query_log, watching)
            if metrics is not None:
                add_metrics(health, metrics.registry)
            run(Conversations(session, names), door, host, port, _say_address, health)
            return
        from relaqs.serve.processes import NotStartedError, Processes

        told = {"opening": opening, "users": names, "query_log": query_log and os.fspath(query_log)}
        told["functions"] = functions and os.fspath(functions)
        several = Processes(processes, {**told, "has_metrics": metrics_port is not None})
        if metrics_port is not None:
            from relaqs.serve.health import summed_metrics

            _serve_metrics(summed_metrics(health, several.metrics), metrics_host, metrics_port, watching)
        try:
            run(several, door, host, port, _say_address, health)
        except NotStartedError as error:
            context.exit(error.status)


@serve.command("answer", hidden=True)
@click.argument("line", type=int)
@click.argument("marks", type=int)
def answer(line: int, marks: int) -> None:
    """Answer the users of one process of several, which `relaqs serve` has started. It ends with that."""
    from relaqs.memory import bound_process_memory
    from relaqs.opening import connect
    from relaqs.serve.health import Health, add_metrics
    from relaqs.serve.processes import LineToEntrance

    heard, health, text = LineToEntrance(line, marks), Health(), lambda: ""
    bound_process_memory(heard.options["places"])
    with ExitStack() as watching:
        session = watching.enter_context(connect(**heard.options["opening"]))
        register_functions(session, heard.options["functions"])
        _log_queries(session, heard.options["query_log"], watching)
        if heard.options["has_metrics"]:
            from prometheus_client import generate_latest

            from relaqs.metrics import metrics_of

            registry = metrics_of(session)
            add_metrics(health, registry)

            def text() -> str:
                return generate_latest(registry).decode()

        heard.answer(session, heard.options["users"], text, health)


@serve.command("add-user", short_help="Add a user, or give them another password.")
@click.argument("name")
@_USERS
@click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input, one line, without asking."
)
def add_user(name: str, users: Path | None, password_stdin: bool) -> None:
    """Add the user NAME to the file of --users, or give them another password.

    The password is asked for. The file has only what proves it, and may be edited: it has the user's limits,
    too.
    """
    _need_packages()
    from relaqs.serve.users import add_user as add

    if users is None:
        raise click.UsageError("Missing option '--users'; name the file to add the user to")
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    is_new = add(users, name, password)
    click.echo(f"{name} {'was added to' if is_new else 'has another password in'} {users}")


def _need_packages() -> None:
    try:
        import pygwire  # noqa: F401
        import scramp  # noqa: F401
        import tomli_w  # noqa: F401
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"serving needs the package {error.name}; install it with pip install 'relaqs[serve]'"
        ) from None


def _door(host: str, users: Path | None, cert: str | None, key: str | None, *, allow_plain: bool) -> Door:
    """Return who may come in. What would let strangers in, or show answers to them, must be said."""
    from relaqs.serve.entry import Door
    from relaqs.serve.stream import is_loopback
    from relaqs.serve.users import Users

    if (cert is None) != (key is None):
        raise click.UsageError("TLS needs both --tls-cert and --tls-key")
    if users is None and not is_loopback(host):
        raise click.UsageError(
            f"on {host} others can connect; say who may by --users FILE, as relaqs serve add-user writes it"
        )
    if cert is None and not allow_plain and not is_loopback(host):
        raise click.UsageError(
            f"on {host} others can read what is sent; give --tls-cert and --tls-key, or --allow-plain"
        )
    who = None if users is None else Users.read(users)
    return Door(who, _tls(cert, key), demands_tls=cert is not None and not allow_plain)


def _shared_bytes(limit: int | None, door: Door, processes: int, *, on_cluster: bool) -> int | None:
    """Return the memory in each process of all users who have none of their own, None for the usual."""
    from relaqs.memory import SMALLEST_BYTES, usual_memory_bytes

    own = sum(user.limits.memory_bytes or 0 for user in door.users or ())
    if not own and processes == 1:
        return limit
    whole = usual_memory_bytes(on_cluster=on_cluster) if limit is None else limit
    if (each := (whole - own) // processes) >= SMALLEST_BYTES:
        return each
    users = f"users have {own / 1e9:.3g} GB of their own, and " if own else ""
    many = f" in each of {processes} processes" if processes > 1 else ""
    raise click.UsageError(
        f"{users}--memory-limit is {whole / 1e9:.3g} GB; leave at least {SMALLEST_BYTES / 1e9:.3g} GB for "
        f"all others{many}"
    )


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise click.UsageError(f"{cert} and {key} are no certificate and its key: {error}") from None
    return context


def _say_address(host: str, port: int) -> None:
    click.echo(f"Serving on {host}:{port}. Connect with psql -h {host} -p {port} relaqs. Ctrl-C stops.")
    sys.stdout.flush()
