"""Prints live runs beside their simulations, for `relaqs simulate --validate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.records import RecordFile, ScheduleRun
from relaqs.records.store import json_value
from relaqs.simulation.validation import AGREES, Agreement, agreement, difference


def validate(path: Path, output: str, *, shared_machine: bool) -> None:
    """Simulate every live run of a file of records, and print both side by side."""
    runs = RecordFile(path).read(ScheduleRun.kind_of_record, ScheduleRun.of_record)
    agreements = [agreement(run, shared_machine=shared_machine) for run in runs if run.source == "live"]
    if not agreements:
        raise click.BadParameter(
            f"{path} has no live runs; `relaqs tpch schedule --data DIR --out OUT` writes them to "
            "OUT/schedule.jsonl",
            param_hint="--validate",
        )
    if output == "jsonl":
        for each in agreements:
            click.echo(json.dumps(json_value(asdict(each)), allow_nan=False))
        return
    off = difference(agreements)
    verdict = "agree" if abs(off) <= AGREES else "do not agree"
    Console().print(
        _table(agreements),
        f"Simulated times to a 90 % reduction are {off:+.1%} off live ones: within {AGREES:.0%}, the two "
        f"{verdict}.",
        highlight=False,
    )


def _table(agreements: Sequence[Agreement]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Live runs, and their simulations")
    times = ("s to 90 %", "simulated", "s to the end", "simulated")
    for heading in ("policy", "seed", "cores", "jobs", *times, "shares apart"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for each in agreements:
        table.add_row(
            each.policy,
            str(each.seed),
            f"{each.cores:.2f}",
            str(each.jobs),
            f"{each.live_reduced:.2f}",
            f"{each.simulated_reduced:.2f}",
            f"{each.live_completed:.2f}",
            f"{each.simulated_completed:.2f}",
            f"{each.share_points * 100:.0f} points",
        )
    return table
