"""Where, when and by which command something was measured."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from relaqs.executors.threads import usable_cores
from relaqs.memory import machine_memory_bytes

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
