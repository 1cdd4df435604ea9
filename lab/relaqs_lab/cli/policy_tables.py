"""What `relaqs simulate` prints of policies side by side: a table for people, or rows for other programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.policies.by_name import PolicyError
from relaqs_lab.records.comparison import Figure
from relaqs_lab.records.side_by_side import PolicyRow, PolicyRun
from relaqs_lab.records.store import json_value

WIDTH = 120  # columns of a table where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """Which figure of a policy stands in a column, and how.

    Attributes:
        heading: of the column.
        measure: the figure's name.
        form: of the number, as in an f-string.
        scale: what the figure is multiplied by first, 100 for shares in percent.
        unit: stands behind it.
    """

    heading: str
    measure: str
    form: str
    scale: float = 1.0
    unit: str = ""

    def cell(self, row: PolicyRow) -> str:
        """Return what stands in that column of a row."""
        return figure_cell(row.figures[self.measure], self.scale, self.form, self.unit)


def figure_cell(figure: Figure, scale: float, form: str, unit: str = "") -> str:
    """Return a mean and its standard error in a cell; a dash where the mean is not known."""
    return "–" if figure.mean != figure.mean else both_parts(figure, scale, form) + unit


def both_parts(figure: Figure, scale: float, form: str) -> str:
    """Return a mean and its standard error as people read them; the mean alone where there is one seed."""
    mean = f"{figure.mean * scale:{form}}"
    if figure.standard_error != figure.standard_error:
        return mean
    return f"{mean} ± {figure.standard_error * scale:{form}}"


def named_policies(text: str, make: Callable[[str], object], example: str) -> list[str]:
    """Return the policies named in a comma-separated list, each once.

    Args:
        make: makes a policy of a name, or raises PolicyError with the names that are accepted.
        example: of such a list.

    Raises:
        BadParameter: of --policies.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter(f"no policy is named; give some, e.g. {example}", param_hint="--policies")
    for name in names:
        try:
            make(name)
        except PolicyError as error:
            raise click.BadParameter(str(error), param_hint="--policies") from error
    return names


def policy_cells(row: PolicyRow, columns: Sequence[FigureColumn]) -> tuple[str, ...]:
    """Return the cells of a policy's row, its name first."""
    return (row.policy, *(column.cell(row) for column in columns))


def print_policies(
    rows: Sequence[PolicyRow],
    output: str,
    *,
    setting: str,
    columns: Sequence[FigureColumn],
    caption: str,
    **more: object,
) -> None:
    """Print the policies of one setting.

    Args:
        output: `table`, or anything else for one JSON object a row: each figure, and its standard error.
        setting: what it is, in a line.
        columns: of the table.
        caption: what stands below the table.
        more: is in each JSON object, too.
    """
    if output == "table":
        table = Table(
            title=setting, box=SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0)
        )
        table.add_column("policy", no_wrap=True)
        for column in columns:
            table.add_column(column.heading, justify="right")
        for row in rows:
            table.add_row(*policy_cells(row, columns))
        console().print(table)
        return
    for row in rows:
        errors = {f"{name}_error": figure.standard_error for name, figure in row.figures.items()}
        means = {name: figure.mean for name, figure in row.figures.items()}
        of_row = {"policy": row.policy, "seeds": list(row.seeds), **means, **errors}
        print_json({"setting": setting, **more, **of_row})


def print_json(values: Mapping[str, object]) -> None:
    """Print an object in a line. What is not a number becomes null."""
    click.echo(json.dumps(json_value(values), allow_nan=False))


def console(width: int = WIDTH) -> Console:
    """Return where tables go: as wide as the terminal, or of so many columns where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def seeds_of(runs: Sequence[PolicyRun]) -> str:
    """Return how many seeds runs have, in words."""
    seeds = len({run.seed for run in runs})
    return f"{seeds} seed{'' if seeds == 1 else 's'}"
