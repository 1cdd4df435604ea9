"""Checksums of a layout's files by column. A query checks the bytes that it reads, and no others.

A Parquet file is row groups one after another. A row group is columns one after another. A footer says
where they are. The bytes of one column in one row group are an extent:

    PAR1 | fare, zone, … of row group 0 | fare, zone, … of row group 1 | footer

One checksum is taken of all extents of a column together, and one of the rest, which every reader needs.
Parquet has room for checksums, but DuckDB neither writes nor checks them. A bit that flips in a page gives
other values more often than an error: 10 of 48 answers were wrong (docs/decisions/0021-checked-bytes.md).

**Sealed JSON** is an object with the checksum of its own text as the last entry.

    {"row_count": 3, "xxh3": "4f1e09c2b8d6a7e5"}

A bit that flips on a disk can turn a 3 into a 2, and the text is still good JSON. The seal shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import chain
from pathlib import Path

import xxhash

from relaqs_engine.stores.mirror import Extent

SEAL = "xxh3"  # the name of the last entry
_MARK = f', "{SEAL}": "'.encode()
_END = b'"}'


def seal(text: str) -> bytes:
    """Return the text of a JSON object, which must not be empty, with its seal."""
    body = text.encode().removesuffix(b"}")
    return body + _MARK + xxhash.xxh3_64_hexdigest(body).encode() + _END


def is_sealed(text: bytes) -> bool:
    """Whether a text has a seal. Raises ValueError where the seal is that of another text."""
    body, mark, end = text.rstrip().rpartition(_MARK)
    if mark and end != xxhash.xxh3_64_hexdigest(body).encode() + _END:
        raise ValueError("it does not hold the bytes that were written")
    return bool(mark)


_PIECE_BYTES = 1 << 18  # read at once: small enough to stay in a core's cache until it is summed up


@dataclass(frozen=True, slots=True)
class Checksums:
    """XXH3 (64 bits, hexadecimal) of a file's bytes.

    Attributes:
        extents: offset and length of each column in each row group, flat. Those of the first column come
            first.
        columns: the checksum of each column, in the table's order.
        rest: the checksum of all bytes that are in no extent.
    """

    extents: tuple[int, ...]
    columns: tuple[str, ...]
    rest: str

    def extents_of(self, column: int) -> Sequence[Extent]:
        """Return where the bytes of a column are, given the column's position."""
        each = len(self.extents) // len(self.columns)
        flat = self.extents[column * each : (column + 1) * each]
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    def damaged(self, file: Path, columns: Iterable[int]) -> list[int | None]:
        """Return which of these columns hold other bytes than were written; None is the rest of the file.

        The columns are given by position. Raises OSError.
        """
        found: list[int | None] = []
        piece = _piece()
        with file.open("rb", buffering=0) as handle:
            for column in columns:
                if _sum_of(handle, self.extents_of(column), piece) != self.columns[column]:
                    found.append(column)
            if _sum_of(handle, self.extents_of_rest(file.stat().st_size), piece) != self.rest:
                found.append(None)
        return found

    def extents_of_rest(self, size: int) -> list[Extent]:
        """Return where the bytes of no column are, given the file's size."""
        return extents_between(zip(self.extents[::2], self.extents[1::2], strict=True), size)


def checksums_of(file: Path, extents: Sequence[Sequence[Extent]]) -> Checksums:
    """Return the checksums of a file. extents: of each column, one for each row group."""
    flat = [extent for of_column in extents for extent in of_column]
    piece = _piece()
    with file.open("rb", buffering=0) as handle:
        sums = tuple(_sum_of(handle, of_column, piece) for of_column in extents)
        rest = _sum_of(handle, extents_between(flat, file.stat().st_size), piece)
    return Checksums(tuple(chain.from_iterable(flat)), sums, rest)


def extents_between(extents: Iterable[Extent], size: int) -> list[Extent]:
    """Return the parts of a file of that size that are in no extent."""
    taken = sorted(extents)
    begins = [0, *(at + length for at, length in taken)]
    ends = [*(at for at, _ in taken), size]
    return [(begin, end - begin) for begin, end in zip(begins, ends, strict=True)]


def _piece() -> memoryview:
    return memoryview(bytearray(_PIECE_BYTES))


def _sum_of(handle: FileIO, extents: Iterable[Extent], piece: memoryview) -> str:
    """Return the checksum of the bytes in these extents. `piece` is memory to read into."""
    digest = xxhash.xxh3_64()
    for at, length in extents:
        handle.seek(at)
        while length > 0 and (got := handle.readinto(piece[:length])):
            digest.update(piece[:got])
            length -= got
    return digest.hexdigest()
