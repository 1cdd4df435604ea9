"""Write the partitions. The source is read in a few passes. Each keeps what fits into memory.

A pass gathers the rows of some of the partitions in a temporary table, in the source's order. Then it copies
each partition to its file. So a partition holds the same rows in the same order, whatever the threads and the
memory; only the ends of its row groups may differ. DuckDB's own PARTITION_BY needs a third less time, but
leaves the order to chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from relaqs_engine.duck import Cursor
from relaqs_engine.layouts.assignment import Assignment
from relaqs_engine.layouts.build import Progress
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, Partition
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX, ParquetSource

_UNIT_HASH = f"{RESERVED_PREFIX}unit_hash"
_PARTITION = f"{RESERVED_PREFIX}partition"
_PASS = f"{RESERVED_PREFIX}pass"
_PROBE_ROWS = 122_880
_SHARE_OF_MEMORY = 0.5
"""Of the memory limit, for the rows of a pass; the rest is for reading, counting and writing them."""
_PICKS_PER_READ = 7
"""Partitions that can be picked out of the whole table in memory in the time the source is read once."""


@dataclass(frozen=True, slots=True)
class WrittenPartitions:
    """What was written.

    Attributes:
        partitions: one for each file.
        max_unit_rows: the rows of the largest sampling unit.
        typical_unit_rows: the rows of the unit that a row belongs to, on average.
    """

    partitions: tuple[Partition, ...]
    max_unit_rows: int
    typical_unit_rows: float


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes the partitions of one source. `clustered`: sampling units are keys rather than rows."""

    cursor: Cursor
    source: ParquetSource
    target: Writing
    assignment: Assignment
    clustered: bool
    progress: Progress

    def write(self, memory_limit_bytes: int) -> WrittenPartitions:
        """Return what was written: every partition, also those without rows."""
        written: list[Partition] = []
        max_unit_rows, squared_rows = 1, 0.0
        for chosen in self._passes(memory_limit_bytes):
            self._gather(chosen)
            blocks, units = self._block_rows(chosen), self._units(chosen)
            for partition in chosen:
                rows = sum(blocks[partition])
                unit_count, largest, squares = units.get(partition, (rows, 1, float(rows)))
                max_unit_rows, squared_rows = max(max_unit_rows, largest), squared_rows + squares
                written.append(self._copy(partition, blocks[partition], unit_count))
        self.cursor.run(f"DROP TABLE {_PASS}")
        typical = squared_rows / max(sum(partition.row_count for partition in written), 1)
        return WrittenPartitions(tuple(written), max_unit_rows, typical)

    def _passes(self, memory_limit_bytes: int) -> Iterator[range]:
        """Yield the partitions of each pass, as even as possible.

        Memory requires a number of passes. There are more if that makes the work less. With k
        passes, the source is read k times, and for each partition a k-th of the table is scanned.
        """
        count = self.assignment.partition_count
        table_bytes = self.source.row_count * self._bytes_per_row()
        fitting = math.ceil(table_bytes / (_SHARE_OF_MEMORY * memory_limit_bytes))
        passes = min(count, max(fitting, round(math.sqrt(count / _PICKS_PER_READ)), 1))
        for i in range(passes):
            yield range(i * count // passes, (i + 1) * count // passes)

    def _bytes_per_row(self) -> float:
        """Return the memory that a row takes, measured on the first few. What does not fit is spilled."""
        self.cursor.run(f"CREATE OR REPLACE TEMP TABLE {_PASS} AS FROM {self.source.sql} LIMIT {_PROBE_ROWS}")
        ((used_bytes,),) = self.cursor.rows(
            "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        )
        return float(used_bytes / min(_PROBE_ROWS, self.source.row_count))

    def _gather(self, chosen: range) -> None:
        """Fill the pass's table with the rows of the chosen partitions, in the source's order."""
        self.progress(chosen.start / self.assignment.partition_count, "reading")
        partition = self.assignment.partition(_UNIT_HASH)
        self.cursor.run(f"DROP TABLE {_PASS}")
        self.cursor.run(
            f"CREATE TEMP TABLE {_PASS} AS "
            f"SELECT * EXCLUDE ({_UNIT_HASH}), {self.assignment.block(_UNIT_HASH)} AS {BLOCK_COLUMN}, "
            f"{partition} AS {_PARTITION} "
            f"FROM (SELECT *, {self.assignment.unit_hash} AS {_UNIT_HASH} FROM {self.source.sql}) "
            f"WHERE {partition} BETWEEN {chosen.start} AND {chosen.stop - 1}"
        )

    def _block_rows(self, chosen: range) -> dict[int, list[int]]:
        """Return the rows of each block of each chosen partition."""
        counts = {partition: [0] * BLOCK_COUNT for partition in chosen}
        for partition, block, rows in self.cursor.rows(
            f"SELECT {_PARTITION}, {BLOCK_COLUMN}, count(*) FROM {_PASS} GROUP BY ALL"
        ):
            counts[partition][block] = rows
        return counts

    def _units(self, chosen: range) -> dict[int, tuple[int, int, float]]:
        """Return for each partition its number of units, the rows of the largest unit, and Σ rows²."""
        if not self.clustered:
            return {}
        key = ", ".join(self.assignment.unit)
        rows = self.cursor.rows(
            f"SELECT {_PARTITION}, count(*), max(unit_rows), sum(unit_rows::DOUBLE * unit_rows) "
            f"FROM (SELECT {_PARTITION}, count(*) AS unit_rows FROM {_PASS} GROUP BY {_PARTITION}, {key}) "
            f"GROUP BY {_PARTITION}"
        )
        return dict.fromkeys(chosen, (0, 0, 0.0)) | {row[0]: (row[1], row[2], row[3]) for row in rows}

    def _copy(self, partition: int, block_rows: list[int], unit_count: int) -> Partition:
        count = self.assignment.partition_count
        self.progress(partition / count, f"writing partition {partition + 1} of {count}")
        file = self.target.parts / f"part-{partition:05d}.parquet"
        copy_to_parquet(
            self.cursor,
            f"SELECT * EXCLUDE ({_PARTITION}) FROM {_PASS} WHERE {_PARTITION} = {partition}",
            file,
        )
        return settled(self.cursor, self.target, file, sum(block_rows), unit_count, tuple(block_rows))
