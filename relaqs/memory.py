"""How much memory there is, and how people write amounts of it."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event
from typing import cast

from relaqs.arguments import ArgumentError

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]?)b?|([kmgt])ib)", re.IGNORECASE)
_RESIDENT = Path("/proc/self/statm")
LOOK_SECONDS = 0.1  # at least between two times that freed memory is given back
SMALLEST_BYTES = 256 << 20
_USUAL_SHARE = 0.5  # of this machine's memory, where the user names no limit
_SHARE_OF_A_SERVER = 0.8  # of the machine's


def memory_bytes(amount: int | str) -> int:
    """Return bytes for 4000000000, "4GB" and "3.7 GiB". Raises ArgumentError below 256 MiB."""
    return _at_least(SMALLEST_BYTES, amount, 'memory_limit is {!r}; it must be bytes or text such as "4GB"')


def result_bytes(amount: int | str) -> int:
    """Return bytes for what the answer of a query may take. Raises ArgumentError below 1 MiB."""
    return _at_least(1 << 20, amount, 'result_limit is {!r}; it must be bytes or text such as "64MB"')


def _at_least(least_bytes: int, amount: int | str, what: str) -> int:
    found = amount if isinstance(amount, int) else _parsed(amount)
    if found is None or isinstance(found, bool) or found < least_bytes:
        raise ArgumentError(f"{what.format(amount)}, and at least {least_bytes >> 20} MiB")
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
    """Gives memory that was freed back to the system, now and then.

    The C library keeps what each thread has freed for that thread, DuckDB's allocator and Arrow's do so too,
    and they work on many threads. After a few large queries a process held four times its limit, most of it
    free.

    clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_seconds = -math.inf
        self._took_seconds = 0.0

    def now(self, share: float = 0.05, *, is_thorough: bool = False) -> bool:
        """Give memory back, unless that took this share of the time lately. Return whether it did.

        is_thorough: look for garbage among all objects of the process, not only among those of late, at once.
        """
        from relaqs_engine.duck import give_back_freed  # it loads DuckDB, which amounts do not need

        if not is_thorough and self._clock() < self._last_seconds + max(
            LOOK_SECONDS, self._took_seconds / share
        ):
            return False
        began_seconds = self._clock()
        gc.collect(2 if is_thorough else 1)  # what failed may refer to itself, and to what it had read
        give_back_freed()
        if (trim := _trim()) is not None:
            trim(0)
        self._last_seconds = self._clock()
        self._took_seconds = self._last_seconds - began_seconds
        return True


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


def resident_bytes_of_duckdb() -> int | None:
    """Return the machine's memory that DuckDB's allocator has. None where it has none of its own."""
    if "_duckdb" not in sys.modules or (tell := _allocator()) is None:
        return None
    number, size = ctypes.c_uint64(1), ctypes.c_size_t(8)  # the epoch: what is told then is of now
    tell(b"epoch", ctypes.byref(number), ctypes.byref(size), ctypes.byref(number), size)
    is_told = tell(b"stats.resident", ctypes.byref(number), ctypes.byref(size), None, 0) == 0
    return number.value if is_told else None


@cache
def _allocator() -> Callable[..., int] | None:
    """Return what jemalloc, linked into DuckDB under names of its own, tells its numbers by."""
    try:
        return cast("Callable[..., int]", ctypes.CDLL(sys.modules["_duckdb"].__file__).duckdb_je_mallctl)
    except (AttributeError, OSError, TypeError):
        return None


_OF_SERVER = Event()


def is_of_server() -> bool:
    """Return whether the process is a server's, which has no tables of a user's own in its memory."""
    return _OF_SERVER.is_set()


def bound_process_memory(processes: int = 1) -> None:
    """Let a query of a server that needs more memory than there is fail, and not the process or the machine.

    DuckDB's own limit does not count the texts that a function makes of one vector of rows.

    processes: of the server, which may have as much each.
    """
    _OF_SERVER.set()
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(machine_memory_bytes() * _SHARE_OF_A_SERVER / processes)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
