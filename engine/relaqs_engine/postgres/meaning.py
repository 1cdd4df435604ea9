"""A statement of Postgres as one of DuckDB that means the same.

Postgres and DuckDB read most SQL alike, and some of it otherwise: `7 / 2` is 3 there and 3.5 here. Each
function of the table `_RULES` writes one such thing as DuckDB has it. What no rule changes stays as it was
written, letter by letter. What cannot be kept is refused.

Some rules need types as Postgres has them: the sum of INTEGERs is a whole number there, that of BIGINTs is a
NUMERIC. `postgres/kinds.py` tells them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import ExpressionError, SqlError, UnsupportedError
from relaqs_engine.postgres.formats import formatted_moment, formatted_number
from relaqs_engine.postgres.kinds import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Kind,
    Kinds,
    TableColumns,
    argument_of,
    arguments_of,
    is_array,
    kind_of_type,
    name_of,
)
from relaqs_engine.postgres.wording import TextEdit, edited, tokens_or_none
from relaqs_engine.sql.dialect import DIALECT, Relaqs, RelaqsTokenizer, tokens_of
from relaqs_engine.sql.read import Effort, offset_of, position_of, read_statements

DIVISION_BY_ZERO = "division by zero"
_DIGITS_BEHIND = (
    6  # those that are rounded: more of them would show the noise of a DOUBLE, as 2.67499999999999982
)
_MOST_DIGITS = 30
_SQL_PATTERN = re.compile(r"\\(.)|([%_])|([.^$])|([^%_.^$\\]+)", re.DOTALL)
_FORMAT_PART = re.compile(r"%(%|s)|([^%]+)")
_BOOL_TEXT = "CASE each WHEN true THEN 't' WHEN false THEN 'f' END"
# 1 year 2 mons, -1 mons +3 days: a sign that changes is written, and only 1 is one.
_INTERVAL_TEXT = (
    "regexp_replace(regexp_replace(replace(CAST(t AS VARCHAR), 'month', 'mon'), "
    "'(-\\d+ (?:year|mon|day))( |$)', '\\1s\\2', 'g'), '(-\\d+ \\w+) (\\d)', '\\1 +\\2', 'g')"
)
_NEGATED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}
_TYPES_OF_KINDS = {
    "int4": "INTEGER",
    "int8": "BIGINT",
    "numeric": "DOUBLE",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
}
_ARRAY_BEGIN = re.compile(r"\s*\{")
_ARRAY_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^{},"\\]*))\s*([,}])', re.DOTALL)
_OTHER_NAMES = {
    "btrim": "trim",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_object_agg": "json_group_object",
    "jsonb_object_agg": "json_group_object",
    "json_build_array": "json_array",
    "jsonb_build_array": "json_array",
    "to_jsonb": "to_json",
    "jsonb_array_length": "json_array_length",
    "jsonb_typeof": "json_type",
    "array_agg": "list",
    "every": "bool_and",
}
_SIZED_TEXT = re.compile(r"(TEXT|VARCHAR|CHARACTER VARYING|CHAR|CHARACTER|BPCHAR|NCHAR|NVARCHAR)\s*\((\d+)\)")
_WITH_OTHER_WORDS = re.compile(r"\bdesc\b|\bbtrim\b|\bfor\b|\bcurrent_(?:schema|database)\b", re.IGNORECASE)
_TEXTS_HERE = {"NAME", "CITEXT"}
_LONGEST = 1 << 30  # no array is as long
# From 1e15 on a float has an exponent, one of 32 bits from 1e6 on. No float ends with .0.
_FLOAT_TEXT = (
    "CASE WHEN isnan(t) THEN 'NaN' WHEN isinf(t) THEN if(t > 0, 'Infinity', '-Infinity') "
    "WHEN abs(t) >= {least} AND abs(t) < 1e16 THEN "
    "list_transform([split(CAST(abs(t) AS VARCHAR), '.')], lambda p : "
    "if(t < 0, '-', '') || regexp_replace(regexp_replace(p[1] || p[2], '0+$', ''), '^(.)(.+)$', '\\1.\\2') "
    "|| 'e+' || lpad(CAST(len(p[1]) - 1 AS VARCHAR), 2, '0'))[1] "
    "ELSE regexp_replace(CAST(t AS VARCHAR), '\\.0$', '') END"
)
_BOOL_TEXT = "CASE each WHEN true THEN 't' WHEN false THEN 'f' END"
# 1 year 2 mons, -1 mons +3 days: a sign that changes is written, and only 1 is one.
_INTERVAL_TEXT = (
    "regexp_replace(regexp_replace(replace(CAST(t AS VARCHAR), 'month', 'mon'), "
    "'(-\\d+ (?:year|mon|day))( |$)', '\\1s\\2', 'g'), '(-\\d+ \\w+) (\\d)', '\\1 +\\2', 'g')"
)
_NEGATED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}
_TYPES_OF_KINDS = {
    "int4": "INTEGER",
    "int8": "BIGINT",
    "numeric": "DOUBLE",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
}
_ARRAY_BEGIN = re.compile(r"\s*\{")
_ARRAY_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^{},"\\]*))\s*([,}])', re.DOTALL)
_OTHER_NAMES = {
    "btrim": "trim",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_object_agg": "json_group_object",
    "jsonb_object_agg": "json_group_object",
    "json_build_array": "json_array",
    "jsonb_build_array": "json_array",
    "to_jsonb": "to_json",
    "jsonb_array_length": "json_array_length",
    "jsonb_typeof": "json_type",
    "array_agg": "list",
    "every": "bool_and",
}
_SIZED_TEXT = re.compile(r"(TEXT|VARCHAR|CHARACTER VARYING|CHAR|CHARACTER|BPCHAR|NCHAR|NVARCHAR)\s*\((\d+)\)")
_WITH_OTHER_WORDS = re.compile(r"\bdesc\b|\bbtrim\b|\bfor\b|\bcurrent_(?:schema|database)\b", re.IGNORECASE)
_TEXTS_HERE = {"NAME", "CITEXT"}
_LONGEST = 1 << 30  # no array is as long
# From 1e15 on a float has an exponent, and below it no .0 at its end.
_FLOAT_TEXT = (
    "CASE WHEN isnan(t) THEN 'NaN' WHEN isinf(t) THEN if(t > 0, 'Infinity', '-Infinity') "
    "WHEN abs(t) < 1e15 OR abs(t) >= 1e16 THEN regexp_replace(CAST(t AS VARCHAR), '\\.0$', '') "
    "ELSE regexp_replace(regexp_replace(CAST(t AS VARCHAR), '^(-?\\d)(\\d*?)0*\\.0$', '\\1.\\2e+15'), "
    "'\\.e', 'e') END"
)


class RelaqsPostgresTokenizer(RelaqsTokenizer):
    """The tokens of Postgres's SQL, whose FLOAT has 64 bits."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{word: kind for word, kind in RelaqsTokenizer.KEYWORDS.items() if word != "DIV"},
        "FLOAT": TokenType.DOUBLE,
    }


class RelaqsPostgres(Relaqs):
    """The dialect as it is read for Postgres's clients: a NULL is larger than all else."""

    NULL_ORDERING = "nulls_are_large"
    Tokenizer: type[Any] = RelaqsPostgresTokenizer


_PlacedError: TypeAlias = SqlError | ExpressionError


@dataclass(frozen=True, slots=True)
class Meaning:
    """A statement for DuckDB.

    Attributes:
        sql: its text.
        names: what Postgres calls the columns; None where that is what DuckDB calls it.
        names_at_end: those after a star, counted from the end.
    """

    sql: str
    names: tuple[str | None, ...] = ()
    names_at_end: tuple[str | None, ...] = ()

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


_Rule: TypeAlias = Callable[[exp.Expr, Kinds], exp.Expr | None]


def meaning_of(
    sql: str, columns: TableColumns, parameters: Sequence[Kind | None] = (), *, is_estimated: bool = False
) -> Meaning:
    """Return what a statement of Postgres is for DuckDB.

    Args:
        sql: one SELECT. What does not parse stays as it is, and the planner says what is wrong with it.
        columns: the tables' columns and their types in DuckDB, names in lower case.
        parameters: the kinds of `$1` and those after it.
        is_estimated: whether a part of the rows is asked first. A sum that is divided by may be zero there,
            and the quotient is NULL then.

    Raises:
        UnsupportedError: it means something that DuckDB has not.

    >>> columns = {"t": {"a": "INTEGER", "x": "DOUBLE"}}
    >>> found = meaning_of("SELECT sum(a) / 2, round(x::numeric, 2) FROM t ORDER BY max(x) DESC", columns)
    >>> print(found.sql)
    SELECT SUM(a) // 2, ROUND(CAST(x AS DECIMAL(38, 8)), 2) FROM t ORDER BY MAX(x) DESC NULLS FIRST
    >>> found.named(["(sum(a) // 2)", "round(…)"])
    ('?column?', 'round')
    """
    try:
        trees = read_statements(sql, Effort(), RelaqsPostgres)
    except SqlError:
        return Meaning(sql)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return Meaning(sql)
    tree = trees[0]
    names = _names(tree)
    for select in tree.find_all(exp.Select):
        select.set("locks", None)  # nobody writes here, so every row is locked
        _order_by_outputs(select)
    _json_of_lists(tree)
    has_other_types = any(each.this is exp.DType.JSONB for each in tree.find_all(exp.DataType))
    kinds = Kinds(columns, parameters, is_estimated=is_estimated)
    kinds.remember(tree)
    for node in _from_inside(tree):
        rule = _RULES.get(type(node))
        if rule is not None and (instead := rule(node, kinds)) is not None and instead is not node:
            kinds.take_place(node, instead)
            if node is tree:
                raise AssertionError("a rule wrote a whole query")
            node.replace(instead)
    _name_inner_columns(tree)
    written = tree.sql(DIALECT)
    is_same = not has_other_types and written == _as_duckdb_reads(sql)
    return Meaning(sql if is_same else written, *names)


def _as_duckdb_reads(sql: str) -> str | None:
    try:
        (tree,) = read_statements(sql, Effort())
    except (SqlError, ValueError):
        return None
    has_locks = any(select.args.get("locks") for select in tree.find_all(exp.Select))
    return None if has_locks else str(tree.sql(DIALECT))


def _from_inside(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield all nodes, those that are inside of others first."""
    yield from reversed(list(tree.walk(bfs=True)))


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
    if name in _TEXTS_HERE:
        return exp.cast(value.copy(), "VARCHAR")
    if name == "TIME" and source == "timestamptz":
        return exp.cast(exp.cast(value.copy(), "TIMESTAMP"), "TIME")
    if name == "JSONB":
        return exp.cast(value.copy(), "JSON")
    if name.endswith("]") and isinstance(literal := value.unnest(), exp.Literal) and literal.is_string:
        return exp.Cast(this=_array_of(literal.name), to=to.copy())
    if kind_of_type(name) in INTEGERS and source == "numeric" and not kinds.is_decimal(value):
        return exp.Cast(this=exp.Round(this=value.copy()), to=to.copy())
    if (sized := _SIZED_TEXT.fullmatch(name)) is not None:
        pad = "rpad" if sized[1] in ("CHAR", "CHARACTER", "BPCHAR") else "left"
        size = exp.Literal.number(sized[2])
        text = exp.cast(value.copy(), "VARCHAR")
        return _called(pad, text, size, *([exp.Literal.string(" ")] if pad == "rpad" else []))
    if name in ("TEXT", "VARCHAR") and source is not None:
        return _as_text(value, source)
    return None


def _array_of(text: str) -> exp.Expr:
    """Return a list of texts, as an array that is written out has them: {1,2,NULL,"a b"}.

    Raises:
        ExpressionError: it is no such array.
    """
    items: list[exp.Expr] = []
    at = _ARRAY_BEGIN.match(text)
    place = at.end() if at is not None else -1
    while at is not None and place < len(text):
        found = _ARRAY_ITEM.match(text, place)
        if found is None:
            at = None
            break
        quoted, plain, end = found.groups()
        if quoted is not None:
            items.append(exp.Literal.string(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
        elif plain.strip():
            word = plain.strip()
            items.append(exp.null() if word.upper() == "NULL" else exp.Literal.string(word))
        elif items or end == ",":
            at = None
        place = found.end()
        if end == "}":
            break
    if at is None or text[place:].strip() or not text.rstrip().endswith("}"):
        if "{" in text[1:]:
            raise UnsupportedError(f"{text[:60]!r} is an array of arrays; write ARRAY[[1,2],[3,4]]")
        raise ExpressionError(f"Could not convert string '{text[:60]}' to an array; write '{{1,2}}'")
    return exp.Array(expressions=items, bracket_notation=True)


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


def _as_text(value: exp.Expr, source: Kind) -> exp.Expr | None:
    if source in FLOATS:
        return _filled(_FLOAT_TEXT.format(least="1e6" if source == "float4" else "1e15"), {"t": value})
    if is_array(source):
        return _array_text(value, source[:-2])
    if source == "interval":
        return _filled(_INTERVAL_TEXT, {"t": value})
    return None


def _array_text(value: exp.Expr, element: Kind) -> exp.Expr:
    """Return an array as Postgres writes it: {1,NULL,"a b"}."""
    each = exp.column("each")
    text = _BOOL_TEXT
    if element != "bool":
        text = (_as_text(each, element) or exp.cast(each, "VARCHAR")).sql(DIALECT)
    if element not in NUMBERS | {"bool", "date"}:
        text = (
            f"CASE WHEN regexp_matches({text}, '[\\s{{}}\",\\\\]') OR {text} = '' OR upper({text}) = 'NULL' "
            f"THEN '\"' || replace(replace({text}, '\\', '\\\\'), '\"', '\\\"') || '\"' ELSE {text} END"
        )
    items = f"list_transform(l, lambda each : coalesce({text}, 'NULL'))"
    return _filled(
        f"CASE WHEN l IS NOT NULL THEN '{{' || array_to_string({items}, ',') || '}}' END", {"l": value}
    )


def _joined(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """An array and an element are one array."""
    left, right = kinds.of(node.this), kinds.of(node.expression)
    is_left, is_right = (kind is not None and is_array(kind) for kind in (left, right))
    sides = [node.this.copy(), node.expression.copy()]
    if is_left and is_right:
        return _called("list_concat", *sides)
    if is_left and right is not None:
        return _called("list_append", *sides)
    if is_right and left is not None:
        return _called("list_prepend", *sides)
    for place, kind in enumerate((left, right)):
        if kind in FLOATS and not (is_left or is_right):
            sides[place] = _as_text(sides[place], str(kind)) or sides[place]
    if sides != [node.this, node.expression]:
        return exp.DPipe(this=sides[0], expression=sides[1])
    return None


def _quantified(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """x <> ALL(array) is true where x = ANY(array) is false. An array may be a text, as '{1,2}'."""
    of = node.expression
    if isinstance(of, exp.Any):
        if isinstance(given := of.this.unnest(), exp.Literal):
            of.this.replace(_typed(given, kinds.of(node.this)))
        return None
    if isinstance(of, exp.Anonymous) and name_of(of) == "all" and len(of.expressions) == 1:
        array = of.expressions[0]
    elif isinstance(of, exp.All) and not isinstance(of.this.unnest(), exp.Query):
        array = of.this.unnest()
    else:
        return None
    array = _typed(array, kinds.of(node.this))
    opposite = _NEGATED[type(node)](this=node.this.copy(), expression=exp.Any(this=exp.paren(array)))
    return exp.not_(exp.paren(opposite, copy=False))


def _typed(array: exp.Expr, element: Kind | None) -> exp.Expr:
    """Return an array; one that is a text with the type of what it is compared with."""
    if not (isinstance(array, exp.Literal) and array.is_string):
        return exp.paren(array.copy(), copy=False)
    if (type_ := _TYPES_OF_KINDS.get(element or "")) is None:
        raise UnsupportedError(
            f"the type of {array.sql(DIALECT)} is not known; cast it, as in '{{1,2}}'::int[]"
        )
    return exp.paren(exp.cast(_array_of(array.name), f"{type_}[]"), copy=False)


def _contains(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """NULL is in no array."""
    whole, part = node.this, node.expression
    if not any(kind is not None and is_array(kind) for kind in (kinds.of(whole), kinds.of(part))):
        return None
    if isinstance(node, exp.ArrayContainedBy):
        whole, part = part, whole
    text = "CASE WHEN len(r) > list_count(r) THEN false ELSE list_has_all(l, r) END"
    return exp.paren(_filled(text, {"l": whole, "r": part}), copy=False)


def _difference(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """The time between two moments does not depend on clocks that were set forward between them."""
    if not kinds.of(node.this) == kinds.of(node.expression) == "timestamptz":
        return None
    text = (
        "list_transform([epoch_us(a) - epoch_us(b)], lambda u : "
        "to_days(CAST(u // 86400000000 AS INTEGER)) + to_microseconds(u % 86400000000))[1]"
    )
    return exp.paren(_filled(text, {"a": node.this, "b": node.expression}), copy=False)


def _element(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Places are counted from 1, and there is nothing at others: -1 is not the last."""
    kind = kinds.of(node.this)
    if kind is None or not is_array(kind) or len(node.expressions) != 1:
        return None
    place = node.expressions[0]
    if isinstance(place, exp.Slice):
        low, high = place.this, place.expression
        ends = [
            exp.Literal.number(1) if low is None else _called("greatest", low.copy(), exp.Literal.number(1))
        ]
        ends.append(exp.Literal.number(_LONGEST) if high is None else high.copy())
        is_empty = "CASE WHEN hi < 1 THEN [] ELSE array_slice(l, lo, hi) END"
        return _filled(is_empty, {"l": node.this, "lo": ends[0], "hi": ends[1]})
    if isinstance(place, exp.Literal) and place.is_int and int(place.name) > 0:
        return None
    return _filled("CASE WHEN i > 0 THEN list_extract(l, i) END", {"l": node.this, "i": place})


def _json_path(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """j #> '{a,0}' goes down from key to key, or from place to place."""
    path = node.expression
    if not (isinstance(path, exp.Literal) and path.is_string):
        raise UnsupportedError("#> and #>> take a path that is written out here, as '{a,0}'")
    steps = [each.name.replace("~", "~0").replace("/", "~1") for each in _array_of(path.name).expressions]
    name = "json_extract_string" if isinstance(node, exp.JSONBExtractScalar) else "json_extract"
    return _called(name, node.this.copy(), exp.Literal.string("".join(f"/{step}" for step in steps)))


def _round(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Of a float .5 goes to the even number. A NUMERIC that is a DOUBLE here gets its digits before."""
    decimals, value, kind = node.args.get("decimals"), node.this, kinds.of(node.this)
    if decimals is None and kind in FLOATS:
        return _called("round_even", value.copy(), exp.Literal.number(0))
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
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise UnsupportedError("SIMILAR TO takes a text that is written out here; write x ~ pattern")
    regexp = _SQL_PATTERN.sub(_regexp_of, pattern.name)
    return _called("regexp_full_match", node.this.copy(), exp.Literal.string(regexp), exp.Literal.string("s"))


def _regexp_of(found: re.Match[str]) -> str:
    escaped, wild, special, plain = found.groups()
    if escaped is not None:
        return re.escape(escaped)
    if wild is not None:
        return ".*" if wild == "%" else "."
    return f"\\{special}" if special is not None else str(plain)


def _like(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """A backslash in a pattern takes the next sign as it is."""
    if isinstance(node.parent, exp.Escape):
        return None
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.name:
        return None
    if isinstance(pattern, exp.Any | exp.All | exp.Subquery | exp.Tuple):
        return None
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _extract(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Seconds and milliseconds have their fractions."""
    return _part(node.this.name, node.expression)


def _part(part: str, moment: exp.Expr) -> exp.Expr | None:
    size = {"SECOND": "1e6", "SECONDS": "1e6", "MILLISECOND": "1e3", "MILLISECONDS": "1e3"}.get(part.upper())
    if size is None:
        return None
    microseconds = exp.Extract(this=exp.var("MICROSECOND"), expression=moment.copy())
    return exp.paren(exp.Div(this=microseconds, expression=exp.Literal.number(size)), copy=False)


def _between(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    if not node.args.get("symmetric"):
        return None
    low, high = node.args["low"], node.args["high"]
    first, last = (_called(name, low.copy(), high.copy()) for name in ("least", "greatest"))
    return exp.Between(this=node.this.copy(), low=first, high=last)


def _select(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """generate_series makes rows, and not a list."""
    for item in node.expressions:
        for call in list(item.find_all(exp.GenerateSeries)):
            if (
                not isinstance(call.parent, exp.Unnest | exp.Table | exp.From)
                and call.find_ancestor(exp.Select) is node
            ):
                call.replace(exp.Unnest(expressions=[call.copy()]))
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


def _json_of_lists(tree: exp.Expr) -> None:
    """json_agg(x ORDER BY y) is a list as JSON, also with a FILTER and as a window. In place."""
    for call in list(tree.find_all(exp.Anonymous)):
        if name_of(call) in ("json_agg", "jsonb_agg"):
            call.set("this", "list")
            call.meta["called"] = "list"
            outer: exp.Expr = call
            while (
                isinstance(outer.parent, exp.Filter | exp.Window | exp.WithinGroup)
                and outer.arg_key == "this"
            ):
                outer = outer.parent
            rows = outer.copy()
            text = _filled("CASE WHEN l IS NOT NULL THEN to_json(l) END", {"l": rows})
            outer.replace(exp.paren(text, copy=False))


def _call(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    name, given = name_of(node), arguments_of(node)
    if (other := _OTHER_NAMES.get(name)) is not None and isinstance(node, exp.Anonymous):
        return _called(other, *(each.copy() for each in given))
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
    return _called("concat", exp.Literal.string(""), *parts)


def _printed(value: exp.Expr, kinds: Kinds) -> exp.Expr:
    kind = kinds.of(value)
    if kind == "bool":
        texts = [exp.If(this=value.copy(), true=exp.Literal.string("t"))]
        return exp.Case(ifs=[*texts, exp.If(this=exp.not_(value.copy()), true=exp.Literal.string("f"))])
    return (_as_text(value, kind) if kind else None) or value.copy()


def _concat(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    for each in given:
        if (printed := _printed(each, kinds)) != each:
            each.replace(printed)
    return None


def _width_bucket(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 4:
        raise UnsupportedError(
            "width_bucket takes a value, a low and a high end, and a number of buckets here"
        )
    inside = "CAST(floor((v - lo) * n / (hi - lo)) AS INTEGER) + 1"
    text = f"CASE WHEN v < lo THEN 0 WHEN v >= hi THEN n + 1 ELSE {inside} END"
    return _filled(text, dict(zip(("v", "lo", "hi", "n"), given, strict=True)))


def _date_bin(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 3:
        raise SqlError("date_bin takes an interval, a timestamp and an origin")
    stride = given[0].copy()
    if isinstance(stride, exp.Literal):
        stride = exp.cast(stride, "INTERVAL")
    return _called("time_bucket", stride, given[1].copy(), given[2].copy())


def _date_trunc(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Of a DATE it is a TIMESTAMPTZ, because Postgres takes the date for one."""
    if len(given) == 2 and kinds.of(given[1]) == "date" and not isinstance(node.parent, exp.Cast):
        return exp.cast(node.copy(), "TIMESTAMPTZ")
    return None


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
    return _called("trunc", _unless_zero(exp.Div(this=exp.paren(left), expression=exp.paren(right))))


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


def _refused(why: str) -> Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr]:
    def refuse(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        raise UnsupportedError(why)

    return refuse


def _initcap(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    text = (
        "array_to_string(list_transform(regexp_extract_all(t, '[\\p{L}\\p{N}]+|[^\\p{L}\\p{N}]+'), "
        "lambda w : upper(substr(w, 1, 1)) || lower(substr(w, 2))), '')"
    )
    return _filled(text, {"t": given[0]})


def _without_nan(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """Of points on one line upright, Postgres says NULL and DuckDB NaN."""
    return exp.Nullif(this=node.copy(), expression=exp.cast(exp.Literal.string("NaN"), "DOUBLE"))


def _called(name: str, *given: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(given))


def _filled(text: str, values: dict[str, exp.Expr]) -> exp.Expr:
    """Return an expression with values in the place of its columns."""
    (tree,) = read_statements(f"SELECT ({text})", Effort())
    found: exp.Expr = tree.expressions[0]
    for column in list(found.find_all(exp.Column)):
        if column.name in values:
            column.replace(exp.paren(values[column.name].copy(), copy=False))
    return found.copy()


def _justified(text: str) -> Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr]:
    def justify(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        if len(given) != 1:
            raise SqlError(f"{name_of(node)} takes an interval")
        value = given[0].copy()
        return _filled(text, {"t": exp.cast(value, "INTERVAL") if isinstance(value, exp.Literal) else value})

    return justify


# The parts of an interval: months, days, microseconds.
_MONTHS, _DAYS = "(datepart('year', t) * 12 + datepart('month', t))", "datepart('day', t)"
_MICROS = "(datepart('hour', t) * 3600000000 + datepart('minute', t) * 60000000 + datepart('microsecond', t))"
_OF_PARTS = (
    "to_months(CAST({m} AS INTEGER)) + to_days(CAST({d} AS INTEGER)) + to_microseconds(CAST({u} AS BIGINT))"
)


# Hours become days, days become months, and all signs those of the whole.
_JUSTIFIED = (
    "list_transform([{m} * 2592000000000 + {d} * 86400000000 + {u}], lambda s : "
    "to_months(CAST(s // 2592000000000 AS INTEGER)) "
    "+ to_days(CAST(s % 2592000000000 // 86400000000 AS INTEGER)) + to_microseconds(s % 86400000000))[1]"
)


def _array_length(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 2 or given[1].name != "1":
        raise UnsupportedError("array_length takes an array and 1, its first dimension, here")
    return _filled("CAST(nullif(len(l), 0) AS INTEGER)", {"l": given[0]})


def _of_array(text: str) -> Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr]:
    """Return what writes a call by a text in which l is the first argument, v the second, w the third."""

    def write(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        values = dict(zip("lvw", given, strict=False))
        try:
            return _filled(text, values)
        except KeyError:
            raise SqlError(f"{name_of(node)} takes more arguments") from None

    return write


def _array_to_string(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    if len(given) not in (2, 3):
        raise SqlError("array_to_string takes an array, a separator, and what stands for NULL")
    element = (kinds.of(given[0]) or "")[:-2]
    each = exp.column("each")
    text = _BOOL_TEXT if element == "bool" else None
    if text is None:
        text = (_as_text(each, element) or exp.cast(each, "VARCHAR")).sql(DIALECT)
    other = f"coalesce({text}, w)" if len(given) == 3 else text
    return _filled(
        f"coalesce(array_to_string(list_filter(list_transform(l, lambda each : {other}), "
        "lambda each : each IS NOT NULL), v), if(l IS NULL OR v IS NULL, NULL, ''))",
        dict(zip("lvw", given, strict=False)),
    )


def _string_to_array(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) not in (2, 3):
        raise SqlError("string_to_array takes a text, a separator, and what stands for NULL")
    empty = "CASE WHEN l = '' THEN CAST([] AS VARCHAR[]) WHEN v = '' THEN [l]"
    text = f"{empty} ELSE string_split(l, coalesce(v, '')) END"  # NULL parts it into characters
    if len(given) == 3:
        text = f"list_transform({text}, lambda each : nullif(each, w))"
    return _filled(text, dict(zip("lvw", given, strict=False)))


_CALLS: dict[str, Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr | None]] = {
    "to_char": _to_char,
    "format": _format,
    "concat": _concat,
    "width_bucket": _width_bucket,
    "date_bin": _date_bin,
    "date_trunc": _date_trunc,
    "date_part": _date_part,
    "div": _div,
    "array_length": _array_length,
    "cardinality": _of_array("CAST(len(l) AS INTEGER)"),
    "array_upper": _array_length,
    "array_append": _of_array("list_append(l, v)"),
    "array_prepend": _of_array("list_prepend(l, v)"),
    "array_cat": _of_array("list_concat(l, v)"),
    "array_remove": _of_array("list_filter(l, lambda each : each IS DISTINCT FROM v)"),
    "array_replace": _of_array("list_transform(l, lambda each : if(each IS NOT DISTINCT FROM v, w, each))"),
    "array_position": _of_array("CAST(nullif(list_position(l, v), 0) AS INTEGER)"),
    "array_to_string": _array_to_string,
    "string_to_array": _string_to_array,
    "justify_days": _justified(
        _OF_PARTS.format(m=f"({_MONTHS} + {_DAYS} // 30)", d=f"({_DAYS} % 30)", u=_MICROS)
    ),
    "justify_interval": _justified(_JUSTIFIED.format(m=_MONTHS, d=_DAYS, u=_MICROS)),
    **dict.fromkeys(
        ("json_array_elements", "jsonb_array_elements"), _of_array("unnest(json_extract(l, '$[*]'))")
    ),
    **dict.fromkeys(
        ("json_array_elements_text", "jsonb_array_elements_text"),
        _of_array("unnest(json_extract_string(l, '$[*]'))"),
    ),
    **dict.fromkeys(("json_object_keys", "jsonb_object_keys"), _of_array("unnest(json_keys(l))")),
    "justify_hours": _justified(
        _OF_PARTS.format(m=_MONTHS, d=f"({_DAYS} + {_MICROS} // 86400000000)", u=f"({_MICROS} % 86400000000)")
    ),
    "initcap": _initcap,
    **dict.fromkeys(("corr", "regr_slope", "regr_intercept", "regr_r2"), _without_nan),
    "substr": _substring,
    "substring": _substring,
}

_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Div: _quotient,
    exp.Ordered: _ordered,
    exp.DPipe: _joined,
    exp.Bracket: _element,
    **dict.fromkeys(_NEGATED, _quantified),
    exp.ArrayContainsAll: _contains,
    exp.ArrayContainedBy: _contains,
    exp.Sub: _difference,
    exp.JSONBExtract: _json_path,
    exp.JSONBExtractScalar: _json_path,
    exp.Cast: _cast,
    exp.Round: _round,
    exp.SimilarTo: _similar,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Extract: _extract,
    exp.Between: _between,
    exp.Select: _select,
    exp.Anonymous: _call,
    exp.Format: _call,
    exp.Concat: _call,
    exp.Substring: _call,
    exp.Corr: _call,
    exp.RegrSlope: _call,
    exp.RegrIntercept: _call,
    exp.RegrR2: _call,
}


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


def column_name(item: exp.Expr) -> str | None:
    """Return what Postgres calls a column without a name; None where it has one.

    >>> from sqlglot import parse_one
    >>> items = parse_one("SELECT count(*), a + 1, a, CAST(a AS TEXT)", dialect="relaqs").selects
    >>> [column_name(item) for item in items]
    ['count', '?column?', None, 'a']
    """
    if isinstance(item, exp.Alias | exp.Column | exp.Star | exp.Aliases):
        return None
    return _figured(item)[0] or "?column?"


def _figured(item: exp.Expr) -> tuple[str | None, bool]:
    """Return a name, and whether it is a strong one, which a cast keeps."""
    match item:
        case exp.Column():
            return item.name, True
        case exp.Paren() | exp.Collate() | exp.Filter() | exp.Window() | exp.WithinGroup() | exp.Bracket():
            return _figured(item.this)
        case exp.Cast():
            name, is_strong = _figured(item.this)
            return (name, True) if is_strong and name else (_type_name(item.args["to"]), False)
        case exp.Case():
            name, is_strong = _figured(item.args["default"]) if item.args.get("default") else (None, False)
            return (name, True) if is_strong and name else ("case", False)
        case exp.Subquery():
            select = item.this
            if isinstance(select, exp.Select) and select.expressions:
                inner = select.expressions[0]
                return (inner.alias, True) if isinstance(inner, exp.Alias) else _figured(inner)
            return None, False
        case exp.Exists():
            return "exists", True
        case exp.Array():
            return "array", True
        case exp.Interval():
            return "interval", False
        case exp.AtTimeZone():
            return "timezone", True
        case exp.Func() | exp.Mod():
            name = name_of(item)
            return (name, True) if name else (None, False)
    return None, False


_TYPE_NAMES = {
    "INT": "int4",
    "INTEGER": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DOUBLE": "float8",
    "FLOAT": "float8",
    "DOUBLE PRECISION": "float8",
    "REAL": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
    "VARCHAR": "varchar",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "TIMESTAMPTZ": "timestamptz",
    "CHAR": "bpchar",
    "BLOB": "bytea",
}


def _type_name(to: exp.Expr) -> str:
    written = to.sql(DIALECT).upper().partition("[")[0].partition("(")[0].strip()
    return _TYPE_NAMES.get(written, written.lower())


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


def in_words_of_duckdb(sql: str) -> str:
    """Return a statement without words that DuckDB has not, or has with another meaning.

    >>> in_words_of_duckdb("SELECT btrim(w) FROM t ORDER BY k DESC FOR UPDATE")
    'SELECT trim(w) FROM t ORDER BY k DESC NULLS FIRST '
    """
    if _WITH_OTHER_WORDS.search(sql) is None:
        return sql
    return edited(sql, _word_edits(tokens_or_none(sql)))


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
