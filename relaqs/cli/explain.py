"""The commands that look and run nothing: `relaqs tables`, `explain` and `advise`.

They print which tables there are and their columns, how a SELECT would be answered and why, and which
further layouts would help it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from relaqs.cli.parameters import (
    DataPath,
    SqlCommand,
    data_option,
    format_option,
    param_option,
    timezone_option,
)

if TYPE_CHECKING:
    from relaqs.session import Session


@click.command("tables")
@data_option
@format_option()
def tables(data: DataPath, output: str) -> None:
    """List the tables of PATH: their rows, how they are stored, and their columns with types."""
    from rich.console import Console

    from relaqs.opening import connect

    with connect(data) as session:
        if output == "jsonl":
            for line in [
                json.dumps(
                    {
                        "table": name,
                        "rows": table.row_count,
                        "rows_are_counted": table.rows_are_counted,
                        "stored": table.kind,
                        "columns": {column.name: column.type for column in table.columns},
                    },
                    ensure_ascii=False,
                )
                for name, table in session.tables.items()
            ]:
                click.echo(line)
            return
        console = Console()
        console.print(tables_shown(session))
        console.print()
        console.print(columns_shown(session))


def tables_shown(session: Session) -> Table:
    """Return the tables with their rows, and how they are stored."""
    shown = Table("table", "rows", "stored", box=None)
    shown.columns[1].justify = "right"
    for name, table in session.tables.items():
        shown.add_row(escape(name), table.rows_in_words, table.kind)
    for name in session.left_out:
        shown.add_row(escape(name), "", "left out")
    return shown


def columns_shown(session: Session, only: str | None = None) -> Table:
    """Return the columns of all tables, or of one, with their types."""
    shown = Table("table", "column", "type", box=None)
    for name, table in session.tables.items():
        for column in table.columns if only in (None, name) else ():
            shown.add_row(escape(name), escape(column.name), escape(column.type))
    return shown


@click.command("explain", cls=SqlCommand)
@click.argument("query", metavar="SELECT")
@data_option
@param_option
@timezone_option
def explain(query: str, data: DataPath, params: dict[str | int, Any] | None, timezone: str | None) -> None:
    """Print the plan of SELECT: its mode and why, the tables it samples, and the SQL it runs."""
    from relaqs.opening import connect

    with connect(data, timezone=timezone) as session:
        click.echo(session.explain(query, params=params), nl=False)


@click.command("advise", cls=SqlCommand)
@click.argument("query", metavar="SELECT")
@data_option
@param_option
def advise(query: str, data: DataPath, params: dict[str | int, Any] | None) -> None:
    """Say which further layouts of its tables would help SELECT, what would change, and how to make them.

    Or why none is needed, or none would help. Nothing is read but what is known of the tables.
    """
    from relaqs.opening import connect

    with connect(data) as session:
        click.echo(session.advise(query, params=params))
