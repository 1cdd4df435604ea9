"""How much memory there is, and how people write amounts of it."""

from __future__ import annotations

import ctypes
import math
import os
import re
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from relaqs.arguments import ArgumentError

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]?)b?|([kmgt])ib)", re.IGNORECASE)
_RESIDENT = Path("/proc/self/statm")
LOOK_SECONDS = 0.25  # between two looks at what the process holds
LATER_SECONDS = 0.5
SMALLEST_BYTES = 256 << 20
_USUAL_SHARE = 0.5  # of this machine's memory, where the user names no limit
_SHARE_OF_A_SERVER = 0.8  # of the machine's


def memory_bytes(amount: int | str) -> int:
    """Return bytes for 4000000000, "4GB" and "3.7 GiB". Raises ArgumentError below 256 MiB."""
    found = amount if isinstance(amount, int) else _parsed(amount)
    if found is None or isinstance(found, bool) or found < SMALLEST_BYTES:
        raise ArgumentError(
            f'memory_limit is {amount!r}; it must be bytes or text such as "4GB", and at least 256 MiB'
        )
    return found


def result_bytes(amount: int | str) -> int:
    """Return bytes for what the answer of a query may take. Raises ArgumentError below 1 MiB."""
    found = amount if isinstance(amount, int) else _parsed(amount)
    if found is None or isinstance(found, bool) or found < 1 << 20:
        raise ArgumentError(
            f'result_limit is {amount!r}; it must be bytes or text such as "64MB", and at least 1 MiB'
        )
    return found


def amount_bytes(text: str) -> int:
    """Return bytes for "20GB" and "3.7 GiB". Raises ArgumentError where it is no amount."""
    if (found := _parsed(text)) is None:
        raise ArgumentError(f'{text!r} is no size; write it as "20GB"')
    return found


def machine_memory_bytes() -> int:
    """Return the memory this process may use: the machine's, or less where its container has a limit."""
    limits = (path.read_text(encoding="ascii").strip() for path in _CGROUP_LIMITS if path.is_file())
    return min([_physical_bytes(), *(int(limit) for limit in limits if limit.isdigit())])


def usual_memory_bytes(*, on_cluster: bool) -> int:
    """Return the memory of a session whose user names no limit."""
    return int(machine_memory_bytes() * _USUAL_SHARE / (2 if on_cluster else 1))


def _physical_bytes() -> int:
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil  # Windows

    return int(psutil.virtual_memory().total)


def _parsed(text: str) -> int | None:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    number, unit, binary_unit = match.groups()
    factor = _BINARY_UNITS[binary_unit.lower()] if binary_unit else _UNITS[(unit or "").lower()]
    return int(float(number) * factor)


class GivesBack:
    """Gives memory that was freed back to the system, where the process holds much.

    The C library keeps what each thread has freed for that thread, and DuckDB and Arrow work on many. After a
    few large queries a process held four times its limit, most of it free.

    clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_seconds = -math.inf
        self._later: threading.Timer | None = None

    def look(self, limit_bytes: int) -> bool:
        """Give memory back if the process has more than the limit. Return whether it did; it rarely does."""
        if self._clock() < self._next_seconds:
            return False
        self._next_seconds = self._clock() + LOOK_SECONDS
        trim = _trim()
        if trim is None or resident_bytes() <= limit_bytes:
            return False
        began_seconds = self._clock()
        trim(0)
        self._next_seconds = self._clock() + max(LOOK_SECONDS, 20 * (self._clock() - began_seconds))
        return True

    def look_later(self, limit_bytes: int) -> None:
        """Look once more in a moment, when what was just computed was handed on and forgotten."""
        if self._later is None and resident_bytes() > limit_bytes:
            self._later = threading.Timer(LATER_SECONDS, self._look_at_last, (limit_bytes,))
            self._later.daemon = True
            self._later.start()

    def _look_at_last(self, limit_bytes: int) -> None:
        self._later = None
        self.look(limit_bytes)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return the C library's function for it. None: it has none, as that of macOS or musl."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim


def resident_bytes() -> int:
    """Return what the process has of the machine's memory; 0 where the system does not tell."""
    try:
        return int(_RESIDENT.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def bound_process_memory() -> None:
    """Let a query of a server that needs more memory than there is fail, and not the process or the machine.

    DuckDB's own limit does not count the texts that a function makes of one vector of rows.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(machine_memory_bytes() * _SHARE_OF_A_SERVER)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
