"""Writing the partitions of any source: it is read in a few passes, each keeping what fits into memory.

A pass gathers the rows of some of the partitions in a temporary table, in the source's order. Then it
copies each partition to its file. So a partition holds the same rows in the same order, whatever the
threads and the memory; only the ends of its row groups may differ. DuckDB's own PARTITION_BY needs a third
less time, but leaves the order to chance.

`check_fits` asks whether new rows fit a table: they have the same columns, of the same types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.assignment import Assignment
from relaqs_engine.layouts.build import Progress
from relaqs_engine.layouts.column_statistics import SeenValues
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, WHOLE_NUMBERS, Layout, Partition
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX, ParquetSource, copied


def fitted(source: ParquetSource, held: Layout, cursor: Cursor, scratch: Path) -> ParquetSource:
    """Return the source with exactly the columns of a table, in its order. Where they differ, it is copied.

    Args:
        source: of new rows.
        scratch: a folder for the copy.

    Raises:
        LayoutError: the source lacks a column, has another one, or one of a type that does not fit.
        DataError: a whole number is too large for the table's type.
    """
    wanted = tuple((column.name, column.type) for column in held.columns)
    if source.columns == wanted:
        return source
    found = {name.lower(): (name, type_text) for name, type_text in source.columns}
    if faults := list(_faults(found, held)):
        raise LayoutError(
            f"{source.description} does not fit {held.table}: {'; '.join(faults)}. Nothing was appended. "
            "Append a SELECT that gives the table's columns, as in "
            "duckdb.sql(\"SELECT fare::DOUBLE AS fare, … FROM 'new.parquet'\")"
        )
    columns = ", ".join(
        f"{quote_name(found[name.lower()][0])}::{type_text} AS {quote_name(name)}"
        for name, type_text in wanted
    )
    select = f"SELECT {columns} FROM {source.sql}"
    return copied(select, cursor, scratch / "fitted", source.description)


def _faults(found: Mapping[str, tuple[str, str]], held: Layout) -> Iterator[str]:
    known = {column.name.lower() for column in held.columns}
    for column in held.columns:
        _, type_text = found.get(column.name.lower(), ("", None))
        if type_text is None:
            yield f"it lacks the column {column.name!r}"
        elif not _is_kept(type_text, column.type):
            yield f"{column.name!r} is {type_text}, and {column.type} in the table"
    for name, _ in found.values():
        if name.lower() not in known:
            yield f"the table has no column {name!r}"


def _is_kept(given: str, wanted: str) -> bool:
    """Whether each value of one type is the same value of another, or the cast fails."""
    both_whole = given in WHOLE_NUMBERS and wanted in WHOLE_NUMBERS
    return given == wanted or both_whole or (given, wanted) == ("FLOAT", "DOUBLE")


_UNIT_HASH = f"{RESERVED_PREFIX}unit_hash"
_PARTITION = f"{RESERVED_PREFIX}partition"
_PASS = f"{RESERVED_PREFIX}pass"
_PROBE_ROWS = 122_880
_SHARE_OF_MEMORY = 0.5
"""Of the memory limit, for the rows of a pass; the rest is for reading, counting and writing them."""
_PICKS_PER_READ = 7
"""Partitions that can be picked out of the whole table in memory in the time the source is read once."""


@dataclass(frozen=True, slots=True)
class Units:
    """The sampling units of a partition: how many, the rows of the largest, and the sum of rows squared."""

    count: int
    largest: int
    squared_rows: float

    @classmethod
    def rows(cls, count: int) -> Units:
        """Return units that are the rows themselves."""
        return cls(count, 1, float(count))


@dataclass(frozen=True, slots=True)
class WrittenPartitions:
    """What was written.

    Attributes:
        partitions: in order.
        max_unit_rows: rows of the largest sampling unit.
        typical_unit_rows: rows of the unit that a row belongs to, on average.
        seen: what was seen of the values on the way; None where nothing was.
    """

    partitions: tuple[Partition, ...]
    max_unit_rows: int
    typical_unit_rows: float
    seen: SeenValues | None = None

    @classmethod
    def of(
        cls, written: Sequence[tuple[Partition, Units]], seen: SeenValues | None = None
    ) -> WrittenPartitions:
        """Return the partitions with what their units come to."""
        rows = sum(partition.row_count for partition, _ in written)
        squared_rows = sum(units.squared_rows for _, units in written)
        largest = max((units.largest for _, units in written), default=1)
        partitions = tuple(partition for partition, _ in written)
        return cls(partitions, max(largest, 1), squared_rows / max(rows, 1), seen)


@dataclass(frozen=True, slots=True)
class PartitionJob:
    """What partitions are written of, and where to.

    Attributes:
        key: the names of the cluster key's columns. Empty where the sampling unit is a row.
        adds_to_a_table: whether the rows are added to a table that is there. Then a partition that gets none
            has no file, and units are not counted: some are in the table already.
    """

    cursor: Cursor
    source: ParquetSource
    target: Writing
    assignment: Assignment
    key: tuple[str, ...]
    progress: Progress
    adds_to_a_table: bool = False

    def file_of(self, partition: int) -> Path:
        """Return the file that a partition is written to."""
        return self.target.parts / f"part-{partition:05d}.parquet"

    @property
    def counts_units(self) -> bool:
        """Whether units are to be counted, because they are keys."""
        return bool(self.key) and not self.adds_to_a_table

    def is_written(self, row_count: int) -> bool:
        """Whether a partition of so many rows gets a file."""
        return row_count > 0 or not self.adds_to_a_table


NO_ROWS = Partition((), 0, 0, (0,) * BLOCK_COUNT)
"""What is written of a partition that gets no file."""


def units_of_file(cursor: Cursor, file: Path, key: Sequence[str]) -> Units:
    """Return the units of a written partition. key: SQL of the cluster key's columns."""
    table = parquet_rows([file])
    ((count, largest, squared_rows),) = cursor.rows(
        "SELECT count(*), max(unit_rows), sum(unit_rows::DOUBLE * unit_rows) "
        f"FROM (SELECT count(*) AS unit_rows FROM {table} GROUP BY {', '.join(key)})"
    )
    return Units(count, largest or 0, squared_rows or 0.0)


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes partitions of any source, by DuckDB alone."""

    job: PartitionJob

    def write(self, memory_limit_bytes: int) -> WrittenPartitions:
        """Return what was written: every partition, also those that no row fell into."""
        written: list[tuple[Partition, Units]] = []
        for chosen in self._passes(memory_limit_bytes):
            self._gather(chosen)
            blocks, units = self._block_rows(chosen), self._units(chosen)
            for partition in chosen:
                of_partition = units.get(partition) or Units.rows(sum(blocks[partition]))
                entry = self._copy(partition, blocks[partition], of_partition.count)
                written.append((entry, of_partition))
        self.job.cursor.run(f"DROP TABLE {_PASS}")
        return WrittenPartitions.of(written)

    def _passes(self, memory_limit_bytes: int) -> Iterator[range]:
        """Yield the partitions of each pass, as even as possible.

        Memory requires a number of passes. There are more if that makes the work less. With k
        passes, the source is read k times, and for each partition a k-th of the table is scanned.
        """
        count = self.job.assignment.file_count
        table_bytes = self.job.source.row_count * self._bytes_per_row()
        fitting = math.ceil(table_bytes / (_SHARE_OF_MEMORY * memory_limit_bytes))
        passes = min(count, max(fitting, round(math.sqrt(count / _PICKS_PER_READ)), 1))
        for i in range(passes):
            yield range(i * count // passes, (i + 1) * count // passes)

    def _bytes_per_row(self) -> float:
        """Return what a row takes in memory, by loading the first few. What does not fit after all spills."""
        self.job.cursor.run(
            f"CREATE OR REPLACE TEMP TABLE {_PASS} AS FROM {self.job.source.sql} LIMIT {_PROBE_ROWS}"
        )
        ((used_bytes,),) = self.job.cursor.rows(
            "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        )
        return float(used_bytes / min(_PROBE_ROWS, self.job.source.row_count))

    def _gather(self, chosen: range) -> None:
        """Fill the pass's table with the rows of the chosen partitions, in the source's order."""
        self.job.progress(chosen.start / self.job.assignment.file_count, "reading")
        partition = self.job.assignment.partition(_UNIT_HASH)
        self.job.cursor.run(f"DROP TABLE {_PASS}")
        self.job.cursor.run(
            f"CREATE TEMP TABLE {_PASS} AS "
            f"SELECT * EXCLUDE ({_UNIT_HASH}), {self.job.assignment.block(_UNIT_HASH)} AS {BLOCK_COLUMN}, "
            f"{partition} AS {_PARTITION} "
            f"FROM (SELECT *, {self.job.assignment.unit_hash} AS {_UNIT_HASH} FROM {self.job.source.sql}) "
            f"WHERE {partition} BETWEEN {chosen.start} AND {chosen.stop - 1}"
        )

    def _block_rows(self, chosen: range) -> dict[int, list[int]]:
        """Return the rows of each block of each chosen partition."""
        counts = {partition: [0] * BLOCK_COUNT for partition in chosen}
        for partition, block, rows in self.job.cursor.rows(
            f"SELECT {_PARTITION}, {BLOCK_COLUMN}, count(*) FROM {_PASS} GROUP BY ALL"
        ):
            counts[partition][block] = rows
        return counts

    def _units(self, chosen: range) -> dict[int, Units]:
        """Return the units of each partition where they are keys."""
        if not self.job.counts_units:
            return {}
        key = ", ".join(self.job.assignment.unit)
        rows = self.job.cursor.rows(
            f"SELECT {_PARTITION}, count(*), max(unit_rows), sum(unit_rows::DOUBLE * unit_rows) "
            f"FROM (SELECT {_PARTITION}, count(*) AS unit_rows FROM {_PASS} GROUP BY {_PARTITION}, {key}) "
            f"GROUP BY {_PARTITION}"
        )
        return dict.fromkeys(chosen, Units(0, 0, 0.0)) | {row[0]: Units(*row[1:]) for row in rows}

    def _copy(self, partition: int, block_rows: list[int], unit_count: int) -> Partition:
        if not self.job.is_written(sum(block_rows)):
            return NO_ROWS
        count = self.job.assignment.file_count
        self.job.progress(partition / count, f"writing partition {partition + 1} of {count}")
        file = self.job.file_of(partition)
        copy_to_parquet(
            self.job.cursor,
            f"SELECT * EXCLUDE ({_PARTITION}) FROM {_PASS} WHERE {_PARTITION} = {partition}",
            file,
        )
        return settled(self.job.cursor, self.job.target, file, sum(block_rows), unit_count, tuple(block_rows))
