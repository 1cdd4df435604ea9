"""How snapshots leave the program: a table or Markdown for people; JSON lines, CSV or Parquet for programs.

They go to standard output, or to a file that is there in full or not at all (`text_into`).
"""

from __future__ import annotations

import datetime
import json
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from decimal import Decimal
from io import TextIOWrapper
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import pyarrow as pa
from relaqs_engine.errors import UnsupportedError
from relaqs_engine.shared_files import replacing

from relaqs.arguments import ArgumentError
from relaqs.cli.reading import QUIET_SECONDS, Doing, shown_until_first
from relaqs.python_values import python_values
from relaqs.queries.snapshot import Snapshot
from relaqs.rendering.rounding import show_bytes, show_duration
from relaqs.rendering.terminal import SnapshotOnScreen, plain_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

STANDARD_OUTPUT = "-"
_SUFFIXES = {".parquet": "parquet", ".md": "markdown", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_OF_OTHER_FORMATS = (
    ".xlsx",
    ".xls",
    ".ods",
    ".json",
    ".tsv",
    ".html",
    ".feather",
    ".arrow",
    ".db",
    ".duckdb",
)


def format_by_name(path: str | None) -> str:
    """Return the format that a file's name stands for, "table" where it says nothing.

    Raises ArgumentError where it names a format that there is not.
    """
    suffix = Path(path or "").suffix.lower()
    if suffix in _OF_OTHER_FORMATS:
        raise ArgumentError(
            f"{path}: {suffix} cannot be written; call it {', '.join(_SUFFIXES)}, or .txt for a table, or "
            "give --format"
        )
    return _SUFFIXES.get(suffix, "table")


@contextmanager
def text_into(path: str | None) -> Iterator[TextIO]:
    """Yield a file to write text to. None and "-" are standard output."""
    if path is None or path == STANDARD_OUTPUT:
        yield sys.stdout
        return
    with _finished(Path(path)) as raw:
        file = TextIOWrapper(raw, encoding="utf-8", newline="")
        try:
            yield file
        finally:
            file.detach()


@contextmanager
def bytes_into(path: str | None) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to. None and "-" are standard output."""
    if path is None or path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    with _finished(Path(path)) as file:
        yield file


@contextmanager
def _finished(path: Path) -> Iterator[BinaryIO]:
    """Yield what takes the file's place when the block ends well, and leaves nothing when it does not."""
    path = path.resolve()  # a link leads to the folder
    if path.exists() and not path.is_file():  # a device or a pipe is written as it is
        with path.open("wb") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise ArgumentError(
            f"there is no folder {path.parent} to write {path.name} into; make it, or name another"
        )
    with replacing(path) as file:
        yield file


LINE_VERSION = 1  # of JSON lines: it rises when a field goes, or means something else
_SAID_OF_A_FILE = (
    "fraction",
    "error",
    "not_judged",
    "confidence",
    "interval",
    "confidence_for",
    "is_exact",
    "warnings",
)
_TO_QUOTE_IN_CSV = re.compile(r'[",\r\n]|\A\Z')
_UNWRITTEN = ("widths", "course", "doubts", "_fetched")  # of a snapshot: what its methods answer from


@contextmanager
def output_to(
    destination: str | None, format_name: str, *, every: bool
) -> Iterator[Callable[[Iterable[Snapshot], int | None, Doing], None]]:
    """Yield what writes the snapshots of one statement after another.

    It is given the number of the statement, where it has one, and what the query does.

    Args:
        destination: a file, which is there once the block has ended well. None and "-" are standard output.
        format_name: "table", "jsonl", "csv", "markdown" or "parquet".
        every: as `write` takes it.
    """
    if format_name == "parquet":
        with bytes_into(destination) as raw:
            yield lambda snapshots, number, doing: write_parquet(shown_until_first(snapshots, doing), raw)
    else:
        with text_into(destination) as file:
            yield lambda snapshots, number, doing: write(
                snapshots, format_name, file=file, every=every, number=number, doing=doing
            )


def write(
    snapshots: Iterable[Snapshot],
    format_name: str,
    *,
    file: TextIO | None = None,
    every: bool = False,
    number: int | None = None,
    doing: Doing | None = None,
) -> None:
    """Write snapshots to a file of text as they come.

    Args:
        snapshots: of one statement.
        format_name: as `output_to` takes it, but not "parquet".
        file: by default standard output.
        every: whether a table or CSV has all of them, and not the last alone.
        number: of the statement, from 1, where there may be several.
        doing: what the query does, for a table on a terminal.
    """
    file = file or sys.stdout
    is_live = file.isatty() and format_name == "table" and not every
    if number is not None and number > 1 and (format_name in ("csv", "markdown") or is_live):
        file.write("\n")  # a table that is not live has an empty line at its end
    if doing is not None and not is_live:
        snapshots = shown_until_first(snapshots, doing)
    if format_name == "jsonl":
        _write_lines((json_line(snapshot, number) for snapshot in snapshots), file)
    elif format_name == "csv":
        write_csv(snapshots, file, every=every)
    elif is_live:
        from rich.console import Console

        show_live(snapshots, Console(file=file), doing)
    else:
        shown = _as_markdown if format_name == "markdown" else as_text
        chosen = snapshots if every else _last(snapshots)
        end = "" if format_name == "markdown" and not every else "\n"
        _write_lines((shown(snapshot, file) + end for snapshot in chosen), file)


def write_parquet(snapshots: Iterable[Snapshot], file: BinaryIO) -> None:
    """Write the last snapshot's rows as Parquet.

    Raises:
        UnsupportedError: a column has a type that Parquet has not.
    """
    import pyarrow.parquet

    for snapshot in _last(snapshots):
        said = {name: getattr(snapshot, name) for name in _SAID_OF_A_FILE}
        metadata = {"relaqs": json.dumps(plain(said), allow_nan=False)}
        names = _distinct(snapshot.table.column_names)
        table = snapshot.table.rename_columns(names).replace_schema_metadata(metadata)
        try:
            pyarrow.parquet.write_table(table, file)
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedError(
                f"the answer has a column of a type that Parquet does not have ({error}); cast it to VARCHAR "
                "or give another --format"
            ) from error


def show_live(snapshots: Iterable[Snapshot], console: Console, doing: Doing | None = None) -> Snapshot | None:
    """Redraw each snapshot in place, leave the last on screen, also after ctrl-C, and return it.

    doing: what the query does, for a line that is redrawn four times a second.
    """
    from rich.live import Live

    screen = _Screen(doing)
    try:
        with Live(screen, console=console, auto_refresh=doing is not None, transient=True) as live:
            for screen.newest in snapshots:
                live.refresh()
    finally:
        if screen.newest is not None:
            console.print(screen.newest)
        if isinstance(sys.exception(), KeyboardInterrupt):
            console.print("stopped by ctrl-C", style="dim")
    return screen.newest


class _Screen:
    """The newest snapshot, above a line on what the query does. An answer that is there soon has no line."""

    def __init__(self, doing: Doing | None) -> None:
        self.newest: Snapshot | None = None
        self._doing = doing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        is_late = self._doing is not None and self._doing.seconds > QUIET_SECONDS
        if self.newest is not None:
            rows = max(1, options.max_height - is_late)
            yield from console.render(SnapshotOnScreen(self.newest), options.update_height(rows))
        if is_late:
            yield Text(str(self._doing), style="dim", no_wrap=True, overflow="ellipsis")


def as_text(snapshot: Snapshot, file: TextIO) -> str:
    """Return the snapshot in the characters that the file can take."""
    return plain_text(snapshot, ascii_only="utf" not in (file.encoding or "").lower())


def _as_markdown(snapshot: Snapshot, file: TextIO) -> str:
    from relaqs.rendering.terminal import markdown_of

    return markdown_of(snapshot).rstrip("\n")


def json_line(snapshot: Snapshot, number: int | None = None) -> str:
    """Return the snapshot as one line of JSON (RFC 8259: no NaN, no infinity), in ASCII.

    number: of its statement, where there may be several.
    """
    names = [field.name for field in fields(snapshot) if field.name not in _UNWRITTEN]
    values = {name: getattr(snapshot, name) for name in names}
    values |= {
        "table": _objects(snapshot.table),
        "estimate": _objects(snapshot.estimate),
        "columns": [asdict(column) for column in snapshot.columns],
        "certain_rows": None if snapshot.certain_rows is None else snapshot.certain_rows.to_pylist(),
    }
    numbered = {} if number is None else {"statement": number}
    return json.dumps(plain({"version": LINE_VERSION} | numbered | values), allow_nan=False)


def write_csv(snapshots: Iterable[Snapshot], file: TextIO, *, every: bool) -> None:
    """NULL is an empty field, and an empty text stands in quotes, as DuckDB's COPY writes them."""
    is_first = True
    for snapshot in snapshots if every else _last(snapshots):
        position = [snapshot.batch, snapshot.fraction] if every else []
        table = snapshot.estimate if snapshot.is_exact and not every else snapshot.table
        if is_first:
            names = table.column_names
            file.write(_csv_line((["relaqs_batch", "relaqs_fraction"] if every else []) + names))
            is_first = False
        for row in _rows(table):
            file.write(_csv_line([*position, *row]))
        file.flush()


def _csv_line(values: Iterable[object]) -> str:
    """Return a record of CSV (RFC 4180)."""
    return ",".join("" if value is None else _csv_field(str(_field(value))) for value in values) + "\n"


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _TO_QUOTE_IN_CSV.search(text) else text


def _rows(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*map(python_values, table.columns), strict=True)


def _objects(table: pa.Table) -> list[dict[str, Any]]:
    """Return each row as an object."""
    names = _distinct(table.column_names)
    return [dict(zip(names, row, strict=True)) for row in _rows(table)]


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names, with a number after one that came before, so that none hides another."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{i}" for i in count(1))
        found[next(free for free in chain([name], numbered) if free not in found)] = None
    return list(found)


def _write_lines(lines: Iterable[str], file: TextIO) -> None:
    for line in lines:
        file.write(line + "\n")
        file.flush()  # the next program wants the estimate now


def _last(snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
    yield from deque(snapshots, maxlen=1)


def plain(value: object) -> object:
    """Return the value as JSON knows it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return _decimal(value)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case pa.MonthDayNano():  # a tuple, too
            return show_duration(*value)
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes():
            return show_bytes(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return str(value)


def _decimal(value: Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    return int(value) if value == value.to_integral_value() else float(value)


def _field(value: object) -> object:
    """Return the value as a field of CSV."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return value
        case Decimal():
            return f"{value:f}"
        case dict() | list():
            return json.dumps(plain(value))
        case _:
            return plain(value)
