"""Which kind of data a file holds: by the ending of its name, or else by its first bytes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from relaqs_engine.errors import LayoutError


class FileKind(Enum):
    """A kind of file that tables are read from. The value is its name for people."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSON = "JSON"
    DUCKDB = "DuckDB"

    @property
    def is_text(self) -> bool:
        return self in (FileKind.CSV, FileKind.JSON)


ACCEPTED = (
    "Parquet (.parquet), CSV (.csv, .tsv, .txt), JSON (.json, .jsonl, .ndjson), packed text (.csv.gz, "
    ".json.zst, …) or DuckDB (.duckdb)"
)
_ENDINGS = {
    ".parquet": FileKind.PARQUET,
    ".parq": FileKind.PARQUET,
    ".pq": FileKind.PARQUET,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.CSV,
    ".txt": FileKind.CSV,
    ".json": FileKind.JSON,
    ".jsonl": FileKind.JSON,
    ".ndjson": FileKind.JSON,
    ".duckdb": FileKind.DUCKDB,
    ".ddb": FileKind.DUCKDB,
    ".db": FileKind.DUCKDB,
}
_PACKED = (".gz", ".zst")
_OF_DOCUMENTS = (".txt",)  # a folder's README.txt is no table of it
_FIRST_BYTES = (
    (0, b"PAR1", "Parquet"),
    (8, b"DUCK", "DuckDB"),
    (0, b"SQLite format 3", "SQLite"),
    (0, b"ARROW1", "Arrow IPC"),
    (0, b"ORC", "ORC"),
    (0, b"PK\x03\x04", "a ZIP archive, such as a spreadsheet"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"{", "JSON"),
    (0, b"[", "JSON"),
)


def kind_by_name(file: Path) -> FileKind | None:
    """Return the kind that a file's name says, None where it says nothing.

    >>> kind_by_name(Path("trips.CSV.gz"))
    <FileKind.CSV: 'CSV'>
    """
    ending = file.suffix.lower()
    if ending in _PACKED:
        kind = _ENDINGS.get(file.with_suffix("").suffix.lower())
        return kind if kind is not None and kind.is_text else None
    return _ENDINGS.get(ending)


def is_data(file: Path) -> bool:
    """Whether a file that lies in a folder is one of the folder's data. Hidden ones and documents are not."""
    return file.suffix.lower() not in _OF_DOCUMENTS and kind_by_name(file) is not None


def kind_of(files: Sequence[Path]) -> FileKind:
    """Return the kind of the files. Raises LayoutError unless all are of one known kind."""
    first, *others = ((file, _kind_of_file(file)) for file in files)
    if others and first[1] is FileKind.DUCKDB:
        raise LayoutError(f"{first[0]} is a DuckDB file and one of {len(files)} files; give one at a time")
    for file, kind in others:
        if kind is not first[1]:
            raise LayoutError(
                f"{first[0].name} is {first[1].value} and {file.name} is {kind.value}; give files of one "
                f"kind, such as {file.parent / ('*' + file.suffix)}"
            )
    return first[1]


def what_it_looks_like(file: Path) -> str:
    """Return the kind of data that a file's first bytes are of, in words; "" where they do not tell."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(16)
    except OSError:
        return ""
    if not begin:
        return "empty"
    found = (name for at, magic, name in _FIRST_BYTES if begin[at:].startswith(magic))
    return next(found, "")


def _kind_of_file(file: Path) -> FileKind:
    kind, looks = kind_by_name(file), what_it_looks_like(file)
    if kind is None:
        kind = next((each for each in FileKind if each.value == looks), None)
    if kind is FileKind.DUCKDB and looks != "DuckDB":
        raise LayoutError(f"{file} is no DuckDB file{_but(looks)}; give the file that DuckDB wrote")
    if kind is None:
        raise LayoutError(f"{file} is of no known kind{_but(looks)}; give {ACCEPTED} files")
    return kind


def _but(looks: str) -> str:
    return f" (it looks like {looks})" if looks else ""
