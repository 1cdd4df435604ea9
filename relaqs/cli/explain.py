"""`relaqs explain`: what would run, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relaqs.cli.parameters import SqlCommand, data_option, param_option, timezone_option


@click.command("explain", cls=SqlCommand)
@click.argument("query", metavar="SELECT")
@data_option
@param_option
@timezone_option
def explain(query: str, data: str | Path, params: dict[str | int, Any] | None, timezone: str | None) -> None:
    """Print the plan of SELECT: its mode and why, the tables it samples, and the SQL it runs."""
    from relaqs.opening import connect

    with connect(data, timezone=timezone) as session:
        click.echo(session.explain(query, params=params), nl=False)
