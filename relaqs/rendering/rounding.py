"""How numbers are written: the interval decides how many digits its value may show.

The convention is the Guide to the Expression of Uncertainty in Measurement (GUM 7.2.6): a half-width is
written with two significant digits and the value to the same decimal place, so `120.0 M ± 3.1 M`. A value
far smaller than its half-width keeps its first digit, so `0.3 M ± 310 M`. Numbers of a column share one
suffix (k, M, B, T). What is exact is written in full, with thousands separators.

How dates, times and durations with an interval are written: 2020-05-16 ± 12 days, 02:30:00 ± 4.0 min.

The half-width has two significant digits, as that of a number has, and a unit of time. The moment is
written as finely as that. What SQL calls an INTERVAL is a duration here, and written as DuckDB writes it.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

import pyarrow as pa

UNKNOWN = "±?"
_EXACTLY = Context(prec=700)  # holds every float between 5e-324 and 1.8e308 to its last digit shown
_NOT_IN_A_BLOB = re.compile(r"""[^ -~]|[\\'"]""")  # what DuckDB writes as \xAA
_UNCLEAR = re.compile(r"|NULL| .*|.* |'.*'", re.DOTALL)  # text that is shown in quotes
_SUFFIXES = {0: "", 3: " k", 6: " M", 9: " B", 12: " T"}
_SMALLEST_PLAIN, _LARGEST_PLAIN = -4, 17  # powers of ten; beyond these a number is written as 1.5e-7
_DIGITS_OF_A_MEASURE = 6
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

    Thousands are separated from `group_from` on: years and small keys stay as people write them. Text is in
    quotes where it reads as NULL, as nothing, or as text in quotes.
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
            return show_bytes(value)
        case str() if _UNCLEAR.fullmatch(value):
            return f"'{visible(value)}'"
        case _:
            return visible(str(value))


def show_bytes(value: bytes) -> str:
    r"""Return bytes as DuckDB writes and reads a BLOB."""
    return _NOT_IN_A_BLOB.sub(lambda found: f"\\x{ord(found[0]):02X}", value.decode("latin-1"))


def show_measured(value: object) -> str:
    """Return an exact number that was computed: six digits, but all before the point and a decimal's cents.

    Exports have all digits.
    """
    if isinstance(value, float | Decimal) and math.isfinite(value) and value:
        place = min(0, Decimal(value).adjusted() - _DIGITS_OF_A_MEASURE + 1)
        if isinstance(value, float):
            value = round(value, -place)
        elif value != (rounded := _round(value, min(place, -2))):
            value = rounded
    return show_value(value, group_from=1_000)


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
        return Shown(show_measured(cell.value))
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


Duration = tuple[int, int, int]
"""Months, days and nanoseconds, as pyarrow's MonthDayNano."""
Moment = datetime.datetime | datetime.date | datetime.time | Duration

_UNITS = (
    ("days", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("µs", 1),
)
_DAY, _MINUTE, _SECOND, _MILLISECOND = 86_400_000_000, 60_000_000, 1_000_000, 1_000


def show_duration(months: int, days: int, nanoseconds: int) -> str:
    """Return a value of type INTERVAL as text, as DuckDB casts it to VARCHAR."""
    years = abs(months) // 12 * (1 if months > 0 else -1)
    counted = ((years, "year"), (months - 12 * years, "month"), (days, "day"))
    parts = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in counted if count]
    if nanoseconds or not parts:
        seconds, fraction = divmod(abs(nanoseconds) // 1_000, _SECOND)
        sign, rest = "-" if nanoseconds < 0 else "", f".{fraction:06}".rstrip("0").rstrip(".")
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{rest}")
    return " ".join(parts)


def microseconds_between(earlier: Moment, later: Moment) -> int | None:
    """Return how many microseconds lie between two moments of one kind, None where none can be told."""
    if isinstance(earlier, tuple) or isinstance(later, tuple):
        if isinstance(earlier, tuple) and isinstance(later, tuple):
            return _length(later) - _length(earlier)
        return None
    if isinstance(earlier, datetime.time) and isinstance(later, datetime.time):
        return _of_day(later) - _of_day(earlier)
    if isinstance(earlier, datetime.time) or isinstance(later, datetime.time):
        return None
    start, end = _full(earlier), _full(later)
    if (start.tzinfo is None) != (end.tzinfo is None):
        return None
    return (_since_year_one(end) - _since_year_one(start)) // datetime.timedelta(microseconds=1)


def seconds_of(moment: Moment) -> float:
    """Return a moment as seconds from a beginning that all moments of its kind have."""
    if isinstance(moment, tuple):
        return _length(moment) / _SECOND
    if isinstance(moment, datetime.time):
        return _of_day(moment) / _SECOND
    return _since_year_one(_full(moment)).total_seconds()


def show_moment(value: Moment, low: Moment, high: Moment) -> tuple[str, str] | None:
    """Return a moment and its margin as text, None where its interval does not hold it or has no length."""
    below, above = microseconds_between(low, value), microseconds_between(value, high)
    if below is None or above is None or below < 0 or above < 0 or not below + above:
        return None
    half = (below + above) / 2
    unit, size = next((each for each in _UNITS if each[1] <= half), _UNITS[-1])
    if abs(above - below) < half * float(_SAME_SIDES):
        margin = f"± {_two_digits(half / size)}"
    else:
        margin = f"+{_two_digits(above / size)}/−{_two_digits(below / size)}"
    return _as_fine(value, half), f"{margin} {unit}"


def _two_digits(number: float) -> str:
    """Return a number with two significant digits, as a half-width is written, and none of a small part."""
    return f"{number:,.1f}" if number < 9.95 else f"{Decimal(round(number)):,}"


def _as_fine(value: Moment, half: float) -> str:
    """Return the moment as finely as a half-width in microseconds tells it."""
    if isinstance(value, tuple):
        return _rounded_duration(value, half)
    if isinstance(value, datetime.datetime):
        if half >= 10 * _DAY:
            return value.date().isoformat()
        return value.isoformat(sep=" ", timespec=_timespec(half))
    if isinstance(value, datetime.time):
        return value.isoformat(timespec=_timespec(half))
    return value.isoformat()


def _rounded_duration(value: Duration, half: float) -> str:
    """Return a duration in days and hours, without what is far below its half-width."""
    step = next((size for _, size in _UNITS if size * 10 <= half), 1)
    length = _length(value)
    steps = (abs(length) + step // 2) // step * step
    days, rest = divmod(steps, _DAY)
    sign = -1 if length < 0 else 1
    return show_duration(0, sign * days, sign * rest * 1_000)


def _timespec(half: float) -> str:
    steps = (("minutes", _MINUTE), ("seconds", _SECOND), ("milliseconds", _MILLISECOND))
    return next((name for name, size in steps if half >= 10 * size), "microseconds")


def _full(moment: datetime.datetime | datetime.date) -> datetime.datetime:
    if isinstance(moment, datetime.datetime):
        return moment
    return datetime.datetime.combine(moment, datetime.time())


def _since_year_one(moment: datetime.datetime) -> datetime.timedelta:
    """Return the time since the year 1. In one zone, Python's own difference is that of what clocks show."""
    offset = moment.utcoffset() or datetime.timedelta()
    return moment.replace(tzinfo=None) - datetime.datetime.min - offset


def _length(duration: Duration) -> int:
    """Return the microseconds of a duration, where a month has 30 days."""
    months, days, nanoseconds = duration
    return (30 * months + days) * _DAY + nanoseconds // 1_000


def _of_day(time: datetime.time) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond
