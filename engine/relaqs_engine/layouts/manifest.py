"""The manifest of a layout: what is stored, how it was sampled, and what is known of the values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

BLOCK_COLUMN = "_relaqs_block"
BLOCK_COUNT = 64
MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1

Scalar = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its statistics over the whole table.

    type: DuckDB's type text. minimum, maximum: of the values that are not NULL (numbers as numbers, all else
    as DuckDB prints it), None where there are none or the type has no order. distinct_count: approximate.
    byte_count: compressed bytes in all partitions together.
    """

    name: str
    type: str
    minimum: Scalar
    maximum: Scalar
    null_count: int
    distinct_count: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One Parquet file. file: relative to the table's folder. block_rows: rows in each block, BLOCK_COUNT
    of them (empty for a static table). unit_count: sampling units (rows, or distinct cluster keys)."""

    file: str
    row_count: int
    unit_count: int
    byte_count: int
    sha256: str
    block_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table on disk. Sampled: any prefix of its partitions is a uniform random sample of sampling units.

    directory: the table's folder, absolute. cluster_key: empty when the sampling unit is a row.
    hash_probe: what this layout's hash scheme makes of fixed values; layouts are co-clustered only if equal.
    max_unit_rows: rows of the largest sampling unit.
    """

    table: str
    directory: Path
    kind: Literal["sampled", "static"]
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...]
    row_count: int
    unit_count: int
    cluster_key: tuple[str, ...]
    seed: int
    hash_scheme: str
    hash_probe: str
    max_unit_rows: int
    source: str
    created_with: str

    @property
    def is_sampled(self) -> bool:
        return self.kind == "sampled"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the absolute path of each partition, in order."""
        return tuple(self.directory / partition.file for partition in self.partitions)

    def column(self, name: str) -> Column:
        """Return the column of that name, compared without case, as SQL does. Raises KeyError."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)

    def is_co_clustered_with(self, other: Layout) -> bool:
        """Whether partition i of both holds exactly the same cluster keys."""
        return (
            self.is_sampled
            and other.is_sampled
            and bool(self.cluster_key)
            and len(self.cluster_key) == len(other.cluster_key)
            and len(self.partitions) == len(other.partitions)
            and self.seed == other.seed
            and (self.hash_scheme, self.hash_probe) == (other.hash_scheme, other.hash_probe)
            and [self.column(k).type for k in self.cluster_key]
            == [other.column(k).type for k in other.cluster_key]
        )
