"""How numbers are written: a table of cases, and laws that hold for any interval."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.rendering.rounding import Cell, show_column, show_moment, show_percent, show_value, visible

NAN, INF = float("nan"), float("inf")
DAY = datetime.date(1998, 8, 2)
NOON, MINUTE = datetime.datetime(2020, 5, 16, 12), datetime.timedelta(minutes=1)

# value, low, high, certified → what is shown when the cell stands alone in its column
ALONE = [
    # two significant digits of the half-width, the value to the same place, one suffix for both
    ((120.0e6, 116.9e6, 123.1e6, True), "120.0 M ± 3.1 M"),
    ((57.12e6, 55.66e6, 58.58e6, True), "57.1 M ± 1.5 M"),
    ((5213.0, 5178.0, 5248.0, True), "5.213 k ± 0.035 k"),
    ((41.27, 40.83, 41.71, True), "41.27 ± 0.44"),
    ((2.5e9, 2.2e9, 2.8e9, True), "2.50 B ± 0.30 B"),
    ((3.0e15, 2.5e15, 3.5e15, True), "3,000 T ± 500 T"),
    # the second digit moves when rounding carries: 9.96 is 10, not 10.0
    ((99.7, 89.74, 109.66, True), "100 ± 10"),
    # a suffix steps down rather than trail more than four decimals
    ((12_345_678.0, 12_345_666.0, 12_345_690.0, True), "12,345.678 k ± 0.012 k"),
    ((5213.4, 5212.9, 5213.9, True), "5,213.40 ± 0.50"),
    # a value far smaller than its half-width, and a side far smaller than the other, keep their first digit
    ((300_000.0, -3.1e8, 3.106e8, True), "0.3 M ± 310 M"),
    ((78.0, 56.0, 5578.0, True), "0.08 k +5.5/−0.02 k"),
    ((1250.0, 862.0, 76_583.0, True), "1 k +75/−0.4 k"),
    ((1234.0, -3.0, 2471.0, True), "1.2 k ± 1.2 k"),
    ((1e-12, -5.0, 5.0, True), "0.0 ± 5.0"),
    # negative values, and no negative zero
    ((-5.2, -5.9, -4.5, True), "-5.20 ± 0.70"),
    ((-0.001, -0.501, 0.499, True), "-0.001 ± 0.50"),
    ((-1e-9, -0.5, 0.5, True), "0.00 ± 0.50"),
    # very small and very large numbers
    ((1.23e-7, 1.21e-7, 1.25e-7, True), "1.230e-7 ± 0.020e-7"),
    ((1.0e300, 0.9e300, 1.1e300, True), "1.00e300 ± 0.10e300"),
    ((0.0123, 0.0119, 0.0127, True), "0.01230 ± 0.00040"),
    # decimals round as decimals
    ((Decimal("1000.125"), Decimal("999.875"), Decimal("1000.375"), True), "1,000.12 ± 0.25"),
    # asymmetric: only where it shows at that rounding
    ((100, 81.4, 121.6, True), "100 +22/−19"),
    ((100, 78.4, 121.6000001, True), "100 ± 22"),
    ((5213.4, 5000.0, 5600.0, True), "5.21 k +0.39/−0.21 k"),
    ((2.0, 2.5, 3.0, True), "2.00 in 2.50 … 3.00"),
    # not certified
    ((38.7e6, 37.5e6, 39.9e6, False), "38.7 M ± 1.2 M ?"),
    # exact inside an estimate
    ((1234, 1234, 1234, True), "1,234"),
    ((Decimal("56586554400.73"),) * 3 + (True,), "56,586,554,400.73"),
    ((Decimal("1.10"), 1.1, 1.1, True), "1.10"),
    # the least or greatest so far
    ((104949.5, 104949.5, None, True), "≥ 104,949.5"),
    ((5.2, None, 5.2, True), "≤ 5.2"),
    ((50.0, 50.0, 100.0, True), "≥ 50 (≤ 100)"),
    ((DAY, DAY, None, True), "≥ 1998-08-02"),
    (("ALGERIA", None, "ALGERIA", True), "≤ ALGERIA"),
    # zero rows seen: the bound is rounded outwards
    ((0, 0, 3.689, False), "≥ 0 (≤ 3.7) ?"),
    ((0, 0, 3.61, False), "≥ 0 (≤ 3.7) ?"),
    # one side known, and the value is not it
    ((10.0, 8.04, None, True), "10.0 (≥ 8.0)"),
    ((10.0, None, 18.26, True), "10.0 (≤ 18.3)"),
    # nothing known: three digits and no claim
    ((12_345_678.9, None, None, False), "12.3 M ±?"),
    ((0.0, None, None, False), "0 ±?"),
    ((NAN, None, None, False), "NaN ±?"),
    ((NAN, 1.0, 2.0, False), "NaN ±?"),
    ((INF, 1.0, INF, False), "inf ±?"),
    ((3.0, NAN, NAN, False), "3.00 ±?"),
    ((None, None, None, False), "NULL ±?"),
    ((None, None, None, True), "NULL"),
    (("x", None, None, False), "x ±?"),
    ((None, 0.0, 8_736_133.144659683, False), "NULL in 0.0 … 8.8 M ?"),
    ((None, -51.234, 3.2, True), "NULL in -52 … 4"),
    ((None, 0.0, INF, False), "NULL ±?"),
    ((None, "a", "b", False), "NULL in a … b ?"),
    # an interval of a date or a time
    ((DAY, datetime.date(1998, 7, 1), datetime.date(1998, 9, 1), True), "1998-08-02 ± 31 days"),
    ((NOON, NOON - 90 * MINUTE, NOON + 90 * MINUTE, True), "2020-05-16 12:00 ± 1.5 h"),
    ((NOON, NOON - 20 * MINUTE, NOON + 10 * MINUTE, False), "2020-05-16 12:00 +10/−20 min ?"),
    ((NOON, NOON - MINUTE / 600, NOON + MINUTE / 600, True), "2020-05-16 12:00:00.000 ± 100 ms"),
    ((datetime.time(9), datetime.time(8), datetime.time(10), True), "09:00 ± 1.0 h"),
    (
        (NOON, NOON + MINUTE, NOON + 2 * MINUTE, True),
        "2020-05-16 12:00:00 in 2020-05-16 12:01:00 … 2020-05-16 12:02:00",
    ),
    # numbers and moments as text, as SUMMARIZE gives them; a text without both ends is no number
    (("25.00412", "24.11", "25.9", True), "25.00 ± 0.90"),
    (("2020-05-16 12:00:00", "2020-05-15", "2020-05-18", True), "2020-05-16 12:00 ± 1.5 days"),
    (("12345", "12345", None, True), "≥ 12345"),
    (("b", "a", "c", True), "b in a … c"),
]


@pytest.mark.parametrize(("cell", "text"), ALONE, ids=[text for _, text in ALONE])
def test_a_cell_alone(cell: tuple[object, object, object, bool], text: str) -> None:
    (shown,) = show_column([Cell(*cell)])
    assert shown.text == text


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([(57.1e6, 55.4e6, 58.8e6), (3.1e6, 3.0e6, 3.2e6)], ["57.1 M ± 1.7 M", "3.10 M ± 0.10 M"]),
        ([(1.2e9, 1.1e9, 1.3e9), (300.0, 280.0, 320.0)], ["1,200,000 k ± 100,000 k", "0.300 k ± 0.020 k"]),
        ([(1e-7, 0.9e-7, 1.1e-7), (1.5e6, 1.4e6, 1.6e6)], ["1.00e-7 ± 0.10e-7", "1,500,000 ± 100,000"]),
        ([(42, 42, 42), (4000.0, 3000.0, 5000.0)], ["42", "4.0 k ± 1.0 k"]),
    ],
)
def test_a_column_shares_its_unit(cells: list[tuple[object, object, object]], texts: list[str]) -> None:
    assert [shown.text for shown in show_column([Cell(*cell, True) for cell in cells])] == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1994, "1994"),
        (-9999, "-9999"),
        (12345, "12,345"),
        (-12345, "-12,345"),
        (25.522005853257337, "25.522005853257337"),
        (2.0, "2"),
        (1e22, "1e+22"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1234567.10"), "1,234,567.10"),
        (Decimal("NaN"), "NaN"),
        (NAN, "NaN"),
        (-INF, "-inf"),
        (None, "NULL"),
        (True, "true"),
        (b"\x01\xff", "\\x01\\xFF"),
        (DAY, "1998-08-02"),
        (datetime.datetime(2020, 1, 1, 2, 3), "2020-01-01 02:03:00"),
        ([1, 2], "[1, 2]"),
        ("plain 日本", "plain 日本"),
        ("\x1b[31mred\n", "\\x1b[31mred\\n"),
    ],
)
def test_exact_values_are_shown_in_full(value: object, text: str) -> None:
    assert show_value(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.42, "42 %"),
        (0.0279, "2.8 %"),
        (0.0042, "0.42 %"),
        (0.999, "99.9 %"),
        (0.99999, "99.999 %"),
        (1.0, "100 %"),
        (2.5, "250 %"),
        (0.0, "0 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert show_percent(share) == text


def test_visible_keeps_no_control_character() -> None:
    assert visible("".join(map(chr, range(0xA0)))).isprintable()


@given(
    value=st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-3),
    half_width=st.floats(1e-3, 1e9),
)
def test_what_is_shown_is_within_half_a_digit_of_what_is_known(value: float, half_width: float) -> None:
    (shown,) = show_column([Cell(value, value - half_width, value + half_width, True)])
    value_text, margin_text = shown.text.split(" ± ")
    known = (value + half_width) - (value - half_width)  # as the interval has it, after floating point
    for text, truth in ((value_text, value), (margin_text, known / 2)):
        number, scale, last_digit = _read(text)
        assert abs(number * scale - truth) <= max(last_digit * scale, half_width / 10) / 2 * (1 + 1e-6)


@given(half_width=st.floats(1e-300, 1e300))
def test_a_half_width_has_two_significant_digits(half_width: float) -> None:
    (shown,) = show_column([Cell(0.0, -half_width, half_width, True)])
    digits = re.sub(r"e.*| [kMBT]|[.,]", "", shown.margin.removeprefix("± ")).lstrip("0")
    assert len(digits) >= 2 or digits in "123456789"
    assert not digits[2:].strip("0")


def _read(text: str) -> tuple[float, float, float]:
    """Return the number, the scale of its suffix, and the worth of its last digit."""
    match = re.fullmatch(r"(-?[\d,]+(?:\.(\d+))?)(?: ([kMBT])|e(-?\d+))?", text)
    assert match, text
    scale = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(match[3] or "", 10.0 ** int(match[4] or 0))
    return float(match[1].replace(",", "")), scale, 10.0 ** -len(match[2] or "")


def test_moments_are_shown_with_as_many_places_as_their_margin_has() -> None:
    day = datetime.datetime(2020, 5, 16, 12, 4, 9)
    days, second = datetime.timedelta(days=12), datetime.timedelta(seconds=1)
    assert show_moment(day, day - days, day + days) == ("2020-05-16", "± 12 days")
    sides = day - 90 * second, day + 60 * second
    assert show_moment(day, *sides) == ("2020-05-16 12:04:09", "+1.0/−1.5 min")
    length, low, high = ((0, 1, seconds * 10**9) for seconds in (7_384, 7_000, 7_768))
    assert show_moment(length, low, high) == ("1 day 02:03:04", "± 6.4 min")
