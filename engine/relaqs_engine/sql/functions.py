"""Which functions a query may call, and what one call may take.

Two locks, for DuckDB itself is opened without files, settings or Python variables:

- `check_functions`: pure functions of their arguments alone, each named in a list. It was drawn from
  DuckDB 2.0's functions of stability CONSISTENT, without those that tell about the process, the session or
  the database.
- `guard_functions`: a bound on whatever one call may make or compare. DuckDB looks for an interruption
  only between vectors of 2,048 rows, and texts that functions make escape its memory limit. If the
  argument is a literal, the bound is checked here. If it is computed, the call gets a condition that
  DuckDB checks for each row. Where the condition fails, it raises an error by an impossible cast, because
  DuckDB's `error` counts as volatile and TRY refuses it. Values and types stay as they are.

    SELECT random()                  refused: its value is another one in each partition
    SELECT repeat(name, n) FROM t    repeat(name, n) where n is small enough, else an error
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.sql.aggregate_laws import law_of
from relaqs_engine.sql.dialect import DIALECT, find_all, find_first

# Their value depends on the moment or on chance. Only one evaluation for the whole query is sound.
VOLATILE: tuple[type[exp.Expr], ...] = (
    exp.CurrentDate,
    exp.CurrentDatetime,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.Localtime,
    exp.Localtimestamp,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
)
VOLATILE_NAMES = frozenset({"now", "today", "random", "uuid", "gen_random_uuid", "get_current_timestamp"})

_REFUSED: tuple[type[exp.Expr], ...] = (
    exp.CurrentCatalog,
    exp.CurrentDatabase,
    exp.CurrentRole,
    exp.CurrentSchema,
    exp.CurrentSchemas,
    exp.CurrentUser,
    exp.CurrentVersion,
    exp.CurrentTimestampLTZ,
    exp.SessionUser,
    exp.ReadCSV,
    exp.ReadParquet,
)


_ENDING = re.compile(r"\.(parquet|csv|tsv|json|jsonl|ndjson|duckdb|db)(\.gz|\.zst)?$", re.IGNORECASE)


READERS = frozenset(
    {"read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_json", "read_json_auto"}
)
"""DuckDB's functions that read files."""


@cache
def allowed_functions() -> frozenset[str]:
    text = files("relaqs_engine.sql").joinpath("allowed_functions.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def check_functions(query: exp.Expr, allowed: Collection[str] | None = None) -> None:
    """Raise SqlError for a function that could see more than its arguments and the catalog.

    allowed: names in lower case, None for those of every query.
    """
    allowed = allowed_functions() if allowed is None else allowed
    for node in find_all(query, exp.Func):
        if isinstance(node, _REFUSED):
            name = node.sql_name().lower()
            raise SqlError(f"the function {name} is not allowed in a query{_file_of(node)}")
        if isinstance(node, exp.Anonymous) and not is_array_of_query(node):
            name = node.name.lower()
            if name not in allowed and name not in VOLATILE_NAMES:
                raise SqlError(
                    f"the function {name!r} is not known or not allowed in a query{_file_of(node)}",
                    candidates=_similar(name),
                )


def of_a_file(path: str, tables: Collection[str] = (), call: str = "") -> str:
    """Return what to write in the place of a file's name, "" for what is no such name.

    Args:
        path: what stands where a table should, or what is read.
        tables: the names of those that there are.
        call: of read_csv and the like, if it has options.
    """
    if not _ENDING.search(path):
        return ""
    stem = _ENDING.sub("", re.split(r"[\\/]", path.rstrip("/*"))[-1])
    name = re.sub(r"\W+", "_", stem).strip("_").lower() or "data"
    named = {each.lower(): each for each in tables}
    if name in named:
        return f"a query reads tables, not files; write FROM {named[name]} in the place of {path!r}"
    given = repr(call or path)
    data = (
        path if re.fullmatch(r"[\w./:+-]+", call or path) else given
    )  # a shell reads * and spaces otherwise
    return (
        f"a query reads tables, not files; open it by relaqs.connect(tables={{{name!r}: {given}}}), or by "
        f"--data {data}, and write FROM {name}"
    )


def _file_of(call: exp.Func) -> str:
    """Return what to write instead of a call of a file, "" for any other call."""
    path = next((each.name for each in find_all(call, exp.Literal) if each.is_string), "")
    name, opened, options = call.sql(DIALECT).partition("(")
    read = f"{name.lower()}{opened}{options}" if name.lower() in READERS and "," in options else ""
    return f"; {instead}" if (instead := of_a_file(path, call=read)) else ""


def is_array_of_query(node: exp.Expr) -> bool:
    """Whether a node is ARRAY(SELECT …), the list of what a query gives."""
    is_array = isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    return is_array and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query)


def volatile_function(query: exp.Expr) -> str | None:
    """Return the text of a call that depends on the moment or on chance, None if the query has none."""
    for node in find_all(query, exp.Func):
        if isinstance(node, VOLATILE) or _is_volatile_by_name(node):
            return node.sql(DIALECT).lower()
    return None


def _is_volatile_by_name(node: exp.Func) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    since_now = node.name.lower() == "age" and len(node.expressions) == 1
    return since_now or node.name.lower() in VOLATILE_NAMES


_OF_OTHER_DATABASES = {
    **dict.fromkeys(("nvl", "isnull"), "coalesce"),
    **dict.fromkeys(("percentile", "percentile_approx"), "quantile_cont"),
    **dict.fromkeys(("getdate", "sysdate"), "now"),
    **dict.fromkeys(("charindex", "locate"), "strpos"),
    "dateadd": "date_add",
}


def _similar(name: str) -> tuple[str, ...]:
    from difflib import get_close_matches

    if name in _OF_OTHER_DATABASES:
        return (_OF_OTHER_DATABASES[name],)
    return tuple(get_close_matches(name, allowed_functions(), n=3))


# The longest value that a call may make. 2,048 of them take 8 MB, and DuckDB's slowest function one second.
MOST_MADE = 4096
MOST_LISTED = 2048  # lists are sorted and hashed 2,048 at a time
MOST_UNNESTED = 1_000_000  # of one list at a time: 62 MB where it is a constant
MOST_UNNESTED_TOGETHER = 3_000_000
MOST_MADE_IN_A_LAMBDA = 32  # for each of 2,048 elements of 2,048 rows
MOST_MADE_TOGETHER = 65_536
MOST_COPIED = 20_000
MOST_COMPARED = 32_768
MOST_MATCHED = 262_144  # for jaro_similarity and jaccard, which do less for each pair
LONGEST_REPLACEMENT = 100
LONGEST_PATTERN = 256
MOST_REPETITIONS = 300

ALLOWED_HERE = "the most allowed here"  # the end of each message, by which `duck` recognises it

_IN_FROM = ": write it in FROM, as in FROM range(…), where its rows come one after another"
_ONE = exp.Literal.number(1)
_REGEXPS = (exp.RegexpLike, exp.RegexpILike, exp.SimilarTo)  # x ~ 'a', x ~* 'a', x SIMILAR TO 'a'
_REGEXPS_BY_NAME = {
    *("regexp_extract", "regexp_extract_all", "regexp_full_match", "regexp_matches", "regexp_replace"),
    *("regexp_split_to_array", "regexp_split_to_table", "string_split_regex", "str_split_regex"),
}
_COMPARE_EACH_WITH_EACH = {"damerau_levenshtein", "editdist3", "levenshtein"}
_COMPARE = {*_COMPARE_EACH_WITH_EACH, "jaro_similarity", "jaro_winkler_similarity", "jaccard"}
_RESIZE = {"list_resize", "array_resize", "bitstring"}
_REDUCE = {"list_reduce", "array_reduce", "reduce"}
_MAKERS = (exp.Add, exp.Anonymous, exp.Array, exp.Concat, exp.ConcatWs, exp.DPipe, exp.Replace, exp.Struct)
_COUNTED = re.compile(r"\{(\d*),?(\d*)\}")
_WIDTH = re.compile(r"\{[^}]*?(\d+)[^}]*\}|%[-+ 0#]*(\d+)|%[^a-zA-Z%]*\.(\d+)")
_WIDTH_OF_AN_ARGUMENT = re.compile(r"\{[^}]*\{|%[^a-zA-Z%]*\*")
_ODD_FORMAT = r"[{][^}]*[0-9]{4}|%[-+ 0#]*[0-9]{4}|%[^a-zA-Z%]*[.][0-9]{4}|[{][^}]*[{]|%[^a-zA-Z%]*[*]"


@dataclass(slots=True)
class _Made:
    """What a statement's calls may make together for one row, and how many nodes its guards have copied."""

    total: int = 0
    unnested: int = 0
    copied: int = 0

    def add(self, name: str, count: int) -> None:
        self.total += count
        if self.total > MOST_MADE_TOGETHER:
            raise SqlError(
                f"{name} and others like it may make {self.total:,} characters or elements for each row; "
                f"{MOST_MADE_TOGETHER:,} are {ALLOWED_HERE}: give smaller lengths, as numbers"
            )

    def unnest(self, name: str, count: int) -> None:
        self.unnested += count
        if self.unnested > MOST_UNNESTED_TOGETHER:
            raise SqlError(
                f"{name} and others like it below unnest may make {self.unnested:,} elements; "
                f"{MOST_UNNESTED_TOGETHER:,} are {ALLOWED_HERE}{_IN_FROM}"
            )

    def copying(self, *values: exp.Expr) -> None:
        """Count the nodes that a guard is about to copy. Guards inside each other's arguments double them."""
        self.copied += sum(1 for value in values for _ in value.walk())
        if self.copied > MOST_COPIED:
            raise SqlError(
                "functions that make or compare texts stand inside each other too deeply; name the inner "
                "ones in a WITH"
            )


def guard_functions(query: exp.Expr) -> None:
    """Change the tree so that each call in it has a bound. Raises SqlError where a call cannot be bounded.

    >>> tree = sqlglot.parse_one("SELECT repeat('ab', 3), lpad(name, size, '.') FROM t", dialect="duckdb")
    >>> guard_functions(tree)
    >>> print(tree.sql("duckdb"))
    SELECT REPEAT('ab', 3), LPAD(name, CASE WHEN size > 4096
      THEN CAST('lpad would make more than 4,096 characters or elements, the most allowed here' AS INT)
      ELSE size END, '.') FROM t
    >>> guard_functions(sqlglot.parse_one("SELECT repeat('ab', 1000000)", dialect="duckdb"))
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: repeat would make 2,000,000 characters or elements; 4,096 are the most
    allowed here
    """
    made = _Made()
    for node in reversed(list(query.walk())):  # inner calls first: a guard copies guarded calls
        if isinstance(node, exp.Func | exp.SimilarTo):
            _guard(node, made)
        elif isinstance(node, exp.Window):
            _check_window(node)


def _guard(node: exp.Expr, made: _Made) -> None:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else _name(node)
    arguments = node.expressions if isinstance(node, exp.Anonymous) else []
    if isinstance(node, exp.Pad):
        _bound_length(node.expression, "lpad" if node.args.get("is_left") else "rpad", node, made)
    elif isinstance(node, exp.Repeat):
        _bound_repeat(node, made)
    elif isinstance(node, exp.GenerateSeries):
        _bound_series(node, made)
    elif name in _RESIZE and len(arguments) > 1:
        _bound_length(arguments[1], name, node, made)
    elif isinstance(node, exp.Format) or (name == "printf" and arguments):
        _bound_format(node.this if isinstance(node, exp.Format) else arguments[0], name, made)
    elif name in _COMPARE and len(arguments) > 1:
        _bound_comparison(arguments[0], arguments[1], name, made)
    elif isinstance(node, _REGEXPS):
        _bound_pattern(node.expression, name, made)
    elif name in _REGEXPS_BY_NAME and len(arguments) > 1:
        _bound_pattern(arguments[1], name, made)
    elif name in _REDUCE and len(arguments) > 1:
        _check_reduction(arguments[1], name)
    to = node.args.get("replacement") if isinstance(node, exp.Replace) else None
    if name == "regexp_replace" and len(arguments) > 2:
        to = arguments[2]
    if to is not None:
        _bound_text(to, LONGEST_REPLACEMENT, f"{name}: a replacement", made)


def _name(node: exp.Expr) -> str:
    return node.sql_name().lower() if isinstance(node, exp.Func) else "similar to"


def _bound_length(length: exp.Expr | None, name: str, call: exp.Expr, made: _Made) -> None:
    if length is None:
        return
    most = _most(call)
    if (number := _number(length)) is not None:
        _check(number, most, f"{name} would make {number:,.0f}")
        made.add(name, max(0, int(number)))
        return
    made.add(name, most)
    made.copying(length)
    _put(length, lambda value: exp.GT(this=value, expression=exp.Literal.number(most)), _said(name, most))


def _bound_repeat(node: exp.Repeat, made: _Made) -> None:
    """Bound the length of what is repeated, multiplied by how often it is repeated."""
    times, text, most = node.args["times"], node.this, _most(node)
    number, is_text = _number(times), isinstance(text, exp.Literal) and text.is_string
    if number is not None and is_text:
        _check(number * len(text.name), most, f"repeat would make {number * len(text.name):,.0f}")
        made.add("repeat", max(0, int(number) * len(text.name)))
        return
    made.add("repeat", most)
    made.copying(times, text)
    size = exp.Greatest(this=_length(text), expressions=[exp.Literal.number(1)])
    room = exp.IntDiv(this=exp.Literal.number(most), expression=size)
    _put(times, lambda value: exp.GT(this=value, expression=room), _said("repeat", most))


def _bound_series(node: exp.GenerateSeries, made: _Made) -> None:
    """Bound a list of numbers or moments, before it is made. In FROM there is no list: its rows stream."""
    if isinstance(node.parent, exp.Table | exp.Lateral | exp.From | exp.Join):
        return
    name = "range" if node.args.get("is_end_exclusive") else "generate_series"
    is_unnested = _is_unnested_alone(node)
    most = MOST_UNNESTED if is_unnested else min(_most(node), MOST_LISTED)
    add = made.unnest if is_unnested else made.add
    start, end, step = node.args["start"], node.args["end"], node.args.get("step")
    first, last, by = _number(start), _number(end), _number(step or _ONE)
    if first is not None and last is not None and by:
        count = max(0.0, (last - first) / by)
        _check(count, most, f"{name} would make {count:,.0f}", _IN_FROM if _is_unnested(node) else "")
        add(name, int(count))
        return
    if (chance := find_first(node, exp.Rand, exp.Uuid)) is not None:
        raise SqlError(
            f"{name} takes {chance.sql('duckdb').lower()}, which would be another number when its length is "
            "checked; name that number in a WITH, and take it from there"
        )
    add(name, most)
    made.copying(node, node, node)
    node.set("end", _no_further(start, end, step or _ONE, most + 1))
    count_made = exp.Anonymous(this="len", expressions=[node.copy()])
    up_to = exp.Literal.number(most)
    guarded = _unless(exp.GT(this=count_made, expression=up_to.copy()), _said(name, most), up_to)
    whole = node.copy()
    node.replace(exp.Anonymous(this="list_slice", expressions=[whole, exp.Literal.number(1), guarded]))


def _is_unnested(node: exp.GenerateSeries) -> bool:
    return isinstance(node.parent, exp.Explode | exp.Unnest)


def _is_unnested_alone(node: exp.GenerateSeries) -> bool:
    """Whether a list is the same for all rows, so made once, or in FROM, where the memory limit counts it."""
    return isinstance(node.parent, exp.Unnest) or (
        _is_unnested(node) and find_first(node, exp.Column, exp.Query, exp.Rand, exp.Anonymous) is None
    )


def _no_further(start: exp.Expr, end: exp.Expr, step: exp.Expr, count: int) -> exp.Expr:
    """Return the end of a series, or what it reaches after `count` steps if that comes first.

    For range(a, b) and 9: CASE WHEN b > a + 1 * 9 THEN a + 1 * 9 ELSE b END.
    """
    if isinstance(step, exp.Literal) and step.is_string:
        step = exp.cast(step, "INTERVAL")

    def times(number: int) -> exp.Expr:
        factor = exp.cast(exp.Literal.number(number), "BIGINT")
        return exp.Mul(this=exp.paren(step.copy()), expression=factor)

    far = exp.paren(exp.Add(this=exp.paren(start.copy()), expression=times(count)))
    last = exp.paren(end.copy())
    is_beyond: exp.Expr = exp.GT(this=last, expression=far)
    if (number := _number(step)) is None:
        forwards = exp.GTE(this=exp.paren(step.copy()), expression=times(0))
        backwards = exp.LT(this=exp.paren(step.copy()), expression=times(0))
        is_below = exp.LT(this=last.copy(), expression=far.copy())
        is_beyond = exp.or_(exp.and_(forwards, is_beyond), exp.and_(backwards, is_below))
    elif number < 0:
        is_beyond = exp.LT(this=last, expression=far)
    return exp.Case(ifs=[exp.If(this=is_beyond, true=far.copy())], default=end.copy())


def _bound_format(text: exp.Expr, name: str, made: _Made) -> None:
    if not (isinstance(text, exp.Literal) and text.is_string):
        said = f"{name}: a computed format with a width of 1,000 or more, over {ALLOWED_HERE}"
        made.copying(text)
        odd = exp.Literal.string(_ODD_FORMAT)
        _put(text, lambda value: exp.RegexpLike(this=value, expression=odd), said, is_text=True)
        return
    written = text.name.replace("{{", "").replace("}}", "")  # doubled braces are shown as braces
    if _WIDTH_OF_AN_ARGUMENT.search(written):
        raise SqlError(f"{name} takes a width from its arguments; write the width into the format")
    for match in _WIDTH.finditer(written):
        width = int(next(group for group in match.groups() if group)[:9])
        _check(width, MOST_MADE, f"{name} would make {width:,}")
        made.add(name, width)


def _bound_comparison(left: exp.Expr, right: exp.Expr, name: str, made: _Made) -> None:
    """Bound the product of two lengths: each character of one text is compared with each of the other."""
    made.copying(left, left, right)
    most = MOST_COMPARED if name in _COMPARE_EACH_WITH_EACH else MOST_MATCHED
    product = exp.Mul(this=_length(left), expression=_length(right))
    message = f"{name} of texts whose lengths multiply to more than {most:,}, {ALLOWED_HERE}"
    _put(left, lambda value: exp.GT(this=product, expression=exp.Literal.number(most)), message, is_text=True)


def _bound_pattern(pattern: exp.Expr | None, name: str, made: _Made) -> None:
    if pattern is None:
        return
    if isinstance(pattern, exp.Literal):
        found = _COUNTED.finditer(pattern.name)
        count = sum(max(int(each[:6] or 0) for each in match.groups()) for match in found)
        if count > MOST_REPETITIONS:
            raise SqlError(
                f"{name}: the counted repetitions of the pattern come to {count:,}; {MOST_REPETITIONS} are "
                f"{ALLOWED_HERE}: write * or +"
            )
        return

    made.copying(pattern, pattern)

    def is_odd(value: exp.Expr) -> exp.Expr:
        braces = exp.Anonymous(this="contains", expressions=[value.copy(), exp.Literal.string("{")])
        is_long = exp.GT(this=_length(value), expression=exp.Literal.number(LONGEST_PATTERN))
        return exp.Or(this=is_long, expression=braces)

    said = f"{name}: a computed pattern with {{ or over {LONGEST_PATTERN} characters, {ALLOWED_HERE}"
    _put(pattern, is_odd, said, is_text=True)


def _bound_text(text: exp.Expr, most: int, name: str, made: _Made) -> None:
    if isinstance(text, exp.Literal):
        _check(len(text.name), most, f"{name} has {len(text.name):,}")
        return
    said = f"{name} of more than {most:,} characters, {ALLOWED_HERE}"
    _put(
        text,
        lambda value: exp.GT(this=_length(value), expression=exp.Literal.number(most)),
        said,
        is_text=True,
    )


def _check_window(window: exp.Window) -> None:
    """Refuse what DuckDB computes anew over the whole frame of each row, where it cannot be interrupted."""
    spec = window.args.get("spec")
    if spec is not None and spec.args.get("exclude") and find_first(window.this, exp.Distinct, exp.Order):
        raise SqlError(
            "a window that EXCLUDEs rows cannot aggregate DISTINCT or ordered values: each row would read "
            "all others; leave one of them out"
        )
    called = window.this.this if isinstance(window.this, exp.Filter) else window.this
    law = law_of(called)
    collects = law is not None and law.value == "grows"
    if collects and (spec is None or "UNBOUNDED" in (spec.args.get("start"), spec.args.get("end"))):
        raise SqlError(
            "a window that collects all rows before it makes a list as long as the table for each row; "
            "give it ROWS BETWEEN so many PRECEDING AND CURRENT ROW, or collect by GROUP BY"
        )


def _check_reduction(function: exp.Expr, name: str) -> None:
    """Refuse a reduction that uses its value so far twice: 30 elements make it a billion times longer."""
    if not isinstance(function, exp.Lambda) or not function.expressions:
        return
    so_far = function.expressions[0].name.lower()
    for maker in _makers(function.this):
        if sum(1 for each in find_all(maker, exp.Identifier) if each.name.lower() == so_far) > 1:
            raise SqlError(
                f"{name} puts {so_far} together with itself, so it doubles at each element; use it once"
            )


def _makers(expression: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in expression.walk() if isinstance(node, _MAKERS))


def _most(call: exp.Expr) -> int:
    return MOST_MADE_IN_A_LAMBDA if call.find_ancestor(exp.Lambda) else MOST_MADE


def _said(name: str, most: int) -> str:
    return f"{name} would make more than {most:,} characters or elements, {ALLOWED_HERE}"


def _check(count: float, most: int, said: str, advice: str = "") -> None:
    if count > most:
        raise SqlError(f"{said} characters or elements; {most:,} are {ALLOWED_HERE}{advice}")


def _number(value: exp.Expr) -> float | None:
    """Return the value of a number that is written out, None for any other expression."""
    sign = -1 if isinstance(value, exp.Neg) else 1
    bare = value.this if isinstance(value, exp.Neg) else value
    if isinstance(bare, exp.Literal) and not bare.is_string:
        try:
            return sign * float(bare.name.replace("_", ""))
        except ValueError:
            return None
    return None


def _length(value: exp.Expr) -> exp.Expr:
    """Return the length in bytes of a text. A list or blob has that of its text, which is no shorter."""
    return exp.Anonymous(this="strlen", expressions=[exp.cast(value.copy(), "VARCHAR")])


def _put(
    argument: exp.Expr, is_too_much: Callable[[exp.Expr], exp.Expr], said: str, *, is_text: bool = False
) -> None:
    """Put an argument under the condition that it is not too much."""
    argument.replace(_unless(is_too_much(argument.copy()), said, argument.copy(), is_text=is_text))


def _unless(condition: exp.Expr, said: str, value: exp.Expr, *, is_text: bool = False) -> exp.Case:
    """Return the value, or an error with this text where the condition is true."""
    failure: exp.Expr = exp.cast(exp.Literal.string(said), "INT")
    if is_text:
        failure = exp.cast(failure, "VARCHAR")
    return exp.Case(ifs=[exp.If(this=condition, true=failure)], default=value)
