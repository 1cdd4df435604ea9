"""What a statement means in Postgres, written in DuckDB's SQL.

Both read most statements alike. The ones below they read in two ways, without a word to the reader. A client
of Postgres would get another answer than the one it asked for:

| statement | Postgres | DuckDB |
|---|---|---|
| `7 / 2` of integers | 3 | 3.5 |
| `1 / 0`, `x / 0` | an error | infinite |
| `x::numeric` | keeps its digits | DECIMAL(18, 3) |
| `ORDER BY x DESC` | NULLs first | NULLs last |
| `x SIMILAR TO 'f%'` | a pattern with `%` and `_` | a regular expression |
| `format('%s', x)` | `%s` stands for a value | `{}` stands for one |
| `SELECT generate_series(1, 3)` | three rows | one list |

`to_char`, `btrim`, `FOR UPDATE` and `FROM current_schema()` DuckDB has not. What cannot be told from the
text, as a pattern in a column, is refused with what to write instead.

Source: PostgreSQL 15, chapters 4.1.4 (operators), 8.1.2 (numeric), 9.4.1 (format), 9.7.2 (SIMILAR TO), 9.8
(to_char), 7.5 (ORDER BY) and the rule of FigureColname for names of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.postgres.wording import TextEdit, edited, tokens_or_none
from relaqs_engine.sql.dialect import DIALECT
from relaqs_engine.sql.read import Effort, read_statements

Tables: TypeAlias = Mapping[str, Mapping[str, str]]
"""Types of columns by a table's name and the column's, both in lower case."""

_WITH_ANOTHER_MEANING = re.compile(
    r"/|\b(numeric|decimal|dec|similar|format|generate_series|to_char|symmetric|round|order\s+by|with|from\s*\()\b",
    re.IGNORECASE,
)
_WITH_OTHER_WORDS = re.compile(r"\bdesc\b|\bbtrim\b|\bfor\b|\bcurrent_(?:schema|database)\b", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")

_NUMERIC = "DECIMAL(38, 16)"  # holds each BIGINT, and of a double all digits that count
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "INT2", "INT4", "INT8", "SHORT", "LONG"}
_REALS = {"DOUBLE", "FLOAT", "REAL", "FLOAT4", "FLOAT8"}
_LARGE = {"BIGINT", "INT8", "LONG"}  # their sum is numeric in Postgres
_COUNTS = (exp.Count, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile)
_COUNT_NAMES = {"length", "char_length", "character_length", "strpos", "ascii", "cardinality", "array_length"}
_OF_FIRST = (exp.Paren, exp.Neg, exp.Window, exp.Filter, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)
_OF_ARGUMENTS = (exp.Max, exp.Min, exp.Abs, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
_Kind: TypeAlias = Literal["integer", "numeric", "real"]
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv)

_NAMES = {
    "listagg": "string_agg",
    "quantile_cont": "percentile_cont",
    "quantile_disc": "percentile_disc",
    "trim": "btrim",
}  # of calls, where DuckDB writes them otherwise

_NUMBERS_OF_A_DATE = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "FMMM": "%-m",
    "FMDD": "%-d",
    "FMHH24": "%-H",
    "FMHH12": "%-I",
}  # in letters of any case
_DATE_FIELDS = {
    **_NUMBERS_OF_A_DATE,
    "AM": "%p",
    "PM": "%p",
    "Mon": "%b",
    "Dy": "%a",
    "FMMonth": "%B",
    "FMDay": "%A",
}
_DATE_FIELD = re.compile(
    "|".join(
        f"(?i:{field})" if field in _NUMBERS_OF_A_DATE else field
        for field in sorted(_DATE_FIELDS, key=len, reverse=True)
    )
)
_DATE_LETTER = re.compile(r"[A-Za-z]")


def in_duckdb(sql: str, tables: Tables, *, is_exact: bool = True) -> str:
    """Return a SELECT of Postgres in DuckDB's words. One that both read alike comes back as it is.

    Args:
        sql: one statement. One that does not parse comes back as it is; the planner says why.
        tables: of the session. They tell which columns are integers.
        is_exact: no estimate is wanted. Each division by zero is then an error; else one of integers is.

    Raises:
        UnsupportedError: its meaning cannot be told from the text.

    >>> in_duckdb("SELECT n / 2 FROM t ORDER BY n DESC", {"t": {"n": "INTEGER"}})
    'SELECT n // 2 FROM t ORDER BY n DESC NULLS FIRST'
    >>> in_duckdb("SELECT round(avg(x)::numeric, 2) FROM t", {"t": {"x": "DOUBLE"}})
    'SELECT ROUND(CAST(AVG(x) AS DECIMAL(38, 8)), 2) FROM t'
    """
    sql = in_words_of_duckdb(sql)
    if _WITH_ANOTHER_MEANING.search(sql) is None:
        return sql
    try:
        trees = read_statements(sql, Effort())
    except SqlError:
        return sql
    if len(trees) != 1:
        return sql
    return trees[0].sql(dialect=DIALECT) if _is_changed(trees[0], tables, is_exact) else sql


def in_words_of_duckdb(sql: str) -> str:
    """Return a statement without words that DuckDB has not, or has with another meaning.

    >>> in_words_of_duckdb("SELECT btrim(w) FROM t ORDER BY k DESC FOR UPDATE")
    'SELECT trim(w) FROM t ORDER BY k DESC NULLS FIRST '
    """
    if _WITH_OTHER_WORDS.search(sql) is None:
        return sql
    return edited(sql, _word_edits(tokens_or_none(sql)))


def column_names(sql: str, names: Sequence[str]) -> list[str]:
    """Return the names of an answer's columns as Postgres gives them, where DuckDB writes out an expression.

    Args:
        sql: the SELECT, as the client wrote it.
        names: of the answer's columns, as DuckDB has them.

    >>> column_names("SELECT count(*), sum(x) / 2, d FROM t", ["count_star()", "(sum(x) / 2)", "d"])
    ['count', '?column?', 'd']
    """
    if all(_PLAIN_NAME.fullmatch(name) for name in names):
        return list(names)
    try:
        trees = read_statements(sql, Effort())
    except SqlError:
        return list(names)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return list(names)
    selected = trees[0].selects
    if len(selected) != len(names) or any(each.is_star for each in selected):
        return list(names)
    return [
        name if isinstance(each, exp.Alias | exp.Column) else _name(each) or "?column?"
        for each, name in zip(selected, names, strict=True)
    ]


def _name(node: exp.Expr) -> str:
    """Return the name that Postgres gives to an expression without one, "" where it has none."""
    match node:
        case exp.Column() | exp.Dot():
            return str(node.name)
        case exp.Alias():
            return str(node.alias)
        case exp.Cast():
            return _name(node.this) or _type_name(node.to)
        case exp.Paren() | exp.Bracket() | exp.Window() | exp.Filter() | exp.WithinGroup():
            return _name(node.this)
        case exp.Subquery():
            selected = node.this.selects if isinstance(node.this, exp.Query) else []
            return _name(selected[0]) if len(selected) == 1 else ""
        case exp.Case():
            default = node.args.get("default")
            return (_name(default) if isinstance(default, exp.Column) else "") or "case"
        case exp.Array():
            return "array"
        case exp.Exists():
            return "exists"
        case exp.StrPosition():
            return "position"
        case exp.Connector() | exp.Binary() | exp.Unary() | exp.Between() | exp.In():
            return ""
        case exp.Func():
            found = re.match(r"\w+", node.sql(dialect=DIALECT))
            name = found[0].lower() if found else ""
            return _NAMES.get(name, name)
    return ""


def _type_name(type_: exp.DataType) -> str:
    word = type_.sql(dialect=DIALECT).partition("(")[0].lower()
    names = {"int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "double": "float8"}
    names |= {"real": "float4", "decimal": "numeric", "boolean": "bool", "varchar": "varchar"}
    return names.get(word, word)


def _word_edits(tokens: Sequence[Token]) -> Iterator[TextEdit]:
    """Yield edits for words that DuckDB has not, or has with another meaning."""
    for i, token in enumerate(tokens):
        after = tokens[i + 1 : i + 4]
        word = token.text.lower()
        if token.token_type is TokenType.DESC and i and not _says(after, "nulls"):
            if tokens[i - 1].token_type is not TokenType.ALIAS and not _says(after, ".", "("):
                yield token.end + 1, token.end + 1, " NULLS FIRST"
        elif word == "btrim" and _says(after, "("):
            yield token.start, token.end + 1, "trim"
        elif word in ("current_schema", "current_database") and _says(tokens[i - 1 : i], "from", "join"):
            if len(after) > 1 and after[0].text == "(" and after[1].text == ")":
                yield token.start, after[1].end + 1, f"(SELECT {word}() AS {word}) AS {word}"
        elif token.token_type is TokenType.FOR and _says(after, "update", "share", "no", "key"):
            rest = tokens[i + 1 :]
            if all(_is_of_a_lock(each) for each in rest):
                yield token.start, (rest[-1] if rest else token).end + 1, ""
                return


def _says(tokens: Sequence[Token], *words: str) -> bool:
    return bool(tokens) and tokens[0].text.lower() in words


def _is_of_a_lock(token: Token) -> bool:
    return token.token_type is not TokenType.R_PAREN and token.text != "("


def _is_changed(tree: exp.Expr, tables: Tables, is_exact: bool) -> bool:
    """Give a tree Postgres's meaning, in place. Return whether that changed it."""
    nodes = list(tree.walk())
    kinds = {
        id(node): _kind(node.this if isinstance(node, exp.Round | exp.Cast) else node, tables)
        for node in nodes
        if isinstance(node, exp.Div | exp.Round)
        or (isinstance(node, exp.Cast) and _is_without_digits(node.to))
    }
    divided = ("integer", "numeric", "real") if is_exact else ("integer",)
    changed = False
    for node in reversed(nodes):  # what is inside comes first
        if isinstance(node, exp.Div) and kinds[id(node)] in divided:
            # Of doubles, too, DuckDB's // divides as Postgres does, and refuses zero.
            above = node.this.copy()
            if kinds[id(node)] == "numeric":
                above = exp.cast(above, "DOUBLE", dialect=DIALECT)
            node.replace(exp.IntDiv(this=above, expression=node.expression.copy()))
            changed = True
        else:
            changed |= _is_node_changed(node, kinds)
    return changed


def _is_node_changed(node: exp.Expr, kinds: Mapping[int, _Kind | None]) -> bool:
    """Give one node its meaning, in place. kinds: of quotients, of what is rounded and of what is cast."""
    new: exp.Expr
    match node:
        case exp.Between():
            return bool(node.args.get("symmetric"))  # sqlglot writes it in words that DuckDB has
        case exp.Select():
            is_ordered = _order_by_names(node)
            return _name_columns(node) or is_ordered
        case exp.Cast() if _is_without_digits(node.to) and not isinstance(node, exp.TryCast):
            # Two decimals may not fit into their product.
            is_product = isinstance(_parent(node), exp.Mul | exp.Div)
            node.set("to", exp.DataType.build("DOUBLE" if is_product else _NUMERIC, dialect=DIALECT))
            return True
        case exp.Round() if node.args.get("decimals") is not None and _is_numeric_by_double(node, kinds):
            new = exp.cast(_without_cast(node.this).copy(), _rounded_type(node), dialect=DIALECT)
            node.set("this", new)
            return True
        case exp.SimilarTo():
            node.set("expression", exp.Literal.string(_pattern(node.expression)))
            return True
        case exp.Format():
            new = _formatted(node)
        case exp.GenerateSeries() if _is_selected(node):
            new = exp.Unnest(expressions=[node.copy()])
        case exp.Anonymous() if node.name.lower() == "to_char":
            new = _as_text(node)
        case _:
            return False
    node.replace(new)
    return True


def _parent(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    return parent


def _is_numeric_by_double(call: exp.Round, kinds: Mapping[int, _Kind | None]) -> bool:
    """Whether it rounds what is a numeric in Postgres, and a double in DuckDB: an average, a quotient."""
    inner = call.this.unnest()
    if isinstance(inner, exp.Cast) and id(inner) in kinds:
        return kinds[id(inner)] in (None, "real")
    has_double = any(True for _ in inner.find_all(exp.Avg, exp.Div))
    return has_double and kinds[id(call)] == "numeric"


def _without_cast(node: exp.Expr) -> exp.Expr:
    inner = node.unnest()
    return inner.this if isinstance(inner, exp.Cast) and not isinstance(inner, exp.TryCast) else node


def _rounded_type(call: exp.Round) -> str:
    """Return a type with six digits more than are kept.

    The double next to 53.035 lies below it. Cast to sixteen digits it would be 53.0349999999999966, and be
    rounded to 53.03; cast to eight it is 53.035. Postgres counts in decimals, and says 53.04.
    """
    decimals = call.args["decimals"]
    if not (isinstance(decimals, exp.Literal) and decimals.is_int):
        return _NUMERIC
    return f"DECIMAL(38, {min(int(decimals.this) + 6, 30)})"


def _name_columns(select: exp.Select) -> bool:
    """Name the columns of a query inside another, which may call them by Postgres's names."""
    if not isinstance(select.parent, exp.Subquery | exp.CTE):
        return False
    changed = False
    for each in select.selects:
        if isinstance(each, exp.Func | exp.Cast | exp.Window | exp.Filter) and (name := _name(each)):
            each.replace(exp.alias_(each.copy(), name, quoted=True))
            changed = True
    return changed


def _order_by_names(select: exp.Select) -> bool:
    """Give ORDER BY the places of output columns that Postgres names by their call, as in ORDER BY count."""
    order = select.args.get("order")
    unnamed = [each for each in select.selects if not isinstance(each, exp.Alias | exp.Column)]
    if order is None or not unnamed or select.is_star:
        return False
    names = [
        each.alias_or_name if isinstance(each, exp.Alias | exp.Column) else _name(each)
        for each in select.selects
    ]
    changed = False
    for ordered in order.expressions:
        by = ordered.this
        if isinstance(by, exp.Column) and not by.table and names.count(by.name) == 1:
            place = names.index(by.name)
            if select.selects[place] in unnamed:
                by.replace(exp.Literal.number(place + 1))
                changed = True
    return changed


def _is_without_digits(type_: exp.DataType) -> bool:
    return type_.this is exp.DType.DECIMAL and not type_.expressions


def _pattern(pattern: exp.Expr) -> str:
    """Return the regular expression of a pattern of SIMILAR TO."""
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise UnsupportedError(
            f"SIMILAR TO {pattern.sql(dialect=DIALECT)[:60]}: its pattern must be a text, such as 'a%'; "
            "or write regexp_full_match(x, pattern) with a regular expression"
        )
    found, is_in_brackets, characters = [], False, iter(pattern.this)
    for each in characters:
        if each == "\\":
            found.append(re.escape(next(characters, each)))
        elif is_in_brackets:
            is_in_brackets = each != "]"
            found.append(each)
        elif each == "[":
            is_in_brackets = True
            found.append(each)
        else:
            found.append(
                {"%": "(?s:.*)", "_": "(?s:.)"}.get(each) or (f"\\{each}" if each in ".^$" else each)
            )
    return "".join(found)


def _formatted(call: exp.Format) -> exp.Expr:
    """Return what Postgres's format puts together: %s stands for the next value, %% for a percent sign."""
    text = call.this
    values = list(call.expressions)
    parts = re.split(r"(%.?)", text.this) if isinstance(text, exp.Literal) and text.is_string else ["%?"]
    written: list[exp.Expr] = []
    for part in parts:
        if part == "%s" and values:
            as_text = exp.cast(values.pop(0).copy(), "VARCHAR", dialect=DIALECT)
            written.append(exp.Coalesce(this=as_text, expressions=[exp.Literal.string("")]))
        elif part == "%%":
            written.append(exp.Literal.string("%"))
        elif part.startswith("%"):
            raise UnsupportedError(
                f"{call.sql(dialect=DIALECT)[:80]}: format takes a text with %s for each value; "
                "write others with ||, as 'a' || x"
            )
        elif part:
            written.append(exp.Literal.string(part))
    return exp.Anonymous(this="concat", expressions=written or [exp.Literal.string("")])


def _is_selected(call: exp.GenerateSeries) -> bool:
    """Whether a series is a value of SELECT, where it makes a row of each element."""
    parent = call.parent
    while isinstance(parent, exp.Paren | exp.Alias):
        parent = parent.parent
    return isinstance(parent, exp.Select) and call.find_ancestor(exp.From, exp.Join, exp.Select) is parent


def _as_text(call: exp.Anonymous) -> exp.Expr:
    """Return a moment as a text in a form of to_char."""
    given = call.expressions
    form = given[1] if len(given) == 2 else None
    if not (isinstance(form, exp.Literal) and form.is_string):
        raise UnsupportedError(
            "to_char takes a moment and a text such as 'YYYY-MM-DD'; or write strftime(x, '%Y-%m-%d')"
        )
    parts, at = [], 0
    for found in _DATE_FIELD.finditer(form.this):
        field = found[0] if found[0] in _DATE_FIELDS else found[0].upper()
        parts += [form.this[at : found.start()], _DATE_FIELDS[field]]
        at = found.end()
    parts.append(form.this[at:])
    if len(parts) == 1 or any(_DATE_LETTER.search(part) for part in parts[::2]):
        raise UnsupportedError(
            f"to_char has no form {form.this!r} here; it takes {', '.join(_DATE_FIELDS)} and signs between; "
            "write numbers as printf('%.2f', x)"
        )
    as_moment = given[0].copy()
    return exp.Anonymous(this="strftime", expressions=[as_moment, exp.Literal.string("".join(parts))])


def _is_integer(node: exp.Expr | None, tables: Tables) -> bool:
    return _kind(node, tables) == "integer"


def _kind(node: exp.Expr | None, tables: Tables) -> _Kind | None:
    """Return whether an expression is an integer or a numeric in Postgres, as far as text and tables tell."""
    match node:
        case exp.Literal():
            return None if node.is_string else "integer" if node.is_int else "numeric"
        case exp.Cast():
            return _kind_of_type(node.to.sql(dialect=DIALECT))
        case exp.Avg():
            kind = _kind(node.this, tables)
            return "numeric" if kind == "integer" else kind
        case exp.Sum():
            type_ = _type_of(node.this, tables)
            return "numeric" if type_ in _LARGE else _kind_of_type(type_)
        case exp.Case():
            branches = [each.args["true"] for each in node.args["ifs"]]
            return _of_both([*branches, node.args.get("default")], tables)
        case exp.Column():
            return _kind_of_type(_type_of(node, tables))
        case exp.Subquery():
            selected = node.this.selects if isinstance(node.this, exp.Query) else []
            return _kind(selected[0].unalias(), tables) if len(selected) == 1 else None
        case exp.Anonymous():
            return "integer" if node.name.lower() in _COUNT_NAMES else None
    if isinstance(node, _COUNTS):
        return "integer"
    if isinstance(node, _OF_FIRST):
        return _kind(node.this, tables)
    if isinstance(node, _OF_ARGUMENTS):
        return _of_both([node.this, *node.expressions, node.args.get("expression")], tables)
    if isinstance(node, _ARITHMETIC):
        return _of_both([node.this, node.expression], tables)
    return None


def _of_both(nodes: Sequence[exp.Expr | None], tables: Tables) -> _Kind | None:
    """Return the kind of what is made of several: the widest, None where one is no number or not known."""
    kinds = {_kind(node, tables) for node in nodes if node is not None}
    order: tuple[_Kind | None, ...] = (None, "real", "numeric", "integer")
    return next(each for each in order if each in kinds)


def _kind_of_type(type_: str | None) -> _Kind | None:
    word = (type_ or "").upper()
    if word in _INTEGERS:
        return "integer"
    return "numeric" if word.startswith("DECIMAL") else "real" if word in _REALS else None


def _type_of(node: exp.Expr, tables: Tables) -> str | None:
    """Return the type of a column, of a table or of a query below; None where the text does not tell."""
    if isinstance(node, exp.Distinct) and len(node.expressions) == 1:
        return _type_of(node.expressions[0], tables)
    if not isinstance(node, exp.Column):
        return _computed_type(node, tables)
    select = node.find_ancestor(exp.Select)
    while select is not None:
        found = {
            _of_source(source, node, tables) for source in _sources(select) if _may_have(source, node)
        } - {None}
        if found:
            return found.pop() if len(found) == 1 else None
        select = select.find_ancestor(exp.Select)
    return None


def _sources(select: exp.Expr) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    return [each.this for each in ([from_] if from_ else []) + (select.args.get("joins") or [])]


def _may_have(source: exp.Expr, column: exp.Column) -> bool:
    return not column.table or column.table.lower() == source.alias_or_name.lower()


def _of_source(source: exp.Expr, column: exp.Column, tables: Tables) -> str | None:
    """Return the type of a column of one source of a FROM; None where it is not there, or not known."""
    query: exp.Expr | None = source.this if isinstance(source, exp.Subquery) else None
    if isinstance(source, exp.Table):
        query = _with_query(source)
        if query is None:
            return tables.get(source.name.lower(), {}).get(column.name.lower())
    if not isinstance(query, exp.Query):
        return None
    for each in query.selects:
        if each.alias_or_name.lower() == column.name.lower():
            inner = each.unalias()
            return _type_of(inner, tables)
    return None


def _computed_type(node: exp.Expr, tables: Tables) -> str | None:
    """Return the type of what is computed. Counts, and sums of them, are BIGINT."""
    is_large = any(True for _ in node.find_all(exp.Count, exp.Sum, exp.RowNumber, exp.Rank, exp.DenseRank))
    names: dict[_Kind | None, str | None] = {
        "integer": "BIGINT" if is_large else "INTEGER",
        "numeric": "DECIMAL",
        "real": "DOUBLE",
    }
    return names.get(_kind(node, tables))


def _with_query(table: exp.Table) -> exp.Expr | None:
    """Return the query of WITH that a name in FROM stands for."""
    at: exp.Expr | None = table
    while at is not None:
        with_ = at.args.get("with_")
        for each in with_.expressions if with_ else ():
            if each.alias.lower() == table.name.lower() and table.find_ancestor(exp.CTE) is not each:
                found: exp.Expr = each.this
                return found
        at = at.parent
    return None
