"""Text of every sort from outside: what is none is refused in words, and the page goes on for everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_dashboards.pages import PageList, read_page, write_page

import relaqs
from tests.dashboards.conftest import Serve, Served, panel

MODES = "SELECT l_shipmode, count(*) AS lines FROM lineitem GROUP BY l_shipmode"
HALF, OTHER_HALF, NUL = "\ud800", "\udfff", "\0"

# What it is, the message, and how the notice begins.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "half a character in a title": (
        {"type": "edit", "panel": "p1", "title": f"ab{HALF}"},
        "title has U+D800 as its character 3; leave it out",
    ),
    "the other half in SQL": (
        {"type": "edit", "panel": "p1", "sql": f"{MODES} -- {OTHER_HALF}"},
        "sql has U+DFFF as its character",
    ),
    "a NUL in SQL": ({"type": "edit", "panel": "p1", "sql": f"SELECT '{NUL}'"}, "sql has U+0000"),
    "an escape in a title": ({"type": "edit", "panel": "p1", "title": "\x1b[31m"}, "title has U+001B"),
    "half a character in a column": ({"type": "edit", "panel": "p1", "x": HALF}, "x has U+D800"),
    "in a panel that is added": (
        {"type": "add", "panel": {"title": HALF, "sql": MODES}},
        "title has U+D800",
    ),
    "in the name of a setting": (
        {"type": "add", "panel": {"title": "t", "sql": MODES, HALF: 1}},
        r"a panel has no '\ud800'",
    ),
    "in a panel's id": ({"type": "remove", "panel": HALF}, r"panel is '\ud800'; it must be 1 to 64"),
    "in the kind of message": ({"type": HALF}, r"there is no message '\ud800'"),
    "a title of a megabyte's worth": (
        {"type": "edit", "panel": "p1", "title": "\N{GRINNING FACE}" * 5000},
        "title is '" + "\N{GRINNING FACE}" * 60 + "…'; it must be text of 1 to 200",
    ),
    "a title of white space": ({"type": "edit", "panel": "p1", "title": "\u2003\n"}, "title is "),
    "a number no double holds": (
        {"type": "set", "panel": "p1", "priority": 10**400},
        "priority is a value of type int; it must be a number from",
    ),
    "a target no double holds": (
        {"type": "set", "panel": "p1", "target": 10**400},
        "target is a value of type int; it must be a relative error",
    ),
    "a list as a chart": (
        {"type": "edit", "panel": "p1", "chart": [["x"]] * 999},
        "chart is a value of type list",
    ),
    "a long chart": ({"type": "edit", "panel": "p1", "chart": "x" * 9999}, f"chart is '{'x' * 60}…'"),
}  # fmt: skip

ACCEPTED = {
    "right to left": "مبيعات ‏2013",
    "an override": "\u202eevil\u202c",
    "beyond the basic plane": "\N{GRINNING FACE}\U0001d4d0",
    "combined": "e" + "\u0301" * 100,
    "no character": "\uffff\ufffe",
    "markup": "</title>{nonce}%s${x}&lt;",
}


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(panel(MODES))


def test_what_is_no_text_is_refused_and_the_page_stays_open_for_everybody(served: Served) -> None:
    with served.page() as page:
        before = page.until(lambda page: page.page["times"]).page  # known once the panel is planned
        for what, (message, said) in REFUSED.items():
            page.notices.clear()
            page.socket.send(json.dumps(message))
            page.until(lambda page: page.notices)
            assert page.notices[0].startswith(said), what
            assert len(page.notices[0]) < 500, what
        assert page.page == before
        with served.page() as other:
            assert other.page == before
            other.until_panel("p1", state="exact")


def test_a_message_of_any_depth_is_answered_in_words(served: Served) -> None:
    """Some depths can be read, and not be written out again."""
    with served.page() as page:
        for depth in (800, 900, 950, 970, 980, 985, 990, 5_000):
            page.notices.clear()
            page.socket.send(f'{{"type":"edit","panel":"p1","title":{"[" * depth}{"]" * depth}}}')
            page.until(lambda page: page.notices)
            assert len(page.notices[0]) < 200


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_text_of_every_script_comes_back_as_it_was(serve: Serve, text: str) -> None:
    served = serve(panel(MODES))
    with served.page() as page:
        page.say("edit", panel="p1", title=text, sql=f"{MODES} -- {text}")
        page.say("save")
        page.until(lambda page: "saved" in page.notices)
    assert read_page(served.state.parent / "test.toml").panels[0].title == text
    with served.page() as page:
        assert page.page["panels"][0]["title"] == text
        page.until_panel("p1", state="exact")


def test_a_viewers_name_loses_what_cannot_be_printed(served: Served) -> None:
    with served.page() as page:
        page.say("name", name=f"A{HALF}d{NUL}a\u202e")
        page.say("edit", panel="p1", title="Another")
        assert page.until(lambda page: page.log).log == ["Ada changed title “Another”"]


@pytest.mark.parametrize(
    ("written", "title"),
    [
        (rb'title = "a\ud800b \\ud800"', r"a�b \ud800"),
        (rb'title = "a\U0000DFFFb"', "a�b"),
        (b'title = "a\xed\xa0\x80b"', "a���b"),
        (b'title = "a\xffb"', "a�b"),
        (rb'title = "a\u0000b"', "a�b"),
    ],
    ids=["an escape", "a long escape", "bytes", "a wrong byte", "NUL"],
)
def test_a_file_that_holds_what_is_no_text_opens_and_can_be_saved(
    tmp_path: Path, written: bytes, title: str
) -> None:
    path = tmp_path / "old.toml"
    path.write_bytes(written + b'\n[[panels]]\nsql = "SELECT 1"\n' + written)
    page = read_page(path)
    assert (page.title, page.panels[0].title) == (title, title)
    write_page(page, path)
    assert read_page(path) == page


def test_a_table_with_columns_no_panel_can_name_has_a_page(tmp_path: Path) -> None:
    columns = {"n\0ul": [1.5, 2.5] * 50, "x" * 250: ["a", "b"] * 50, "fine": ["a", "b"] * 50}
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    with relaqs.connect(tables={"odd": tmp_path / "odd.parquet"}, cache_directory=tmp_path / "c") as session:
        (page,) = PageList(tmp_path / "pages", session.measured_tables()).pages("you")
        assert [panel.title for panel in page.panels] == ["Rows of odd", "Rows by fine"]


def test_a_table_with_a_row_that_cannot_be_read_has_a_page(tmp_path: Path) -> None:
    days = "\n".join(["day,city,fare", *["2024-01-31,Oslo,2.5"] * 40_000])
    (tmp_path / "late_day.csv").write_text(days + "\nunknown,Rome,2.5\n")
    (tmp_path / "late_fare.csv").write_text(days + "\n2024-01-31,Rome,2x5\n")
    with relaqs.connect(tmp_path, cache_directory=tmp_path / "c") as session:
        pages = PageList(tmp_path / "pages", session.measured_tables()).pages("you")
        assert {panel.title for page in pages for panel in page.panels} >= {
            "Rows of late_day",
            "Rows of late_fare",
        }
        for name, column, value in (("late_day", "day", "unknown"), ("late_fare", "fare", "2x5")):
            with pytest.raises(
                relaqs.DataError, match=f"first values of column '{column}'.*{value}"
            ) as raised:
                session.online_sql(f"SELECT max({column}) AS most FROM {name}").result()
            assert "\n" not in str(raised.value)
