"""Pages: what their files may say, what is built in, and what is made for any table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.pages import PageList, page_of_table, page_text, parse_page, read_page, write_page
from relaqs_dashboards.settings import TEXT, PageError, PageSettings, PanelSettings

import relaqs
from relaqs import Session

SHOWN_KINDS = {"bars", "line", "number", "table", "scatter", "histogram"}  # by each built-in page, at least
FULL = PanelSettings(
    "p1",
    'A "title" \\ with ünïcode',
    "SELECT '''x'''\n\tFROM t -- \"\"\"",
    "bars",
    "wide",
    0.01,
    2.0,
    "a",
    "b",
    "c",
    {"zone": 3, "names": "it's", "is_late": True},
)


def test_a_page_survives_its_file(tmp_path: Path) -> None:
    page = PageSettings(
        "mine", "Mine", (FULL, PanelSettings("p2", "t", "SELECT ?", params=[1.5])), owner="ada"
    )
    write_page(page, tmp_path / "mine.toml")
    assert read_page(tmp_path / "mine.toml") == page
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    assert parse_page("mine", page_text(page)) == page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", "it is not TOML"),
        ("colour = 'red'", "a page has no 'colour'"),
        ("panels = 3", "panels are written as [[panels]]"),
        ("[[panels]]\ntitle = 't'", "a panel is incomplete: it has no sql"),
        ("[[panels]]\ntitle = 't'\nsql = 's'\nchart = 'pie'", "chart is 'pie'; it must be one of bars"),
        ("[[panels]]\ntitle = 't'\nsql = 's'\ntarget = 5", "target is 5; it must be a relative error"),
        ("[[panels]]\ntitle = 't'\nsql = 's'\nparams = 3", "params is 3; it must be a list of values"),
        (
            "[[panels]]\ntitle = 't'\nsql = 's'\nparams = [[1]]",
            "parameter 1 is a value of type list; it must",
        ),
        ("[[panels]]\ntitle = ''\nsql = 's'", "title is ''; it must be text"),
        ("[[panels]]\nid = 'a'\ntitle = 't'\nsql = 's'\n" * 2, "several panels ['a']"),
        ("title = 7", "title is 7; it must be text"),
        ("owner = '../x'", "owner is '../x'; it must be 1 to 64 of a-z"),
    ],
)
def test_a_file_that_is_no_page_says_why(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PageError, match=re.escape(said)) as caught:
        read_page(path)
    assert str(path) in str(caught.value)


@pytest.fixture(scope="module", params=["tpch", "flights"])
def built_in(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, PageSettings]]:
    data = request.getfixturevalue(f"{request.param}_warehouse")
    with relaqs.connect(data, threads=2) as session:
        pages = PageList(tmp_path_factory.mktemp("pages"), session.tables)
        assert [page.name for page in pages.pages("you")] == [request.param]
        yield session, pages.page(request.param, "you")


def test_every_panel_of_a_built_in_page_is_estimated(built_in: tuple[Session, PageSettings]) -> None:
    session, page = built_in
    assert {panel.chart for panel in page.panels} >= SHOWN_KINDS
    for panel in page.panels:
        plan = session.plan(panel.sql)
        assert plan.mode.value != "exact", (panel.title, plan.reasons)
        names = {output.name for output in plan.outputs}
        assert {panel.x, panel.y, panel.series} - {None} <= names, panel.title


@pytest.mark.parametrize("table", ["lineitem", "orders", "customer", "part"])
def test_a_page_made_for_a_table_can_be_asked(tpch_warehouse: Path, table: str) -> None:
    with relaqs.connect(tpch_warehouse, threads=2) as session:
        page = page_of_table(table, session.tables[table])
        assert len(page.panels) >= 4
        for panel in (each for each in page.panels if each.chart != TEXT):
            names = {output.name for output in session.plan(panel.sql).outputs}
            assert {panel.x, panel.y} - {None} <= names, panel.title


def test_a_page_made_for_odd_columns_can_be_asked(tmp_path: Path) -> None:
    columns = {
        'a "quoted" name': ["x", "y"] * 50,
        "order": [0.5 * i for i in range(100)],
        "constant": [1.0] * 100,
        "nothing": pa.nulls(100, pa.float64()),
        "when": pa.array(range(100), pa.timestamp("s")),
        "list": [[1]] * 100,
    }
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    with relaqs.connect(
        tables={"Odd Table!": tmp_path / "odd.parquet"}, cache_directory=tmp_path / "c"
    ) as session:
        (page,) = PageList(tmp_path / "pages", session.tables).pages("you")
        assert page.name == "odd-table"
        for panel in page.panels:
            assert session.online_sql(panel.sql).result().is_exact


def test_a_large_plain_file_has_a_page_of_its_values(tmp_path: Path) -> None:
    rows = 150_000
    columns = {"zone": [f"z{i % 5}" for i in range(rows)], "fare": [0.5 * (i % 99) for i in range(rows)]}
    pq.write_table(pa.table(columns), tmp_path / "trips.parquet")
    with relaqs.connect(tmp_path / "trips.parquet", cache_directory=tmp_path / "c") as session:
        dashboard = Dashboard(session, tmp_path / "state", data="trips")
        (page,) = dashboard.pages.pages("you")
        titles = [panel.title for panel in page.panels]
    assert titles[:4] == [
        "Rows of trips",
        "Rows by zone",
        "Mean fare by zone",
        "Distribution of fare",
    ]


def test_a_table_without_numbers_or_groups_shows_some_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [f"{i:04}" for i in range(100)]}), tmp_path / "t.parquet")
    with relaqs.connect(tables={"t": tmp_path / "t.parquet"}, cache_directory=tmp_path / "c") as session:
        assert [panel.chart for panel in page_of_table("t", session.tables["t"]).panels] == [
            "number",
            "table",
        ]


@pytest.mark.parametrize(("values", "ends"), [(1000, "0 to 1000"), (11, "0 to 10.5"), (61, "0 to 62")])
def test_a_histogram_of_a_long_tail_is_of_the_values_without_it(
    tmp_path: Path, values: int, ends: str
) -> None:
    tail = [float(i % values) for i in range(60_000)] + [1e6] * 3
    pq.write_table(pa.table({"x": tail}), tmp_path / "t.parquet")
    relaqs.shuffle(tmp_path / "t.parquet", tmp_path / "warehouse" / "t")
    with relaqs.connect(tmp_path / "warehouse") as session:
        panels = page_of_table("t", session.tables["t"]).panels
        (shown,) = (panel for panel in panels if panel.chart == "histogram")
        assert shown.title == f"Distribution of x, {ends}"
        bins = session.sql(shown.sql)
        assert len(bins) >= 10
        assert sum(bins.estimate["rows"].to_pylist()) == 60_000


def test_a_page_says_which_columns_have_no_panel(tmp_path: Path) -> None:
    columns = {
        "city": ["Bern", "Ulm"] * 50,
        "price": [f"${i}.50" for i in range(100)],
        "note": [f"note {i}" for i in range(100)],
        "user_id": list(range(100)),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with relaqs.connect(tables={"t": tmp_path / "t.parquet"}, cache_directory=tmp_path / "c") as session:
        said = Dashboard(session, tmp_path / "state", data="own").pages.pages("you")[0].panels[-1]
    assert (said.title, said.chart) == ("Columns without a panel", TEXT)
    assert "price: text that looks like numbers" in said.sql
    assert "note: text of more than 25 values" in said.sql
    assert "user_id: taken for a key" in said.sql
    assert "city" not in said.sql


def test_a_saved_page_takes_the_place_of_the_built_in_one(tmp_path: Path, tpch_warehouse: Path) -> None:
    with relaqs.connect(tpch_warehouse, threads=1) as session:
        pages = PageList(tmp_path, session.tables)
        pages.save(PageSettings("tpch", "Changed", ()))
        assert PageList(tmp_path, session.tables).page("tpch", "you").title == "Changed"


def test_unsaved_changes_go_when_the_page_is_saved_or_its_file_is_edited(tmp_path: Path) -> None:
    write_page(PageSettings("mine", "Saved", ()), tmp_path / "mine.toml")
    pages = PageList(tmp_path, {})
    pages.keep(PageSettings("mine", "Changed", ()))
    draft = tmp_path / "unsaved" / "mine.toml"
    assert PageList(tmp_path, {}).as_left("mine", "you").title == "Changed"
    os.utime(draft, ns=(0, 0))  # the file was edited after it
    assert pages.as_left("mine", "you").title == "Saved"
    pages.keep(PageSettings("mine", "Changed", ()))
    draft.write_text("colour = 'red'")
    assert pages.as_left("mine", "you").title == "Saved"
    pages.save(PageSettings("mine", "Saved again", ()))
    assert not draft.exists()


def test_the_page_of_a_file_is_filled_and_begins_with_what_says_something(tmp_path: Path) -> None:
    """Means of days say nothing beside those of delays, and no row of panels has a hole."""
    rows = 500
    flights = {
        "day": [1 + i % 31 for i in range(rows)],
        "delay": [0.25 * (i % 177) for i in range(rows)],
        "month": [1 + i % 12 for i in range(rows)],
        "carrier": [f"c{i % 5}" for i in range(rows)],
    }
    pq.write_table(pa.table(flights), tmp_path / "flights.parquet")
    pq.write_table(
        pa.table({"Kunde": ["a", "b"] * 9, "Umsatz (€)": ["1,5"] * 18}), tmp_path / "a_texts.parquet"
    )
    with relaqs.connect(tmp_path, cache_directory=tmp_path / "c") as session:
        pages = Dashboard(session, tmp_path / "state", data="own").pages.pages("you")
        assert [page.title for page in pages] == ["flights", "a_texts"]  # the largest first
        for page in pages:
            for panel in (each for each in page.panels if each.chart != TEXT):
                assert session.online_sql(panel.sql).result().is_exact
    titles = [panel.title for panel in pages[0].panels]
    assert titles[1:4] == ["Rows by carrier", "Mean delay by carrier", "Rows by month"]
    shown = [(panel.chart, panel.size) for panel in pages[1].panels]
    assert shown == [("number", "small"), ("bars", "wide"), (TEXT, "full")]
    assert (
        pages[1].panels[-1].sql
        == "Umsatz (€): text that looks like numbers; a panel's SQL can make it numbers."
    )
    (distribution,) = (panel for panel in pages[0].panels if panel.title == "Distribution of delay")
    assert distribution.x == "delay"
