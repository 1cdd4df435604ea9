"""A spilled block: one partition's rows in a file, with a checksum of every megabyte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash

from relaqs.training.rows import Rows
from relaqs.training.spill_file import Extent, SpillFile, TornError

_CHUNK_BYTES = 1 << 20  # small: a task checks no more than it reads, but for a chunk's rest
_HEAD_BYTES = 1 << 16  # at most, of what the file has beside the values


class SpilledBlock:
    """Rows that are written once, and mapped whenever they are read. byte_count: what they take of a disk."""

    def __init__(self, rows: Rows) -> None:
        batch = _batch(rows)
        self.byte_count = batch.nbytes + _HEAD_BYTES
        self._schema: pa.Schema = batch.schema
        self._row_count = len(rows)
        self._target_type = None if rows.target is None else rows.target.dtype
        self._chunk_rows = max(1, _CHUNK_BYTES * len(rows) // max(batch.nbytes, 1))
        self._checksums: list[int] = []
        self._place: tuple[SpillFile, Extent] | None = None

    def __len__(self) -> int:
        return self._row_count

    @property
    def is_written(self) -> bool:
        return self._place is not None

    def write(self, file: SpillFile, rows: Rows) -> None:
        """Write the rows that the block was made of. Raises OSError."""
        self._checksums = [self._checksum(rows, start) for start in range(0, len(rows), self._chunk_rows)]
        self._place = file, file.append(_batch(rows))

    def rows(self, of: slice) -> Rows:
        """Return the rows, to be used for these positions alone. They were found to be what was written.

        Raises TornError.
        """
        assert self._place is not None
        file, extent = self._place
        batch = file.batch(extent)
        try:
            rows = self._rows_of(batch)
        except (TypeError, ValueError) as error:  # what else is left of a batch that was described wrongly
            raise TornError(str(error)) from error
        first = of.start // self._chunk_rows
        for number, start in enumerate(range(first * self._chunk_rows, of.stop, self._chunk_rows), first):
            if self._checksum(rows, start) != self._checksums[number]:
                raise TornError(f"rows {start} and on are not those that were written")
        return rows

    def _rows_of(self, batch: pa.RecordBatch) -> Rows:
        if batch.schema != self._schema or batch.num_rows != self._row_count:
            raise TornError("it has other columns or rows than were written")
        width = batch.schema.field(0).type.list_size
        features = batch.column(0).values.to_numpy().reshape(-1, width)
        if self._target_type is None:
            return Rows(features, None)
        target = batch.column(1).buffers()[1]
        return Rows(features, np.frombuffer(target, self._target_type, self._row_count))

    def _checksum(self, rows: Rows, start: int) -> int:
        part = rows.part(slice(start, start + self._chunk_rows))
        digest = xxhash.xxh3_64(part.features.data)
        if part.target is not None:
            digest.update(part.target.view(np.uint8).data)
        return digest.intdigest()


def _batch(rows: Rows) -> pa.RecordBatch:
    """Return the rows as Arrow's, not copied. Targets are bytes, whatever their type."""
    count, width = rows.features.shape
    values = pa.array(rows.features.reshape(-1))
    columns = {"features": pa.FixedSizeListArray.from_arrays(values, width)}
    if rows.target is not None:
        buffers = [None, pa.py_buffer(rows.target)]
        type = pa.binary(rows.target.dtype.itemsize)
        columns["target"] = pa.FixedSizeBinaryArray.from_buffers(type, count, buffers)
    return pa.record_batch(columns)
