"""Which partition and block a row belongs to: one hash of its sampling unit, read at two disjoint places.

Partition and block must not come from the same bits. `h % 100` and `h % 64` share a factor of 4, so each
partition would have only 16 of the 64 blocks. The block is the hash's lowest 6 bits. The partition is what
remains after the lowest 20 bits are dropped.

**Spread.** Work that is spread over threads of the caller: this package starts none of its own.

Whoever lays tables out on several cores hands in a `Spread` (`relaqs/executors/spreading.py` has one over
a pool of threads). Without it, everything runs on the calling thread, and every byte that is written is
the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from relaqs_engine.duck import Cursor, quote_name
from relaqs_engine.layouts.manifest import BLOCK_COUNT, Layout, Partition, hashed_type

Item = TypeVar("Item")
Made = TypeVar("Made")


class Spread(Protocol):
    """Runs the same work on many items, on as many threads as there are."""

    def __call__(
        self, work: Callable[[Item], Made], items: Iterable[Item], most: int
    ) -> Generator[Made, None, None]:
        """Yield what the work makes of each item, in the order of the items.

        An error of an item is raised in its turn. Once the generator is closed, no item is being worked on.

        Args:
            work: must be safe to run on several items at once.
            items: are taken one after another, as they are needed.
            most: how many items may be worked on or finished and not yet yielded; at least 1.
        """
        ...


def in_turn(
    work: Callable[[Item], Made], items: Iterable[Item], most: int = 1
) -> Generator[Made, None, None]:
    """Yield what the work makes of each item, on the calling thread."""
    for item in items:
        yield work(item)


HASH_SCHEME = (
    "u = duckdb hash(xor(hash(unit), blake2b-64(seed))); partition = (u >> 20) % partitions; block = u & 63"
)
HEAD_DIVISOR = 10  # a partition's units are so many times those of its head
_HEAD_BITS = (1 << 14) - 1  # between those of the block and those of the partition
_PROBED_UNITS = (("1::BIGINT",), ("'relaqs'",), ("NULL::BIGINT",), ("1::BIGINT", "2.5::DOUBLE"))
_probed: list[str] = []  # what the DuckDB of this process makes of them


@dataclass(frozen=True, slots=True)
class Assignment:
    """How rows of a source are assigned to partitions.

    Attributes:
        unit: SQL expressions that together identify the sampling unit.
        seed: layouts with another seed have nothing in common with this one.
        partition_count: how many partitions there are.
        head_count: of so many partitions, the first ones, a tenth of the units is in a file of its own.
    """

    unit: tuple[str, ...]
    seed: int
    partition_count: int
    head_count: int = 0

    @property
    def file_count(self) -> int:
        """Return how many files are written: one of each partition, and then the heads."""
        return self.partition_count + self.head_count

    @property
    def unit_hash(self) -> str:
        """Return the SQL of the unit's hash, a UBIGINT that is another one for each seed.

        The seed is mixed in and the result is hashed again, so layouts of different seeds have nothing in
        common.
        """
        mask = int.from_bytes(hashlib.blake2b(str(self.seed).encode(), digest_size=8).digest())
        return f"hash(xor(hash({', '.join(self.unit)}), {mask}::UBIGINT))"

    def partition(self, unit_hash: str) -> str:
        """Return the SQL of the partition's number, or that of a head, given the SQL of the unit's hash."""
        number = f"(({unit_hash} >> 20) % {self.partition_count})::INTEGER"
        if not self.head_count:
            return number
        share = f"(({unit_hash} >> 6) & {_HEAD_BITS}) < {_HEAD_BITS // HEAD_DIVISOR}"
        return f"({number} + if({number} < {self.head_count} AND {share}, {self.partition_count}, 0))"

    @staticmethod
    def block(unit_hash: str) -> str:
        return f"({unit_hash} & {BLOCK_COUNT - 1})::UTINYINT"


def together(partition: Partition, further: Partition, new_units: int) -> Partition:
    """Return a partition with the rows of another. new_units: how many units it does not have yet."""
    return Partition(
        files=(*partition.files, *further.files),
        row_count=partition.row_count + further.row_count,
        unit_count=partition.unit_count + new_units,
        block_rows=tuple(map(int.__add__, partition.block_rows, further.block_rows)),
    )


def heads_apart(layout: Layout, chosen: Sequence[int]) -> Layout:
    """Return a layout with the heads of some partitions as further partitions, after the others."""
    parts = list(layout.partitions)
    for i in chosen:
        whole, head = parts[i], layout.heads[i]
        parts[i] = Partition(
            files=whole.files[len(head.files) :],
            row_count=whole.row_count - head.row_count,
            unit_count=whole.unit_count - head.unit_count,
            block_rows=tuple(map(int.__sub__, whole.block_rows, head.block_rows)),
        )
    return replace(layout, partitions=(*parts, *(layout.heads[i] for i in chosen)), heads=())


def key_unit(key: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the unit of a cluster key, given as pairs (column name, DuckDB type).

    NULL is one key value like any other, as in DISTINCT and GROUP BY. So rows without a key stay together.

    >>> key_unit([("driver", "INTEGER")])
    ('"driver"',)
    """
    return tuple(
        f"{quote_name(name)}::{cast}" if (cast := hashed_type(type_text)) else quote_name(name)
        for name, type_text in key
    )


def hash_probe(cursor: Cursor) -> str:
    """Return what this DuckDB makes of fixed units, in hexadecimal.

    DuckDB does not promise that `hash` stays the same between versions. Layouts with different probes were
    hashed differently, so their partitions do not meet. A process has one version, so it is asked once.
    """
    if not _probed:
        hashes = ", ".join(Assignment(unit, 0, 1).unit_hash for unit in _PROBED_UNITS)
        _probed.append("-".join(f"{value:016x}" for value in cursor.rows(f"SELECT {hashes}")[0]))
    return _probed[0]


def known_by(cursor: Cursor, layout: Layout) -> Layout:
    """Return a layout without hashes of values where this DuckDB would make others of them."""
    if layout.hash_probe == hash_probe(cursor):
        return layout
    columns = (
        replace(each, distinct=each.distinct and each.distinct.without_hashes(), by_group=(), ends_by=())
        for each in layout.columns
    )
    return replace(layout, columns=tuple(columns))
