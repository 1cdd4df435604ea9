"""How the words of `relaqs tpch` become queries, algorithms and folders, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from relaqs_tpch.queries import QUERIES
from relaqs_tpch.training import ALGORITHMS, can_train

DEFAULT_OUT = Path("tpch-results")

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUT,
    show_default=True,
    metavar="DIR",
    help="Where records are kept; what they hold already is not measured again.",
)


def query_numbers(text: str) -> list[int]:
    """Return the queries of a comma-separated list, each once; empty for an empty text."""
    numbers = []
    for word in filter(None, (each.strip().lstrip("qQ") for each in text.split(","))):
        if not word.isdigit() or int(word) not in QUERIES:
            raise click.BadParameter(
                f"there is no TPC-H query {word!r}; the queries are {QUERIES[0]} to {QUERIES[-1]}, e.g. 1,6",
                param_hint="--queries",
            )
        numbers.append(int(word))
    return list(dict.fromkeys(numbers))


def algorithms(text: str | None, *, is_default: bool) -> list[str]:
    """Return the training algorithms of a semicolon-separated list; `all`, `none`, or all where default.

    Raises UsageError if the packages to train are missing and algorithms were asked for by name.
    """
    if text == "none" or (text is None and not is_default):
        return []
    if not can_train():
        if text is None:
            click.echo("Training is left out; to measure it, too: pip install 'relaqs[train]'", err=True)
            return []
        raise click.UsageError("training needs more packages: pip install 'relaqs[train]'")
    if text in (None, "all"):
        return list(ALGORITHMS)
    names = [name.strip() for name in str(text).split(";") if name.strip()]
    for name in names:
        if name not in ALGORITHMS:
            near = get_close_matches(name, ALGORITHMS, n=2, cutoff=0.3)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise click.BadParameter(
                f"there is no algorithm {name!r}; {hint}They are: {'; '.join(ALGORITHMS)}",
                param_hint="--training",
            )
    return names


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
