"""A cluster of real processes that can be hurt and healed, and of which nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
from distributed import Client

Process = subprocess.Popen[bytes]

MARK = "RELAQS_FAULTS_RUN"  # an environment variable that all processes of a run inherit
WAIT_SECONDS = 60.0
JOIN_SECONDS = 10.0
LOOK_SECONDS = 0.1
SILENCE = "4s"  # after which a worker that hangs is given up; so that a run need not wait half a minute
SETTINGS = {"DASK_RELAQS__WORKER_SILENCE": SILENCE}
WORKERS = (("--no-nanny",), ())  # the words for each
LITTLE_MEMORY = "230MB"  # a worker that has imported everything takes nearly as much


class Processes:
    """The processes of one run, known by a mark in their environment, also those they start themselves."""

    def __init__(self, log: Path) -> None:
        self.mark = uuid.uuid4().hex
        self._log = log

    def start(self, *words: str, pipes: bool = False, settings: Mapping[str, str] = {}) -> Process:
        """Run a Python module. It is in a session of its own: ctrl-C is this process's to handle."""
        pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, **SETTINGS, **settings, MARK: self.mark},
                stdin=pipe,
                stdout=pipe if pipes else log,
                stderr=log,
                start_new_session=True,
            )

    def alive(self) -> list[psutil.Process]:
        return [each for each in psutil.process_iter() if self._is_ours(each)]

    def left_after_sigterm(self, seconds: float) -> list[psutil.Process]:
        """Send SIGTERM to all there are, and return those that are there after so many seconds.

        The scheduler gets it last, when the others have ended or half of the time is over: a worker of plain
        Dask whose scheduler ends before it waits for it, for 8 to more than 20 s.
        """
        deadline = time.monotonic() + seconds
        for are_schedulers in (False, True):
            for each in self.alive():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if ("scheduler" in each.cmdline()) is are_schedulers:
                        each.terminate()
            while not are_schedulers and len(self.alive()) > 1 and time.monotonic() < deadline - seconds / 2:
                time.sleep(LOOK_SECONDS)
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return alive

    def kill(self) -> None:
        """Kill all there are, again and again until none is left."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (alive := self.alive()) and time.monotonic() < deadline:
            for each in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(alive, timeout=1.0)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            is_ours = bool(process.environ().get(MARK) == self.mark)
            return is_ours and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


class Cluster:
    """A scheduler, a worker on its own and one with a nanny. A context manager; at its end all is gone."""

    def __init__(self, processes: Processes) -> None:
        self._port = free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._processes = processes
        self._scheduler: Process | None = None
        # Of workers: a lone worker itself, or the process of its nanny.
        self._parents: list[Process] = []
        self._extra: list[Process] = []  # workers that a fault brought
        self.worker_pids: list[int] = []  # when the cluster was healed last

    def __enter__(self) -> Cluster:
        self.heal()
        return self

    def __exit__(self, *raised: object) -> None:
        for process in (*self._extra, *self._parents, self._scheduler):
            if process is not None:
                kill_tree(process)

    def heal(self) -> None:
        """Start whatever does not run, end whatever a fault brought, and wait until all workers are there."""
        for process in self._extra:
            kill_tree(process)
        self._extra.clear()
        if self._scheduler is None:
            self._start_scheduler()
            self._parents = [self._start_worker(*words) for words in WORKERS]
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._has_workers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the workers of {self.address} did not come within {WAIT_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)

    @property
    def scheduler_pid(self) -> int:
        return 0 if self._scheduler is None else self._scheduler.pid

    def restart_scheduler(self) -> None:
        """Kill it and start it again at once, on the same port; workers end with it, and come anew."""
        assert self._scheduler is not None
        self._scheduler.kill()
        self._scheduler.wait(WAIT_SECONDS)
        self._start_scheduler()
        self._extra += self._parents
        self._parents = [self._start_worker(*words) for words in WORKERS]

    def join(self, *words: str, folder: Path | None = None, file_bytes: int | None = None) -> None:
        """Start one worker more, without waiting for it. It goes when the cluster is healed.

        folder: for its temporary files. file_bytes: it can write no larger file.
        """
        place = [] if folder is None else ["--local-directory", str(folder)]
        settings = {} if folder is None else {"TMPDIR": str(folder)}
        worker = self._start_worker(*words, *place, settings=settings)
        if file_bytes is not None:
            psutil.Process(worker.pid).rlimit(psutil.RLIMIT_FSIZE, (file_bytes, file_bytes))
        self._extra.append(worker)

    def wait_for_joining(self) -> None:
        """Wait until the workers that join are there, or have died of what they are in want of."""
        deadline = time.monotonic() + JOIN_SECONDS
        with contextlib.suppress(OSError), self._client() as client:
            while len(client.scheduler_info(n_workers=-1)["workers"]) < len(WORKERS) + len(self._extra):
                if time.monotonic() > deadline or any(each.poll() is not None for each in self._extra):
                    return
                time.sleep(LOOK_SECONDS)

    def _start_scheduler(self) -> None:
        words = ["--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard", "--no-show"]
        self._scheduler = self._processes.start("dask", "scheduler", *words)

    def _start_worker(self, *words: str, settings: Mapping[str, str] = {}) -> Process:
        common = ["--nthreads", "1", "--no-dashboard", "--death-timeout", "30"]
        return self._processes.start("dask", "worker", self.address, *common, *words, settings=settings)

    def _client(self) -> Client:
        return Client(self.address, timeout=WAIT_SECONDS, set_as_default=False)

    def _has_workers(self) -> bool:
        """Return whether all workers are there, and note their processes. One that has died is begun anew."""
        for number, process in enumerate(self._parents):
            if process.poll() is not None:
                self._parents[number] = self._start_worker(*WORKERS[number])
        with contextlib.suppress(OSError), self._client() as client:
            self.worker_pids = sorted(client.run(os.getpid, on_error="ignore").values())
            return len(self.worker_pids) >= len(WORKERS)
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_tree(process: Process) -> None:
    """Kill a process and all it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait(WAIT_SECONDS)


def signalled(pids: Sequence[int], place: float, number: signal.Signals) -> Callable[[], None]:
    """Send a signal to one of the processes. Return what lets that one go on."""
    if not pids:
        return lambda: None
    pid = pids[int(place * len(pids))]
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return go_on
