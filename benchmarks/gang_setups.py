"""The rows of a study of gangs: a policy with its rules of time, over seeds, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaqs_lab.cli.studies import both_parts, kept_or_computed
from relaqs_lab.records.comparison import policy_rows
from relaqs_lab.records.simulated_runs import GANG_MEASURES, GangRun, relative, share_within
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.gang_study import GangCase, Table2, run_gang_case
from relaqs_lab.simulation.machines.machine_simulator import Timing
from relaqs_lab.simulation.machines.table2 import SOON_SECONDS

CHECKPOINT, LIVE, SLOW = 20.0, 1.0, 30.0  # seconds a rescale
AT_EVENTS, ROUND_SECONDS = 30.0, 600.0
NODE_SLOTS = 4
USUAL = Table2()

COLUMNS = ("mean, s", "execution, s", "queuing, s", "within 200 s", "longest, s", "p99, s", "slots used")


@dataclass(frozen=True, slots=True)
class Setup:
    """A row of a table: a policy, when it plans, what a change costs, on which jobs and which machines."""

    label: str
    policy: str
    rescale_seconds: float = LIVE
    rounds_only: bool = False
    mix: Table2 = USUAL
    parameters: tuple[tuple[str, Any], ...] = ()
    nodes: int = 16
    faults: Faults | None = None

    def cases(self, seeds: int) -> list[GangCase]:
        timing = (
            Timing(ROUND_SECONDS, at_events=False, rescale_seconds=self.rescale_seconds)
            if self.rounds_only
            else Timing(AT_EVENTS, at_events=True, rescale_seconds=self.rescale_seconds)
        )
        return [
            GangCase(
                self.policy, seed, self.mix, self.nodes, NODE_SLOTS, timing, self.parameters, self.faults
            )
            for seed in range(seeds)
        ]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """How a study is run.

    Attributes:
        seeds: the repetitions of each row.
        processes: at once; None: as many as there are cores.
        keep: a file of records, from which the same study goes on.
    """

    seeds: int
    processes: int | None
    keep: Path | None


def studied(setups: Sequence[Setup], options: StudyOptions) -> dict[str, list[GangRun]]:
    """Return the runs of each setup by its label, over seeds."""
    cases = [case for setup in setups for case in setup.cases(options.seeds)]
    runs = iter(kept_or_computed(cases, GangRun, run_gang_case, options.keep, options.processes))
    return {setup.label: [next(runs) for _ in range(options.seeds)] for setup in setups}


def cells(group: Sequence[GangRun]) -> list[str]:
    """Return what is told of a row, under COLUMNS: means over seeds ± standard error."""
    (row,) = policy_rows(group, GANG_MEASURES)
    seconds = [
        both_parts(row.figures[name], 1, ",.0f")
        for name in ("completion_seconds", "executed_seconds", "queuing_seconds")
    ]
    return [
        *seconds,
        both_parts(share_within(group, SOON_SECONDS), 100, ".0f") + " %",
        both_parts(row.figures["longest_seconds"], 1, ",.0f"),
        both_parts(row.figures["completion_seconds_p99"], 1, ",.0f"),
        both_parts(row.figures["used_share"], 100, ".0f") + " %",
    ]


def mean_seconds(group: Sequence[GangRun]) -> str:
    """Return the mean time from arrival to end, over seeds ± standard error."""
    return both_parts(policy_rows(group, GANG_MEASURES)[0].figures["completion_seconds"], 1, ",.0f")


def change(own: Sequence[GangRun], other: Sequence[GangRun], measure: str = "completion_seconds") -> str:
    """Return how much larger a number of some runs is than of others of the same seeds, in per cent."""
    ratio = relative(own, other, measure)
    return f"{100 * (ratio.mean - 1):+.1f} ± {100 * ratio.standard_error:.1f} %".replace("-", "−")
