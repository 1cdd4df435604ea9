"""Policies side by side: what each makes of the same jobs, over several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from relaqs_lab.records.comparison import Figure


class PolicyRun(Protocol):
    """What was measured of one policy with one seed."""

    @property
    def policy(self) -> str:
        """Its name, and what differs from its defaults."""

    @property
    def seed(self) -> int:
        """That drew the jobs."""

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""


_Run = TypeVar("_Run", bound=PolicyRun)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in one setting. figures: by the names of measures, over seeds."""

    policy: str
    seeds: tuple[int, ...]
    figures: dict[str, Figure]


def by_setting(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs by setting, in the order in which settings first come."""
    groups: dict[tuple[object, ...], list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return list(groups.values())


def by_policy(runs: Sequence[_Run]) -> dict[str, list[_Run]]:
    """Return the runs by policy, in the order in which policies first come."""
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.policy, []).append(run)
    return groups


def policy_rows(runs: Sequence[_Run], measures: Mapping[str, Callable[[_Run], float]]) -> list[PolicyRow]:
    """Return one row a policy over the runs of one setting. Policies keep their order."""
    return [
        PolicyRow(
            policy,
            tuple(run.seed for run in own),
            {name: over_seeds([measure(run) for run in own]) for name, measure in measures.items()},
        )
        for policy, own in by_policy(runs).items()
    ]


def ratio_to(reference: Sequence[_Run], runs: Sequence[_Run], measure: Callable[[_Run], float]) -> Figure:
    """Return how many times that of a reference a measure of runs is: the mean over the seeds of both."""
    theirs = {run.seed: measure(run) for run in reference}
    return over_seeds([measure(run) / theirs[run.seed] for run in runs if run.seed in theirs])


def over_seeds(values: Sequence[float]) -> Figure:
    """Return the mean over seeds, unknown if one seed's is: leaving it out would flatter the policy."""
    return Figure.of(values) if all(map(math.isfinite, values)) else Figure(math.nan, math.nan)
