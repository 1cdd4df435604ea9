"""The charts, drawn by a real browser from made-up answers: the same module a page and a notebook use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from relaqs_dashboards.settings import CHARTS

from tests.dashboards.browser import opened

pytestmark = pytest.mark.slow  # a real browser, every kind of chart

PANEL_JS = Path(__file__).resolve().parents[2] / "dashboards" / "relaqs_dashboards" / "static" / "panel.js"
HOSTILE = "<img src=x onerror=\"document.title='broken in'\">"

# A widget's model, as anywidget hands it over: `get`, `on` and `off`.
OPEN = """async ([code, settings, panel]) => {
  const door = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const values = { settings, panel };
  const listeners = {};
  const model = { get: (name) => values[name], on: (name, act) => (listeners[name] = act), off: () => {} };
  window.show = (panel) => { values.panel = panel; listeners["change:panel"](); };
  door.default.render({ model, el: document.body });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 900, "height": 700})
    faults: list[object] = []
    opened.on("pageerror", lambda error: faults.append(error))
    opened.set_content("<!doctype html><title>charts</title><body></body>")
    yield opened
    opened.close()
    assert faults == []


def draw(
    page: Page,
    chart: str,
    answer: dict[str, Any] | None,
    *,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    own = {"id": "p", "title": "Revenue", "sql": "", "chart": chart, "size": "wide", "target": 0.01}
    named = {"x": None, "y": None, "series": None, "priority": 1.0}
    page.evaluate(OPEN, [PANEL_JS.read_text("utf-8"), own | named | (settings or {}), update(answer, **more)])


def update(answer: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    standing = {
        "state": "refining",
        "reason": None,
        "run": 1,
        "rows_read": 2_500_000,
        "rows_total": 6_000_000,
        "fraction": 0.42,
        "elapsed_seconds": 1.1,
        "cores": 2.0,
        "error": 0.028,
        "target": 0.01,
        "priority": 1.0,
        "target_fraction": 0.7,
        "seconds_to_target": 3.0,
        "unseen_groups": 0,
        "warnings": [],
        "confidence": 0.95,
        "interval": "pointwise",
        "confidence_for": "cell",
        "mode": "mergeable",
        "kept": True,
        "viewers": 1,
        "changed_by": None,
        "failure": None,
    }
    return standing | {"answer": answer} | more


def answer(
    *rows: list[Any], kind: str = "estimate", key: str = "text", ranked: bool = False
) -> dict[str, Any]:
    """Return an answer of one key and one approximate column."""
    columns = [
        {"name": "nation", "kind": "key", "type": key},
        {"name": "revenue", "kind": kind, "type": "number"},
    ]
    return {"columns": columns, "rows": list(rows), "ranked": ranked, "truncated": None}


def about(value: float, half: float, *, certified: bool = True) -> list[Any]:
    return [value, value - half, value + half, certified]


def test_a_bar_is_solid_to_the_low_end_faded_to_the_high_end_and_ticked_at_the_estimate(page: Page) -> None:
    draw(page, "bars", answer(["FRANCE", about(50.0, 10.0)], ["KENYA", about(100.0, 10.0)]))
    expect(page.locator("rect.solid")).to_have_count(2)
    solid, faded = (page.locator(f"rect.{part}").first.bounding_box() for part in ("solid", "faded"))
    assert solid is not None
    assert faded is not None
    # 40 is sure, and as much again as a half is between 40 and 60: one pixel for rounding.
    assert faded["height"] == pytest.approx(solid["height"] / 2, abs=1.0)
    assert faded["y"] + faded["height"] == pytest.approx(solid["y"], abs=1.0)
    tick = page.locator("path.estimate").first.bounding_box()
    assert tick is not None
    assert tick["y"] == pytest.approx(faded["y"] + faded["height"] / 2, abs=1.5)


ALIKE = {"NULL": "'NULL'", None: "NULL", "": "''", "a": "a", "a ": "'a '"}


def alike(*names: str) -> dict[str, Any]:
    """Return an exact answer whose last key has values that are easily written alike."""
    columns = [{"name": name, "kind": "key", "type": "text"} for name in names]
    keys = [[value] for value in ALIKE] if len(names) == 1 else [[x, s] for x in "vw" for s in ALIKE]
    rows = [[*key, 10 + i] for i, key in enumerate(keys)]
    value = {"name": "n", "kind": "measure", "type": "number"}
    return {"columns": [*columns, value], "rows": rows, "ranked": False, "truncated": None}


def attributes(page: Page, parts: str, *names: str) -> set[tuple[str, ...]]:
    """Return what each of the parts has as these attributes."""
    found = page.locator(parts).evaluate_all(
        "(all, names) => all.map((each) => names.map((name) => each.getAttribute(name)))", list(names)
    )
    return {tuple(each) for each in found}


@pytest.mark.parametrize("chart", ["bars", "stacked", "heatmap", "rows"])
def test_values_that_are_written_alike_stand_apart(page: Page, chart: str) -> None:
    """NULL is not the text NULL: each has its place and its name, and none hides another."""
    draw(page, chart, alike("s"), state="exact", fraction=1.0)
    parts = "rect.cell" if chart == "heatmap" else "rect.solid"
    expect(page.locator(parts)).to_have_count(len(ALIKE))
    assert len(attributes(page, parts, "x", "y")) == len(ALIKE)
    assert set(page.locator("text.group-tick, text.row-name").all_text_contents()) >= set(ALIKE.values())
    draw(page, chart, alike("v", "s"), state="exact", fraction=1.0)
    expect(page.locator(".panel").last.locator(parts)).to_have_count(2 * len(ALIKE))


def test_a_line_has_a_place_for_each_of_them(page: Page) -> None:
    draw(page, "line", alike("s"), state="exact", fraction=1.0)
    expect(page.locator("path.stroke")).to_have_count(1)
    ((course,),) = attributes(page, "path.stroke", "d")
    assert len({point.split(",")[0] for point in course[1:].split("L")}) == len(ALIKE)


@pytest.mark.parametrize(
    ("chart", "parts"), [("bars", "rect.solid"), ("line", "path.stroke"), ("stacked", "rect.part")]
)
def test_series_that_are_written_alike_have_colours_of_their_own(page: Page, chart: str, parts: str) -> None:
    draw(page, chart, alike("v", "s"), state="exact", fraction=1.0)
    expect(page.locator(".legend li")).to_have_count(len(ALIKE))
    assert set(page.locator(".legend li").all_inner_texts()) == set(ALIKE.values())
    assert len(attributes(page, parts, "class")) == len(ALIKE)


@pytest.mark.parametrize("chart", ["line", "histogram", "areas"])
def test_rows_without_a_place_along_a_line_are_told_of(page: Page, chart: str) -> None:
    given = answer([1, 5], [2, 6], [None, 7], ["NaN", 8], kind="measure", key="number")
    draw(page, chart, given, state="exact", fraction=1.0)
    expect(page.get_by_text("2 not drawn: nation is NULL or no finite number")).to_be_visible()


def test_days_with_a_zone_are_named_by_the_day_and_long_names_by_what_differs(page: Page) -> None:
    days = [[f"2024-10-{day}T00:00:00+02:00", 5 + day] for day in range(20, 27)]
    draw(page, "bars", answer(*days, kind="measure", key="timestamp"), state="exact", fraction=1.0)
    expect(page.locator("text.group-tick")).to_have_count(7)
    assert page.locator("text.group-tick").all_text_contents() == [f"2024-10-{day}" for day in range(20, 27)]


def test_names_that_are_cut_alike_show_what_differs(page: Page) -> None:
    names = [[f"a very long name of which only the end says which one it is: {end}", 5] for end in "stuvwxyz"]
    draw(page, "rows", answer(*names, kind="measure"), state="exact", fraction=1.0)
    expect(page.locator("text.row-name")).to_have_count(8)
    shown = page.locator("text.row-name").all_text_contents()
    assert [name[-1] for name in shown] == list("stuvwxyz")


def test_an_exact_bar_has_neither_fade_nor_tick(page: Page) -> None:
    draw(page, "bars", answer(["FRANCE", about(50.0, 0.0)]), state="exact", fraction=1.0)
    expect(page.locator("rect.solid")).to_have_count(1)
    expect(page.locator("rect.faded")).to_have_count(0)
    expect(page.locator("path.estimate")).to_have_count(0)


def test_what_nobody_vouches_for_looks_different_and_says_so(page: Page) -> None:
    draw(page, "table", answer(["FRANCE", about(50.0, 10.0, certified=False)], ["KENYA", about(9.0, 1.0)]))
    expect(page.locator("td.value.doubtful")).to_have_text("50")
    expect(page.get_by_text("not certified, see the remarks for why")).to_be_visible()


def test_bounds_are_one_sided(page: Page) -> None:
    draw(
        page, "table", answer(["FRANCE", [5000, 5000, None, True]], ["KENYA", [7, 7, 9, True]], kind="bound")
    )
    expect(page.locator("td.value").first).to_have_text("≥ 5000")
    draw(page, "bars", answer(["FRANCE", [5000, 5000, None, True]], kind="bound"))
    expect(page.locator("path.arrow")).to_have_count(1)


def test_neighbours_whose_order_may_turn_are_marked(page: Page) -> None:
    rows = (["FRANCE", about(57.0, 2.0)], ["JAPAN", about(55.0, 2.0)], ["KENYA", about(40.0, 2.0)])
    draw(page, "table", answer(*rows, ranked=True))
    expect(page.locator("tbody th")).to_have_text(["FRANCE ≈", "JAPAN", "KENYA"])


def test_groups_keep_their_places_until_the_answer_is_exact(page: Page) -> None:
    draw(page, "table", answer(["FRANCE", about(57.0, 1.0)], ["JAPAN", about(50.0, 1.0)], ranked=True))
    expect(page.locator("tbody th")).to_have_text(["FRANCE", "JAPAN"])
    swapped = answer(["JAPAN", about(58.0, 1.0)], ["FRANCE", about(51.0, 1.0)], ranked=True)
    page.evaluate("panel => show(panel)", update(swapped))
    expect(page.locator("tbody td.value").first).to_have_text("51.0")
    expect(page.locator("tbody th")).to_have_text(["FRANCE", "JAPAN"])
    page.evaluate("panel => show(panel)", update(swapped, state="exact", fraction=1.0))
    expect(page.locator("tbody th")).to_have_text(["JAPAN", "FRANCE"])


@pytest.mark.parametrize("chart", CHARTS)
def test_text_from_outside_stays_text(page: Page, chart: str) -> None:
    hostile = answer([HOSTILE, about(50.0, 10.0)], ["KENYA", about(9.0, 1.0)])
    draw(page, chart, hostile, warnings=[HOSTILE], reason=HOSTILE)
    expect(page.locator(".warnings")).to_contain_text("<img")
    assert page.locator("img").count() == 0
    assert page.title() == "charts"


def test_a_number_is_rounded_to_what_is_known(page: Page) -> None:
    columns = [{"name": "revenue", "kind": "estimate", "type": "number"}]
    rows = [[about(120_041_234.5, 3_100_000.0)]]
    draw(page, "number", {"columns": columns, "rows": rows, "ranked": False, "truncated": None})
    expect(page.locator(".big")).to_have_text("120.0 M ± 3.1 M", use_inner_text=True)
    expect(page.locator(".interval")).to_contain_text("95 % interval 116.9 M to 123.1 M")


def test_dates_make_a_line_with_a_band(page: Page) -> None:
    months = ([f"1995-{month:02}-01", about(50.0 + month, 5.0)] for month in range(1, 13))
    draw(page, "line", answer(*months, key="date"))
    expect(page.locator("path.stroke")).to_have_count(1)
    expect(page.locator("path.band")).to_have_count(1)
    expect(page.locator("text.group-tick").first).to_have_text("1995")


def test_a_chart_that_lacks_a_column_is_a_table_and_says_why(page: Page) -> None:
    columns = [{"name": "name", "kind": "key", "type": "text"}]
    draw(page, "bars", {"columns": columns, "rows": [["a"], ["b"]], "ranked": False, "truncated": None})
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_text("there is no column of numbers")).to_be_visible()


def test_a_chart_without_a_value_is_a_table_and_says_why(page: Page) -> None:
    nothing = [None, None, None, True]
    draw(page, "bars", answer(["FRANCE", nothing], ["KENYA", nothing]), state="exact", fraction=1.0)
    expect(page.locator("td.value")).to_have_text(["NULL", "NULL"])
    expect(page.get_by_text("every value of revenue is NULL or no finite number")).to_be_visible()


def test_an_exact_null_is_no_value_and_not_one_that_is_unknown(page: Page) -> None:
    columns = [{"name": "revenue", "kind": "estimate", "type": "number"}]
    shown = {"columns": columns, "rows": [[[None, None, None, True]]], "ranked": False, "truncated": None}
    draw(page, "number", shown, state="exact", fraction=1.0)
    expect(page.locator(".interval")).to_have_text("revenue · NULL: there is no value")
    expect(page.locator(".big")).to_have_text("NULL", use_inner_text=True)


def test_a_series_of_the_query_before_leaves_the_legend(page: Page) -> None:
    columns = [{"name": name, "kind": "key", "type": "text"} for name in ("nation", "mode")]
    shown = answer(*(["FRANCE", mode, about(5.0, 1.0)] for mode in ("AIR", "RAIL", "SHIP")))
    shown["columns"] = [*columns, shown["columns"][1]]
    draw(page, "bars", shown)
    expect(page.locator(".legend li")).to_have_text(["AIR", "RAIL", "SHIP"])
    later = shown | {"rows": [["FRANCE", flag, about(5.0, 1.0)] for flag in ("SHIP", "OTHER")]}
    page.evaluate("panel => show(panel)", update(later, run=2))
    expect(page.locator(".legend li")).to_have_text(["SHIP", "OTHER"])


CUT = """() => {
  const panel = [...document.querySelectorAll("*")].find((each) => each.shadowRoot).shadowRoot;
  const table = panel.querySelector(".chart.table");
  const right = table.getBoundingClientRect().right + 0.5;
  const cells = [...table.querySelectorAll("tbody :is(td, th)")];
  return { cells: cells.length, cut: cells.filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().right > right || cell.scrollWidth > cell.clientWidth;
  }).map((cell) => cell.textContent) };
}"""


@pytest.mark.parametrize("width", [320, 390, 470])
@pytest.mark.parametrize(("count", "size"), [(1, 1.0), (2, 1e6), (2, 1e15), (4, 1.0), (9, 1e15)])
def test_no_number_of_a_table_is_cut_on_a_phone(page: Page, width: int, count: int, size: float) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    columns = [{"name": f"mean_of_column_{i}", "kind": "estimate", "type": "number"} for i in range(count)]
    columns = [{"name": "nation", "kind": "key", "type": "text"}, *columns]
    for state in ("refining", "exact"):
        half = 0.0312345 * size if state == "refining" else 0.0
        values = [about(1.23456789012 * size + i, half) for i in range(count)]
        rows = [[f"A NATION WITH A NAME {row}", *values] for row in range(3)]
        draw(
            page, "table", {"columns": columns, "rows": rows, "ranked": False, "truncated": None}, state=state
        )
        expect(page.locator("tbody tr").first).to_be_visible()
        found = page.evaluate(CUT)
        assert found["cells"] > 0
        assert found["cut"] == []
        page.evaluate("document.body.replaceChildren()")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("refining", "refining · ±2.8 %"),
        ("target_met", "target reached · ±2.8 %"),
        ("paused", "paused at ±2.8 %"),
        ("stopped", "stopped at ±2.8 %"),
        ("failed", "failed"),
    ],
)
def test_every_state_is_said_in_words(page: Page, state: str, words: str) -> None:
    draw(page, "bars", answer(["FRANCE", about(50.0, 1.0)]), state=state)
    expect(page.locator(".pill")).to_have_text(words)
    held = page.locator(".stage.is-held")
    expect(held).to_have_count(1 if state in ("paused", "stopped") else 0)
    expect(page.locator(".stage.is-outdated")).to_have_count(1 if state == "failed" else 0)


def test_an_old_chart_stays_dimmed_until_the_new_run_answers(page: Page) -> None:
    draw(page, "bars", answer(["FRANCE", about(50.0, 1.0)]))
    expect(page.locator("rect.solid")).to_have_count(1)
    page.evaluate("panel => show(panel)", update(None, run=2, state="waiting"))
    expect(page.locator(".stage.is-outdated rect.solid")).to_have_count(1)
    page.evaluate("panel => show(panel)", update(answer(["KENYA", about(5.0, 1.0)]), run=2))
    expect(page.locator(".stage.is-outdated")).to_have_count(0)
    expect(page.locator("text.group-tick")).to_have_text("KENYA")


def test_no_row_and_no_answer_yet_are_said(page: Page) -> None:
    draw(page, "bars", None, state="waiting", reason="two others run first", error=None)
    expect(page.locator(".placeholder")).to_have_text("No rows read yet: two others run first.")
    page.evaluate("panel => show(panel)", update(answer(), state="empty", fraction=1.0))
    expect(page.locator(".placeholder")).to_have_text("The query finished and no row matches.")


def grid(*rows: list[Any], key: str = "text") -> dict[str, Any]:
    """Return an answer of two keys and one approximate column."""
    kinds = [("week", "key", key), ("device", "key", "text"), ("n", "estimate", "number")]
    columns = [dict(zip(("name", "kind", "type"), each, strict=True)) for each in kinds]
    return {"columns": columns, "rows": list(rows), "ranked": False, "truncated": None}


def test_lying_bars_have_room_for_long_names_and_say_their_values(page: Page) -> None:
    rows = [[f"a country with a long name {i}", about(100.0 - i, 5.0)] for i in range(12)]
    draw(page, "rows", answer(*rows))
    expect(page.locator("rect.solid")).to_have_count(12)
    expect(page.locator("text.row-value").first).to_have_text("100.0 ± 5.0")
    names = page.locator("text.row-name")
    expect(names.first).to_have_text("a country with a long name 0")
    boxes = [names.nth(i).bounding_box() for i in range(12)]
    assert all(a and b and a["y"] + a["height"] <= b["y"] + 3 for a, b in itertools.pairwise(boxes))


def test_stacked_bars_stand_on_each_other(page: Page) -> None:
    draw(page, "stacked", grid(["one", "a", about(30.0, 3.0)], ["one", "b", about(10.0, 1.0)]))
    lower, upper = (page.locator("rect.part").nth(i).bounding_box() for i in range(2))
    assert lower is not None
    assert upper is not None
    assert upper["height"] == pytest.approx(lower["height"] / 3, abs=1.5)
    assert upper["y"] + upper["height"] == pytest.approx(lower["y"], abs=1.5)


def test_stacked_areas_reach_from_the_first_to_the_last_moment(page: Page) -> None:
    rows = [[f"2024-01-0{day}", name, about(10.0, 1.0)] for day in (1, 2, 3) for name in "ab"]
    draw(page, "areas", grid(*rows, key="date"))
    expect(page.locator("path.part")).to_have_count(2)
    expect(page.locator(".legend li")).to_have_text(["a", "b"])


def test_a_heat_map_is_deepest_where_the_value_is_largest(page: Page) -> None:
    cells = [["one", "a", about(10.0, 1.0)], ["one", "b", about(20.0, 1.0)], ["two", "a", about(40.0, 1.0)]]
    draw(page, "heatmap", grid(*cells), state="exact")
    expect(page.locator("rect.cell")).to_have_count(3)
    depths = [float(page.locator("rect.cell").nth(i).get_attribute("fill-opacity") or 0) for i in range(3)]
    assert depths == sorted(depths)
    assert depths[-1] == 1.0
    expect(page.locator("text.row-name")).to_have_text(["a", "b"])


def test_more_series_than_colours_share_a_grey(page: Page) -> None:
    rows = [[f"2024-01-0{day}", f"s{i}", about(10.0 + i, 1.0)] for day in (1, 2) for i in range(11)]
    draw(page, "line", grid(*rows, key="date"))
    expect(page.locator("path.stroke")).to_have_count(11)
    expect(page.locator("path.stroke.rest")).to_have_count(4)
    expect(page.locator(".legend li")).to_have_count(8)
    expect(page.locator(".legend li").first).to_have_text("s10")  # the largest keep a colour
    expect(page.locator(".legend li").last).to_have_text("4 others")


def test_a_log_axis_has_equal_steps_for_equal_ratios(page: Page) -> None:
    rows = answer(["a", about(10.0, 0.0)], ["b", about(100.0, 0.0)], ["c", about(1000.0, 0.0)])
    draw(page, "bars", rows, state="exact", settings={"scale": "log"})
    tops = [box["y"] for i in range(3) if (box := page.locator("rect.solid").nth(i).bounding_box())]
    assert tops[0] - tops[1] == pytest.approx(tops[1] - tops[2], abs=1.0)
    assert tops[0] - tops[1] > 20
    expect(page.locator(".axis-title")).to_have_text("revenue, log scale")


def test_one_wild_estimate_does_not_flatten_the_certified_ones(page: Page) -> None:
    rows = [[f"n{i}", about(100.0 + i, 5.0)] for i in range(4)]
    draw(page, "bars", answer(*rows, ["wild", about(5000.0, 90.0, certified=False)]))
    box = page.locator("rect.solid").first.bounding_box()
    assert box is not None
    assert box["height"] > 60
    expect(page.get_by_text("1 not certified beyond the axis")).to_be_visible()


def test_a_period_that_the_data_fill_in_part_is_no_fall(page: Page) -> None:
    rows = [[f"2024-0{month}-01", about(100.0, 5.0)] for month in (1, 2, 3)]
    partial = {"nation": ["2024-03-01"]}
    draw(page, "line", answer(*rows, key="date"), partial=partial)
    expect(page.locator("path.unfinished")).to_have_count(1)
    expect(page.get_by_text("the data, or the time shown, begin or end within this period")).to_be_visible()
    page.evaluate("document.body.replaceChildren()")
    draw(page, "bars", answer(*rows, key="date"), partial=partial)
    expect(page.locator("rect.solid.partial")).to_have_count(1)
