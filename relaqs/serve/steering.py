"""What a statement asks about its own answer, as columns: tools draw error bars of them.

    SELECT origin, avg(delay) AS delay, relaqs.low(avg(delay)) AS low, relaqs.high(avg(delay)) AS high,
        relaqs.error() AS error FROM flights GROUP BY origin

`relaqs.low(x)` and `relaqs.high(x)` are the ends of x's interval, both x itself once that is exact.
`relaqs.error()` is the error of the whole answer, `relaqs.is_exact()` says whether it has none, and
`relaqs.rows_read()` how many rows were read for it. They stand in the list of the outermost SELECT. Before
the statement is planned each gives its place to what it is about, so that all other places stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from relaqs_engine.postgres.wording import SchemaCall, TextEdit, edited, schema_calls, sorted_by

from relaqs.serve.column_types import BOOL, FLOAT8, INT8, ColumnType, is_number
from relaqs.serve.failures import NOT_SUPPORTED, SYNTAX_ERROR, UNKNOWN_FUNCTION, RefusedError

ENDS = ("low", "high")
_SCHEMA = "relaqs"
_OF_ANSWER: dict[str, tuple[str, ColumnType]] = {
    "error": ("CAST(NULL AS DOUBLE)", FLOAT8),
    "is_exact": ("CAST(NULL AS BOOLEAN)", BOOL),
    "rows_read": ("CAST(NULL AS BIGINT)", INT8),
}
_MAY_ASK = re.compile(rf'\b{_SCHEMA}"?\s*\.', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AboutAnswer:
    """A statement without what it asks about its answer.

    Attributes:
        sql: its text.
        asked: the functions, by the places of their outputs.
        names: what outputs are called that have no name of their own, by their places.
    """

    sql: str
    asked: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def kind(self, place: int, kind: ColumnType) -> ColumnType:
        """Return the type of an output that would have this one if nothing was asked."""
        function = self.asked.get(place)
        if function is None:
            return kind
        return (FLOAT8 if is_number(kind) else kind) if function in ENDS else _OF_ANSWER[function][1]


def steered(sql: str, *, is_exact: bool) -> AboutAnswer:
    """Return a statement without what it asks about its answer.

    is_exact: whether there are no estimates, so that the ends of an interval are the value itself.

    Raises:
        RefusedError: there is no such function, or it cannot stand where it does.

    >>> found = steered("SELECT avg(x), relaqs.low(avg(x)), relaqs.error() AS e FROM t", is_exact=False)
    >>> found.sql
    'SELECT avg(x), (avg(x)), CAST(NULL AS DOUBLE) AS e FROM t'
    >>> found.asked, found.names
    ({1: 'low', 2: 'error'}, {1: 'low'})
    """
    if _MAY_ASK.search(sql) is None:
        return AboutAnswer(sql)
    calls = schema_calls(sql, _SCHEMA)
    by_name = sorted_by(sql) if calls and not is_exact else ()
    edits: list[TextEdit] = []
    for call in calls:
        begin, end = call.arguments
        argument = sql[begin:end].strip()
        place = _checked(call, argument)
        if call.name in ENDS and not {call.alias.lower() or call.name, str(place + 1)}.isdisjoint(by_name):
            raise RefusedError(
                NOT_SUPPORTED,
                f"rows cannot be sorted by an estimate's relaqs.{call.name}; sort by {argument}",
            )
        instead = f"({argument})" if call.name in ENDS else _OF_ANSWER[call.name][0]
        edits.append((call.begin, call.end, instead))
    asked = {int(call.place or 0): call.name for call in calls}
    names = {int(call.place or 0): call.name for call in calls if not call.alias}
    return AboutAnswer(edited(sql, iter(edits)), asked, names)


def _checked(call: SchemaCall, argument: str) -> int:
    """Return the place of a call. Raises RefusedError where it is none of ours, or stands elsewhere."""
    if call.name not in (*ENDS, *_OF_ANSWER):
        raise RefusedError(
            UNKNOWN_FUNCTION,
            f"there is no function relaqs.{call.name}; there are relaqs.low(x), relaqs.high(x), "
            "relaqs.error(), relaqs.is_exact() and relaqs.rows_read()",
        )
    if bool(argument) != (call.name in ENDS):
        takes = "an output, as in relaqs.low(avg(x))" if call.name in ENDS else "nothing"
        raise RefusedError(SYNTAX_ERROR, f"relaqs.{call.name} takes {takes}")
    if call.place is None:
        raise RefusedError(
            NOT_SUPPORTED,
            f"relaqs.{call.name} is a column of an answer: it stands alone in the list of the outermost "
            "SELECT, and no star before it",
        )
    return call.place
