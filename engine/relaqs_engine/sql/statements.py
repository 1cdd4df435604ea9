"""Statements and clauses that are no plain SELECT, written out as one. Such a SELECT may have estimates.

- COLUMNS(…) among the outputs becomes the columns that DuckDB takes it for (`columns_written_out`).
- A PIVOT with values becomes one aggregate for each of them (`select_for_pivots`). DuckDB compares texts,
  too: a value of 2.50 is no 2.5. What is less simple stays a PIVOT, and runs exactly.
- A PIVOT that names no values depends on the data, so the data are asked first (`with_pivot_values`).
  DuckDB does the same: it makes an ENUM of the values, and NULL is none of them.
- SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT and UNPIVOT become a SELECT of their rows (`as_select`).

    PIVOT trips ON zone USING sum(fare)                                          as it was written
    FROM trips SELECT DISTINCT CAST(zone AS VARCHAR) AS value ORDER BY 1         asked first
    PIVOT trips ON (zone) IN ('A', 'B') USING sum(fare)                          with its values

    FROM (PIVOT trips ON zone IN ('A', 'B') USING sum(fare) GROUP BY day)
    FROM (SELECT day, SUM(fare) FILTER(WHERE CAST(zone AS VARCHAR) = 'A') AS "A",
                      SUM(fare) FILTER(WHERE CAST(zone AS VARCHAR) = 'B') AS "B" FROM trips GROUP BY day)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import quote_text, syntax_error
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.dialect import DIALECT, find_all, find_first
from relaqs_engine.sql.read import (
    GIVE_ROWS,
    LOOK,
    SHOWS_INSIDE,
    Edit,
    WrittenSql,
    check_text,
    check_tokens,
    first_word,
    outside_brackets,
    statement_tokens,
    until_closed,
    verb_place,
)

_OF_ANY_NUMBER = (exp.Coalesce, exp.Greatest, exp.Least)
_OF_ANY_NUMBER_IN_A_LIST = (*_OF_ANY_NUMBER, exp.Anonymous, exp.Array, exp.Concat, exp.In)

Describe = Callable[[str], Sequence[tuple[str, str]]]


def columns_written_out(tree: exp.Query, describe: Describe) -> exp.Query:
    """Return the query with one output for each column that a COLUMNS(…) stands for.

    *COLUMNS(…) stands for all of its columns at once, as arguments of one function. It is the same query,
    unchanged, where COLUMNS(…) stands elsewhere than among the outputs of the outermost SELECT, as in a
    subquery there, or where two tables have a column of one name.

    Args:
        describe: gives the names and types of a query's columns, as DuckDB's binder has them.

    >>> from relaqs_engine.sql.binder import Binder
    >>> query = sqlglot.parse_one("SELECT avg(COLUMNS('km|fare')) FROM trips", dialect="duckdb")
    >>> print(columns_written_out(query, Binder(CATALOG).describe).sql())
    SELECT AVG("km") AS "km", AVG("fare") AS "fare" FROM trips
    """
    if not isinstance(tree, exp.Select):
        return tree
    items = []
    for item in tree.expressions:
        found = list(find_all(item, exp.Columns))
        if not found:
            items.append(item)
            continue
        if any(each.parent_select is not tree for each in found):
            return tree
        if all(each.args.get("unpack") for each in found):
            if (spread := _spread(tree, item, describe)) is None:
                return tree
            items.append(spread)
            continue
        if any(each != found[0] or each.args.get("unpack") for each in found):
            return tree
        names = _names(tree, found[0].copy(), describe)
        if _repeats(names):
            return tree
        outputs = _names(tree, item.copy(), describe)
        items += _for_each(item, names, outputs)
    return tree.select(*items, append=False)


def _names(tree: exp.Select, item: exp.Expr, describe: Describe) -> list[str]:
    """Return the names that the columns of an output have in DuckDB."""
    only = exp.Select(expressions=[item])
    for part in ("with_", "from_", "joins"):
        if (value := tree.args.get(part)) is not None:
            only.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    return [name for name, _ in describe(only.sql(DIALECT))]


def _repeats(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _for_each(item: exp.Expr, names: Sequence[str], outputs: Sequence[str]) -> Iterator[exp.Expr]:
    for name, output in zip(names, outputs, strict=True):
        value = item.unalias().copy()
        for columns in list(find_all(value, exp.Columns)):
            column = _column(name, columns)
            if columns is value:
                value = column
            else:
                columns.replace(column)
        yield exp.alias_(value, output, quoted=True)


def _column(name: str, columns: exp.Columns) -> exp.Column:
    """Return one of the columns that a COLUMNS(…) stands for."""
    star = columns.this
    table = star.table if isinstance(star, exp.Column) else None
    return exp.column(name, table or None, quoted=True)


def _spread(tree: exp.Select, item: exp.Expr, describe: Describe) -> exp.Expr | None:
    """Return an output with columns in the place of each *COLUMNS(…), None where that cannot be written."""
    value = item.unalias().copy()
    for columns in list(find_all(value, exp.Columns)):
        one_by_one = columns.copy()
        one_by_one.set("unpack", None)
        names = _names(tree, one_by_one, describe)
        if _repeats(names) or not _put_in(columns, [_column(name, columns) for name in names]):
            return None
    (output,) = _names(tree, item.copy(), describe)
    return exp.alias_(value, output, quoted=True)


def _put_in(columns: exp.Columns, arguments: list[exp.Expr]) -> bool:
    """Put columns in the place of a *COLUMNS(…) among a function's arguments. False: it stands elsewhere."""
    call = columns.parent
    if columns.arg_key == "this" and isinstance(call, _OF_ANY_NUMBER) and arguments:
        call.set("this", arguments[0])
        call.set("expressions", [*arguments[1:], *call.expressions])
        return True
    if columns.arg_key == "expressions" and isinstance(call, _OF_ANY_NUMBER_IN_A_LIST):
        places = [[each] if each is not columns else arguments for each in call.expressions]
        call.set("expressions", [each for place in places for each in place])
        return True
    return False


MOST_COLUMNS = 256  # beyond, one SELECT would take longer than DuckDB's own PIVOT
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?")  # that DuckDB writes as it stands


def select_for_pivots(tree: exp.Query) -> None:
    """Write a SELECT in the place of each simple PIVOT. In place."""
    for pivot in list(find_all(tree, exp.Pivot)):
        if isinstance(pivot.parent, exp.Subquery) and (select := _select_for(pivot)) is not None:
            pivot.replace(select)


def _select_for(pivot: exp.Pivot) -> exp.Select | None:
    """Return the SELECT, None where the PIVOT is not as simple as that."""
    group = pivot.args.get("group")
    keys = group.expressions if isinstance(group, exp.Group) else []
    source, aggregates = pivot.this, _aggregates(pivot)
    if math.prod(len(each.expressions) for each in pivot.expressions) * len(aggregates) > MOST_COLUMNS:
        return None
    values = [_values(each) for each in pivot.expressions]
    is_simple = isinstance(source, exp.Table | exp.Subquery) and not source.args.get("joins")
    is_simple &= bool(keys) and all(isinstance(key, exp.Column) and not key.table for key in keys)
    if pivot.args.get("unpivot") or not (is_simple and aggregates and values and all(values)):
        return None
    columns = [
        (_name(chosen, suffix), _filtered(aggregate, chosen))
        for chosen in product(*values)
        for aggregate, suffix in aggregates
    ]
    names = {*(key.name.lower() for key in keys), *(name.lower() for name, _ in columns)}
    if len(names) < len(keys) + len(columns):
        return None
    if "" in names:  # of an empty text, which DuckDB calls '' and SQL cannot name
        return None
    shown = [exp.alias_(value, name, quoted=True) for name, value in columns]
    return exp.select(*(key.copy() for key in keys), *shown).from_(source.copy()).group_by(*keys)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that a PIVOT turns to a column: what it is called there, and which rows have it."""

    word: str
    condition: exp.Expression


def _name(chosen: Sequence[_Value], suffix: str) -> str:
    return "_".join([*(value.word for value in chosen), *([suffix] if suffix else [])])


def _filtered(aggregate: exp.Expression, chosen: Sequence[_Value]) -> exp.Filter:
    condition = exp.and_(*(value.condition.copy() for value in chosen))
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition))


def _aggregates(pivot: exp.Pivot) -> list[tuple[exp.Expression, str]]:
    """Return the aggregates and what their columns are called beside the value. Empty: it is not known."""
    using = pivot.args.get("using") or [exp.Count(this=exp.Star(), big_int=True)]
    found = [(each.unalias(), each.alias) for each in using]
    are_simple = all(
        isinstance(each, exp.AggFunc) and find_first(each, exp.Order) is None for each, _ in found
    )
    are_named = len(found) == 1 or all(alias for _, alias in found)
    return found if are_simple and are_named else []


def _values(on: exp.Expression) -> list[_Value]:
    """Return the values that one expression is turned to columns by. Empty: it is not known which."""
    if not isinstance(on, exp.In) or on.args.get("query"):
        return []
    if isinstance(on.this, exp.Binary | exp.Unary) and not isinstance(on.this, exp.Paren):
        return []  # DuckDB reads n % 2 IN (0, 1) as one expression, which is true or false
    what = on.this.unnest()
    words = [_word(each) for each in on.expressions]
    text = exp.cast(what.copy(), "text")
    return [
        _Value(word, exp.Is(this=what.copy(), expression=exp.Null()))
        if isinstance(each, exp.Null)
        else _Value(word, exp.EQ(this=text.copy(), expression=exp.Literal.string(word)))
        for each, word in zip(on.expressions, words, strict=True)
        if word is not None
    ] * (None not in words)


def _word(value: exp.Expression) -> str | None:
    """Return a value as DuckDB writes it. None: that is not sure."""
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Literal) and (value.is_string or _PLAIN_NUMBER.fullmatch(value.this)):
        return str(value.this)
    return None


MOST_VALUES = 10_000  # of one PIVOT: each is a column

_AFTER_ON = frozenset({"using", "group", "order", "limit"})
_OPERATORS = frozenset({"not", "and", "or", "is", "like", "ilike", "between"})


@dataclass(frozen=True, slots=True)
class _OpenValues:
    """What a PIVOT turns to columns without naming its values.

    Attributes:
        begin, end: where the expression is.
        asked: a SELECT of the values, as texts in their order. It is the statement with edits, so that an
            error in it is placed in what the user wrote.
    """

    begin: int
    end: int
    asked: WrittenSql


def with_pivot_values(written: WrittenSql, values_of: Callable[[WrittenSql], Sequence[str]]) -> WrittenSql:
    """Return the statement with the values that each of its PIVOTs takes from the data.

    A PIVOT behind a WITH inside of brackets, or of joined tables without brackets, is left as it is.

    Args:
        written: one SELECT, in which each PIVOT is in brackets.
        values_of: returns the texts that such a SELECT gives.

    Raises:
        SqlError: there are too many values.
    """
    edits = []
    for each in _open_values(written):
        values = values_of(each.asked)
        if len(values) > MOST_VALUES:
            raise SqlError(
                f"{written.sql[each.begin : each.end]} has {len(values):,} values, and this PIVOT would give "
                f"as many columns; at most {MOST_VALUES:,} are given. Name some, as in ON x IN ('a', 'b')"
            )
        if values:
            edits.append(Edit(each.begin, each.begin, "("))
            edits.append(Edit(each.end, each.end, f") IN ({', '.join(map(quote_text, values))})"))
    return written.edited(edits)


def _open_values(written: WrittenSql) -> Iterator[_OpenValues]:
    """Yield what each PIVOT of a statement turns to columns without naming values."""
    tokens = statement_tokens(written.sql)
    for place in range(len(tokens) - 1):
        if place and first_word(tokens[place]) == "with":
            return
        is_open = tokens[place].token_type is TokenType.L_PAREN
        if is_open and first_word(tokens[place + 1]) == "pivot":
            pivot = list(until_closed(tokens, place + 1))
            outside = [(at, first_word(token)) for at, token in outside_brackets(pivot, 1)]
            on = next((at for at, word in outside if word == "on"), None)
            if on is not None and not any(word == "join" for at, word in outside if at < on):
                yield from _open_of(written, pivot, on, _common_end(tokens, place))


def _common_end(tokens: Sequence[Token], place: int) -> int:
    """Return where the WITH ends that has all queries that a token of the statement can name."""
    verb = verb_place(tokens)
    if place >= verb:
        return tokens[verb].start if verb else 0
    outside = (token for at, token in outside_brackets(tokens, 0) if at < place)
    return max((token.start for token in outside if token.token_type is TokenType.COMMA), default=0)


def _open_of(written: WrittenSql, pivot: Sequence[Token], on: int, common_end: int) -> Iterator[_OpenValues]:
    """Yield the expressions behind an ON that have no IN.

    Args:
        pivot: the tokens of the PIVOT.
        on: which of them is ON. Before it is what is pivoted.
        common_end: where the WITH ends that belongs to it.
    """
    outside = list(outside_brackets(pivot, on + 1))
    end = next((at for at, token in outside if first_word(token) in _AFTER_ON), len(pivot))
    commas = [at for at, token in outside if at < end and token.token_type is TokenType.COMMA]
    for first, after in zip([on + 1, *(comma + 1 for comma in commas)], [*commas, end], strict=True):
        if first < after and not _names_values(pivot[first:after]):
            begin, stop = pivot[first].start, pivot[after - 1].end + 1
            edits = (
                Edit(common_end, pivot[1].start, " FROM " if common_end else "FROM "),
                Edit(pivot[on - 1].end + 1, begin, " SELECT DISTINCT CAST("),
                Edit(stop, len(written.sql), " AS VARCHAR) AS value ORDER BY 1"),
            )
            yield _OpenValues(begin, stop, written.edited(edits))


def _names_values(tokens: Sequence[Token]) -> bool:
    """Whether an expression behind ON names its values.

    Without brackets around n % 2, DuckDB reads `n % 2 IN (0, 1)` as one expression, which is true or false.
    """
    outside = [token for _, token in outside_brackets(tokens, 0)]
    words = list(map(first_word, outside))
    if "in" not in words:
        return False
    return words[0] == "case" or not any(map(_is_operator, outside[: words.index("in")]))


def _is_operator(token: Token) -> bool:
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        return False
    is_sign = not token.text[0].isalnum() and token.text[0] not in "_()." and token.text != "::"
    return is_sign or first_word(token) in _OPERATORS


_BEGIN_A_SELECT = frozenset({"select", "from", "with", "values", "(", *LOOK, *GIVE_ROWS})
_AFTER_ROWS = frozenset({"order", "limit", "offset", "fetch", "union", "intersect", "except"})
_NOT_THE_CLAUSE_AFTER = (TokenType.DOT, TokenType.ALIAS, TokenType.STAR)  # AS limit is a name


# A catalog knows no constraints: each column may be NULL, and has no key and no default.
_CONSTRAINTS = "'YES' AS \"null\", " + ", ".join(
    f"CAST(NULL AS VARCHAR) AS {name}" for name in ('"key"', '"default"', "extra")
)


def as_select(written: WrittenSql, tables: Iterable[str], describe: Describe) -> WrittenSql:
    """Return a SELECT that answers SHOW TABLES, DESCRIBE, SUMMARIZE, PIVOT or UNPIVOT.

    The last two may have a WITH before them, also in the brackets of another query, and (SHOW TABLES) may
    be inside of any query. Other SQL comes back as it is, so only what `may_be_written_out` says is asked.

    Args:
        written: one statement.
        tables: the names that can be read.
        describe: returns the names and types of a SELECT's columns.

    Raises:
        SqlError: DuckDB cannot parse it, it is a SHOW or DESCRIBE of something else, or what it describes is
            wrong. It has the place in what the user wrote.
    """
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
    """Return the views with a SELECT for each (SHOW TABLES) in them: of the tables and of the views."""
    shown = _shown([*tables, *views])
    return {
        name: WrittenSql(sql).edited(_tables_shown_inside(statement_tokens(sql), shown)).sql
        if SHOWS_INSIDE.search(sql)
        else sql
        for name, sql in views.items()
    }


def _shown(tables: Iterable[str]) -> str:
    """Return the SELECT for SHOW TABLES."""
    return f"SELECT * FROM (VALUES {_rows([name] for name in sorted(tables))}) AS shown(name)"


def _statement(written: WrittenSql, shown: str, describe: Describe) -> WrittenSql:
    """Return the SELECT for a statement. shown: the SELECT for SHOW TABLES."""
    if not (tokens := statement_tokens(written.sql)):
        return written
    if again := _described_again(tokens):
        return _statement(written.edited([again]), shown, describe)
    verb = verb_place(tokens)
    word = first_word(tokens[verb])
    if word in GIVE_ROWS:
        return written.edited(_in_brackets(tokens, verb))
    if verb or word not in LOOK:
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
    what = GIVE_ROWS[first_word(tokens[verb])]
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
        if verb and first_word(inner[verb]) in GIVE_ROWS:
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
    return len(tokens) > 2 and all(first_word(token) in LOOK for token in tokens[:3])


def _not_answered(sql: str) -> SqlError:
    known = "SHOW TABLES, DESCRIBE and SUMMARIZE of a table or a SELECT"
    return SqlError(f"{sql.strip()!r} is not answered; there are {known}")


def _rows(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as VALUES has them."""
    return ", ".join(f"({', '.join(map(quote_text, row))})" for row in rows)
