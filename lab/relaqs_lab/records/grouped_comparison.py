"""What is told of jobs that shared machines in groups, and policies of groups side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relaqs_lab.records.comparison import Figure
from relaqs_lab.records.grouped_run import GROUPED_NUMBERS, QUERY_NUMBERS, GroupedRun
from relaqs_lab.records.side_by_side import PolicyRow, by_policy, policy_rows, ratio_to

GROUPED_MEASURES: dict[str, Callable[[GroupedRun], float]] = {
    "completion_seconds": lambda run: run.completion_mean,
    "makespan_seconds": lambda run: run.makespan_seconds,
    "use": lambda run: run.use,
    "waited_most_hours": lambda run: run.waited_most_seconds / 3600,
    **{name: lambda run, name=name: float(getattr(run, name)) for name in (*GROUPED_NUMBERS, *QUERY_NUMBERS)},  # type: ignore[misc]
}
"""What is told of a run: one number each. NaN where a job did not end."""

GAINS = {"completion_gain": "completion_seconds", "makespan_gain": "makespan_seconds"}
"""Figures that say how many times as long the first policy took: a measure by its figure's name."""


def compare_grouped(runs: Sequence[GroupedRun]) -> list[PolicyRow]:
    """Return one row a policy over the runs of one setting; GAINS compare others with the first one."""
    own = by_policy(runs)
    first = next(iter(own.values()))
    return [
        replace(
            row,
            figures=row.figures
            | {name: gain(own[row.policy], first, measure) for name, measure in GAINS.items()},
        )
        for row in policy_rows(runs, GROUPED_MEASURES)
    ]


def gain(runs: Sequence[GroupedRun], reference: Sequence[GroupedRun], measure: str) -> Figure:
    """Return how many times a measure of other runs is that of these, the mean over the seeds of both."""
    return ratio_to(runs, reference, GROUPED_MEASURES[measure])
