"""A table's folder and how it changes hands. At every instant it holds the old layout, the new one, or none.

    TABLE/manifest.json              names the data folder that counts; replacing it is the switch
    TABLE/data-<16 hex digits>/      the partitions; a new folder for each write, so that no path is used
                                     twice and caches by path never go stale
    TABLE/.writing-<16 hex digits>/  a write under way: staged source, spill
    TABLE/.retired-<16 hex digits>.json   an earlier manifest, whose files are still read

What the manifest does not name was left by a write that died. The next write removes it. A lock on the
folder keeps two writers apart, and the system drops it when its holder dies.

**States of a layout that were replaced, and are still read.**

    TABLE/manifest.json                 the present state
    TABLE/.retired-<16 hex digits>.json the manifest of an earlier one, whose files are still there

Whoever reads a state holds a shared lock on its manifest, the same file under either name. So the next
write knows which of the retired states are not read any more, and removes their files. The system drops
the lock when its holder dies. Where the file system has no such locks or no second names, the files of an
earlier state go at once, and what reads them fails with an error.

**Layouts of one table** change together, all of them or none:

    orders/manifest.json                          names data-<16 hex digits>; replacing it is the switch
    orders@customer/.next-<the same digits>.json  waits, and is renamed to manifest.json after that

If a process dies between, the next that opens or writes the table finds the manifest that waits. It
renames it where the switch was made, and removes it where not.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.manifest import LAYOUT_MARK, MANIFEST_NAME, Layout, Partition
from relaqs_engine.layouts.manifest_file import read_manifest, read_state, write_manifest
from relaqs_engine.shared_files import DRAFT_MARK, Lock, lock
from relaqs_engine.stores.address import Address

RETIRED_NAME = r"\.retired-[0-9a-f]{16}\.json"
_PATTERN = ".retired-*.json"


class InUse:
    """Layouts that are read, until `release` or until nothing refers to this."""

    def __init__(self, layouts: Iterable[Layout]) -> None:
        held = [lock for each in layouts for lock in _shared(each.directory / MANIFEST_NAME)]
        self._release = weakref.finalize(self, _release_all, held)

    def release(self) -> None:
        """Read them no more. The second call does nothing."""
        self._release()


def retire(directory: Path, name: str) -> None:
    """Keep the present manifest under a second name, so that its files stay as long as they are read.

    name: 16 hexadecimal digits that no other retired state has.
    """
    with suppress(OSError):
        os.link(directory / MANIFEST_NAME, directory / f".retired-{name}.json")


def retired_states(directory: Path) -> Iterator[Layout]:
    """Yield the states of a table that were replaced and are still there."""
    for path in sorted(directory.glob(_PATTERN)):
        with suppress(LayoutError):
            yield read_state(directory, path)


def forget_unread(directory: Path) -> list[Path]:
    """Remove the manifests of retired states that nothing reads. Return those of the others."""
    return [path for path in directory.glob(_PATTERN) if not _forgotten(path)]


def _forgotten(path: Path) -> bool:
    try:
        held = lock(path, wait=False)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    try:
        path.unlink(missing_ok=True)
    except OSError:  # it stays, and goes with a later write
        return False
    finally:
        held.release()
    return True


def _shared(manifest: Path) -> Iterator[Lock]:
    with suppress(OSError):
        yield lock(manifest, shared=True)


def _release_all(held: Iterable[Lock]) -> None:
    for each in held:
        each.release()


_WRITING_PREFIX = ".writing-"
_NEXT = re.compile(r"\.next-([0-9a-f]{16})\.json")
_DRAFT = rf"\.({re.escape(MANIFEST_NAME)}|{_NEXT.pattern}){DRAFT_MARK}"
_OURS = re.compile(rf"(\.writing|data)-[0-9a-f]{{16}}|{_DRAFT}|{RETIRED_NAME}")
_SPARE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Writing:
    """A write under way.

    Attributes:
        scratch: a folder inside it. Everything in it is gone afterwards.
    """

    directory: Path
    scratch: Path

    @property
    def parts(self) -> Path:
        """Return the folder that partitions are written into, where they stay."""
        return self.directory / self.data_name

    @property
    def data_name(self) -> str:
        """Return the name of the folder of partitions in the table's folder."""
        return "data-" + self.scratch.name.removeprefix(_WRITING_PREFIX)

    def files_of(self, partitions: Iterable[Partition]) -> list[Path]:
        """Return the files of partitions, those of this write and those of earlier ones."""
        return [self.directory / each.file for partition in partitions for each in partition.files]

    def replace(self, layout: Layout) -> None:
        """Make this layout the table, and keep the files of the present one as long as they are read."""
        retire(self.directory, self.data_name.removeprefix("data-"))
        self.publish(layout)

    def publish_later(self, layout: Layout, name: str) -> Path:
        """Return a manifest that makes this layout the table once it is renamed. name: until then."""
        _sync_directory(self.parts)
        path = write_manifest(layout, name)
        _sync_directory(self.directory)
        return path

    def publish(self, layout: Layout) -> Layout:
        """Make this layout the table, and return it. Its written partitions must be on disk already."""
        _sync_directory(self.parts)
        write_manifest(layout)
        try:
            _sync_directory(self.directory)
        except OSError as error:
            raise LayoutError(
                f"{self.directory} was written, but the system does not say that the disk has it "
                f"({error.strerror}); look with `relaqs verify` before you write it again"
            ) from error
        return layout

    def check_space(self, needed_bytes: int) -> None:
        """Raise LayoutError unless about this many bytes fit on the disk."""
        free_bytes = shutil.disk_usage(self.scratch).free
        if free_bytes < needed_bytes + _SPARE_BYTES:
            raise _no_space(self.directory, f"about {_megabytes(needed_bytes + _SPARE_BYTES)} are needed")


@contextmanager
def writing(into: str | Path, *, force: bool, waits: bool = False) -> Iterator[Writing]:
    """Give a place to write a table's new layout. Afterwards the folder has only what a manifest names.

    Raises LayoutError if a layout is there and `force` is not given, if the folder holds anything else, if
    another process is writing it and it is not to be waited for, and if the disk is full.
    """
    directory = Path(os.path.abspath(into))
    if not directory.name:
        raise LayoutError(f"{directory} is no table's folder; name one, e.g. warehouse/trips")
    created = _make_directory(directory)
    try:
        with locked(directory, wait=waits):
            _check_replaceable(directory, force=force)
            sweep(directory)
            target = Writing(directory, directory / f"{_WRITING_PREFIX}{secrets.token_hex(8)}")
            try:
                with write_errors(directory, target.scratch, target.parts):
                    target.scratch.mkdir()
                    target.parts.mkdir()
                    yield target
            finally:
                if _named_by(directory / MANIFEST_NAME) is None:  # a damaged manifest, so this write failed
                    _remove(target.parts)
                try:
                    sweep(directory)
                finally:
                    sweep(directory)  # what is left of it after ctrl-C
    finally:
        for folder in created:
            with suppress(OSError):  # a folder that is not empty holds a layout now
                folder.rmdir()


@contextmanager
def write_errors(directory: Path, *written: Path) -> Iterator[None]:
    """Raise LayoutError if there is no room, or the folder cannot be written. written: the folders in use."""
    try:
        yield
    except (DataError, OSError) as error:
        if _says(error, errno.ENOSPC) or _says(error, errno.EDQUOT):
            files = (path for folder in written for path in folder.rglob("*") if path.is_file())
            byte_count = sum(path.stat().st_size for path in files)
            raise _no_space(directory, f"{_megabytes(byte_count)} had been written") from error
        if _says(error, errno.EFBIG):
            raise LayoutError(
                f"{directory} cannot be written: a file became larger than this system lets a process write; "
                "raise that limit (ulimit -f), or name a folder elsewhere"
            ) from error
        if isinstance(error, OSError):
            raise LayoutError(f"{directory} cannot be written: {error}") from error
        raise


def _make_directory(directory: Path) -> list[Path]:
    """Return the folders that had to be made, innermost first."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayoutError(f"{directory} cannot be made a table's folder: {error.strerror}") from error
    return missing


@contextmanager
def locked(directory: Path, *, wait: bool) -> Iterator[Lock]:
    """Hold a folder's lock, which the system drops if this process dies.

    Raises LayoutError if another process holds it and `wait` is not given.
    """
    try:
        held = lock(directory, wait=wait)
    except BlockingIOError:
        raise LayoutError(
            f"{directory} is being written by another process; wait until it has ended"
        ) from None
    try:
        yield held
    finally:
        held.release()


def _check_replaceable(directory: Path, *, force: bool) -> None:
    strangers = sorted(
        entry.name
        for entry in directory.iterdir()
        if not entry.name.startswith(".") and not _OURS.fullmatch(entry.name)
    )
    check_replaceable(directory, strangers, has_layout=(directory / MANIFEST_NAME).exists(), force=force)


def check_replaceable(place: object, strangers: Sequence[str], *, has_layout: bool, force: bool) -> None:
    """Raise LayoutError where a layout would replace another without `force`, or something else.

    Args:
        place: the folder, or the address of one.
        strangers: what is in it and is none of a layout's files.
    """
    if has_layout and not force:
        raise LayoutError(
            f"{place} holds a layout already; give force=True (--force) to replace it, or name another folder"
        )
    if strangers and not has_layout:
        raise LayoutError(
            f"{place} is not empty and holds no layout (it has {', '.join(strangers[:3])}); "
            "name a folder for the table alone"
        )


def sweep(directory: Path) -> None:
    """Remove what earlier and failed writes left: all of our files that no manifest names.

    Only for whoever holds the folder's lock.
    """
    named = _named_by_manifests(directory)
    for entry in list(directory.iterdir()):
        if not _OURS.fullmatch(entry.name) or (entry.name.startswith("data-") and named is None):
            continue
        if named is None or entry.name not in named:
            _remove(entry)


def _named_by_manifests(directory: Path) -> set[str] | None:
    """Return what the manifest names, and the retired ones that are read. None where it is not understood."""
    retired = forget_unread(directory)
    waiting = directory.glob(".next-*.json")  # see below
    named = [_named_by(manifest) for manifest in (directory / MANIFEST_NAME, *retired, *waiting)]
    if None in named:
        return None
    return {path.name for path in retired}.union(*filter(None, named))


def _named_by(manifest: Path) -> set[str] | None:
    """Return the data folders that a manifest names, None where it cannot be understood."""
    try:
        entries = json.loads(manifest.read_bytes())
        partitions = [*entries["partitions"], *filter(None, [entries.get("outliers")])]
        partitions += [each["rows"] for each in entries.get("companions", ())]
        partitions += [heavy["index"]] if (heavy := entries.get("heavy")) else []
        partitions += filter(None, [(entries.get("outlier_units") or {}).get("rows")])
        files = (file for partition in partitions for file in partition.get("files", [partition]))
        return {str(file["file"]).split("/")[0] for file in files}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError):
        return None


def _remove(path: Path) -> None:
    """Remove what no manifest names. What stays, as it is in use for example, goes with the next write."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync_directory(directory: Path) -> None:
    if sys.platform == "win32":  # opens no folders, and writes names with the files
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _says(error: DataError | OSError, number: int) -> bool:
    """Whether an error of the system is meant. DuckDB says so in its text, Python by number."""
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)


def _no_space(directory: Path, what: str) -> LayoutError:
    free = _megabytes(shutil.disk_usage(directory).free)
    return LayoutError(
        f"the disk of {directory} is full: {what} and {free} are free; "
        "nothing was left behind; make room, or name a folder on another disk"
    )


def _megabytes(byte_count: int) -> str:
    return f"{byte_count / 1e6:,.0f} MB"


def folder_here(table: str | Path) -> Path:
    """Return the absolute path of a table's folder. Raises LayoutError for one in an object store."""
    if (address := Address.of(table)) is not None:
        raise LayoutError(
            f"{address} is in an object store, where tables are not appended to or compacted; change a copy "
            f"in a folder here, and write it there with `relaqs shuffle FOLDER --into {address} --force`"
        )
    return Path(os.path.abspath(table))


def layout_folders(directory: Path) -> list[Path]:
    """Return the folders of all layouts of a table, that of the table's own name first.

    directory: of one of them.
    """
    table = directory.name.partition(LAYOUT_MARK)[0]
    found = sorted(
        path.parent
        for path in directory.parent.glob(f"*/{MANIFEST_NAME}")
        if path.parent.name.partition(LAYOUT_MARK)[0] == table
    )
    return sorted(found, key=lambda folder: LAYOUT_MARK in folder.name)


def publish_together(changes: Sequence[tuple[Writing, Layout]]) -> None:
    """Make each of these layouts its folder's. All are of one table, and the first is that which decides."""
    (first, decides), *others = changes
    waiting = [
        (target, target.publish_later(layout, f".next-{first.data_name.removeprefix('data-')}.json"))
        for target, layout in others
    ]
    first.publish(decides)
    for target, path in waiting:
        with suppress(OSError):  # whoever reads the table next does it, see `settle`
            path.replace(target.directory / MANIFEST_NAME)


def settle(folders: Iterable[Path]) -> None:
    """Bring to an end what a process that died has left of a change of several layouts."""
    for folder in folders:
        if _waiting(folder):
            with suppress(OSError), locked(folder, wait=True):
                _settle(folder)


def _settle(folder: Path) -> None:
    for path, data_name in _waiting(folder):
        if any(_names(other, data_name) for other in layout_folders(folder)):
            path.replace(folder / MANIFEST_NAME)
        else:
            path.unlink()


def _waiting(folder: Path) -> list[tuple[Path, str]]:
    found = [(path, _NEXT.fullmatch(path.name)) for path in folder.glob(".next-*.json")]
    return [(path, f"data-{match[1]}") for path, match in found if match]


def _names(folder: Path, data_name: str) -> bool:
    with suppress(LayoutError):
        return any(Path(each.file).parts[0] == data_name for each in read_manifest(folder).all_files)
    return False
