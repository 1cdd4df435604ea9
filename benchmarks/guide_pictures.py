"""The pictures of the guides: the page, a notebook, terminals, charts and this documentation, by one command.

The data are the flights that `relaqs sample` makes. Queries of pages are slowed down, so that a picture can
be taken in the middle of them.

    python -m benchmarks.guide_pictures docs/pictures
"""

from __future__ import annotations

import argparse
import code
import html
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from dask.distributed import Client, LocalCluster
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from moto.server import ThreadedMotoServer
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
from relaqs.dask import share_cores
from relaqs.training import LogisticRegression, MiniBatchLinear

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_MS = 120_000
COLUMNS = 100
LATE = "SELECT distance, dep_delay, air_time, arr_delay > 15 AS late FROM flights WHERE arr_delay IS NOT NULL"
SCALED = """SELECT distance / 1000 AS distance, dep_delay / 60 AS dep_delay, air_time / 100 AS air_time,
    arr_delay > 15 AS late FROM flights WHERE arr_delay IS NOT NULL"""
JOIN = "SELECT name, avg(dep_delay) AS late FROM flights JOIN airlines USING (carrier) GROUP BY name"
SIMULATED = "simulate --jobs 12 --seeds 3 --arrival 10 --cores 256 --policies fair,relaqs"
TERMINALS = {
    "tables": ["tables", "--data", "planes.parquet"],
    "explain": ["explain", JOIN, "--data", "warehouse"],
    "simulate": SIMULATED.split(),
}
SESSIONS = {
    "coming-from": """import relaqs
db = relaqs.connect("warehouse")
sql = "SELECT origin, avg(dep_delay) AS late FROM flights GROUP BY ALL ORDER BY ALL"
db.sql(sql).df()
db.execute("SELECT count(*) FROM flights WHERE origin = ?", ["JFK"]).fetchone()
db.online_sql(sql, target="5%", batches=50).result().show()""",
    "agents": """import asyncio, json
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
async def ask(**question):
    program = StdioServerParameters(command="relaqs", args=["mcp", "--data", "warehouse"])
    async with Client(stdio_client(program)) as client:
        return (await client.call_tool("ask", question)).structured_content

reply = asyncio.run(ask(sql="SELECT avg(dep_delay) AS late FROM flights", error=0.1))
print(json.dumps(reply, indent=2, ensure_ascii=False))""",
}
BLUE, GREY = "#0b6e99", "#7a7f87"
BUCKET = "s3://bucket/warehouse/flights"
TASK_SECONDS = 0.05
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
        shown = " ".join(f'"{word}"' if " " in word else word for word in words)
        terminal(f"$ relaqs {shown}\n\n{done.stdout.split(BEYOND)[0].rstrip()}", name, out)


def terminal(text: str, name: str, out: Path) -> None:
    """Write a picture of a terminal with the text, which may have colours."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    picture = console.export_svg(title="relaqs", theme=MONOKAI, code_format=FORMAT, unique_id=f"t-{name}")
    written = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    (out / f"{name}.svg").write_text(written.rstrip() + "\n", encoding="utf-8")


def sessions(folder: Path, out: Path) -> None:
    """Write what Python shows of the lines that somebody types in the folder."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        for name, lines in SESSIONS.items():
            python, shown, more = code.InteractiveConsole(), io.StringIO(), False
            with redirect_stdout(shown):
                for line in lines.splitlines():
                    print(f"{'...' if more else '>>>'} {line}".rstrip())
                    more = python.push(line)
                python.push("db.close()" if "db" in python.locals else "")
            terminal(shown.getvalue().rstrip(), name, out)
    finally:
        os.chdir(here)


def store(folder: Path, out: Path) -> None:
    """Write a warehouse in a bucket of a server that speaks S3."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": address, "RELAQS_CACHE": str(folder / "cache")}
    environment |= {"COLUMNS": str(COLUMNS)}
    try:
        urlopen(Request(f"{address}/bucket", method="PUT")).close()
        shown = []
        for words in (
            ["shuffle", "flights.parquet", "--into", BUCKET],
            ["tables", "--data", BUCKET.rsplit("/", 1)[0]],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "relaqs", *words],
                cwd=folder, env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            shown.append(f"$ relaqs {' '.join(words)}\n{done.stdout.rstrip()}\n")
        terminal("\n".join(shown), "object-stores", out)
    finally:
        server.stop()


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
        axes = empty()
        axes.plot(range(1, len(losses) + 1), losses, marker="o", color=BLUE)
        axes.set(xlabel="iteration", ylabel="loss", title="Logistic regression over the flights")
        saved(axes, out / "training.svg")
        elastic = db.train(
            MiniBatchLinear(SCALED, target="late", first_rate=0.1), batch="elastic", max_steps=2
        )
        elastic.result()
        journal = elastic.journal
        assert journal is not None  # a run of steps has one
        changes = [(each.step, each.batch_rows) for each in journal.changes()]
        axes = empty()
        steps, rows = zip(*changes, (len(journal), changes[-1][1]), strict=True)
        axes.step(steps, rows, where="post", color=BLUE)
        axes.set(xlabel="step", ylabel="rows in a step", title="Two passes with elastic steps")
        axes.set_yscale("log", base=2)
        axes.set_yticks(rows, map(str, rows))
        saved(axes, out / "elastic-training.svg")
    with mpl.rc_context(STYLE):
        saved(calls(), out / "costly-functions.svg")
        saved(clients(), out / "dask-clients.svg")


def empty() -> Axes:
    return Figure(figsize=(6.4, 3.2), layout="constrained").subplots()


def calls() -> Axes:
    """Return how the error of a count falls with the calls, with a cheap guess and without."""
    texts = [f"{'it broke' if i % 5 == 0 else 'fine'} ({i})" for i in range(20_000)]
    reviews = pa.table({"text": texts})
    axes = empty()
    for label, proxy, colour in (("without", None, GREY), ("with a proxy", "text LIKE '%broke%'", BLUE)):
        with relaqs.connect(tables={"reviews": reviews}) as db:
            db.function(
                "complains", lambda text: ["broke" in each.as_py() for each in text],
                batch=64, cost=0.002, cache=False, proxy=proxy,
            )  # fmt: skip
            query = db.online_sql("SELECT count(*) AS n FROM reviews WHERE complains(text)", target="3%")
            seen = [(each.calls, 100 * each.error) for each in query if each.calls and each.error < 0.5]
        axes.plot(*zip(*seen, strict=True), marker="o", markersize=3, label=label, color=colour)
    axes.set(xlabel="calls", ylabel="± %", title="Complaints among 20,000 reviews, to ± 3 %", ylim=(0, None))
    axes.legend(frameon=False)
    return axes


def clients() -> Axes:
    """Return how many tasks two clients of Dask have finished, at weights of one and three."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as nightly, Client(cluster) as people,
        share_cores(nightly, weight=1.0, name="nightly"), share_cores(people, weight=3.0, name="people"),
    ):  # fmt: skip
        begun = time.time()
        asked = {
            "nightly": nightly.map(worked, range(200), pure=False),
            "people": people.map(worked, range(150), pure=False),
        }
        ended = {name: np.sort([each.result() for each in futures]) for name, futures in asked.items()}
    axes = empty()
    for name, colour in (("people", BLUE), ("nightly", GREY)):
        done = ended[name] - begun
        axes.step(done, np.arange(1, len(done) + 1), where="post", label=name, color=colour)
    axes.set(xlabel="seconds", ylabel="tasks done", title="Two clients on two cores, weights 3 and 1")
    axes.legend(frameon=False)
    return axes


def worked(_: int) -> float:
    """Keep a core busy, and return when that ended."""
    end = time.thread_time() + TASK_SECONDS
    while time.thread_time() < end:
        pass
    return time.time()


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
    parser.add_argument("--only", help="one of: terminals, sessions, store, charts, pages, notebook, site")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    without = {"terminals": terminals, "sessions": sessions, "store": store, "charts": charts}
    with_browser = {"pages": pages, "notebook": notebook, "site": site}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "relaqs", "sample", "flights", name], check=True, capture_output=True
        )
        for kind, draw in without.items():
            if options.only in (None, kind):
                draw(folder, options.out)
        if options.only not in without:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                for kind, look in with_browser.items():
                    if options.only in (None, kind):
                        look(browser, folder, options.out)
                browser.close()
    for path in sorted(options.out.iterdir()):
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
