"""Runs the TPC-H data generator: the program `tpchgen-cli` of the package of that name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from relaqs_engine.errors import DataError

PACKAGE = "tpchgen-cli"
REPORT_SECONDS = 0.2
# Columns of many values, for which the generator would try a dictionary in vain.
_KEYS = {
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey"),
    "orders": ("o_orderkey", "o_custkey"),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
}
_VALUES = {
    "lineitem": ("l_extendedprice", "l_comment"),
    "orders": ("o_totalprice", "o_comment"),
    "partsupp": ("ps_supplycost", "ps_comment"),
    "customer": ("c_name", "c_address", "c_phone", "c_acctbal", "c_comment"),
    "part": ("p_name", "p_comment"),
}
UNFINISHED_SUFFIX = ".inprogress"  # the generator writes under this name and renames at the end


def write_tables(
    tables: Sequence[str],
    scale: float,
    into: Path,
    on_bytes: Callable[[int], None] = lambda written: None,
    is_temporary: bool = False,
) -> None:
    """Generate `<table>.parquet` of each table into the folder; a file of that name is complete.

    The generator never outlives this call, and leaves no unfinished file.

    Args:
        tables: their names.
        scale: as in `relaqs_tpch.data.generate`.
        into: the folder.
        on_bytes: told now and then how many bytes the folder holds.
        is_temporary: the files are only read once, to be laid out. They are written in less time, and not as
            the generator writes them by itself.

    Raises:
        DataError: it fails, with the generator's own words.
    """
    command = [str(find_program()), "parquet", "--quiet", "--scale-factor", str(scale)]
    command += ["--tables", ",".join(tables), "--output-dir", str(into)]
    command += _quick_options(tables) if is_temporary else []
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said, _no_unfinished_files(into):
        exit_code = _run(command, said, lambda: on_bytes(_written_bytes(into)))
        if exit_code != 0:
            said.seek(0)
            words = said.read().strip() or "it said nothing"
            raise DataError(
                f"{PACKAGE} could not make {', '.join(tables)} at scale {scale:g} (exit {exit_code}): {words}"
            )


def _quick_options(tables: Iterable[str]) -> list[str]:
    """Return how Parquet is written, and read again, in the least time."""
    keys, values = [_KEYS.get(table, ()) for table in tables], [_VALUES.get(table, ()) for table in tables]
    encodings = [f"{column}=DELTA_BINARY_PACKED" for columns in keys for column in columns]
    encodings += [f"{column}=PLAIN" for columns in values for column in columns]
    options = ["--compression", "LZ4_RAW", "--row-group-bytes", "32MB"]
    return [*options, "--column-encoding", ",".join(encodings)] if encodings else options


def _run(command: Sequence[str], said: IO[str], report: Callable[[], None]) -> int:
    """Return the exit code. An exception here, KeyboardInterrupt included, ends the process first."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
        try:
            while True:
                try:
                    return process.wait(REPORT_SECONDS)
                except subprocess.TimeoutExpired:
                    report()
        except BaseException:
            process.kill()
            raise


@contextmanager
def _no_unfinished_files(folder: Path) -> Iterator[None]:
    """Remove what a run that was killed has left, ours at the end and an earlier one's at the start."""

    def remove() -> None:
        for path in folder.glob(f"*{UNFINISHED_SUFFIX}"):
            path.unlink()

    remove()
    try:
        yield
    finally:
        remove()


def _written_bytes(folder: Path) -> int:
    written = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # finished, and so renamed, since it was listed
            written += path.stat().st_size
    return written


def find_program() -> Path:
    """Return the generator's path: where its package put it, else beside this Python, else on the PATH.

    Raises DataError if it is in none of these places.
    """
    for path in [*_installed_files(), Path(sys.executable).with_name(PACKAGE)]:
        if path.is_file():
            return path
    if found := shutil.which(PACKAGE):
        return Path(found)
    raise DataError(
        f"the package {PACKAGE}, which makes the data, is missing; install it with pip install 'relaqs[demo]'"
    )


def _installed_files() -> list[Path]:
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return []
    return [
        Path(str(file.locate())) for file in files if file.stem == PACKAGE and file.suffix in ("", ".exe")
    ]
