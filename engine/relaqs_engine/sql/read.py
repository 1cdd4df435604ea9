"""From text to sqlglot's trees, in a number of steps that depends on the text alone.

In the order in which a text passes them:

- `Statement`, `statements_of`: the statements of a text, told apart by semicolons outside of quotes and
  comments.
- `WrittenSql`: edits of a statement's text. Some must be written anew before sqlglot can parse them: a
  PIVOT without values, a DESCRIBE. Both texts and each edit are kept, so that an error after all of the
  edits still names the user's own line and column:

    FROM trips PIVOT …                     the user's text, an error at column 12
    SELECT * FROM (FROM trips PIVOT …)     what is parsed, the same error at column 27

- `check_text`, `check_tokens`, `check_tree`: the bounds on its characters, tokens, nesting and tree. Each
  is far above what people and their tools write. Of 1,268 queries of five suites, the longest has 19,154
  characters and 1,591 tokens, and the deepest tree has 29 levels. Within the limits DuckDB binds and
  optimises in about a second, which nothing can interrupt.
- `read_statements`: sqlglot's trees. A text that sqlglot cannot read is given to DuckDB's parser, whose
  errors name the word that it stopped at. A parser that needs too many steps is stopped.
- `Effort`: what planning one statement has cost, in steps that are the same on any machine, and who may
  end it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import syntax_error
from relaqs_engine.errors import ExpressionError, SqlError
from relaqs_engine.sql.aggregate_laws import LAWS, has_several_distinct, marked_call
from relaqs_engine.sql.dialect import ARROWS, Relaqs, RelaqsParser, pause, tokens_of

GIVE_ROWS = {"pivot": "PIVOT", "pivot_wider": "PIVOT", "unpivot": "UNPIVOT", "pivot_longer": "UNPIVOT"}
"""The first words of statements that can be in the brackets of a FROM, and what sqlglot reads there."""

LOOK = ("show", "describe", "desc", "summarize")
"""The first words of statements that look at a table."""

SHOWS_INSIDE = re.compile(r"\(\s*show\b", re.IGNORECASE)
_GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*+"
_BEGINS_SO = re.compile(rf"{_GAP}(?:{'|'.join([*LOOK, *GIVE_ROWS])})\b", re.IGNORECASE | re.DOTALL)
_HAS_WITH = re.compile(r"\bwith\b", re.IGNORECASE)
_HAS_ROWS = re.compile(rf"\b(?:{'|'.join(GIVE_ROWS)})\b", re.IGNORECASE)
_HAS_PIVOT = re.compile(r"\(\s*pivot\b", re.IGNORECASE)


def may_be_written_out(sql: str) -> bool:
    """Whether a statement may be a SHOW, DESCRIBE, SUMMARIZE, PIVOT or UNPIVOT, or have one inside.

    `sql/statements.py` writes a SELECT for these.
    """
    if _BEGINS_SO.match(sql) or SHOWS_INSIDE.search(sql):
        return True
    return _HAS_ROWS.search(sql) is not None and _HAS_WITH.search(sql) is not None


def may_pivot(sql: str) -> bool:
    """Whether a SELECT may have a PIVOT in brackets."""
    return _HAS_PIVOT.search(sql) is not None


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
    """A statement as it is planned. Errors in it can be placed in what the user wrote."""

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
    """Return the line and the column, both from 1, of a character counted from 0."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def offset_of(text: str, position: tuple[int, int]) -> int | None:
    """Return the character, counted from 0, of a line and a column; None where the text has no such place."""
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


def statement_tokens(sql: str) -> list[Token]:
    """Return the tokens of one statement, none where the text is not one. The parser then says why."""
    try:
        tokens = tokens_of(sql)
    except TokenError:
        return []
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return [] if any(token.token_type is TokenType.SEMICOLON for token in tokens) else tokens


def first_word(token: Token) -> str:
    """Return the first word of a keyword in lower case, "" for a text or a name in quotes."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return ""
    return token.text.lower().split(" ")[0]


def verb_place(tokens: Sequence[Token]) -> int:
    """Return which token says what a statement does: the one behind its WITH, the first without a WITH."""
    if not tokens or first_word(tokens[0]) != "with":
        return 0
    for place, token in outside_brackets(tokens, 0):
        if place and token.token_type is not TokenType.R_PAREN:
            is_after_brackets = tokens[place - 1].token_type is TokenType.R_PAREN
            if is_after_brackets and first_word(token) not in (",", "as", "using"):
                return place
    return 0


def outside_brackets(tokens: Sequence[Token], begin: int) -> Iterator[tuple[int, Token]]:
    """Yield the tokens, with their places, that are in no brackets which open at `begin` or later."""
    depth = 0
    for place in range(begin, len(tokens)):
        depth -= tokens[place].token_type is TokenType.R_PAREN
        if depth == 0:
            yield place, tokens[place]
        depth += tokens[place].token_type is TokenType.L_PAREN


def until_closed(tokens: Sequence[Token], begin: int) -> Iterator[Token]:
    """Yield the tokens up to the bracket that closes what is open at `begin`."""
    depth = 0
    for token in tokens[begin:]:
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        if depth < 0:
            return
        yield token


MOST_STEPS = 5_000_000
STEPS_OF_A_VALUE = 1000  # of an aggregate or output that is rewritten
_STEPS_BETWEEN_LOOKS = 1000


class Effort:
    """Counts the steps of planning one statement, and ends it if they are too many or no longer wanted.

    A step is a token that the parser looks at, or a character that DuckDB binds. An aggregate or output that
    is rewritten counts as a thousand steps. So a step is about a microsecond. Nothing here reads a clock.

    Args:
        still_wanted: called every thousand steps. It raises an error to end the planning.
        most_steps: the steps that planning may take.
    """

    def __init__(self, still_wanted: Callable[[], None] = lambda: None, most_steps: int = MOST_STEPS) -> None:
        self.steps = 0
        self._still_wanted = still_wanted
        self._most_steps = most_steps
        self._look_at = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises SqlError if they are too many, and whatever `still_wanted` raises."""
        self.steps += steps
        if self.steps >= self._look_at:
            self._look_at = self.steps + _STEPS_BETWEEN_LOOKS
            pause()
            self._still_wanted()
        if self.steps > self._most_steps:
            raise SqlError(
                f"planning the query would take more than {self._most_steps:,} steps; give it fewer columns, "
                "conditions or subqueries, or ask for its parts one by one"
            )

    def anew(self) -> Effort:
        """Return a new effort that the same caller may end, for one more plan of the same statement."""
        return Effort(self._still_wanted, self._most_steps)


MOST_CHARACTERS = 131_072
MOST_TOKENS = 40_000
MOST_OPEN = 30
MOST_DEPTH = 200
MOST_WEIGHT = 20_000_000
MOST_CONDITIONS = 1000
MOST_JOINED = 50
LONGEST_INTERVAL = 100

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SPLIT = "split it, or load long lists into a table"


def check_text(sql: str) -> None:
    """Raise SqlError for a text that is too long, or has characters that are not Unicode text."""
    if len(sql) > MOST_CHARACTERS:
        raise too_large(f"the SQL has {len(sql):,} characters", MOST_CHARACTERS, _SPLIT)
    if (odd := _NO_TEXT.search(sql)) is not None:
        raise SqlError(
            f"the SQL has the character U+{ord(odd[0]):04X}, which is no text; take it out",
            position_of(sql, odd.start()),
        )


def check_tokens(tokens: list[Token]) -> None:
    """Raise SqlError for too many tokens, or brackets and CASEs that nest too deeply."""
    if len(tokens) > MOST_TOKENS:
        raise too_large(f"the SQL has {len(tokens):,} words and signs", MOST_TOKENS, _SPLIT)
    depth = 0
    for before, token in pairwise(tokens):
        is_interval = before.token_type is TokenType.INTERVAL and token.token_type is TokenType.STRING
        if is_interval and len(token.text) > LONGEST_INTERVAL:  # read in time that grows with the square
            said = f"the text of an INTERVAL has {len(token.text):,} characters"
            raise too_large(said, LONGEST_INTERVAL, "write a number and a unit")
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MOST_OPEN:
            raise too_deep(f"more than {MOST_OPEN} brackets and CASEs", (token.line, token.col))


def check_tree(tree: exp.Expr) -> None:
    """Raise SqlError for an expression that is too deep, or for too many deep ones.

    DuckDB goes through an expression once for each of its levels, and again for each node. So the cost grows
    with the squares of the depths. A chain of ANDs or ORs is one level.
    """
    weight = conditions = 0
    pending = deque([(tree, 1)])
    while pending:
        node, depth = pending.pop()
        if depth > MOST_DEPTH:
            raise too_deep(f"more than {MOST_DEPTH} operators or functions", None)
        weight += depth * depth
        conditions += isinstance(node, exp.And)
        if (joined := len(node.args.get("joins") or [])) > MOST_JOINED:
            raise too_large(f"a FROM joins {joined:,} tables", MOST_JOINED, "join some of them in a WITH")
        for child in node.iter_expressions():
            chained = isinstance(node, exp.Connector) and type(child) is type(node)
            pending.append((child, depth if chained else 1 if isinstance(child, exp.Query) else depth + 1))
    if conditions > MOST_CONDITIONS:
        raise too_large(
            f"the SQL joins {conditions:,} conditions by AND", MOST_CONDITIONS, "use IN, or a table"
        )
    if weight > MOST_WEIGHT:
        raise too_large(
            f"the SQL's expressions come to {weight:,} by the squares of their nodes' depths",
            MOST_WEIGHT,
            "name their inner parts in a WITH, or ask for fewer of them",
        )


def too_large(said: str, most: int, advice: str) -> SqlError:
    return SqlError(f"{said}; up to {most:,} are accepted: {advice}")


def too_deep(said: str, position: tuple[int, int] | None) -> SqlError:
    return SqlError(f"the SQL is nested {said} deep; name its inner parts in a WITH", position)


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


class _Parser(RelaqsParser):
    """Reads f(DISTINCT x, y). sqlglot takes x, y for one argument there, and misses the second one."""

    FUNCTIONS: ClassVar = RelaqsParser.FUNCTIONS | _of_several()


class _CountingParser(_Parser):
    """sqlglot's parser with its steps counted. It goes back and tries again where it guessed wrong."""

    __slots__ = ("_effort", "_open_brackets", "_steps_left")

    def __init__(self, effort: Effort, token_count: int, dialect: type[Relaqs] = Relaqs) -> None:
        super().__init__(dialect=dialect)
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


class _ArrowsParser(_CountingParser):
    """Reads `j -> 'a' = '1'` as Postgres does, where an arrow binds as || does. In DuckDB it binds least."""

    __slots__ = ()

    JSON_OPERATORS: ClassVar[dict[Any, Any]] = ARROWS


def read_statements(sql: str, effort: Effort, dialect: type[Relaqs] = Relaqs) -> list[exp.Expr]:
    """Return the statements of a text that is not too large.

    Raises:
        SqlError: it is too large, or does not parse. It has the place if that is known.
    """
    check_text(sql)
    try:
        tokens = dialect().tokenize(sql)
        check_tokens(tokens)
        parser = _ArrowsParser if dialect.ARROW_BINDS_AS_CONCATENATION else _CountingParser
        trees = _statements(parser(effort, len(tokens), dialect).parse(tokens, sql))
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


def tree_of(sql: str) -> exp.Expr:
    """Return the one statement of SQL that a plan has, which may be longer than what people may write."""
    (tree,) = _statements(_Parser(dialect=Relaqs).parse(tokens_of(sql), sql))
    return tree


def _statements(parsed: Iterable[exp.Expr | None]) -> list[exp.Expr]:
    """Return the statements of a text, without the semicolons and comments between them."""
    return [tree for tree in parsed if tree is not None and not isinstance(tree, exp.Semicolon)]


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


_SPACES = " \t\n\r"
# What is read without tokens: one statement of plain characters and texts, without a comment or a semicolon.
_ONE_PLAIN = re.compile(r"(?:[A-Za-z0-9_ \t\n\r.,()\[\]<>=!*+%:|]|'[^'\\]*'|\"[^\"\\]*\")*")

PlacedError: TypeAlias = SqlError | ExpressionError


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text.

    Attributes:
        sql: without the semicolon at its end, and without the comments around it.
        line: where it begins in the text, from 1.
        column: where it begins in that line, from 1.
        is_ended: whether a semicolon ends it.
        comments: in it and around it, without their marks.
    """

    sql: str
    line: int
    column: int
    is_ended: bool
    comments: tuple[str, ...] = ()

    def placed(self, error: PlacedError, before: str = "") -> PlacedError:
        """Return an error of this statement with the position that it has in the whole text.

        before: words that stand before it.
        """
        if error.position is None:
            return error.at(None, before)
        line, column = error.position
        place = (self.line + line - 1, column if line > 1 else self.column + column - 1)
        return error.at(place, before)


def statements_of(text: str) -> tuple[Statement, ...]:
    """Return the statements of a text, in order. Empty ones are left out.

    Raises:
        SqlError: a quote or a comment is not closed.
    """
    return _by_tokens(text) if _ONE_PLAIN.fullmatch(text) is None else _only(text)


def _by_tokens(text: str) -> tuple[Statement, ...]:
    try:
        tokens = tokens_of(text)
    except TokenError:
        raise SqlError(UNCLOSED) from None
    found: list[Statement] = []
    own: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            own.append(token)
        elif own:
            found.append(_statement(text, own, is_ended=True))
            own = []
    return (*found, _statement(text, own, is_ended=False)) if own else tuple(found)


def _only(text: str) -> tuple[Statement, ...]:
    """Return the statement of a text that has one at most, and no comment."""
    sql = text.strip(_SPACES)
    if not sql:
        return ()
    line, column = position_of(text, text.index(sql[0]))
    return (Statement(sql, line, column, is_ended=False),)


def is_finished(text: str) -> bool:
    """Return whether nothing is left open: the last statement has its semicolon, or there is none."""
    try:
        found = statements_of(text)
    except SqlError:
        return False
    return not found or found[-1].is_ended


def _statement(text: str, tokens: list[Token], *, is_ended: bool) -> Statement:
    begin, end = tokens[0].start, tokens[-1].end + 1
    line, column = position_of(text, begin)
    comments = tuple(comment for token in tokens for comment in token.comments)
    return Statement(text[begin:end], line, column, is_ended, comments)
