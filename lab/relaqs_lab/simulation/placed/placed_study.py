"""A study of placed policies: cases of policy, scenario, stop rule and seed, each simulated to its record."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from relaqs.policies.registry import make_placed_policy, policy_in_words
from relaqs.sharing.parts import NodeResources, PlacedPolicy
from relaqs_lab.mlf_rl import Mlfs, PlacedLoadControl
from relaqs_lab.records.simulated_runs import PlacedRun, PlacedTimes
from relaqs_lab.simulation.placed.placed_simulator import PlacedOutcome, PlacedRules, simulate_placed
from relaqs_lab.simulation.placed.placed_workload import Scenario
from relaqs_lab.simulation.workload import EarlyStops


@dataclass(frozen=True, slots=True)
class PlacedCase:
    """One simulation.

    Attributes:
        stop: who may end a job early by MLF-C's rule: "own", only a policy that has it itself, as in MLFS's
            evaluation; "same", every policy; "none", nobody.
        parameters: those of the policy that differ from its defaults.
    """

    policy: str
    seed: int
    scenario: Scenario
    stop: EarlyStops = "own"
    nodes: int = 20
    node_devices: int = 4
    rules: PlacedRules = field(default_factory=PlacedRules)
    parameters: tuple[tuple[str, Any], ...] = ()

    def made(self) -> PlacedPolicy:
        """Return the policy, with the rule of stopping that the case says."""
        policy = make_placed_policy(self.policy, **dict(self.parameters))
        if isinstance(policy, Mlfs):
            return policy.inner if self.stop == "none" else policy
        return PlacedLoadControl(policy) if self.stop == "same" else policy

    @property
    def label(self) -> str:
        """The policy's name, and what differs from its defaults: of weights, what is in their file."""
        differs = [
            (name, _weights_in_words(value) if name == "weights" else value)
            for name, value in self.parameters
        ]
        return policy_in_words(self.policy, differs)

    @property
    def workload(self) -> str:
        """The jobs and the rules of time, in words."""
        rules = self.rules
        words = f"{self.scenario}, a plan every {rules.period_seconds:g} s, "
        words += "free moves" if rules.moves.are_free else f"{rules.moves.restart_seconds:g} s a restart"
        words += f", demands ± {100 * rules.swing:g} %" if rules.swing else ""
        words += f", {len(rules.faults)} faults of nodes" if rules.faults else ""
        return words if math.isinf(rules.until_seconds) else f"{words}, until {rules.until_seconds:g} s"

    @property
    def key(self) -> tuple[object, ...]:
        """As in `PlacedRun.key`, known before it has run."""
        jobs = self.scenario.jobs
        return (self.workload, self.stop, self.nodes, self.node_devices, jobs, self.label, self.seed)


def run_placed_case(
    case: PlacedCase, circumstances: dict[str, Any], stopwatch: Callable[[], float]
) -> PlacedRun:
    """Return the record of one case. The same case gives the same record but for the time of decisions."""
    outcome = simulate_placed(
        case.scenario.workload(case.seed),
        case.made(),
        NodeResources.equal(case.nodes, case.node_devices),
        case.rules,
        seed=case.seed,
        stopwatch=stopwatch,
    )
    decisions = outcome.decision_seconds if len(outcome.decision_seconds) else np.array([math.nan])
    return PlacedRun(
        policy=case.label,
        seed=case.seed,
        workload=case.workload,
        stop=case.stop,
        nodes=case.nodes,
        node_devices=case.node_devices,
        jobs=placed_times_of(outcome),
        overloads=outcome.overloads,
        placed_moves=outcome.placed_moves,
        plans=len(outcome.decision_seconds),
        decision_ms_mean=float(decisions.mean() * 1e3),
        decision_ms_most=float(decisions.max() * 1e3),
        circumstances=circumstances,
    )


def placed_times_of(outcome: PlacedOutcome) -> PlacedTimes:
    """Return what a record keeps of an outcome's jobs."""
    return PlacedTimes(
        names=outcome.names,
        arrival_seconds=outcome.arrival_seconds,
        completion_seconds=outcome.completion_seconds,
        deadline_seconds=outcome.deadline_seconds - outcome.arrival_seconds,
        urgency=outcome.urgency,
        executed_seconds=outcome.executed_seconds,
        accuracy=outcome.accuracy,
        accuracy_at_deadline=outcome.accuracy_at_deadline,
        accuracy_required=outcome.accuracy_required,
        iterations_share=outcome.iterations_done / outcome.iterations_most,
        preemptions=outcome.preemptions,
        sent_bytes=outcome.sent_bytes,
    )


def _weights_in_words(path: str) -> str:
    """Return a file's name and a checksum: other weights may have the same name later."""
    return f"{Path(path).name} {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8]}"
