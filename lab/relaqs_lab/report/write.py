"""Writes the report of a folder of records: figures, tables and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from relaqs_engine.errors import DataError

from relaqs_lab.cli.simulate import RECORDS as SIMULATIONS
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.records.gang_run import GangRun
from relaqs_lab.records.store import RUNS, SCHEDULES
from relaqs_lab.report.alone import alone
from relaqs_lab.report.exhibit import Exhibit, Part
from relaqs_lab.report.gangs import gangs
from relaqs_lab.report.page import page
from relaqs_lab.report.predicted import predicted
from relaqs_lab.report.shared import shared
from relaqs_lab.report.trained import training_schedules

PAGE = "report.html"
FIGURES = "figures"


def write_report(folder: Path) -> Path:
    """Return the page made from a folder's records: beside it figures as SVG and PNG, and tables as Parquet.

    Raises DataError if there are no records, or broken ones.
    """
    runs = list(RecordFile(folder / RUNS).read(QueryRun.kind_of_record, QueryRun.of_record))
    schedules = [
        run
        for name in (SCHEDULES, SIMULATIONS)
        for run in RecordFile(folder / name).read(ScheduleRun.kind_of_record, ScheduleRun.of_record)
    ]
    elastic = list(RecordFile(folder / SIMULATIONS).read(GangRun.kind_of_record, GangRun.of_record))
    if not runs and not schedules and not elastic:
        raise DataError(
            f"{folder} has no records; make some with `relaqs tpch run --data DIR --out {folder}` and "
            f"`relaqs tpch schedule --data DIR --out {folder}`"
        )
    sections: list[tuple[str, Sequence[Part]]] = [
        ("One query alone", alone(runs)),
        ("Many jobs at once, really run", shared(schedules, "live")),
        ("Many jobs at once, simulated", shared(schedules, "simulated")),
        ("Prediction and training", [*predicted(runs), *training_schedules(schedules)]),
        ("Elastic jobs on machines", gangs(elastic)),
    ]
    _write_figures(folder / FIGURES, [each for _, found in sections for each in found])
    _write_tables(folder, runs, schedules)
    facts = [run.circumstances for records in (runs, schedules, elastic) for run in records]
    (folder / PAGE).write_text(page(sections, facts, folder), encoding="utf-8")
    return folder / PAGE


def _write_figures(folder: Path, exhibits: Sequence[Part]) -> None:
    folder.mkdir(exist_ok=True)
    for each in exhibits:
        if isinstance(each, Exhibit):
            (folder / f"{each.name}.svg").write_text(each.picture.standalone_svg, encoding="utf-8")
            (folder / f"{each.name}.png").write_bytes(each.picture.png)


def _write_tables(folder: Path, runs: Sequence[QueryRun], schedules: Sequence[ScheduleRun]) -> None:
    """Write what the records hold as two flat tables: steps of runs alone, and jobs of shared runs."""
    steps = [
        {"name": run.name, "scale": run.scale, "seed": run.seed, "run": run.run, "step": step, **row}
        for run in runs
        for step, row in enumerate(pa.table(run.steps.as_record()).to_pylist())
    ]
    jobs = [
        {
            "source": run.source,
            "policy": run.policy,
            "seed": run.seed,
            "mean_arrival_seconds": run.arrival_seconds,
            "job": name,
            "kind": kind.name.lower(),
            "arrival_seconds": arrival,
            "first_seconds": first,
            "completion_seconds": completion,
            "error_seconds": error,
            "seconds_to_70": reduced[0],
            "seconds_to_90": reduced[1],
            "seconds_to_95": reduced[2],
        }
        for run in schedules
        for name, kind, arrival, first, completion, error, reduced in zip(
            run.jobs.names,
            run.jobs.kinds,
            run.jobs.arrival_seconds,
            run.jobs.first_seconds,
            run.jobs.completion_seconds,
            run.jobs.error_seconds,
            run.jobs.reduced_seconds,
            strict=True,
        )
    ]
    for name, rows in (("steps", steps), ("jobs", jobs)):
        if rows:
            pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
