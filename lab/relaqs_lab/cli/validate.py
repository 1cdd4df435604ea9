"""Prints live runs beside their simulations, for `relaqs simulate --validate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from relaqs_lab.cli.policy_tables import console, print_json
from relaqs_lab.records import RecordFile, ScheduleRun
from relaqs_lab.simulation.validation import AGREES, Agreement, agreements, difference, predicted_difference


def validate(path: Path, output: str) -> None:
    """Simulate every live run of a file of records, and print both side by side."""
    found = agreements(list(RecordFile(path).read(ScheduleRun.kind_of_record, ScheduleRun.of_record)))
    if not found:
        raise click.BadParameter(
            f"{path} has no live runs; `relaqs tpch schedule --data DIR --out OUT` writes them to "
            "OUT/schedule.jsonl",
            param_hint="--validate",
        )
    if output == "jsonl":
        for each in found:
            print_json(asdict(each))
        return
    off, predicted = difference(found), predicted_difference(found)
    verdict = "agree" if abs(off) <= AGREES else "do not agree"
    to = console()
    to.print(
        _table(found),
        f"Simulated times to a 90 % reduction are {off:+.1%} off live ones: within {AGREES:.0%}, the two "
        f"{verdict}.",
        highlight=False,
    )
    if math.isfinite(predicted):
        to.print(
            f"Predicted by what the same steps took under the other policies: {predicted:+.1%} off.",
            highlight=False,
        )


def _table(found: Sequence[Agreement]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Live runs, and their simulations")
    times = ("s to first", "simulated", "s to 90 %", "simulated", "predicted", "s to the end", "simulated")
    for heading in ("policy", "seed", "cores", "jobs", *times, "shares apart"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for each in found:
        table.add_row(
            each.policy,
            str(each.seed),
            f"{each.cores:g}",
            str(each.jobs),
            f"{each.live_first:.2f}",
            f"{each.simulated_first:.2f}",
            f"{each.live_reduced:.2f}",
            f"{each.simulated_reduced:.2f}",
            _or_dash(each.predicted_reduced, ".2f"),
            f"{each.live_completed:.2f}",
            f"{each.simulated_completed:.2f}",
            _or_dash(each.share_points * 100, ".0f", " points"),
        )
    return table


def _or_dash(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"
