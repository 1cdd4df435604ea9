"""From text to sqlglot's trees, in a number of steps that depends on the text alone.

A text that sqlglot cannot read is given to DuckDB's parser, whose errors name the word that it stopped at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import sqlglot.parser
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from relaqs_engine.duck import syntax_error
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.sql.aggregates import LAWS, has_several_distinct, marked_call
from relaqs_engine.sql.dialect import DIALECT, RelaqsParser, tokens_of
from relaqs_engine.sql.effort import Effort
from relaqs_engine.sql.size import MOST_OPEN, check_text, check_tokens, check_tree, too_deep

# No query of the suites takes more than 1.5. Only text that is read again and again takes more.
_STEPS_PER_TOKEN = 20
_STEPS_FOR_ANY = 1000

_GOT_TOKEN = re.compile(r",? (but )?got <Token .*", re.DOTALL)
"""The end of a description such as `Expected table name but got <Token token_type: …>`."""

UNCLOSED = "a quote or a comment is opened and never closed; close it"


Builder = Callable[..., exp.Expr]


def _of_distinct(name: str, build: Builder) -> Builder:
    """Return what makes a call of its arguments, also of those of corr(DISTINCT x, y)."""

    def call(given: list[exp.Expr], **dialect: Any) -> exp.Expr:
        return marked_call(name, given) if has_several_distinct(given) else build(given, **dialect)

    return call


def _of_several() -> dict[str, Builder]:
    """Return what makes the calls of aggregates with more than one argument, by their names."""
    laws = {name.upper(): law for law in LAWS if max(law.arguments, default=2) > 1 for name in law.names}
    known = {name: build for name, build in RelaqsParser.FUNCTIONS.items() if name in laws}
    return {name: _of_distinct(laws[name].name, build) for name, build in known.items()}


class _CountingParser(RelaqsParser):
    """sqlglot's parser with its steps counted. It goes back and tries again where it guessed wrong.

    sqlglot takes DISTINCT x, y for one argument, and then misses the second one of aggregates that have two.
    """

    __slots__ = ("_effort", "_open_brackets", "_steps_left")

    FUNCTIONS: ClassVar = RelaqsParser.FUNCTIONS | _of_several()

    def __init__(self, effort: Effort, token_count: int) -> None:
        super().__init__(dialect=DIALECT)
        self._effort = effort
        self._open_brackets = 0
        self._steps_left = _STEPS_FOR_ANY + _STEPS_PER_TOKEN * token_count

    def _advance(self, times: int = 1) -> None:
        self._effort.spend()
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SqlError(
                f"reading the SQL takes more than {_STEPS_PER_TOKEN} steps for each of its words and signs; "
                "close its brackets, or write it with fewer inside each other",
                (self._curr.line, self._curr.col) if self._curr else None,
            )
        super()._advance(times)

    def _parse_bracket(self, this: Any = None) -> Any:
        self._open_brackets += 1  # also for x[1][2]: each bracket is read inside the one before
        try:
            if self._open_brackets > MOST_OPEN:
                raise too_deep(f"more than {MOST_OPEN} brackets", None)
            return super()._parse_bracket(this)
        finally:
            self._open_brackets -= 1


def check_parser(file: str) -> None:
    """Raise UnsupportedError where this is a compiled parser. No class of Python's can count its steps.

    >>> check_parser("sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    Traceback (most recent call last):
    relaqs_engine.errors.UnsupportedError: the package sqlglotc is installed, which compiles sqlglot's parser;
    ReLAQS counts the steps of the one in Python, so that no SQL takes forever; run: pip uninstall sqlglotc
    """
    if not file.endswith((".py", ".pyc")):
        raise UnsupportedError(
            "the package sqlglotc is installed, which compiles sqlglot's parser; ReLAQS counts the steps of "
            "the one in Python, so that no SQL takes forever; run: pip uninstall sqlglotc"
        )


def read_statements(sql: str, effort: Effort) -> list[exp.Expr]:
    """Return the statements of a text that is not too large.

    Raises:
        SqlError: it is too large, or does not parse. It has the place if that is known.
        UnsupportedError: sqlglot's parser is compiled.
    """
    check_parser(sqlglot.parser.__file__)
    check_text(sql)
    try:
        tokens = tokens_of(sql)
        check_tokens(tokens)
        parsed = _CountingParser(effort, len(tokens)).parse(tokens, sql)
        trees = [tree for tree in parsed if tree is not None and not isinstance(tree, exp.Semicolon)]
    except (ParseError, TokenError) as error:
        raise _syntax_error(error, sql) from None
    except RecursionError:
        raise too_deep("too", None) from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
        # sqlglot fails on some texts that are not SQL, such as `SELECT 1 AS`.
        raise _syntax_error(error, sql) from None
    for tree in trees:
        check_tree(tree)
    return trees


def _syntax_error(error: Exception, sql: str) -> SqlError:
    """Return what is wrong with a text that sqlglot cannot read, in DuckDB's words where it cannot either."""
    if (theirs := syntax_error(sql)) is not None:
        said = UNCLOSED if isinstance(error, TokenError) else theirs.message
        return SqlError(f"the SQL does not parse: {said}", theirs.position)
    detail = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    position = (int(detail["line"]), int(detail["col"])) if detail.get("line") else None
    near = f" near {detail['highlight']!r}" if detail.get("highlight") else ""
    why = f" ({_in_words(detail['description'])})" if detail.get("description") else ""
    return SqlError(f"DuckDB can read this SQL, but ReLAQS cannot{near}{why}; write it otherwise", position)


def _in_words(description: str) -> str:
    """Return sqlglot's description of an error without the names of its classes and tokens."""
    if "<class " in description:
        return "something is missing beside it"
    return _GOT_TOKEN.sub("", description)
