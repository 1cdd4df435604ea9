"""Checkpoints: the state of a job in a file, so that another process goes on from there.

A file has one state, the newest, which replaces the one before in one step. A checksum tells a damaged file.

    b"relaqs checkpoint 2\\n" | SHA-256 of the content | content

The content of a query is its partial rows (`relaqs/queries/jobs.py`). That of a run is how it
is begun (`RunRecipe`), and where it stands. Both are pickled, by value where a script or a notebook defines
them. So open only files that you trust.

*How often.* A state is written at most every few seconds, and takes no more than a twentieth of the time: one
that takes a second to write is written every 20 seconds.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

from relaqs_engine.errors import RelaqsError
from relaqs_engine.shared_files import drafts_of, replacing

from relaqs.arguments import ArgumentError, check_seconds
from relaqs.plugins import require

LARGEST_SHARE = 0.05  # of the time, that may go into keeping states
_MAGIC = b"relaqs checkpoint 2\n"
_BEGIN = len(_MAGIC) + hashlib.sha256().digest_size  # of the content, in the file
_RUN = b"relaqs run 1\n"  # the content of a run begins with it
_WRITER = f"relaqs {version('relaqs')} on Python {sys.version_info[0]}.{sys.version_info[1]}"


class StatePace:
    """Says when a state is to be kept: every few seconds, or rarer where keeping one takes long.

    Args:
        seconds_between: two states, at least.
        clock: in seconds.

    >>> now = [0.0]
    >>> pace = StatePace(2.0, lambda: now[0])
    >>> with pace.spending():
    ...     now[0] = 1.0
    >>> now[0] = 20.0
    >>> pace.is_due()
    False
    """

    def __init__(self, seconds_between: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_between, self._clock = seconds_between, clock
        self._due_seconds = clock() + seconds_between

    def is_due(self) -> bool:
        return self._clock() >= self._due_seconds

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Measure what it takes to keep a state, in the block."""
        started = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            self._due_seconds = now + max(self._seconds_between, (now - started) / LARGEST_SHARE)


def read_content(path: Path) -> bytes | None:
    """Return what a file keeps, None where there is no file. Raises RelaqsError where it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[:_BEGIN] != _MAGIC + hashlib.sha256(content[_BEGIN:]).digest():
        raise RelaqsError(f"{path} is a damaged checkpoint, or none")
    return content[_BEGIN:]


def write_content(path: Path, content: bytes | memoryview) -> None:
    """Replace what a file keeps. Raises OSError where the disk does not take it: then it is as before."""
    with replacing(path) as file:
        file.writelines((_MAGIC, hashlib.sha256(content).digest(), content))


def check_is_of_no_run(path: Path) -> None:
    """Raise RelaqsError where a file is the checkpoint of a run, damaged or not: no query may replace it."""
    try:
        with path.open("rb") as file:
            is_of_run = file.read(_BEGIN + len(_RUN))[_BEGIN:] == _RUN
    except OSError:
        return
    if is_of_run:
        raise RelaqsError(
            f"{path} is the checkpoint of a run; go on from it by db.resume({str(path)!r}), or give the "
            "query another path"
        )


def check_same_rows(kept: str, found: str) -> None:
    """Raise RelaqsError where the digest of the rows that were read is not that of those found now."""
    if kept != found:
        raise RelaqsError(
            "the rows of the SELECT are not those that the checkpoint was written for; begin anew, or "
            "restore the table"
        )


def _remove_drafts(path: Path) -> None:
    """Remove what processes have left that were killed while they wrote."""
    for draft, process in drafts_of(path):
        if _is_alive(process):
            continue
        with suppress(OSError):
            with draft.open("rb") as file:
                is_draft = _MAGIC.startswith(file.read(len(_MAGIC)))
            if is_draft:
                draft.unlink()


def _is_alive(process: int) -> bool:
    """Return whether a process of this machine goes on; also where that cannot be told, as on Windows."""
    if os.name == "nt":  # where signal 0 is ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def checked_path(path: str | Path) -> Path:
    """Return the path. Raises RelaqsError if its folder is not there."""
    chosen = Path(path)
    if not chosen.parent.is_dir():
        raise RelaqsError(f"there is no folder {chosen.parent} to keep a checkpoint in; make it first")
    return chosen


SECONDS_BETWEEN = 10.0  # two states of a run, where nothing else is asked for


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a user asks of checkpoints. Raises ArgumentError for what is not accepted.

    Attributes:
        path: of the file; None for no checkpoints.
        seconds: between two states, at least.
    """

    path: str | Path | None = None
    seconds: float = SECONDS_BETWEEN

    def __post_init__(self) -> None:
        check_seconds("checkpoint_seconds", self.seconds)
        if self.path is not None:
            checked_path(self.path)


class UnkeepableError(Exception):
    """A state is too large to be kept, for the reason given."""


class RunRecipe(Protocol):
    """All that it takes to begin a run but for its state. Picklable."""

    def begun(self, session: Any, keeper: RunKeeper) -> Any:
        """Return the run, which has started: from `keeper.state` where there is one."""
        ...


class RunKeeper:
    """Keeps the newest state of one run. Its own thread calls `keep_if_due`, others may read `state`.

    Args:
        seconds: between two states, at least.
        state: what the run goes on from; None at its beginning.

    Attributes:
        state: the newest, pickled.
    """

    def __init__(self, seconds: float = SECONDS_BETWEEN, state: bytes | None = None) -> None:
        self.state, self.seconds = state, seconds
        self._pace = StatePace(seconds)
        self._lock = threading.Lock()

    def keep_if_due(self, saved: Callable[[], Any]) -> None:
        """Keep what `saved` returns, if that is time. None is not kept."""
        if self._pace.is_due():
            self.keep(saved)

    def keep(self, saved: Callable[[], Any]) -> None:
        """Keep what `saved` returns now. None is not kept."""
        with self._lock, self._pace.spending():
            try:
                if (state := saved()) is None:
                    return
                self.state = packed(state, "the state of the run")
            except Exception as error:  # also of a pickled object's own methods
                self._cannot_write(error)
            else:
                self._write()

    def restored(self) -> Any:
        """Return the state that the run goes on from; None at its beginning."""
        return None if self.state is None else unpacked(self.state)

    def _write(self) -> None:
        """Put the newest state where it outlives this process."""

    def _cannot_write(self, error: Exception) -> None:
        """Say that the run goes on without: it is not to fail because it cannot be saved."""


class NoKeeper(RunKeeper):
    """Keeps nothing."""

    def keep_if_due(self, saved: Callable[[], Any]) -> None:
        """Do nothing."""

    def keep(self, saved: Callable[[], Any]) -> None:
        """Do nothing."""


NO_KEEPER = NoKeeper()


class FileKeeper(RunKeeper):
    """Keeps the states of a run in a file, which also says how the run is begun (`recipe`, pickled).

    Raises RelaqsError where the file cannot be written.
    """

    def __init__(self, path: Path, seconds: float, recipe: bytes, state: bytes | None = None) -> None:
        super().__init__(seconds, state)
        self._path, self._recipe = path, recipe
        self._has_warned = False
        try:
            write_content(path, self._content)
        except OSError as error:
            raise _not_written(path, error) from error

    @property
    def _content(self) -> bytes:
        kept = (_WRITER, self.seconds, self._recipe, self.state)
        return _RUN + pickle.dumps(kept)

    def _write(self) -> None:
        try:
            write_content(self._path, self._content)
        except OSError as error:
            self._cannot_write(error)

    def _cannot_write(self, error: Exception) -> None:
        if not self._has_warned:
            warnings.warn(
                f"the checkpoint {self._path} cannot be written ({error}); the run goes on without",
                RuntimeWarning,
                stacklevel=2,
            )
        self._has_warned = True


def _not_written(path: Path, error: OSError) -> RelaqsError:
    return RelaqsError(f"the checkpoint {path} cannot be written ({error})")


def begun(recipe: RunRecipe, session: Any, keeping: Keeping) -> Any:
    """Return the run of a recipe, which has started. It keeps its state where that is asked for.

    Raises ArgumentError where there is a file already, or the recipe cannot be pickled.
    """
    if keeping.path is None:
        return recipe.begun(session, NO_KEEPER)
    path = checked_path(keeping.path)
    kept = packed(recipe, "the run")
    try:
        path.open("xb").close()
    except FileExistsError:
        raise ArgumentError(
            f"checkpoint is {str(path)!r}, which is there already; go on from it by "
            f"db.resume({str(path)!r}), or remove it"
        ) from None
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        return recipe.begun(session, FileKeeper(path, keeping.seconds, kept))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def resumed(path: str | Path, session: Any) -> Any:
    """Return the run that a file keeps. It goes on from its newest state, and keeps others there.

    Raises RelaqsError where the file is not there, is damaged, is of a query or of another version.
    """
    chosen = Path(path)
    if (content := read_content(chosen)) is None:
        raise RelaqsError(f"there is no checkpoint {chosen}; give the path that the run was begun with")
    if not content.startswith(_RUN):
        raise RelaqsError(
            f"{chosen} is the checkpoint of a query; go on from it by "
            f"db.start(db.plan(sql), options, checkpoint={str(chosen)!r})"
        )
    written_by, seconds, recipe, state = pickle.loads(content[len(_RUN) :])
    if written_by != _WRITER:
        raise RelaqsError(
            f"{chosen} was written by {written_by}, and this is {_WRITER}; begin anew, or go on with that "
            "version"
        )
    begins: RunRecipe = unpacked(recipe)
    _remove_drafts(chosen)
    return begins.begun(session, FileKeeper(chosen, seconds, recipe, state))


def unpacked(kept: bytes) -> Any:
    """Return what was pickled. Raises RelaqsError where this process lacks what it is made of."""
    try:
        return pickle.loads(kept)
    except Exception as error:
        raise RelaqsError(
            f"the checkpoint needs what this process does not have ({type(error).__name__}: {error}); begin "
            "the run anew, or make importable what it was begun with, in the same versions, and resume again"
        ) from error


def packed(value: Any, what: str) -> bytes:
    """Return something pickled, by value where no other process could import it.

    Raises ArgumentError where it cannot be pickled. what: it is, for people.
    """
    require("cloudpickle")
    import cloudpickle

    try:
        return cast(bytes, cloudpickle.dumps(value))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ArgumentError(
            f"{what} cannot be sent to another process ({error}); make what cannot be pickled inside of the "
            "function"
        ) from error
