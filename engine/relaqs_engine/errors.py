"""Errors of tables, SQL and clusters. Each says what was wrong, what is accepted and what to do next.

They live in the lowest package that raises them, and `relaqs` exports all of them. All survive pickling,
because they travel from workers to clients.

An error that nobody foresaw ends one query, as an `InternalError` that says how to report it (`named`). Where
it comes up while a query's estimates are planned or computed, the query runs as a whole instead, with the
fault as a warning: that answer is DuckDB's own over the original rows. So that faults are seen where they are
looked for, in tests and measurements, the variable RELAQS_STRICT=1 switches this off.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from linecache import getline
from traceback import walk_tb
from types import FrameType
from typing import NamedTuple, TypeVar

LONGEST_SAID = 2_000  # characters of an error: DuckDB quotes values, which may be as long as a table
_TAIL = 400  # of them from the end, where the next step is said
STRICT = "RELAQS_STRICT"
LONGEST_STATEMENT = 300
LONGEST_FAULT = 300
_OWN = "relaqs"  # what the names of our packages begin with


def shortened(text: str, most: int = LONGEST_SAID) -> str:
    """Return a text of so many characters at most, and of a longer one its beginning and its end.

    >>> shortened("a" * 50 + "z" * 50, 40)
    'aaaaaaaa … (84 more) … zzzzzzzz'
    """
    if len(text) <= most:
        return text
    end = min(_TAIL, most // 5)
    begin = most - end - 24  # what is said of the gap takes no more
    return f"{text[:begin]} … ({len(text) - begin - end:,} more) … {text[-end:]}"


_Error = TypeVar("_Error", bound=Exception)


def shorten(error: _Error, times: int = 1) -> _Error:
    """Shorten what an error says, in place, to so many times `LONGEST_SAID`, and return it."""
    most = times * LONGEST_SAID
    error.args = tuple(shortened(each, most) if isinstance(each, str) else each for each in error.args)
    return error


class RelaqsError(Exception):
    """The base of every error this project raises on purpose. None is longer than `LONGEST_SAID`."""

    def __init__(self, *said: object) -> None:
        super().__init__(*(shortened(each) if isinstance(each, str) else each for each in said))

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """What IPython asks an error for: here what it says, and the user's own line that led to it.

        A fault of ours has its whole traceback, and so has any error with RELAQS_STRICT=1.
        """
        if isinstance(self, InternalError) or is_strict():
            raise AttributeError("_render_traceback_")
        return self._in_a_cell

    def _in_a_cell(self) -> list[str]:
        said = f"{type(self).__name__}: {self}"
        users = [frame for frame in walk_tb(self.__traceback__) if not _is_own(frame[0])]
        if not users:
            return [said]
        frame, line = users[-1]
        source = getline(frame.f_code.co_filename, line, frame.f_globals).strip()
        return [said, f"  line {line} of {frame.f_code.co_name.replace('<module>', 'the cell')}: {source}"]


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is of our packages, or of what they call."""
    at: FrameType | None = frame
    while at is not None:
        if str(at.f_globals.get("__name__", "")).startswith(_OWN):
            return True
        at = at.f_back
    return False


class InternalError(RelaqsError):
    """Something failed that should not: a fault in ReLAQS. It ends one query, and the session goes on.

    The original error is its `__cause__`.

    Attributes:
        doing: what was being done, such as "planning".
        fault: what failed, and where.
        sql: the statement, shortened; "" where there is none.
    """

    def __init__(self, doing: str, fault: str, sql: str = "") -> None:
        self.doing, self.fault, self.sql = doing, fault, sql
        statement = f"; the statement: {sql}" if sql else ""
        super().__init__(
            f"{doing} failed by a fault in ReLAQS: {fault}{statement}; please report this text, and what the "
            "tables look like, as a bug. The session goes on"
        )

    def __reduce__(self) -> tuple[type[InternalError], tuple[object, ...]]:
        return type(self), (self.doing, self.fault, self.sql)


class SqlError(RelaqsError):
    """The SQL text is wrong: it does not parse, names something unknown, or is not one SELECT.

    position: (line, column), both from 1, or None where unknown. candidates: names that were likely meant.
    """

    def __init__(
        self, message: str, position: tuple[int, int] | None = None, candidates: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = shortened(message)
        self.position = position
        self.candidates = candidates

    def at(self, position: tuple[int, int] | None, before: str = "") -> SqlError:
        """Return the error with another place, and with these words before it."""
        return SqlError(before + self.message, position, self.candidates)

    def __reduce__(self) -> tuple[type[SqlError], tuple[object, ...]]:
        return type(self), (self.message, self.position, self.candidates)

    def __str__(self) -> str:
        parts = [self.message.removesuffix("!")]
        if self.position is not None:
            parts.append(f"at line {self.position[0]}, column {self.position[1]}")
        return "; ".join([*parts, self.hint] if self.candidates else parts)

    @property
    def hint(self) -> str:
        """The question whether a candidate was meant: a name that needs quotes is as a SELECT has it."""
        plain = re.compile(r"[A-Za-z_][\w.]*")
        meant = (
            repr(each) if plain.fullmatch(each) else '"' + each.replace('"', '""') + '"'
            for each in self.candidates
        )
        return f"did you mean {' or '.join(meant)}?"


class UnsupportedError(RelaqsError):
    """The request is understood and cannot be served, e.g. no estimate exists and `fallback="error"`."""


class TooManyGroupsError(UnsupportedError):
    """A query is computed from so many groups, or values of groups, that no estimate is worth its cost.

    Attributes:
        count: about how many there are.
        of: what is counted, "groups" or "values".
        reason: why, without what to do.
    """

    def __init__(self, count: int, of: str = "groups") -> None:
        self.count, self.of = count, of
        self.reason = f"it is computed from about {count:,} {of}, too many to do that again and again"
        super().__init__(f'{self.reason}; give fallback="exact" to run it as a whole')

    def __reduce__(self) -> tuple[type[TooManyGroupsError], tuple[object, ...]]:
        return type(self), (self.count, self.of)


class WholeIsSoonerError(UnsupportedError):
    """More estimates of a query are not worth their cost: the whole is answered sooner.

    reason: why. core_seconds: what the whole is predicted to take, if that is the reason.
    """

    def __init__(self, reason: str, core_seconds: float | None = None) -> None:
        self.reason = reason
        self.core_seconds = core_seconds
        super().__init__(f'{reason}; give fallback="exact" to run it as a whole')

    def __reduce__(self) -> tuple[type[WholeIsSoonerError], tuple[object, ...]]:
        return type(self), (self.reason, self.core_seconds)


class OverdueError(RelaqsError):
    """A statement was stopped, since it was not over after twice its predicted time. seconds: that it had."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"a query was not over after {seconds:.2g} s")

    def __reduce__(self) -> tuple[type[OverdueError], tuple[object, ...]]:
        return type(self), (self.seconds,)


class LayoutError(RelaqsError):
    """A layout cannot be written, or its manifest cannot be used."""


class DataError(RelaqsError):
    """The data cannot be read or does not match its manifest."""


class Underlined(NamedTuple):  # not a dataclass: `import relaqs` would take 4 ms longer
    """What DuckDB underlines in a statement that it ran.

    Attributes:
        position: (line, column) where it begins, both from 1.
        width: how many columns are underlined.
    """

    sql: str
    position: tuple[int, int]
    width: int


class ExpressionError(DataError):
    """An expression has no value for some row: a text that is no number, say, or a sum that is too large.

    Attributes:
        message: what failed, without the place.
        position: (line, column) in what the user wrote, both from 1, or None where unknown.
        ran: where it is in the statement that DuckDB ran, None where unknown.
    """

    def __init__(
        self, message: str, position: tuple[int, int] | None = None, ran: Underlined | None = None
    ) -> None:
        super().__init__(message)
        self.message = shortened(message)
        self.position = position
        self.ran = ran

    def at(self, position: tuple[int, int] | None, before: str = "") -> ExpressionError:
        """Return the error with another place, and with these words before it."""
        return ExpressionError(before + self.message, position, self.ran)

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[object, ...]]:
        return type(self), (self.message, self.position, self.ran)

    def __str__(self) -> str:
        if self.position is None:
            return self.message
        return f"{self.message}; at line {self.position[0]}, column {self.position[1]}"


class StoreError(DataError):
    """An object store does not answer, refuses a request, or has other bytes than it had."""


class BrokenDatabaseError(DataError):
    """DuckDB met a fault of its own. A database that this happened in may refuse all that is asked next."""


class MemoryLimitError(DataError):
    """A statement needs more memory than DuckDB may take, and what it needs cannot be spilled to disk."""


class ClusterError(RelaqsError):
    """The Dask cluster cannot be reached, lost the work, or its workers do not see the data."""


def is_strict() -> bool:
    """Return whether a fault ends its query where the whole query could still be answered."""
    return os.environ.get(STRICT, "") not in ("", "0")


def is_fault(error: BaseException) -> bool:
    """Return whether an error is a fault of ours, and neither of the question, the data nor the machine."""
    return isinstance(named(error, ""), InternalError)


def fault_of(error: BaseException) -> str:
    """Return what failed and where, in a few words.

    >>> fault_of(KeyError("k2"))
    "KeyError: 'k2'"
    """
    if isinstance(error, InternalError):
        return error.fault
    said = shortened(f"{type(error).__name__}: {error}".rstrip(": "), LONGEST_FAULT)
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if any(p.startswith(_OWN) for p in each.filename.split(os.sep)[:-1])]
    if not own:
        return said
    last = own[-1]
    return f"{said} (in {last.name}, {os.path.basename(last.filename)}:{last.lineno})"


def named(error: BaseException, doing: str, sql: str = "") -> RelaqsError:
    """Return an error as one of ours, with the original as its cause. Ours come back as they are.

    Args:
        doing: what was being done, such as "planning".
        sql: the statement, "" where there is none.

    >>> print(named(KeyError("k2"), "planning", "SELECT 1"))
    planning failed by a fault in ReLAQS: KeyError: 'k2'; the statement: SELECT 1; please report ...
    """
    if isinstance(error, RelaqsError):
        return error
    told = _of_the_machine(error) or InternalError(doing, fault_of(error), _cut(sql))
    told.__cause__ = error
    return told


@contextmanager
def naming(doing: str, sql: str = "") -> Iterator[None]:
    """Raise what fails in the block as an error of ours."""
    try:
        yield
    except RelaqsError:
        raise
    except Exception as error:
        raise named(error, doing, sql) from error


def _of_the_machine(error: BaseException) -> RelaqsError | None:
    """Return the error of memory, a disk, a file or of data that Arrow does not take. None for any other."""
    said = shortened(str(error), LONGEST_FAULT)
    if isinstance(error, MemoryError):
        return MemoryLimitError(
            f"this process has no memory left ({said or 'MemoryError'}); ask for fewer columns or groups, or "
            "give queries less: connect(memory_limit=…)"
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"there is no room on the disk ({said}); free some, or name a folder on a larger one"
        )
    if isinstance(error, OSError) and error.errno is not None:
        return DataError(f"the system refused an operation on a file: {said}")
    if any(kind.__name__ == "ArrowException" for kind in type(error).__mro__):
        return DataError(f"Arrow does not take these data: {type(error).__name__}: {said}")
    return None


def _cut(sql: str) -> str:
    return shortened(" ".join(sql.split()), LONGEST_STATEMENT)
