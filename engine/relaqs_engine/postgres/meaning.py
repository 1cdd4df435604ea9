"""A statement of Postgres as one of DuckDB that means the same.

Postgres and DuckDB read most SQL alike, and some of it otherwise: `7 / 2` is 3 there and 3.5 here. Each
function of the table `_RULES` writes one such thing as DuckDB has it. What no rule changes stays as it was
written, letter by letter. What cannot be kept is refused.

Some rules need types as Postgres has them: the sum of INTEGERs is a whole number there, that of BIGINTs is a
NUMERIC. `postgres/kinds.py` tells them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import Any, ClassVar, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from relaqs_engine.errors import ExpressionError, SqlError, UnsupportedError
from relaqs_engine.postgres.arrays import (
    ARRAY_CALLS,
    ARRAY_RULES,
    MAKES_JSON,
    MeaningRule,
    WriteCall,
    as_text,
    cast_array,
    in_json,
    json_of_lists,
    json_pairs,
    json_rows,
    one_row,
    written_text,
)
from relaqs_engine.postgres.formats import (
    called,
    filled,
    formatted_moment,
    formatted_number,
    padded,
    pattern_of,
    read_moment,
    written_moment,
)
from relaqs_engine.postgres.kinds import (
    FLOATS,
    INTEGERS,
    MOMENTS,
    NESTED,
    NUMBERS,
    Kind,
    Kinds,
    TableColumns,
    argument_of,
    arguments_of,
    column_name,
    is_shown,
    kind_of_type,
    name_of,
    read_moments,
)
from relaqs_engine.sql.dialect import DIALECT, Relaqs, RelaqsTokenizer, tokens_of
from relaqs_engine.sql.functions import VOLATILE_NAMES, allowed_functions
from relaqs_engine.sql.read import Effort, offset_of, position_of, read_statements

DIVISION_BY_ZERO = "division by zero"
_DIGITS_BEHIND = 6  # more would show the noise of a DOUBLE, as 2.67499999999999982
_MOST_DIGITS = 30
_SQL_PATTERN = re.compile(r"\\(.)|([%_])|([.^$])|([^%_.^$\\]+)", re.DOTALL)
_FORMAT_PART = re.compile(r"%(%|s)|([^%]+)")
_OTHER_NAMES = {
    "btrim": "trim",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_object_agg": "json_group_object",
    "jsonb_object_agg": "json_group_object",
    "json_build_array": "json_array",
    "jsonb_build_array": "json_array",
    "to_jsonb": "to_json",
    "array_agg": "list",
    "every": "bool_and",
    **dict.fromkeys(("clock_timestamp", "statement_timestamp", "transaction_timestamp"), "now"),
}
_KEEPING = (exp.Max, exp.Min, exp.AnyValue, exp.Filter, exp.Coalesce, exp.Case, exp.If)  # blanks of CHAR(n)
_SIZED_TEXT = re.compile(r"(?:TEXT|VARCHAR|NVARCHAR)\s*\((\d+)\)")
_MOMENT_FORMATS = {"YYYY-MM-DD", *(f"YYYY-MM-DD HH24:MI:SS{part}" for part in ("", ".MS", ".US"))}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,6})?)?")
_BYTE = re.compile(rb"\\(?:\\|([0-3][0-7]{2}))")
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?!\\|[0-3][0-7]{2})")
_ESCAPED_SIGN = re.compile(r"\be'(?:[^'\\]|''|\\[^u])*\\u", re.IGNORECASE)
_TEXTS_HERE = {"NAME", "CITEXT", "CSTRING", "UNKNOWN"}
_TRUTHS = re.compile(r"(?i)\s*(?:(t|tr|tru|true|y|ye|yes|on|1)|f|fa|fal|fals|false|n|no|off?|0)\s*")
_HALVES_OF_DAYS = (
    r"CASE WHEN regexp_matches(t, '\d\s*[AaPp][Mm]\s*$') THEN strptime(trim(t), ['%Y-%m-%d %I:%M:%S %p', "
    "'%Y-%m-%d %I:%M %p', '%Y-%m-%d %I:%M:%S%p', '%Y-%m-%d %I:%M%p']) ELSE CAST(t AS TIMESTAMP) END"
)


class RelaqsPostgresTokenizer(RelaqsTokenizer):
    """The tokens of Postgres's SQL, whose FLOAT has 64 bits."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{word: kind for word, kind in RelaqsTokenizer.KEYWORDS.items() if word != "DIV"},
        "FLOAT": TokenType.DOUBLE,
        "VARCHAR": TokenType.VARCHAR,
        "CHAR": TokenType.CHAR,
        "BPCHAR": TokenType.BPCHAR,
        "?|": TokenType.QMARK_PIPE,
        "?&": TokenType.QMARK_AMP,
    }


class RelaqsPostgres(Relaqs):
    """The dialect as it is read for Postgres's clients: a NULL is larger than all else, and arrows bind."""

    ARROW_BINDS_AS_CONCATENATION: ClassVar[bool] = True
    NULL_ORDERING = "nulls_are_large"
    TABLESAMPLE_SIZE_IS_PERCENT = True
    Tokenizer: type[Any] = RelaqsPostgresTokenizer


_PlacedError: TypeAlias = SqlError | ExpressionError


@dataclass(frozen=True, slots=True)
class Meaning:
    """A statement for DuckDB.

    Attributes:
        names: what Postgres calls the columns; None where that is what DuckDB calls it.
        names_at_end: those after a star, counted from the end.
        kinds: of the columns before a star, None where they are not known.
    """

    sql: str
    names: tuple[str | None, ...] = ()
    names_at_end: tuple[str | None, ...] = ()
    kinds: tuple[Kind | None, ...] = ()

    def named(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that DuckDB calls so."""
        found = list(columns)
        for place, name in enumerate(self.names[: len(found)]):
            found[place] = name or found[place]
        for place, name in enumerate(reversed(self.names_at_end[-len(found) :] if found else ()), 1):
            found[-place] = name or found[-place]
        return tuple(found)

    def placed(self, error: _PlacedError, asked: str) -> _PlacedError:
        """Return an error of this text with its place in the one that was asked, where that is known."""
        if error.position is None or self.sql == asked:
            return error
        return error.at(_same_word(self.sql, asked, error.position), "")


def _same_word(written: str, asked: str, position: tuple[int, int]) -> tuple[int, int] | None:
    """Return where a word of one text is in another that has it as often."""
    offset = offset_of(written, position)
    here, there = tokens_of(written), tokens_of(asked)
    word = next((each for each in here if offset is not None and each.start <= offset <= each.end), None)
    if word is None:
        return None
    before, after = (
        [each for each in texts if each.text.lower() == word.text.lower()] for texts in (here, there)
    )
    return position_of(asked, after[before.index(word)].start) if len(before) == len(after) else None


def meaning_of(
    sql: str,
    columns: TableColumns,
    parameters: Sequence[Kind | None] = (),
    values: Sequence[str | None] = (),
    *,
    is_estimated: bool = False,
) -> Meaning:
    """Return what a statement of Postgres is for DuckDB.

    Args:
        sql: one SELECT. What does not parse stays as it is, and the planner says what is wrong with it.
        columns: the tables' columns and their types in DuckDB, names in lower case.
        parameters: the kinds of `$1` and those after it.
        values: those that are texts, None for others. A pattern among them is written as DuckDB reads it.
        is_estimated: whether a part of the rows is asked first. A sum that is divided by may be zero there,
            and the quotient is NULL then.

    Raises:
        UnsupportedError: it means something that DuckDB has not.
    """
    try:
        trees = read_statements(sql, Effort(), RelaqsPostgres)
    except SqlError:
        return Meaning(sql)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return Meaning(sql)
    tree = trees[0]
    if tree.find(exp.ByteString) is not None and _ESCAPED_SIGN.search(sql):
        raise UnsupportedError("E'…' takes no \\u here; write the sign itself, or chr(233)")
    fold_names(tree)
    json_rows(tree)
    names = _names(tree)
    for select in tree.find_all(exp.Select):
        select.set("locks", None)  # nobody writes here, so every row is locked
        _order_by_outputs(select)
    json_of_lists(tree)
    has_other_types = any(each.this is exp.DType.JSONB for each in tree.find_all(exp.DataType))
    kinds = Kinds(columns, parameters, values, is_estimated=is_estimated)
    kinds.remember(tree)
    items = tree.expressions if isinstance(tree, exp.Select) else []
    of_items = tuple(kinds.of(each) for each in takewhile(lambda item: not _is_star(item), items))
    for node in reversed(list(tree.walk(bfs=True))):  # what is inside of others first
        rule = _RULES.get(type(node))
        if rule is not None and (instead := rule(node, kinds)) is not None and instead is not node:
            kinds.take_place(node, instead)
            if node is tree:
                raise AssertionError("a rule wrote a whole query")
            node.replace(instead)
    _name_inner_columns(tree)
    written = tree.sql(DIALECT)
    is_same = not has_other_types and written == _as_duckdb_reads(sql)
    return Meaning(sql if is_same else written, *names, of_items)


def _as_duckdb_reads(sql: str) -> str | None:
    try:
        (tree,) = read_statements(sql, Effort())
    except (SqlError, ValueError):
        return None
    has_locks = any(select.args.get("locks") for select in tree.find_all(exp.Select))
    return None if has_locks else str(tree.sql(DIALECT))


def _unless_zero(value: exp.Expr) -> exp.Expr:
    """Return a quotient, or an error where the divisor is zero, and what is divided is not NULL."""
    is_zero: exp.Expr = exp.EQ(this=value.expression.copy(), expression=exp.Literal.number(0))
    if not isinstance(value.this.unnest(), exp.Literal | exp.Count):
        is_there = exp.Not(this=exp.Is(this=exp.paren(value.this.copy()), expression=exp.Null()))
        is_zero = exp.And(this=is_zero, expression=is_there)
    failure = exp.cast(exp.Literal.string(DIVISION_BY_ZERO), "INT")
    return exp.Case(ifs=[exp.If(this=is_zero, true=failure)], default=value)


def _quotient(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    left, right = node.this, node.expression
    of_left, of_right = kinds.of(left), kinds.of(right)
    of_left, of_right = of_left or of_right, of_right or of_left  # a text or a parameter is as the other
    if of_left is None or ((kinds.of(left) is None or kinds.of(right) is None) and not _is_open(left, right)):
        if {of_left, of_right} & (FLOATS | {"numeric"}):
            return _guarded(node, kinds)
        raise UnsupportedError(
            f"whether {node.sql(DIALECT)} is a division of whole numbers is not known, and Postgres's of "
            "these are whole; cast one of the two, as in a::FLOAT8 / b or a::BIGINT / b"
        )
    if {of_left, of_right} <= INTEGERS:
        divisor = _or_null(right) if _may_be_zero_for_now(right, kinds) else right.copy()
        return exp.IntDiv(this=left.copy(), expression=divisor)
    return _guarded(node, kinds)


def _may_be_zero_for_now(divisor: exp.Expr, kinds: Kinds) -> bool:
    return kinds.is_estimated and divisor.find(exp.AggFunc) is not None


def _or_null(divisor: exp.Expr) -> exp.Expr:
    return exp.Nullif(this=divisor.copy(), expression=exp.Literal.number(0))


def _is_open(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether one of the two is a text or a parameter, which takes the type of the other."""
    return any(
        isinstance(bare := each.unnest(), exp.Parameter | exp.Placeholder | exp.Null)
        or (isinstance(bare, exp.Literal) and bare.is_string)
        for each in (left, right)
    )


def _guarded(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    divisor = node.expression.unnest()
    if isinstance(divisor, exp.Nullif) and divisor.expression.name == "0":
        return None
    if isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name) != 0:
        return None
    if _may_be_zero_for_now(divisor, kinds):
        return exp.Div(this=node.this.copy(), expression=_or_null(node.expression))
    return exp.paren(_unless_zero(node.copy()), copy=False)


def _ordered(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """NULLs come first in DESC. A count is none, and stays as it was written."""
    if node.args.get("nulls_first") and isinstance(kinds.projected(node.this), exp.Count):
        node.set("nulls_first", False)
    return None


def _cast(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    to, value = node.args["to"], node.this
    name = to.sql(DIALECT).upper()
    source = kinds.of(value)
    if name in ("NUMERIC", "DECIMAL"):
        return _numeric(value, source)
    if name.rstrip("[]") in _TEXTS_HERE:
        to = exp.DataType.build("VARCHAR[]" if name.endswith("]") else "VARCHAR", dialect=DIALECT)
        return _cast(exp.Cast(this=value.copy(), to=to), kinds) or exp.Cast(this=value.copy(), to=to)
    if name == "TIME" and source == "timestamptz":
        return exp.cast(exp.cast(value.copy(), "TIMESTAMP"), "TIME")
    if name == "JSONB":
        return exp.cast(value.copy(), "JSON")
    if isinstance(value, exp.Literal) and value.is_string:
        if name == "BLOB" and re.search(r"[^\x00-\x7f]|\\", value.name):
            return _bytes_of(value.name)
        if name == "BOOLEAN" and (truth := _TRUTHS.fullmatch(value.name)) is not None:
            return exp.cast(exp.Literal.string("true" if truth[1] else "false"), "BOOLEAN")
        if kind_of_type(name) in MOMENTS and (moment := written_moment(value.name, is_day=name == "DATE")):
            return exp.cast(exp.Literal.string(moment), name) if moment != value.name else None
        if name == "INTERVAL" and "+" in value.name:
            return exp.cast(exp.Literal.string(re.sub(r"\+(?=\d)", "", value.name)), name)
        if kind_of_type(name) in INTEGERS and not re.fullmatch(r"\s*[+-]?\d+\s*", value.name):
            raise ExpressionError(f"Conversion Error: Could not convert string '{value.name[:60]}' to {name}")
    if name == "TIMESTAMP" and source == "text":
        return exp.paren(filled(_HALVES_OF_DAYS, {"t": value}), copy=False)  # DuckDB takes PM for a zone
    if name.endswith("]") and isinstance(literal := value.unnest(), exp.Literal) and literal.is_string:
        return cast_array(literal.name, to)
    if name.endswith("]") and source is not None and source.startswith(NESTED):
        dimensions = "[]" * int(source.removeprefix(NESTED))
        return exp.Cast(
            this=value.copy(), to=exp.DataType.build(name.rstrip("[]") + dimensions, dialect=DIALECT)
        )
    if name == "XID":
        return exp.Cast(this=value.copy(), to=exp.DataType.build("UINTEGER", dialect=DIALECT))
    if kind_of_type(name) in INTEGERS and source == "numeric" and not kinds.is_decimal(value):
        return exp.Cast(this=exp.Round(this=value.copy()), to=to.copy())
    is_padded = to.this in (exp.DType.CHAR, exp.DType.NCHAR)  # with blanks that are only shown
    if (sized := _SIZED_TEXT.fullmatch(name)) is not None or is_padded:
        size = exp.Literal.number(sized[1] if sized is not None else 1)
        text = called("left", exp.cast(value.copy(), "VARCHAR"), size)
        if not is_padded:
            return text
        text = called("rtrim", text, exp.Literal.string(" "))
        text.meta["padded_to"] = int(size.name)
        is_cast_again = isinstance(node.find_ancestor(exp.Cast, exp.Select), exp.Cast)
        return padded(text) if is_shown(node, *_KEEPING) and not is_cast_again else text
    if name in ("TEXT", "VARCHAR") and source is not None:
        return as_text(value, source)
    if name in ("TEXT", "VARCHAR") and (isinstance(value, exp.Tuple) or kinds.row_of(value)):
        raise UnsupportedError("a row is no text here; write its columns, as in concat_ws(',', a, b)")
    return None


def _numeric(value: exp.Expr, source: Kind | None) -> exp.Expr:
    """Return a value as a NUMERIC of any number of digits. A DOUBLE stands for what may have many."""
    if source == "numeric":
        return value.copy()
    if source in INTEGERS:
        return exp.cast(value.copy(), "DECIMAL(38, 0)")
    literal = value.unnest()
    if isinstance(literal, exp.Literal) and re.fullmatch(r"\s*[+-]?\d{1,20}(\.\d{1,18})?\s*", literal.name):
        scale = len(literal.name.strip().partition(".")[2])
        return exp.cast(value.copy(), f"DECIMAL(38, {scale})")
    return exp.cast(value.copy(), "DOUBLE")


def _days_later(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """A day and a number of days, which is a BIGINT in DuckDB where it is the difference of two days."""
    sides = (node.this, node.expression)
    for day, days in (sides, sides[::-1] if isinstance(node, exp.Add) else sides):
        if (kinds.of(day), kinds.of(days)) == ("date", "int4") and not isinstance(days, exp.Literal):
            return type(node)(this=day.copy(), expression=exp.cast(days.copy(), "INTEGER"))
    return None


def _difference(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """The time between two moments does not depend on clocks that were set forward between them."""
    if kinds.of(node.expression) == "int4":
        return _days_later(node, kinds)
    if not kinds.of(node.this) == kinds.of(node.expression) == "timestamptz":
        return None
    text = (
        "list_transform([epoch_us(a) - epoch_us(b)], lambda u : "
        "to_days(CAST(u // 86400000000 AS INTEGER)) + to_microseconds(u % 86400000000))[1]"
    )
    return exp.paren(filled(text, {"a": node.this, "b": node.expression}), copy=False)


def _round(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Of a float .5 goes to the even number. A NUMERIC that is a DOUBLE here gets its digits before."""
    decimals, value, kind = node.args.get("decimals"), node.this, kinds.of(node.this)
    if decimals is None and kind in FLOATS:
        return called("round_even", value.copy(), exp.Literal.number(0))
    if kind != "numeric" or kinds.is_decimal(value):
        return None
    digits = decimals.name if decimals is not None else ""
    scale = min((int(digits) if digits.isdigit() else 0) + _DIGITS_BEHIND, _MOST_DIGITS)
    return exp.Round(
        this=_with_digits(value, scale), decimals=decimals.copy() if decimals is not None else None
    )


def _with_digits(value: exp.Expr, scale: int) -> exp.Expr:
    inner = value.unnest()
    if isinstance(inner, exp.Cast) and inner.args["to"].sql(DIALECT) == "DOUBLE":
        value = inner.this
    return exp.cast(value.copy(), f"DECIMAL(38, {scale})")


def _similar(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    if (pattern := written_text(node.expression, kinds)) is None or kinds.value_of(
        node.expression
    ) is not None:
        raise UnsupportedError("SIMILAR TO takes a text that is written out here; write x ~ pattern")
    regexp = pattern_of(_SQL_PATTERN.sub(_regexp_of, pattern))
    return called("regexp_full_match", node.this.copy(), exp.Literal.string(regexp), exp.Literal.string("s"))


def _regexp_of(found: re.Match[str]) -> str:
    escaped, wild, special, plain = found.groups()
    if escaped is not None:
        return f"\\{escaped}"
    if wild is not None:
        return ".*" if wild == "%" else "."
    return f"\\{special}" if special is not None else str(plain)


def _like(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """A backslash in a pattern takes the next sign as it is."""
    if isinstance(node.parent, exp.Escape):
        return None
    pattern = node.expression
    node.this.replace(padded(node.this))
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.name:
        return None
    if isinstance(pattern, exp.Any | exp.All | exp.Subquery | exp.Tuple):
        return None
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _part(part: str, moment: exp.Expr) -> exp.Expr | None:
    """Seconds and milliseconds have their fractions."""
    size = {"SECOND": "1e6", "SECONDS": "1e6", "MILLISECOND": "1e3", "MILLISECONDS": "1e3"}.get(part.upper())
    if size is None:
        return None
    microseconds = exp.Extract(this=exp.var("MICROSECOND"), expression=moment.copy())
    return exp.paren(exp.Div(this=microseconds, expression=exp.Literal.number(size)), copy=False)


def _select(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """generate_series makes rows, and not a list. Columns of USING come first behind a star."""
    for item in node.expressions:
        for call in list(item.find_all(exp.GenerateSeries)):
            if (
                not isinstance(call.parent, exp.Unnest | exp.Table | exp.From)
                and call.find_ancestor(exp.Select) is node
            ):
                call.replace(exp.Unnest(expressions=[call.copy()]))
    keys = _keys_of_joins(node, kinds)
    for place, item in enumerate(node.expressions):
        if keys and isinstance(item, exp.Star) and not any(item.args.values()):
            rest = exp.Star(except_=[exp.to_identifier(key, quoted=True) for key in keys])
            columns = [exp.column(key, quoted=True) for key in keys]
            node.set(
                "expressions", [*node.expressions[:place], *columns, rest, *node.expressions[place + 1 :]]
            )
            break
    for each in node.args["order"].expressions if node.args.get("order") else ():
        _of_what_is_read(each.this, node, kinds)
    return None


def _keys_of_joins(select: exp.Expr, kinds: Kinds) -> list[str]:
    """Return the columns that joins by USING and NATURAL JOIN make one of two, the last ones first."""
    found = list[str]()
    sources = list(kinds.sources(select).values())
    for place, join in enumerate(select.args.get("joins") or (), 1):
        keys = [each.name for each in join.args.get("using") or ()]
        if join.args.get("method") == "NATURAL" and place < len(sources):
            keys = [name for outputs in sources[:place] for name in outputs if name in sources[place]]
        if any(outputs.get(key) == "json" for outputs in sources[: place + 1] for key in keys):
            raise UnsupportedError("JSON is not compared by USING here; write ON a.j::text = b.j::text")
        found = [*dict.fromkeys(keys), *(each for each in found if each not in keys)]
    return found


def _of_what_is_read(key: exp.Expr, select: exp.Expr, kinds: Kinds) -> None:
    """In ORDER BY a + 1, a is the column that is read, and no output that is called so. In place."""
    outputs = {item.alias for item in select.expressions if isinstance(item, exp.Alias)}
    for column in [] if isinstance(key, exp.Column) else list(key.find_all(exp.Column)):
        if column.table or column.name not in outputs or column.find_ancestor(exp.Select) is not select:
            continue
        for name, columns in kinds.sources(select).items():
            if column.name in columns:
                column.set("table", exp.to_identifier(name, quoted=True))


def _table(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    makes_rows = isinstance(node.this, exp.Paren) and isinstance(node.this.this, exp.Unnest | exp.Explode)
    if isinstance(node.this, exp.Case | exp.Cast | exp.Paren | exp.Bracket | exp.Binary) and not makes_rows:
        raise UnsupportedError("this function is not taken behind FROM here; write SELECT f(…) AS f")
    return json_pairs(node) or one_row(node, allowed_functions() | VOLATILE_NAMES)


def _values(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Columns without a name are column1, column2 and so on."""
    alias, rows = node.args.get("alias"), node.expressions
    for column in zip(*(each.expressions for each in rows if isinstance(each, exp.Tuple)), strict=False):
        read_moments(column, kinds)
    if alias is not None and not alias.columns and rows and isinstance(rows[0], exp.Tuple):
        count = len(rows[0].expressions)
        alias.set("columns", [exp.to_identifier(f"column{place}") for place in range(1, count + 1)])
    return None


def _order_by_outputs(select: exp.Expr) -> None:
    """A name in ORDER BY is that of an output, also of one whose name Postgres gave it. In place."""
    items = select.expressions
    if any(map(_is_star, items)):
        return
    places = {name: place for place, name in reversed(list(enumerate(map(column_name, items), 1))) if name}
    order = select.args.get("order")
    for each in order.expressions if order is not None else ():
        if isinstance(each.this, exp.Column) and not each.this.table and each.this.name in places:
            each.this.replace(exp.Literal.number(places[each.this.name]))


def _call(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    name, given = name_of(node), arguments_of(node)
    if node.meta.get("is_json") or MAKES_JSON.fullmatch(name):
        for each in given[: 1 if name == "list" else None]:
            each.replace(in_json(each, kinds))
        given = arguments_of(node)
    if (other := _OTHER_NAMES.get(name)) is not None and isinstance(node, exp.Anonymous):
        return called(other, *(each.copy() for each in given))
    if (write := _CALLS.get(name)) is not None:
        return write(node, given, kinds)
    return None


def _to_char(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 2 or not isinstance(given[1], exp.Literal):
        raise UnsupportedError("to_char takes a value and a format that is written out, as 'YYYY-MM'")
    kind = kinds.of(given[0])
    if kind in NUMBERS:
        return formatted_number(given[0], given[1].name, is_float=kind in FLOATS)
    if kind in ("date", "timestamp", "timestamptz"):
        return formatted_moment(given[0], given[1].name)
    raise UnsupportedError(
        f"to_char takes a number, a date or a timestamp here; cast {given[0].sql(DIALECT)}"
    )


def _format(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if not given or not isinstance(given[0], exp.Literal):
        raise UnsupportedError("format takes a text that is written out, as 'a %s'; or write a || b")
    parts: list[exp.Expr] = []
    values = iter(given[1:])
    at = 0
    while at < len(given[0].name):
        found = _FORMAT_PART.match(given[0].name, at)
        if found is None:
            raise UnsupportedError(f"format has {given[0].name[at : at + 3]!r}; %s and %% are taken here")
        at = found.end()
        if found[1] == "s":
            if (value := next(values, None)) is None:
                raise SqlError("too few arguments for format()")
            parts.append(_printed(value, kinds))
        else:
            parts.append(exp.Literal.string("%" if found[1] else found[2]))
    return called("concat", exp.Literal.string(""), *parts)


def _printed(value: exp.Expr, kinds: Kinds) -> exp.Expr:
    kind = kinds.of(value)
    if kind == "bool":
        texts = [exp.If(this=value.copy(), true=exp.Literal.string("t"))]
        return exp.Case(ifs=[*texts, exp.If(this=exp.not_(value.copy()), true=exp.Literal.string("f"))])
    return (as_text(value, kind) if kind else None) or padded(value.copy())


def _concat(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    for each in given:
        if (printed := _printed(each, kinds)) != each:
            each.replace(printed)
    return None


def _width_bucket(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """Buckets may go downward, from a high end to a low one, or begin at the elements of a sorted array."""
    if len(given) == 2:
        below = "list_filter(bounds, lambda relaqs_bound : relaqs_bound <= v)"
        text = f"CASE WHEN v IS NOT NULL THEN CAST(len({below}) AS INTEGER) END"
        return filled(text, dict(zip(("v", "bounds"), given, strict=True)))
    if len(given) != 4:
        raise SqlError("width_bucket takes a value, a low and a high end, and a number of buckets")
    inside = "CAST(floor((v - lo) * n / (hi - lo)) AS INTEGER) + 1"
    upward = f"CASE WHEN v < lo THEN 0 WHEN v >= hi THEN n + 1 ELSE {inside} END"
    downward = f"CASE WHEN v > lo THEN 0 WHEN v <= hi THEN n + 1 ELSE {inside} END"
    text = f"CASE WHEN lo < hi THEN {upward} ELSE {downward} END"
    return filled(text, dict(zip(("v", "lo", "hi", "n"), given, strict=True)))


# a and c are the first ends of two times, b and d the last ones; an end that is NULL is not known.
_OVERLAP = (
    "CASE WHEN {a} > {c} THEN if({a} < {d}, true, if({b} IS NULL OR {d} IS NULL, NULL, false)) "
    "WHEN {a} < {c} THEN if({c} < {b}, true, if({b} IS NULL OR {d} IS NULL, NULL, false)) "
    "WHEN {a} = {c} AND {b} IS NOT NULL AND {d} IS NOT NULL THEN true END"
)
_LAST = "if({0} IS NULL OR {1} IS NULL, NULL, greatest({0}, {1}))"


def _overlaps(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """(p, q) OVERLAPS (r, s). The second of a pair may be an interval."""
    sides = [side.expressions for side in (node.this, node.expression) if isinstance(side, exp.Tuple)]
    ends: list[exp.Expr] = []
    if [len(side) for side in sides] != [2, 2]:
        raise SqlError("OVERLAPS takes two pairs, as in (a, b) OVERLAPS (c, d)")
    for begin, end in sides:
        is_length = kinds.of(end) == "interval"
        ends += [begin.copy(), exp.Add(this=begin.copy(), expression=end.copy()) if is_length else end.copy()]
        if not {kinds.of(begin), kinds.of(begin if is_length else end)} <= {"date", "timestamp"}:
            raise UnsupportedError(
                "OVERLAPS takes dates and timestamps here; cast each, as in DATE '2024-01-01'"
            )
    b, d = _LAST.format("p", "q"), _LAST.format("r", "s")
    text = _OVERLAP.format(a="least(p, q)", b=b, c="least(r, s)", d=d)
    return exp.paren(filled(text, dict(zip("pqrs", ends, strict=True))), copy=False)


def _date_bin(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 3:
        raise SqlError("date_bin takes an interval, a timestamp and an origin")
    stride = given[0].copy()
    if isinstance(stride, exp.Literal):
        stride = exp.cast(stride, "INTERVAL")
    origin = given[2].copy()
    if isinstance(origin, exp.Literal):
        cast = exp.cast(origin, "TIMESTAMPTZ" if kinds.of(given[1]) == "timestamptz" else "TIMESTAMP")
        origin = _cast(cast, kinds) or cast
    return called("time_bucket", stride, given[1].copy(), origin)


def _read_moment(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    name = name_of(node)
    if name == "to_timestamp" and len(given) == 1:
        return None
    if len(given) == 2 and given[1].name.upper() in _MOMENT_FORMATS and _MOMENT.fullmatch(given[0].name):
        kind, size = ("DATE", 10) if name == "to_date" else ("TIMESTAMPTZ", 26)
        return exp.cast(exp.Literal.string(given[0].name[:size]), kind)
    if len(given) != 2 or not isinstance(given[1], exp.Literal):
        raise UnsupportedError(f"{name} takes a text and a format that is written out, as 'YYYY-MM-DD'")
    return exp.cast(read_moment(given[0], given[1].name), "DATE" if name == "to_date" else "TIMESTAMPTZ")


def _make_interval(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """Parts are given in their order, or by name as days => 3."""
    parts = dict(zip(_INTERVAL_PARTS, given, strict=False))
    named = (exp.Kwarg, exp.PropertyEQ)
    parts |= {each.name.lower(): each.expression for each in given if isinstance(each, named)}
    parts = {each: value for each, value in parts.items() if not isinstance(value, named)}
    if len(given) != len(parts) or not parts.keys() <= _INTERVAL_PARTS.keys():
        raise SqlError(f"make_interval takes {', '.join(_INTERVAL_PARTS)}, in this order or as days => 3")
    added = [called(_INTERVAL_PARTS[each], value.copy()) for each, value in parts.items()]
    nothing = exp.cast(exp.Literal.string("0 days"), "INTERVAL")
    total = reduce(lambda left, right: exp.Add(this=left, expression=right), added or [nothing])
    return exp.paren(total, copy=False)


def _count_nulls(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    test = "v IS NULL" if name_of(node) == "num_nulls" else "v IS NOT NULL"
    values = exp.Array(expressions=[filled(test, {"v": each}) for each in given])
    return filled("CAST(len(list_filter(l, lambda x : x)) AS INTEGER)", {"l": values})


def _date_trunc(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Of a DATE it is a TIMESTAMPTZ, because Postgres takes the date for one. A third argument is a zone."""
    is_long = bool(given) and _LONG_PARTS.fullmatch(given[0].name) is not None
    if len(given) == 3 and not is_long:
        text = "timezone(z, date_trunc(p, timezone(z, CAST(t AS TIMESTAMPTZ))))"
        return filled(text, dict(zip("ptz", given, strict=True)))
    found = node
    if is_long and (len(given) == 3 or kinds.of(given[-1]) == "interval"):
        raise UnsupportedError(f"date_trunc of {given[0].name!r} takes no interval and no zone here")
    if len(given) == 2 and is_long:  # they begin in the year 1 and not 0
        found = filled(
            "date_trunc(p, t - INTERVAL 1 YEAR) + INTERVAL 1 YEAR", dict(zip("pt", given, strict=True))
        )
    if len(given) == 2 and kinds.of(given[1]) == "date" and not isinstance(node.parent, exp.Cast):
        return exp.cast(found.copy(), "TIMESTAMPTZ")
    return None if found is node else exp.paren(found, copy=False)


def _date_part(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    if len(given) == 2 and isinstance(given[0], exp.Literal):
        return _part(given[0].name, given[1])
    return None


def _div(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 2:
        raise SqlError("div takes two numbers")
    left, right = (each.copy() for each in given)
    if all(kinds.of(each) in INTEGERS for each in given):
        return exp.cast(exp.IntDiv(this=exp.paren(left), expression=exp.paren(right)), "DECIMAL(38, 0)")
    return called("trunc", _unless_zero(exp.Div(this=exp.paren(left), expression=exp.paren(right))))


def _substring(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """A start below 1 counts from the first character, not from the last."""
    start = argument_of(node, 1)
    if start is None or (isinstance(start, exp.Literal) and not start.is_string):
        return None
    if isinstance(start, exp.Literal):
        raise UnsupportedError("substring takes a place here; write regexp_extract(text, pattern)")
    raise UnsupportedError(
        f"where substring begins has to be a number that is written out here, and not {start.sql(DIALECT)}; "
        "write left(…) and right(…)"
    )


def _regexp_matches(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    raise UnsupportedError(
        "regexp_matches gives arrays in Postgres; write text ~ pattern for whether it matches, and "
        "regexp_extract(text, pattern, 1) for what the first group has"
    )


def _encode(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Bytes as a text, and back."""
    form = given[1].name.lower() if len(given) == 2 and isinstance(given[1], exp.Literal) else ""
    text = {
        ("encode", "hex"): "lower(hex(t))",
        ("encode", "base64"): "to_base64(unhex(hex(t)))",  # hex takes texts and bytes
        ("decode", "hex"): "unhex(t)",
        ("decode", "base64"): "from_base64(t)",
    }.get((name_of(node), form))
    if text is None:
        raise UnsupportedError(f"{name_of(node)} takes a value, and 'hex' or 'base64' here")
    is_written = name_of(node) == "encode" and isinstance(given[0], exp.Literal) and given[0].is_string
    return filled(text, {"t": _bytes_of(given[0].name) if is_written else given[0]})


def _bytes_of(text: str) -> exp.Expr:
    """Return the bytes that a text is in Postgres: hexadecimal behind \\x, else with escapes as \\000.

    Raises:
        ExpressionError: it is none.
    """
    try:
        if text.startswith("\\x"):
            found = bytes.fromhex(text[2:])
        elif _BAD_ESCAPE.search(text) is not None:
            raise ValueError("a backslash without a number")
        else:
            found = _BYTE.sub(lambda each: bytes([int(each[1], 8)]) if each[1] else b"\\", text.encode())
    except ValueError:
        raise ExpressionError(f"Could not convert string '{text[:60]}' to bytes; write '\\\\x00ff'") from None
    return called("unhex", exp.Literal.string(found.hex()))


def _octet_length(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Of what may be bytes or a text, only DuckDB knows which it is."""
    if len(given) != 1 or (kind := kinds.of(given[0])) not in ("text", None):
        return None
    text = "CAST(strlen(CAST(t AS VARCHAR)) AS INTEGER)"
    if kind is None and not (isinstance(given[0], exp.Literal) and given[0].is_string):
        text = f"CASE typeof(t) WHEN 'BLOB' THEN octet_length(CAST(t AS BLOB))::INTEGER ELSE {text} END"
    return filled(text, {"t": padded(given[0])})


def _sha256(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Of bytes it is bytes. Of a text, which Postgres refuses, it stays DuckDB's."""
    if len(given) != 1 or kinds.of(node) != "other":
        return None
    value = given[0].unnest()
    return called("unhex", called("sha256", _bytes_of(value.name) if value.is_string else value.copy()))


def _initcap(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    text = (
        "array_to_string(list_transform(regexp_extract_all(t, '[\\p{L}\\p{N}]+|[^\\p{L}\\p{N}]+'), "
        "lambda w : upper(substr(w, 1, 1)) || lower(substr(w, 2))), '')"
    )
    return filled(text, {"t": given[0]})


def _without_nan(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """Of points on one line upright, Postgres says NULL and DuckDB NaN."""
    return exp.Nullif(this=node.copy(), expression=exp.cast(exp.Literal.string("NaN"), "DOUBLE"))


_LONG_PARTS = re.compile(r"c|cent|century|centuries|mils?|millennium|millennia", re.IGNORECASE)
_INTERVAL_PARTS = {
    **{each: f"to_{each}" for each in ("years", "months", "weeks", "days", "hours")},
    "mins": "to_minutes",
    "secs": "to_seconds",
}
_CALLS: dict[str, WriteCall] = {
    "make_interval": _make_interval,
    **dict.fromkeys(("num_nulls", "num_nonnulls"), _count_nulls),
    **dict.fromkeys(("to_date", "to_timestamp"), _read_moment),
    "to_char": _to_char,
    "format": _format,
    "concat": _concat,
    "width_bucket": _width_bucket,
    "date_bin": _date_bin,
    "date_trunc": _date_trunc,
    "date_part": _date_part,
    "div": _div,
    **ARRAY_CALLS,
    "initcap": _initcap,
    **dict.fromkeys(("corr", "regr_slope", "regr_intercept", "regr_r2"), _without_nan),
    "substr": _substring,
    "substring": _substring,
    **dict.fromkeys(("encode", "decode"), _encode),
    "octet_length": _octet_length,
    "sha256": _sha256,
    "regexp_matches": _regexp_matches,
}

_RULES: dict[type[exp.Expr], MeaningRule] = {
    exp.Div: _quotient,
    exp.Ordered: _ordered,
    **ARRAY_RULES,
    exp.Sub: _difference,
    exp.Overlaps: _overlaps,
    exp.Add: _days_later,
    exp.Cast: _cast,
    exp.Round: _round,
    exp.SimilarTo: _similar,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Extract: lambda node, kinds: _part(node.this.name, node.expression),
    exp.Select: _select,
    exp.Table: _table,
    exp.Lateral: _table,
    exp.Values: _values,
    **dict.fromkeys(
        (exp.Anonymous, exp.Format, exp.Concat, exp.Substring, exp.Corr, exp.RegrSlope, exp.RegrIntercept),
        _call,
    ),
    exp.RegrR2: _call,
}


def fold_names(tree: exp.Expr) -> None:
    """Write names of columns in lower case that are given without quotes. In place."""
    for given in tree.find_all(exp.Alias, exp.TableAlias):
        named = given.args.get("alias"), *(given.args.get("columns") or ())
        for name in named:
            if isinstance(name, exp.Identifier) and not name.quoted:
                name.set("this", name.name.lower())


def _names(tree: exp.Query) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """Return what Postgres calls the columns before the first star, and those after the last."""
    first: exp.Expr = tree
    while not isinstance(first, exp.Select):
        inner = first.this
        if not isinstance(inner, exp.Query | exp.Subquery):
            return (), ()
        first = inner
    items = first.expressions
    stars = [place for place, item in enumerate(items) if _is_star(item)]
    if not stars:
        return tuple(map(column_name, items)), ()
    return tuple(map(column_name, items[: stars[0]])), tuple(map(column_name, items[stars[-1] + 1 :]))


def _is_star(item: exp.Expr) -> bool:
    """Whether an output stands for several columns."""
    if isinstance(item, exp.Alias):
        return False
    return (
        isinstance(item, exp.Star)
        or (isinstance(item.this, exp.Star) and isinstance(item, exp.Column))
        or (item.find(exp.Columns) is not None)
    )


def _name_inner_columns(tree: exp.Query) -> None:
    """Give the columns of derived tables the names that the rest of the statement knows them by. In place."""
    asked = {column.name.lower() for column in tree.find_all(exp.Column)}
    for source in tree.find_all(exp.Subquery, exp.CTE):
        if isinstance(source, exp.Subquery) and not isinstance(source.parent, exp.From | exp.Join):
            continue
        select = source.this
        while isinstance(select, exp.SetOperation | exp.Subquery):
            select = select.this
        if isinstance(select, exp.Select):
            own = {column.name.lower() for column in select.find_all(exp.Column)}
            for item in list(select.expressions):
                name = column_name(item) if not _is_star(item) else None
                if name is not None and name in asked and name not in own:
                    item.replace(exp.alias_(item.copy(), name))
