"""The folder on this machine's disk for what a worker cannot hold in memory.

FOLDER_VARIABLE names it. Otherwise a Dask worker has its own folder (`dask worker --local-directory`), and
other processes the system's folder for temporary files. On many systems that one is in memory. It is left out
then, since what is written there would free no memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

FOLDER_VARIABLE = "RELAQS_SPILL_FOLDER"
"""The environment variable that names the folder."""

_MOUNTS = Path("/proc/self/mountinfo")  # Linux
_IN_MEMORY = ("tmpfs", "ramfs")
_BEFORE_TYPE = " - "  # in a line of it

_of_worker: str | None = None


def use_folder_of_worker(folder: str) -> None:
    """Have the folder of this process's Dask worker be the one, unless the user names another."""
    global _of_worker
    _of_worker = folder


def local_folder() -> Path | None:
    """Return the folder. None: each that there is is in memory. One that the user named may not exist."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    for folder in (_of_worker, tempfile.gettempdir(), "/var/tmp"):
        if folder is not None and Path(folder).is_dir() and not is_in_memory(Path(folder)):
            return Path(folder)
    return None


def is_in_memory(folder: Path) -> bool:
    """Whether a folder is known to be in memory: on Linux, by the type of its file system."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    types = [line.partition(_BEFORE_TYPE)[2].split(" ")[0] for line in lines if line.split(" ")[2] == number]
    return any(each in _IN_MEMORY for each in types)
