"""Whether new rows fit a table: they have the same columns, of the same types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from relaqs_engine.duck import Cursor, quote_name
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.number_types import WHOLE_NUMBERS
from relaqs_engine.layouts.sources import ParquetSource, copied


def fitted(source: ParquetSource, held: Layout, cursor: Cursor, scratch: Path) -> ParquetSource:
    """Return the source with exactly the columns of a table, in its order. Where they differ, it is copied.

    Args:
        source: of new rows.
        held: the table.
        cursor: of DuckDB.
        scratch: a folder for the copy.

    Raises:
        LayoutError: the source lacks a column, has another one, or one of a type that does not fit.
        DataError: a whole number is too large for the table's type.
    """
    wanted = tuple((column.name, column.type) for column in held.columns)
    if source.columns == wanted:
        return source
    found = {name.lower(): (name, type_text) for name, type_text in source.columns}
    if faults := list(_faults(found, held)):
        raise LayoutError(
            f"{source.description} does not fit {held.table}: {'; '.join(faults)}. Nothing was appended. "
            "Append a SELECT that gives the table's columns, as in "
            "duckdb.sql(\"SELECT fare::DOUBLE AS fare, … FROM 'new.parquet'\")"
        )
    columns = ", ".join(
        f"{quote_name(found[name.lower()][0])}::{type_text} AS {quote_name(name)}"
        for name, type_text in wanted
    )
    select = f"SELECT {columns} FROM {source.sql}"
    return copied(select, cursor, scratch / "fitted", source.description)


def _faults(found: Mapping[str, tuple[str, str]], held: Layout) -> Iterator[str]:
    known = {column.name.lower() for column in held.columns}
    for column in held.columns:
        _, type_text = found.get(column.name.lower(), ("", None))
        if type_text is None:
            yield f"it lacks the column {column.name!r}"
        elif not _is_kept(type_text, column.type):
            yield f"{column.name!r} is {type_text}, and {column.type} in the table"
    for name, _ in found.values():
        if name.lower() not in known:
            yield f"the table has no column {name!r}"


def _is_kept(given: str, wanted: str) -> bool:
    """Whether each value of one type is the same value of another, or the cast fails."""
    both_whole = given in WHOLE_NUMBERS and wanted in WHOLE_NUMBERS
    return given == wanted or both_whole or (given, wanted) == ("FLOAT", "DOUBLE")
