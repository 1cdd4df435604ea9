"""What Windows does not have, taken away from this process, as far as another system can pretend.

It is for a process of its own: nothing brings the things back. Third-party packages and the standard library
are loaded before, as each of them chose its own way at its import.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

_NO_MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline", "curses")
_NO_CALLS = (
    "fork",
    "getuid",
    "geteuid",
    "getgid",
    "pread",
    "pwrite",
    "sched_getaffinity",
    "setpriority",
    "nice",
)
_NO_CALLS += ("killpg", "setsid", "getpgid", "getloadavg", "sysconf", "mkfifo", "chown", "fchmod")
_NO_SIGNALS = (
    "SIGKILL",
    "SIGHUP",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGCHLD",
    "SIGSTOP",
    "SIGCONT",
    "SIGPIPE",
)
_LOADED_BEFORE = (
    "asyncio",
    "concurrent.futures.process",
    "ctypes.util",
    "dask.distributed",
    "duckdb",
    "fsspec.implementations.local",
    "getpass",
    "multiprocessing.pool",
    "obstore",
    "obstore.store",
    "portalocker",
    "prompt_toolkit",
    "psutil",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "rich.progress",
    "scipy.special",
    "scipy.stats",
    "sqlglot",
    "subprocess",
    "tempfile",
    "uuid",
    "xxhash",
)


def pretend() -> None:
    """Let this process see a Windows, but for what another system cannot pretend."""
    for name in _LOADED_BEFORE:
        importlib.import_module(name)
    for name in _NO_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # what imports it gets a ModuleNotFoundError
    for name in _NO_CALLS:
        if hasattr(os, name):
            delattr(os, name)
    for name in _NO_SIGNALS:
        delattr(signal, name)
    os.sync = None  # type: ignore[assignment]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    _refuse_open_folders()
    _refuse_to_move_what_is_open()
    _hide_system_files()
    sys.platform = "win32"


def _refuse_open_folders() -> None:
    opened = os.open

    def only_files(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not isinstance(path, int) and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return opened(path, flags, mode)

    os.open = only_files


def _refuse_to_move_what_is_open() -> None:
    """Let no file be renamed, replaced or removed that this process has open through Python."""

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*paths: Any, **how: Any) -> Any:
            for path in paths:
                if not isinstance(path, int) and (open_now := _open_below(path)):
                    raise PermissionError(13, f"{open_now} is open in this process", os.fspath(path))
            return call(*paths, **how)

        return moved

    for name in ("rename", "replace", "unlink", "remove", "rmdir"):
        setattr(os, name, guarded(getattr(os, name)))


def _open_below(path: Any) -> str | None:
    whole = os.path.abspath(os.fspath(path))
    for handle in os.listdir("/proc/self/fd"):
        try:
            opened = os.readlink(f"/proc/self/fd/{handle}")
        except FileNotFoundError:
            continue
        if opened == whole or opened.startswith(whole + os.sep):
            return opened
    return None


def _hide_system_files() -> None:
    """Let what Linux tells in files not be there."""

    def outside(call: Callable[..., Any]) -> Callable[..., Any]:
        def found(file: Any, *others: Any, **how: Any) -> Any:
            if str(file).startswith(("/proc/self", "/proc/thread-self", "/proc/cpuinfo", "/sys/fs")):
                raise FileNotFoundError(2, "No such file or directory", str(file))
            return call(file, *others, **how)

        return found

    builtins.open, io.open, os.stat = outside(builtins.open), outside(io.open), outside(os.stat)
