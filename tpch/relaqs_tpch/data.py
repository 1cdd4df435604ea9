"""Makes the eight tables of TPC-H in a warehouse folder: generated, then laid out, each once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, add_static, read_manifest
from relaqs_engine.layouts.build import Progress

from relaqs.laying_out import shuffle
from relaqs_tpch import record as records
from relaqs_tpch.generator import write_tables
from relaqs_tpch.progress import Meter
from relaqs_tpch.record import Recipe, Record
from relaqs_tpch.tables import SECOND_LAYOUTS, TABLES, TpchTable, layouts_at

ORIGINALS = "tpch-raw"  # folder, inside the warehouse, of the Parquet files as the generator wrote them
SPARE_BYTES = 64 << 20


def generate(
    scale: float,
    into: str | Path,
    *,
    partitions: int = 100,
    seed: int = 0,
    force: bool = False,
    keep_raw: bool = False,
    second_layouts: bool = False,
    progress: Progress | None = None,
) -> dict[str, Layout]:
    """Return the layouts of the eight tables at a scale, made below `into` where they are not there yet.

    lineitem and orders are co-clustered by order key. Every other table is static while it is small: see
    `relaqs_tpch.tables`. A run that was stopped goes on where it stopped. Each layout is there whole or not
    at all. No figure measured on this data is comparable to an official TPC-H result.

    Args:
        scale: 1 is 6 million rows of lineitem.
        into: the warehouse's folder.
        partitions: of a sampled table.
        seed: of the random order of rows.
        force: replace tables that are there.
        keep_raw: keep the generator's own Parquet files in `into`/tpch-raw, to compare with plain DuckDB.
        second_layouts: also lay lineitem, partsupp and part out by part key, and orders and customer by
            customer key, as orders@customer and so on. They can be added to tables that are there.
        progress: called with a share in [0, 1] and what is being done.

    Raises:
        LayoutError: the folder holds tables of another scale, seed or origin and `force` is not given, or the
            disk is too small.
        DataError: the generator fails.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise LayoutError(f"scale is {scale}; it must be above 0, e.g. 1 for 6 million rows of lineitem")
    folder = Path(into).absolute()
    record = _begin(folder, Recipe(float(scale), seed, partitions), force=force)
    record = _with_originals(folder, record) if keep_raw else record
    layouts = layouts_at(scale, second_layouts=second_layouts)
    missing = [table for table in layouts if table.name not in record.done]
    read = {table.original for table in (TABLES if keep_raw else missing)}
    wanted = [table for table in TABLES if table.name in read and not _original(folder, table).exists()]
    _check_disk_space(folder, scale, wanted, missing)
    meter = Meter(scale, wanted, missing, progress)
    if wanted:
        (folder / ORIGINALS).mkdir(exist_ok=True)
        names = [table.name for table in wanted]
        write_tables(names, scale, folder / ORIGINALS, meter.generated, not record.keeps_originals)
    for position, table in enumerate(missing, start=1):
        _lay_out(folder, table, record.recipe, meter.laying_out(table))
        record = record.with_done(table.name)
        records.write(folder, record)
        is_read_again = any(later.original == table.original for later in missing[position:])
        if not record.keeps_originals and not is_read_again:
            _original(folder, table).unlink()
    with suppress(OSError):  # not empty: originals are kept
        (folder / ORIGINALS).rmdir()
    in_order = sorted(layouts, key=lambda table: table.is_second)
    return {table.name: read_manifest(folder / table.name) for table in in_order}


def _with_originals(folder: Path, record: Record) -> Record:
    """Return the record of a folder that keeps its originals from now on, also when it is added to."""
    record = replace(record, keeps_originals=True)
    records.write(folder, record)
    return record


def _begin(folder: Path, recipe: Recipe, *, force: bool) -> Record:
    """Return what a run may build on, after making sure that it mixes nothing: a record of this recipe."""
    found = None if force else records.read(folder)
    if found is None or (found.recipe != recipe and not found.done):  # nothing is there to be mixed with
        strangers = [table.name for table in (*TABLES, *SECOND_LAYOUTS) if (folder / table.name).exists()]
        if strangers and not force:
            raise LayoutError(
                f"{folder} already holds {', '.join(strangers)}, not made by `relaqs tpch generate`; "
                "name another folder, or give --force to replace them"
            )
        found = Record(recipe)
        folder.mkdir(parents=True, exist_ok=True)
        records.write(folder, found)
        for stale in (ORIGINALS, *(table.name for table in SECOND_LAYOUTS)):  # of data that is replaced
            shutil.rmtree(folder / stale, ignore_errors=True)
    if found.recipe != recipe:
        raise LayoutError(
            f"{folder} holds TPC-H at {found.recipe}, and {recipe} was asked for; "
            "name another folder, or give --force to replace it"
        )
    return found.only(name for name in found.done if (folder / name).exists())


def _check_disk_space(
    folder: Path, scale: float, wanted: Sequence[TpchTable], missing: Sequence[TpchTable]
) -> None:
    """Raise LayoutError unless the originals and the layouts, about as large, fit beside each other."""
    needed = SPARE_BYTES + sum(table.parquet_bytes_at(scale) for table in [*wanted, *missing])
    free = shutil.disk_usage(folder).free
    if missing and needed > free:
        raise LayoutError(
            f"TPC-H at scale {scale:g} needs about {needed / 1e9:,.2f} GB in {folder}, which has "
            f"{free / 1e9:,.2f} GB free; name a folder on a larger disk, or a smaller scale"
        )


def _lay_out(folder: Path, table: TpchTable, recipe: Recipe, progress: Progress) -> Layout:
    """Return the table's layout. One that is there already is of a run that ended before recording it."""
    source, into = str(_original(folder, table)), folder / table.name
    if not table.is_sampled_at(recipe.scale):
        return add_static(source, into, force=True)
    return shuffle(
        source,
        into,
        partitions=recipe.partitions,
        cluster_by=table.cluster_key or None,
        seed=recipe.seed,
        force=True,
        progress=progress,
    )


def _original(folder: Path, table: TpchTable) -> Path:
    return folder / ORIGINALS / f"{table.original}.parquet"
