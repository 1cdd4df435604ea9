"""DuckDB's messages about types and files, in our words: what was found, where, and what to do next.

DuckDB lists all functions of a name where an argument does not fit, and names no column. Of a file it says
what to change in the call of its own reader, which the user never wrote.
"""

from __future__ import annotations

import re
import unicodedata

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'
_COLUMN = rf"{_NAME}(?:\.{_NAME})*"
_OPERAND = rf"(?:{_COLUMN}|[\d.]+|'(?:[^']|'')*')"
_TEXT = r"""(?:"[^"]*"|'[^']*')"""  # a name or a text in quotes
_SIGN = re.compile(r"(?:NOT\s+)?I?LIKE\b|[^\w\s\"'(]+", re.IGNORECASE)
_SIGNS_IN_WORDS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}
_LITERALS = {"INTEGER_LITERAL": "INTEGER", "STRING_LITERAL": "VARCHAR"}
_OF_OTHER_FORM = " if it is not written as 2024-01-31"  # where a cast gives NULL, and DuckDB reads no time
_NUMBERS_IN_TEXT = (
    "CAST({0} AS DOUBLE), or CAST(regexp_replace({0}, '[$, ]', '', 'g') AS DOUBLE) if it is written as "
    "$1,234.56, or CAST(replace(replace({0}, '.', ''), ',', '.') AS DOUBLE) if as 1.234,56"
)
_CAST_TARGETS = ("DOUBLE", "TIMESTAMP", "VARCHAR")
_NUMBER = re.compile(r"(?:INTEGER|U?(?:TINY|SMALL|BIG|HUGE)INT|UINTEGER|DOUBLE|FLOAT|DECIMAL)\b")
_IN_TIME = {  # what is never equal to a number, and how one is written
    "DATE": "a day is written as DATE '2024-01-31'",
    "TIMESTAMP": "a moment is written as TIMESTAMP '2024-01-31 18:30:00'",
    "TIMESTAMP WITH TIME ZONE": "a moment is written as TIMESTAMPTZ '2024-01-31 18:30:00+00'",
    "TIME": "a time of day is written as TIME '18:30:00'",
    "INTERVAL": "a span is written as INTERVAL 5 DAY, and epoch(…) gives its seconds",
}

_ELLIPSIS = "..."  # stands in DuckDB's messages for the rest of a long line

# DuckDB's reserved words that somebody may well call a table or a column, and how a place for a name begins.
_WORDS_LIKE_NAMES = (
    "all|analyze|array|at|both|check|collation|column|columns|constraint|default|desc|describe|do|end|fetch|"
    "for|foreign|full|glob|group|inner|leading|left|map|only|order|outer|pivot|positional|primary|"
    "references|right|semi|anti|show|struct|summarize|symmetric|table|to|trailing|tuple|unique|using|"
    "verbose|when|window"
)
_NAME_TO_COME = r"(?:\b(?:SELECT|FROM|JOIN|WHERE|AND|OR|ON|BY)\s|[(,.=<>])\s*"
_WORD_FOR_A_NAME = re.compile(rf"{_NAME_TO_COME}({_WORDS_LIKE_NAMES})\b(?!\s+BY\b)", re.IGNORECASE)
_NUMBER_FOR_A_NAME = re.compile(r"\d[\d_]*[A-Za-z_]\w*")

_NO_FUNCTION = re.compile(r"No function matches the given name and argument types '(.+?)\((.*)\)'\.")
_NO_COMMON_TYPE = re.compile(
    r"Cannot (?:compare|mix) values of type (.+?) and (?:type )?(.+?)(?: in .+?)? "
    r"- an explicit cast is required"
)
_TAKES_LISTS = re.compile(r".*Candidate functions:(\s*\w+\([^,)]*\[\][^\n]*)+", re.DOTALL)
_BAD_JSON = re.compile(r'Malformed JSON in file "(.+?)", at (byte \d+) in (.+?): ([^\n]+?)[.\s]*(?:\n|$)')
_CSV_LINE = re.compile(r"CSV Error on Line: (\d+)")
_CSV_FILE = re.compile(r"^\s*file = (.+)$", re.MULTILINE)
_CSV_CAST = re.compile(r"converting column \"(.+?)\"\. Could not convert string \"(.*)\" to '(.+)'")
_CSV_REASON = re.compile(r"\n([^\n]+?)\.?\n+Possible ")
_NO_DIALECT = re.compile(r'Error when sniffing file "(.+?)"')
_OWN_COMPLAINT = re.compile(r"Invalid Input Error: (the first values of column .*)", re.DOTALL)
_NO_GZIP = re.compile(r"(?:Unexpected end of|Input is not a) GZIP stream: (.+)")
_OTHER_COLUMNS = re.compile(
    r'Main file schema: (.+)\nCurrent file: (.+)\nColumn with name: "(.+)" is missing'
)

_ATTEMPTS = {
    "Conversion Error: extract specifier ": "such as 'year', 'quarter', 'month', 'week', 'day' or 'hour'",
    **dict.fromkeys(
        ("Conversion Error: invalid timestamp field format", "Conversion Error: invalid date field format"),
        "strptime(…, '%d.%m.%Y') reads other forms, and TRY_CAST gives NULL for such a value",
    ),
    "Conversion Error: ": "TRY_CAST gives NULL for such a value",
    "Out of Range Error: Overflow in ": "cast to a wider type first, as in CAST(… AS HUGEINT)",
    "Invalid Input Error: Could not parse string ": "try_strptime gives NULL for such a text",
}
_OF_THE_WIDEST = re.compile(r"Out of Range Error: Overflow in .*?(?:HUGEINT|INT128|DECIMAL\(38\))")
_SETTING = re.compile(r",? or SET \w+\s*=\s*\w+[^.]*(?=\.)|(?<!\s)\s*+Use \"SET [^\"]*\"[^.]*\.?")


def about_rows(message: str) -> str:
    """Return DuckDB's message about an expression that has no value for some row, and what to do next."""
    attempt = next((each for begin, each in _ATTEMPTS.items() if message.startswith(begin)), None)
    if _OF_THE_WIDEST.match(message):
        attempt = "no exact number is wider; cast to DOUBLE first, as in CAST(… AS DOUBLE)"
    message = _SETTING.sub("", message)  # no setting can be changed here
    return message if attempt is None else f"{message}; {attempt}"


def about_types(message: str, sql: str, place: tuple[int, int] | None) -> str | None:
    """Return which values do not fit together, and a cast to try. None for a message about something else.

    Args:
        place: line and column of the expression in it, where they are known.
    """
    if "BITSTRING_AGG" in message and "statistics" in message:
        return (
            "how long the bits of bitstring_agg(x) are depends on all values of x, which are not known here; "
            "give the least and the greatest one, as in bitstring_agg(x, 0, 100)"
        )
    if found := _NO_COMMON_TYPE.search(message):
        return f"{_plain_types(found[0])}{_common_type(_plain_types(found[1]), _plain_types(found[2]))}"
    if (found := _NO_FUNCTION.search(message)) is None:
        return None
    types = _parts(_plain_types(found[2]))
    if found[1].startswith("json_extract") and "BOOLEAN" in types:
        return "-> and ->> bind less than =, < and NOT; put them in brackets, as in (j -> 'a' ->> 'b') = 'x'"
    values = _values(found[1], len(types), sql, place)
    pairs = list(zip(values, types, strict=False))
    named = [f"{value} ({type_text})" for value, type_text in pairs] or types
    accepted = re.sub(r"->.*", "", message[found.end() :])
    if (count := _other_count(found[1], accepted, len(types))) is not None:
        return count
    target = next((each for each in _CAST_TARGETS if each in accepted), "DOUBLE")
    if _TAKES_LISTS.fullmatch(accepted.split("\n\n")[0].strip()) and not any(
        "[" in type_text for type_text in types
    ):
        return f"{found[1]} takes a list, and not {named[0]}"
    if struct := next((each for each in named if re.search(r"(^| \()STRUCT\(", each)), None):
        row, _, fields = struct.partition("STRUCT(")
        names = ", ".join(
            [each for part in _parts(fields) for each in re.findall(rf"^({_NAME}) ", part)][:20]
        )
        row = row.strip(" (") and f", and {row.strip(' (')} is one"
        return f"{found[1]} takes no whole row{row}; name one of its columns: {names}"
    unfit = (pair for pair in pairs if pair[1] != target and re.fullmatch(_COLUMN, pair[0]))
    column, _ = min(
        unfit, key=lambda pair: _NUMBER.match(pair[1]) is not None, default=("…", "")
    )  # no number
    attempt = f"a cast, as in TRY_CAST({column} AS {target})"
    if target == "TIMESTAMP" and "VARCHAR" in types:
        attempt += f", or strptime({column}, '%d.%m.%Y'){_OF_OTHER_FORM}"
    if target == "DOUBLE" and "VARCHAR" in types:
        attempt = f"a cast, as in {_NUMBERS_IN_TEXT.format(column)}"
    if target == "DOUBLE" and "INTERVAL" in types:  # which no cast makes a number
        span = next((value for value, given in pairs if given == "INTERVAL"), "…")
        attempt = f"its seconds, as in epoch({span})"
    return f"{_SIGNS_IN_WORDS.get(found[1], found[1])} does not take {' with '.join(named)}; try {attempt}"


def _other_count(function: str, candidates: str, given: int) -> str | None:
    """Return how many values a function takes, None where some form of it may take as many as were given."""
    forms = re.findall(rf'^\s*"?{re.escape(function)}"?\((.*)\)\s*$', candidates, re.MULTILINE)
    if not forms or any("*" in form for form in forms):
        return None
    counts = sorted({_count_of(form) for form in forms})
    if given in counts:
        return None
    said = f"{function} takes {' or '.join(map(str, counts))} value{'' if counts == [1] else 's'}"
    if function == "date_trunc" and given == 3:
        return f"{said}; in time zone Z it is timezone(Z, date_trunc('day', timezone(Z, moment)))"
    return f"{said}, and was given {given}"


def _count_of(form: str) -> int:
    """Return how many values a function takes that DuckDB shows as f(x DECIMAL(18,3), y DOUBLE, /)."""
    named = re.sub(r"\([^()]*\)", "", form).removesuffix("/").strip().removesuffix(",")
    return named.count(",") + 1 if named else 0


def about_syntax(message: str, sql: str, place: tuple[int, int] | None) -> str | None:
    """Return the message with how to write a name that is a word of SQL. None where no such word is near.

    Args:
        place: where DuckDB stopped: at that word, or at what comes after it.

    >>> about_syntax('syntax error at or near "order"', "SELECT * FROM order", (1, 15))
    'syntax error at or near "order"; order is a word of SQL; as a name it is written in quotes: "order"'
    >>> about_syntax('syntax error at or near "LIMIT"', "SELECT * FROM semi LIMIT 3", (1, 20))
    'syntax error at or near "LIMIT"; semi is a word of SQL; as a name it is written in quotes: "semi"'
    """
    if place is None or not message.startswith("syntax error"):
        return None
    at = _offset(sql, place)
    if found := _NUMBER_FOR_A_NAME.match(sql, at):
        return f'{message}; a name that begins with a digit is written in quotes: "{found[0]}"'
    for found in _WORD_FOR_A_NAME.finditer(sql):
        if found.start(1) == at or (found.end() <= at and not sql[found.end() : at].strip()):
            word = found[1]
            return f'{message}; {word} is a word of SQL; as a name it is written in quotes: "{word}"'
    return None


def about_file(message: str) -> str | None:
    """Return what is wrong with a file, where, and what to do. None for a message about something else.

    >>> about_file("IO Error: Input is not a GZIP stream: trips.csv.gz")
    'trips.csv.gz is no whole gzip file; get it again, or name it without .gz if it is not packed'
    """
    if found := _BAD_JSON.search(message):
        file, byte, line, what = found.groups()
        return (
            f"{file} is no whole JSON ({byte} in {line}: {what}); mend that place, or get the file again if "
            "it was cut off"
        )
    if found := _NO_GZIP.search(message):
        return f"{found[1]} is no whole gzip file; get it again, or name it without .gz if it is not packed"
    if found := _OTHER_COLUMNS.search(message):
        first, other, column = found.groups()
        return (
            f"the files are not one table: {first} has a column {column!r}, and {other} has not; give each "
            'as a table of its own, or say "read_csv([…], union_by_name=true)", or read_json, in their place'
        )
    if found := _OWN_COMPLAINT.search(message):  # see `layouts/text_files.py`
        return found[1]
    return _about_csv(message)


def _about_csv(message: str) -> str | None:
    if found := _NO_DIALECT.search(message):
        return (
            f"{found[1]} does not read as CSV: its lines do not all have the same number of fields, or it is "
            "something else; mend it, or say how it is read: give \"read_csv('…', delim=';', skip=2)\" for it"
        )
    line, file = _CSV_LINE.search(message), _CSV_FILE.search(message)
    if line is None or file is None:
        return None
    if "not utf-8 encoded" in message:
        return (
            f"line {line[1]} of {file[1]} is not UTF-8; save the file as UTF-8, or say what it is: "
            "give \"read_csv('…', encoding='latin-1')\" for it, or 'utf-16'"
        )
    if cast := _CSV_CAST.search(message):
        return (
            f"line {line[1]} of {file[1]}: the first values of column {cast[1]!r} are {cast[3]}, and "
            f"{cast[2]!r} is not; lay the table out (`relaqs shuffle`), which takes the type from all rows, "
            f"or read it as text: give \"read_csv('…', types={{{cast[1]!r}: 'VARCHAR'}})\" for it"
        )
    why = f" ({found[1]})" if (found := _CSV_REASON.search(message)) else ""
    return (
        f"line {line[1]} of {file[1]} cannot be read as CSV{why}; mend it, or leave such lines out: give "
        "\"read_csv('…', ignore_errors=true)\" for it"
    )


def characters_within(text: str, columns: int) -> int:
    """Return how many characters of a text a terminal shows in so many columns: some take two, some none.

    >>> characters_within("'é漢', x", 6)
    5
    """
    for count, character in enumerate(text):
        if columns <= 0 and not unicodedata.combining(character):
            return count
        columns -= 0 if unicodedata.combining(character) else _columns_of(character)
    return len(text) + max(0, columns)


def _columns_of(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "FW" else 1


def _plain_types(text: str) -> str:
    for literal, type_text in _LITERALS.items():
        text = text.replace(literal, type_text)
    return text


def _common_type(one: str, other: str) -> str:
    """Return what makes two values comparable: how a time is written beside a number, or else a cast."""
    for time, number in ((one, other), (other, one)):
        if time in _IN_TIME and _NUMBER.match(number):
            return f"; {_IN_TIME[time]}"
        if time in _IN_TIME and number == "VARCHAR":
            return f", as in TRY_CAST(… AS {time}), or strptime(…, '%d.%m.%Y'){_OF_OTHER_FORM}"
    return ", as in TRY_CAST(… AS DOUBLE) or CAST(… AS VARCHAR)"


def _offset(sql: str, place: tuple[int, int]) -> int:
    """Return how many characters of the statement come before a line and column."""
    line, column = place
    return sum(len(each) + 1 for each in sql.split("\n")[: line - 1]) + column - 1


def _values(function: str, count: int, sql: str, place: tuple[int, int] | None) -> list[str]:
    """Return the arguments of a function or a sign as they are written, [] where they are not simple ones."""
    if place is None:
        return []
    at = _offset(sql, place)
    if re.fullmatch(r"\w+", function):
        call = re.match(rf"{function}\s*\(((?:{_TEXT}|[^()\"'])*)\)", sql[at:], re.IGNORECASE)
        found = _parts(call[1]) if call else []
    else:
        found = _operands(sql, at)[-count:]
    return found if len(found) == count else []


def _parts(text: str) -> list[str]:
    """Return what stands between the commas that are neither in quotes nor in brackets.

    >>> _parts('"a, b", STRUCT(c DECIMAL(9, 2), d DATE)')
    ['"a, b"', 'STRUCT(c DECIMAL(9, 2), d DATE)']
    """
    brackets = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    return [each.strip() for each in re.findall(rf"(?:{_TEXT}|{brackets}|[^,\"'(])+", text)]


def _operands(sql: str, at: int) -> list[str]:
    """Return what stands on both sides of a sign. at: where the sign is, or the value before it."""
    if first := re.compile(rf"{_OPERAND}\s*(?={_SIGN.pattern})", re.IGNORECASE).match(sql, at):
        at = first.end()
    before, sign = re.search(rf"({_OPERAND})\s*$", sql[:at]), _SIGN.match(sql, at)
    after = re.match(rf"\s*({_OPERAND})", sql[sign.end() :]) if sign else None
    return [each[1] for each in (before, after) if each]


def position_at(line: int, excerpt: str, caret: int, sql: str) -> tuple[int, int] | None:
    """Return the place that a caret points at, counted from 1, None where it cannot be told.

    DuckDB prints 'LINE n: ' and the line (part of it if it is long). The next line has spaces, then the
    caret.
    """
    column = characters_within(excerpt, caret - len(f"LINE {line}: "))
    if excerpt.startswith(_ELLIPSIS):
        lines = sql.split("\n")
        part = excerpt.removeprefix(_ELLIPSIS).removesuffix(_ELLIPSIS)
        begins = lines[line - 1].find(part) if 1 <= line <= len(lines) else -1
        if begins < 0:
            return None
        column += begins - len(_ELLIPSIS)
    return line, max(1, column + 1)
