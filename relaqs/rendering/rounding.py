"""How numbers are written: the interval decides how many digits its value may show.

The convention is the Guide to the Expression of Uncertainty in Measurement (GUM 7.2.6): a half-width is
written with two significant digits and the value to the same decimal place, so `120.0 M ± 3.1 M`. A value far
smaller than its half-width keeps its first digit, so `0.3 M ± 310 M`. Numbers of a column share one suffix
(k, M, B, T). What is exact is written in full, with thousands separators.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

import pyarrow as pa

from relaqs.rendering.moments import show_duration, show_moment

UNKNOWN = "±?"
_EXACTLY = Context(prec=700)  # holds every float between 5e-324 and 1.8e308 to its last digit shown
_SUFFIXES = {0: "", 3: " k", 6: " M", 9: " B", 12: " T"}
_SMALLEST_PLAIN, _LARGEST_PLAIN = -4, 17  # powers of ten; beyond these a number is written as 1.5e-7
_MOST_DECIMALS = 4
_SAME_SIDES = Decimal("0.1")  # sides that differ by less than this share of the half-width are shown as one


@dataclass(frozen=True, slots=True)
class Cell:
    """An approximate value and its interval. low, high: None where nothing bounds the value."""

    value: object
    low: object = None
    high: object = None
    certified: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell as text. margin: "± 3.1 M", "+1.9/−1.5 M", "(≤ 8.0)", "±?", or "" where the value is exact."""

    value: str
    margin: str = ""
    certified: bool = True

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.value, self.margin, self.mark) if part)

    @property
    def mark(self) -> str:
        """Return "?" where an interval is shown that nothing vouches for."""
        return "" if self.certified or self.margin in ("", UNKNOWN) else "?"


@dataclass(frozen=True, slots=True)
class Unit:
    """The power of ten a column is written in, and the text that says so."""

    exponent: int
    text: str

    def write(self, number: Decimal, place: int) -> str:
        """Return the number rounded to 10**place, in this unit, without its text."""
        rounded = _round(number, place)
        decimals = max(0, self.exponent - place)
        return f"{rounded.scaleb(-self.exponent, _EXACTLY):,.{decimals}f}"


def show_column(cells: Sequence[Cell]) -> tuple[Shown, ...]:
    """Return the cells of one approximate column as text, in one common unit."""
    unit = _common_unit([spread for cell in cells if (spread := _spread(cell)) is not None])
    return tuple(_show(cell, unit) for cell in cells)


def show_value(value: object, *, group_from: int = 10_000) -> str:
    """Return an exact value in full.

    Thousands are separated from `group_from` on: years and small keys stay as people write them.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return _show_number(value, group_from)
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case pa.MonthDayNano():
            return show_duration(*value)
        case bytes():
            return value.hex()
        case _:
            return visible(str(value))


def visible(text: str) -> str:
    """Return the text with control characters (line ends, terminal escapes) spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def show_percent(share: float) -> str:
    """Return a finite share in percent with two significant digits, and never "100 %" below the whole."""
    percent = Decimal(repr(float(share))) * 100
    decimals = max(0, 1 - percent.adjusted()) if percent else 0
    while share < 1 and round(percent, decimals) >= 100:
        decimals += 1
    return f"{percent:,.{decimals}f} %"


@dataclass(frozen=True, slots=True)
class _Spread:
    """A numeric cell that has an interval. low, high: None or finite, and not both None."""

    value: Decimal
    low: Decimal | None
    high: Decimal | None

    @property
    def half_width(self) -> Decimal:
        if self.low is None or self.high is None:
            bound = self.low if self.high is None else self.high
            assert bound is not None
            return abs(self.value - bound)
        return (self.high - self.low) / 2

    @property
    def place(self) -> int:
        return _place(self.half_width)

    @property
    def value_place(self) -> int:
        return _own_place(self.value, self.place)


def _show(cell: Cell, unit: Unit) -> Shown:
    if _is_exact(cell):
        return Shown(show_value(cell.value, group_from=1_000))
    cell = _read(cell)
    if (moment := _moment(cell)) is not None:
        return Shown(*moment, cell.certified)
    if _is_observed(cell.low, cell.value):
        return Shown(f"≥ {show_value(cell.value)}", _beyond("≤", cell.value, cell.high), cell.certified)
    if _is_observed(cell.high, cell.value):
        return Shown(f"≤ {show_value(cell.value)}", _beyond("≥", cell.value, cell.low), cell.certified)
    if (spread := _spread(cell)) is not None:
        return _show_spread(spread, _fitting(spread, unit), cell.certified)
    return Shown(_show_unbounded(cell.value), _show_range(cell), cell.certified)


_READERS: tuple[Callable[[str], object], ...] = (
    Decimal,
    datetime.date.fromisoformat,
    datetime.datetime.fromisoformat,
    datetime.time.fromisoformat,
)


def _read(cell: Cell) -> Cell:
    """Return a cell of text with the numbers or moments that its value and ends are, as SUMMARIZE gives them.

    A cell without both ends stays: its value may be any text.
    """
    texts = [part for part in (cell.value, cell.low, cell.high) if isinstance(part, str)]
    if len(texts) < 3:
        return cell
    for reads in _READERS:
        try:
            value, low, high = map(reads, texts)
            return Cell(value, low, high, cell.certified)
        except (ValueError, ArithmeticError):
            continue
    return cell


def _moment(cell: Cell) -> tuple[str, str] | None:
    """Return a date, a time or a duration with an interval as text, and its margin; None for what is none."""
    kinds = (datetime.date, datetime.time, pa.MonthDayNano)
    value, low, high = cell.value, cell.low, cell.high
    if isinstance(value, kinds) and isinstance(low, kinds) and isinstance(high, kinds):
        return show_moment(value, low, high)
    return None


def _show_spread(cell: _Spread, unit: Unit, certified: bool) -> Shown:
    place = cell.place
    value = unit.write(cell.value, cell.value_place) + unit.text
    if cell.high is None and cell.low is not None:
        margin = f"(≥ {unit.write(_round(cell.low, place, ROUND_FLOOR), place)}{unit.text})"
    elif cell.low is None and cell.high is not None:
        margin = f"(≤ {unit.write(_round(cell.high, place, ROUND_CEILING), place)}{unit.text})"
    else:
        margin = _two_sided(cell, unit) + unit.text
    return Shown(value, margin, certified)


def _two_sided(cell: _Spread, unit: Unit) -> str:
    """Return the margin without the unit's text: one number where both sides are about the same."""
    assert cell.low is not None
    assert cell.high is not None
    above, below, place = cell.high - cell.value, cell.value - cell.low, cell.place
    if above < 0 or below < 0:  # the interval does not hold the estimate (it may be corrected for bias)
        return f"in {unit.write(cell.low, place)} … {unit.write(cell.high, place)}"
    if abs(above - below) < max(_power(place), cell.half_width * _SAME_SIDES):
        return f"± {unit.write(cell.half_width, place)}"
    up, down = (unit.write(side, _own_place(side, place)) for side in (above, below))
    return f"+{up}/−{down}"


def _show_range(cell: Cell) -> str:
    """Return the margin of a value that is no finite number: numbers rounded outwards, in one unit."""
    if cell.low is None or cell.high is None or isinstance(cell.value, float):
        return UNKNOWN
    low, high = _number(cell.low), _number(cell.high)
    if low is None or high is None:
        return (
            UNKNOWN if isinstance(cell.low, float) else f"in {show_value(cell.low)} … {show_value(cell.high)}"
        )
    place, unit = _place(high - low), _unit_of(max(abs(low), abs(high)))
    ends = (_round(low, place, ROUND_FLOOR), _round(high, place, ROUND_CEILING))
    return f"in {unit.write(ends[0], place)} … {unit.write(ends[1], place)}{unit.text}"


def _show_unbounded(value: object) -> str:
    """Return a value without a known error: a number with three digits, anything else as it is."""
    number = _number(value)
    if number is None or not number:
        return show_value(value)
    place = number.adjusted() - 2
    unit = _unit_of(number)
    return unit.write(number, place) + unit.text


def _beyond(sign: str, value: object, bound: object) -> str:
    """Return the far bound of a value that is itself a bound, rounded outwards; "" where there is none."""
    near, far = _number(value), _number(bound)
    if far is None:
        return "" if bound is None or isinstance(bound, float) else f"({sign} {show_value(bound)})"
    assert near is not None
    place = _place(abs(far - near))
    outwards = _round(far, place, ROUND_CEILING if far > near else ROUND_FLOOR)
    unit = _unit_of(outwards)
    return f"({sign} {unit.write(outwards, place)}{unit.text})"


def _is_exact(cell: Cell) -> bool:
    """Whether a value is final, be it that there is none."""
    if cell.value is None:
        return cell.certified and cell.low is None and cell.high is None
    return _is_observed(cell.low, cell.value) and cell.low == cell.high


def _is_observed(bound: object, value: object) -> bool:
    """Whether a value is its own bound: the least or the greatest seen so far."""
    if isinstance(value, float | Decimal) and isinstance(bound, float | Decimal):
        return math.isfinite(value) and float(bound) == float(value)  # bounds are doubles, values decimals
    return value is not None and bound == value


def _spread(cell: Cell) -> _Spread | None:
    value, low, high = _number(cell.value), _number(cell.low), _number(cell.high)
    if value is None or (low is None and high is None) or value in (low, high):
        return None
    return _Spread(value, low, high)


def _number(value: object) -> Decimal | None:
    """Return the value as a decimal, or None where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def _common_unit(spreads: Sequence[_Spread]) -> Unit:
    """Return the unit of the largest number, smaller where another number would trail too many decimals."""
    if not spreads:
        return Unit(0, "")
    unit = _unit_of(max(max(abs(spread.value), spread.half_width) for spread in spreads))
    finest = min(spread.value_place for spread in spreads)
    exponent = unit.exponent
    while unit.exponent in _SUFFIXES and exponent > 0 and exponent - finest > _MOST_DECIMALS:
        exponent -= 3
    return Unit(exponent, _SUFFIXES[exponent]) if exponent in _SUFFIXES else unit


def _fitting(spread: _Spread, unit: Unit) -> Unit:
    """Return the column's unit, or the cell's own where its digits would start too far behind the point."""
    own = _unit_of(max(abs(spread.value), spread.half_width))
    return unit if own.exponent >= 0 else own


def _unit_of(number: Decimal) -> Unit:
    power = number.adjusted() if number else 0
    if not _SMALLEST_PLAIN <= power <= _LARGEST_PLAIN:
        return Unit(power, f"e{power}")
    exponent = min(12, max(0, power // 3 * 3))
    return Unit(exponent, _SUFFIXES[exponent])


def _place(half_width: Decimal) -> int:
    """Return the decimal place (a power of ten) of the second significant digit, after rounding to it."""
    place = half_width.adjusted() - 1
    return place + (_round(half_width, place).adjusted() > half_width.adjusted())


def _own_place(number: Decimal, place: int) -> int:
    """Return the place, or that of the number's first digit where this is up to four places finer."""
    first = number.adjusted() if number else place
    return first if place - _MOST_DECIMALS <= first < place else place


def _round(number: Decimal, place: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    rounded = number.quantize(_power(place), rounding=rounding, context=_EXACTLY)
    return rounded if rounded else abs(rounded)  # no negative zero


def _power(place: int) -> Decimal:
    return Decimal((0, (1,), place))


def _show_number(number: float | Decimal, group_from: int) -> str:
    if not math.isfinite(number):
        return str(number).replace("nan", "NaN").replace("Infinity", "inf")
    comma = "" if -group_from < number < group_from else ","
    if isinstance(number, Decimal):
        return f"{number:{comma}f}"
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
        return f"{number:{comma}.0f}"
    return f"{number:{comma}}"
