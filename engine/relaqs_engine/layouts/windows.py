"""Windows: runs of pieces that are held in memory together, and become one row group of each partition.

A source of any size is read once in bounded memory: as many rows are gathered as fit, each partition's part
of them is written, and the next window begins. Where a window ends depends on the source and the memory
limit, never on how many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from relaqs_engine.layouts.encodings import Encodings
from relaqs_engine.layouts.gathering import Gathered
from relaqs_engine.layouts.pieces import Piece

_Piece = TypeVar("_Piece", bound=Gathered)

_MOST_TEXTS = 65_536
"""Of a column that is held as codes."""
_OVERRUN = 1.25
"""How much larger than planned a window may become, as rows differ in size; then it ends early."""


class TooManyTextsError(Exception):
    """A column that looked as if it had few values has many."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Where windows end.

    Attributes:
        last_pieces: positions of the pieces that windows end with.
        most_bytes: of the rows of a window.
    """

    last_pieces: frozenset[int]
    most_bytes: float


def planned(pieces: Sequence[Piece], bytes_per_row: float, memory_bytes: float) -> WindowPlan:
    """Return windows of about equal rows, as few as the memory allows."""
    rows = pieces[-1].rows_before + pieces[-1].row_count
    count = max(1, math.ceil(rows * bytes_per_row / memory_bytes))
    ends = [rows * (i + 1) / count for i in range(count)]
    last: set[int] = set()
    for position, piece in enumerate(pieces):
        middle = piece.rows_before + piece.row_count / 2
        if position and middle > ends[len(last)]:
            last.add(position - 1)
    return WindowPlan(frozenset(last | {len(pieces) - 1}), _OVERRUN * memory_bytes)


def windows(gathered: Iterable[_Piece], plan: WindowPlan, encodings: Encodings) -> Iterator[Sequence[_Piece]]:
    """Yield the windows. Their texts are held as codes of one dictionary for each column.

    Raises TooManyTextsError.
    """
    texts = {name: _Texts() for name in encodings.codes}
    window: list[_Piece] = []
    size = 0
    for position, piece in enumerate(gathered):
        window.append(replace(piece, rows=_recoded(piece.rows, texts)))
        size += piece.byte_count
        if position in plan.last_pieces or size > plan.most_bytes:
            yield [replace(each, rows=_with_texts(each.rows, texts, encodings)) for each in window]
            window, size = [], 0
    if window:
        yield [replace(each, rows=_with_texts(each.rows, texts, encodings)) for each in window]


class _Texts:
    """The texts of one column in the order they were first seen; a text's code is its place."""

    def __init__(self) -> None:
        self.seen = pa.array([], pa.string())

    def codes_of(self, column: pa.DictionaryArray) -> pa.Array:
        """Return the codes of a column, after its texts are added to those seen."""
        places = pc.index_in(column.dictionary, value_set=self.seen)
        if places.null_count:
            self.seen = pa.concat_arrays([self.seen, column.dictionary.filter(places.is_null())])
            places = pc.index_in(column.dictionary, value_set=self.seen)
        if len(self.seen) > _MOST_TEXTS:
            raise TooManyTextsError
        return places.take(column.indices)


def _recoded(rows: pa.RecordBatch, texts: dict[str, _Texts]) -> pa.RecordBatch:
    columns = [
        texts[name].codes_of(column) if name in texts else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _with_texts(rows: pa.RecordBatch, texts: dict[str, _Texts], encodings: Encodings) -> pa.RecordBatch:
    columns = [
        pa.DictionaryArray.from_arrays(column, texts[name].seen, safe=False) if name in texts else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=encodings.schema)
