"""Whether the answers to one statement are right, judged by plain DuckDB over the true rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.grid.statements import Statement
from benchmarks.grid.worlds import Oracle, World
from relaqs import Snapshot

RELATIVE = 1e-9
FINE = ("equal", "ambiguous", "both refuse", "refused", "too long")
_ENUM = re.compile(r"dictionary<values=string, indices=\w+, ordered=\d>")
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
MORE_ORDERS = range(3, 11)
"""Row orders in which DuckDB is asked too, where an answer is another than in the first three."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case ended.

    Attributes:
        kind: one of FINE; "wrong", "raw" or "hang".
        reason: what is refused or wrong, without what differs from case to case: cases of one cause share it.
        detail: in full.
        path: how it was answered: mode and shape.
        certified: cells of early answers that were certified.
        held: those of them whose interval had the final value.
    """

    kind: str
    reason: str = ""
    detail: str = ""
    path: str = ""
    certified: int = 0
    held: int = 0

    @property
    def is_fine(self) -> bool:
        return self.kind in FINE


@dataclass(frozen=True, slots=True)
class Truth:
    """What DuckDB answers.

    Attributes:
        table: in the rows' first order; None where DuckDB refuses.
        error: with which it refuses.
        is_ambiguous: whether other orders of the rows give other answers.
        is_ordered: whether all give the rows in one order.
    """

    table: pa.Table | None
    error: str = ""
    is_ambiguous: bool = False
    is_ordered: bool = False


def truth_of(world: World, statement: Statement) -> Truth:
    try:
        tables = [oracle.table(statement.sql, statement.params) for oracle in world.oracles]
    except duckdb.Error as error:
        return Truth(None, f"{type(error).__name__}: {error}")
    first, *others = map(rows_of, tables)
    unordered = sorted(first, key=rank)
    ambiguous = not all(_same_rows(unordered, sorted(other, key=rank)) for other in others)
    ordered = statement.is_ordered and all(_same_rows(first, other) for other in others)
    return Truth(tables[0], "", ambiguous, ordered)


def has_several_answers(world: World, statement: Statement, truth: Truth) -> bool:
    """Whether DuckDB's answers in more orders of the rows differ: then the question has several answers."""
    wanted = sorted(rows_of(truth.table), key=rank)
    for order in MORE_ORDERS:
        oracle = Oracle(world, order)
        try:
            if not _same_rows(
                sorted(rows_of(oracle.table(statement.sql, statement.params)), key=rank), wanted
            ):
                return True
        except duckdb.Error:
            return True
        finally:
            oracle.close()
    return False


def difference(got: pa.Table, truth: Truth, *, is_loose: bool = False, in_files: bool = False) -> str:
    """Return what is different between an answer and DuckDB's, "" where nothing is.

    in_files: whether types are compared as files have them.
    """
    wanted = truth.table
    assert wanted is not None
    if got.column_names != wanted.column_names:
        return f"names: {got.column_names}, DuckDB has {wanted.column_names}"
    if found := [
        (a.name, str(a.type), str(b.type))
        for a, b in zip(got.schema, wanted.schema, strict=True)
        if _as_text(a.type, in_files) != _as_text(b.type, in_files)
    ]:
        return f"types: {found} (column, ours, DuckDB's)"
    if got.num_rows != wanted.num_rows:
        ours, theirs = rows_of(got)[:3], rows_of(wanted)[:3]
        return f"rows: {got.num_rows}, DuckDB has {wanted.num_rows}; {ours}, DuckDB {theirs}"
    if truth.is_ambiguous or is_loose:
        return ""
    ours, theirs = rows_of(got), rows_of(wanted)
    if not truth.is_ordered:
        ours, theirs = sorted(ours, key=rank), sorted(theirs, key=rank)
    for our, their in zip(ours, theirs, strict=True):
        if not _same_row(our, their):
            return f"values: {our}, DuckDB has {their}"
    return ""


def _in_a_file(kind: pa.DataType) -> pa.DataType:
    """Return the type that Parquet has in the place of one: lists for arrays, moments in microseconds."""
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("l", _in_a_file(kind.value_type)))
    return kind


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows; dates and times as whole numbers, because Python's end where DuckDB's go on."""
    return list(zip(*map(_values, table.columns), strict=True)) if table.num_columns else []


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind):
        times = _NANOSECONDS[kind.unit]
        return [None if each is None else each * times for each in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError, pa.ArrowException):  # a moment that Python has none for
        with duckdb.connect() as connection:
            connection.register("shown", pa.table({"value": column}))
            return [text for (text,) in connection.execute("SELECT value::VARCHAR FROM shown").fetchall()]


def rank(row: tuple[Any, ...]) -> tuple[str, ...]:
    """Order rows by what is exact in them first: doubles may differ in the last digit."""
    exact = ["" if isinstance(value, float) else repr(_coarse(value)) for value in row]
    return (*exact, *(f"{value:.6e}" for value in row if isinstance(value, float)))


def _coarse(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6e}"
    if isinstance(value, dict):
        return {name: _coarse(each) for name, each in value.items()}
    return [_coarse(each) for each in value] if isinstance(value, list | tuple) else value


def _same_rows(ours: Sequence[tuple[Any, ...]], theirs: Sequence[tuple[Any, ...]]) -> bool:
    return len(ours) == len(theirs) and all(map(_same_row, ours, theirs))


def _as_text(kind: pa.DataType, in_files: bool = False) -> str:
    """Return a type in words. An enum is text: Parquet has no enums, and truth may be kept there."""
    return _ENUM.sub("string", str(_in_a_file(kind) if in_files else kind))


def _same_row(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def same(a: object, b: object) -> bool:
    """Whether two values are equal, doubles to the precision that any order of adding gives."""
    if isinstance(a, float) and isinstance(b, float):
        return (
            a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-9)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


# Estimates before the last


@dataclass(slots=True)
class Held:
    """Certified cells, and those whose interval had the final value."""

    certified: int = 0
    held: int = 0
    flaws: list[str] = field(default_factory=list)


def judged(snapshots: Sequence[Snapshot]) -> Held:
    """Return what is wrong with the way to the last answer, and how many of its intervals held."""
    held, last, before = Held(), snapshots[-1], 0.0
    if not last.is_exact or last.fraction != 1.0 or last.error != 0.0:
        held.flaws.append(
            f"end: the last is exact {last.is_exact}, fraction {last.fraction}, error {last.error}"
        )
    for snapshot in snapshots:
        if snapshot.fraction < before:
            held.flaws.append(f"fraction: it falls from {before} to {snapshot.fraction}")
        before = snapshot.fraction
        if not snapshot.table.schema.equals(last.table.schema):
            held.flaws.append(f"schema: it changes from {snapshot.table.schema} to {last.table.schema}")
        elif snapshot is not last:
            _judge(snapshot, last, held)
    return held


def _judge(snapshot: Snapshot, last: Snapshot, held: Held) -> None:
    width = last.estimate.num_columns
    approximate = {column.position for column in last.columns}
    keys = [place for place in range(width) if place not in approximate]
    finals = _by_keys(last, keys)
    for key, row in _by_keys(snapshot, keys).items():
        for place, column in enumerate(snapshot.columns):
            value = row[column.position]
            low, high, certified = row[width + 3 * place : width + 3 * place + 3]
            where = f"{column.name} = {value} in [{low}, {high}] at {snapshot.fraction:.3f}"
            if not _at_most(low, value) or not _at_most(value, high):
                held.flaws.append(f"interval: {where} lies outside")
            if certified and key in finals:
                truth = finals[key][column.position]
                held.certified += 1
                held.held += truth is None or (_at_most(low, truth) and _at_most(truth, high))


def _by_keys(snapshot: Snapshot, keys: Sequence[int]) -> dict[str, tuple[Any, ...]]:
    """Return the rows whose keys are theirs alone."""
    rows = rows_of(snapshot.table)
    names = [repr([row[place] for place in keys]) for row in rows]
    count = Counter(names)
    return {name: row for name, row in zip(names, rows, strict=True) if count[name] == 1}


def _at_most(low: Any, high: Any) -> bool:
    """Whether low <= high as far as both are known. An estimate is rounded to its column's own type."""
    if low is None or high is None or type(low) in (dict, list) or type(high) in (dict, list):
        return True
    numbers = int | float | Decimal
    if isinstance(low, numbers) and isinstance(high, numbers):
        if any(isinstance(each, float) and math.isnan(each) for each in (low, high)):
            return True
        slack = 0.5 if isinstance(low, int) or isinstance(high, int) else 0
        return low <= high or float(low) <= float(high) + slack or math.isclose(low, high, rel_tol=RELATIVE)
    try:
        return bool(low <= high)
    except TypeError:
        return True


# Reasons


_VARYING = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "…"),
    (re.compile(r"\b[tuk]_?\w*\.\w+|\b(?:[tu]_\w+|x_\w+|[kv]\d+)\b"), "…"),
    (re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)


def stable(message: str) -> str:
    """Return an error's message without the names, values and places in it."""
    text = message.split("\n")[0]
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text[:160]


def flaws_of(held: Held) -> Iterator[str]:
    yield from held.flaws[:3]
