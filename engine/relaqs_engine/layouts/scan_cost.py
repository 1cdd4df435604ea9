"""What reading Parquet costs, predicted from its size by one measured rate."""

from __future__ import annotations

SOON_SECONDS = 0.3
"""An answer that one core finds in less time is better given at once than estimated before."""

BYTES_PER_CORE_SECOND = 1e9
_BYTES_OF_A_ROW = 20
"""Measured: a core reads that much of Parquet a second, if each row counts as that many bytes more."""


def scan_core_seconds(byte_count: int, row_count: int) -> float:
    """Return about how long one core takes to read so many compressed bytes of so many rows."""
    return (byte_count + _BYTES_OF_A_ROW * row_count) / BYTES_PER_CORE_SECOND
