"""Parameters that several commands take."""

from __future__ import annotations

import click

from relaqs.options import ArgumentError, relative_error


def share(text: str) -> float:
    """Return a share of one, written as 1% or 0.01."""
    try:
        value = relative_error(text)
    except ArgumentError:
        value = None
    if value is None:
        raise click.BadParameter(f"{text!r} is no share above 0; write it as 1% or 0.01")
    return value


data_option = click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of tables laid out with `relaqs shuffle`.",
)
