"""Files of the user's, in one state, and where the cache keeps what is made of them.

CACHE/trips-<digest of the files' paths>/<digest of their sizes and times>/trips/    the layout
CACHE/trips-<digest of the files' paths>/<digest of their sizes and times>/staged/   the copy of CSV files
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.duck import FileState
from relaqs_engine.layouts.duck_tables import DuckTable
from relaqs_engine.layouts.lakes import LakeTable
from relaqs_engine.layouts.sources import FileSource, find_files, fingerprint, source_names


@dataclass(frozen=True, slots=True)
class CachedFiles:
    """Files of the user's, and where the cache keeps what is made of their present state.

    Attributes:
        table: the name of their table.
        source: what the user named.
        files: the files.
        states: their states.
        home: the folder of these files, for all of their states.
    """

    table: str
    source: FileSource
    files: tuple[Path, ...]
    states: tuple[FileState, ...]
    home: Path

    @classmethod
    def of(cls, table: str, source: FileSource, cache_directory: Path) -> CachedFiles:
        """Return the files that a path names. Raises LayoutError where there are none."""
        files = find_files(source)
        states = fingerprint(files)
        home = Path(os.path.abspath(cache_directory)) / f"{table}-{_digest([path for path, *_ in states])}"
        return cls(table, source, files, states, home)

    @classmethod
    def of_part(cls, table: str, part: DuckTable, cache_directory: Path) -> CachedFiles:
        """Return a table of a DuckDB file."""
        digest = _digest([str(part.file), part.schema, part.name])
        home = Path(os.path.abspath(cache_directory)) / f"{table}-{digest}"
        return cls(table, str(part.file), (part.file,), part.states, home)

    @classmethod
    def of_lake(cls, table: str, lake: LakeTable, cache_directory: Path) -> CachedFiles:
        """Return one version of a table in a lake."""
        home = Path(os.path.abspath(cache_directory)) / f"{table}-{_digest([lake.address])}"
        return cls(table, lake.in_words, (), ((lake.state, 0, 0), *fingerprint(lake.files)), home)

    @property
    def source_in_words(self) -> str:
        return source_names(self.source)

    @property
    def layout(self) -> Path:
        """Return the folder of the layout."""
        return self.home / _digest(self.states) / self.table

    @property
    def staged(self) -> Path:
        """Return the folder of the copy."""
        return self.home / _digest(self.states) / "staged"

    @property
    def in_words(self) -> str:
        if not self.files:
            return f"{self.table} ({self.source})"
        size = sum(byte_count for _, byte_count, _ in self.states)
        return f"{self.table} ({_counted(self.files)}, {_size(size)})"

    def forget_other_states(self) -> None:
        """Remove what was made of earlier states, and what writers that died have left."""
        for entry in self.home.iterdir():
            if entry != self.layout.parent:
                shutil.rmtree(entry, ignore_errors=True)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _counted(files: tuple[Path, ...]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _size(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e9 else f"{byte_count / 1e6:.1f} MB"
