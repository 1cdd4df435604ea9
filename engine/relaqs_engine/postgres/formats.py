"""to_char, to_date and to_timestamp of Postgres as functions of DuckDB, by a format that is written out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sqlglot import exp

from relaqs_engine.errors import UnsupportedError
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

    >>> from sqlglot import parse_one
    >>> print(formatted_moment(parse_one("d"), "YYYY-MM").sql("relaqs"))
    (STRFTIME((d), '%Y-%m'))

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
    return _expression(" || ".join(parts), moment)


def read_moment(text: exp.Expr, pattern: str) -> exp.Expr:
    """Return the moment that a text is by a pattern, a TIMESTAMP. A text that does not fit it is an error.

    >>> from sqlglot import parse_one
    >>> print(read_moment(parse_one("d"), "DD/MM/YYYY").sql("relaqs"))
    (STRPTIME((d), '%d/%m/%Y'))

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
    return _expression("strptime(t, '" + form.replace("'", "''") + "')", text)


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
        text = f"lpad({text}, greatest({forced + scale + (1 if scale else 0)}, length({text})), '0')"
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
    return _expression(padded.replace("r ", f"{rounded} ").replace("(r AS", f"({rounded} AS"), number)


def _expression(text: str, value: exp.Expr) -> exp.Expr:
    """Return an expression whose column t is the value."""
    (tree,) = read_statements(f"SELECT ({text})", Effort())
    found: exp.Expr = tree.expressions[0]
    for column in list(found.find_all(exp.Column)):
        if column.name == "t":
            column.replace(exp.paren(value.copy(), copy=False))
    return found.copy()
