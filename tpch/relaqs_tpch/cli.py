"""The commands under `relaqs tpch`. Imported by the program only when one of them is asked for.

`run` and `schedule` are in modules of their own. `report` makes figures and a page of records.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from relaqs_engine.layouts import Layout
from rich.console import Console
from rich.table import Table

from relaqs.cli.parameters import format_option
from relaqs.cli.reading import progress_bar
from relaqs_tpch.cli_run import run_command
from relaqs_tpch.cli_schedule import schedule_command
from relaqs_tpch.data import generate
from relaqs_tpch.warehouse import DEFAULT_OUT, QUERIES, query


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


@click.group("tpch", short_help="TPC-H: data, queries, measurements.")
def tpch() -> None:
    """TPC-H data, queries, measurements. Figures made here are not comparable to official TPC-H results."""


tpch.add_command(run_command)
tpch.add_command(schedule_command)
tpch.add_command(report_command)


@tpch.command("generate", short_help="Make the eight tables, laid out.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Scale factor: 1 is 6 million lineitem rows.",
)
@click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path), required=True, help="Warehouse folder."
)
@click.option("--partitions", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Which random order the rows get.")
@click.option("--force", is_flag=True, help="Replace tables that are there.")
@click.option("--keep-raw", is_flag=True, help="Keep the generator's own Parquet files, in INTO/tpch-raw.")
@click.option(
    "--second-layouts",
    is_flag=True,
    help="Also lay five tables out by part or customer key, for queries that join or group by these.",
)
def generate_command(
    scale: float, into: Path, partitions: int, seed: int, force: bool, keep_raw: bool, second_layouts: bool
) -> None:
    """Make the eight tables, laid out; lineitem and orders co-clustered by order key.

    Stopped, it goes on where it stopped when it is started again. Second layouts are added to data that is
    there by the same command with --second-layouts.
    """
    with progress_bar() as show:
        layouts = generate(
            scale,
            into,
            partitions=partitions,
            seed=seed,
            force=force,
            keep_raw=keep_raw,
            second_layouts=second_layouts,
            progress=show,
        )
    Console().print(_listing(layouts))


@tpch.command("queries", short_help="Print the 22 queries.")
@format_option("SQL text, or one JSON object a query.", ("sql", "jsonl"))
def queries_command(output: str) -> None:
    """Print the 22 queries, as SQL or as one JSON object a line: {"query": 1, "sql": "…"}."""
    for number in QUERIES:
        sql = query(number)
        click.echo(
            json.dumps({"query": number, "sql": sql}) if output == "jsonl" else f"-- Q{number}\n{sql};\n"
        )


def _listing(layouts: dict[str, Layout]) -> Table:
    table = Table("table", "rows", "stored as")
    table.columns[1].justify = "right"
    for name, layout in layouts.items():
        stored = "static"
        if layout.is_sampled:
            unit = f"clustered by {', '.join(layout.cluster_key)}" if layout.cluster_key else "rows"
            stored = f"{len(layout.partitions)} partitions, {unit}"
        table.add_row(name, f"{layout.row_count:,}", stored)
    return table
