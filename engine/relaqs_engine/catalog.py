"""The tables a query may name, and where each is stored."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.errors import LayoutError, SqlError
from relaqs_engine.layouts.cache import default_cache_directory, laid_out_once
from relaqs_engine.layouts.manifest import Layout, read_manifest, table_folders


@dataclass(frozen=True, slots=True)
class Catalog:
    """Layouts by name; names are compared without case, as SQL does. A value: it travels to workers."""

    layouts: tuple[Layout, ...]

    def __post_init__(self) -> None:
        seen: dict[str, Layout] = {}
        for layout in self.layouts:
            if other := seen.get(layout.table.lower()):
                raise LayoutError(
                    f"{other.table!r} in {other.directory} and {layout.table!r} in {layout.directory} "
                    "differ only by case, which SQL does not tell apart; rename one"
                )
            seen[layout.table.lower()] = layout

    @classmethod
    def open(cls, directory: str | Path) -> Catalog:
        """Return the tables of a warehouse folder. Raises LayoutError if there are none to be had."""
        folders = table_folders(Path(os.path.abspath(directory)))
        return cls(tuple(read_manifest(folder) for folder in folders))

    @classmethod
    def of_sources(
        cls,
        sources: Mapping[str, str | Path],
        cache_directory: Path | None = None,
        announce: Callable[[str], None] = lambda message: None,
    ) -> Catalog:
        """Return tables given by name: plain files (path, folder or glob), or the folder of a layout.

        Plain files are laid out into the cache on first use, which `announce` is told of in words, and again
        when they have changed. Raises LayoutError and DataError as `shuffle` does.
        """
        cache = cache_directory or default_cache_directory()
        return cls(tuple(laid_out_once(name, source, cache, announce) for name, source in sources.items()))

    @property
    def tables(self) -> Mapping[str, Layout]:
        """Return the layouts by the names they were given, in order."""
        return {layout.table: layout for layout in self.layouts}

    @property
    def readable_directories(self) -> tuple[str, ...]:
        """Return the folders whose files queries may read."""
        return tuple(str(layout.directory) for layout in self.layouts)

    def table(self, name: str) -> Layout:
        """Return the layout of a table. Raises SqlError with candidates if there is none of that name."""
        for layout in self.layouts:
            if layout.table.lower() == name.lower():
                return layout
        names = {layout.table.lower(): layout.table for layout in self.layouts}
        near = tuple(names[match] for match in difflib.get_close_matches(name.lower(), names))
        known = ", ".join(names.values())
        raise SqlError(f"there is no table {name!r} in the catalog, which has: {known}", candidates=near)
