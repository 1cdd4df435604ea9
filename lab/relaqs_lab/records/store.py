"""A file of records: appended to line by line, so that whatever ends a run, what it measured is kept.

One line is one measurement, with its circumstances: the machine, the versions, the time and the command.
Single fields are read with care: null is NaN, or infinity where that is what a number can be.
"""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.checksums import SEAL, is_sealed, seal

from relaqs.executors.threads import usable_cores
from relaqs.memory import machine_memory_bytes


def number(content: Mapping[str, Any], name: str, missing: float = np.nan) -> float:
    """Return a number, `missing` for null. Raises KeyError or ValueError."""
    value = content[name]
    return missing if value is None else float(value)


def column(content: Mapping[str, Any], name: str, missing: float = np.nan) -> FloatArray:
    """Return a list of numbers, `missing` for null. Raises KeyError or ValueError."""
    return array(content[name], missing)


def array(values: Sequence[float | None], missing: float = np.nan) -> FloatArray:
    if not isinstance(values, list):
        raise ValueError(f"{values!r} is no list of numbers")
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


_PACKAGES = ("relaqs", "duckdb", "pyarrow", "numpy", "sqlglot", "distributed")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The machine, the versions and the command, for the reader of a record."""

    at: str
    command: str
    processor: str
    cores: int
    memory_bytes: int
    load_average: float
    system: str
    python: str
    packages: dict[str, str]

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def headline(self) -> str:
        """All that matters beside a figure, in one line."""
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_bytes / 1e9:.0f} GB, load "
            f"{self.load_average:.1f} · DuckDB {self.packages.get('duckdb', '?')} · {self.command}"
        )


def circumstances(command: Sequence[str]) -> Circumstances:
    """Return the circumstances of a command that starts now. command: its words, for people to repeat it."""
    return Circumstances(
        at=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=shlex.join(command),
        processor=_processor(),
        cores=usable_cores(),
        memory_bytes=machine_memory_bytes(),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan"),
        system=platform.platform(),
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a folder, not installed
        return "?"


def _processor() -> str:
    """Return the processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


SCHEMA = 2  # of every record: 2 has a checksum. A change that older readers cannot read makes it 3
_FIRST_SEALED = 2

RUNS, SCHEDULES = "run.jsonl", "schedule.jsonl"  # files of `relaqs tpch run` and `relaqs tpch schedule`

Record = TypeVar("Record")


class RecordFile:
    """JSON lines, each sealed. A last line without an end was being written when its run ended: no record.

    Numbers that JSON has no name for, NaN and infinity, are null.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, content: Mapping[str, Any]) -> None:
        """Write one record, whole or not at all. Raises DataError if the disk is full."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {"schema": SCHEMA, "record": kind, **content}
        line = seal(json.dumps(json_value(record), allow_nan=False, separators=(",", ":"))) + b"\n"
        with open(self.path, "ab+") as file:
            end = _end_of_whole_lines(file.seek(0, os.SEEK_END), self.path)
            file.truncate(end)
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                _cut_off(self.path, end)
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DataError(
                        f"there is no room on the disk for {self.path}; free some, or give another --out; "
                        "what was measured before is kept, and the same command goes on from there"
                    ) from error
                raise

    def read(self, kind: str, parse: Callable[[Mapping[str, Any]], Record]) -> Iterator[Record]:
        """Yield the records of one kind, none where there is no file.

        Raises DataError naming the line of one that is broken or of a later schema.
        """
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                where = f"{self.path}, line {number}"
                content = _object(line, where)
                if content["record"] == kind:
                    try:
                        yield parse(content)
                    except (KeyError, TypeError, ValueError) as error:
                        raise _broken(where, f"{type(error).__name__}: {error}") from error


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        was_sealed, content = is_sealed(line), json.loads(line)
    except ValueError as error:
        raise _broken(where, str(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int) or "record" not in content:
        raise _broken(where, "it is no object with `schema` and `record`")
    if content["schema"] >= _FIRST_SEALED and not was_sealed:
        raise _broken(where, "it has no checksum")
    content.pop(SEAL, None)
    if content["schema"] > SCHEMA:
        raise DataError(
            f"{where}: the record has schema {content['schema']}, written by a later version of relaqs; this "
            f"one reads up to {SCHEMA}. Install a newer relaqs, or give another folder"
        )
    return content


def _broken(where: str, why: str) -> DataError:
    return DataError(
        f"{where}: not a record ({why}); remove that line, and what it measured is measured again"
    )


def _end_of_whole_lines(size: int, path: Path) -> int:
    """Return where the last whole line of a file ends."""
    with open(path, "rb") as file:
        at = size
        while at:
            start = max(0, at - (1 << 16))
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            at = start
    return 0


def _cut_off(path: Path, end: int) -> None:
    """Take half a line off again; where even that fails, reading passes over it."""
    try:
        os.truncate(path, end)
    except OSError:
        return


def json_value(value: Any) -> Any:
    """Return the value as JSON knows it; arrays are lists, and numbers keep nine digits."""
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value
