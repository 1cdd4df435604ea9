"""`%%relaqs`: a cell of SQL. Its answer sharpens below it, and a variable may take the query."""

from __future__ import annotations

import keyword
import shlex
from typing import TYPE_CHECKING, Any

import click
from IPython.core.error import UsageError

from relaqs.cli.parameters import param_option, seconds, share
from relaqs.opening import connect
from relaqs.session import Session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from relaqs.queries.online_query import OnlineQuery


class _Name(click.ParamType[str]):
    """The name of a variable, written as `late=`."""

    name = "name="

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value).removesuffix("=")
        if not str(value).endswith("=") or not name.isidentifier() or keyword.iskeyword(name):
            if not str(value).endswith("="):
                self.fail(
                    f"{value!r} is a word too many; --data {value} opens tables, {name}= names the query"
                )
            self.fail(f"{value!r} is no name of a variable; write it as late=, before the SELECT's line")
        return name


@click.command("%%relaqs", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", metavar="[NAME=]", type=_Name(), required=False)
@click.option(
    "--data",
    metavar="PATH",
    help="As `connect` takes it, or the name of a session. Later cells go on with it.",
)
@click.option("--target", type=share, metavar="SHARE", help="Stop at this relative error: 5% or 0.05.")
@click.option("--timeout", type=seconds, metavar="TIME", help="Stop after this time: 2s or 500ms.")
@click.option("--wait", is_flag=True, help="Let the next cell begin only after the answer.")
@param_option
def _words(**given: Any) -> dict[str, Any]:
    """Answer the SELECT of this cell online, and keep the query as NAME.

    `%relaqs --data PATH` alone opens the tables for later cells.
    """
    return given


class Magic:
    """The magic of one shell. It remembers the session that `--data` opened last."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._session: Session | None = None

    def run(self, line: str, cell: str | None = None) -> OnlineQuery | Session | None:
        """Return the query of a cell, which shows itself; the session, where there is no cell.

        Raises:
            UsageError: the words of the line are not accepted.
            RelaqsError: the tables cannot be opened, or the query is refused.
        """
        words = _parsed(line)
        if words is None:
            return None
        session = self._opened(words["data"])
        made = session if cell is None else self._asked(session, cell, words)
        if words["name"] is not None:
            self._shell.user_ns[words["name"]] = made
        return made

    def _asked(self, session: Session, sql: str, words: dict[str, Any]) -> OnlineQuery:
        query = session.online_sql(
            sql, params=words["params"], target=words["target"], timeout=words["timeout"]
        )
        if words["wait"]:
            for _ in query:
                pass
        return query

    def _opened(self, data: str | None) -> Session:
        """Return the session to ask: the one of that name, or over that data, or the last one."""
        if data is not None:
            named = self._shell.user_ns.get(data)
            self._session = named if isinstance(named, Session) else connect(data)
        if self._session is None:
            raise UsageError(
                "there are no tables yet; give --data PATH once, or --data NAME for a session that you opened"
            )
        return self._session


def _parsed(line: str) -> dict[str, Any] | None:
    """Return what the magic's line says; None where it asked for help, which is printed."""
    try:
        words: dict[str, Any] = _words.main(shlex.split(line), prog_name="%%relaqs", standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise UsageError(f"{said} (%%relaqs --help lists what there is)") from None
    return words if isinstance(words, dict) else None
