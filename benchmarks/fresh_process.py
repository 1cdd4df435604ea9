"""What a process takes that is started, asks one question and ends.

It finds compiled modules, as it does where a package was installed: pip compiles what it installs. A checkout
whose modules may not be kept compiled would add 0.2 core-seconds to each process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory


@dataclass(frozen=True, slots=True)
class FreshProcess:
    """What a process took from its start to its end. core_seconds: of the user and of the system."""

    wall_seconds: float
    core_seconds: float


class FreshProcesses:
    """Starts processes whose compiled modules are kept in a folder: the first of a kind fills it."""

    def __init__(self, compiled: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, "PYTHONPYCACHEPREFIX": compiled}

    def run(self, command: Sequence[str]) -> FreshProcess:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self._environment)
        wall_seconds = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        core_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return FreshProcess(wall_seconds, core_seconds)


@contextmanager
def fresh_processes() -> Iterator[FreshProcesses]:
    """Give what starts processes, to a block; their compiled modules go at its end."""
    with TemporaryDirectory() as compiled:
        yield FreshProcesses(compiled)
