"""`relaqs demo`: TPC-H data, one query that sharpens on screen, and DuckDB beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from relaqs.queries.snapshot import Snapshot

QUERY = """\
SELECT n_name AS nation, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
JOIN orders ON l_orderkey = o_orderkey
JOIN customer ON o_custkey = c_custkey
JOIN nation ON c_nationkey = n_nationkey
JOIN region ON n_regionkey = r_regionkey
WHERE r_name IN ('ASIA', 'EUROPE')
GROUP BY n_name
ORDER BY revenue DESC"""
GOOD_ENOUGH = 0.01


@click.command("demo", short_help="Make data, run a query online and show it sharpen.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-data"),
    show_default=True,
    metavar="DIR",
    help="Where the data is, or is made once.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Scale of TPC-H: 1 is 6 million rows and 0.4 GB.",
)
def demo(data: Path, scale: float) -> None:
    """Make TPC-H data, ask for the revenue of ten nations, and watch the answer become exact.

    On a terminal it sharpens in place; anywhere else each snapshot is one line.
    """
    from relaqs.executors.threads import usable_cores
    from relaqs.opening import connect
    from relaqs_tpch.answers import difference
    from relaqs_tpch.exact import ExactDuckDB

    _make_data(data, scale)
    click.echo(f"{QUERY}\n")
    milestones = Milestones()
    with connect(data) as session:
        final = _show(milestones.noting(session.online_sql(QUERY)))
        with ExactDuckDB(session.tables, usable_cores()) as duckdb:
            exact = duckdb.answer(QUERY)
    click.echo()
    for line in milestones.lines():
        click.echo(line)
    click.echo(f"{'DuckDB, exact or nothing:':32}{exact.seconds:6.2f} s")
    if difference(exact.table, final.estimate) is not None:
        raise click.ClickException("the last answer differs from DuckDB's; please report this as a bug")
    click.echo("The last answer equals DuckDB's.")


@dataclass(slots=True)
class Milestones:
    """The snapshots that show how fast a query was."""

    first: Snapshot | None = None
    good: Snapshot | None = None
    exact: Snapshot | None = None

    def noting(self, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
        for snapshot in snapshots:
            self.first = self.first or snapshot
            if snapshot.error <= GOOD_ENOUGH:
                self.good = self.good or snapshot
            if snapshot.is_exact:
                self.exact = snapshot
            yield snapshot

    def lines(self) -> Iterator[str]:
        from relaqs.rendering.rounding import show_percent

        named = (("First estimate:", self.first), ("Within ± 1 %:", self.good), ("Exact:", self.exact))
        for name, snapshot in named:
            if snapshot is not None:
                read = show_percent(snapshot.fraction)
                yield f"{name:32}{snapshot.elapsed_seconds:6.2f} s, {read} of the rows read"


def _make_data(folder: Path, scale: float) -> None:
    from relaqs.cli.progress import progress_bar
    from relaqs_tpch.data import generate

    if not folder.exists():
        click.echo(f"Making TPC-H data at scale {scale:g} in {folder}, once.")
    with progress_bar() as show:
        generate(scale, folder, progress=show)


def _show(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the last snapshot, after showing all that came."""
    from rich.console import Console

    from relaqs.cli.output import as_text, show_live
    from relaqs.rendering.view import heading

    if sys.stdout.isatty():
        final = show_live(snapshots, Console())
    else:
        final = None
        for final in snapshots:
            click.echo(heading(final))
        if final is not None:
            click.echo(as_text(final, sys.stdout))
    assert final is not None, "a query that ends without an error has a last snapshot"
    return final
