"""Errors of tables, SQL and clusters. Each says what was wrong, what is accepted and what to do next.

They live in the lowest package that raises them, and `relaqs` exports all of them. All survive pickling,
because they travel from workers to clients.
"""

from __future__ import annotations

from typing import NamedTuple


class RelaqsError(Exception):
    """The base of every error this project raises on purpose."""


class SqlError(RelaqsError):
    """The SQL text is wrong: it does not parse, names something unknown, or is not one SELECT.

    position: (line, column), both from 1, or None where unknown. candidates: names that were likely meant.
    """

    def __init__(
        self,
        message: str,
        position: tuple[int, int] | None = None,
        candidates: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.candidates = candidates

    def at(self, position: tuple[int, int] | None, before: str = "") -> SqlError:
        """Return the error with another place, and with these words before it."""
        return SqlError(before + self.message, position, self.candidates)

    def __reduce__(self) -> tuple[type[SqlError], tuple[object, ...]]:
        return type(self), (self.message, self.position, self.candidates)

    def __str__(self) -> str:
        parts = [self.message]
        if self.position is not None:
            parts.append(f"at line {self.position[0]}, column {self.position[1]}")
        if self.candidates:
            parts.append("did you mean " + " or ".join(repr(name) for name in self.candidates) + "?")
        return "; ".join(parts)


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


class LayoutError(RelaqsError):
    """A layout cannot be written, or its manifest cannot be used."""


class DataError(RelaqsError):
    """The data cannot be read or does not match its manifest."""


class Underlined(NamedTuple):  # not a dataclass: `import relaqs` would take 4 ms longer
    """What DuckDB underlines in a statement that it ran.

    Attributes:
        sql: the statement.
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
        self,
        message: str,
        position: tuple[int, int] | None = None,
        ran: Underlined | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
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


class MemoryLimitError(DataError):
    """A statement needs more memory than DuckDB may take, and what it needs cannot be spilled to disk."""


class ClusterError(RelaqsError):
    """The Dask cluster cannot be reached, lost the work, or its workers do not see the data."""
