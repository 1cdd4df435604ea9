"""`relaqs cache`: what the cache holds, what is removed from it, and what it may take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relaqs.arguments import ArgumentError
from relaqs.cli.output import plain
from relaqs.cli.parameters import format_option
from relaqs.memory import amount_bytes

if TYPE_CHECKING:
    from relaqs_engine.layouts.cache import Cache
    from relaqs_engine.layouts.cached_files import CacheEntry

_STATES = {
    "current": "current",
    "changed": "source changed",
    "gone": "source gone",
    "unknown": "source unknown",
    "far": "far, not asked",
}
_directory = click.option(
    "--cache",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of the cache. By default $RELAQS_CACHE or ~/.cache/relaqs.",
)


@click.group("cache")
def cache() -> None:
    """Look at the layouts and copies that sessions keep of plain and far files, and remove some."""


@cache.command("ls", short_help="List what is kept, the last used first.")
@_directory
@format_option("For people, or one JSON object an entry.")
def ls(directory: Path | None, output: str) -> None:
    """List layouts and copies, the last used first: what they were made of, and whether it is still the same.

    A session that is opened now reads those that are current.
    """
    opened = _opened(directory)
    entries = opened.entries()
    if output == "jsonl":
        for entry in entries:
            click.echo(json.dumps(plain(asdict(entry))))
    else:
        _print_entries(opened, entries)


@cache.command("rm", short_help="Remove some of it, or all.")
@click.argument("names", nargs=-1, metavar="[NAME|PATH]...")
@click.option("--all", "is_all", is_flag=True, help="Remove everything.")
@click.option(
    "--stale", is_flag=True, help="Remove what was made of sources that are not like that any more."
)
@_directory
@click.pass_context
def rm(
    context: click.Context, names: tuple[str, ...], is_all: bool, stale: bool, directory: Path | None
) -> None:
    """Remove layouts and copies, by the NAME of a file, the PATH or address of a source, or an entry's path.

    What an open session reads stays. The exit code is then 1.
    """
    if (bool(names) + is_all + stale) != 1:
        raise click.UsageError("say what to remove: names or paths, or --stale, or --all")
    opened = _opened(directory)
    chosen = opened.find(*names) if names else opened.entries()
    if stale:
        chosen = tuple(entry for entry in chosen if entry.is_stale)
    removed = opened.remove(chosen)
    _say_removed(removed)
    if not chosen:
        click.echo("nothing was removed")
    kept = [entry for entry in chosen if entry not in removed]
    for entry in kept:
        click.echo(f"kept the {entry.in_words}: an open session reads it; close that first", err=True)
    if kept:
        context.exit(1)


@cache.command("limit", short_help="Keep it below a size from now on.")
@click.argument("size", required=False)
@_directory
def limit(size: str | None, directory: Path | None) -> None:
    """Keep the cache below SIZE from now on, such as 20GB. "none" lifts the limit. Without SIZE show it.

    When something new does not fit beside the rest, what was not used for the longest time is removed.
    """
    opened = _opened(directory)
    if size is not None:
        _say_removed(opened.set_limit(None if size.lower() == "none" else _bytes(size)))
    _print_size(opened, opened.entries())


def _opened(directory: Path | None) -> Cache:
    from relaqs_engine.layouts.cache import Cache

    opened = Cache(directory)
    opened.sweep()
    return opened


def _bytes(size: str) -> int:
    try:
        return amount_bytes(size)
    except ArgumentError as error:
        raise click.BadParameter(f'{error}, or "none"', param_hint="SIZE") from error


def _say_removed(entries: Sequence[CacheEntry]) -> None:
    from relaqs_engine.layouts.cached_files import size_in_words

    for entry in entries:
        click.echo(f"removed the {entry.in_words}")
    if len(entries) > 1:
        click.echo(f"{len(entries)} removed, {size_in_words(sum(e.byte_count for e in entries))} freed")


def _print_entries(opened: Cache, entries: Sequence[CacheEntry]) -> None:
    from relaqs_engine.layouts.cached_files import size_in_words
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(
        Column("source", overflow="fold"),
        "kind",
        "state",
        Column("rows", justify="right", no_wrap=True),
        Column("size", justify="right", no_wrap=True),
        Column("used", no_wrap=True),
        Column("made", no_wrap=True),
    )
    for entry in entries:
        state = _STATES[entry.state] + (", in use" if entry.is_in_use else "")
        rows = "?" if entry.row_count is None else f"{entry.row_count:,}"
        size, times = size_in_words(entry.byte_count), map(_time, (entry.used_at, entry.made_at))
        table.add_row(escape(entry.source), entry.kind, state, rows, size, *times)
    if entries:
        Console().print(table)
    _print_size(opened, entries)


def _print_size(opened: Cache, entries: Sequence[CacheEntry]) -> None:
    from relaqs_engine.layouts.cached_files import size_in_words

    size, limit_bytes = size_in_words(sum(entry.byte_count for entry in entries)), opened.limit_bytes
    bound = "no limit" if limit_bytes is None else f"limited to {size_in_words(limit_bytes)}"
    click.echo(f"{opened.directory}: {size}, {bound}")


def _time(time: datetime) -> str:
    """Return the time of a day that is today, else the day."""
    is_today = time.date() == datetime.now(time.tzinfo).date()
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d")
