"""What the prompt offers for a word that is begun: its commands, tables, columns and keywords."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from relaqs_engine.duck import quote_name
from relaqs_engine.layouts.manifest import Layout

KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "JOIN", "LEFT JOIN", "ON", "USING", "WHERE", "GROUP BY", "GROUP BY ALL"),
    *("HAVING", "ORDER BY", "DESC", "LIMIT", "WITH", "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE"),
    *("IS NULL", "CASE WHEN", "THEN", "ELSE", "END", "UNION ALL", "EXISTS", "OVER", "PARTITION BY", "CAST"),
    *("count(*)", "count(", "sum(", "avg(", "min(", "max(", "median(", "stddev(", "date_trunc("),
)
_WORD = re.compile(r'[\w."(*]+$')
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*$")


class SqlCompleter(Completer):
    """Completes the word before the cursor.

    Args:
        tables: gives the tables as they are now, by name.
        commands: of the prompt. They are offered at the beginning of the input.
    """

    def __init__(self, tables: Callable[[], Mapping[str, Layout]], commands: tuple[str, ...]) -> None:
        self._tables = tables
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        found = _WORD.search(text)
        word = found.group() if found else ""
        is_command = text.lstrip() == word and word.startswith(".")
        owner, dot, begun = word.rpartition(".")
        if is_command:
            begun, offered = word, [(name, "command") for name in self._commands]
        elif dot:
            offered = self._columns(owner.strip('"'))
        else:
            offered = self._names()
        for name, what in offered:
            if begun and name.lower().lstrip('"').startswith(begun.lower().lstrip('"')):
                yield Completion(name, start_position=-len(begun), display_meta=what)

    def _names(self) -> list[tuple[str, str]]:
        tables = [(_written(name), "table") for name in self._tables()]
        columns = [pair for name in self._tables() for pair in self._columns(name)]
        return list(dict.fromkeys([*tables, *columns, *((word, "") for word in KEYWORDS)]))

    def _columns(self, table: str) -> list[tuple[str, str]]:
        layouts: Iterable[Layout] = (
            layout for name, layout in self._tables().items() if name.lower() == table.lower()
        )
        return [(_written(column.name), column.type) for layout in layouts for column in layout.columns]


def _written(name: str) -> str:
    """Return a name as SQL has it: in quotes where it needs them."""
    return name if _PLAIN_NAME.match(name.lower()) else quote_name(name)
