"""`relaqs tpch run`: each query alone, and DuckDB beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click
from relaqs_engine.errors import DataError
from relaqs_lab.cli.studies import console, print_json, said_if_stopped
from relaqs_lab.records import QueryRun, RecordFile, circumstances
from relaqs_lab.records.store import RUNS
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs.cli.parameters import command_words, format_option
from relaqs.cli.reading import progress_bar
from relaqs.executors.threads import usable_cores
from relaqs.sharing.view import Kind
from relaqs_tpch.run import Bench, Measurement
from relaqs_tpch.warehouse import QUERIES, Warehouse, algorithms, out_option, query_numbers

NOT_OFFICIAL = "Unaudited: no figure here is comparable to an official TPC-H result."
CAPTION = (
    "Medians over runs and seeds. Seconds to the first snapshot, until every certified interval is within "
    "±5 % and ±1 %, to the exact answer, and DuckDB's on the same files. off: the first snapshot's true "
    "error, the mean over cells. held: of the certified cells, over all snapshots but the last, those whose "
    "interval had the exact value in it. Every last answer equals DuckDB's. "
) + NOT_OFFICIAL


@click.command("run", short_help="Measure each query alone, and DuckDB beside it.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Warehouse made by `relaqs tpch generate`.",
)
@click.option("--queries", default="", metavar="NUMBERS", help="Comma-separated, e.g. 1,6. Default: all 22.")
@click.option(
    "--training",
    metavar="NAMES",
    help="Algorithms, semicolon-separated, or all, or none. Default: all, or none with --queries.",
)
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Of each seed.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Orders of the data.")
@click.option("--threads", type=click.IntRange(min=1), default=usable_cores, show_default="all cores")
@out_option
@format_option()
def run_command(
    data: Path,
    queries: str,
    training: str | None,
    runs: int,
    seeds: int,
    threads: int,
    out: Path,
    output: str,
) -> None:
    """Measure each query alone: how soon it is how good, how good its intervals are, and DuckDB beside it.

    A query is run once before it is measured. Records go to OUT/run.jsonl as they are made: stopped, the same
    command goes on from there. `relaqs simulate --traces` replays them.
    """
    numbers = query_numbers(queries) or list(QUERIES)
    names = [*(f"Q{number}" for number in numbers), *algorithms(training, is_default=not queries)]
    warehouse = Warehouse.open(data)
    file = RecordFile(out / RUNS)
    done = _kept(file, warehouse, threads)
    wanted = [Measurement(name, seed, run) for name in names for seed in range(seeds) for run in range(runs)]
    missing = [each for each in wanted if (each.name, each.seed, each.run) not in done]
    facts = circumstances(command_words()).as_record()
    with said_if_stopped(file), progress_bar() as show, Bench(warehouse, threads, facts) as bench:
        for count, run in enumerate(bench.measure(missing), start=1):
            file.append(QueryRun.kind_of_record, run.as_record())
            done[run.name, run.seed, run.run] = run
            show(count / len(missing), f"measured {run.name}")
    _print([done[each.name, each.seed, each.run] for each in wanted], output)


def _kept(file: RecordFile, warehouse: Warehouse, threads: int) -> dict[tuple[str, int, int], QueryRun]:
    """Return what was measured before on data laid out as it is now, with as many threads.

    Raises DataError if that was on data of another scale.
    """
    kept = {}
    for run in file.read(QueryRun.kind_of_record, QueryRun.of_record):
        if not math.isclose(run.scale, warehouse.scale) and not (
            math.isnan(run.scale) and math.isnan(warehouse.scale)
        ):
            raise DataError(
                f"{file.path} has runs on data of scale {run.scale:g}, and {warehouse.folder} is of scale "
                f"{warehouse.scale:g}; give another --out, or --data of the same scale"
            )
        if run.threads == threads and run.data == warehouse.contents:
            kept[run.name, run.seed, run.run] = run
    return kept


def _print(runs: Sequence[QueryRun], output: str) -> None:
    if output == "jsonl":
        for run in runs:
            print_json(figures(run))
        return
    console().print(_table(runs))


def figures(run: QueryRun) -> dict[str, Any]:
    """Return the figures of one run, for other programs."""
    steps = run.steps
    return {
        "name": run.name,
        "scale": run.scale,
        "seed": run.seed,
        "run": run.run,
        "threads": run.threads,
        "mode": run.mode,
        "first_seconds": run.first_seconds,
        "within_5_seconds": run.seconds_within(0.05),
        "within_1_seconds": run.seconds_within(0.01),
        "exact_seconds": run.exact_seconds,
        "duckdb_seconds": run.duckdb_seconds,
        "core_seconds": run.core_seconds,
        "first_true_error": steps.true_error[0],
        "coverage": run.coverage,
        "snapshots": {
            "fraction": steps.work_done,
            "elapsed_seconds": steps.elapsed_seconds,
            "error": steps.quality,
            "true_error": steps.true_error,
        },
    }


def _table(runs: Sequence[QueryRun]) -> Table:
    table = Table(box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("job", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for heading in ("first", "±5 %", "±1 %", "exact", "DuckDB", "off", "held", "snapshots"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in dict.fromkeys(run.name for run in runs):
        table.add_row(*_row([run for run in runs if run.name == name]))
    return table


def _row(runs: Sequence[QueryRun]) -> list[str]:
    first = runs[0]
    trains = first.kind is Kind.TRAINING
    certified = sum(float(run.steps.certified[:-1].sum()) for run in runs)
    held = sum(float(run.steps.held[:-1].sum()) for run in runs)
    return [
        first.name,
        first.mode,
        f"{median(run.first_seconds for run in runs):.3f}",
        *(
            "–" if trains else f"{median(run.seconds_within(error) for run in runs):.2f}"
            for error in (0.05, 0.01)
        ),
        f"{median(run.exact_seconds for run in runs):.2f}",
        "–" if trains else f"{median(run.duckdb_seconds for run in runs):.2f}",
        "–" if trains else f"{median(float(run.steps.true_error[0]) for run in runs):.1%}",
        f"{held / certified:.1%}" if certified else "–",
        f"{median(len(run.steps.work_done) for run in runs):.0f}",
    ]
