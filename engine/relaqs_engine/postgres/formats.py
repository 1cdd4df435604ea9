"""Formats, patterns, arrays and JSON as texts of Postgres, and what DuckDB makes of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from sqlglot import exp

from relaqs_engine.duck import quote_text
from relaqs_engine.errors import ExpressionError, UnsupportedError
from relaqs_engine.sql.dialect import DIALECT
from relaqs_engine.sql.read import Effort, read_statements

# Patterns of moments, the longest first. {t} is the moment.
_PLAIN = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "IYYY": "%G",
    "IW": "%V",
    "AM": "%p",
    "PM": "%p",
}
_WITHOUT_ZEROS = {
    "MM": "%-m",
    "DD": "%-d",
    "HH24": "%-H",
    "HH12": "%-I",
    "HH": "%-I",
    "DDD": "%-j",
    "MI": "%-M",
    "SS": "%-S",
}
_NAMES = {"MONTH": ("%B", 9), "DAY": ("%A", 9), "MON": ("%b", 0), "DY": ("%a", 0)}
# What texts are read by; "" is what stands between the words.
_READ = {word: form for word, form in _PLAIN.items() if word not in ("YY", "DDD", "IYYY", "IW")}
_READ |= {"MONTH": "%B", "MON": "%b"}
_NUMBERS = {
    "Q": "quarter({t})",
    "D": "(dayofweek({t}) + 1)",
    "ID": "isodow({t})",
    "CC": "century({t})",
    "WW": "lpad(CAST((dayofyear({t}) - 1) // 7 + 1 AS VARCHAR), 2, '0')",
}
_WORDS = sorted([*_PLAIN, *_NAMES, *_NUMBERS], key=len, reverse=True)
_MOMENT_PART = re.compile(rf'"([^"]*)"|(FM)?({"|".join(_WORDS)})|([^A-Za-z"]+)', re.IGNORECASE)
_NUMBER_FORMAT = re.compile(r"(FM)?([09,]*)(?:[.D]([09]*))?", re.IGNORECASE)
_MOST_DIGITS = 15  # of a float; DuckDB writes no more of them either


def formatted_moment(moment: exp.Expr, pattern: str) -> exp.Expr:
    """Return to_char of a date or timestamp.

    Raises:
        UnsupportedError: the pattern has a part that is not known here.
    """
    parts: list[str] = []
    plain = ""
    for between, word, is_filled in _parts_of(pattern, "to_char does", _WORDS):
        plain += between
        if not word:
            continue
        if (added := _moment_word(word, is_filled=is_filled)) is not None and added.startswith("%"):
            plain += added
            continue
        parts += [_strftime(plain)] if plain else []
        parts.append(str(added))
        plain = ""
    parts += [_strftime(plain)] if plain or not parts else []
    return filled(" || ".join(parts), {"t": moment})


def read_moment(text: exp.Expr, pattern: str) -> exp.Expr:
    """Return the moment that a text is by a pattern, a TIMESTAMP. A text that does not fit it is an error.

    Raises:
        UnsupportedError: the pattern has a part that is not known here.
    """
    form = ""
    for between, word, is_filled in _parts_of(pattern, "to_date and to_timestamp do", tuple(_READ)):
        if not is_filled:
            raise UnsupportedError(
                f"to_date and to_timestamp do not take FM, as in {pattern!r}; leave it out"
            )
        form += between + _READ.get(word.upper(), "")
    if "%Y" not in form:
        raise UnsupportedError(f"to_date and to_timestamp take a format with a year, and not {pattern!r}")
    return filled("strptime(t, '" + form.replace("'", "''") + "')", {"t": text})


def _parts_of(pattern: str, who: str, known: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield text between words, as strftime has it, or a word, and whether it is filled (no FM before it).

    Raises UnsupportedError for a word that is not known.
    """
    at = 0
    while at < len(pattern):
        found = _MOMENT_PART.match(pattern, at)
        if found is None or (found[3] and found[3].upper() not in known):
            raise UnsupportedError(f"{who} not take {pattern[at:]!r} of {pattern!r}, but {', '.join(known)}")
        at = found.end()
        quoted, fill_mode, word, other = found.groups()
        between = "" if word else (other if quoted is None else quoted).replace("%", "%%")
        yield between, word or "", not fill_mode


def _moment_word(word: str, *, is_filled: bool) -> str | None:
    upper = word.upper()
    if upper in _PLAIN:
        if not is_filled and upper in _WITHOUT_ZEROS:
            return _WITHOUT_ZEROS[upper]
        return f"lower(strftime(t, '{_PLAIN[upper]}'))" if word in ("am", "pm") else _PLAIN[upper]
    if upper in _NAMES:
        form, width = _NAMES[upper]
        case = "lower" if word.islower() else "upper" if word.isupper() else ""
        width = width if is_filled else 0
        if not case and not width:
            return form
        text = f"{case}(strftime(t, '{form}'))"
        return f"rpad({text}, {width}, ' ')" if width else text
    return f"CAST({_NUMBERS[upper].format(t='t')} AS VARCHAR)"


def _strftime(form: str) -> str:
    return "strftime(t, '" + form.replace("'", "''") + "')"


def formatted_number(number: exp.Expr, pattern: str, *, is_float: bool = False) -> exp.Expr:
    """Return to_char of a number, as of '999,990.00'.

    is_float: whether a half is rounded as a float is.

    Raises:
        UnsupportedError: the pattern has signs beside FM, 9, 0, the comma and the point, or too many digits.
    """
    found = _NUMBER_FORMAT.fullmatch(pattern)
    whole, fraction = (found[2], found[3]) if found else ("", "")
    whole, fraction = whole or "", fraction or ""
    digits = whole.replace(",", "")
    groups = whole.split(",")
    is_regular = all(len(each) == 3 for each in groups[1:]) and (len(groups) == 1 or groups[0])
    forced = len(digits) - digits.index("0") if "0" in digits else 0
    tells = "0" in fraction and fraction.rstrip("9") != fraction
    if (
        found is None
        or not is_regular
        or not digits
        or len(digits) + len(fraction) > _MOST_DIGITS
        or (forced > 1 and len(groups) > 1)
        or (found[1] and tells)
    ):
        raise UnsupportedError(
            f"to_char does not take {pattern!r} of numbers; it takes FM, 9, 0, commas at thousands, a point, "
            f"with {_MOST_DIGITS} digits, as '999,990.00'"
        )
    scale, has_point = len(fraction), found[3] is not None
    comma = "," if len(groups) > 1 else ""
    text = f"format('{{:{comma}.{scale}f}}', CAST(r AS DOUBLE))"
    rounded = f"round(abs(CAST(t AS DECIMAL(38, 15))), {scale})"
    if is_float:
        rounded = f"CAST(format('{{:.{scale}f}}', abs(t)) AS DOUBLE)"
    if forced > 1:
        least = forced + scale + bool(scale)
        text = f"CASE WHEN length({text}) < {least} THEN lpad({text}, {least}, '0') ELSE {text} END"
    if not forced and scale:
        is_small = "r > 0 AND r < 1" if found[1] else "r < 1"  # FM keeps the zero of nothing
        text = f"CASE WHEN {is_small} THEN substr({text}, 2) ELSE {text} END"
    if has_point and not scale:
        text = f"{text} || '.'"
    if found[1] and scale and not tells and "0" not in fraction:
        text = f"rtrim({text}, '0')"
    width = len(whole) + scale + (1 if has_point else 0) + 1
    overflow = re.sub("[09]", "#", whole) + ("." if has_point else "") + "#" * scale
    # A number that rounds to nothing keeps its minus in Postgres
    sign = f"CASE WHEN t < 0 THEN '-' ELSE '{'' if found[1] else ' '}' END"
    body = f"CASE WHEN r >= 1e{len(digits)} THEN {sign} || '{overflow}' ELSE {sign} || ({text}) END"
    padded = body if found[1] else f"lpad({body}, {width}, ' ')"
    return filled(padded.replace("r ", f"{rounded} ").replace("(r AS", f"({rounded} AS"), {"t": number})


_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTHS_BY_NAME = {
    "sept": 9,
    **{name[:size]: number for number, name in enumerate(_MONTHS, 1) for size in (3, len(name))},
}
_DAY = (
    r"(?P<y>\d{4})-(?P<m>\d\d?)-(?P<d>\d\d?)|(?P<y1>\d{4})(?P<m1>\d\d)(?P<d1>\d\d)(?!\d)|"
    r"(?P<m2>\d\d?)/(?P<d2>\d\d?)/(?P<y2>\d{4})|(?P<m3>[a-z]{3,9})\.? (?P<d3>\d\d?),? (?P<y3>\d{4})|"
    r"(?P<d4>\d\d?)[ -](?P<m4>[a-z]{3,9})[ -](?P<y4>\d{4})"
)
_WRITTEN_MOMENT = re.compile(
    rf"\s*(?:{_DAY})"
    r"(?:(?P<t>[ t]+)(?P<hour>\d\d?)(?P<rest>:\d\d(?::\d\d(?:\.\d+)?)?)(?:\s*(?P<half>[ap]m\b))?)?",
    re.IGNORECASE,
)
_OF_SHORT_YEAR = re.compile(r"\s*\d{1,2}[-/. ](?:\d\d?|[a-z]{3,9})[-/. ]\d{1,2}(?![\d:])", re.IGNORECASE)


def written_moment(text: str, *, is_day: bool = False) -> str | None:
    """Return a date or moment as DuckDB reads it, with years first and 24 hours; None for what is no date.

    Example: 'Nov 20, 2023 10:00 PM' is '2023-11-20 22:00'. Seconds have six digits, rounded as by Postgres.
    is_day: it is taken for a date. Its time is left out, and rounds up to no other day.

    Raises:
        ExpressionError: an hour before AM or PM is more than 12.
        UnsupportedError: which is the month, or the year, depends on the client's DateStyle.
    """
    if _OF_SHORT_YEAR.match(text):
        raise UnsupportedError(f"which number of {text!r} is the year is not known; write '2024-01-31'")
    if (found := _WRITTEN_MOMENT.match(text)) is None:
        return None
    year, month, day = (
        next(each for way in ("", *"1234") if (each := found[part + way]) is not None) for part in "ymd"
    )
    if month.isalpha():
        if (number := _MONTHS_BY_NAME.get(month.lower())) is None:
            return None
        month = str(number)
    if found["y2"] is not None and int(day) <= 12 and day != month:
        written = f"{year}-{month:0>2}-{day:0>2}"
        raise UnsupportedError(f"{text!r} begins with its month or its day; write {written!r}")
    hour = found["hour"]
    if found["half"] is not None:
        if int(hour) > 12:
            raise ExpressionError(f"date/time field value out of range: {text!r}; write hours from 0 to 12")
        hour = str(int(hour) % 12 + 12 * (found["half"].lower() == "pm"))
    time = f"{found['t']}{hour:0>2}{found['rest']}" if hour is not None else ""
    written = f"{year}-{month:0>2}-{day:0>2}{time}"
    if len(fraction := time.partition(".")[2]) > 6 and not is_day:  # DuckDB cuts them
        whole, more = written.removesuffix(f".{fraction}"), timedelta(seconds=round(float(f".{fraction}"), 6))
        with suppress(ValueError, OverflowError):  # no day of the calendar: DuckDB says so
            written = (datetime.fromisoformat(" ".join(whole.split())) + more).isoformat(" ")
    return f"{written}{text[found.end() :]}"


def called(name: str, *given: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(given))


def padded(text: exp.Expr) -> exp.Expr:
    """Return what is cast to CHAR(n) with its blanks, and all else as it is."""
    if (size := text.meta.get("padded_to")) is None:
        return text
    return called("rpad", text.copy(), exp.Literal.number(size), exp.Literal.string(" "))


def filled(text: str | exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    """Return an expression with values in the place of its columns.

    A long value that it names more than once is written once, and has a name of its own there. Else a call in
    a call in a call would be written 8 · 8 · 8 times.
    """
    found = _read(text) if isinstance(text, str) else text
    for name, value in values.items():
        named = [column for column in found.find_all(exp.Column) if column.name == name]
        if len(named) > 1 and next(islice(value.walk(), _MOST_COPIED, None), None) is not None:
            for column in named:
                column.replace(exp.column(f"relaqs_{name}"))
            found = _read(f"list_transform([{name}], lambda relaqs_{name} : {found.sql(DIALECT)})[1]")
    for column in list(found.find_all(exp.Column)):
        if column.name in values:
            value = values[column.name].copy()
            is_whole = isinstance(value, exp.Paren | exp.Anonymous | exp.Cast | exp.Column)
            column.replace(value if is_whole else exp.paren(value, copy=False))
    if next(islice(found.walk(), _MOST_WRITTEN, None), None) is not None:
        raise UnsupportedError(
            "what is called on what is called here is too long in DuckDB; name inner parts in a WITH"
        )
    return found.copy()


def _read(text: str) -> exp.Expr:
    (tree,) = read_statements(f"SELECT ({text})", Effort())
    found: exp.Expr = tree.expressions[0]
    return found


_MOST_COPIED = 32  # nodes of a value that is written more than once
_MOST_WRITTEN = 4_000  # nodes of what one call becomes


_BLANKS = " \t\n\v\f\r"
_ARRAY_PART = re.compile(
    rf'[{_BLANKS}]*+(?:([{{}},])|"((?:[^"\\]|\\.)*+)"|'
    rf'((?:[^{{}},"\\{_BLANKS}]|\\.)(?:[^{{}},"\\]|\\.)*+))[{_BLANKS}]*+',
    re.DOTALL,
)

MOST_DIMENSIONS = 6  # of an array, as in Postgres


def array_items(text: str) -> list[Any]:
    """Return the texts of an array that is written out, None for NULL, and lists of these for its arrays.

    Raises:
        ValueError: it is no such array.
    """
    opened: list[list[Any]] = [[]]
    place, is_next = 0, True  # is_next: an element may come, and no comma
    while (found := _ARRAY_PART.match(text, place)) is not None and not (place and len(opened) == 1):
        sign, quoted, plain = found.groups()
        place = found.end()
        if (sign in ("{", None)) is not is_next and not (sign == "}" and not opened[-1]):
            break
        if sign == "{":
            opened[-1].append(inner := list[Any]())
            opened.append(inner)
            if len(opened) > MOST_DIMENSIONS + 1:
                raise ValueError(f"number of array dimensions exceeds {MOST_DIMENSIONS}, the most there are")
        elif sign == "}":
            opened.pop()
        elif len(opened) == 1:
            break
        elif quoted is not None:
            opened[-1].append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        elif plain is not None:
            word = re.sub(r"\\(.)", r"\1", plain.rstrip(_BLANKS), flags=re.DOTALL)
            opened[-1].append(None if word.upper() == "NULL" else word)
        is_next = sign in ("{", ",")
    if len(opened) != 1 or not opened[0] or not isinstance(opened[0][0], list) or text[place:]:
        raise ValueError("an array is written as {1,2}")
    if 0 in (lengths := _lengths(opened[0][0])) and len(lengths) > 1:
        raise ValueError("an array in an array is empty")
    return opened[0][0]


def _lengths(items: list[Any]) -> tuple[int, ...]:
    """Return how many elements an array has in each dimension.

    Raises:
        ValueError: its arrays have not the same.
    """
    inner = {_lengths(each) if isinstance(each, list) else () for each in items} or {()}
    if len(inner) > 1:
        raise ValueError("the arrays of an array have not the same lengths")
    return (len(items), *inner.pop())


# Numbers become texts, with their digits. No JSON has the signs 1 and 2 as they are.
_MARKED = (
    "replace(replace(replace(regexp_replace(CAST(l AS VARCHAR), "
    "'(\"(?:[^\"\\\\]|\\\\.)*\")|(-?[0-9][0-9.eE+-]*)', '\\1' || chr(1) || '\\2' || chr(2), 'g'), "
    "chr(1) || chr(2), ''), chr(1), '\"{0}'), chr(2), '\"')"
)
NUMBERS_AS_TEXTS = _MARKED.format("")
_NUMBERS_KEPT = (  # what is inside of JSON, with the digits of its numbers
    "CAST(regexp_replace(CAST({0} AS VARCHAR), '\"\\\\u0001([^\"]*)\"', '\\1', 'g') AS JSON)"
)
TO_KEEP = _MARKED.format("\\u0001")
ELEMENTS_KEPT = (
    f"list_transform(json_extract({TO_KEEP}, '$[*]'), "
    f"lambda relaqs_each : {_NUMBERS_KEPT.format('relaqs_each')})"
)
TEXT_AT = (
    "CASE WHEN json_type(json_extract(l, {0})) = 'DOUBLE' "
    "THEN json_extract_string({1}, {0}) ELSE json_extract_string(l, {0}) END"
)
AT_KEY = "'/' || replace(replace(key, '~', '~0'), '/', '~1')"
STEPS = (  # to what a path of keys, an array, leads to
    "CASE WHEN len(p) = list_count(p) THEN coalesce(array_to_string(list_transform(p, lambda relaqs_key : if("
    "regexp_full_match(relaqs_key, '-[0-9]+'), CAST(CAST('no place from 0 on' AS INT) AS VARCHAR), "
    f"{AT_KEY.replace('key', 'relaqs_key')})), ''), '') END"
)
PATH_OF_KEY = f"CASE WHEN regexp_full_match(key, '[0-9#-]+') THEN '$.\"' || key || '\"' ELSE {AT_KEY} END"
KEYED = _NUMBERS_KEPT.format(f"json_extract({TO_KEEP}, {AT_KEY})")
_ITEMS = "CASE json_type({0}) WHEN 'ARRAY' THEN json_extract({0}, '$[*]') ELSE [{0}] END"
JOINED = (
    "CASE WHEN json_type(l) = 'OBJECT' AND json_type(r) = 'OBJECT' THEN to_json(map_concat("
    "CAST(l AS MAP(VARCHAR, JSON)), CAST(r AS MAP(VARCHAR, JSON)))) "  # a key that comes twice fails
    "WHEN l IS NOT NULL AND r IS NOT NULL "
    f"THEN to_json(list_concat({_ITEMS.format('l')}, {_ITEMS.format('r')})) END"
)
SORTED_KEYS = (  # of jsonb, shorter ones first
    "list_transform(list_sort(list_transform(list_distinct(json_keys(l)), "
    "lambda relaqs_k : {'n': strlen(relaqs_k), 'k': relaqs_k})), lambda relaqs_k : relaqs_k.k)"
)
KEYS = (  # a text that is no list fails there
    "unnest(CASE WHEN json_type(l) <> 'OBJECT' "
    "THEN CAST('json_each takes an object, and no array or scalar' AS VARCHAR[]) "
    "WHEN len(json_keys(l)) > len(list_distinct(json_keys(l))) "
    "THEN CAST('json_each takes no object with a key that comes twice here' AS VARCHAR[]) "
    "ELSE json_keys(l) END)"
)

# Letters, digits and spaces as Postgres has them, also beyond ASCII, by their names inside brackets.
_SPACES = "\t-\r \u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000"
_LETTERS = r"\p{L}\p{Nd}\p{Nl}"
_CLASSES = {
    "[:alpha:]": r"\p{L}",
    "[:alnum:]": _LETTERS,
    "[:upper:]": r"\p{Lu}",
    "[:lower:]": r"\p{Ll}",
    "[:space:]": _SPACES,
    "[:word:]": f"{_LETTERS}_",
    r"\w": f"{_LETTERS}_",
    r"\s": _SPACES,
    **{each: each for each in ("[:digit:]", "[:xdigit:]", "[:blank:]", *(f"\\{sign}" for sign in "dDnrtfv"))},
}
# A part of a pattern: brackets, what is escaped, how a group begins, all else.
_PATTERN_PART = re.compile(
    r"(\[\^?+\]?+(?:\\.|\[[:.=][^\]]*+\]|[^\]\\])*+(?:\]|\Z))|\\.|\(\?[a-z]|[^\[\\(]+|.", re.DOTALL
)
# a|ab: DuckDB takes the first that matches, and Postgres what matches most.
_LONGER_LATER = re.compile(
    r"(?:(?<![^(|])|(?<=\(\?:)|(?<=\(\?i\)))((?:\\.|[^\\()|[])++)\|(?:[^()|]*+\|){0,100}?(\1(?:\\.|[^\\()|]|[([])+)"
)
_CLASS = re.compile(r"\\.|\[[:.=][^\]]*+\]", re.DOTALL)
# A pattern that matches the same in DuckDB, with groups of which none is left out.
ONE_WAY = re.compile(
    r"(?:\[\^?\]?(?:\\[^A-Zmyb1-9]|[^\]\\\[])*+\]|\\[dws]|\\[^a-zA-Z0-9]|\((?!\?)|\(\?:|\)(?![?*{])|[*+?](?!\?)"
    r"|\{[\d,]+\}(?!\?)|[^\\()|*+?{[])*+"
)


def pattern_of(pattern: str, *, is_taken: bool = False) -> str:
    """Return a regular expression as DuckDB has it: a dot is any sign, the end of a line too.

    is_taken: what matches is part of the answer, and not only whether something does.

    Raises:
        UnsupportedError: it has what DuckDB takes for something else.
    """
    found = list(_PATTERN_PART.finditer(pattern))
    if is_taken and (both := _LONGER_LATER.search(pattern)) is not None:
        raise UnsupportedError(f"a pattern takes the longer word first here; write {both[2]}|{both[1]}")
    has_dot = any("." in each[0] for each in found if each[0][0] not in "[\\")
    return ("(?s)" if has_dot else "") + "".join(map(_pattern_part, found))


def _pattern_part(found: re.Match[str]) -> str:
    written = found[0]
    if found[1]:
        return written[0] + _CLASS.sub(lambda each: _class(each[0]), written[1:])
    if written in (r"\W", r"\S"):
        return f"[^{_CLASSES[written.lower()]}]"
    if written in (r"\w", r"\s"):
        return f"[{_CLASSES[written]}]"
    if written[:2] == "(?" and (written not in ("(?i", "(?s") or found.start()):
        raise UnsupportedError(f"a pattern takes (?i) and (?s) at its begin here, and not {written})")
    return written if written in (r"\A", r"\p", r"\P") or written[0] != "\\" else _class(written)


def _class(written: str) -> str:
    if (inside := _CLASSES.get(written)) is None and (written[0] == "[" or written[1:].isalnum()):
        raise UnsupportedError(
            f"a pattern with {written} is not taken here; write the signs it means, "
            "or \\w, \\s, \\d, [[:alpha:]]"
        )
    return written if inside is None else inside


_MOST_EXACT = 15  # digits that a double has


def number_pattern(number: Decimal) -> str:
    """Return a regular expression of what a number may be written as, without an exponent."""
    if max(abs(number.adjusted()), len(number.as_tuple().digits)) > 1000:
        raise UnsupportedError(
            f"@> and <@ of JSON take numbers of up to 1000 digits here, not {number!s:.60}"
        )
    whole, _, fraction = f"{abs(number):f}".partition(".")
    fraction = fraction.rstrip("0")
    digits = (whole + fraction).strip("0")
    if len(digits) > _MOST_EXACT and (fraction or len(whole) > _MOST_EXACT + 6):
        raise UnsupportedError(
            f"@> and <@ of JSON take numbers of up to {_MOST_EXACT} digits here, and not {number!s:.60}"
        )
    sign = "-?" if not number else "-" if number < 0 else ""
    return f"{sign}{whole}" + (f"\\.{fraction}0*" if fraction else "(\\.0+)?")


def path_of(key: str) -> str:
    """Return a path to what an object has at a key. One of digits is no place of an array."""
    return f'$."{key}"' if re.fullmatch(r"[0-9#-]+", key) else pointer(key)


def pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")


_MOST_LEVELS = 20  # of what is behind @>
LONGEST_CONDITION = 20_000
NUMBER_SIGN = "chr(1)"


def too_deep() -> UnsupportedError:
    return UnsupportedError(
        f"@> and <@ of JSON take a part of up to {_MOST_LEVELS} levels and some hundred values here; "
        "write several, as in j @> '{\"a\": 1}' AND j @> '{\"b\": 2}'"
    )


def holding(whole: str, wanted: Any, depth: int = 0) -> str:
    """Return whether the JSON of an expression holds a value, as SQL; NULL stands for no too.

    Where it says so by the sign before numbers, these are texts with their digits.
    """
    if depth > _MOST_LEVELS:
        raise too_deep()
    kind, text = f"json_type({whole})", f"json_extract_string({whole}, '$')"
    match wanted:
        case dict():
            inner = [
                holding(f"json_extract({whole}, {quote_text(pointer(key))})", value, depth + 1)
                for key, value in wanted.items()
            ]
            return " AND ".join([f"({kind} = 'OBJECT'", *inner]) + ")"
        case list():
            each = f"relaqs_each{depth}"
            items = f"list_filter(json_extract({whole}, '$[*]'), lambda {each} : "
            inner = [f"len({items}{holding(each, value, depth + 1)})) > 0" for value in wanted]
            return " AND ".join([f"({kind} = 'ARRAY'", *inner]) + ")"
        case str():
            return f"({kind} = 'VARCHAR' AND {text} = {quote_text(wanted)})"
        case bool():
            return f"({kind} = 'BOOLEAN' AND {text} = '{str(wanted).lower()}')"
        case None:
            return f"({kind} = 'NULL')"
    digits, pattern = f"substr({text}, 2)", number_pattern(wanted)
    is_same = (
        f"contains(lower({text}), 'e') AND TRY_CAST({digits} AS DOUBLE) = TRY_CAST('{wanted}' AS DOUBLE)"
    )
    is_number = f"{kind} = 'VARCHAR' AND starts_with({text}, {NUMBER_SIGN})"
    return f"({is_number} AND (regexp_full_match({digits}, '{pattern}') OR {is_same}))"
