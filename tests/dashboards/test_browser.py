"""The page in a real browser: what people see, by keyboard and with eyes that a machine has."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.dashboards.browser import PATIENCE_MS, expect_state, opened, panel_of
from tests.dashboards.conftest import Serve, Served, panel
from tests.dashboards.test_live import FLAGS, MODES
from tests.turnstile import Turnstile

EVIL = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"
PROGRAM = [sys.executable, "-c", "from relaqs.cli import main; main()"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as browser:
        yield browser


class Tab:
    """An open page, and what went wrong in it."""

    def __init__(self, browser: Browser, served: Served, user: str = "you", **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 1400}, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(served.server.start_addresses[user])

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.errors.append(said.text)

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)


Open = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Open]:
    """Open pages, each as a browser of its own; none may have said an error, or asked another machine."""
    tabs: list[tuple[Tab, Served]] = []

    def begin(served: Served, user: str = "you", **options: Any) -> Tab:
        tab = Tab(browser, served, user, **options)
        tabs.append((tab, served))
        return tab

    yield begin
    for tab, served in tabs:
        tab.context.close()
        assert tab.errors == []
        assert [url for url in tab.requests if not url.startswith((served.server.address, "data:"))] == []


@pytest.mark.slow
def test_the_tpch_page_loads_and_its_panels_become_exact(
    serve: Serve, turnstile: Turnstile, open_tab: Open
) -> None:
    served = serve()
    page = open_tab(served).page
    expect(page).to_have_title(re.compile("TPC-H"))
    panels = page.get_by_role("article")
    expect(panels).to_have_count(9)
    expect(page.locator("article[data-state=waiting]")).to_have_count(9)
    turnstile.let(60)
    expect(page.locator("article[data-state=waiting]")).to_have_count(0)
    turnstile.let()
    expect(page.locator("article[data-state=exact]")).to_have_count(9)
    expect(panel_of(page, "Forecast revenue change (Q6)")).to_contain_text("exact: every row was read")


def test_an_edit_cancels_and_restarts(serve: Serve, turnstile: Turnstile, open_tab: Open) -> None:
    served = serve(panel(FLAGS, title="Flags"))
    page = open_tab(served).page
    turnstile.let(2)
    expect_state(page, "Flags", "refining")
    (before,) = served.dashboard.runs.all
    write_sql(page, "Flags", MODES)
    page.keyboard.press("Control+Enter")
    turnstile.let()
    expect_state(page, "Flags", "exact")
    expect(panel_of(page, "Flags")).to_contain_text("REG AIR")
    assert before.state == "stopped"


def write_sql(page: Page, title: str, sql: str) -> None:
    """Open the query of a panel and write another, by keyboard."""
    card = panel_of(page, title)
    card.locator("summary", has_text="SQL").focus()
    page.keyboard.press("Enter")
    field = card.locator(
        f".cm-content[aria-label='SQL of {title}']"
    )  # the editor is loaded when it is asked for
    expect(field).to_be_visible()
    field.focus()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(sql)


def press(page: Page, button: Locator) -> None:
    """Press a button by keyboard."""
    expect(button).to_be_enabled()
    button.focus()
    page.keyboard.press("Enter")


def test_pause_and_resume_by_keyboard_keep_the_progress(
    serve: Serve, turnstile: Turnstile, open_tab: Open
) -> None:
    page = open_tab(serve(panel(FLAGS, title="Flags"))).page
    card = panel_of(page, "Flags")
    turnstile.let(3)
    expect_state(page, "Flags", "refining")
    press(page, card.get_by_role("button", name="Pause"))
    expect_state(page, "Flags", "paused")
    expect(card).to_contain_text("paused by you")
    paused = rows_read(card)
    press(page, card.get_by_role("button", name="Resume"))
    expect_state(page, "Flags", "refining")
    assert rows_read(card) >= paused > 0
    turnstile.let()
    expect_state(page, "Flags", "exact")


def rows_read(card: Locator) -> float:
    """Return the number of rows that a panel says it has read."""
    text = " ".join(card.locator(".facts").inner_text().split())
    found = re.match(r"([\d.]+) ?(k?) of 60\.2 k rows", text)
    assert found is not None, text
    return float(found[1]) * {"": 1, "k": 1e3}[found[2]]


def test_a_broken_query_shows_its_message_beside_the_last_good_chart(serve: Serve, open_tab: Open) -> None:
    page = open_tab(serve(panel(MODES, title="Modes", chart="bars"))).page
    expect_state(page, "Modes", "exact")
    write_sql(page, "Modes", "SELECT l_shipmod, count(*) FROM lineitem GROUP BY l_shipmod")
    page.keyboard.press("Control+Enter")
    expect_state(page, "Modes", "failed")
    card = panel_of(page, "Modes")
    expect(card).to_contain_text('Referenced column "l_shipmod" not found')
    expect(card).to_contain_text("l_shipmode")
    expect(card.locator(".stage svg, svg").first).to_be_visible()


@pytest.mark.slow
def test_two_browsers_share_a_run(serve: Serve, turnstile: Turnstile, open_tab: Open) -> None:
    served = serve(panel(FLAGS, title="Flags"), users=("ada", "bob"))
    ada, bob = open_tab(served, "ada").page, open_tab(served, "bob").page
    turnstile.let(3)
    for page in (ada, bob):
        expect_state(page, "Flags", "refining")
    assert len(served.dashboard.runs.all) == 1
    press(bob, panel_of(bob, "Flags").get_by_role("button", name="Pause"))
    expect(panel_of(ada, "Flags")).to_contain_text("paused by bob")
    turnstile.let()


@pytest.mark.slow
def test_a_slow_browser_skips_and_ends_with_the_newest(
    serve: Serve, turnstile: Turnstile, open_tab: Open
) -> None:
    served = serve(panel(FLAGS, title="Flags") + panel(MODES, id="p2", title="Modes"))
    tab = open_tab(served)
    received: list[str | bytes] = []
    tab.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(frame)))
    tab.page.reload()
    expect_state(tab.page, "Flags", "waiting")
    before = len(received)
    turnstile.let()
    tab.page.evaluate("{ const end = performance.now() + 2500; while (performance.now() < end) {} }")
    for title in ("Flags", "Modes"):
        expect_state(tab.page, title, "exact")
    assert len(received) - before <= 4  # dozens of snapshots were made while it was busy


def test_the_legend_and_the_choices_are_those_of_the_new_query(serve: Serve, open_tab: Open) -> None:
    two = "SELECT l_returnflag, l_linestatus, count(*) AS lines FROM lineitem GROUP BY ALL"
    page = open_tab(serve(panel(two, title="Lines", chart="bars", x="l_returnflag"))).page
    card = panel_of(page, "Lines")
    expect(card.locator(".legend li")).to_have_text(["F", "O"])
    write_sql(page, "Lines", "SELECT l_shipmode, avg(l_tax) AS tax FROM lineitem GROUP BY l_shipmode")
    choices = card.locator(".settings select")  # chart, size, x, y, series
    offered = choices.nth(3).locator("option")
    expect(offered).to_have_text(["automatic", "l_returnflag", "l_linestatus", "lines"])
    page.keyboard.press("Control+Enter")
    expect(offered).to_have_text(["automatic", "l_shipmode", "tax"])
    expect(choices.nth(2).locator("option:checked")).to_have_text("l_returnflag (not in the answer)")
    expect(card.locator(".legend li")).to_have_count(0)


def test_typing_over_a_query_and_completing_it_keeps_to_the_content_policy(
    serve: Serve, open_tab: Open
) -> None:
    """What the policy refuses is said on the console, and fails this as it ends."""
    page = open_tab(serve(panel(MODES, title="Modes"))).page
    write_sql(page, "Modes", "SELECT l_shipmode, count(*) FROM lineitem GROUP BY ALL")
    field = panel_of(page, "Modes").locator(".cm-content")
    page.keyboard.press("Control+A")
    page.keyboard.type("select max(l_tax) from lineitem where l_dis")
    panel_of(page, "Modes").locator(".cm-tooltip-autocomplete li", has_text="l_discount").click()
    page.keyboard.press("Control+Shift+ArrowLeft")
    page.keyboard.type("(")  # around what is selected
    expect(field).to_have_text("select max(l_tax) from lineitem where (l_discount)")
    page.keyboard.press("End")
    page.keyboard.type(" > 0.05")
    page.keyboard.press("Control+Enter")
    expect_state(page, "Modes", "exact")
    expect(panel_of(page, "Modes")).to_contain_text("0.08")


def test_a_waiting_panel_offers_nothing_to_resume(serve: Serve, turnstile: Turnstile, open_tab: Open) -> None:
    page = open_tab(serve(panel(FLAGS, title="Flags"))).page
    expect_state(page, "Flags", "waiting")
    expect(panel_of(page, "Flags").get_by_role("button", name="Pause")).to_be_disabled()
    expect(panel_of(page, "Flags").get_by_role("button", name="Resume")).to_have_count(0)


def test_who_is_not_let_in_or_is_lost_is_told_what_to_do(serve: Serve, browser: Browser) -> None:
    served = serve(panel(FLAGS, title="Flags"))
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.on("console", lambda said: errors.append(said.text) if "Content Security" in said.text else None)
    page.goto(f"{served.server.address}/page/test")
    expect(page.get_by_role("heading")).to_have_text("This browser was not let in")
    expect(page.get_by_text("open that address once in this browser")).to_be_visible()
    check_accessibility(page)
    page.goto(served.server.start_addresses["you"])
    page.goto(f"{served.server.address}/page/none")
    expect(page.get_by_text("there is no page 'none'")).to_be_visible()
    check_accessibility(page)
    page.goto(f"{served.server.address}/nowhere/at/all")
    page.get_by_role("link", name="Go to the first page").click()
    expect_state(page, "Flags", "exact")
    context.close()
    assert errors == []


@pytest.mark.slow
def test_a_panel_that_was_removed_is_there_again_once_that_is_discarded(serve: Serve, open_tab: Open) -> None:
    """It is asked for again first."""
    page = open_tab(serve(panel(FLAGS, title="Flags") + panel(MODES, id="p2", title="Modes"))).page
    card = panel_of(page, "Modes")
    card.locator("summary", has_text="More").click()
    card.get_by_role("button", name="Remove panel").click()
    expect(card).to_have_count(0)
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("summary", has_text="Page").click()
    page.get_by_role("button", name="Discard changes").click()
    expect_state(page, "Modes", "exact")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(serve: Serve, turnstile: Turnstile, open_tab: Open, scheme: str) -> None:
    served = serve()
    page = open_tab(served, color_scheme=scheme).page
    check_accessibility(page)
    turnstile.let(40)
    expect(page.locator("article")).to_have_count(9)
    expect(page.locator("article[data-state=waiting]")).to_have_count(0)
    check_accessibility(page)
    turnstile.let()
    expect(page.locator("article[data-state=exact]")).to_have_count(9)
    page.locator("summary", has_text="SQL").first.click()
    page.locator("summary", has_text="More").first.click()
    check_accessibility(page)
    page.goto(served.server.address + "/jobs")
    expect(page.get_by_text("No job is running.")).to_be_visible()
    check_accessibility(page)


def check_accessibility(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_text_from_the_data_is_never_html(serve: Serve, open_tab: Open, tmp_path: Path) -> None:
    rows = {"name": [EVIL, "plain", EVIL.upper()] * 500, "x": [1.0, 2.0, 3.0] * 500}
    source = tmp_path / "evil.parquet"
    pq.write_table(pa.table(rows), source)
    import relaqs

    relaqs.shuffle(str(source), tmp_path / "warehouse" / "evil", partitions=4)
    sql = "SELECT name, avg(x) AS x, count(*) AS n FROM evil GROUP BY name"
    charts = ("bars", "table", "line", "scatter", "histogram", "number")
    text = "".join(
        panel(sql, id=f"p{i}", title=f"{EVIL} {kind}", chart=kind) for i, kind in enumerate(charts)
    )
    served = serve(f"title = {json.dumps(EVIL)}\n" + text, data=tmp_path / "warehouse")
    page = open_tab(served).page
    expect(page.locator("article[data-state=exact]")).to_have_count(len(charts))
    assert "<img src=x" in page.locator("body").inner_text()
    assert page.locator("img[src=x]").count() == 0
    assert page.title() != "broken in"


EVENTS = """
    SELECT DATE '2022-01-01' + (i % 1200)::INTEGER AS day, 'device ' || i % 4 AS device,
        'land ' || i % 6 AS land, (i * 7919 % 1000) / 10 AS price, (i * 104729 % 777) / 7 AS weight
    FROM range(30000) AS t(i)
"""


def events(kind: str, folder: Path) -> Path:
    """Return a file of some events, or a folder where they are laid out."""
    import relaqs

    path = folder / f"events.{kind}"
    match kind:
        case "parquet":
            duckdb.sql(EVENTS).write_parquet(str(path))
        case "csv":
            duckdb.sql(EVENTS).write_csv(str(path))
        case "duckdb":
            with duckdb.connect(path) as database:
                database.execute(f"CREATE TABLE events AS {EVENTS}")
        case _:
            path = folder / "warehouse"
            relaqs.shuffle(duckdb.sql(EVENTS), path / "events", partitions=4)
    return path


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("csv", "duckdb", "layout"))]
)
def test_the_first_page_over_own_data_tells_keys_from_measures(
    kind: str, browser: Browser, tmp_path: Path
) -> None:
    """No count is a series: bars and lines have one colour and no legend, and points the names of groups."""
    with program(events(kind, tmp_path), tmp_path / "state") as (_, address):
        context = browser.new_context(viewport={"width": 1440, "height": 2000})
        page = context.new_page()
        page.goto(address)
        for title, bars in (("Rows by device", 4), ("Rows by land", 6), ("Mean price by device", 4)):
            card = panel_of(page, title)
            expect(card).to_have_attribute("data-state", "exact")
            expect(card.locator("svg rect")).to_have_count(bars)
            assert {each.get_attribute("class") for each in card.locator("svg rect").all()} == {"solid s0"}
            expect(card.locator(".legend li")).to_have_count(0)
        over_time = panel_of(page, "Rows by month of day")
        expect(over_time.locator(".stroke")).to_have_count(1)
        expect(over_time.locator(".legend li")).to_have_count(0)
        scatter = panel_of(page, "weight against price, by device")
        expect(scatter.locator(".dot")).to_have_count(4)
        expect(scatter.locator(".point-name")).to_have_text([f"device {i}" for i in range(4)])
        context.close()


@contextmanager
def program(data: Path, state: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `relaqs dashboard` as a process of its own; yield it and the address that it prints."""
    command = [*PROGRAM, "dashboard", "--data", str(data), "--state", str(state), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("Open ").strip()
            assert address.startswith("http://127.0.0.1:"), address
            yield process, address
        finally:
            process.kill()


@pytest.mark.slow
def test_a_killed_server_comes_back_with_its_pages_and_its_queries(
    tpch_warehouse: Path, tmp_path: Path, browser: Browser
) -> None:
    state = tmp_path / "state"
    context = browser.new_context()
    page = context.new_page()
    with program(tpch_warehouse, state) as (process, address):
        page.goto(address)
        card = panel_of(page, "Forecast revenue change (Q6)")
        expect(card).to_have_attribute("data-state", "exact")
        page.locator("summary", has_text="Page").click()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("saved", exact=True).first).to_be_attached()
        process.send_signal(signal.SIGKILL)
        process.wait()
        expect(page.get_by_text(re.compile("reconnecting")).first).to_be_visible()
    assert (state / "pages" / "tpch.toml").exists()
    port = int(address.split(":")[2].split("/")[0])
    with program(tpch_warehouse, state, port):  # the browser comes back by itself, with the cookie it has
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(card).to_have_attribute("data-state", "exact")
    context.close()
