"""How far a run of `generate` has come: bytes generated and bytes laid out, as a share of both together."""

from __future__ import annotations

from collections.abc import Sequence

from relaqs_engine.layouts.build import Progress

from relaqs_tpch.tables import TpchTable


class Meter:
    """Turns steps into shares.

    Args:
        generating: tables to generate.
        laying: tables to lay out, in this order.
    """

    def __init__(
        self,
        scale: float,
        generating: Sequence[TpchTable],
        laying: Sequence[TpchTable],
        progress: Progress | None,
    ) -> None:
        self._scale = scale
        self._to_generate = self._bytes(generating)
        self._all = self._to_generate + self._bytes(laying)
        self._laid = 0
        self._progress = progress or (lambda share, doing: None)

    def generated(self, written_bytes: int) -> None:
        self._report(min(written_bytes, self._to_generate), "generating")

    def laying_out(self, table: TpchTable) -> Progress:
        """Return what is to be told how far this table is; the tables named before it are laid out."""
        before = self._to_generate + self._laid
        size = self._bytes([table])
        self._laid += size
        self._report(before, f"laying out {table.name}")
        return lambda share, _: self._report(before + share * size, f"laying out {table.name}")

    def _bytes(self, tables: Sequence[TpchTable]) -> int:
        return sum(table.parquet_bytes_at(self._scale) for table in tables)

    def _report(self, done_bytes: float, doing: str) -> None:
        self._progress(done_bytes / self._all, doing)
