"""SQL from a file or from standard input: its statements, and errors that say where they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.errors import ExpressionError, RelaqsError, SqlError

from relaqs.arguments import ArgumentError

if TYPE_CHECKING:
    from relaqs_engine.sql.read import Statement

STANDARD_INPUT = "-"


def script_text(path: str) -> str:
    """Return the text of a file, or of standard input where the path is "-"."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError(f"{_named(path)} is no text in UTF-8 ({error.reason}); save it as such") from error


def script_statements(path: str) -> tuple[Statement, ...]:
    """Return the statements of a file or of standard input. Raises SqlError where there is none."""
    from relaqs_engine.sql.read import statements_of

    found = statements_of(script_text(path))
    if not found:
        raise SqlError(f"{_named(path)} has no statement; give at least one SELECT")
    return found


@contextmanager
def saying_which(statement: Statement, number: int, count: int) -> Iterator[None]:
    """Let errors of a statement say which it is, and where in the whole text. number: from 1."""
    which = f"statement {number} of {count}, which begins at line {statement.line}: " if count > 1 else ""
    try:
        yield
    except (SqlError, ExpressionError) as error:
        raise statement.placed(error, which) from error
    except ArgumentError:  # an option is wrong, whatever the statement
        raise
    except RelaqsError as error:
        raise RelaqsError(f"{which}{error}") from error


def _named(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path
