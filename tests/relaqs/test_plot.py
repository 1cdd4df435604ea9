"""A snapshot as a chart of matplotlib: what is drawn where, how far its error bars go, what is hollow."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.dates import date2num

import relaqs
from relaqs.arguments import ArgumentError
from relaqs.queries.snapshot import Snapshot
from tests.relaqs.examples import NATIONS, REVENUE, revenue, snapshot


@pytest.fixture(autouse=True)
def _off_screen() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    pyplot.close("all")


def by_day(**attributes: Any) -> Snapshot:
    """Three days, newest first. The second day has no lower bound and is not certified."""
    columns = {
        "day": [datetime.date(2020, 1, day) for day in (3, 2, 1)],
        "late": [30.0, 20.0, 10.0],
        "late_low": [29.0, None, 8.0],
        "late_high": [32.0, 25.0, 11.0],
        "late_certified": [True, False, True],
    }
    return snapshot(columns, ("late",), **attributes)


def bars_of(axes: Axes) -> BarContainer:
    (bars,) = [each for each in axes.containers if isinstance(each, BarContainer)]
    return bars


def spans_of(container: ErrorbarContainer) -> list[tuple[float, float]]:
    """Return where each error bar begins and ends."""
    return [tuple(segment[:, 1]) for segment in container.lines[2][0].get_segments()]


def test_names_give_bars() -> None:
    answer = revenue()
    names = [f"{name} · {year}" for name, year in zip(NATIONS, range(1992, 1998), strict=True)]
    axes = answer.plot(x="n_name", series="n_name")
    assert [text.get_text() for text in axes.get_xticklabels()] == list(NATIONS)
    heights = [bar.get_height() for each in axes.containers if isinstance(each, BarContainer) for bar in each]
    assert heights == list(REVENUE)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("n_name", "revenue")
    columns = answer.table.drop_columns("year").append_column("year", [[str(y) for y in range(1992, 1998)]])
    text = snapshot({name: columns[name] for name in ("n_name", "year")} | {"n": [1.0] * 6}, is_exact=True)
    assert [each.get_text() for each in text.plot().get_xticklabels()] == names


def test_bars_without_certified_intervals_are_hollow() -> None:
    columns = {
        "origin": ["EWR", "JFK"],
        "late": [15.0, 12.0],
        "late_low": [14.0, None],
        "late_high": [17.0, None],
        "late_certified": [True, False],
    }
    axes = snapshot(columns, ("late",)).plot()
    bars = bars_of(axes)
    assert [bar.get_height() for bar in bars] == [15, 12]
    assert [bar.get_facecolor()[3] for bar in bars] == [1, 0]
    assert bars.errorbar is not None
    assert spans_of(bars.errorbar) == [(14, 17), (12, 12)]
    assert "not certified" in axes.get_title()


def test_days_give_a_line_in_their_order() -> None:
    axes = by_day().plot()
    line = axes.get_lines()[0]
    assert list(line.get_ydata()) == [10, 20, 30]
    full, hollow = (each for each in axes.containers if isinstance(each, ErrorbarContainer))
    assert spans_of(full) == [(8, 11), (29, 32)]
    assert spans_of(hollow) == [(20, 25)]
    assert hollow.lines[0].get_markerfacecolor() == "none"
    assert axes.get_title().startswith("Estimate")


def test_an_exact_answer_has_bars_without_length_and_nothing_hollow() -> None:
    axes = snapshot({"k": ["a", "b"], "n": [1, 2]}, is_exact=True).plot()
    assert [bar.get_height() for bar in bars_of(axes)] == [1, 2]
    assert axes.get_title().startswith("Exact")
    assert "certified" not in axes.get_title()


def test_a_series_has_a_colour_each() -> None:
    columns = {"k": ["a", "a", "b"], "month": [1, 2, 1], "n": [1.0, 2.0, 3.0]}
    axes = snapshot(columns, is_exact=True).plot(x="month", y="n", series="k")
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert [list(line.get_ydata()) for line in axes.get_lines() if line.get_linestyle() == "-"] == [
        [1, 2],
        [3],
    ]


def test_other_keys_of_an_estimate_are_series() -> None:
    columns = {
        "day": [1, 2, 1, 2],
        "origin": ["EWR", "EWR", "JFK", "JFK"],
        "late": [1.0, 2.0, 3.0, 4.0],
        "late_low": [0.0] * 4,
        "late_high": [5.0] * 4,
        "late_certified": [True] * 4,
    }
    legend = snapshot(columns, ("late",)).plot().get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["EWR", "JFK"]


def test_one_row_and_no_rows_and_values_that_are_missing() -> None:
    one = snapshot({"n": [5], "n_low": [4], "n_high": [6], "n_certified": [True]}, ("n",)).plot()
    assert [bar.get_height() for bar in bars_of(one)] == [5]
    none = snapshot({"k": np.array([], dtype="U1"), "n": np.array([], dtype=float)}).plot()
    assert len(bars_of(none)) == 0
    missing = snapshot({"k": [None, "b"], "n": [None, 2.0]}, is_exact=True).plot()
    assert [bar.get_height() for bar in bars_of(missing)][1] == 2


def test_it_draws_into_axes_of_ones_own() -> None:
    _, axes = pyplot.subplots()
    assert by_day().plot(axes) is axes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": "nope"}, "no column 'nope'; the columns are n_name, year, revenue"),
        ({"x": "nope"}, "no column 'nope'"),
        ({"series": "nope"}, "no column 'nope'"),
        ({"y": "n_name"}, "'n_name' has no numbers"),
    ],
)
def test_what_cannot_be_drawn_says_so(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        revenue().plot(**arguments)  # type: ignore[arg-type]


def test_many_series_and_no_numbers_are_refused() -> None:
    many = snapshot({"k": [f"k{i}" for i in range(30)], "x": [1] * 30, "n": [1.0] * 30}, is_exact=True)
    with pytest.raises(ArgumentError, match="30 series"):
        many.plot(x="x", series="k")
    with pytest.raises(ArgumentError, match="no column of numbers"):
        snapshot({"k": ["a"]}).plot()


def test_matplotlib_is_named_where_it_is_missing() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from tests.relaqs.examples import revenue\n"
        "try:\n    revenue().plot()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "relaqs[plot]" in done.stdout


ANY = pa.table({"i": [1]})  # a session reads some table


def places_of(axes: Axes) -> list[tuple[float, str]]:
    """Return where each bar stands, and the colour that it has."""
    bars = [bar for each in axes.containers if isinstance(each, BarContainer) for bar in each]
    return [(round(bar.get_x(), 6), str(bar.get_edgecolor())) for bar in bars]


def test_values_that_are_written_alike_stand_apart() -> None:
    db = relaqs.connect(ANY)
    values = "('NULL'), (NULL), (''), (' '), ('a'), ('a '), ('$a$'), ('_a'), ('a · b')"
    axes = db.sql(f"SELECT s, count(*) AS n FROM (VALUES {values}) t(s) GROUP BY s").plot()
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert len(set(places_of(axes))) == len(set(names)) == 9
    assert {"NULL", "'NULL'", "''", "' '", "a", "'a '"} <= set(names)
    two = "(VALUES ('a · b', 'c'), ('a', 'b · c'), (NULL, 'c'), ('NULL', 'c')) t(s, r)"
    assert len(set(places_of(db.sql(f"SELECT s, r, count(*) AS n FROM {two} GROUP BY ALL").plot()))) == 4
    lines = f"SELECT d, s, count(*) AS n FROM {two}, (VALUES (DATE '2020-01-01'), (DATE '2020-01-02')) u(d)"
    axes = db.sql(f"{lines} GROUP BY ALL").plot(x="d", series="s")
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"a · b", "a", "NULL", "'NULL'"}


def test_rows_without_keys_and_with_several_hide_no_other() -> None:
    db = relaqs.connect(ANY)
    axes = db.sql("SELECT s, n FROM (VALUES ('a', 1), ('a', 2), ('b', 3)) t(s, n)").plot()
    assert len(set(places_of(axes))) == 3
    keys = (
        "SELECT s, y, sum(n) AS n FROM (VALUES ('a', 1, 1), ('a', 2, 2), ('b', 1, 3)) t(s, y, n) GROUP BY ALL"
    )
    axes = db.sql(keys).plot()
    assert len(set(places_of(axes))) == 3
    assert {text.get_text() for text in axes.get_xticklabels()} == {"a · 1", "a · 2", "b · 1"}


def test_a_line_says_which_rows_have_no_place() -> None:
    rows = "(VALUES (1.0::DOUBLE, 5), (2.0, 6), (NULL, 7), ('NaN', 8)) t(x, n)"
    axes = relaqs.connect(ANY).sql(f"SELECT x, sum(n) AS n FROM {rows} GROUP BY x").plot()
    assert "2 rows not drawn: NULL or NaN along the line" in axes.get_title()


def test_midnights_with_a_zone_are_days_where_these_stay_apart() -> None:
    db = relaqs.connect(ANY, timezone="Europe/Zurich")
    days = "unnest(['2024-10-26 00:00+02', '2024-10-27 00:00+02', '2024-10-28 00:00+01']::TIMESTAMPTZ[])"
    axes = db.sql(f"SELECT 'a' AS s, {days} AS d, 1 AS n").plot(x="s", series="d")
    assert axes.get_legend() is not None
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["2024-10-26", "2024-10-27", "2024-10-28"]


def test_a_line_of_moments_has_its_zone_and_leaves_out_what_python_has_no_moment_for() -> None:
    db = relaqs.connect(ANY, timezone="Asia/Tokyo")
    days = "'2024-10-26 00:00+09', '2024-10-27 00:00+09', '2024-10-28 00:00+09', 'infinity'"
    axes = db.sql(f"SELECT unnest([{days}]::TIMESTAMPTZ[]) AS d, 1 AS n").plot(x="d")
    assert "1 row not drawn" in axes.get_title()
    axes.figure.canvas.draw()
    tokyo = ZoneInfo("Asia/Tokyo")
    midnights = {float(date2num(datetime.datetime(2024, 10, day, tzinfo=tokyo))) for day in (26, 27, 28)}
    assert midnights <= {float(tick) for tick in axes.get_xticks()}
