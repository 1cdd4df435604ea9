"""Pictures of the dashboard, to be looked at: light, dark, as wide as a phone, and every state of a panel.

Queries are slowed down, so that a picture can be taken in the middle of them.

    python -m benchmarks.dashboard_pictures OUT
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from relaqs_dashboards.access import Limits
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.server import DashboardServer

from benchmarks.tpch import warehouse
from relaqs import connect
from relaqs.executors.duck_process import QueryWork

WIDE, PHONE = {"width": 1440, "height": 2240}, {"width": 390, "height": 844}
WAIT_SECONDS = {"row_number": 60.0, "lineitem": 0.6, "": 0.1}  # before a task with such a word in its SQL
PATIENCE_MS = 120_000
REVENUE = "sum(l_extendedprice * (1 - l_discount)) AS revenue"
STATES = {
    "Waiting": (
        "table",
        None,
        "SELECT l_orderkey, row_number() OVER (PARTITION BY l_partkey ORDER BY l_orderkey) AS n "
        "FROM lineitem LIMIT 5",
    ),
    "Refining": (
        "number",
        0.005,
        f"SELECT {REVENUE} FROM lineitem WHERE l_quantity < 24 AND l_discount > 0.05",
    ),
    "Target met": (
        "line",
        0.5,
        "SELECT date_trunc('month', o_orderdate) AS month, sum(l_quantity) AS quantity FROM lineitem "
        "JOIN orders ON l_orderkey = o_orderkey WHERE o_orderdate < DATE '1998-08-01' GROUP BY 1 ORDER BY 1",
    ),
    "Stopped": (
        "table",
        0.01,
        f"SELECT n_name AS nation, {REVENUE} FROM lineitem JOIN supplier ON l_suppkey = s_suppkey "
        "JOIN nation ON s_nationkey = n_nationkey GROUP BY n_name ORDER BY revenue DESC LIMIT 8",
    ),
    "Paused": (
        "bars",
        0.01,
        f"SELECT l_shipmode, l_returnflag, {REVENUE} FROM lineitem WHERE l_quantity < 3 "
        "GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    "Exact": ("number", 0.01, "SELECT sum(o_totalprice) AS value FROM orders"),
    "Failed": ("bars", 0.01, "SELECT l_shipmode, count(*) AS lines\nFROM lineitms\nGROUP BY l_shipmode"),
    "Empty": (
        "bars",
        0.01,
        "SELECT o_orderstatus, count(*) AS orders FROM orders WHERE o_totalprice < 0 GROUP BY 1",
    ),
}


@contextmanager
def slowly() -> Iterator[None]:
    """Let every task wait before it starts."""
    run = QueryWork.run

    def wait_and_run(work: QueryWork, job_id: str) -> object:
        time.sleep(next(seconds for word, seconds in WAIT_SECONDS.items() if word in work.sql.lower()))
        return run(work, job_id)

    QueryWork.run = wait_and_run  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        QueryWork.run = run  # type: ignore[method-assign]


def states_page(folder: Path) -> Path:
    """Return the file of a page with a panel for each state."""
    text = 'title = "Every state"\n'
    for title, (chart, target, sql) in STATES.items():
        entries: dict[str, Any] = {"title": title, "chart": chart, "sql": sql}
        entries |= {"target": target} if target else {}
        entries |= {"size": "wide"} if chart in ("bars", "line") else {}
        text += "\n[[panels]]\n" + "".join(
            f"{name} = {json.dumps(value)}\n" for name, value in entries.items()
        )
    path = folder / "states.toml"
    path.write_text(text, encoding="utf-8")
    return path


class Pictures:
    """Takes pictures of one server's pages. Every look is a browser of its own."""

    def __init__(self, browser: Browser, server: DashboardServer, out: Path) -> None:
        self._browser = browser
        self._server = server
        self._out = out

    def open(self, path: str, size: dict[str, int], scheme: str = "light") -> Page:
        context = self._browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(self._server.start_addresses["you"])
        page.goto(self._server.address + path)
        page.locator("article, .jobs").first.wait_for()
        return page

    def take(self, page: Page, name: str, *, whole: bool = False) -> None:
        page.wait_for_timeout(1000)
        path = self._out / f"{name}.png"
        page.screenshot(path=path, full_page=whole)
        print(path)

    def of_tpch(self) -> None:
        light, dark, phone, jobs = (
            self.open("/page/tpch", WIDE),
            self.open("/page/tpch", WIDE, "dark"),
            self.open("/page/tpch", PHONE),
            self.open("/jobs", {"width": 1440, "height": 1000}),
        )
        none_waits = "() => !document.querySelector('article[data-state=waiting]')"
        light.wait_for_function(none_waits)
        light.wait_for_timeout(1000)
        names = {"tpch-light": light, "tpch-dark": dark, "tpch-phone": phone, "jobs": jobs}
        for name, page in names.items():
            self.take(page, name)
        for page in names.values():
            page.context.close()

    def of_states(self) -> Page:
        light = self.open("/page/states", WIDE)
        for title, act in (("Paused", "Pause"), ("Stopped", "Good enough")):
            card = light.get_by_role("article", name=title, exact=True)
            card.and_(light.locator("[data-state=refining]")).wait_for(timeout=PATIENCE_MS)
            card.get_by_role("button", name=act).click()
        exact = light.get_by_role("article", name="Exact", exact=True)
        exact.and_(light.locator("[data-state=exact]")).wait_for(timeout=PATIENCE_MS)
        self.take(light, "states-light")
        self.take(self.open("/page/states", WIDE, "dark"), "states-dark")
        self.take(self.open("/page/states", PHONE), "states-phone", whole=True)
        return light


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, help="the folder for the pictures")
    parser.add_argument("--data", type=Path, help="a warehouse of TPC-H; default: one of scale 1, made once")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = options.data or warehouse(1.0)[0]
    with (
        tempfile.TemporaryDirectory() as name,
        slowly(),
        sync_playwright() as playwright,
        connect(data, threads=8, memory_limit="4GB") as session,
    ):
        folder = Path(name)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        given = (states_page(folder),)
        board = Dashboard(
            session, folder / "state", data="TPC-H", given=given, limits=Limits(grace_seconds=0)
        )
        with DashboardServer(board, folder / "state", port=0) as server:
            pictures = Pictures(browser, server, options.out)
            pictures.of_tpch()
            last = pictures.of_states()
        pictures.take(last, "reconnecting")
        browser.close()


if __name__ == "__main__":
    main()
