"""A table's folder and how it changes hands. At every instant it holds the old layout, the new one, or none.

    TABLE/manifest.json              names the data folder that counts; replacing it is the switch
    TABLE/data-<16 hex digits>/      the partitions; a new folder for each write, so that no path is used
                                     twice and caches by path never go stale
    TABLE/.writing-<16 hex digits>/  a write under way: staged source, spill
    TABLE/.retired-<16 hex digits>.json   an earlier manifest, whose files are still read (see `retired.py`)

What the manifest does not name was left by a write that died. The next write removes it. A lock on the folder
keeps two writers apart, and the system drops it when its holder dies.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.file_locks import Lock, lock
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, Partition
from relaqs_engine.layouts.manifest_file import write_manifest
from relaqs_engine.layouts.retired import RETIRED_NAME, forget_unread, retire

_WRITING_PREFIX = ".writing-"
_OURS = re.compile(rf"(\.writing|data)-[0-9a-f]{{16}}|\.{re.escape(MANIFEST_NAME)}-\d+|{RETIRED_NAME}")
_SPARE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Writing:
    """A write under way.

    Attributes:
        directory: the table's folder.
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
        if _is_disk_full(error):
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
    if (directory / MANIFEST_NAME).exists():
        if not force:
            raise LayoutError(
                f"{directory} holds a layout already; give force=True (--force) to replace it, "
                "or name another folder"
            )
        return
    strangers = sorted(
        entry.name
        for entry in directory.iterdir()
        if not entry.name.startswith(".") and not _OURS.fullmatch(entry.name)
    )
    if strangers:
        raise LayoutError(
            f"{directory} is not empty and holds no layout (it has {', '.join(strangers[:3])}); "
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
    waiting = directory.glob(".next-*.json")  # see `together.py`
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


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step. A reader sees the old one or this one."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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


def _is_disk_full(error: DataError | OSError) -> bool:
    return _says(error, errno.ENOSPC) or _says(error, errno.EDQUOT)


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
