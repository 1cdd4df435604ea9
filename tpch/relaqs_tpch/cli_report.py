"""`relaqs tpch report`: from records to figures and a page."""

from __future__ import annotations

from pathlib import Path

import click

from relaqs_tpch.parameters import DEFAULT_OUT


@click.command("report", short_help="Draw figures and a page from what was measured.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUT,
    show_default=True,
    metavar="DIR",
    help="Folder of the records; the page goes there.",
)
def report_command(out: Path) -> None:
    """Draw the figures of the ReLAQS thesis and of SLAQ from the records in OUT, and put them in a page.

    Writes OUT/report.html, which needs nothing else, each figure as SVG and PNG to OUT/figures, and the
    records as Parquet. What `relaqs simulate --out OUT` computed is drawn, too. Needs matplotlib:
    pip install 'relaqs[tpch]'.
    """
    from relaqs_lab.report.write import write_report

    click.echo(f"Wrote {write_report(out)}")
