"""The prompt of `relaqs shell`: lines in, answers that sharpen out, until the user leaves.

For a word that is begun it offers its commands, tables, columns and keywords (`SqlCompleter`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout
from relaqs_engine.duck import quote_name
from relaqs_engine.errors import RelaqsError, SqlError
from relaqs_engine.layouts import manifest
from relaqs_engine.sql.read import is_finished, statements_of
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relaqs.arguments import ArgumentError, relative_error, seconds_in
from relaqs.cli.explain import columns_shown, tables_shown
from relaqs.cli.output import show_live
from relaqs.cli.reading import Doing
from relaqs.rendering.rounding import show_percent
from relaqs.session import Session

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

    def __init__(self, tables: Callable[[], Mapping[str, manifest.Table]], commands: tuple[str, ...]) -> None:
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
        layouts: Iterable[manifest.Table] = (
            layout for name, layout in self._tables().items() if name.lower() == table.lower()
        )
        return [(_written(column.name), column.type) for layout in layouts for column in layout.columns]


def _written(name: str) -> str:
    """Return a name as SQL has it: in quotes where it needs them."""
    return name if _PLAIN_NAME.match(name.lower()) else quote_name(name)


MARK = "."
"""A command of the prompt begins with it. SQL never does."""

OF_PSQL = {
    "help": ".help",
    "\\d": ".schema",
    "\\dt": ".tables",
    "\\h": ".help",
    "\\?": ".help",
    "\\help": ".help",
}
"""Commands of psql, and those that do the same here."""

LEAVE = ("quit", "exit", ".exit", "\\q")
"""What leaves other prompts leaves this one, too. No SELECT is one of them."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the prompt. takes: what is written behind its name. does: what it is for."""

    takes: str
    does: str
    run: Callable[[str], None]


class Leaving(Exception):  # noqa: N818 - it is no error to leave
    """The user leaves the prompt."""


class Prompt:
    """Reads SELECTs and commands from the terminal, and answers them.

    Args:
        console: where answers go. By default the terminal.
        history: the lines of before. By default those that this user's earlier prompts have kept.
    """

    def __init__(
        self, session: Session, console: Console | None = None, history: History | None = None
    ) -> None:
        self._session = session
        self._console = console or Console()
        self._target: float | None = None
        self._commands = {
            ".tables": Command("", "the tables, their rows, and how they are stored", self._tables),
            ".schema": Command("[TABLE]", "the columns of a table, or of all", self._schema),
            ".explain": Command("SELECT", "how a SELECT would be answered, and why", self._explain),
            ".target": Command("[1%|off]", "the error at which answers stop from now on", self._set_target),
            ".exact-below": Command(
                "[300ms|off]",
                "answer at once what one core reads in less time; off: nothing",
                self._set_at_once,
            ),
            ".help": Command("", "these commands", self._help),
            ".quit": Command("", "leave", self._quit),
        }
        self._lines: PromptSession[str] = PromptSession(
            history=history or kept_history(),
            completer=SqlCompleter(lambda: session.tables, tuple(self._commands)),
            complete_while_typing=False,
            multiline=Condition(lambda: not _is_whole(get_app().current_buffer.text)),
            prompt_continuation=_before_line,
        )

    def run(self) -> None:
        """Answer until the user leaves."""
        while True:
            try:
                with patch_stdout(raw=True):  # what is announced meanwhile comes above the line
                    text = self._lines.prompt("relaqs> ")
                self.answer(text)
            except KeyboardInterrupt:  # at the prompt it clears the line, in a query it stops the query
                continue
            except (EOFError, Leaving):
                return

    def answer(self, text: str) -> None:
        """Run one command, or all SELECTs of the text. What is wrong with them is said, and ends nothing."""
        try:
            if _leaves(text):
                raise Leaving
            if _is_command(text):
                self._run_command(text.strip())
            else:
                for statement in statements_of(text):
                    self._show(statement.sql)
        except (RelaqsError, ArgumentError, OSError) as error:
            click.secho(f"Error: {error}", fg="red", err=True)

    def _show(self, sql: str) -> None:
        with self._session.online_sql(sql, target=self._target) as running:
            show_live(running, self._console, Doing(running, self._session))

    def _run_command(self, text: str) -> None:
        name, _, rest = text.rstrip("; \n").partition(" ")
        name = OF_PSQL.get(name, name)
        command = self._commands.get(name.lower())
        if command is None:
            near = get_close_matches(name.lower(), self._commands, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise SqlError(f"there is no command {name}; {hint}.help lists them")
        command.run(rest.strip())

    def _tables(self, rest: str) -> None:
        self._console.print(tables_shown(self._session))

    def _schema(self, rest: str) -> None:
        names = {name.lower(): name for name in self._session.tables}
        wanted = rest.strip('"').lower()
        if wanted and wanted not in names:
            if rest in self._session.left_out:
                raise copy(self._session.left_out[rest])
            raise SqlError(f"there is no table {rest!r}; the tables are {', '.join(names.values())}")
        self._console.print(columns_shown(self._session, names.get(wanted)))

    def _explain(self, rest: str) -> None:
        click.echo(self._session.explain(rest), nl=False)

    def _set_target(self, rest: str) -> None:
        if rest:
            self._target = None if rest.lower() == "off" else relative_error(rest)
        told = "exact" if self._target is None else f"within ± {show_percent(self._target)}"
        click.echo(f"queries end when the answer is {told}")

    def _set_at_once(self, rest: str) -> None:
        if rest:
            is_off = rest.lower() in ("off", "0")
            self._session.exact_below_seconds = 0.0 if is_off else seconds_in("time", rest)
        match self._session.exact_below_seconds:
            case None:
                told = "where they are there soon, after a first estimate"
            case 0:
                told = "never"
            case limit:
                told = f"where one core reads their tables in less than {limit:g} s"
        click.echo(f"queries run as a whole {told}")

    def _help(self, rest: str) -> None:
        click.echo("A semicolon ends a SELECT. Ctrl-C stops the one that runs, and Ctrl-D leaves.")
        shown = Table.grid(padding=(0, 2))
        for name, command in self._commands.items():
            shown.add_row(escape(f"{name} {command.takes}"), command.does)
        self._console.print(shown)

    def _quit(self, rest: str) -> None:
        raise Leaving


def _is_whole(text: str) -> bool:
    """Return whether Enter ends the input: a command is one line, and a SELECT ends with a semicolon."""
    return _is_command(text) or _leaves(text) or is_finished(text)


def _is_command(text: str) -> bool:
    return text.lstrip().startswith((MARK, "\\")) or text.strip().lower() in OF_PSQL


def _before_line(width: int, line: int, wraps: int) -> str:
    """Return what the prompt writes before a further line. It has a quote where one is not closed."""
    try:
        statements_of(get_app().current_buffer.text)
    except SqlError:
        return "  '...> "
    return "   ...> "


def _leaves(text: str) -> bool:
    return text.strip("; \n").lower() in LEAVE


def kept_history() -> History:
    """Return the lines of this user's earlier prompts, in a file that nobody else can read.

    Where the file cannot be written, the lines are kept until the prompt ends.
    """
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "relaqs"
    file = folder / "history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError as error:
        click.echo(f"Warning: what is typed is not kept for the next time ({error})", err=True)
        return InMemoryHistory()
    return FileHistory(str(file))
