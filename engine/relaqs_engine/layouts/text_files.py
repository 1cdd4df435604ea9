"""CSV and JSON files, read the way DuckDB reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relaqs_engine.duck import Cursor, list_literal, one_file
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.file_kinds import FileKind

_CSV_SEPARATORS = ",;|\t"
# Take types from all rows, and skip no line. DuckDB drops lines at the start that do not fit those below.
_CSV_OPTIONS = "sample_size = -1, skip = 0"
_JSON_OPTIONS = "sample_size = -1"


def text_sql(kind: FileKind, files: Sequence[Path]) -> str:
    """Return what stands for the files after FROM."""
    names = list_literal([one_file(str(file)) for file in files])
    if kind is FileKind.JSON:
        return f"read_json({names}, {_JSON_OPTIONS})"
    return f"read_csv({names}, {_CSV_OPTIONS})"


def check_lines(files: Sequence[Path], cursor: Cursor, description: str) -> None:
    """Refuse CSV files whose lines have different numbers of fields. DuckDB would drop some of them."""
    names = list_literal([one_file(str(file)) for file in files])
    kept, guessed = (
        [name for name, _ in cursor.describe(f"SELECT * FROM {table}")]
        for table in (text_sql(FileKind.CSV, files), f"read_csv({names})")
    )
    is_one_column = len(kept) == 1 and any(mark in kept[0] for mark in _CSV_SEPARATORS)
    if kept != guessed or is_one_column:
        raise DataError(
            f"{description} does not read as one table: its lines do not all have the same number of fields "
            f"(the columns would be {', '.join(map(repr, kept))}); repair it, or give a DuckDB relation that "
            "says how to read it, e.g. duckdb.read_csv(…, skip=2)"
        )
