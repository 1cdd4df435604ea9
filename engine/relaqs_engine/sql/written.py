"""SQL that was edited before it is planned, and where each place of it was in what the user wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relaqs_engine.errors import SqlError


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands in the place of a part of a text.

    Attributes:
        begin: where the part begins, in characters from 0.
        end: where it ends. It is `begin` where something is only put in.
        text: what stands there instead.
    """

    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Step:
    """A text, and its edits in order, none of which overlap. None: it was written anew."""

    before: str
    edits: tuple[Edit, ...] | None


@dataclass(frozen=True, slots=True)
class WrittenSql:
    """A statement as it is planned. Errors in it can be placed in what the user wrote.

    >>> written = WrittenSql("SELECT $a, fair").edited([Edit(7, 9, "'some text'")])
    >>> written.sql
    "SELECT 'some text', fair"
    >>> print(written.placed(SqlError("there is no fair", (1, 21))))
    there is no fair; at line 1, column 12
    """

    sql: str
    _steps: tuple[_Step, ...] = ()

    @property
    def asked(self) -> str:
        """Return what the user wrote."""
        return self._steps[0].before if self._steps else self.sql

    def edited(self, edits: Iterable[Edit]) -> WrittenSql:
        """Return it with these edits of its text, which are in order and do not overlap."""
        edits = tuple(edits)
        if not edits:
            return self
        parts, kept_from = [], 0
        for edit in edits:
            parts += [self.sql[kept_from : edit.begin], edit.text]
            kept_from = edit.end
        text = "".join([*parts, self.sql[kept_from:]])
        return WrittenSql(text, (*self._steps, _Step(self.sql, edits)))

    def anew(self, sql: str) -> WrittenSql:
        """Return another text for it, in which no place of the text before is known."""
        return self if sql == self.sql else WrittenSql(sql, (*self._steps, _Step(self.sql, None)))

    def placed(self, error: SqlError) -> SqlError:
        """Return an error of this text with its place in what the user wrote, or without one.

        An error inside of what was put in is placed where that stands.
        """
        position = error.position
        for step in reversed(self._steps):
            if position is not None:
                position = None if step.edits is None else _before(position, step.before, step.edits)
        return SqlError(error.message, position, error.candidates)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Place the errors that a block raises about this text."""
        try:
            yield
        except SqlError as error:
            if self._steps:
                raise self.placed(error) from error.__cause__
            raise


def position_of(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column, both from 1, of a character counted from 0.

    >>> position_of("SELECT 1,\\n  x", 12)
    (2, 3)
    """
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def offset_of(text: str, position: tuple[int, int]) -> int | None:
    """Return the character, counted from 0, of a line and a column; None where the text has no such place.

    >>> offset_of("SELECT 1,\\n  x", (2, 3)), offset_of("SELECT 1,\\n  x", (1, 11))
    (12, None)
    """
    line, column = position
    begin = 0
    for _ in range(line - 1):
        begin = text.find("\n", begin) + 1
        if begin == 0:
            return None
    end = text.find("\n", begin)
    offset = begin + column - 1
    return offset if begin <= offset <= (len(text) if end < 0 else end) else None


def _before(position: tuple[int, int], before: str, edits: tuple[Edit, ...]) -> tuple[int, int] | None:
    """Return where a place of the edited text was in the text before, None where it lies beyond the text."""
    after = WrittenSql(before).edited(edits).sql
    offset = offset_of(after, position)
    if offset is None:
        return None
    moved = 0  # how much further to the right the part after an edit stands
    for edit in edits:
        begin = edit.begin + moved
        if offset < begin:
            break
        if offset < begin + len(edit.text):
            return position_of(before, edit.begin)
        moved += len(edit.text) - (edit.end - edit.begin)
    return position_of(before, offset - moved)
