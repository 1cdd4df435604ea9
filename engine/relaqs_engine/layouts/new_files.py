"""Which files of a source a table does not have yet: each layout knows the files that its rows came from."""

from __future__ import annotations

from pathlib import Path

from relaqs_engine.duck import FileState
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.sources import (
    FileSource,
    TableSource,
    find_files,
    fingerprint,
    is_path,
    layout_folder,
)


def given_files(source: TableSource) -> tuple[FileState, ...]:
    """Return the states of the files that a source names, () where it is none of files."""
    if not is_path(source) or layout_folder(source) is not None:
        return ()
    return fingerprint(find_files(source))


def new_files(source: FileSource, held: Layout) -> list[Path]:
    """Return the files of a source that a table was not made of.

    Raises LayoutError where a file that it was made of has changed or is gone, or where the table does not
    know its files.
    """
    known = {path: (path, size, modified_ns) for path, size, modified_ns in held.source_files}
    if not known:
        raise LayoutError(
            f"{held.directory} does not say of which files it was made; lay it out again from files, or "
            "append without asking for new files only"
        )
    found = {state[0]: state for state in fingerprint(find_files(source))}
    changed = [path for path, state in known.items() if found.get(path, state) != state]
    gone = [path for path in known if path not in found and _is_below(path, found)]
    if changed or gone:
        what = f"{changed[0]} changed" if changed else f"{gone[0]} is gone"
        raise LayoutError(
            f"{what} since its rows went into {held.directory}, and rows are only added here; lay the table "
            "out again with `relaqs shuffle --force`"
        )
    return [Path(path) for path in found if path not in known]


def _is_below(path: str, found: dict[str, FileState]) -> bool:
    """Whether a file lies in a folder that other files of the source are in."""
    return any(Path(other).parent == Path(path).parent for other in found)
