"""How each fault happens to a cluster, and is undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import faults_drawn as kinds_of
from benchmarks.faults_cluster import LITTLE_MEMORY, Cluster, signalled
from benchmarks.faults_drawn import Fault

FULL_BYTES = 1 << 20

Undo = Callable[[], None]

READS_ALL = """
import os, pathlib, sys
while True:
    for path in pathlib.Path(sys.argv[1]).rglob("*.parquet"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()
"""


class Faults:
    """What can happen to a cluster, and to the warehouse that it reads. scratch: for temporary folders."""

    def __init__(self, cluster: Cluster, warehouse: Path, scratch: Path) -> None:
        self._cluster = cluster
        self._warehouse = warehouse
        self._scratch = scratch

    def happen(self, fault: Fault) -> Undo:
        """Do it. Return what makes it undone, beside healing the cluster."""
        cluster, undo = self._cluster, lambda: None
        match fault.kind:
            case kinds_of.KILLED:
                return signalled(cluster.worker_pids, fault.place, signal.SIGKILL)
            case kinds_of.RESTARTED:
                return signalled(cluster.worker_pids, fault.place, signal.SIGTERM)
            case kinds_of.STOPPED:
                go_on = signalled(cluster.worker_pids, fault.place, signal.SIGSTOP)
                time.sleep(fault.hold_seconds)
                go_on()
            case kinds_of.SCHEDULER:
                cluster.restart_scheduler()
            case kinds_of.LATE:
                cluster.join("--no-nanny")
            case kinds_of.SMALL:
                cluster.join("--memory-limit", LITTLE_MEMORY)
            case kinds_of.FULL:
                return self._join_without_disk()
            case kinds_of.BUSY:
                return self._read_beside()
            case kinds_of.BITS:
                return flipped(self._warehouse, fault.place)
        return undo

    def _join_without_disk(self) -> Undo:
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "tmpfs", str(folder)]
        is_mounted = (
            sys.platform == "linux"
            and os.geteuid() == 0
            and subprocess.run(mount, check=False, capture_output=True).returncode == 0
        )
        limit = None if is_mounted else FULL_BYTES
        self._cluster.join("--no-nanny", folder=folder, file_bytes=limit)

        def undo() -> None:
            self._cluster.heal()  # the worker goes first
            if is_mounted:
                subprocess.run(["umount", "--lazy", str(folder)], check=False)

        return undo

    def _read_beside(self) -> Undo:
        reader = subprocess.Popen([sys.executable, "-c", READS_ALL, str(self._warehouse)])

        def undo() -> None:
            reader.kill()
            reader.wait()

        return undo


def flipped(warehouse: Path, place: float) -> Undo:
    """Turn all bits of one byte of a partition of lineitem round. Return what turns them back."""
    paths = sorted((warehouse / "lineitem").rglob("*.parquet"))
    path = paths[int(place * len(paths))]
    before = path.read_bytes()
    at = int((place * len(paths)) % 1 * len(before))
    path.write_bytes(before[:at] + bytes([before[at] ^ 0xFF]) + before[at + 1 :])

    def undo() -> None:
        path.write_bytes(before)

    return undo
