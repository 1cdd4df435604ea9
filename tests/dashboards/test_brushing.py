"""Selecting in one chart filters the others, in a real browser: by pointer, by keyboard, by a link."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.dashboards.browser import expect_state, opened, panel_of
from tests.dashboards.conftest import Serve, panel
from tests.dashboards.test_browser import Open, browser, check_accessibility, open_tab, press
from tests.dashboards.test_filters import FLAGS, MODES, NATIONS

pytestmark = pytest.mark.slow  # a real browser, and many steps in it

__all__ = ["browser", "open_tab", "opened"]
MONTHS = "SELECT date_trunc('month', l_shipdate) AS month, count(*) AS n FROM lineitem GROUP BY 1 ORDER BY 1"
PAGE = (
    panel(FLAGS, id="flags", title="Flags", chart="bars", x="flag", y="n")
    + panel(MODES, id="modes", title="Modes", chart="table", size="wide")
    + panel(MONTHS, id="months", title="Months", chart="line", size="full", x="month", y="n")
    + panel(NATIONS, id="nations", title="Nations")
)
CHIP = re.compile("Remove the filter ")


@pytest.fixture
def page(serve: Serve, open_tab: Open) -> Page:
    shown = open_tab(serve(PAGE)).page
    for title in ("Flags", "Modes", "Months", "Nations"):
        expect_state(shown, title, "exact")
    return shown


def click_bar(page: Page, title: str, at: int, **options: Any) -> None:
    page.locator("article", has=page.get_by_role("heading", name=title)).locator("rect.solid").nth(at).click(
        position={"x": 4, "y": 4}, **options
    )


def is_filtered(page: Page, title: str) -> Locator:
    return panel_of(page, title).get_by_text("filtered", exact=True)


def total(page: Page, title: str) -> float:
    """Return the sum of the first column of numbers of a panel's table."""
    texts = panel_of(page, title).locator("td.value").all_inner_texts()
    return sum(float(text.replace(",", "")) for text in texts)


def test_a_click_on_a_bar_filters_the_panels_that_read_the_table(page: Page, tpch_oracle: Any) -> None:
    click_bar(page, "Flags", 2)
    chip = page.get_by_role("button", name="Remove the filter flag: R")
    expect(chip).to_be_visible()
    expect(is_filtered(page, "Modes")).to_be_visible()
    expect_state(page, "Modes", "exact")
    expect(is_filtered(page, "Nations")).to_have_count(0)
    expect(panel_of(page, "Flags").locator("rect.solid.unselected")).to_have_count(2)
    ((wanted,),) = tpch_oracle.rows("SELECT sum(l_quantity) FROM lineitem WHERE l_returnflag = 'R'")
    assert total(page, "Modes") == float(wanted)
    click_bar(page, "Flags", 0, modifiers=["Control"])
    expect(page.get_by_role("button", name="Remove the filter flag: R, A")).to_be_visible()
    page.get_by_role("button", name=CHIP).click()
    expect(page.get_by_role("button", name=CHIP)).to_have_count(0)
    expect(is_filtered(page, "Modes")).to_have_count(0)
    expect(panel_of(page, "Flags").locator("rect.solid.unselected")).to_have_count(0)


def test_a_drag_over_a_line_selects_its_range(page: Page) -> None:
    drawing = panel_of(page, "Months").locator(".drawing")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    expect(panel_of(page, "Months").locator(".brush")).to_be_visible()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=4)
    page.mouse.up()
    expect(
        page.get_by_role("button", name=re.compile(r"month: 199\d-\d\d-01 to 199\d-\d\d-01"))
    ).to_be_visible()
    expect(is_filtered(page, "Flags")).to_be_visible()
    expect(is_filtered(page, "Months")).to_have_count(0)


def choose(page: Page, title: str) -> Locator:
    """Open a panel's list of values by keyboard, and return it."""
    card = panel_of(page, title)
    card.locator("summary", has_text="More").focus()
    page.keyboard.press("Enter")
    press(page, card.get_by_role("button", name="Filter the page…"))
    return page.get_by_role("dialog")


def test_everything_goes_by_keyboard(page: Page) -> None:
    dialog = choose(page, "Flags")
    expect(dialog.get_by_role("checkbox").first).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    chip = page.get_by_role("button", name="Remove the filter flag: A, N")
    expect(chip).to_be_visible()
    expect(page.locator("[aria-live=polite]")).to_contain_text("The page is filtered by flag: A, N")
    dialog = choose(page, "Months")
    dialog.get_by_label("from").select_option(index=10)
    dialog.get_by_label("to").select_option(index=5)
    press(page, dialog.get_by_role("button", name="Filter", exact=True))
    expect(page.get_by_role("button", name=CHIP)).to_have_count(2)
    chip.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=CHIP)).to_have_count(1)
    expect(page.get_by_role("button", name=CHIP)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_filters_pass_axe_and_fit_a_phone(serve: Serve, open_tab: Open, scheme: str) -> None:
    tab = open_tab(serve(PAGE), color_scheme=scheme)
    page = tab.page
    page.set_viewport_size({"width": 360, "height": 740})
    for title in ("Flags", "Modes", "Months", "Nations"):
        expect_state(page, title, "exact")
    choose(page, "Flags")
    check_accessibility(page)
    page.get_by_role("checkbox").first.check()
    page.get_by_role("dialog").get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_role("button", name=CHIP)).to_be_visible()
    expect(is_filtered(page, "Modes")).to_be_visible()
    for title in ("Modes", "Months"):  # what is before the change is dimmed
        expect_state(page, title, "exact")
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_shows_somebody_else_the_same_and_has_no_token(
    serve: Serve, open_tab: Open, browser: Browser
) -> None:
    served = serve(PAGE)
    first = open_tab(served).page
    expect_state(first, "Modes", "exact")
    click_bar(first, "Flags", 1)
    expect(first.get_by_role("button", name=CHIP)).to_be_visible()
    expect(first).to_have_url(re.compile("#"))
    link = first.url
    assert "token" not in link
    first.get_by_role("button", name=CHIP).click()
    expect(first.get_by_role("button", name=CHIP)).to_have_count(0)
    expect(first).to_have_url(re.compile(r"/page/test$"))
    second = open_tab(served).page
    second.goto("about:blank")
    second.goto(link)
    expect(second.get_by_role("button", name="Remove the filter flag: N")).to_be_visible()
    expect(is_filtered(second, "Modes")).to_be_visible()


def test_a_link_that_fits_nothing_says_so(serve: Serve, open_tab: Open) -> None:
    served = serve(PAGE)
    page = open_tab(served).page
    page.goto("about:blank")
    page.goto(
        served.server.address + '/page/test#{"filters":[{"panel":"flags","column":"gone","values":[1]}]}'
    )
    expect(page.get_by_role("status")).to_contain_text("The link's filter by gone fits no panel of this page")
    page.goto("about:blank")
    page.goto(served.server.address + "/page/test#%7Brubbish")
    expect_state(page, "Flags", "exact")


def test_a_page_is_exported_as_one_file(page: Page, browser: Browser, tmp_path: Path) -> None:
    click_bar(page, "Flags", 2)
    expect(is_filtered(page, "Modes")).to_be_visible()
    expect_state(page, "Modes", "exact")
    page.locator("summary", has_text="Page").click()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Export page").click()
    file = tmp_path / "page.html"
    coming.value.save_as(file)
    context = browser.new_context(offline=True, java_script_enabled=False)
    alone = context.new_page()
    alone.goto(file.as_uri())
    expect(alone.get_by_text("Filtered by flag: R")).to_be_visible()
    expect(alone.locator("section > svg")).to_have_count(2)
    expect(alone.locator("section", has_text="Modes").locator("table tbody tr")).to_have_count(7)
    expect(alone.get_by_role("columnheader", name="quantity, 95 % from")).to_have_count(1)
    context.close()


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
def test_a_chart_is_exported_as_a_picture(page: Page, kind: str, tmp_path: Path) -> None:
    card = panel_of(page, "Flags")
    card.locator("summary", has_text="More").click()
    with page.expect_download() as coming:
        card.get_by_role("button", name=f"Export as {kind}").click()
    file = tmp_path / "flags"
    coming.value.save_as(file)
    assert coming.value.suggested_filename == f"Flags.{kind.lower()}"
    if kind == "PNG":
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size > 4_000
    else:
        text = file.read_text(encoding="utf-8")
        assert "Flags" in text
        assert "var(" not in text
        assert text.count("<rect") >= 4


def test_a_number_is_exported_as_a_picture(serve: Serve, open_tab: Open, tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n, max(l_quantity) AS most FROM lineitem"
    shown = open_tab(serve(panel(sql, id="one", title="How many", chart="number", y="n"))).page
    expect_state(shown, "How many", "exact")
    card = panel_of(shown, "How many")
    expect(card.locator(".number .interval")).to_contain_text("exact")  # it is drawn once it has a size
    number = card.locator(".number .value").inner_text()
    for kind in ("SVG", "PNG"):
        card.locator("summary", has_text="More").click()
        with shown.expect_download() as coming:
            card.get_by_role("button", name=f"Export as {kind}").click()
        coming.value.save_as(tmp_path / kind)
    text = (tmp_path / "SVG").read_text(encoding="utf-8")
    for words in ("How many", number, "n · exact: every row was read", "most: 50"):
        assert f">{words}" in text, words
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")


def test_a_filtered_answer_is_exported_with_its_intervals(page: Page) -> None:
    click_bar(page, "Flags", 2)
    expect(is_filtered(page, "Modes")).to_be_visible()
    expect_state(page, "Modes", "exact")
    card = panel_of(page, "Modes")
    card.locator("summary", has_text="More").click()
    with page.expect_download() as coming:
        card.get_by_role("link", name="Export as CSV").click()
    text = Path(coming.value.path()).read_text(encoding="utf-8")
    head, *rows = csv.reader(io.StringIO(text))
    assert head == ["mode", "quantity", "quantity_low", "quantity_high", "quantity_certified"]
    assert sum(float(row[1]) for row in rows) == total(page, "Modes")


def test_the_time_of_the_page_is_picked_with_its_unit_and_travels_in_the_link(
    serve: Serve, open_tab: Open
) -> None:
    served = serve(PAGE)
    page = open_tab(served).page
    expect_state(page, "Months", "exact")
    page.get_by_label("Column of time").select_option("l_shipdate")
    expect(page.get_by_label("Unit of time")).to_have_value("month")
    page.get_by_label("Time", exact=True).select_option(label="last 365 days of the data")
    chip = page.get_by_role(
        "button", name=re.compile(r"Remove the filter l_shipdate: 1997-\d\d-\d\d to 1998-")
    )
    expect(chip).to_be_visible()
    for title in ("Flags", "Modes", "Months"):  # also what has time as its key
        expect(is_filtered(page, title)).to_be_visible()
    expect(panel_of(page, "Nations").get_by_text("not filtered")).to_be_visible()
    page.get_by_label("Unit of time").select_option("week")
    panel_of(page, "Months").locator("summary", has_text="SQL").click()
    expect(panel_of(page, "Months").get_by_text("date_trunc('week', l_shipdate) AS week")).to_be_visible()
    panel_of(page, "Months").locator("summary", has_text="SQL").click()
    page.get_by_label("Time", exact=True).select_option(label="from … to …")
    page.get_by_label("First day").fill("1998-01-01")
    page.get_by_label("Last day").fill("1998-02-28")
    page.get_by_label("Last day").press("Tab")
    expect(page.get_by_role("button", name="l_shipdate: 1998-01-01 to 1998-02-28")).to_be_visible()
    for title in ("Flags", "Modes", "Months"):
        expect_state(page, title, "exact")
    check_accessibility(page)
    link = page.evaluate("location.href")
    page.get_by_role("button", name=CHIP).click()
    expect(page.get_by_label("Time", exact=True)).to_have_value("all")
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_role("button", name="l_shipdate: 1998-01-01 to 1998-02-28")).to_be_visible()
    expect(page.get_by_label("First day")).to_have_value("1998-01-01")


def drag(page: Page, title: str, *, onto: str) -> None:
    panel_of(page, title).hover()
    panel_of(page, title).locator(".handle").drag_to(panel_of(page, onto))


def test_panels_are_dragged_to_their_places_and_moved_by_keyboard(page: Page) -> None:
    cards = page.locator("article[data-panel]")
    drag(page, "Nations", onto="Modes")
    expect(cards.nth(1)).to_have_attribute("data-panel", "nations")
    drag(page, "Flags", onto="Nations")
    expect(cards.nth(1)).to_have_attribute("data-panel", "flags")
    card = panel_of(page, "Months")
    card.locator("summary", has_text="More").focus()
    page.keyboard.press("Enter")
    press(page, card.get_by_role("button", name="Move earlier"))
    expect(cards.nth(2)).to_have_attribute("data-panel", "months")


def test_a_reader_has_the_page_without_what_would_change_it(serve: Serve, open_tab: Open) -> None:
    served = serve(PAGE, users=("ada",), readers=("bob",))
    page = open_tab(served, user="bob").page
    expect_state(page, "Flags", "exact")
    click_bar(page, "Flags", 2)
    card = panel_of(page, "Flags")
    card.hover()
    card.locator("summary", has_text="More").click()
    expect(card.get_by_role("link", name="Export as CSV")).to_be_visible()
    for name in ("Good enough", "Pause", "Edit panel", "Remove panel", "Filter the page…", "Run again"):
        expect(card.get_by_role("button", name=name)).to_be_hidden()
    expect(page.get_by_label("Time", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name=CHIP)).to_have_count(0)
    check_accessibility(page)
