"""Parameters that several commands take, and how a command that takes SQL reads its words."""

from __future__ import annotations

import glob
import json
import math
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.sources import paths_in_call
from relaqs_engine.stores.address import Address, check_path

from relaqs.arguments import ArgumentError, budget_of, check_zone, relative_error, seconds_in
from relaqs.memory import memory_bytes

if TYPE_CHECKING:
    from relaqs.session import Session

Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


class SqlCommand(click.Command):
    """A command whose SELECT may begin with a comment: what has a space in its name is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        comments = [
            word for word in args if word.startswith("--") and any(map(str.isspace, word.partition("=")[0]))
        ]
        others = [word for word in args if word not in comments]
        return super().parse_args(ctx, [*others, "--", *comments] if comments else others)


def share(text: str) -> float:
    """Return a share of one, written as 1% or 0.01. More than the whole is a forgotten percent sign."""
    try:
        value = relative_error(text)
    except ArgumentError:
        value = None
    if value is None or value > 1:
        raise click.BadParameter(f"{text!r} is no share above 0 and up to 100%; write it as 1% or 0.01")
    return value


def seconds(text: str) -> float:
    """Return a time above 0 in seconds, written as 2s, 500ms, 1.5m or 2."""
    try:
        return seconds_in("time", text)
    except ArgumentError as error:
        raise click.BadParameter(f"{text!r} is no time above 0; write it as 2s, 500ms or 1.5m") from error


def seconds_or_off(text: str) -> float:
    """Return a time in seconds, written as 2s, 500ms or 1.5m; 0 for `off` and 0."""
    if text.strip().lower() in ("off", "0", "0s", "0ms"):
        return 0.0
    try:
        return seconds_in("time", text)
    except ArgumentError as error:
        raise click.BadParameter(f"{text!r} is no time; write it as 300ms or 2s, or off") from error


exact_below_option = click.option(
    "--exact-below",
    type=seconds_or_off,
    metavar="TIME",
    help="Answer what one core reads in less time at once, without estimates; off: nothing. By default that "
    "is 300ms for layouts of the cache, and where only the last snapshot is printed.",
)


def memory_size(text: str) -> int:
    """Return an amount of memory in bytes, written as 4GB."""
    try:
        return memory_bytes(text)
    except ArgumentError as error:
        raise click.BadParameter(
            f"{text!r} is no amount of memory from 256 MiB up; write it as 4GB"
        ) from error


memory_option = click.option(
    "--memory-limit",
    type=memory_size,
    default="4GB",
    show_default=True,
    metavar="SIZE",
    help="Beyond it, disk is used.",
)


def budget(text: str) -> float | str:
    """Return what costly functions may be asked: a number of calls, or money in text, such as $3."""
    try:
        return budget_of(text)
    except ArgumentError as error:
        raise click.BadParameter(f"{text!r} is neither a number of calls such as 500 nor $3") from error


budget_option = click.option(
    "--budget",
    type=budget,
    metavar="AMOUNT",
    help="What a question may ask functions: calls such as 500, or $3.",
)
functions_option = click.option(
    "--functions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A Python file of yours, which is run: its register(db) names functions that statements may call.",
)


def register_functions(session: Session, file: Path | None) -> None:
    """Let a file's `register` give a session its functions. Raises ClickException where that fails."""
    if file is None:
        return
    try:
        register = runpy.run_path(os.fspath(file)).get("register")
        if register is not None:
            register(session)
    except Exception as error:
        raise click.ClickException(f"{file} failed: {type(error).__name__}: {error}") from error
    if register is None:
        raise click.ClickException(
            f"{file} has no register; write def register(db): db.function('name', …) in it"
        )


class Numbers(click.FloatRange):
    """Numbers of a range. `nan` is none, and `inf` only where that has a meaning."""

    def __init__(self, *, may_be_endless: bool = False, **limits: Any) -> None:
        super().__init__(**limits)
        self._may_be_endless = may_be_endless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number) or (math.isinf(number) and not self._may_be_endless):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


class PathOrAddress(click.Path):
    """A path on this machine, or an address in an object store or on a web server, given as text."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if paths_in_call(value):
            return value
        try:
            check_path(value)
            address = Address.of(value)
        except LayoutError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx) if address is None else str(address)


DataPath: TypeAlias = str | Path | list[str | Path]
"""What --data names: one source, or several with tables of their own."""


def said(data: DataPath) -> str:
    """Return what --data names in words."""
    return ", ".join(map(str, data if isinstance(data, list) else [data]))


def _all_there(
    context: click.Context, parameter: click.Parameter, paths: tuple[str | Path, ...]
) -> DataPath | None:
    """Return the paths or patterns that were given. What a pattern matches is seen when it is opened."""
    for path in paths:
        _check_there(path)
    return list(paths) if len(paths) > 1 else paths[0] if paths else None


def _check_there(path: str | Path) -> None:
    if isinstance(path, Path) and not path.exists() and not glob.has_magic(str(path)):
        beside: list[str] = []
        with suppress(OSError):  # there is no such folder, or it may not be read
            beside = os.listdir(path.parent)
        near = get_close_matches(path.name, beside)
        meant = f"did you mean {path.parent / near[0]}?" if near else "name one, or a pattern"
        raise click.BadParameter(f"there is no file or folder {path}; {meant}")


class NamedValue(click.ParamType[tuple[str, Any]]):
    """A parameter's name and value. The value is JSON, or else text: 5, true, null, [1, 2], Queens."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        name, sign, text = value.partition("=")
        if not sign or not name.strip():
            self.fail(f"{value!r} has no name; write zone=5 for $zone, or 1=5 for the first ?", param, ctx)
        try:
            return name.strip().removeprefix("$"), json.loads(text)
        except ValueError:
            return name.strip().removeprefix("$"), text


def _by_name_or_place(
    context: click.Context, parameter: click.Parameter, given: Sequence[tuple[str, Any]]
) -> dict[str | int, Any] | None:
    return {int(name) if name.isdecimal() else name: value for name, value in given} or None


param_option = click.option(
    "-p",
    "--param",
    "params",
    type=NamedValue(),
    multiple=True,
    callback=_by_name_or_place,
    metavar="NAME=VALUE",
    help="The value of $NAME in SELECT; 1=VALUE is that of the first ?. A number, true, null, a list as "
    "JSON, or text. It is never read as SQL.",
)


def into_option(help: str) -> Callable[[Decorated], Decorated]:
    """Return the option --into, the folder of one table."""
    return click.option(
        "--into",
        required=True,
        type=PathOrAddress(file_okay=False, path_type=Path),
        metavar="DIR/TABLE",
        help=help,
    )


def format_option(
    help: str = "For people, or for other programs.", formats: Sequence[str] = ("table", "jsonl")
) -> Callable[[Decorated], Decorated]:
    """Return the option --format, which a command gets as `output`. The first format is the default."""
    return click.option(
        "--format", "output", type=click.Choice(formats), default=formats[0], show_default=True, help=help
    )


def _data_option(*, required: bool) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--data",
        required=required,
        multiple=True,
        type=PathOrAddress(path_type=Path),
        callback=_all_there,
        metavar="PATH",
        help="Folder of tables laid out with `relaqs shuffle`; or a Parquet, CSV, JSON or DuckDB file, a "
        "pattern, a Delta or Iceberg table, or a folder of such; or how a file is read, as in "
        "\"read_csv('f.csv', delim=';')\". Or the address of one in an object store: s3://bucket/folder. May "
        "be given several times.",
    )


data_option = _data_option(required=True)
data_option_of_a_group = _data_option(required=False)
"""For a command that has others below it, which need no data: it asks for `--data` where it runs itself."""


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for a cluster that speaks TLS, named as Dask names them; `security` is made of them."""
    file = click.Path(exists=True, dir_okay=False)

    @click.option("--tls-ca-file", type=file, metavar="FILE", help="For a cluster at tls://…: its CA.")
    @click.option("--tls-cert", type=file, metavar="FILE", help="The certificate to show to that cluster.")
    @click.option("--tls-key", type=file, metavar="FILE", help="The key of the certificate.")
    @wraps(command)
    def with_security(
        tls_ca_file: str | None, tls_cert: str | None, tls_key: str | None, **rest: object
    ) -> None:
        files = {"tls_ca_file": tls_ca_file, "tls_client_cert": tls_cert, "tls_client_key": tls_key}
        given = {name: path for name, path in files.items() if path is not None}
        if given and rest.get("cluster", rest.get("address")) is None:
            raise click.UsageError("the --tls options are for a cluster; give --cluster tls://host:8786 too")
        command(security=given or None, **rest)

    return with_security


cluster_option = click.option(
    "--cluster", metavar="ADDRESS", help="Run on this Dask cluster instead of in this process."
)


def _known_zone(context: click.Context, parameter: click.Parameter, zone: str | None) -> str | None:
    try:
        return None if zone is None else check_zone("timezone", zone)
    except ArgumentError as error:
        raise click.BadParameter(str(error)) from error


timezone_option = click.option(
    "--timezone",
    callback=_known_zone,
    metavar="ZONE",
    help="Read and show moments in this time zone, such as Europe/Paris. The default is the system's.",
)


def numbers(option: str, text: str) -> list[float]:
    """Return the numbers above 0 of a comma-separated list."""
    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise click.BadParameter(
                f"{word.strip()!r} is no number above 0; write one, or several as 10,40", param_hint=option
            )
        found.append(value)
    return found


def command_words() -> list[str]:
    """Return the words that started this program, for records: they let others repeat it."""
    return ["relaqs", *sys.argv[1:]]
