"""The program `relaqs`: one module a command, loaded when it is asked for, and the way every command ends.

Commands parse arguments and print; what they do is done by `relaqs` and the packages above it. An installed
package adds a command by an entry point in the group `relaqs.commands`: `demo`, `tpch`, `simulate`, `learn`
and `dashboard` come in this way. Exit codes: 0; 1 for a failed run; 2 for bad usage; 130 after ctrl-C; 141
when the reader of the output has gone away.
"""

from __future__ import annotations

import ast
import errno
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click
from relaqs_engine.errors import STRICT, RelaqsError, is_strict, named

from relaqs.arguments import ArgumentError
from relaqs.plugins import PluginError, Plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Our own commands → the module and the name in it, and what `relaqs --help` says of each without loading it.
COMMANDS = {
    "sql": ("relaqs.cli.sql:sql", "Answer a SELECT: a first estimate at once, then better ones."),
    "shell": ("relaqs.cli.sql:shell", "Ask one question after another at a prompt."),
    "tables": ("relaqs.cli.explain:tables", "List the tables and their columns."),
    "explain": ("relaqs.cli.explain:explain", "Show how a SELECT would be answered, and why."),
    "advise": ("relaqs.cli.explain:advise", "Name the layouts that would help a SELECT."),
    "shuffle": ("relaqs.cli.data:shuffle", "Lay a table out: any part of it becomes a random sample."),
    "append": ("relaqs.cli.data:append", "Add rows to a table that was laid out."),
    "compact": ("relaqs.cli.data:compact", "Make one file of the many that appends leave."),
    "verify": ("relaqs.cli.data:verify", "Check tables that were laid out."),
    "serve": ("relaqs.cli.serve:serve", "Answer many users over the protocol of Postgres."),
    "cache": ("relaqs.cli.cache:cache", "List and remove what is kept of plain files."),
    "cluster": ("relaqs.cli.cluster:cluster", "Look at a Dask cluster that several programs share."),
    "doctor": ("relaqs.cli.doctor:doctor", "Look at the installation and the machine, and measure both."),
    "sample": ("relaqs.cli.data:sample", "Make tables to try things with."),
    "mcp": ("relaqs.mcp:mcp", "Let agents ask the tables, over the Model Context Protocol."),
}
SECTIONS = {  # of the help, in this order; what is in none comes last
    "Ask": ("sql", "shell", "tables", "explain"),
    "Lay tables out for estimates": ("shuffle", "append", "compact", "verify", "advise", "cache"),
    "Let others ask": ("dashboard", "serve", "mcp"),
    "Share a cluster, and choose its policy": ("cluster", "simulate", "learn"),
    "Try and measure": ("demo", "sample", "doctor", "tpch"),
}
OTHERS = "Of other packages"
ADDED: Plugins[click.Command] = Plugins(
    "relaqs.commands", "command", accepts=lambda thing: isinstance(thing, click.Command)
)
INTERRUPTED, TERMINATED, PIPE_CLOSED = (128 + number for number in (2, 15, 13))  # as a shell reports signals


class Program(click.Group):
    """Imports a command when it is asked for, and prints an error as one line instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in ADDED if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return ADDED.get(cmd_name)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_option = name.startswith("-")
        if not is_option and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.5)
            meant = f"did you mean {' or '.join(near)}?" if near else f"{ctx.command_path} --help lists all"
            ctx.fail(f"there is no command {name!r}; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        placed = {name for section in SECTIONS.values() for name in section}
        sections = {**SECTIONS, OTHERS: [name for name in names if name not in placed]}
        widest = max(map(len, names))
        for title, section in sections.items():
            there = [(name.ljust(widest), _summary(name)) for name in section if name in names]
            if there:
                with formatter.section(title):
                    formatter.write_dl(there)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _discard_output()
            raise click.exceptions.Exit(PIPE_CLOSED) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except ArgumentError as error:
            raise click.UsageError(str(error), ctx) from error
        except (RelaqsError, OSError) as error:
            raise click.ClickException(_in_words(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if is_strict():
                raise
            told = named(error, f"relaqs {ctx.invoked_subcommand or ''}".strip())
            raise click.ClickException(f"{told}. With {STRICT}=1 its traceback is shown") from error


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="relaqs", message="relaqs %(version)s")
def program() -> None:
    """SQL answers that start in a blink, carry honest error bars, and sharpen until they are exact.

    \b
    relaqs sql "SELECT zone, avg(fare) FROM trips GROUP BY zone" --data trips.parquet
    """


def main() -> NoReturn:
    """Run the program and leave the process with its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.formatwarning = _warning_line
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name must not end a run
    program.main(prog_name="relaqs")


def _summary(name: str) -> str:
    """Return what `relaqs --help` says of a command."""
    if name in COMMANDS:
        return COMMANDS[name][1]
    try:
        return _summary_of(ADDED.entry(name))
    except PluginError as error:
        return str(error)


def _summary_of(entry: EntryPoint) -> str:
    """Return what a package's command says of itself: its `short_help`, or else its docstring's first line.

    Both are read from the source, which is not run. Without one the package's name is all there is to say.
    """
    unknown = f"Of the package {entry.dist.name}." if entry.dist is not None else ""
    try:
        tree = _source(entry.module)
    except (OSError, SyntaxError, ValueError, ImportError):  # the command itself will say what is wrong
        return unknown
    command = next((each for each in _functions(tree) if each.name == entry.attr), None)
    return (command and (_short_help(command) or _first_line(command))) or unknown


def _source(module: str) -> ast.Module:
    spec = _spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no source of {module}")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _spec(module: str) -> ModuleSpec | None:
    """Return where a module is. `importlib.util.find_spec` would import the packages above it."""
    package, _, rest = module.partition(".")
    spec, name = find_spec(package), package
    for part in filter(None, rest.split(".")):
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations if spec is not None else [])
    return spec


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.FunctionDef))


def _short_help(command: ast.FunctionDef) -> str | None:
    for decorator in command.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "short_help" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return None


def _first_line(command: ast.FunctionDef) -> str:
    return (ast.get_docstring(command) or "").partition("\n")[0]


def _warning_line(message: Warning | str, *where: object, **line: object) -> str:
    """Return a warning as errors are shown: what it says, not which line of which library says it."""
    return f"Warning: {message}\n"


def _terminate(signal_number: int, frame: FrameType | None) -> NoReturn:
    """Leave as after an error, so that what was started is ended and half-made files are removed."""
    sys.exit(TERMINATED)


def _in_words(error: RelaqsError | OSError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"there is no room on the disk ({error}); free some, or name a folder on a larger one"
        case errno.EADDRINUSE:
            return f"{error.strerror}; give another --port, or 0 for any that is free"
        case errno.EACCES | errno.EPERM | errno.EROFS | errno.ENOENT if error.filename:
            path = Path(os.fsdecode(error.filename))
            shown = path.parent if path.name.startswith(".") else path  # a draft of ours
            return f"{shown}: {error.strerror}; name a folder that is there and may be used"
    return str(error)


def _discard_output() -> None:
    """Let what is still buffered go nowhere, instead of failing once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
