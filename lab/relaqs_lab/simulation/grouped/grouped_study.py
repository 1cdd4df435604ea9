"""A study of group policies: cases of policy, workload and seed, each simulated to its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from relaqs.policies.by_name import policy_in_words
from relaqs_lab.group_policies.registry import make_group_policy
from relaqs_lab.groups.policy import GroupPolicy
from relaqs_lab.records.grouped_run import GroupedRun
from relaqs_lab.simulation.grouped.outcome import GroupedOutcome
from relaqs_lab.simulation.grouped.simulator import GroupedRules, simulate_groups
from relaqs_lab.simulation.grouped.workload import (
    ITERATION_SPREAD,
    ITERATIONS_SPREAD,
    PAPER_FLEET,
    Arrivals,
    GroupedJob,
    Mix,
    harmony_jobs,
)


@dataclass(frozen=True, slots=True)
class HarmonyJobs:
    """The jobs of Harmony's evaluation. Fields as in `harmony_jobs`.

    >>> str(HarmonyJobs(arrivals="poisson"))
    'the 80 jobs of Harmony, one every 480 s'
    """

    arrivals: Arrivals = "at once"
    mix: Mix = "all"
    arrival_seconds: float = 480.0
    iteration_spread: float = ITERATION_SPREAD
    iterations_spread: float = ITERATIONS_SPREAD

    def __str__(self) -> str:
        chosen = "the 80 jobs of Harmony" if self.mix == "all" else f"the 60 most {self.mix} jobs of Harmony"
        if (self.iteration_spread, self.iterations_spread) != (ITERATION_SPREAD, ITERATIONS_SPREAD):
            chosen += f" with spreads {self.iteration_spread:g} and {self.iterations_spread:g}"
        every = f"one every {self.arrival_seconds:g} s"
        return f"{chosen}, {every if self.arrivals == 'poisson' else self._others(every)}"

    def _others(self, every: str) -> str:
        return "all at once" if self.arrivals == "at once" else f"{every} in bursts"

    def jobs(self, seed: int) -> tuple[GroupedJob, ...]:
        return harmony_jobs(seed, **asdict(self))


@dataclass(frozen=True, slots=True)
class GroupedCase:
    """One simulation. parameters: those of the policy that differ from its defaults."""

    policy: str
    seed: int
    mix: HarmonyJobs = field(default_factory=HarmonyJobs)
    machines: int = PAPER_FLEET.machines
    rules: GroupedRules = field(default_factory=GroupedRules)
    parameters: tuple[tuple[str, Any], ...] = ()

    def made(self) -> GroupPolicy:
        return make_group_policy(self.policy, **dict(self.parameters))

    @property
    def label(self) -> str:
        """The policy's name, and what differs from its defaults."""
        return policy_in_words(self.policy, self.parameters)

    @property
    def workload(self) -> str:
        """The jobs and the rules, in words."""
        words = [str(self.mix)]
        words += [f"{self.rules.noise:.0%} noise"] if self.rules.noise else []
        words += [f"told times up to {self.rules.misled:.1%} off"] if self.rules.misled else []
        words += [str(self.rules.queries)] if self.rules.queries is not None else []
        return ", ".join(words)

    @property
    def key(self) -> tuple[object, ...]:
        """As in `GroupedRun.key`, known before it has run."""
        return (self.workload, self.machines, self.label, self.seed)


def run_grouped_case(
    case: GroupedCase, circumstances: dict[str, Any], stopwatch: Callable[[], float]
) -> GroupedRun:
    """Return the record of one case. The same case gives the same record but for the time of decisions."""
    outcome = simulate_groups(
        case.mix.jobs(case.seed),
        case.made(),
        replace(PAPER_FLEET, machines=case.machines),
        case.rules,
        seed=case.seed,
        stopwatch=stopwatch,
    )
    errors = outcome.model_errors
    return GroupedRun(
        policy=case.label,
        seed=case.seed,
        workload=case.workload,
        machines=case.machines,
        arrival_seconds=outcome.arrival_seconds,
        completion_seconds=outcome.completion_seconds,
        cpu_share=outcome.cpu_share,
        net_share=outcome.net_share,
        jobs_mean=outcome.jobs_mean,
        groups_mean=outcome.groups_mean,
        spilled_mean=outcome.spilled_mean,
        moving_share=outcome.moving_share,
        loss_mean_seconds=float(outcome.loss_seconds.mean()),
        waited_most_seconds=float(outcome.waited_seconds.max()),
        model_error_mean=float(errors.mean()) if len(errors) else np.nan,
        model_error_p95=float(np.percentile(errors, 95)) if len(errors) else np.nan,
        decision_ms_mean=float(outcome.decision_seconds.mean() * 1e3),
        circumstances=circumstances,
        **_of_queries(outcome, case.machines),
    )


def _of_queries(outcome: GroupedOutcome, machines: int) -> dict[str, float]:
    """Return the fields of a record that tell of queries."""
    queries = outcome.queries
    if queries is None or not len(queries.seconds):
        return {}
    return {
        "query_seconds_mean": float(queries.seconds.mean()),
        "query_time_ratio": float(queries.seconds.sum() / queries.equal_seconds.sum()),
        "query_error_ratio": float(queries.error_seconds.sum() / queries.equal_error_seconds.sum()),
        "query_share": queries.machine_seconds / (machines * outcome.makespan_seconds),
    }
