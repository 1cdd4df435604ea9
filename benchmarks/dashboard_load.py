"""What a dashboard of 24 panels, each with five new answers a second, costs the browser and the server.

The answers are those of real queries over TPC-H, recorded and played back: the work of the queries themselves
is not counted. The browser is Chromium without a window; its main thread is measured by its own tracing, with
the panels that a window of usual height shows, and with all of them in sight.

    python -m benchmarks.dashboard_load
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.pages import PageList, write_page
from relaqs_dashboards.server import DashboardServer
from relaqs_dashboards.settings import PageSettings

from benchmarks.tpch import warehouse
from relaqs import OnlinePlan, Session, Snapshot, connect
from relaqs.jobs.job import ClusterStatus

PANELS = 24
UPDATES_PER_SECOND = 5
HEIGHTS = {"a window 900 pixels high": 900, "all panels in sight": 6000}
WARM_SECONDS = 3.0


@dataclass
class Playback:
    """Stands for a running query: says recorded answers again and again."""

    id: str
    snapshots: Sequence[Snapshot]
    state: str = "running"
    priority: float = 1.0
    runner: Any = field(default_factory=lambda: SimpleNamespace(set_target=lambda target: None))

    async def __aiter__(self) -> AsyncIterator[Snapshot]:
        started = time.monotonic()
        for number in itertools.count(1):
            await asyncio.sleep(started + number / UPDATES_PER_SECOND - time.monotonic())
            snapshot = self.snapshots[number % len(self.snapshots)]
            yield replace(snapshot, elapsed_seconds=time.monotonic() - started)

    def stop(self) -> None:
        self.state = "stopped"

    def wait(self, timeout: float) -> bool:
        return True


def _digest(plan: OnlinePlan) -> str:
    """Return what tells queries apart, whatever the panel that asks."""
    return repr(replace(plan, sql="", reasons=()))


class PlaybackSession:
    """Stands for a session: plans as it does, and answers from what was recorded."""

    def __init__(self, session: Session) -> None:
        self.tables = session.tables
        self._session = session
        self._recorded: dict[str, list[Snapshot]] = {}

    def plan(self, sql: str) -> OnlinePlan:
        """Return a plan that is no other panel's, so that nothing is shared."""
        plan = self._session.plan(sql)
        if (digest := _digest(plan)) not in self._recorded:
            found = list(self._session.online_sql(sql, batches=20))
            self._recorded[digest] = [each for each in found if not each.is_exact] or found
        return replace(plan, reasons=(sql,))

    def start(self, plan: OnlinePlan, options: object, **rest: object) -> Playback:
        return Playback(str(abs(hash(plan))), self._recorded[_digest(plan)])

    def status(self) -> ClusterStatus:
        return self._session.status()


def load_page(data: Path, into: Path) -> Path:
    """Return the file of a page with 24 panels: the built-in one's, over and over."""
    with connect(data) as session:
        panels = PageList(into / "pages", session.tables).page("tpch", "you").panels
    chosen = [
        replace(panel, id=f"p{i}", title=f"{panel.title} {i}", sql=f"{panel.sql}\n-- {i}")
        for i, panel in zip(range(PANELS), itertools.cycle(panels), strict=False)
    ]
    path = into / "load.toml"
    write_page(PageSettings("load", f"{PANELS} panels", tuple(chosen)), path)
    return path


def serve(data: Path, folder: Path, pipe: Connection) -> None:
    """Serve until told to end; first say the address."""
    with connect(data, threads=2) as session:
        player: Any = PlaybackSession(session)
        dashboard = Dashboard(player, folder / "state", data="recorded", given=(load_page(data, folder),))
        with DashboardServer(dashboard, folder / "state", port=0) as server:
            pipe.send(server.start_addresses["you"])
            pipe.recv()


def main_thread_seconds(session: Any) -> float:
    """Return the processor time that the page's main thread has taken."""
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def measure(address: str, server: psutil.Process, seconds: float) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for name, height in HEIGHTS.items():
            page = browser.new_page(viewport={"width": 1440, "height": height})
            frames: list[int] = []
            page.on("websocket", partial(count, seen=frames))
            page.goto(address)
            page.locator("article[data-state=refining], article[data-state=target_met]").nth(
                PANELS - 1
            ).wait_for()
            page.wait_for_timeout(1000 * WARM_SECONDS)
            metrics = page.context.new_cdp_session(page)
            metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
            frames.clear()
            before = main_thread_seconds(metrics), sum(server.cpu_times()[:2]), time.monotonic()
            page.wait_for_timeout(1000 * seconds)
            after = main_thread_seconds(metrics), sum(server.cpu_times()[:2]), time.monotonic()
            browser_seconds, server_seconds, passed = (b - a for a, b in zip(before, after, strict=True))
            updates = max(1, len(frames))
            size = sum(frames) / updates / 1e3
            print(
                f"{name:26} {updates / passed:3.1f} updates a second of {size:.0f} kB; "
                f"browser's main thread {browser_seconds / passed:4.0%} of a core, "
                f"{1000 * browser_seconds / updates:.0f} ms an update; "
                f"server {server_seconds / passed:4.0%}, {1000 * server_seconds / updates:.0f} ms"
            )
            page.close()
        browser.close()


def count(socket: Any, seen: list[int]) -> None:
    socket.on("framereceived", lambda payload: seen.append(len(payload)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--data", type=Path, help="a warehouse of TPC-H; default: one of scale 0.1, made once"
    )
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    data = options.data or warehouse(0.1)[0]
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(data, Path(folder), theirs)
        )
        process.start()
        measure(ours.recv(), psutil.Process(process.pid), options.seconds)
        ours.send("end")
        process.join()


if __name__ == "__main__":
    main()
