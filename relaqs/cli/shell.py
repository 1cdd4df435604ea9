"""`relaqs shell`: a prompt for one question after another, over tables that are opened once."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from relaqs_engine.layouts.manifest import SOON_SECONDS

from relaqs.cli.parameters import cluster_option, data_option, timezone_option, tls_options


@click.command("shell")
@data_option
@cluster_option
@tls_options
@timezone_option
def shell(data: Path, cluster: str | None, security: dict[str, str] | None, timezone: str | None) -> None:
    """Answer SELECTs at a prompt. Each sharpens on screen until it is exact.

    A semicolon ends a SELECT, which may have several lines. Ctrl-C stops a SELECT that runs, with its last
    estimate on screen. Ctrl-D leaves. .help lists the commands of the prompt.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a prompt needs a terminal; give --file FILE or - to `relaqs sql` to run SQL from elsewhere"
        )
    from relaqs.cli.prompt import Prompt
    from relaqs.cli.reading import opening_shown
    from relaqs.opening import connect

    with opening_shown(data):
        session = connect(
            data, cluster=cluster, security=security, exact_below_seconds=SOON_SECONDS, timezone=timezone
        )
    with session:
        click.echo(f"{session}\n.help lists the commands of this prompt; Ctrl-D leaves it.")
        Prompt(session).run()
