"""`relaqs sql` and `relaqs shell`: queries run online, from words, a file or a prompt.

SQL comes from the command line, from a file or from standard input (`script_statements`). Errors say where
in it they are. Each snapshot is printed as it comes, see `output.py`. The prompt itself is `prompt.py`,
which is loaded when there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from relaqs_engine.errors import ExpressionError, RelaqsError, SqlError
from relaqs_engine.layouts.manifest import SOON_SECONDS

from relaqs.arguments import ArgumentError
from relaqs.cli.parameters import (
    DataPath,
    SqlCommand,
    budget_option,
    cluster_option,
    data_option,
    exact_below_option,
    functions_option,
    param_option,
    register_functions,
    seconds,
    share,
    timezone_option,
    tls_options,
)

if TYPE_CHECKING:
    from relaqs_engine.sql.read import Statement

STANDARD_INPUT = "-"


def script_text(path: str) -> str:
    """Return the text of a file, or of standard input where the path is "-"."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError(f"{_named(path)} is no text in UTF-8 ({error.reason}); save it as such") from error


def script_statements(path: str) -> tuple[Statement, ...]:
    """Return the statements of a file or of standard input. Raises SqlError where there is none."""
    from relaqs_engine.sql.read import statements_of

    found = statements_of(script_text(path))
    if not found:
        raise SqlError(f"{_named(path)} has no statement; give at least one SELECT")
    return found


@contextmanager
def saying_which(statement: Statement, number: int, count: int) -> Iterator[None]:
    """Let errors of a statement say which it is, and where in the whole text. number: from 1."""
    which = f"statement {number} of {count}, which begins at line {statement.line}: " if count > 1 else ""
    try:
        yield
    except (SqlError, ExpressionError) as error:
        raise statement.placed(error, which) from error
    except ArgumentError:  # an option is wrong, whatever the statement
        raise
    except RelaqsError as error:
        raise RelaqsError(f"{which}{error}") from error


def _named(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@click.command("sql", cls=SqlCommand)
@click.argument("query", metavar="SELECT", required=False)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Run the SELECTs of this file, one after another. A semicolon ends each.",
)
@data_option
@param_option
@cluster_option
@tls_options
@timezone_option
@click.option("--target", type=share, metavar="SHARE", help="Stop at this relative error: 1% or 0.01.")
@click.option(
    "--within",
    type=seconds,
    metavar="TIME",
    help="Say from the first estimate on whether the target will be reached in this time: 2s or 500ms.",
)
@click.option(
    "--judged-by",
    type=click.Choice(["rows", "cells", "max"]),
    default="rows",
    show_default=True,
    help="What must be within the target: groups with most rows, most numbers, or all that are certified.",
)
@click.option(
    "--share", type=share, default="95%", show_default=True, metavar="SHARE", help="How much of that must be."
)
@click.option("--confidence", type=share, default="95%", show_default=True, metavar="SHARE")
@click.option(
    "--interval",
    type=click.Choice(["pointwise", "anytime"]),
    default="pointwise",
    show_default=True,
    help="Valid at any one moment, or however often you look.",
)
@click.option(
    "--confidence-for",
    type=click.Choice(["cell", "table"]),
    default="cell",
    show_default=True,
    help="The confidence of each interval for itself, or of all certified ones together.",
)
@click.option("--timeout", type=seconds, metavar="TIME", help="Stop after this time: 2s or 500ms.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Order of the data.")
@click.option(
    "--batches", type=click.IntRange(min=1), help="So many equal mini-batches, at most one a partition."
)
@click.option("--watch", multiple=True, metavar="COLUMN", help="Columns whose error counts (all by default).")
@click.option(
    "--fallback",
    type=click.Choice(["exact", "error"]),
    default="exact",
    show_default=True,
    help="What to do with a query that cannot be estimated: run it exactly, or refuse it.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "jsonl", "csv", "markdown", "parquet"]),
    help="For people, or for other programs. By default what the name of --output says, or else a table.",
)
@click.option(
    "-o",
    "--output",
    "destination",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to this file, once the last answer is there; - is standard output.",
)
@exact_below_option
@functions_option
@budget_option
@click.option("--every", is_flag=True, help="In a table or CSV print every snapshot, not the last alone.")
def sql(
    query: str | None,
    file: str | None,
    data: DataPath,
    params: dict[str | int, Any] | None,
    cluster: str | None,
    security: dict[str, str] | None,
    timezone: str | None,
    watch: tuple[str, ...],
    output: str | None,
    destination: str | None,
    exact_below: float | None,
    functions: Path | None,
    every: bool,
    **asked: Any,  # the other fields of `QueryOptions`
) -> None:
    """Answer SELECT online: a first estimate at once, then better ones, at the end the exact answer.

    On a terminal the answer sharpens in place. JSON lines have one object a snapshot. A table, Markdown or
    CSV that goes to a file or a pipe has the last snapshot, or all of them with --every. Parquet has
    the last.

    With - in the place of SELECT, SQL is read from standard input. Several SELECTs of a file or of standard
    input are answered one after another. The first that fails ends the run.
    """
    from relaqs.cli.output import STANDARD_OUTPUT, format_by_name, output_to
    from relaqs.cli.reading import Doing, opening_shown
    from relaqs.opening import connect
    from relaqs.queries.options import QueryOptions

    if query is None and file is None:
        raise click.UsageError(
            "Missing argument 'SELECT'; give one, or - to read from standard input, or --file FILE"
        )
    if query is not None and file is not None:
        raise click.UsageError("there are both SELECT and --file; give one of them")
    if asked["within"] is not None and asked["target"] is None:
        raise click.UsageError(
            "--within needs a --target to reach by then; to stop after a time give --timeout"
        )

    options = QueryOptions(watch=watch or None, **asked)
    script = file or (query if query == STANDARD_INPUT else None)
    statements = None if script is None else script_statements(script)
    output = output or format_by_name(destination)
    is_file = destination not in (None, STANDARD_OUTPUT)
    if output == "parquet":
        _check_parquet(every, is_file, 1 if statements is None else len(statements))
    shows_the_last_only = not (every or output == "jsonl" or (sys.stdout.isatty() and not is_file))
    at_once = SOON_SECONDS if exact_below is None and shows_the_last_only else exact_below
    with opening_shown(data):
        session = connect(
            data, cluster=cluster, security=security, exact_below_seconds=at_once, timezone=timezone
        )
    shows_estimates = not (shows_the_last_only and options.wants_the_end_only)
    submit = partial(session.submit, options=options, params=params, shows_estimates=shows_estimates)
    with session, output_to(destination, output, every=every) as write:
        register_functions(session, functions)
        if statements is None:
            assert query is not None
            with submit(query) as running:
                write(running, None, Doing(running, session))
            return
        for number, statement in enumerate(statements, 1):
            which = saying_which(statement, number, len(statements))
            with which, submit(statement.sql) as running:
                write(running, number, Doing(running, session))


def _check_parquet(every: bool, is_file: bool, statement_count: int) -> None:
    if every:
        raise click.UsageError("a Parquet file has one answer; leave --every out, or give --format jsonl")
    if statement_count > 1:
        raise click.UsageError(
            f"a Parquet file has one answer, and there are {statement_count} SELECTs; give one of them, or "
            "--format jsonl"
        )
    if not is_file and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for a terminal; give --output FILE")


@click.command("shell")
@data_option
@cluster_option
@tls_options
@timezone_option
@exact_below_option
@functions_option
def shell(
    data: DataPath,
    cluster: str | None,
    security: dict[str, str] | None,
    timezone: str | None,
    exact_below: float | None,
    functions: Path | None,
) -> None:
    """Answer SELECTs at a prompt. Each sharpens on screen until it is exact.

    A semicolon ends a SELECT, which may have several lines. Ctrl-C stops a SELECT that runs, with its last
    estimate on screen. Ctrl-D leaves. .help lists the commands of the prompt.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a prompt needs a terminal; give --file FILE or - to `relaqs sql` to run SQL from elsewhere"
        )
    from relaqs.cli.prompt import Prompt
    from relaqs.cli.reading import opening_shown
    from relaqs.opening import connect

    with opening_shown(data):
        session = connect(
            data, cluster=cluster, security=security, exact_below_seconds=exact_below, timezone=timezone
        )
    with session:
        register_functions(session, functions)
        click.echo(f"{session}\n.help lists the commands of this prompt; Ctrl-D leaves it.")
        Prompt(session).run()
