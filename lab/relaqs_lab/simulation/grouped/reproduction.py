"""What Harmony's evaluation says, and what comes of the same jobs here: one row a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from relaqs_lab.records.comparison import Figure
from relaqs_lab.records.grouped_comparison import GROUPED_MEASURES, gain
from relaqs_lab.records.grouped_run import GroupedRun
from relaqs_lab.records.side_by_side import over_seeds
from relaqs_lab.simulation.grouped.grouped_study import GroupedCase, HarmonyJobs
from relaqs_lab.simulation.grouped.queries import QueryLoad
from relaqs_lab.simulation.grouped.simulator import GroupedRules

NamedPolicy: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
HARMONY: NamedPolicy = ("harmony", ())
FIFO: NamedPolicy = ("isolated", ())
BACKFILL: NamedPolicy = ("isolated", (("backfill", True),))
HALF: NamedPolicy = ("isolated", (("comp_share", 0.5),))
SHORTEST: NamedPolicy = ("shortest_first", ())
NAIVE: NamedPolicy = ("colocated", ())
LANES: NamedPolicy = ("colocated", (("turns", "fifo"),))
MURI: NamedPolicy = ("muri", ())
IN_MEMORY: NamedPolicy = ("harmony", (("spills", False),))
SHORTEST_HARMONY: NamedPolicy = ("harmony", (("order", "shortest"),))
FIRST_STOP: NamedPolicy = ("harmony", (("stop", "first"),))
FIFO_LANES: NamedPolicy = ("harmony", (("turns", "fifo"),))

MAIN = HarmonyJobs()
COMPLETION, MAKESPAN = "completion_seconds", "makespan_seconds"


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure of the paper, and how it is computed here.

    Attributes:
        what: in words.
        paper: what the paper says; – where it has no such figure.
        policy: whose figure it is.
        measure: one of GROUPED_MEASURES.
        against: where given, the figure is how many times this policy's measure is that of `policy`.
        mix, misled: the jobs, and by how much policies are misled.
        queries: that come beside the jobs.
        is_bare: `policy` has its machines without them, and only `against` has them.
    """

    what: str
    paper: str
    policy: NamedPolicy
    measure: str
    against: NamedPolicy | None = None
    mix: HarmonyJobs = MAIN
    misled: float = 0.0
    queries: QueryLoad | None = None
    is_bare: bool = False

    def cases(self, seed: int) -> list[GroupedCase]:
        """Return what must be simulated for it with one seed."""
        rules = GroupedRules(misled=self.misled, queries=self.queries)
        needed = [(self.policy, replace(rules, queries=None) if self.is_bare else rules)]
        needed += [(self.against, rules)] if self.against is not None else []
        return [
            GroupedCase(name, seed, self.mix, rules=each, parameters=more) for (name, more), each in needed
        ]

    def figure(self, runs: Sequence[GroupedRun]) -> Figure:
        """Return it over all seeds of the runs of all claims."""
        own, *others = (self._runs(case, runs) for case in self.cases(0))
        if others:
            return gain(own, others[0], self.measure)
        return over_seeds([GROUPED_MEASURES[self.measure](run) for run in own])

    def _runs(self, case: GroupedCase, runs: Sequence[GroupedRun]) -> list[GroupedRun]:
        return [run for run in runs if run.workload == case.workload and run.policy == case.label]


def both(
    what: str,
    papers: tuple[str, str],
    policy: NamedPolicy,
    against: NamedPolicy,
    mix: HarmonyJobs = MAIN,
    misled: float = 0,
) -> list[Claim]:
    """Return the claims on the mean time to an end and on the last end."""
    names = (("mean completion", COMPLETION), ("last end", MAKESPAN))
    return [
        Claim(f"{what}, {name}", paper, policy, measure, against, mix, misled)
        for (name, measure), paper in zip(names, papers, strict=True)
    ]


CLAIMS: tuple[Claim, ...] = (
    *both("isolated / Harmony", ("2.11", "1.60"), HARMONY, FIFO),
    *both("isolated with backfill / Harmony", ("–", "–"), HARMONY, BACKFILL),
    *both("isolated at half its time computing / Harmony", ("–", "–"), HARMONY, HALF),
    *both("shortest first with backfill / Harmony", ("–", "–"), HARMONY, SHORTEST),
    *both("Muri / Harmony", ("–", "–"), HARMONY, MURI),
    *both("Muri / Harmony by the shortest", ("–", "–"), SHORTEST_HARMONY, MURI),
    *both("isolated / naive pairs", ("1.12", "1.10"), NAIVE, FIFO),
    *both("isolated / naive pairs that take turns", ("–", "–"), LANES, FIFO),
    *both("isolated / Harmony without the disk", ("–", "–"), IN_MEMORY, FIFO),
    *both("isolated / Harmony with FIFO lanes", ("–", "–"), FIFO_LANES, FIFO),
    *both("isolated / Harmony that stops at once", ("–", "–"), FIRST_STOP, FIFO),
    Claim("U_cpu of Harmony", "0.932", HARMONY, "cpu_share"),
    Claim("U_net of Harmony", "0.831", HARMONY, "net_share"),
    Claim("use by Harmony / by isolated", "1.65", FIFO, "use", HARMONY),
    Claim("concurrent jobs", "27.2", HARMONY, "jobs_mean"),
    Claim("groups", "6.7", HARMONY, "groups_mean"),
    Claim("mean α", "0.34", HARMONY, "spilled_mean"),
    Claim("share of time that is moving", "< 0.02", HARMONY, "moving_share"),
    Claim("error of the model, mean", "–", HARMONY, "model_error_mean"),
    Claim("error of the model, p95", "< 0.05", HARMONY, "model_error_p95"),
    *both("60 computing jobs", ("2.31", "1.58"), HARMONY, FIFO, HarmonyJobs(mix="computing")),
    *both("60 communicating jobs", ("1.83", "1.57"), HARMONY, FIFO, HarmonyJobs(mix="communicating")),
    *both("one job every 8 minutes", ("2.01", "1.56"), HARMONY, FIFO, HarmonyJobs("poisson")),
    *both("bursts", ("2.02", "1.57"), HARMONY, FIFO, HarmonyJobs("bursts")),
    *both("times up to 7.5 % off", ("> 1.90", "> 1.44"), HARMONY, FIFO, misled=0.075),
    *both("times up to 30 % off", ("–", "–"), HARMONY, FIFO, misled=0.3),
)
"""All rows, in the order of the paper."""


def cases_of_claims(seeds: int, claims: Sequence[Claim] = CLAIMS) -> list[GroupedCase]:
    """Return all simulations that claims need, each once, seed after seed."""
    found = [case for seed in range(seeds) for claim in claims for case in claim.cases(seed)]
    return list({case.key: case for case in found}.values())
