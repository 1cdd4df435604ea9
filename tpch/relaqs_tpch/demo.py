"""`relaqs demo`: TPC-H data, one query that sharpens on screen, and DuckDB beside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from relaqs.queries.snapshot import Snapshot

QUERY = """\
SELECT l_shipmode AS ship_mode, count(*) AS late_alone
FROM lineitem AS item
WHERE l_receiptdate > l_commitdate
    AND NOT EXISTS (
        SELECT * FROM lineitem AS other
        WHERE other.l_orderkey = item.l_orderkey
            AND other.l_suppkey <> item.l_suppkey
            AND other.l_receiptdate > other.l_commitdate
    )
GROUP BY l_shipmode
ORDER BY l_shipmode"""
SMALL_QUERY = "SELECT o_orderstatus AS status, count(*) AS orders FROM orders GROUP BY 1 ORDER BY 1"
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
    default=2.0,
    show_default=True,
    help="Scale of TPC-H: 2 is 12 million rows and 0.5 GB.",
)
def demo(data: Path, scale: float) -> None:
    """Make TPC-H data, ask which items one supplier alone was late with, and watch the answer become exact.

    On a terminal it sharpens in place; anywhere else each snapshot is one line. Plain DuckDB answers the same
    question over the same files, and a small one that no estimate is needed for.
    """
    from relaqs.executors.threads import usable_cores
    from relaqs.opening import connect
    from relaqs_tpch.exact import ExactDuckDB, difference

    _make_data(data, scale)
    click.echo(f"{QUERY}\n")
    milestones = Milestones()
    with connect(data) as session:
        small = [next(session.online_sql(SMALL_QUERY)) for _ in range(2)][
            -1
        ]  # the first loads what estimates
        final = _show(milestones.noting(session.online_sql(QUERY)))
        with ExactDuckDB(session.tables, usable_cores()) as duckdb:
            exact = duckdb.answer(QUERY)
            small_seconds = duckdb.answer(SMALL_QUERY).seconds
    click.echo()
    for line in (*milestones.lines(exact.seconds), *_small_lines(small, small_seconds)):
        click.echo(line)
    if difference(exact.table, final.estimate) is not None:
        raise click.ClickException("the last answer differs from DuckDB's; please report this as a bug")
    click.echo("The last answer equals DuckDB's.")


def _small_lines(small: Snapshot, exact_seconds: float) -> Iterator[str]:
    """Yield what estimates are worth where DuckDB needs no time."""
    yield f"\n{SMALL_QUERY}"
    yield f"{'First estimate:':32}{small.elapsed_seconds:6.2f} s"
    yield f"{'DuckDB, exact or nothing:':32}{exact_seconds:6.2f} s"
    if small.elapsed_seconds > exact_seconds:
        yield "An answer so soon needs no estimate: connect(exact_below_seconds=0.3) gives it at once."


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

    def lines(self, exact_seconds: float) -> Iterator[str]:
        """Yield how soon the answers came. exact_seconds: what DuckDB took."""
        from relaqs.rendering.rounding import show_percent

        named = (("First estimate:", self.first), ("Within ± 1 %:", self.good), ("Exact:", self.exact))
        for name, snapshot in named:
            if snapshot is not None:
                read = show_percent(snapshot.fraction)
                yield f"{name:32}{snapshot.elapsed_seconds:6.2f} s, {read} of the rows read"
        yield f"{'DuckDB, exact or nothing:':32}{exact_seconds:6.2f} s"
        if self.first is not None:
            ratio, error = exact_seconds / self.first.elapsed_seconds, show_percent(self.first.error)
            yield f"The first estimate, within ± {error}, came {ratio:.1f} times as soon as DuckDB's answer."


def _make_data(folder: Path, scale: float) -> None:
    from relaqs.cli.reading import progress_bar
    from relaqs_tpch.data import generate

    is_new = not folder.exists()
    if is_new:
        click.echo(f"Making TPC-H data at scale {scale:g} in {folder}, once.")
    try:
        with progress_bar() as show:
            generate(scale, folder, progress=show)
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _show(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the last snapshot, after showing all that came."""
    from rich.console import Console

    from relaqs.cli.output import as_text, show_live
    from relaqs.rendering.view_model import heading

    if sys.stdout.isatty():
        final = show_live(snapshots, Console())
    else:
        final = None
        for final in snapshots:
            if not final.is_exact:  # its heading stands above its rows
                click.echo(heading(final))
        if final is not None:
            click.echo(as_text(final, sys.stdout))
    assert final is not None, "a query that ends without an error has a last snapshot"
    return final
