"""Filters of a page: what somebody selected in one panel, as a condition on a table that other panels read.

A selection is of values of a key column of an answer. The expression behind that column is found in the
panel's SELECT, and has to be of one table. Every other panel that reads this table is asked again, as if
the table had only the rows where the expression has these values. Pure: from text to text.

Values from outside become literals of the column's type. Nothing that a page sends becomes SQL as it is.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from relaqs_dashboards.answers import LONGEST_TEXT
from relaqs_dashboards.settings import PageError, PanelSettings, shown

DIALECT = "duckdb"
_NO_KEYS = (exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter)
_BEYOND_ROWS = ("rollup", "cube", "grouping_sets")  # their NULLs stand for totals

Tables = Mapping[str, Sequence[str]]  # names of tables and of their columns, in lower case


class FilterError(PageError):
    """A selection cannot be a filter, or a panel's query cannot be filtered."""


@dataclass(frozen=True, slots=True)
class Brush:
    """What can be selected in a panel: the values of an expression over one table.

    Attributes:
        table: its name, in lower case.
        expression: SQL over the table's columns.
        has_totals: whether a NULL in the answer may stand for a total.
    """

    table: str
    expression: str
    has_totals: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """A selection that holds for a page.

    Attributes:
        id: unique on its page.
        panel: where it was selected. That panel is not filtered by it.
        column: of this panel's answer.
        table: whose rows are filtered, in lower case.
        condition: SQL over the table's columns.
        selection: as the page sent it: {"values": […]} or {"range": [low, high]}.
    """

    id: str
    panel: str
    column: str
    table: str
    condition: str
    selection: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a SELECT reads, and what can be selected in its answer, by the column's position.

    tables: the names after FROM, in lower case: of tables, and of its own WITH.
    columns: of these tables, in lower case.
    """

    tables: frozenset[str]
    brushes: Mapping[int, Brush]
    columns: frozenset[str] = frozenset()


def reading_of(sql: str, tables: Tables) -> Reading:
    """Return what a planned SELECT reads. tables: those that there are.

    >>> tables = {"trips": ["zone", "at"]}
    >>> sql = "SELECT zone, date_trunc('day', at) AS day, count(*) FROM trips GROUP BY ALL"
    >>> print(reading_of(sql, tables).brushes[1].expression)
    DATE_TRUNC('DAY', "at")
    """
    tree = parsed(sql)
    if tree is None:
        return Reading(frozenset(), {})
    names = frozenset(_base(node.name) for node in tree.find_all(exp.Table))
    columns = frozenset(column for name in names for column in tables.get(name, ()))
    return Reading(names, _brushes(tree, tables) if isinstance(tree, exp.Select) else {}, columns)


_UNITS = {"year", "quarter", "month", "week", "day", "hour", "minute"}
_WHOLE_ENOUGH = 0.05  # of a period may be missing at an end: rows come at some distance from each other


def period_of(brush: Brush) -> tuple[str, str] | None:
    """Return the column whose moments an expression cuts to periods, and their unit; None for any other.

    >>> period_of(Brush("trips", "DATE_TRUNC('MONTH', at)", False))
    ('at', 'month')
    """
    tree = parsed(f"SELECT {brush.expression}")
    cut = tree.expressions[0] if isinstance(tree, exp.Select) else None
    if not isinstance(cut, exp.DateTrunc | exp.TimestampTrunc) or not isinstance(cut.this, exp.Column):
        return None
    unit = cut.text("unit").lower()
    return (cut.this.name, unit) if unit in _UNITS else None


def partial_periods(unit: str, first: object, last: object) -> tuple[str, ...]:
    """Return the beginnings of the periods that moments from `first` to `last` fill in part, as ISO text.

    These are the first and the last one, where more than a twentieth of it has no moment.

    >>> partial_periods("month", dt.date(2024, 1, 1), dt.date(2024, 3, 20))
    ('2024-03-01',)
    """
    ends = [_moment(each) for each in (first, last)]
    found = []
    for at, is_last in zip(ends, (False, True), strict=True):
        if at is None:
            continue
        begin = _begin_of(unit, at)
        end = _begin_of(unit, begin + _LONGER_THAN[unit])
        day = dt.timedelta(days=1) if isinstance(last, dt.date) and not isinstance(last, dt.datetime) else _NO
        missing = end - at - day if is_last else at - begin
        if missing > _WHOLE_ENOUGH * (end - begin):
            found.append(begin.date().isoformat() if begin.time() == dt.time() else begin.isoformat())
    return tuple(dict.fromkeys(found))


_NO = dt.timedelta()
_LONGER_THAN = {
    "year": dt.timedelta(days=370),
    "quarter": dt.timedelta(days=95),
    "month": dt.timedelta(days=32),
    "week": dt.timedelta(days=7),
    "day": dt.timedelta(days=1),
    "hour": dt.timedelta(hours=1),
    "minute": dt.timedelta(minutes=1),
}


def _moment(value: object) -> dt.datetime | None:
    """Return the end of a column as a moment of no time zone, None where it is none."""
    try:
        return dt.datetime.fromisoformat(str(value)).replace(tzinfo=None)
    except ValueError:
        return None


def _begin_of(unit: str, at: dt.datetime) -> dt.datetime:
    day = dt.datetime(at.year, at.month, at.day)
    match unit:
        case "year":
            return dt.datetime(at.year, 1, 1)
        case "quarter":
            return dt.datetime(at.year, (at.month - 1) // 3 * 3 + 1, 1)
        case "month":
            return dt.datetime(at.year, at.month, 1)
        case "week":
            return day - dt.timedelta(days=at.weekday())
        case "day":
            return day
        case "hour":
            return day + dt.timedelta(hours=at.hour)
    return day + dt.timedelta(hours=at.hour, minutes=at.minute)


def parsed(sql: str) -> exp.Expr | None:
    """Return the tree of a SELECT that was planned already; None where it cannot be read here."""
    try:
        return sqlglot.parse_one(sql, read=DIALECT)
    except (SqlglotError, RecursionError):
        return None


def _brushes(tree: exp.Select, tables: Tables) -> dict[int, Brush]:
    if any(each.is_star for each in tree.expressions):
        return {}
    sources = _sources(tree, tables)
    group = tree.args.get("group")
    has_totals = group is not None and any(group.args.get(name) for name in _BEYOND_ROWS)
    found = {i: _brush(key.unalias(), sources, tables, has_totals) for i, key in enumerate(tree.expressions)}
    return {i: brush for i, brush in found.items() if brush is not None}


def filtered(sql: str, filters: Iterable[Filter], tables: Tables) -> str:
    """Return the SELECT as if its tables had only the rows that the filters let through.

    The text stays as it is but for the names of tables: `trips AS t` becomes
    `(SELECT * FROM trips WHERE …) AS t`. Raises FilterError where this cannot be done.

    >>> zone = Filter("f1", "p1", "zone", "trips", "zone IN ('a')", {"values": ["a"]})
    >>> filtered("SELECT count(*) FROM Trips", [zone], {"trips": ["zone"]})
    "SELECT count(*) FROM (SELECT * FROM Trips WHERE (zone IN ('a'))) AS Trips"
    """
    tree = parsed(sql)
    if not isinstance(tree, exp.Query):
        raise FilterError("its SQL cannot be taken apart")
    conditions: dict[str, list[str]] = {}
    for each in filters:
        conditions.setdefault(each.table, []).append(f"({each.condition})")
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    text = sql
    for node in sorted(tree.find_all(exp.Table), key=_start, reverse=True):
        name = _base(node.name)
        if name in named and name in conditions:
            raise FilterError(f"its WITH has a query that is called {node.name}, as the table is")
        if name not in tables and name not in named and not isinstance(node.this, exp.Func):
            raise FilterError(f"it reads {node.name}, which may be made of other tables")
        if name in conditions:
            text = _with_rows_filtered(text, node, " AND ".join(conditions[name]))
    return text


def _with_rows_filtered(text: str, node: exp.Table, condition: str) -> str:
    """Return the text with a SELECT in the place of one table's name."""
    begin, end = _start(node), node.this.meta["end"] + 1
    written = text[begin:end]
    if node.args.get("db") is not None:
        raise FilterError(f"it names {node.name} by its schema")
    alias = "" if node.alias else f" AS {written}"
    return f"{text[:begin]}(SELECT * FROM {written} WHERE {condition}){alias}{text[end:]}"


def _start(node: exp.Table) -> int:
    return int(node.this.meta.get("start", -1))


def _base(name: str) -> str:
    """Return the table's name without the key of one of its layouts."""
    return name.lower().partition("@")[0]


def _sources(tree: exp.Select, tables: Tables) -> dict[str, str]:
    """Return the tables of FROM by the names they have there; empty where FROM has anything else.

    Tables whose rows may be missing in the answer (those of a LEFT JOIN) are left out.
    """
    first = tree.args.get("from_") or tree.args.get("from")
    joins: list[exp.Join] = tree.args.get("joins") or []
    nodes = [first.this if first is not None else None, *(join.this for join in joins)]
    if any(join.side.upper() in ("RIGHT", "FULL") for join in joins):
        return {}
    sides = ["", *(join.side.upper() for join in joins)]
    found = {}
    for node, side in zip(nodes, sides, strict=True):
        if not isinstance(node, exp.Table) or _base(node.name) not in tables:
            return {}
        if not side:
            found[node.alias_or_name.lower()] = _base(node.name)
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    return {} if named & set(found.values()) else found


def _brush(key: exp.Expression, sources: Mapping[str, str], tables: Tables, has_totals: bool) -> Brush | None:
    """Return what a key of an answer selects, None where it is no expression over one table."""
    if any(isinstance(node, _NO_KEYS) for node in key.walk()):
        return None
    homes = {_home(column, sources, tables) for column in key.find_all(exp.Column)}
    if len(homes) != 1 or None in homes:
        return None
    (table,) = homes
    assert table is not None
    return Brush(table, key.transform(_unqualified).sql(DIALECT), has_totals)


def _home(column: exp.Column, sources: Mapping[str, str], tables: Tables) -> str | None:
    """Return the table of a column. One that several have by USING is of the first."""
    if column.table:
        return sources.get(column.table.lower())
    return next((each for each in sources.values() if column.name.lower() in tables[each]), None)


def _unqualified(node: exp.Expression) -> exp.Expression:
    return exp.column(exp.to_identifier(node.name, quoted=True)) if isinstance(node, exp.Column) else node


PERIOD = "time"  # the id of the filter that is a period of the page


def in_period(table: str, column: str, type_text: str, days: tuple[str, str]) -> Filter:
    """Return the filter to the days from the first to the last one, both included.

    type_text: of the column. Raises FilterError for what are no days.

    >>> print(in_period("trips", "at", "TIMESTAMP", ("2024-01-01", "2024-01-31")).condition)
    "at" >= CAST('2024-01-01' AS TIMESTAMP) AND "at" < CAST('2024-02-01' AS TIMESTAMP)
    """
    try:
        first, last = (dt.date.fromisoformat(day) for day in days)
        end = last + dt.timedelta(days=1)
    except (ValueError, OverflowError):
        raise FilterError(
            f"a period is from one day to another, as 2024-01-31, not {shown(days[0])}"
        ) from None
    if last < first:
        raise FilterError(f"the period ends on {last}, before it begins on {first}")
    name = exp.to_identifier(column, quoted=True).sql(DIALECT)
    low, high = (f"CAST('{day}' AS {type_text})" for day in (first, end))
    condition = f"{name} >= {low} AND {name} < {high}"
    return Filter(PERIOD, "", column, table, condition, {"range": [first.isoformat(), last.isoformat()]})


def ends_within(ends: tuple[object, object], period: Filter) -> tuple[object, object]:
    """Return the least and the greatest value of a column that a period of it lets through.

    >>> january = in_period("trips", "at", "DATE", ("2024-01-01", "2024-01-31"))
    >>> print(*ends_within(("2023-05-01", "2024-01-20"), january))
    2024-01-01 2024-01-20
    """
    days = period.selection["range"]
    assert isinstance(days, list)
    first, last = (dt.date.fromisoformat(str(day)) for day in days)
    if len(str(ends[1])) == len("2024-01-31"):
        low, high = (dt.date.fromisoformat(str(end)) for end in ends)
        return max(low, first), min(high, last)
    begin, end = (_moment(each) for each in ends)
    if begin is None or end is None:
        return ends
    return max(begin, dt.datetime.combine(first, dt.time.min)), min(
        end, dt.datetime.combine(last, dt.time.max)
    )


_OF_ANSWER = ("expressions", "group", "having", "qualify", "order")  # parts of a SELECT


def by_unit(settings: PanelSettings, reading: Reading | None, unit: str) -> PanelSettings:
    """Return a panel with its time cut by another unit; as it is where no key of it is a period.

    The unit changes in the key, where the SELECT groups or sorts by it, in the title, and in the name of the
    key. That name stays where a table or another key has a column called like one of the units. The panel
    stays as it is where its WHERE or an aggregate reads the key by its name.

    >>> sql = "SELECT date_trunc('week', at) AS week, count(*) FROM trips GROUP BY week"
    >>> reading = reading_of(sql, {"trips": ["at"]})
    >>> print(by_unit(PanelSettings("p", "By week", sql, x="week"), reading, "day").sql)
    SELECT date_trunc('day', at) AS day, count(*) FROM trips GROUP BY day
    """
    brushes = reading.brushes if reading is not None else {}
    periods = {_period_in_lower_case(brush.expression) for brush in brushes.values()} - {None}
    before = {period[1] for period in periods if period is not None} - {unit}
    tree = parsed(settings.sql)
    if reading is None or len(before) != 1 or not isinstance(tree, exp.Select):
        return settings
    (old,) = before
    tokens = sqlglot.tokenize(settings.sql, read=DIALECT)
    first = {token.start: i for i, token in enumerate(tokens)}
    spans = []
    for node in tree.find_all(exp.DateTrunc, exp.TimestampTrunc):
        period = _period_in_lower_case(node.sql(DIALECT))
        if period in periods and period is not None and period[1] == old and _is_of_answer(node, tree):
            quoted = tokens[first[node.meta["start"]] + 2]  # after the function's name and its bracket
            spans.append((quoted.start, quoted.end + 1))
    names = [each.args["alias"] for each in tree.expressions if each.alias.lower() == old]
    is_other = {old, unit} & reading.columns or any(
        each.alias_or_name.lower() == unit for each in tree.expressions
    )
    is_named = len(names) == 1 and not is_other
    uses = [
        column
        for column in tree.find_all(exp.Column)
        if names and column.name.lower() == old and not column.table and column.parent_select is tree
    ]
    if old not in reading.columns and not all(_is_of_answer(column, tree) for column in uses):
        return settings
    if is_named:
        written = [*names, *(column.this for column in uses)]
        spans += [(each.meta["start"], each.meta["end"] + 1) for each in written]
    text = settings.sql
    for begin, end in sorted(spans, reverse=True):
        new = re.sub(re.escape(old), unit, text[begin:end], flags=re.IGNORECASE)
        text = text[:begin] + new + text[end:]
    title = re.sub(rf"\b{old}\b", unit, settings.title)
    entries: dict[str, Any] = {
        name: unit
        for name in ("x", "y", "series")
        if is_named and (getattr(settings, name) or "").lower() == old
    }
    return replace(settings, sql=text, title=title, **entries)


def _period_in_lower_case(expression: str) -> tuple[str, str] | None:
    period = period_of(Brush("", expression, has_totals=False))
    return None if period is None else (period[0].lower(), period[1])


def _is_of_answer(node: exp.Expr, tree: exp.Select) -> bool:
    """Whether part of a SELECT says what its rows are, and not which rows it reads or what it aggregates."""
    above: exp.Expr | None = node
    while above is not None and above.parent is not tree:
        if isinstance(above, exp.AggFunc | exp.Query):
            return False
        above = above.parent
    return above is not None and not isinstance(above, exp.AggFunc) and above.arg_key in _OF_ANSWER


MOST_VALUES = 200
_MOST_DIGITS = 400  # of a number, before or after its point: a double has some 310


def condition_of(brush: Brush, selection: Mapping[str, Any], type_: pa.DataType) -> str:
    """Return the selection as SQL over the columns of the brush's table.

    Args:
        brush: what can be selected.
        selection: {"values": […]}, any of which a row must have; or {"range": [low, high]}, both included.
        type_: of the column in the answer.

    Raises:
        FilterError: a value is not one of that type, or the selection is none.

    >>> brush = Brush("trips", "zone", has_totals=False)
    >>> condition_of(brush, {"values": ["it's", None]}, pa.string())
    "(zone) IN ('it''s') OR (zone) IS NULL"
    >>> condition_of(brush, {"range": [1, 5]}, pa.int64())
    '(zone) BETWEEN 1 AND 5'
    """
    literal = _literals(type_)
    expression = f"({brush.expression})"
    if set(selection) == {"range"} and isinstance(ends := selection["range"], list) and len(ends) == 2:
        low, high = (literal(end) for end in ends)
        return f"{expression} BETWEEN {low} AND {high}"
    values = selection.get("values")
    if set(selection) != {"values"} or not isinstance(values, list) or not 0 < len(values) <= MOST_VALUES:
        raise FilterError(f"a selection has 1 to {MOST_VALUES} values, or a range of two")
    some = [literal(value) for value in values if value is not None]
    parts = [f"{expression} IN ({', '.join(some)})"] if some else []
    if len(some) < len(values):
        parts.append(_null(brush))
    return " OR ".join(parts)


def _null(brush: Brush) -> str:
    if brush.has_totals:
        raise FilterError("an empty value cannot be selected here: it may stand for a total")
    return f"({brush.expression}) IS NULL"


def _literals(type_: pa.DataType) -> Callable[[Any], str]:
    """Return the function that turns values from outside into SQL of this type."""
    kinds: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], exp.Expression]], ...] = (
        (pa.types.is_boolean, _boolean),
        (pa.types.is_integer, _whole),
        (pa.types.is_decimal, _decimal),
        (pa.types.is_floating, _double),
        (pa.types.is_date, _date),
        (pa.types.is_timestamp, _timestamp),
        (pa.types.is_string, _text),
    )
    make = next((make for fits, make in kinds if fits(type_)), None)
    if make is None:
        raise FilterError(f"values of the type {type_} cannot be selected")

    def literal(value: Any) -> str:
        try:
            return make(value).sql(DIALECT)
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            raise FilterError(f"{shown(value)} is no value of the type {type_}") from None

    return literal


def _boolean(value: Any) -> exp.Expression:
    if not isinstance(value, bool):
        raise TypeError
    return exp.Boolean(this=value)


def _whole(value: Any) -> exp.Expression:
    number = _decimal_of(value)
    if number != number.to_integral_value():
        raise ValueError
    return exp.Literal.number(str(int(number)))


def _decimal(value: Any) -> exp.Expression:
    return exp.Literal.number(f"{_decimal_of(value):f}")


def _double(value: Any) -> exp.Expression:
    """Return a number as text that is cast: DuckDB reads 0.1 as a decimal otherwise."""
    return exp.cast(exp.Literal.string(repr(float(_decimal_of(value)))), "DOUBLE")


def _date(value: Any) -> exp.Expression:
    return exp.cast(exp.Literal.string(dt.date.fromisoformat(value).isoformat()), "DATE")


def _timestamp(value: Any) -> exp.Expression:
    moment = dt.datetime.fromisoformat(value)
    kind = "TIMESTAMP" if moment.tzinfo is None else "TIMESTAMPTZ"
    return exp.cast(exp.Literal.string(moment.isoformat(sep=" ")), kind)


def _text(value: Any) -> exp.Expression:
    if not isinstance(value, str):
        raise TypeError
    if len(value) > LONGEST_TEXT:
        raise FilterError("this text is shown cut, so it cannot be selected")
    return exp.Literal.string(value)


def _decimal_of(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > 60:
        raise TypeError
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError
    return number
