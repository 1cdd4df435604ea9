"""`relaqs advise`: which further layouts would help a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relaqs.cli.parameters import SqlCommand, data_option, param_option


@click.command("advise", cls=SqlCommand)
@click.argument("query", metavar="SELECT")
@data_option
@param_option
def advise(query: str, data: str | Path, params: dict[str | int, Any] | None) -> None:
    """Say which further layouts of its tables would help SELECT, what would change, and how to make them.

    Or why none is needed, or none would help. Nothing is read but what is known of the tables.
    """
    from relaqs.opening import connect

    with connect(data) as session:
        click.echo(session.advise(query, params=params))
