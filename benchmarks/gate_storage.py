"""How the tables of the gate are stored, and so what is drawn of them: rows, clusters, row groups of a file.

- *rows*, *clusters*: a layout, its sampling units each row, or all rows with the same key.
- *headed rows*, *headed clusters*: the same, where partitions have heads, as only large tables have. The ten
  heads are read first, a hundredth of the rows.
- *appended*, *compacted*: a layout by rows that came in fifty parts in their order, and the same made one.
- *row groups*: a plain Parquet file, in the order that the rows have. Made-up rows are written into several
  files: neighbours are drawn from in turn, so how much a number varies over the draws of one file is that
  file's luck, as it is a layout's. Of 24 row groups half were drawn: a share of each of 20 files held in 78
  to 100 % of the draws, 94.6 % together.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import add_static, append, compact, sampled, shuffle
from relaqs_engine.layouts.assignment import HEAD_DIVISOR
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening

from benchmarks.coverage_cases import PARTITIONS, once
from benchmarks.gate_data import Table

WAYS = ("rows", "clusters", "row groups", "appended", "compacted", "headed rows", "headed clusters")
HEADED = {"headed rows": "rows", "headed clusters": "clusters"}
APPENDS = 50


@dataclass(frozen=True, slots=True)
class Storage:
    """How a table is stored. way: one of WAYS. cluster_key: of a layout. row_groups: of a plain file."""

    way: str
    cluster_key: tuple[str, ...] = ()
    row_groups: int = 0

    @property
    def share_needed(self) -> float | None:
        """Return the share of the rows for which heads are read first; None where there are no heads."""
        return 1 / HEAD_DIVISOR / HEAD_DIVISOR if self.way in HEADED else None

    @property
    def name(self) -> str:
        return f"{self.row_groups} {self.way}" if self.row_groups else self.way


@dataclass(frozen=True, slots=True)
class Stored:
    """A table as it is stored. path: of the warehouse, or of the plain file. files: the original rows.

    files: by table, that of the table first, then of those it is joined with.
    """

    storage: Storage
    path: Path
    files: dict[str, Path]

    def catalog(self) -> Catalog:
        """Return the catalog that queries are planned over."""
        if not self.storage.row_groups:
            return Catalog.open(self.path)
        how = Opening(CacheUse(Cache(self.path.parent / "cache")))
        return Catalog.of_sources(dict(self.files), how)


def storages_of(table: Table, ways: Sequence[str] = ()) -> list[Storage]:
    """Return how a table is stored, in these ways alone where some are given."""
    found = []
    for way in ways or table.stored:
        if HEADED.get(way, way) not in table.stored:
            continue
        if way == "row groups":
            found += [Storage(way, row_groups=count) for count in table.row_groups]
        else:
            found.append(Storage(way, (table.cluster_key,) if way.endswith("clusters") else ()))
    return found


def source_of(table: Table, public: Path | None, made: Path) -> Path | None:
    """Return the table's Parquet file, made if it is made up; None where the public one is not there."""
    if table.rows is None:
        path = public / table.file if public else None
        return path if path and path.exists() else None
    path = made / f"{table.name}.parquet"
    if not path.exists():
        made.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(table.rows(), path)
    return path


def stored(table: Table, storage: Storage, seed: int, source: Path, into: Path) -> Stored:
    """Return a table as it is stored, made below `into` if it is not there.

    seed: of a layout, or of the rows of a file that is made up.
    """
    files = {table.name: source}
    for each in table.beside:
        files[each.name] = _written_once(each.rows, into / "files" / f"{each.name}.parquet")
    if storage.row_groups:
        file = into / "files" / f"{table.name}-{storage.row_groups}-row-groups-{seed}.parquet"
        if not file.exists():
            rows = table.rows(seed=seed) if table.rows else _in_order(table, source)
            _write_row_groups(rows, storage.row_groups, file)
        return Stored(storage, file, files | {table.name: file})
    folder = into / f"{table.name}-by-{storage.name}-{seed}"
    once(folder / table.name, lambda path: _lay_out(table, storage, seed, source, path, into))
    for each in table.beside:
        key, beside = each.cluster_key or None, str(files[each.name])
        if key is None:
            once(folder / each.name, partial(add_static, beside))
        else:
            laid_out = partial(_shuffled, beside, key=key, seed=seed, is_headed=storage.way in HEADED)
            once(folder / each.name, laid_out)
    return Stored(storage, folder, files)


def _lay_out(table: Table, storage: Storage, seed: int, source: Path, path: Path, into: Path) -> None:
    if storage.way == "appended":
        _append_in_parts(pa.parquet.read_table(source), path, seed)
    elif storage.way == "compacted":
        appended = stored(table, Storage("appended"), seed, source, into)
        shutil.copytree(appended.path / table.name, path, dirs_exist_ok=True)
        compact(path)
    else:
        key, is_headed = storage.cluster_key or None, storage.way in HEADED
        _shuffled(str(source), path, key=key, seed=seed, is_headed=is_headed)


def _shuffled(source: str, path: Path, *, key: tuple[str, ...] | None, seed: int, is_headed: bool) -> None:
    headed = mock.patch.object(sampled, "_HEADED_ROWS", 1) if is_headed else nullcontext()
    with headed:
        shuffle(source, path, partitions=PARTITIONS, cluster_by=key, seed=seed)


def _append_in_parts(rows: pa.Table, path: Path, seed: int) -> None:
    """Lay the first of fifty parts of the rows out, and append the others one after the other."""
    edges = [round(i * rows.num_rows / APPENDS) for i in range(APPENDS + 1)]
    first, *later = (rows.slice(begin, end - begin) for begin, end in pairwise(edges))
    shuffle(first, path, partitions=PARTITIONS, seed=seed)
    for part in later:
        append(part, path)


def _written_once(rows: Callable[[], pa.Table], file: Path) -> Path:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(rows(), file)
    return file


def _in_order(table: Table, source: Path) -> pa.Table:
    """Return the rows of a public file in the order in which one of row groups has them."""
    order = f" ORDER BY {table.order}" if table.order else ""
    with duckdb.connect() as connection:
        return connection.sql(f"FROM read_parquet('{source}'){order}").to_arrow_table()


def _write_row_groups(rows: pa.Table, count: int, file: Path) -> None:
    """Write a file of so many row groups.

    Floats are written as decimals: nothing is certified of floats whose footers may leave NaN out.
    """
    rows = _without_floats(rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, rows.num_rows, count + 1).round().astype(int)
    unfinished = file.with_suffix(".unfinished")  # a run that is ended leaves no half of a file behind
    with pa.parquet.ParquetWriter(unfinished, rows.schema) as writer:
        for begin, end in pairwise(edges):
            writer.write_table(rows.slice(begin, end - begin), row_group_size=int(end - begin))
    unfinished.replace(file)


def _without_floats(rows: pa.Table) -> pa.Table:
    columns = {
        field.name: column.cast(pa.decimal128(18, 6), safe=False)
        if pa.types.is_floating(field.type)
        else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    }
    return pa.table(columns)
