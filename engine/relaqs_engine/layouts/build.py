"""What all ways of laying a table out share: opening the source and the folder, and closing the layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from relaqs_engine.duck import DUCKDB_VERSION, CivilTime, Cursor, FileState, open_for_writing
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.distinct import with_counted_values, with_values_by_group
from relaqs_engine.layouts.ends_by_group import with_ends_by_group
from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.layouts.folder import Writing, writing
from relaqs_engine.layouts.heavy_files import with_heavy_units
from relaqs_engine.layouts.manifest import Column, Layout, Partition
from relaqs_engine.layouts.new_files import given_files
from relaqs_engine.layouts.outlier_files import outlier_index
from relaqs_engine.layouts.outlier_units import with_outlier_units
from relaqs_engine.layouts.sources import ParquetSource, TableSource, fingerprint, open_source
from relaqs_engine.layouts.statistics import column_statistics
from relaqs_engine.layouts.store_writing import writing_to_store
from relaqs_engine.layouts.together import layout_folders, settle
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import default_cache_directory, mirror_root

Progress = Callable[[float, str], None]
"""Told the share of the work that is done, in [0, 1], and what is being done now."""


@dataclass(frozen=True, slots=True)
class Build:
    """A layout that is being made.

    Attributes:
        target: the write under way.
        cursor: of DuckDB.
        source: the table.
        memory_limit_bytes: the memory that DuckDB may take.
        state: the source's files, sizes and times when they were opened.
        given: the files that the user named, in the same way; () where the source is none of files.
    """

    target: Writing
    cursor: Cursor
    source: ParquetSource
    memory_limit_bytes: int
    state: tuple[FileState, ...]
    given: tuple[FileState, ...] = ()

    def publish(
        self,
        kind: Literal["sampled", "static"],
        partitions: tuple[Partition, ...],
        *,
        cluster_key: tuple[str, ...] = (),
        seed: int = 0,
        hash_scheme: str = "",
        hash_probe: str = "",
        max_unit_rows: int = 1,
        typical_unit_rows: float = 1.0,
        columns: tuple[Column, ...] | None = None,
    ) -> Layout:
        """Make the written partitions the table's layout, and return it.

        columns: with what is known of them; without them all files are read to find that out.
        Raises DataError if the source changed since it was opened: the partitions would not fit together.
        """
        row_count = sum(partition.row_count for partition in partitions)
        if row_count != self.source.row_count or fingerprint(self.source.files) != self.state:
            raise DataError(
                f"{self.source.description} changed while it was being laid out; lay it out again"
            )
        files = self.target.files_of(partitions)
        columns = columns or column_statistics(
            self.cursor, files, self.source.columns, keys_exactly=kind == "static"
        )
        outliers = None
        if kind == "sampled":
            columns = with_counted_values(self.cursor, files, columns, row_count)
            columns = with_values_by_group(self.cursor, files, columns, row_count, cluster_key)
            columns, outliers = outlier_index(self.cursor, self.target, columns, partitions)
            columns = with_ends_by_group(self.cursor, files, columns, row_count)
        layout = Layout(
            table=self.target.directory.name,
            directory=self.target.directory,
            kind=kind,
            columns=columns,
            partitions=partitions,
            row_count=row_count,
            unit_count=sum(partition.unit_count for partition in partitions),
            cluster_key=cluster_key,
            seed=seed,
            hash_scheme=hash_scheme,
            hash_probe=hash_probe,
            max_unit_rows=max_unit_rows,
            typical_unit_rows=typical_unit_rows,
            source=self.source.description,
            created_with=f"relaqs {version('relaqs')}, duckdb {DUCKDB_VERSION}",
            outliers=outliers,
            source_files=self.given,
        )
        if kind == "sampled" and cluster_key:
            layout = with_outlier_units(self.cursor, self.target, layout)
            layout = with_heavy_units(self.cursor, self.target, layout)
        return self.target.publish(layout)

    def first_part(
        self,
        partitions: tuple[Partition, ...],
        columns: tuple[Column, ...],
        *,
        seed: int,
        hash_scheme: str,
        hash_probe: str,
    ) -> FirstPart:
        """Return the first part of a layout by rows, whose other partitions are not written yet.

        columns: with what is known of them over the whole table.
        """
        return FirstPart(
            table=self.target.directory.name,
            directory=self.target.directory,
            kind="sampled",
            columns=columns,
            partitions=partitions,
            row_count=self.source.row_count,
            unit_count=self.source.row_count,
            cluster_key=(),
            seed=seed,
            hash_scheme=hash_scheme,
            hash_probe=hash_probe,
            max_unit_rows=1,
            source=self.source.description,
            created_with="",
        )


@contextmanager
def building(
    source: TableSource | ParquetSource,
    into: str | Path,
    *,
    force: bool,
    memory_limit_bytes: int,
    threads: int | None,
    waits: bool = False,
    civil_time: CivilTime | None = None,
) -> Iterator[Build]:
    """Open a source and the place that it is laid out into, and clean up afterwards, whatever happened.

    Args:
        source: what is laid out.
        into: the place.
        force: whether what is there may be replaced.
        memory_limit_bytes: of DuckDB.
        threads: of DuckDB.
        waits: for another process that writes the folder, instead of raising LayoutError.
        civil_time: by which texts are read as moments. None: that of the process.
    """
    with _target(into, force=force, waits=waits) as target:
        cursor = open_for_writing(
            target.scratch / "spill",
            memory_limit_bytes=memory_limit_bytes,
            threads=threads,
            civil_time=civil_time,
        )
        with closing(cursor):
            given = given_files(source)
            opened = open_source(source, cursor, target.scratch)
            state = fingerprint(opened.files)
            target.check_space(opened.byte_count)
            yield Build(target, cursor, opened, memory_limit_bytes, state, given)


def _target(into: str | Path, *, force: bool, waits: bool) -> AbstractContextManager[Writing]:
    """Return the place to write to: a folder, or an address in an object store."""
    if (address := Address.of(into)) is not None:
        return writing_to_store(address, mirror_root(default_cache_directory()), force=force)
    settle(layout_folders(Path(os.path.abspath(into))))
    return writing(into, force=force, waits=waits)
