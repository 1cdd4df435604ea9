"""What each rule of MLF-H brings, and whether slack_index beats mlf_rl, on the same jobs seed by seed.

    python -m benchmarks.placed_ablations [--scenario paper:100@1.5] [--seeds 10] [--records DIR]

10 nodes of 4 devices. A rule is left out, and what MLF-H has with it is told relative to what it has without.
The last table has the two policies at load 0.9 and more, with the same rule of stopping for both, and then
with none: the mean difference over seeds, and the p-value of a paired t-test (scipy.stats.ttest_rel).
--records goes on with a study that was stopped, and uses what `relaqs simulate --out DIR` has kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relaqs_lab.cli.machines import scenario_of
from relaqs_lab.cli.studies import both_parts, kept_or_computed
from relaqs_lab.records.comparison import over_seeds
from relaqs_lab.records.simulated_runs import PLACED_MEASURES, PlacedRun
from relaqs_lab.simulation.placed.placed_study import PlacedCase, run_placed_case
from rich.console import Console
from rich.table import Table
from scipy import stats

from relaqs.placed_policies.mlf_h import PartPriority

NODES, DEVICES = 10, 4
WIDTH = 140  # columns


@dataclass(frozen=True, slots=True)
class Ablation:
    """A rule that is left out, and what MLFS says that it brings: a measure, and the change of it."""

    rule: str
    without: tuple[tuple[str, Any], ...]
    claims: tuple[tuple[str, str], ...]


ABLATIONS = (
    Ablation(
        "urgency",
        (("priority", PartPriority(uses_urgency=False)),),
        (("urgent_deadlines_met", "+22 to +30 %"),),
    ),
    Ablation(
        "deadline", (("priority", PartPriority(gamma_deadline=0.0)),), (("deadlines_met", "+13 to +25 %"),)
    ),
    Ablation(
        "bytes",
        (("uses_traffic", False),),
        (("sent_bytes", "−20 to −35 %"), ("completion_seconds", "−5 to −15 %")),
    ),
    Ablation(
        "migration",
        (("migrates", False),),
        (
            ("overloads", "−36 to −60 %"),
            ("completion_seconds", "−15 to −24 %"),
            ("sent_bytes", "+10 to +14 %"),
        ),
    ),
    Ablation(
        "all paths, not once",
        (("priority", PartPriority(paths="once")),),
        (("completion_seconds", "no claim"), ("deadlines_met", "no claim")),
    ),
)
CONTROL_CLAIMS = (("completion_seconds", "−28 to −42 %"), ("accuracy_met", "+17 to +23 %"))
BEATEN_BY = ("completion_seconds", "deadlines_met", "accuracy_met", "decision_ms")


def studied(
    name: str, base: PlacedCase, seeds: int, records: Path | None, **changes: Any
) -> dict[int, PlacedRun]:
    """Return a policy's runs by seed."""
    cases = [replace(base, policy=name, seed=seed, **changes) for seed in range(seeds)]
    return {run.seed: run for run in kept_or_computed(cases, PlacedRun, run_placed_case, records, 1)}


def changed(runs: dict[int, PlacedRun], reference: dict[int, PlacedRun], measure: str) -> str:
    """Return by how much a measure differs from that of a reference, in percent, the mean over seeds."""
    of = PLACED_MEASURES[measure]
    figure = over_seeds([of(run) / of(reference[seed]) - 1.0 for seed, run in runs.items()])
    return f"{100 * figure.mean:+.1f} ± {100 * figure.standard_error:.1f} %"


def ablation_table(base: PlacedCase, seeds: int, records: Path | None) -> Table:
    """Return what each rule brings."""
    table = Table(title=f"{base.workload}: what a rule brings, beside MLF-H without it; {seeds} seeds")
    for heading in ("rule", "measure", "MLFS says", "here"):
        table.add_column(heading)
    whole = studied("mlf_h", base, seeds, records)
    for each in ABLATIONS:
        without = studied("mlf_h", base, seeds, records, parameters=each.without)
        for measure, claim in each.claims:
            table.add_row(each.rule, measure, claim, changed(whole, without, measure))
    stops = studied("mlf_h", base, seeds, records, stop="same")
    for measure, claim in CONTROL_CLAIMS:
        table.add_row("MLF-C", measure, claim, changed(stops, whole, measure))
    return table


def duel_table(base: PlacedCase, seeds: int, records: Path | None) -> Table:
    """Return what slack_index has beside mlf_rl."""
    table = Table(title=f"{base.workload}: slack_index beside mlf_rl; {seeds} seeds")
    for heading in ("who may stop", "measure", "slack_index", "mlf_rl", "difference", "p"):
        table.add_column(heading)
    for stop in ("same", "none"):
        ours, theirs = (studied(name, base, seeds, records, stop=stop) for name in ("slack_index", "mlf_rl"))
        for measure in BEATEN_BY:
            table.add_row(stop, measure, *_duel(ours, theirs, measure))
    return table


def _duel(ours: dict[int, PlacedRun], theirs: dict[int, PlacedRun], measure: str) -> Sequence[str]:
    of = PLACED_MEASURES[measure]
    scale = 1 / 60 if measure == "completion_seconds" else 100.0 if "met" in measure else 1.0
    one, other = ([scale * of(runs[seed]) for seed in sorted(ours)] for runs in (ours, theirs))
    differences = [a - b for a, b in zip(one, other, strict=True)]
    p = float(stats.ttest_rel(one, other).pvalue)
    cells = [both_parts(over_seeds(values), 1.0, ".2f") for values in (one, other, differences)]
    return [*cells, f"{p:.2g}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenario", default="paper:100@1.5", help="as for `relaqs simulate --placed`")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=Path, help="a folder of records")
    options = parser.parse_args()
    scenario = scenario_of(options.scenario, None, NODES * DEVICES)
    base = PlacedCase("mlf_h", 0, scenario, "none", NODES, DEVICES)
    records = None if options.records is None else options.records / "simulate.jsonl"
    for table in (ablation_table, duel_table):
        Console(width=WIDTH).print(table(base, options.seeds, records))


if __name__ == "__main__":
    main()
