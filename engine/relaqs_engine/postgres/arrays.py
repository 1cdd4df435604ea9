"""Arrays, JSON, intervals and floats as Postgres writes and reads them, as functions of DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp

from relaqs_engine.errors import ExpressionError, SqlError, UnsupportedError
from relaqs_engine.postgres.formats import (
    AT_KEY,
    ELEMENTS_KEPT,
    JOINED,
    KEYED,
    KEYS,
    LONGEST_CONDITION,
    NUMBER_SIGN,
    NUMBERS_AS_TEXTS,
    ONE_WAY,
    PATH_OF_KEY,
    SORTED_KEYS,
    STEPS,
    TEXT_AT,
    TO_KEEP,
    array_items,
    called,
    filled,
    holding,
    path_of,
    pattern_of,
    pointer,
    too_deep,
)
from relaqs_engine.postgres.kinds import (
    FLOATS,
    INTEGERS,
    NESTED,
    NUMBERS,
    Kind,
    Kinds,
    arguments_of,
    is_array,
    is_condition,
    is_shown,
    name_of,
    read_moments,
)
from relaqs_engine.sql.dialect import DIALECT

# From 1e15 on a float has an exponent, one of 32 bits from 1e6 on. No float ends with .0.
_FLOAT_TEXT = (
    "CASE WHEN isnan(t) THEN 'NaN' WHEN isinf(t) THEN if(t > 0, 'Infinity', '-Infinity') "
    "WHEN abs(t) >= {least} AND abs(t) < 1e16 THEN "
    "list_transform([split(CAST(abs(t) AS VARCHAR), '.')], lambda relaqs_part : "
    "if(t < 0, '-', '') || "
    "regexp_replace(regexp_replace(relaqs_part[1] || relaqs_part[2], '0+$', ''), '^(.)(.+)$', '\\1.\\2') "
    "|| 'e+' || lpad(CAST(len(relaqs_part[1]) - 1 AS VARCHAR), 2, '0'))[1] "
    "ELSE regexp_replace(CAST(t AS VARCHAR), '\\.0$', '') END"
)
_BOOL_TEXT = "CASE relaqs_each WHEN true THEN 't' WHEN false THEN 'f' END"
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
_MOST_PLACES = 25  # of rows that are compared; each is written as often as it has places before it
_STRICT: dict[type[exp.Expr], type[exp.Expr]] = {exp.LTE: exp.LT, exp.GTE: exp.GT}
_INTEGER_ARRAY = re.compile(r"(?:SMALLINT|INT|INTEGER|BIGINT|TINYINT|HUGEINT)(?:\[\d*\])+", re.IGNORECASE)
_BOTH = "CASE WHEN l IS NOT NULL OR v IS NOT NULL THEN list_concat(l, v) END"
_MOST_DIGITS = 1000  # of a number that is written out
_LONGEST = 1 << 30  # no array is as long
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

_ROW_FUNCTIONS = (exp.Unnest, exp.GenerateSeries, exp.Explode)
_OF_ROWS = {"json_each", "json_tree", "generate_subscripts", "range", "repeat_row", "regexp_matches"}

MeaningRule: TypeAlias = Callable[[exp.Expr, Kinds], exp.Expr | None]
WriteCall: TypeAlias = Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr | None]


def one_row(table: exp.Expr, scalars: Collection[str]) -> exp.Expr | None:
    """Return a table of the one value of a function that stands in FROM; None where rows are made there.

    The name behind the function is also that of its column.

    scalars: functions of one value.
    """
    function = table.this
    name = name_of(function) if isinstance(function, exp.Func) else ""
    if name not in scalars or name in _OF_ROWS or isinstance(function, _ROW_FUNCTIONS):
        return None
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    called_so = alias.this if alias.this.quoted else exp.to_identifier(alias.name.lower())
    column = alias.columns[0] if alias.columns else called_so
    return _in_place_of(table, exp.select(exp.alias_(function.copy(), column.copy(), copy=False)), called_so)


def _in_place_of(table: exp.Expr, query: exp.Select, name: exp.Identifier | str) -> exp.Expr:
    if table.args.get("ordinality"):
        raise UnsupportedError("WITH ORDINALITY is not taken here; write row_number() OVER () as a column")
    rows: exp.Expr = query.subquery(name)
    for each in ("joins", "laterals"):
        if table.args.get(each):
            rows.set(each, table.args[each])
    return rows


def as_text(value: exp.Expr, source: Kind) -> exp.Expr | None:
    if isinstance(value, exp.Literal) and source in NUMBERS:
        if abs(Decimal(value.name).adjusted()) > _MOST_DIGITS:
            raise UnsupportedError(f"{value.name[:20]} has too many digits for a text")
        return exp.Literal.string(f"{Decimal(value.name):f}")
    if source in FLOATS:
        return filled(_FLOAT_TEXT.format(least="1e6" if source == "float4" else "1e15"), {"t": value})
    if is_array(source):
        return _array_text(value, source[:-2])
    if source == "interval":
        return filled(_INTERVAL_TEXT, {"t": value})
    return None


def _array_text(value: exp.Expr, element: Kind) -> exp.Expr:
    """Return an array as Postgres writes it: {1,NULL,"a b"}."""
    each = exp.column("relaqs_each")
    text = _BOOL_TEXT
    if element != "bool":
        text = (as_text(each, element) or exp.cast(each, "VARCHAR")).sql(DIALECT)
    if element not in NUMBERS | {"bool", "date"} and not is_array(element):
        text = (
            f"CASE WHEN regexp_matches({text}, '[\\s{{}}\",\\\\]') OR {text} = '' OR upper({text}) = 'NULL' "
            f"THEN '\"' || replace(replace({text}, '\\', '\\\\'), '\"', '\\\"') || '\"' ELSE {text} END"
        )
    items = f"list_transform(l, lambda relaqs_each : coalesce({text}, 'NULL'))"
    return filled(
        f"CASE WHEN l IS NOT NULL THEN '{{' || array_to_string({items}, ',') || '}}' END", {"l": value}
    )


def array_of(text: str) -> exp.Expr:
    """Return a list of texts, as an array that is written out has them: {1,2,NULL,"a b"}, or {{1,2},{3,4}}.

    Raises:
        ExpressionError: it is no such array.
    """
    try:
        return _array(array_items(text))
    except ValueError as error:
        said = f"Could not convert string '{text[:60]}' to an array: {error}; write '{{1,2}}'"
        raise ExpressionError(said) from None


def _array(items: list[Any]) -> exp.Expr:
    found = [
        _array(each) if isinstance(each, list) else exp.null() if each is None else exp.Literal.string(each)
        for each in items
    ]
    return exp.Array(expressions=found, bracket_notation=True)


def cast_array(text: str, to: exp.DataType) -> exp.Expr:
    """Return an array that is written out as one of a type, with as many dimensions as are written."""
    items = array_of(text)
    for each in items.find_all(exp.Literal) if _INTEGER_ARRAY.fullmatch(to.sql(DIALECT)) else ():
        if not re.fullmatch(r"\s*[+-]?\d+\s*", each.name):
            raise ExpressionError(f"Could not convert string '{each.name[:60]}' to a whole number")
    dimensions = (re.match(r"[\s{]*", text) or [""])[0].count("{")
    while isinstance(inner := to.expressions[0] if to.expressions else None, exp.DataType):
        to = inner
    for _ in range(max(dimensions, 1)):
        to = exp.DataType(this=exp.DType.ARRAY, expressions=[to.copy()], nested=True)
    return exp.Cast(this=items, to=to.copy())


def _flat(array: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Return the elements of an array, also those of arrays inside of it, as one array."""
    for _ in range((kinds.of(array) or "").count("[]") - 1):
        array = called("flatten", array.copy())
    return array


def _unnested(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    for each in arguments_of(node)[:1]:
        each.replace(_flat(each, kinds).copy())
    return None


def _typed(array: exp.Expr, element: Kind | None) -> exp.Expr:
    """Return an array; one that is a text with the type of what it is compared with."""
    if not (isinstance(array, exp.Literal) and array.is_string):
        return exp.paren(array.copy(), copy=False)
    type_ = {"numeric": "DECIMAL(38, 18)"}.get(element or "", element)
    if type_ in (None, "other", "interval", "json"):
        raise UnsupportedError(
            f"the type of {array.sql(DIALECT)} is not known; cast it, as in '{{1,2}}'::int[]"
        )
    return exp.paren(cast_array(array.name, exp.DataType.build(f"{type_}[]", dialect=DIALECT)), copy=False)


def _joined(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """An array and an element are one array."""
    left, right = kinds.of(node.this), kinds.of(node.expression)
    is_left, is_right = (kind is not None and is_array(kind) for kind in (left, right))
    sides = [node.this.copy(), node.expression.copy()]
    if is_left != is_right and any(isinstance(each, exp.Null) for each in sides):
        return exp.paren(sides[is_right])
    if is_left and is_right:
        if any(isinstance(_uncast(each), exp.Array) for each in sides):
            return called("list_concat", *sides)
        return filled(_BOTH, dict(zip("lv", sides, strict=True)))
    if is_left and right is not None:
        return called("list_append", *sides)
    if is_right and left is not None:
        return called("list_prepend", *sides)
    if "json" in (left, right) and {left, right} <= {"json", None}:
        if any(isinstance(_uncast(each), exp.Null) for each in sides):
            return exp.cast(exp.null(), "JSON")
        values = [exp.cast(each, "JSON") for each in sides]
        return exp.paren(filled(JOINED, dict(zip("lr", values, strict=True))), copy=False)
    for place, kind in enumerate((left, right)):
        if kind in NUMBERS and not (is_left or is_right):
            sides[place] = as_text(sides[place], str(kind)) or sides[place]
    if sides != [node.this, node.expression]:
        return exp.DPipe(this=sides[0], expression=sides[1])
    return None


def _row(node: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a row that is written out; none of all else."""
    is_row = isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and name_of(node) == "row")
    return list(node.expressions) if is_row else []


def _compared(kind: type[exp.Expr], node: exp.Expr, other: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Compare two rows: the first places that differ decide, and where one before is NULL nothing does."""
    left, right = _row(node), _row(other)
    if len(left) != len(right):
        raise SqlError("unequal number of entries in row expressions")
    if len(left) > _MOST_PLACES:
        raise UnsupportedError(f"rows of more than {_MOST_PLACES} places are not compared here")
    if "json" in map(kinds.of, (*left, *right)):
        raise UnsupportedError("JSON is not compared in rows here; write j::text")
    for pair in zip(left, right, strict=True):
        read_moments(pair, kinds)
    pairs = [[exp.Paren(this=each.copy()) for each in pair] for pair in zip(left, right, strict=True)]
    found: exp.Expr = kind(this=pairs[-1][0], expression=pairs[-1][1])
    for one, two in reversed(pairs[:-1]):
        if kind in (exp.EQ, exp.NEQ):
            join = exp.And if kind is exp.EQ else exp.Or
            found = join(this=kind(this=one, expression=two), expression=found)
        else:
            rest = exp.And(
                this=exp.EQ(this=one.copy(), expression=two.copy()), expression=exp.Paren(this=found)
            )
            found = exp.Or(this=_STRICT.get(kind, kind)(this=one, expression=two), expression=rest)
    return exp.Paren(this=found)


def _between(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    row, low, high = node.this, node.args["low"], node.args["high"]
    is_symmetric = node.args.get("symmetric")
    if _row(row) and _row(low) and _row(high) and not is_symmetric:
        least, most = _compared(exp.GTE, row, low, kinds), _compared(exp.LTE, row, high, kinds)
        return exp.paren(exp.And(this=least, expression=most), copy=False)
    compared_sides(node, kinds)
    for name in ("this", "low", "high"):  # an arrow binds less than BETWEEN in DuckDB
        if isinstance(node.args[name], exp.JSONExtract | exp.JSONExtractScalar):
            node.set(name, exp.paren(node.args[name].copy(), copy=False))
    if not is_symmetric:
        return None
    text = "(v BETWEEN lo AND hi OR v BETWEEN hi AND lo)"  # not least(lo, hi): literals take the type of v
    return filled(text, {"v": row, "lo": low, "hi": high})


def _in(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    if not (node.expressions and _row(node.this) and all(map(_row, node.expressions))):
        return compared_sides(node, kinds)
    row, rows = _row(node.this), [_row(each) for each in node.expressions]
    are_numbers = all(isinstance(each, exp.Literal) and each.is_number for other in rows for each in other)
    is_even = are_numbers and all(len(other) == len(row) for other in rows)
    if is_even and is_condition(node) and "json" not in map(kinds.of, row):
        return None  # no row of these has a NULL, and of NULLs a condition lets none through either
    found = [_compared(exp.EQ, node.this, each, kinds) for each in node.expressions]
    while len(found) > 1:  # by halves: a chain of thousands would be as deep
        pairs, rest = zip(found[::2], found[1::2], strict=False), found[len(found) & ~1 :]
        found = [exp.Paren(this=exp.Or(this=one, expression=two)) for one, two in pairs] + rest
    return found[0]


def _is(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    if isinstance(node.expression, exp.Null) and (_row(node.this) or kinds.row_of(node.this)):
        raise UnsupportedError("a row is not asked for NULL here; write a IS NULL AND b IS NULL")
    return None


def _quantified(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """x <> ALL(array) is true where x = ANY(array) is false. An array may be a text, as '{1,2}', or NULL."""
    of = node.expression
    if _row(node.this) and _row(of):
        return _compared(type(node), node.this, of, kinds)
    compared_sides(node, kinds)
    if isinstance(of, exp.Any):
        if isinstance(given := of.this.unnest(), exp.Literal):
            of.this.replace(_typed(given, kinds.of(node.this)))
        if isinstance(_uncast(given), exp.Literal | exp.Array | exp.Query) or is_condition(node):
            return None
        return filled("CASE WHEN l IS NOT NULL THEN w END", {"l": given, "w": node})
    if isinstance(of, exp.Anonymous) and name_of(of) == "all" and len(of.expressions) == 1:
        array = of.expressions[0]
    elif isinstance(of, exp.All) and not isinstance(of.this.unnest(), exp.Query):
        array = of.this.unnest()
    else:
        return None
    array = _typed(array, kinds.of(node.this))
    opposite = _NEGATED[type(node)](this=node.this.copy(), expression=exp.Any(this=exp.paren(array)))
    found = exp.not_(exp.paren(opposite, copy=False))
    if isinstance(_uncast(array), exp.Array):
        return found
    return filled("CASE WHEN l IS NOT NULL THEN w END", {"l": array, "w": found})


def _one_of_several(node: exp.Expr, kinds: Kinds) -> None:
    """The values of COALESCE and the like have one type: texts beside moments are moments. In place."""
    read_moments(arguments_of(node), kinds)


def compared_sides(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Read a text that is written out as what it is compared with. In place.

    Beside a moment it is one, as '2024-01-31 10:00 PM'. Beside a CHAR(n) its blanks do not count. JSON is
    refused, because one value may be written in several ways. A text, true, false and null that are written
    out are written in one way, and may be equal.
    """
    if isinstance(node, exp.Case):
        read_moments([node.args.get("default"), *(each.args["true"] for each in node.args["ifs"])], kinds)
        sides = [node.this, *(each.this for each in node.args["ifs"])] if node.args.get("this") else []
    else:
        sides = arguments_of(node)
    read_moments(sides, kinds)
    of_sides = {kinds.of(each) for each in sides}
    is_padded = any("padded_to" in each.meta for each in sides)
    for each in sides:
        bare = each.unnest()
        if is_padded and isinstance(bare, exp.Parameter | exp.Placeholder):
            bare.replace(called("rtrim", bare.copy(), exp.Literal.string(" ")))
        if not (isinstance(bare, exp.Literal) and bare.is_string):
            continue
        if is_padded:
            bare.set("this", bare.name.rstrip(" "))
    if "json" not in of_sides:
        return None
    may_be_equal = not isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between)
    are_plain = [_is_in_one_way(each, kinds, may_be_equal) for each in sides]
    if not are_plain[0] and not all(are_plain[1:]):
        raise UnsupportedError(
            "JSON is not compared here except with a text, true, false or null that is written out, as in "
            "j = '\"x\"'; compare a part of it, as j ->> 'a' = 'x', or write j::text"
        )
    return None


def _is_in_one_way(node: exp.Expr, kinds: Kinds, may_be_equal: bool) -> bool:
    if isinstance(bare := _uncast(node), exp.Null):
        return True
    text = written_text(bare, kinds) if may_be_equal else None
    return text is not None and re.fullmatch(r'"[^"\\]*"|true|false|null', text) is not None


def _uncast(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node


def _contains(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """NULL is in no array."""
    whole, part = node.this, node.expression
    if isinstance(node, exp.ArrayContainedBy):
        whole, part = part, whole
    if "json" in (kinds.of(whole), kinds.of(part)):
        return _json_contains(whole, part, kinds)
    if not any(kind is not None and is_array(kind) for kind in (kinds.of(whole), kinds.of(part))):
        return None
    text = "CASE WHEN len(r) > list_count(r) THEN false ELSE list_has_all(l, r) END"
    return exp.paren(filled(text, {"l": whole, "r": part}), copy=False)


def _json_contains(whole: exp.Expr, part: exp.Expr, kinds: Kinds) -> exp.Expr:
    """j @> '{"a": [1]}': what is written out becomes conditions on what may have it."""
    bare = _uncast(part)
    if (text := written_text(bare, kinds)) is None:
        raise UnsupportedError(
            "@> and <@ of JSON take a part that is written out here, as j @> '{\"a\": 1}'; write "
            "j ->> 'a' = 'x' for a value, j ? 'a' for a key"
        )
    try:
        wanted = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=int)
    except (ValueError, ArithmeticError):
        raise ExpressionError(f"Malformed JSON: {text[:60]!r}") from None
    except RecursionError:
        raise too_deep() from None
    condition = holding("l", wanted)
    if not isinstance(wanted, dict | list):  # a list has the scalars that are its elements
        condition += f" OR {holding('l', [wanted])}"
    if len(condition) > LONGEST_CONDITION:
        raise too_deep()
    text = f"CASE WHEN {'p IS NOT NULL AND ' if kinds.value_of(bare) is not None else ''}l IS NOT NULL THEN "
    json_ = exp.cast(whole.copy(), "JSON")
    values = {"l": filled(TO_KEEP, {"l": json_}) if NUMBER_SIGN in condition else json_, "p": bare}
    return exp.paren(filled(f"{text}coalesce({condition}, false) END", values), copy=False)


def _element(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Places are counted from 1, and there is nothing at others: -1 is not the last."""
    kind = kinds.of(node.this)
    if kind is None or not is_array(kind) or len(node.expressions) != 1:
        return None
    place = node.expressions[0]
    inner, is_slice = node.this, isinstance(place, exp.Slice)
    is_next = isinstance(inner, exp.Bracket) and (is_slice or isinstance(inner.expressions[0], exp.Slice))
    is_part = not is_slice and is_array(kind[:-2]) and not isinstance(node.parent, exp.Bracket)
    if is_next or is_part:
        raise UnsupportedError(
            "an array of arrays takes one place for each of its dimensions here, as in a[1][2], or a[1:2]"
        )
    if isinstance(place, exp.Slice):
        low, high = place.this, place.expression
        ends = [
            exp.Literal.number(1) if low is None else called("greatest", low.copy(), exp.Literal.number(1))
        ]
        ends.append(exp.Literal.number(_LONGEST) if high is None else high.copy())
        is_empty = "CASE WHEN hi < 1 THEN [] ELSE array_slice(l, lo, hi) END"
        return filled(is_empty, {"l": node.this, "lo": ends[0], "hi": ends[1]})
    if isinstance(place, exp.Literal) and place.is_int and int(place.name) > 0:
        return None
    return filled("CASE WHEN i > 0 THEN list_extract(l, i) END", {"l": node.this, "i": place})


def _json_path(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """j #> '{a,0}' goes down from key to key, or from place to place."""
    path = node.expression
    if not (isinstance(path, exp.Literal) and path.is_string):
        steps = filled(STEPS, {"p": path})
        found = filled("json_extract(l, s)", {"l": node.this, "s": steps})
        return _text_at(node.this, steps) if isinstance(node, exp.JSONBExtractScalar) else found
    keys = array_of(path.name).expressions
    if any(not isinstance(each, exp.Literal) or re.fullmatch(r"-\d+", each.name) for each in keys):
        raise UnsupportedError("#> and #>> take keys, and places from 0 on, as '{a,0}'")
    steps = exp.Literal.string("".join(pointer(each.name) for each in keys))
    if isinstance(node, exp.JSONBExtractScalar):
        return _text_at(node.this, steps)
    return exp.paren(exp.JSONExtract(this=node.this.copy(), expression=steps), copy=False)


def _json_text(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """j ->> 'a' has the digits of a number as they were written: 1.50. j -> 'a' is JSON."""
    node.set("expression", _path(node.expression, kinds))
    return _text_at(node.this, node.expression) if isinstance(node, exp.JSONExtractScalar) else None


def _path(key: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Return a path of DuckDB for what is behind an arrow: a key or a place, and never a path."""
    bare, kind = key.unnest(), kinds.of(key)
    if isinstance(bare, exp.Literal) and bare.is_string:
        return exp.Literal.string(path_of(bare.name))
    if kind in INTEGERS:
        return key.copy()
    if kind == "text" or isinstance(bare, exp.Parameter | exp.Placeholder | exp.Null):
        return filled(PATH_OF_KEY, {"key": exp.cast(key, "VARCHAR")})
    raise UnsupportedError(
        f"whether {key.sql(DIALECT)} behind an arrow is a key or a place is not known; cast it, as in "
        "j -> (x::text) or j -> (x::int)"
    )


def _text_at(value: exp.Expr, path: exp.Expr) -> exp.Expr:
    root = value
    while isinstance(inner := root.unnest(), exp.JSONExtract):
        root = inner.this
    name = exp.column("relaqs_json")
    marked = _from_root(value, filled(NUMBERS_AS_TEXTS, {"l": name}))
    text = filled(TEXT_AT.format("p", "m"), {"l": _from_root(value, name), "p": path, "m": marked})
    return exp.paren(filled(text, {name.name: root}), copy=False)


def _from_root(value: exp.Expr, root: exp.Expr) -> exp.Expr:
    """Return what is inside of JSON as it is inside of another."""
    inner = value.unnest()
    if not isinstance(inner, exp.JSONExtract):
        return root.copy()
    return exp.JSONExtract(this=_from_root(inner.this, root), expression=inner.expression.copy())


_PAIRS = {
    **dict.fromkeys(("json_each", "jsonb_each"), KEYED),
    **dict.fromkeys(("json_each_text", "jsonb_each_text"), TEXT_AT.format(AT_KEY, NUMBERS_AS_TEXTS)),
}


def json_pairs(table: exp.Expr) -> exp.Expr | None:
    """Return an object's keys and values as rows, for json_each and its kin in FROM; None for all else."""
    function, alias = table.this, table.args.get("alias")
    name = name_of(function) if isinstance(function, exp.Func) else ""
    names = [each.name for each in alias.columns] if alias is not None else []
    if name not in _PAIRS or len(function.expressions) != 1 or len(names) > 2:
        return None
    given = {"l": function.expressions[0]}
    key, value = names[0] if names else "key", names[1] if len(names) > 1 else "value"
    listed = KEYS.replace("ELSE json_keys(l)", f"ELSE {SORTED_KEYS}") if name[4] == "b" else KEYS
    keys = exp.select(exp.alias_(filled(listed, given), "key")).subquery("relaqs_keys")
    items = exp.alias_(exp.column("key"), key), exp.alias_(filled(_PAIRS[name], given), value)
    return _in_place_of(table, exp.select(*items).from_(keys), table.alias or name)


def json_rows(tree: exp.Expr) -> None:
    """Give json_array_elements(j) behind FROM its column, which its alias stands for too. In place."""
    for table in list(tree.find_all(exp.Table, exp.Lateral)):
        name = name_of(table.this) if isinstance(table.this, exp.Func) else ""
        if not _JSON_ROWS.fullmatch(name) or table.args.get("ordinality"):
            continue
        alias, select = table.args.get("alias"), table.find_ancestor(exp.Select)
        called_so = alias.this if alias is not None and alias.this else exp.to_identifier(name)
        column = "value" if "elements" in name else called_so.name
        if alias is not None and alias.columns:
            column = alias.columns[0].name
        elif select is not None:
            for each in list(select.find_all(exp.Column)):
                if not each.table and each.name == called_so.name and not isinstance(each.this, exp.Star):
                    found = exp.column(column, called_so.copy())
                    each.replace(exp.alias_(found, each.name) if each.parent is select else found)
        item = exp.alias_(table.this.copy(), column, quoted=True)
        table.replace(_in_place_of(table, exp.select(item), called_so))


_JSON_ROWS = re.compile(r"jsonb?_(?:array_elements(?:_text)?|object_keys)")
_ELEMENTS = "json_extract(l, '$[*]')"
_HAS_KEY = (
    "CASE json_type(l) WHEN 'OBJECT' THEN list_contains(json_keys(l), v) WHEN 'ARRAY' THEN list_contains("
    f"list_transform(list_filter({_ELEMENTS}, lambda relaqs_each : json_type(relaqs_each) = 'VARCHAR'), "
    "lambda relaqs_each : json_extract_string(relaqs_each, '$')), v) "
    "WHEN 'VARCHAR' THEN json_extract_string(l, '$') = v ELSE if(l IS NULL OR v IS NULL, NULL, false) END"
)


def _has_key(node: exp.Expr, kinds: Kinds) -> exp.Expr:
    """j ? 'a': whether an object has a key, an array an element that is this text, or it is this text."""
    if isinstance(node.parent, exp.JSONExtract | exp.JSONExtractScalar) and node.arg_key == "expression":
        raise UnsupportedError("-> and ? are read from left to right; write (j -> 'a') ? 'b'")
    if isinstance(_uncast(node.this), exp.Null):
        return exp.cast(exp.null(), "BOOLEAN")
    whole, key = exp.cast(node.this.copy(), "JSON"), node.expression
    if isinstance(node, exp.JSONBContainsTopKey):
        return exp.paren(filled(_HAS_KEY, {"l": whole, "v": key}), copy=False)
    if not isinstance(key, exp.Array):
        raise UnsupportedError("?| and ?& take an array that is written out, as ARRAY['a', 'b']")
    found = [filled(f"({_HAS_KEY})", {"l": whole, "v": each}) for each in key.expressions]
    is_any = isinstance(node, exp.JSONBContainsAnyTopKeys)
    joined = (exp.or_ if is_any else exp.and_)(*found, copy=False) if found else exp.convert(not is_any)
    return exp.paren(joined, copy=False)


def _scale(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """Only what is a DECIMAL in DuckDB has the digits that Postgres counts."""
    value = given[0].unnest() if len(given) == 1 else node
    if kinds.of(value) in INTEGERS:
        return filled("CASE WHEN l IS NOT NULL THEN 0 END", {"l": value})
    is_widened = isinstance(value, exp.Column) and node.root().find(exp.Subquery, exp.CTE, exp.Values)
    if (
        not isinstance(value, exp.Column | exp.Literal | exp.Cast)
        or is_widened
        or not kinds.is_decimal(value)
    ):
        raise UnsupportedError(
            "scale takes a number or a column of a table here; cast it, as in x::numeric(9, 2)"
        )
    text = "CASE WHEN l IS NOT NULL THEN CAST(regexp_extract(typeof(l), ',(\\d+)', 1) AS INTEGER) END"
    return filled(text, {"l": value})


def written_text(node: exp.Expr, kinds: Kinds) -> str | None:
    """Return a text that is written out, in one piece or several, or the value of a parameter; else None."""
    node = node.unnest()
    match node:
        case exp.RawString() | exp.ByteString():
            return str(node.name)
        case exp.Literal():
            return str(node.name) if node.is_string else None
        case exp.Cast():
            is_text = node.args["to"].sql(DIALECT).upper() in ("TEXT", "VARCHAR")
            return written_text(node.this, kinds) if is_text else None
        case exp.DPipe() | exp.Concat():
            parts = node.flatten() if isinstance(node, exp.DPipe) else node.expressions
            texts = [written_text(each, kinds) for each in parts]
            return "".join(each for each in texts if each is not None) if None not in texts else None
    return kinds.value_of(node)


def _matched(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    """Give ~, its kin, regexp_replace and the like the pattern that means the same in DuckDB. In place."""
    flags = given[3 if name_of(node) == "regexp_replace" else 2 :]
    signs = "".join("?" if (text := written_text(each, kinds)) is None else text for each in flags)
    if len(flags) > 1 or set(signs) - set("gics"):
        raise UnsupportedError(f"{name_of(node)} takes the flags g, i, c and s here, written out, as 'gi'")
    text = written_text(given[1], kinds) if len(given) > 1 else None
    is_taken = not isinstance(node, exp.RegexpLike | exp.RegexpILike)
    if text is not None and (written := pattern_of(text, is_taken=is_taken)) != text:
        parameter = given[1].copy()
        given[1].replace(exp.Literal.string(written))
        if kinds.value_of(parameter.unnest()) is not None:  # each value has to have its parameter
            return filled("CASE WHEN p IS NOT NULL THEN w END", {"p": parameter, "w": node})
    return None


def _by_pattern(text: str) -> WriteCall:
    """Return what writes a call by a text in which l is the first argument and p its pattern."""

    def write(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        pattern = written_text(given[1], kinds) if len(given) == 2 else None
        if pattern is None or kinds.value_of(given[1].unnest()) is not None:
            raise UnsupportedError(f"{name_of(node)} takes a text and a pattern that is written out here")
        taken = exp.Literal.string(pattern_of(pattern, is_taken="extract" in text))
        return filled(text, {"l": given[0], "p": taken})

    return write


def _regexp_match(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    """The groups of the first match, all of it where there are none; NULL where there is no match."""
    text, *_ = (*given, exp.Literal.string(""))
    pattern, flags, *_ = (*(written_text(each, kinds) for each in given[1:]), "", "")
    is_parameter = any(kinds.value_of(each.unnest()) is not None for each in given[1:])
    is_plain = 1 < len(given) < 4 and pattern is not None and flags in ("", "i") and not is_parameter
    if not is_plain or pattern is None or not ONE_WAY.fullmatch(pattern):
        raise UnsupportedError(
            "regexp_match takes a pattern that is written out here, without |, *? and groups that may be "
            "left out, and the flag 'i'; write text ~ pattern for whether it matches, and "
            "regexp_extract(text, pattern, 1) for what the first group has"
        )
    option = ", 'i'" if flags else ""
    wanted = f"l, {exp.Literal.string(pattern_of(pattern)).sql(DIALECT)}"
    count = len(re.findall(r"\((?!\?)", re.sub(r"\\.|\[\^?\]?[^\]]*\]", "", pattern)))
    places = range(1, count + 1) if count else (0,)
    groups = ", ".join(f"regexp_extract({wanted}, {place}{option})" for place in places)
    return filled(f"CASE WHEN regexp_matches({wanted}{option}) THEN [{groups}] END", {"l": text})


def json_of_lists(tree: exp.Expr) -> None:
    """json_agg(x ORDER BY y) is a list as JSON, also with a FILTER and as a window. In place."""
    for call in list(tree.find_all(exp.Anonymous)):
        if name_of(call) in ("json_agg", "jsonb_agg"):
            call.set("this", "list")
            call.meta.update(called="list", is_json=True)
            outer: exp.Expr = call
            while (
                isinstance(outer.parent, exp.Filter | exp.Window | exp.WithinGroup)
                and outer.arg_key == "this"
            ):
                outer = outer.parent
            rows = outer.copy()
            text = filled("CASE WHEN l IS NOT NULL THEN to_json(l) END", {"l": rows})
            outer.replace(exp.paren(text, copy=False))


_MOMENTS_IN_JSON = {
    "timestamp": "replace(CAST({0} AS VARCHAR), ' ', 'T')",
    "timestamptz": "regexp_replace(replace(CAST({0} AS VARCHAR), ' ', 'T'), '([+-]\\d\\d)$', '\\1:00')",
}
MAKES_JSON = re.compile(
    r"(?:to|row_to|array_to)_jsonb?|jsonb?_(?:build_object|build_array|object_agg|object|array)"
)


def _moments_in_json(kind: Kind | None) -> str | None:
    """Return what t is in JSON, as SQL, where it is a moment or an array of them."""
    element = (kind or "").rstrip("[]")
    if (text := _MOMENTS_IN_JSON.get(element)) is None or element == kind:
        return text and text.format("t")
    if kind != f"{element}[]":
        raise UnsupportedError("JSON takes no moments in an array of arrays here; cast them, as in x::text[]")
    return f"list_transform(t, lambda relaqs_each : {text.format('relaqs_each')})"


def in_json(value: exp.Expr, kinds: Kinds) -> exp.Expr:
    """Return a value as it stands in JSON: a moment as 2024-01-31T10:00:00, also one of a row."""
    if isinstance(value, exp.Order):
        return exp.Order(
            this=in_json(value.this, kinds), expressions=[each.copy() for each in value.expressions]
        )
    if (text := _moments_in_json(kinds.of(value))) is not None:
        return filled(text, {"t": value})
    row = kinds.row_of(value)
    texts = {name: _moments_in_json(kind) or "t" for name, kind in row.items()}
    if {*texts.values()} <= {"t"}:
        return value.copy()
    items = [
        exp.PropertyEQ(
            this=exp.to_identifier(name, quoted=True),
            expression=filled(text, {"t": exp.column(name, value.name, quoted=True)}),
        )
        for name, text in texts.items()
    ]
    return exp.Struct(expressions=items)


def _series(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Postgres takes the days at both ends for moments with a time zone."""
    ends = [node.args["start"], node.args["end"]]
    if {kinds.of(each) for each in ends} | {None} != {"date", None}:
        return None
    for each in ends:
        each.replace(exp.cast(each.copy(), "TIMESTAMPTZ"))
    if isinstance(step := node.args.get("step"), exp.Literal):
        step.replace(exp.cast(step.copy(), "INTERVAL"))
    return None


def _array_length(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    is_all = name_of(node) == "cardinality"
    if len(given) != 2 - is_all or (not is_all and given[1].name != "1"):
        raise UnsupportedError("array_length takes an array and 1, its first dimension, here")
    if kinds.of(given[0]) in (None, "text") and not isinstance(given[0].unnest(), exp.Column | exp.Func):
        raise UnsupportedError(f"{name_of(node)} takes an array; cast it, as in '{{1,2}}'::int[]")
    text = "CAST(len(l) AS INTEGER)" if is_all else "CAST(nullif(len(l), 0) AS INTEGER)"
    return filled(text, {"l": _flat(given[0], kinds) if is_all else given[0]})


def _of_array(text: str) -> Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr]:
    """Return what writes a call by a text in which l is the first argument, v the second, w the third."""

    def write(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        return filled(text, dict(zip("lvw", given, strict=False)))

    return write


def _array_to_string(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr | None:
    if len(given) not in (2, 3):
        raise SqlError("array_to_string takes an array, a separator, and what stands for NULL")
    element = (kinds.of(given[0]) or "").rstrip("[]")
    each = exp.column("relaqs_each")
    text = _BOOL_TEXT if element == "bool" else None
    if text is None:
        text = (as_text(each, element) or exp.cast(each, "VARCHAR")).sql(DIALECT)
    other = f"coalesce({text}, w)" if len(given) == 3 else text
    return filled(
        f"coalesce(array_to_string(list_filter(list_transform(l, lambda relaqs_each : {other}), "
        "lambda relaqs_each : relaqs_each IS NOT NULL), v), if(l IS NULL OR v IS NULL, NULL, ''))",
        dict(zip("lvw", [_flat(given[0], kinds), *given[1:]], strict=False)),
    )


def _string_to_array(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) not in (2, 3):
        raise SqlError("string_to_array takes a text, a separator, and what stands for NULL")
    empty = "CASE WHEN l = '' THEN CAST([] AS VARCHAR[]) WHEN v = '' THEN [l]"
    text = f"{empty} ELSE string_split(l, coalesce(v, '')) END"  # NULL parts it into characters
    if len(given) == 3:
        text = f"list_transform({text}, lambda relaqs_each : nullif(relaqs_each, w))"
    return filled(text, dict(zip("lvw", given, strict=False)))


def _padded(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """A text is filled up with spaces where nothing else is said."""
    if node.args.get("fill_pattern") is None:
        node.set("fill_pattern", called("chr", exp.Literal.number(32)))
    return None


def _to_hex(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
    if len(given) != 1 or (kind := kinds.of(given[0])) not in ("int4", "int8"):
        raise UnsupportedError("to_hex takes an INTEGER or a BIGINT; cast it, as in to_hex(x::int)")
    return filled(f"lower(to_hex({'l & 4294967295' if kind == 'int4' else 'l'}))", {"l": given[0]})


def _sorted(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """An array or a text of different values has them in their order."""
    call = node.parent
    if not isinstance(call, exp.ArrayAgg | exp.GroupConcat) and (call is None or name_of(call) != "list"):
        return None
    keys = [exp.Ordered(this=each.copy(), nulls_first=False) for each in node.expressions]
    return exp.Order(this=node.copy(), expressions=keys)


def _given(node: exp.Expr, kinds: Kinds) -> exp.Expr | None:
    """Lists in a list are shown as they are. Functions here take them for lists, and not for one array."""
    if (kinds.of(node) or "").startswith(NESTED) and not is_shown(node):
        raise UnsupportedError(
            "an array of arrays is no parameter here except as a column; write it out, as "
            "'{{1,2},{3,4}}'::int[]"
        )
    return None


def _justified(text: str) -> Callable[[exp.Expr, Sequence[exp.Expr], Kinds], exp.Expr]:
    def justify(node: exp.Expr, given: Sequence[exp.Expr], kinds: Kinds) -> exp.Expr:
        if len(given) != 1:
            raise SqlError(f"{name_of(node)} takes an interval")
        value = given[0].copy()
        return filled(text, {"t": exp.cast(value, "INTERVAL") if isinstance(value, exp.Literal) else value})

    return justify


_JSON_KIND = (
    "CASE json_type(l) WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string' "
    "WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE if(l IS NULL, NULL, 'number') END"
)

ARRAY_CALLS: dict[str, WriteCall] = {
    **dict.fromkeys(
        ("json_array_length", "jsonb_array_length"), _of_array("CAST(json_array_length(l) AS INTEGER)")
    ),
    **dict.fromkeys(("json_typeof", "jsonb_typeof"), _of_array(_JSON_KIND)),
    "scale": _scale,
    "regexp_match": _regexp_match,
    "regexp_like": _by_pattern("regexp_matches(l, p)"),
    "regexp_count": _by_pattern("CAST(len(regexp_extract_all(l, p)) AS INTEGER)"),
    "regexp_substr": _by_pattern("CASE WHEN regexp_matches(l, p) THEN regexp_extract(l, p) END"),
    **dict.fromkeys(("regexp_replace", "regexp_split_to_array", "regexp_split_to_table"), _matched),
    "array_length": _array_length,
    "cardinality": _array_length,
    "array_upper": _array_length,
    "array_append": _of_array("list_append(l, v)"),
    "array_prepend": _of_array("list_prepend(l, v)"),
    "array_cat": _of_array(_BOTH),
    "array_remove": _of_array("list_filter(l, lambda relaqs_each : relaqs_each IS DISTINCT FROM v)"),
    "array_replace": _of_array(
        "list_transform(l, lambda relaqs_each : if(relaqs_each IS NOT DISTINCT FROM v, w, relaqs_each))"
    ),
    "array_position": _of_array("CAST(nullif(list_position(l, v), 0) AS INTEGER)"),
    "array_to_string": _array_to_string,
    "string_to_array": _string_to_array,
    "justify_days": _justified(
        _OF_PARTS.format(m=f"({_MONTHS} + {_DAYS} // 30)", d=f"({_DAYS} % 30)", u=_MICROS)
    ),
    "justify_interval": _justified(_JUSTIFIED.format(m=_MONTHS, d=_DAYS, u=_MICROS)),
    **dict.fromkeys(("json_array_elements", "jsonb_array_elements"), _of_array(f"unnest({ELEMENTS_KEPT})")),
    **dict.fromkeys(
        ("json_array_elements_text", "jsonb_array_elements_text"),
        _of_array(
            f"unnest(list_transform({ELEMENTS_KEPT}, lambda relaqs_t : "
            "if(json_type(relaqs_t) IN ('VARCHAR', 'NULL'), relaqs_t ->> '$', relaqs_t::VARCHAR)))"
        ),
    ),
    "json_object_keys": _of_array("unnest(json_keys(l))"),
    "jsonb_object_keys": _of_array(f"unnest({SORTED_KEYS})"),
    "to_hex": _to_hex,
    "justify_hours": _justified(
        _OF_PARTS.format(m=_MONTHS, d=f"({_DAYS} + {_MICROS} // 86400000000)", u=f"({_MICROS} % 86400000000)")
    ),
}

ARRAY_RULES: dict[type[exp.Expr], MeaningRule] = {
    exp.DPipe: _joined,
    exp.Bracket: _element,
    exp.Pad: _padded,
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif, exp.Case), compared_sides),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least, exp.Lag, exp.Lead), _one_of_several),
    exp.Distinct: _sorted,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    **dict.fromkeys((exp.Parameter, exp.Placeholder), _given),
    **dict.fromkeys((exp.Unnest, exp.Explode), _unnested),
    **dict.fromkeys(_NEGATED, _quantified),
    **dict.fromkeys((exp.ArrayContainsAll, exp.ArrayContainedBy), _contains),
    **dict.fromkeys(
        (exp.JSONBContainsTopKey, exp.JSONBContainsAnyTopKeys, exp.JSONBContainsAllTopKeys), _has_key
    ),
    exp.GenerateSeries: _series,
    **dict.fromkeys(
        (exp.RegexpLike, exp.RegexpILike),
        lambda node, kinds: _matched(node, [node.this, node.expression], kinds),
    ),
    exp.JSONBExtract: _json_path,
    exp.JSONBExtractScalar: _json_path,
    **dict.fromkeys((exp.JSONExtractScalar, exp.JSONExtract), _json_text),
}
