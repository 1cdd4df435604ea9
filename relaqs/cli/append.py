"""The commands for tables that grow: `relaqs append` and `relaqs compact`."""

from __future__ import annotations

from pathlib import Path

import click

from relaqs.cli.parameters import PathOrAddress, into_option, memory_option

_MANY_FILES = 20
"""In a partition: opening them takes about as long as reading them."""


@click.command("append")
@click.argument("source", nargs=-1, required=True)
@into_option("Folder of the table.")
@click.option(
    "--batch",
    default="",
    metavar="NAME",
    help="A name for these rows. If a batch of this name was appended before, nothing is done.",
)
@click.option(
    "--new-files",
    is_flag=True,
    help="Take only those files of SOURCE that the table was not made of.",
)
@memory_option
def append(source: tuple[str, ...], into: str | Path, batch: str, new_files: bool, memory_limit: int) -> None:
    """Add the rows of SOURCE (Parquet or CSV files, folders, globs) to a table that was laid out.

    Any part of the table stays a random sample of all rows. SOURCE must have the table's columns. Sessions
    that are open go on with the rows that they began with. Stopped at any point, it has added all rows or
    none.
    """
    from relaqs_engine.layouts import read_manifest
    from relaqs_engine.layouts.folder import folder_here

    from relaqs.cli.progress import progress_bar
    from relaqs.laying_out import append as add_rows

    before = read_manifest(folder_here(into))
    with progress_bar() as progress:
        layout = add_rows(
            source,
            into,
            batch=batch,
            only_new_files=new_files,
            memory_limit_bytes=memory_limit,
            progress=progress,
        )
    if layout.row_count == before.row_count and batch in layout.batches:
        click.echo(f"batch {batch!r} was appended before; nothing was done")
    click.echo(layout.summary)
    most_files = max(len(partition.files) for partition in layout.partitions)
    if most_files > _MANY_FILES:
        click.echo(f"a partition has up to {most_files} files: `relaqs compact {into}` makes one of them")


@click.command("compact")
@click.argument("directory", type=PathOrAddress(file_okay=False, path_type=Path), metavar="DIR")
@memory_option
def compact(directory: str | Path, memory_limit: int) -> None:
    """Make one file of the many that appends leave in each partition of a table, or of all tables in DIR.

    Queries that run go on over the files that they began with. Stopped at any point, it leaves the table as
    it was, or compacted.
    """
    from relaqs_engine.layouts import compact as make_one_file
    from relaqs_engine.layouts.folder import folder_here
    from relaqs_engine.layouts.manifest_file import tables_at

    from relaqs.cli.progress import progress_bar

    for table in tables_at(folder_here(directory)):
        with progress_bar() as progress:
            layout = make_one_file(table, memory_limit_bytes=memory_limit, progress=progress)
        click.echo(layout.summary)
