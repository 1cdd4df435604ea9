"""Where the benchmarks' TPC-H data lives: the generator's own files, and the warehouse laid out from them."""

from __future__ import annotations

from pathlib import Path

from relaqs_tpch import generate
from relaqs_tpch.data import ORIGINALS, write_tables

from benchmarks.record import DATA


def warehouse(scale: float, *, second_layouts: bool = False) -> tuple[Path, Path]:
    """Return a warehouse at this scale and the folder of its original files, made on first use.

    second_layouts: with five tables also laid out by part or customer key.
    """
    folder = DATA / f"tpch-{scale:g}"
    print(f"TPC-H at scale {scale:g} in {folder} …", flush=True)
    generate(scale, folder, keep_raw=True, second_layouts=second_layouts)
    return folder, folder / ORIGINALS


def originals(scale: float, tables: tuple[str, ...]) -> Path:
    """Return a folder with the original files of these tables, taken from a warehouse that has them."""
    for folder in (DATA / f"tpch-{scale:g}" / ORIGINALS, DATA / f"tpch-{scale:g}-files"):
        if all((folder / f"{table}.parquet").exists() for table in tables):
            return folder
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(tables, scale, folder)
    return folder
