"""What people see: the table on a terminal, and the fragment in a notebook."""

from __future__ import annotations

import dataclasses
import io
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.execution.estimate import ApproximateColumn
from rich.cells import cell_len
from rich.console import Console

from relaqs.queries.snapshot import Snapshot
from relaqs.rendering.terminal import SnapshotOnScreen, plain_text
from relaqs.rendering.view_model import doubts_said
from tests.relaqs.examples import NATIONS, revenue, snapshot

NAN = float("nan")
FEW = "revenue in 1 of 6 rows, revenue1 in 2 of 6 rows, revenue2 in 2 of 6 rows and 1 more: few rows; read on"


def printed(answer: object, **options: Any) -> str:
    file = io.StringIO()
    Console(file=file, **({"width": 100} | options)).print(answer)
    return file.getvalue()


def test_the_picture() -> None:
    lines = str(revenue()).splitlines()
    assert lines[0] == "Estimate · 42 % of rows · ± 2.8 % (95 % intervals) · 1.10 s"
    assert lines[2] == "n_name   year             revenue  95 % interval"
    assert lines[4] == "FRANCE   1992   57.1 M ± 1.7 M                         ──●─"
    assert lines[9] == "日本国   1997  33.00 M ± 0.99 M ?  ─●─"
    assert lines[10:] == ["?  revenue in 2 of 6 rows: few rows; read on"]


def test_each_reason_for_a_mark_is_said_once_with_its_columns() -> None:
    answer = revenue(copies=5, warnings=("revenue4: not certified before the end, because it jumps", "slow"))
    doubts = answer.doubts.copy()
    doubts[5, 0], doubts[4:, 4] = 2, 3
    never = "not certified before the end, because it jumps"
    answer = dataclasses.replace(answer, doubts=doubts, reasons=("few rows; read on", "it may leave", never))
    assert [line for line in str(answer).splitlines() if line.startswith(("?", "slow", "revenue4:"))] == [
        f"?  {FEW}",
        "?  revenue in 1 of 6 rows: it may leave",
        f"?  revenue4 in 2 of 6 rows: {never}",
        "slow",
    ]
    assert doubts_said(answer) == (
        FEW,
        "revenue in 1 of 6 rows: it may leave",
    )
    assert 'title="not certified: it may leave">?' in answer._repr_html_()


def test_a_reason_for_all_rows_of_one_column_and_some_of_another_counts_both() -> None:
    answer = revenue(copies=2)
    doubts = np.zeros_like(answer.doubts)
    doubts[:, 0], doubts[:2, 1] = 1, 1
    answer = dataclasses.replace(answer, doubts=doubts, reasons=("it may leave",))
    assert doubts_said(answer) == ("revenue in all 6 rows, revenue1 in 2 of 6 rows: it may leave",)


def test_the_picture_of_an_exact_answer() -> None:
    lines = str(revenue(exact=True)).splitlines()
    assert lines[0] == "Exact · 1.10 s"
    assert lines[2] == "n_name   year     revenue"
    assert lines[4] == "FRANCE   1992  57,100,000"
    assert len(lines) == 10


def test_rows_are_no_estimate_and_no_groups() -> None:
    lines = str(snapshot({"x": [1, 2]}, error=float("inf"), unseen_groups=7)).splitlines()
    assert lines[0] == "So far · 42 % of rows · 1.10 s"
    assert lines[-1] == "about 7 rows have not been seen yet"


def test_points_without_width_are_not_drawn() -> None:
    points = [1.0, 2.0, 3.0]
    answer = snapshot({"x": points, "x_low": points, "x_high": points, "x_certified": [True] * 3}, ("x",))
    assert "interval" not in "".join(str(answer).splitlines()[1:])


def test_columns_of_one_name_are_told_apart_by_position() -> None:
    columns = [["key"], [5.0], [7.0], [4.0], [6.0], [True]]
    names = ["x", "x", "x", "x_low", "x_high", "x_certified"]
    described = (ApproximateColumn("x", "x_low", "x_high", "x_certified", 1),)
    table = pa.Table.from_arrays([pa.array(each) for each in columns], names=names)
    answer = dataclasses.replace(snapshot({}), table=table, columns=described)
    assert str(answer).splitlines()[-1].split("  ") == ["key", "5.0 ± 1.0", "7"]
    assert answer._repr_html_().count("<th ") == 3


def test_plain_text_has_no_colours_and_no_trailing_spaces() -> None:
    text = str(revenue(copies=2))
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
@pytest.mark.parametrize("copies", [1, 2, 5])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width: int, copies: int) -> None:
    text = printed(revenue(copies=copies), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert text.count("57.1 M ± 1.7 M") == copies
    assert text.count("33.00 M ± 0.99 M ?") == copies
    assert "…" not in text


def test_exact_columns_are_repeated_where_an_answer_is_folded() -> None:
    text = printed(revenue(copies=5), width=60)
    assert text.count("KENYA") == text.count("n_name") > 1


def test_margins_are_dim_on_a_terminal_with_colours_and_plain_without() -> None:
    coloured = printed(revenue(), force_terminal=True, color_system="truecolor")
    assert "\x1b[2m ± 1.7 M\x1b[0m" in coloured
    plain = printed(revenue(), force_terminal=True, color_system=None)
    assert plain == printed(revenue())


def test_a_terminal_that_knows_ascii_alone() -> None:
    text = plain_text(revenue(), ascii_only=True)
    for nation in NATIONS:
        text = text.replace(nation, "")
    assert text.isascii()
    assert "57.1 M +/- 1.7 M" in text
    assert "-o-" in text


def test_many_rows_are_counted_and_not_all_shown() -> None:
    answer = snapshot({"n": list(range(1000))})
    assert str(answer).count("\n") < 30
    assert "… 980 more rows" in str(answer)
    assert "… 1 more row\n" in str(snapshot({"x": list(range(21))}, unseen_groups=None))


@pytest.mark.parametrize("height", [4, 8, 12, 40])
def test_a_live_display_stays_inside_its_screen(height: int) -> None:
    for copies in (1, 5):
        assert printed(SnapshotOnScreen(revenue(copies=copies)), width=60, height=height).count("\n") < height


def test_text_with_control_characters_and_wide_text() -> None:
    text = str(snapshot({"name\n": ["\x1b[31mred", "x" * 300]}))
    assert "\\x1b[31mred" in text
    assert "name\\n" in text
    assert "x" * 39 + "…" in text
    assert "\x1b" not in text


def test_notes_in_words() -> None:
    columns = {"x": [5.0], "x_low": [None], "x_high": [None], "x_certified": [False]}
    text = str(snapshot(columns, ("x",), unseen_groups=None, error=float("inf"), warnings=("ran slowly",)))
    assert "error not yet known" in text
    assert "±?  x: not certified so far" in text
    assert "groups that have not been seen yet are missing" in text
    assert "ran slowly" in text
    assert "about 1,200 groups have not been seen yet" in str(revenue(unseen_groups=1200))
    assert "about 1 group has not been seen yet" in str(revenue(unseen_groups=1))
    assert "95 % anytime interval" in str(revenue(interval="anytime"))
    assert "no rows yet" in str(snapshot({"x": []}))
    assert "no rows yet" not in str(snapshot({"x": []}, is_exact=True))


class Fragment(HTMLParser):
    """Collects what a browser would see, and refuses what is not well formed."""

    VOID = ("rect", "circle")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def fragment(answer: Snapshot) -> Fragment:
    return Fragment(answer._repr_html_())


def test_html_shows_the_same_as_the_terminal() -> None:
    page = fragment(revenue())
    for text in ("Estimate", "57.1 M", "± 1.7 M", "日本国", "95 % interval"):
        assert text in page.text
    assert page.tags.count("svg") == 6
    assert page.tags.count("tr") == 7


def test_html_escapes_everything_that_comes_from_data() -> None:
    evil = '<script>alert("x")</script>&\'"><img src=x onerror=alert(1)>'
    columns = {evil: [evil, evil], f"{evil}x": [1.0, 2.0]}
    name = f"{evil}x"
    columns |= {f"{name}_low": [0.0, 1.0], f"{name}_high": [2.0, 3.0], f"{name}_certified": [True, False]}
    page = fragment(snapshot(columns, (name,), warnings=(evil,)))
    assert {"script", "img"} & set(page.tags) == set()
    assert page.text.count(evil) == 4
    assert [tag for tag, names in page.attributes if any(key.startswith("on") for key in names)] == []


def test_html_has_neither_script_nor_style_sheet_nor_address() -> None:
    page = fragment(revenue(copies=3, warnings=("w",)))
    assert set(page.tags) <= {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "svg", "abbr"}
    assert "http" not in revenue()._repr_html_()


def test_html_can_be_heard() -> None:
    page = fragment(revenue())
    drawings = [names for tag, names in page.attributes if tag == "svg"]
    assert all(names["role"] == "img" for names in drawings)
    assert drawings[0]["aria-label"] == "95 % interval: 57.1 M ± 1.7 M"
    progress = next(names for _, names in page.attributes if names.get("role") == "progressbar")
    assert (progress["aria-label"], progress["aria-valuenow"]) == ("rows read", "42")
    assert all(names.get("scope") == "col" for tag, names in page.attributes if tag == "th")


def test_html_takes_its_colours_from_the_page() -> None:
    html = revenue()._repr_html_()
    assert "currentColor" in html
    assert {part.split(";")[0].split('"')[0] for part in html.split("color:")[1:]} == {"inherit"}
