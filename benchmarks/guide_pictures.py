"""The pictures of the guides: the page, a notebook, terminals, charts and this documentation, by one command.

The data are the flights that `relaqs sample` makes. Queries of pages are slowed down, so that a picture can
be taken in the middle of them.

    python -m benchmarks.guide_pictures docs/pictures
"""

from __future__ import annotations

import argparse
import html
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from playwright.sync_api import Browser, Page, sync_playwright
from relaqs_dashboards.access import Limits
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.server import DashboardServer
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import relaqs
from benchmarks.dashboard_pictures import slowly
from benchmarks.terminal_picture import FORMAT
from relaqs.training import LogisticRegression

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_MS = 120_000
COLUMNS = 100
LATE = "SELECT distance, dep_delay, air_time, arr_delay > 15 AS late FROM flights WHERE arr_delay IS NOT NULL"
JOIN = "SELECT name, avg(dep_delay) AS late FROM flights JOIN airlines USING (carrier) GROUP BY name"
SIMULATED = "simulate --jobs 12 --seeds 3 --arrival 10 --cores 256 --policies fair,relaqs"
TERMINALS = {
    "tables": ["tables", "--data", "planes.parquet"],
    "explain": ["explain", JOIN, "--data", "warehouse"],
    "simulate": SIMULATED.split(),
}
BEYOND = "In the SQL below"  # what `explain` prints from here on is not for a picture
CELL = """%%relaqs --data warehouse --target 5%
SELECT carrier, avg(dep_delay) AS late
FROM flights GROUP BY carrier"""
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "relaqs", "font.size": 9.5}
NOTEBOOK = """<!doctype html><style>
body {{ font: 14px system-ui, sans-serif; margin: 16px; width: 760px }}
pre {{ font: 13px/1.4 ui-monospace, Menlo, monospace; background: #f5f6f8; border: 1px solid #dde1e6;
padding: 10px; margin: 0 0 10px }}
.n {{ color: #5a6470; font: 12px ui-monospace, Menlo, monospace; margin: 0 0 4px }}
</style><p class=n>In [2]:</p><pre>{code}</pre><div id=out></div><script type=module>
import door from "./panel.js";
const values = {values};
const model = {{ get: (name) => values[name], on() {{}}, off() {{}} }};
door.render({{ model, el: document.querySelector("#out") }});
</script>"""


def terminals(folder: Path, out: Path) -> None:
    """Write what commands print on a terminal, as SVG."""
    for name, words in TERMINALS.items():
        environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
        done = subprocess.run(
            [sys.executable, "-m", "relaqs", *words],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
        shown = " ".join(f'"{word}"' if " " in word else word for word in words)
        console.print(f"[bold]$[/] relaqs {shown}\n", highlight=False)
        console.print(Text.from_ansi(done.stdout.split(BEYOND)[0].rstrip()))
        picture = console.export_svg(title="relaqs", theme=MONOKAI, code_format=FORMAT, unique_id=f"t-{name}")
        written = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        (out / f"{name}.svg").write_text(written.rstrip() + "\n", encoding="utf-8")


def charts(folder: Path, out: Path) -> None:
    """Write charts of answers and of a training run."""
    with relaqs.connect(folder / "warehouse") as db, mpl.rc_context(STYLE):
        sql = "SELECT carrier, avg(arr_delay) AS late FROM flights GROUP BY carrier ORDER BY carrier"
        early = db.online_sql(sql, batches=50, target=0.5).result()
        saved(early.plot(), out / "error-bars.svg")
        weekly = (
            "SELECT date_trunc('week', time_hour) AS week, avg(dep_delay) AS late FROM flights GROUP BY 1"
        )
        saved(db.online_sql(f"{weekly} ORDER BY 1", batches=20, target=0.5).result().plot(), out / "plot.svg")
        run = db.train(LogisticRegression(LATE, target="late"))
        losses = [each.loss for each in run]
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.plot(range(1, len(losses) + 1), losses, marker="o", color="#0b6e99")
        axes.set(xlabel="iteration", ylabel="loss", title="Logistic regression over the flights")
        saved(axes, out / "training.svg")


def saved(axes: Any, path: Path) -> None:
    """Write the figure of the axes, the same text for the same figure."""
    axes.figure.savefig(path, metadata={"Date": None})
    path.write_text(
        "\n".join(map(str.rstrip, path.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8"
    )


@contextmanager
def served(data: Path) -> Iterator[tuple[relaqs.Session, DashboardServer]]:
    """Give a session over the data, and a server of its pages."""
    with tempfile.TemporaryDirectory() as name, relaqs.connect(data) as db:
        board = Dashboard(db, Path(name), data=data.name, limits=Limits(grace_seconds=0))
        with DashboardServer(board, Path(name), port=0) as server:
            yield db, server


def opened(browser: Browser, address: str, width: int, height: int, scheme: str = "light") -> Page:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    return page


def until(page: Page, states: Sequence[str]) -> None:
    """Wait until every panel is in one of the states."""
    page.locator("article[data-state]").first.wait_for(timeout=PATIENCE_MS)
    wrong = "".join(f":not([data-state={state}])" for state in states)
    page.wait_for_function(
        f"() => !document.querySelector('article[data-state]{wrong}')", timeout=PATIENCE_MS
    )
    page.wait_for_timeout(800)


def pages(browser: Browser, folder: Path, out: Path) -> None:
    """Write the page over a layout, light, dark and on a phone, over a file, its jobs and its cores."""
    begun = ("refining", "target_met", "exact", "stopped")
    with slowly(), served(folder / "warehouse") as (db, server):
        run = db.train(LogisticRegression(LATE, target="late"))
        looks = {
            "page": (1200, 900, "light"),
            "page-dark": (1200, 900, "dark"),
            "page-phone": (390, 844, "light"),
        }
        seen = {}
        for name, (width, height, scheme) in looks.items():
            seen[name] = opened(browser, server.start_addresses["you"], width, height, scheme)
        jobs = opened(browser, server.start_addresses["you"], 1200, 720)
        jobs.goto(server.address + "/jobs")
        jobs.locator("article.job").nth(3).wait_for(timeout=PATIENCE_MS)
        jobs.wait_for_timeout(1500)
        jobs.screenshot(path=out / "jobs.png")
        until(seen["page"], begun)
        for name, page in seen.items():
            page.screenshot(path=out / f"{name}.png")
        cores = seen["page"].locator("article.cluster, .panel.cluster").first
        cores.get_by_role("button", name="Show").click()
        seen["page"].wait_for_timeout(4000)
        cores.screenshot(path=out / "cores.png")
        run.stop()
        for page in (*seen.values(), jobs):
            page.context.close()
    with served(folder / "flights.parquet") as (_, server):
        page = opened(browser, server.start_addresses["you"], 1200, 900)
        until(page, ("exact",))
        page.screenshot(path=out / "file.png")
        page.context.close()


def notebook(browser: Browser, folder: Path, out: Path) -> None:
    """Write a cell of a notebook and the panel below it, drawn by the program that a notebook gets."""
    with relaqs.connect(folder / "warehouse") as db:
        query = db.online_sql(CELL.split("\n", 1)[1], batches=50, target="5%")
        widget: Any = query.display(chart="bars", title="Mean departure delay", x="carrier")
        query.result()
        context = browser.new_context(viewport={"width": 800, "height": 520})
        page = context.new_page()
        while widget.panel["state"] not in ("target_met", "stopped", "exact"):
            page.wait_for_timeout(100)
        values = json.dumps({"panel": widget.panel, "settings": widget.settings}).replace("<", "\\u003c")
        text = NOTEBOOK.format(code=html.escape(CELL), values=values)
        program = (files("relaqs_dashboards") / "static" / "panel.js").read_text(encoding="utf-8")
        page.route("**/panel.js", lambda route: route.fulfill(body=program, content_type="text/javascript"))
        page.route("**/notebook", lambda route: route.fulfill(body=text, content_type="text/html"))
        page.goto("http://localhost/notebook")
        page.wait_for_timeout(1500)
        page.screenshot(path=out / "notebook.png")
        page.context.close()


def site(browser: Browser, folder: Path, out: Path) -> None:
    """Write this documentation as a browser shows it: light, dark and on a phone."""
    built = folder / "site"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--builder",
        "html",
        "--doctree-dir",
        str(folder / "trees"),
    ]
    subprocess.run([*command, str(ROOT / "docs"), str(built)], cwd=ROOT, check=True)
    looks = {
        "docs": (1200, 800, "light"),
        "docs-dark": (1200, 800, "dark"),
        "docs-phone": (390, 844, "light"),
    }
    for name, (width, height, scheme) in looks.items():
        page = opened(browser, (built / "guide" / "queries.html").as_uri(), width, height, scheme)
        page.wait_for_timeout(500)
        page.screenshot(path=out / f"{name}.png")
        page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, help="the folder for the pictures")
    parser.add_argument("--only", help="one of: terminals, charts, pages, notebook, site")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "relaqs", "sample", "flights", name], check=True, capture_output=True
        )
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        drawn: dict[str, Callable[[], None]] = {
            "terminals": lambda: terminals(folder, options.out),
            "charts": lambda: charts(folder, options.out),
            "pages": lambda: pages(browser, folder, options.out),
            "notebook": lambda: notebook(browser, folder, options.out),
            "site": lambda: site(browser, folder, options.out),
        }
        for kind, draw in drawn.items():
            if options.only in (None, kind):
                draw()
        browser.close()
    for path in sorted(options.out.iterdir()):
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
