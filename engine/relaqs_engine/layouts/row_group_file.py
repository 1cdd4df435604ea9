"""One row group of a Parquet file as a Parquet file of its own, of which only the footer is new.

DuckDB looks at each row group that a file's footer names, for each statement. That costs more than reading a
few of them. So each is read through a name that stands for the user's file with another end:

    bytes of the user's file ……………… | a footer of this row group and the columns that are read

Offsets in that footer are those of the user's file, and no byte of data is copied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

from relaqs_engine.duck import ROW_GROUP_PROTOCOL, FileState
from relaqs_engine.layouts.footers import footer, schema_elements
from relaqs_engine.layouts.thrift import BINARY, I32, I64, LIST, STRUCT, Field, binary, listed, struct, whole

_NAME = re.compile(rf"(?:{ROW_GROUP_PROTOCOL}://)?/?(([0-9a-f]+)/(\d+)/([\d-]+))-([0-9a-f]{{8}})\.parquet")
_MAGIC = b"PAR1"
_FOOTERS_KEPT = 1024
# The numbers of Parquet's Thrift definition.
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}


@dataclass(frozen=True, slots=True)
class RowGroupFile:
    """What a name stands for.

    Attributes:
        state_digest: of the file's state, see `state_digest`.
        group: the position of the row group.
        columns: the positions of the columns that are read.
    """

    state_digest: str
    group: int
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the name by which a statement reads it. It ends with a checksum of itself.

        >>> RowGroupFile("0a", 5, (0, 3)).name
        'rowgroup://0a/5/0-3-11d52a51.parquet'
        """
        said = f"{self.state_digest}/{self.group}/{'-'.join(map(str, self.columns))}"
        return f"{ROW_GROUP_PROTOCOL}://{said}-{_checksum(said)}.parquet"

    @classmethod
    def named(cls, name: str) -> RowGroupFile | None:
        """Return what a name stands for, None where it is no such name, or none that was given out.

        >>> RowGroupFile.named("rowgroup://0a/5/0-3-11d52a51.parquet")
        RowGroupFile(state_digest='0a', group=5, columns=(0, 3))
        >>> RowGroupFile.named("rowgroup://0a/4/0-3-11d52a51.parquet")
        """
        found = _NAME.fullmatch(name)
        if found is None or found[5] != _checksum(found[1]):
            return None
        return cls(found[2], int(found[3]), tuple(map(int, found[4].split("-"))))


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"


def is_understood(chunk: Any) -> bool:
    """Whether a footer can be written for a column of a row group: its codec and encodings are known."""
    known = chunk.physical_type in _TYPES and chunk.compression in _CODECS
    return known and _ENCODINGS.keys() >= set(chunk.encodings)


@lru_cache(maxsize=_FOOTERS_KEPT)
def end_of_file(state: FileState, group: int, columns: tuple[int, ...]) -> bytes:
    """Return the footer of one row group, with what a Parquet file ends with."""
    found = footer(state)
    schema, row_group = found.schema, found.row_group(group)
    elements = [schema_elements(state)[schema.column(i).path] for i in columns]
    root = struct([(4, BINARY, binary(b"schema")), (5, I32, whole(len(elements)))])
    chunks = [_chunk(row_group.column(i)) for i in columns]
    described = struct(
        [
            (1, LIST, listed(STRUCT, chunks)),
            (2, I64, whole(row_group.total_byte_size)),
            (3, I64, whole(row_group.num_rows)),
        ]
    )
    made = struct(
        [
            (1, I32, whole(2)),
            (2, LIST, listed(STRUCT, [root, *elements])),
            (3, I64, whole(row_group.num_rows)),
            (4, LIST, listed(STRUCT, [described])),
        ]
    )
    return made + len(made).to_bytes(4, "little") + _MAGIC


def _chunk(column: Any) -> bytes:
    encodings = [whole(_ENCODINGS[each]) for each in column.encodings]
    path = [binary(part.encode()) for part in (column.path_in_schema,)]
    fields: list[Field] = [
        (1, I32, whole(_TYPES.index(column.physical_type))),
        (2, LIST, listed(I32, encodings)),
        (3, LIST, listed(BINARY, path)),
        (4, I32, whole(_CODECS.index(column.compression))),
        (5, I64, whole(column.num_values)),
        (6, I64, whole(column.total_uncompressed_size)),
        (7, I64, whole(column.total_compressed_size)),
        (9, I64, whole(column.data_page_offset)),
    ]
    if column.dictionary_page_offset:
        fields.append((11, I64, whole(column.dictionary_page_offset)))
    return struct([(2, I64, whole(0)), (3, STRUCT, struct(fields))])
