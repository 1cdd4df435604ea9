"""Statements that give rows, as SELECTs: SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT and UNPIVOT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import quote_text, syntax_error
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.columns import Describe
from relaqs_engine.sql.size import check_text, check_tokens
from relaqs_engine.sql.tokens import first_word, outside_brackets, statement_tokens, until_closed, verb_place
from relaqs_engine.sql.written import Edit, WrittenSql

_GIVE_ROWS = {
    "pivot": "PIVOT",
    "pivot_wider": "PIVOT",
    "unpivot": "UNPIVOT",
    "pivot_longer": "UNPIVOT",
}
"""The first words of statements that can be in the brackets of a FROM, and what sqlglot reads there."""

_LOOK = ("show", "describe", "desc", "summarize")
_BEGIN_A_SELECT = frozenset({"select", "from", "with", "values", "(", *_LOOK, *_GIVE_ROWS})
_AFTER_ROWS = frozenset({"order", "limit", "offset", "fetch", "union", "intersect", "except"})
_NOT_THE_CLAUSE_AFTER = (TokenType.DOT, TokenType.ALIAS, TokenType.STAR)  # AS limit is a name

_GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*+"
_BEGINS_SO = re.compile(rf"{_GAP}(?:{'|'.join([*_LOOK, *_GIVE_ROWS])})\b", re.IGNORECASE | re.DOTALL)
_HAS_WITH = re.compile(r"\bwith\b", re.IGNORECASE)
_HAS_ROWS = re.compile(rf"\b(?:{'|'.join(_GIVE_ROWS)})\b", re.IGNORECASE)
_SHOWS_INSIDE = re.compile(r"\(\s*show\b", re.IGNORECASE)

# A catalog knows no constraints: each column may be NULL, and has no key and no default.
_CONSTRAINTS = "'YES' AS \"null\", " + ", ".join(
    f"CAST(NULL AS VARCHAR) AS {name}" for name in ('"key"', '"default"', "extra")
)


def as_select(written: WrittenSql, tables: Iterable[str], describe: Describe) -> WrittenSql:
    """Return a SELECT that answers SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT or UNPIVOT.

    The last two may have a WITH before them, also in the brackets of another query, and (SHOW TABLES) may
    be inside of any query. Other SQL comes back as it is.

    Args:
        written: one statement.
        tables: the names that can be read.
        describe: returns the names and types of a SELECT's columns.

    Raises:
        SqlError: DuckDB cannot parse it, it is a SHOW or DESCRIBE of something else, or what it describes is
            wrong. It has the place in what the user wrote.

    >>> def written_for(sql):
    ...     print(as_select(WrittenSql(sql), ["trips", "zones"], lambda sql: [("fare", "DOUBLE")]).sql)
    >>> written_for("SHOW TABLES")
    SELECT * FROM (VALUES ('trips'), ('zones')) AS shown(name)
    >>> written_for("summarize trips")
    SELECT * FROM (SUMMARIZE SELECT * FROM trips)
    >>> written_for("DESCRIBE trips")
    SELECT column_name, column_type, 'YES' AS "null", CAST(NULL AS VARCHAR) AS "key", CAST(NULL AS VARCHAR) AS
    "default", CAST(NULL AS VARCHAR) AS extra
    FROM (VALUES ('fare', 'DOUBLE')) AS shown(column_name, column_type)
    >>> written_for("WITH t AS (FROM trips) PIVOT t ON zone IN (1, 2) USING sum(fare) ORDER BY 1")
    WITH t AS (FROM trips) SELECT * FROM (PIVOT t ON zone IN (1, 2) USING sum(fare)) ORDER BY 1
    """
    if not _may_be_one(written.sql):
        return written
    with written.placing():
        check_text(written.sql)
        tokens = statement_tokens(written.sql)
        check_tokens(tokens)
        if tokens and (wrong := syntax_error(written.sql)) is not None:
            raise SqlError(f"the SQL does not parse: {wrong.message}", wrong.position)
    shown = _shown(tables)
    inside = [*_tables_shown_inside(tokens, shown), *_rows_behind_a_with_inside(tokens)]
    written = written.edited(sorted(inside, key=lambda edit: edit.begin))
    return _statement(written, shown, describe)


def with_tables_shown(views: Mapping[str, str], tables: Iterable[str]) -> dict[str, str]:
    """Return the views with a SELECT for each (SHOW TABLES) in them: of the tables and of the views.

    >>> with_tables_shown({"few": "SELECT count(*) FROM (SHOW TABLES)"}, ["trips"])["few"]
    "SELECT count(*) FROM (SELECT * FROM (VALUES ('few'), ('trips')) AS shown(name))"
    """
    shown = _shown([*tables, *views])
    return {
        name: WrittenSql(sql).edited(_tables_shown_inside(statement_tokens(sql), shown)).sql
        if _SHOWS_INSIDE.search(sql)
        else sql
        for name, sql in views.items()
    }


def _shown(tables: Iterable[str]) -> str:
    """Return the SELECT for SHOW TABLES."""
    return f"SELECT * FROM (VALUES {_rows([name] for name in sorted(tables))}) AS shown(name)"


def _may_be_one(sql: str) -> bool:
    if _BEGINS_SO.match(sql) or _SHOWS_INSIDE.search(sql):
        return True
    return _HAS_ROWS.search(sql) is not None and _HAS_WITH.search(sql) is not None


def _statement(written: WrittenSql, shown: str, describe: Describe) -> WrittenSql:
    """Return the SELECT for a statement. shown: the SELECT for SHOW TABLES."""
    if not (tokens := statement_tokens(written.sql)):
        return written
    if again := _described_again(tokens):
        return _statement(written.edited([again]), shown, describe)
    verb = verb_place(tokens)
    word = first_word(tokens[verb])
    if word in _GIVE_ROWS:
        return written.edited(_in_brackets(tokens, verb))
    if verb or word not in _LOOK:
        return written
    whole = (tokens[0].start, tokens[-1].end + 1)
    if word == "show":
        if [first_word(token) for token in tokens[1:]] != ["tables"]:
            raise _not_answered(written.sql)
        return written.edited([Edit(*whole, shown)])
    of = _statement(written.edited([_left_out(tokens, written.sql)]), shown, describe)
    if word == "summarize":
        inner = statement_tokens(of.sql)
        begin, end = inner[0].start, inner[-1].end + 1
        return of.edited([Edit(begin, begin, "SELECT * FROM (SUMMARIZE "), Edit(end, end, ")")])
    with of.placing():
        columns = _rows(describe(of.sql))
    names = "column_name, column_type"
    text = f"SELECT {names}, {_CONSTRAINTS} FROM (VALUES {columns}) AS shown({names})"
    return written.edited([Edit(*whole, text)])


def _in_brackets(tokens: Sequence[Token], verb: int) -> Iterator[Edit]:
    """Yield what makes a FROM of a PIVOT or UNPIVOT. What follows it, as ORDER BY, stays outside."""
    what = _GIVE_ROWS[first_word(tokens[verb])]
    yield Edit(tokens[verb].start, tokens[verb].end + 1, f"SELECT * FROM ({what}")
    end = tokens[-1].end + 1
    for place, token in outside_brackets(tokens, verb + 1):
        before = tokens[place - 1]
        if first_word(token) in _AFTER_ROWS and before.token_type not in _NOT_THE_CLAUSE_AFTER:
            end = before.end + 1
            break
    yield Edit(end, end, ")")


def _tables_shown_inside(tokens: Sequence[Token], shown: str) -> Iterator[Edit]:
    """Yield what makes a SELECT of each (SHOW TABLES)."""
    for place in range(len(tokens) - 3):
        before, show, tables, after = tokens[place : place + 4]
        if (before.token_type, after.token_type) != (TokenType.L_PAREN, TokenType.R_PAREN):
            continue
        if (first_word(show), first_word(tables)) == ("show", "tables"):
            yield Edit(show.start, tables.end + 1, shown)


def _rows_behind_a_with_inside(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield what makes a SELECT of each PIVOT and UNPIVOT in (WITH … PIVOT …)."""
    for place, token in enumerate(tokens[:-1]):
        if token.token_type is not TokenType.L_PAREN or first_word(tokens[place + 1]) != "with":
            continue
        inner = list(until_closed(tokens, place + 1))
        verb = verb_place(inner)
        if verb and first_word(inner[verb]) in _GIVE_ROWS:
            yield from _in_brackets(inner, verb)


def _left_out(tokens: Sequence[Token], sql: str) -> Edit:
    """Return what makes a SELECT of what is described. A table's name stands for all of its rows."""
    has_word = len(tokens) > 1 and first_word(tokens[1]) == "table"
    place = 2 if has_word else 1
    if len(tokens) <= place or tokens[place].token_type is TokenType.STRING or _is_a_chain(tokens):
        raise _not_answered(sql)
    is_select = not has_word and first_word(tokens[place]) in _BEGIN_A_SELECT
    return Edit(tokens[0].start, tokens[place].start, "" if is_select else "SELECT * FROM ")


def _described_again(tokens: Sequence[Token]) -> Edit | None:
    """Return what leaves two of three and more DESCRIBEs in a row: each further one says the same."""
    words = (first_word(token) in ("describe", "desc") for token in tokens)
    count = sum(1 for _ in takewhile(bool, words))
    return Edit(tokens[0].start, tokens[count - 2].start, "") if count > 2 else None


def _is_a_chain(tokens: Sequence[Token]) -> bool:
    """Whether it is such as a SUMMARIZE of a DESCRIBE of a SUMMARIZE, whose cost grows with their square."""
    return len(tokens) > 2 and all(first_word(token) in _LOOK for token in tokens[:3])


def _not_answered(sql: str) -> SqlError:
    known = "SHOW TABLES, DESCRIBE and SUMMARIZE of a table or a SELECT"
    return SqlError(f"{sql.strip()!r} is not answered; there are {known}")


def _rows(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as VALUES has them."""
    return ", ".join(f"({', '.join(map(quote_text, row))})" for row in rows)
