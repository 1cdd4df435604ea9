"""CSV and JSON files, read the way DuckDB reads them, and no value changed on the way.

DuckDB looks at the first rows for the types of the columns. It then rounds a later 2.5 to 3 if these rows had
whole numbers, and drops the time of a later "2020-01-01 10:00" if they had dates. To look at all rows takes
three times as long as to read them. So such columns are read as texts, and compared with what they become. A
value that would change is an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.duck import Cursor, list_literal, one_file, quote_name, quote_text
from relaqs_engine.errors import DataError, SqlError
from relaqs_engine.layouts.file_kinds import FileKind

_CSV_SEPARATORS = ",;|\t"
_WHOLE_NUMBERS = ("BIGINT", "HUGEINT", "UBIGINT")
_IS_KEPT = {
    **dict.fromkeys(_WHOLE_NUMBERS, "trim({text}) = {value}::VARCHAR"),
    "DATE": "NOT contains({text}, ':') AND {value} IS NOT NULL",
    "TIME": "NOT contains({text}, '-') AND NOT contains({text}, '+') AND {value} IS NOT NULL",
}
"""SQL that says whether a text is the same after a cast, by the type that it is cast to."""
_LOOKED_AT_KINDS = 32
_UNITED = {"union_by_name": "true"}
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")
_LOOKED_AT_BYTES = 1 << 20
_USUAL_DATES = (None, "", "%Y-%m-%d")
_NAMED = 3  # of the columns that an error lists


@dataclass(frozen=True, slots=True)
class TextRead:
    """How text files are read. columns: pairs (name, DuckDB type). sql: what stands for them after FROM."""

    columns: Sequence[tuple[str, str]]
    sql: str


def checked_read(kind: FileKind, files: Sequence[Path], cursor: Cursor, description: str) -> TextRead | None:
    """Return how to read the files with types from their first rows. A value that would change is an error.

    None where no such error can be made, as of numbers inside of nested values, and where DuckDB cannot be
    told which column is which, as of fields of JSON that differ in case alone. So it is with CSV files that
    have other columns than each other.
    """
    if kind is FileKind.CSV and _are_uneven(files, cursor):
        return None
    sniffed = _sniffed(files[0], cursor) if kind is FileKind.CSV and len(files) == 1 else None
    columns = _columns(kind, files, cursor, description) if sniffed is None else sniffed.columns
    if any(_holds_whole_numbers(type_text) for _, type_text in columns):
        return None
    if kind is FileKind.JSON and _has_a_second_name([name for name, _ in columns]):
        return None
    lossy = {name: type_text for name, type_text in columns if type_text in _IS_KEPT}
    if sniffed is not None:
        rows = sniffed.with_texts(lossy)
    elif kind is FileKind.CSV:
        rows = _csv_with_texts(files, lossy, cursor)
    else:
        rows = _json_with_texts(files, columns, lossy)
    if rows is None:
        return None
    casts = {name: _checked_cast(name, type_text) for name, type_text in lossy.items()}
    read = TextRead(columns, _with_casts(columns, casts, rows))
    try:
        is_same = cursor.describe(f"SELECT * FROM {read.sql}") == columns
    except (DataError, SqlError):
        is_same = False
    return read if is_same else None


@dataclass(frozen=True, slots=True)
class _SniffedCsv:
    """One CSV file as DuckDB's sniffer found it. Whoever reads it by these words needs no sniffer any more.

    A sniffer parses 20,480 rows, however long they are: of rows of 10 kB that takes half a second each time.

    Attributes:
        columns: pairs (name, DuckDB type).
        begun: what follows FROM, in DuckDB's own words, as far as the columns.
        ended: what follows these.
        date_format: of its dates, None where it has none.
    """

    columns: list[tuple[str, str]]
    begun: str
    ended: str
    date_format: str | None

    def with_texts(self, texts: Mapping[str, str]) -> str | None:
        """Return what reads the file with these columns as they are written.

        None for dates of another form. texts: type by the name of each of these columns.
        """
        if "DATE" in texts.values() and self.date_format not in _USUAL_DATES:
            return None
        types = [(name, "VARCHAR" if name in texts else type_text) for name, type_text in self.columns]
        return f"{self.begun}{_struct(types)}{self.ended}"


def _sniffed(file: Path, cursor: Cursor) -> _SniffedCsv | None:
    """Return what DuckDB finds of a CSV file. None where that is nothing, or it would skip some lines."""
    path = quote_text(one_file(str(file)))
    try:
        ((skipped, columns, date_format, prompt),) = cursor.rows(
            f"SELECT SkipRows, Columns, DateFormat, Prompt FROM sniff_csv({path})"
        )
    except (DataError, SqlError):
        return None
    found = [(each["name"], each["type"]) for each in columns]
    if _holds_a_separator([name for name, _ in found]):
        return None
    begun, _, ended = prompt.removeprefix("FROM ").removesuffix(";").partition(_struct(found))
    if skipped or not ended or not begun.startswith(f"read_csv({path}, auto_detect=false, "):
        return None
    return _SniffedCsv(found, begun, ended, date_format)


def _struct(columns: Sequence[tuple[str, str]]) -> str:
    """Return the columns as an option of `read_csv`."""
    types = ", ".join(f"{quote_text(name)}: {quote_text(type_text)}" for name, type_text in columns)
    return f"columns={{{types}}}"


def whole_read(kind: FileKind, files: Sequence[Path], cursor: Cursor, description: str) -> TextRead:
    """Return how to read the files with types from all rows, which takes some time to find out."""
    is_uneven = kind is FileKind.CSV and _are_uneven(files, cursor)
    more = {"sample_size": "-1", **(_UNITED if is_uneven else {})}
    columns = _columns(kind, files, cursor, description, more)
    rows = _read(kind, files, more)
    # DuckDB reads whole numbers of JSON as HUGEINT where one of them is below zero.
    huge = [name for name, type_text in columns if type_text == "HUGEINT"]
    casts = {name: f"{quote_name(name)}::BIGINT AS {quote_name(name)}" for name in huge}
    return TextRead(columns, _with_casts(columns, casts, rows))


def _with_casts(columns: Sequence[tuple[str, str]], casts: Mapping[str, str], rows: str) -> str:
    """Return what stands after FROM: these rows with some columns cast. casts: SQL by the name of a column.

    It names all columns, as `* REPLACE` takes time by the square of their number: 13 seconds for 2,000. A
    column that the rows have beside these stays, as it would with `* REPLACE`.
    """
    if not casts:
        return rows
    names = [name for name, _ in columns]
    listed = ", ".join(casts.get(name, quote_name(name)) for name in names)
    return f"(SELECT {listed}, * EXCLUDE ({', '.join(map(quote_name, names))}) FROM {rows})"


def _columns(
    kind: FileKind,
    files: Sequence[Path],
    cursor: Cursor,
    description: str,
    more: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """Return the columns that DuckDB finds.

    Raises DataError for files that DuckDB cannot read, and for CSV files whose lines have different numbers
    of fields: it would drop some.
    """
    try:
        columns = cursor.describe(f"SELECT * FROM {_read(kind, files, more or {})}")
    except DataError as error:
        raise _of_line_ends(kind, files, cursor) or error from error
    if kind is FileKind.CSV:
        options = "".join(f", {name} = {value}" for name, value in _UNITED.items() if name in (more or {}))
        guessed = cursor.describe(f"SELECT * FROM read_csv({_names(files)}{options})")
        kept = [name for name, _ in columns]
        if kept != [name for name, _ in guessed] or _holds_a_separator(kept):
            raise _not_one_table(kept, description)
    return columns


def _are_uneven(files: Sequence[Path], cursor: Cursor) -> bool:
    """Whether CSV files have other columns than each other, so that they are to be united by name.

    DuckDB else takes the columns of the first file. It drops what others have beside these, and fails where
    they have less. Files with one first line have one header; where all differ, they have none.

    Raises DataError for two files that have no column in common.
    """
    kinds = {_first_line(file): file for file in files}
    names = dict[frozenset[str], Path]()
    for file in list(kinds.values())[:_LOOKED_AT_KINDS] if len(kinds) > 1 else ():
        try:
            columns = cursor.describe(f"SELECT * FROM {_read(FileKind.CSV, [file], {})}")
        except (DataError, SqlError):
            return False  # the reason is told where all are read
        names.setdefault(frozenset(name.lower() for name, _ in columns), file)
    for (first, file), (other, other_file) in itertools.combinations(names.items(), 2):
        if first.isdisjoint(other):
            raise DataError(
                f"the files are not one table: {file} has the columns {_listed(first)}, and {other_file} has "
                f"{_listed(other)}; give their folder, where each file is a table, or each file by itself"
            )
    return len(names) > 1


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:_NAMED]) + (" and others" if len(shown) > _NAMED else "")


def _first_line(file: Path) -> bytes:
    with file.open("rb") as lines:
        return lines.readline(_LOOKED_AT_BYTES).rstrip()


def _of_line_ends(kind: FileKind, files: Sequence[Path], cursor: Cursor) -> DataError | None:
    """Return what to raise for CSV files whose lines end in different ways, which DuckDB takes for no CSV."""
    for file in files if kind is FileKind.CSV else ():
        with file.open("rb") as lines:
            ends = set(_LINE_END.findall(lines.read(_LOOKED_AT_BYTES)))
        if len(ends) > 1 and _is_read_loosely(files, cursor):
            shown = " and ".join(repr(end.decode()) for end in sorted(ends))
            return DataError(
                f"the lines of {file} end in different ways: {shown}; write it with one of them, or read it "
                "as it is: give \"read_csv('…', strict_mode=false)\" for it"
            )
    return None


def _is_read_loosely(files: Sequence[Path], cursor: Cursor) -> bool:
    try:
        cursor.describe(f"SELECT * FROM {_read(FileKind.CSV, files, {'strict_mode': 'false'})}")
    except (DataError, SqlError):
        return False
    return True


def _has_a_second_name(names: Sequence[str]) -> bool:
    """Whether DuckDB may have renamed a column, as "A_1" beside "a", which no file calls so."""
    taken = {name.lower() for name in names}
    ends = (name.lower().rpartition("_") for name in names)
    return any(number.isdecimal() and stem in taken for stem, _, number in ends)


def _holds_a_separator(names: list[str]) -> bool:
    """Whether the only column of a CSV file looks like several."""
    return len(names) == 1 and any(mark in names[0] for mark in _CSV_SEPARATORS)


def _not_one_table(names: list[str], description: str) -> DataError:
    return DataError(
        f"{description} does not read as one table: its lines do not all have the same number of fields "
        f"(the columns would be {', '.join(map(repr, names))}); repair it, or give \"read_csv('…', "
        'null_padding=true)" where lines are short, or "skip=2" where lines stand before the header'
    )


def _csv_with_texts(files: Sequence[Path], texts: Mapping[str, str], cursor: Cursor) -> str | None:
    """Return what reads CSV files with these columns as they are written, None for dates of another form."""
    if not texts:
        return _read(FileKind.CSV, files, {})
    ((delimiter, quote, escape, has_header, date_format),) = cursor.rows(
        "SELECT Delimiter, Quote, Escape, HasHeader, DateFormat FROM "
        f"sniff_csv({quote_text(one_file(str(files[0])))}, skip = 0)"
    )
    if "DATE" in texts.values() and date_format not in _USUAL_DATES:
        return None
    # Without numbers among the columns, DuckDB could no more tell which line is the header.
    marks = {"delim": delimiter, "quote": quote, "escape": escape}
    found = {name: quote_text(mark) for name, mark in marks.items() if mark not in (None, "\0", "(empty)")}
    types = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in texts)
    more = {**found, "header": str(bool(has_header)).lower(), "types": f"{{{types}}}"}
    return _read(FileKind.CSV, files, more)


def _json_with_texts(
    files: Sequence[Path], columns: Sequence[tuple[str, str]], texts: Mapping[str, str]
) -> str:
    """Return what reads JSON files with these columns as they are written."""
    types = ((name, "VARCHAR" if name in texts else type_text) for name, type_text in columns)
    listed = ", ".join(f"{quote_text(name)}: {quote_text(type_text)}" for name, type_text in types)
    return _read(FileKind.JSON, files, {"columns": f"{{{listed}}}"})


def _read(kind: FileKind, files: Sequence[Path], more: Mapping[str, str]) -> str:
    # Skip no line: DuckDB drops lines at the start that do not fit those below.
    function, usual = ("read_csv", {"skip": "0"}) if kind is FileKind.CSV else ("read_json", {})
    options = (f"{name} = {value}" for name, value in {**usual, **more}.items())
    return f"{function}({', '.join([_names(files), *options])})"


def _checked_cast(name: str, type_text: str) -> str:
    text = quote_name(name)
    value = f"TRY_CAST({text} AS {type_text})"
    is_kept = _IS_KEPT[type_text].format(text=text, value=value)
    complaint = quote_text(
        f"the first values of column {name!r} are {type_text}, and a later one is not; lay the table out "
        "(`relaqs shuffle`, or lay_out of a session), which takes the type from all rows. The value is "
    )
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN {is_kept} THEN {value} "
        f"ELSE error({complaint} || {text}) END AS {text}"
    )


def _holds_whole_numbers(type_text: str) -> bool:
    """Whether a nested type has whole numbers in it, which nothing compares."""
    return type_text not in _WHOLE_NUMBERS and any(number in type_text for number in _WHOLE_NUMBERS)


def _names(files: Sequence[Path]) -> str:
    return list_literal([one_file(str(file)) for file in files])
