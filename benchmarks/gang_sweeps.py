"""What changes how good slot policies are: slots, ONES's penalty, errors of prediction, faults and spikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relaqs_lab.cli.studies import both_parts
from relaqs_lab.records.comparison import policy_rows
from relaqs_lab.records.simulated_runs import GANG_MEASURES, GangRun
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.gang_study import KnownPasses, Table2
from relaqs_lab.simulation.machines.table2 import ARRIVAL_SECONDS
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.gang_setups import (
    CHECKPOINT,
    COLUMNS,
    LIVE,
    NODE_SLOTS,
    USUAL,
    Setup,
    cells,
    change,
    mean_seconds,
)

WIDTH = 130
OWN_PASS = ("deploy", "own_pass")
FREE = ("sigma", 0.0)
POLICIES = (  # label, name, seconds a rescale, parameters
    ("tiresias", "tiresias", CHECKPOINT, ()),
    ("optimus", "optimus", CHECKPOINT, ()),
    ("ones", "ones", LIVE, ()),
    ("ones, σ = 0, own pass", "ones", LIVE, (FREE, OWN_PASS)),
    ("sia", "sia", CHECKPOINT, ()),
    ("completion_rate", "completion_rate", LIVE, ()),
)
OTHERS = {"tiresias", "optimus"}  # those that the paper compares ONES with
SLOTS = (16, 32, 48, 64)
LOADS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("equal arrivals", lambda slots: ARRIVAL_SECONDS),
    ("equal load", lambda slots: ARRIVAL_SECONDS * SLOTS[-1] / slots),
)
PENALTIES = (("0", 0.0), ("λ/16", 1 / 16), ("λ/4", 1 / 4), ("λ", 1.0))
ERRORS = (0.0, 0.5, 1.0)
FAILURES = (2.0, 10.0)  # of each node, in an hour
STRAGGLERS = 10.0
SPIKE_JOBS = 25

BY_SLOTS = tuple(
    Setup(
        f"{label}, {slots} slots, {load}",
        name,
        rescale,
        mix=Table2(arrival_seconds=arrival(slots)),
        parameters=parameters,
        nodes=slots // NODE_SLOTS,
    )
    for load, arrival in LOADS
    for slots in SLOTS
    for label, name, rescale, parameters in POLICIES
)
PENALTY = tuple(
    Setup(
        f"{deploy}, σ = {words}", "ones", parameters=(("sigma", share / ARRIVAL_SECONDS), ("deploy", deploy))
    )
    for deploy in ("all_passes", "own_pass")
    for words, share in PENALTIES
)
PREDICTION = tuple(
    Setup(f"{label}, {words}", name, parameters=(*parameters, *predictor))
    for label, name, parameters in (
        ("ones, σ = 0, own pass", "ones", (FREE, OWN_PASS)),
        ("exact_utilisation", "exact_utilisation", ()),
        ("completion_rate", "completion_rate", ()),
    )
    for words, predictor in (
        ("as predicted", ()),
        *((f"known, error {error:g}", (("predictor", KnownPasses(error)),)) for error in ERRORS),
    )
)
CALM = "no faults"
WRONG: tuple[tuple[str, Faults | None, Table2], ...] = (
    (CALM, None, USUAL),
    *((f"{rate:g} failures an hour", Faults(failures_per_hour=rate), USUAL) for rate in FAILURES),
    (f"{STRAGGLERS:g} slow minutes an hour", Faults(slow_per_hour=STRAGGLERS), USUAL),
    (f"{SPIKE_JOBS} jobs at once", None, replace(USUAL, spike_jobs=SPIKE_JOBS)),
)
FAULTS = tuple(
    Setup(f"{label}, {words}", name, rescale, mix=mix, parameters=parameters, faults=faults)
    for words, faults, mix in WRONG
    for label, name, rescale, parameters in POLICIES
)

Runs = dict[str, list[GangRun]]


def print_by_slots(runs: Runs) -> None:
    """Print means by the number of slots, and what they are relative to those that ONES was compared with."""
    for load, _ in LOADS:
        table = Table(f"mean, s, {load}", *(f"{slots} slots" for slots in SLOTS), box=SIMPLE_HEAD)
        found = {
            label: [runs[f"{label}, {slots} slots, {load}"] for slots in SLOTS]
            for label in _labels(runs, f", {SLOTS[0]} slots, {load}")
        }
        for label, groups in found.items():
            table.add_row(label, *map(mean_seconds, groups))
        for own in [label for label in found if label not in OTHERS]:
            for other in [label for label in found if label in OTHERS]:
                pairs = zip(found[own], found[other], strict=True)
                table.add_row(f"{own}: relative to {other}", *(change(a, b) for a, b in pairs))
        Console(width=WIDTH).print(table)
    print("The paper, 16 to 64 GPUs: 44 to 46 % less than Tiresias, 24 to 42 % less than Optimus.")


def print_rows(runs: Runs) -> None:
    """Print each row with all of its times."""
    table = Table("", *COLUMNS, box=SIMPLE_HEAD)
    for label, group in runs.items():
        table.add_row(label, *cells(group))
    Console(width=WIDTH).print(table)


def print_faults(runs: Runs) -> None:
    """Print means without and with faults, their change, and the rows that were processed again."""
    table = Table("mean, s", *(words for words, *_ in WRONG), box=SIMPLE_HEAD)
    for label in _labels(runs, f", {CALM}"):
        calm = runs[f"{label}, {CALM}"]
        table.add_row(
            label,
            mean_seconds(calm),
            *(_under(runs[f"{label}, {words}"], calm) for words, *_ in WRONG[1:]),
        )
    Console(width=WIDTH).print(table)


def _labels(runs: Runs, ending: str) -> list[str]:
    """Return the policies that were run, by the ending of one of their rows."""
    return [label for label, *_ in POLICIES if f"{label}{ending}" in runs]


def _under(group: Sequence[GangRun], calm: Sequence[GangRun]) -> str:
    lost = policy_rows(group, GANG_MEASURES)[0].figures["lost_share"]
    again = f", {both_parts(lost, 100, '.1f')} % again" if lost.mean > 0 else ""
    return f"{mean_seconds(group)} ({change(group, calm)}{again})"
