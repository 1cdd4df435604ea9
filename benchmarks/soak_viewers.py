"""A dashboard's server process, and viewers that speak to it as the page in a browser does."""

from __future__ import annotations

import http.client
import json
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from benchmarks.faults_cluster import Processes, kill_tree

PAGE = "tpch"
USERS = ("ada", "ben")  # a user may have 16 pages open
OVER = {"exact", "target_met", "stopped", "failed"}
QUIET_SECONDS = 60.0  # without an update, a viewer hears nothing: panels begin again when they are over


class Board:
    """`relaqs dashboard` on a cluster. A context manager; updates: how many all viewers have seen."""

    def __init__(self, processes: Processes, address: str, warehouse: Path, scratch: Path) -> None:
        words = ["--data", str(warehouse), "--cluster", address, "--port", "0"]
        words += ["--state", str(scratch / "state"), *(f"--user={user}" for user in USERS)]
        self._process = processes.start("relaqs", "dashboard", *words, pipes=True)
        self.pid = self._process.pid
        self.updates = 0
        self._heard_seconds: dict[int, float] = {}
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        kill_tree(self._process)

    def open(self, viewers: int) -> None:
        """Let so many viewers look at the page; the first begins again what is over."""
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline().decode() for _ in USERS]
        addresses = [line.split()[1] for line in lines]
        host, cookies = urlsplit(addresses[0]).netloc, [cookie_of(address) for address in addresses]
        for number in range(viewers):
            self._threads.append(
                threading.Thread(
                    target=self._view,
                    args=(number, host, cookies[number % len(USERS)]),
                    name=f"viewer-{number}",
                )
            )
            self._threads[-1].start()

    def quiet_viewers(self) -> int:
        """Return how many viewers have heard nothing for long, or were sent away."""
        now = time.monotonic()
        heard = sum(now - at < QUIET_SECONDS for at in self._heard_seconds.values())
        return len(self._threads) - heard

    def _view(self, number: int, host: str, cookie: str) -> None:
        chosen = {"origin": f"http://{host}", "additional_headers": {"Cookie": cookie}, "max_size": None}
        with connect(f"ws://{host}/ws?page={PAGE}", **chosen) as socket:  # type: ignore[arg-type]
            while not self._is_over.is_set():
                try:
                    update = json.loads(socket.recv(timeout=1.0))
                except TimeoutError:
                    continue
                except ConnectionClosed as error:
                    self._heard_seconds.pop(number, None)
                    print(f"viewer {number} was sent away: {error}", flush=True)
                    return
                self._heard_seconds[number] = time.monotonic()
                self.updates += 1
                socket.send(json.dumps({"type": "ack", "seq": update["seq"]}))
                for id, panel in update.get("panels", {}).items() if number == 0 else ():
                    if panel.get("state") in OVER:
                        socket.send(json.dumps({"type": "act", "panel": id, "act": "restart"}))


def cookie_of(address: str) -> str:
    """Return the cookie that the token in a start address is exchanged for."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return connection.getresponse().headers["set-cookie"].split(";")[0]
    finally:
        connection.close()
