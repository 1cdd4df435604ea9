"""A progress bar for commands that take a while: on standard error, and only where a person watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(*, is_measured: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Yield a function that shows which share of the whole, in 0..1, is done, and what is being done.

    is_measured: whether the share is known. If not, the bar shows only that something is done.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:28}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0 if is_measured else None)
        yield lambda share, doing: bar.update(task, description=doing, completed=share)
