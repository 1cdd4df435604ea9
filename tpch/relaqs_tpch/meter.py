"""How far a run of `generate` has come: bytes generated and bytes laid out, as a share of both together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaqs_tpch.tables import TpchTable

Progress = Callable[[str, float], None]
"""Told what is being done, and the share of the whole that is done, in [0, 1]."""


class Meter:
    """Turns steps into shares. generating: tables to generate; laying: tables to lay out, in this order."""

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
        self._laid = 0.0
        self._current = 0.0
        self._progress = progress

    def generated(self, written_bytes: int) -> None:
        self._report("generating", min(float(written_bytes), self._to_generate))

    def laying_out(self, table: TpchTable) -> None:
        """The table named last time is laid out, and this one is begun."""
        self._laid += self._current
        self._current = self._bytes([table])
        self._report(f"laying out {table.name}", self._to_generate + self._laid)

    def _bytes(self, tables: Sequence[TpchTable]) -> float:
        return sum(table.parquet_bytes_at(self._scale) for table in tables)

    def _report(self, doing: str, done_bytes: float) -> None:
        if self._progress is not None:
            self._progress(doing, done_bytes / self._all)
