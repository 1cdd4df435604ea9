"""The commands that lay tables out and check them: `relaqs shuffle` and `relaqs verify`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relaqs.cli.parameters import PathOrAddress, format_option, into_option, memory_option

if TYPE_CHECKING:
    from relaqs_engine.layouts import VerifyReport


@click.command("shuffle")
@click.argument("source", nargs=-1, required=True)
@into_option(
    "Folder of the table; its last part becomes the table's name. It may be in an object store: "
    "s3://bucket/folder/table."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Into how many parts. The first estimate comes from one of them.",
)
@click.option(
    "--cluster-by",
    multiple=True,
    metavar="COLUMN",
    help="Keep rows of equal values together (again for each column of a key). Tables clustered on the same "
    "key, with the same partitions and seed, join partition by partition.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which random order the rows get.")
@click.option("--force", is_flag=True, help="Replace the layout that is there.")
@memory_option
@click.option("--static", is_flag=True, help="Store a small table whole, to be joined to sampled ones.")
def shuffle(
    source: tuple[str, ...],
    into: str | Path,
    partitions: int,
    cluster_by: tuple[str, ...],
    seed: int,
    force: bool,
    memory_limit: int,
    static: bool,
) -> None:
    """Lay out SOURCE (Parquet or CSV files, folders, globs) so that any part of it is a random sample.

    SOURCE may be the folder of another layout: --into DIR/orders@customer makes a further one of DIR/orders,
    and each query reads the one that suits it. Stopped at any point, it leaves what was there before.
    """
    from relaqs_engine.layouts import add_static

    from relaqs.cli.progress import progress_bar
    from relaqs.laying_out import shuffle as lay_out

    if static and cluster_by:
        raise click.UsageError("--static stores the table whole: there is nothing to cluster; leave one out")
    if static:
        layout = add_static(source, into, force=force, memory_limit_bytes=memory_limit)
    else:
        with progress_bar() as progress:
            layout = lay_out(
                source,
                into,
                partitions=partitions,
                cluster_by=cluster_by,
                seed=seed,
                force=force,
                memory_limit_bytes=memory_limit,
                progress=progress,
            )
    click.echo(layout.summary)


@click.command("verify")
@click.argument("directory", type=PathOrAddress(path_type=Path), metavar="DIR")
@format_option("For people, or one JSON object a check.")
@click.pass_context
def verify(context: click.Context, directory: str | Path, output: str) -> None:
    """Check a table's folder, or all tables below DIR: every byte, every count, and that samples are random.

    The exit code is 1 if anything is wrong.
    """
    from relaqs_engine.layouts import verify as check

    report = check(directory)
    if output == "jsonl":
        for each in report.checks:
            click.echo(json.dumps(asdict(each)))
    else:
        _print_report(report)
    if not report.ok:
        context.exit(1)


def _print_report(report: VerifyReport) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table("table", "check", "", Column("found", overflow="fold"))  # a file's name is never cut
    for check in report.checks:
        verdict = "ok" if check.ok else "[bold red]WRONG[/]"
        table.add_row(escape(check.table), check.name, verdict, escape(check.detail))
    Console().print(table)
