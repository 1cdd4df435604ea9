"""Studies of group policies: cases of policy, workload and seed, and the claims of Harmony's evaluation.

A claim is a row: what the paper says, and what comes of the same jobs here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from relaqs.policies.registry import policy_in_words
from relaqs_lab.group_policies import make_group_policy
from relaqs_lab.groups import GroupPolicy
from relaqs_lab.records.comparison import Figure, over_seeds
from relaqs_lab.records.simulated_runs import GROUPED_MEASURES, GroupedRun, gain
from relaqs_lab.simulation.grouped.grouped_simulator import GroupedOutcome, GroupedRules, simulate_groups
from relaqs_lab.simulation.grouped.grouped_workload import (
    ITERATION_SPREAD,
    ITERATIONS_SPREAD,
    PAPER_FLEET,
    Arrivals,
    GroupedJob,
    Mix,
    harmony_jobs,
)
from relaqs_lab.simulation.grouped.queries import QueryLoad


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


LOSS = "loss_mean_seconds"
PROGRESS: NamedPolicy = ("harmony_progress", ())
LOSS_ALONE: NamedPolicy = ("harmony_progress", (("end", 0.0),))
EIGHT_HOURS: NamedPolicy = ("harmony_progress", (("longest_wait_seconds", 28_800.0),))
CLIMBED: NamedPolicy = ("harmony", (("refined", "climb"),))
IN_MEMORY_ALONE: NamedPolicy = ("isolated", (("comp_share", 0.99),))
SIXTEEN: NamedPolicy = ("isolated", (("machines", 16),))

BASELINES: tuple[Claim, ...] = (
    *both("alone, 50 % computing / Harmony", ("2.11", "1.60"), HARMONY, HALF),
    *both("alone, 56 % computing / Harmony", ("2.11", "1.60"), HARMONY, FIFO),
    *both(
        "alone, 65 % computing / Harmony",
        ("2.11", "1.60"),
        HARMONY,
        ("isolated", (("comp_share", 0.65),)),
    ),
    *both("alone, as few machines as its memory / Harmony", ("2.11", "1.60"), HARMONY, IN_MEMORY_ALONE),
    *both("alone, 16 machines / Harmony", ("2.11", "1.60"), HARMONY, SIXTEEN),
    *(
        claim
        for spread, counts in ((0.3, 0.3), (0.6, 0.6), (0.9, 0.3), (1.2, 0.6))
        for name, baseline in (("56 % computing", FIFO), ("16 machines", SIXTEEN))
        for claim in both(
            f"spreads {spread:g} and {counts:g}: alone, {name} / Harmony",
            ("2.11", "1.60"),
            HARMONY,
            baseline,
            HarmonyJobs(iteration_spread=spread, iterations_spread=counts),
        )
    ),
    *(
        claim
        for minutes, papers in ((2, ("–", "–")), (4, ("–", "–")), (8, ("2.01", "1.56")))
        for name, baseline in (("56 % computing", FIFO), ("16 machines", SIXTEEN))
        for claim in both(
            f"one job every {minutes} minutes: alone, {name} / Harmony",
            papers,
            HARMONY,
            baseline,
            HarmonyJobs("poisson", arrival_seconds=60.0 * minutes),
        )
    ),
)
"""What Harmony gains by the readings of its baseline and of its jobs, which the paper does not give."""

_POISSON = HarmonyJobs("poisson")
PROGRESS_CLAIMS: tuple[Claim, ...] = (
    Claim("loss: by progress / Harmony", "–", HARMONY, LOSS, PROGRESS),
    Claim("loss: by progress / Harmony by the shortest", "–", SHORTEST_HARMONY, LOSS, PROGRESS),
    Claim("loss: by progress / shortest first", "–", SHORTEST, LOSS, PROGRESS),
    *both("shortest first / by progress", ("–", "–"), PROGRESS, SHORTEST),
    *both("Muri / by progress", ("–", "–"), PROGRESS, MURI),
    *both("Harmony / by progress", ("–", "–"), PROGRESS, HARMONY),
    *both("Harmony by the shortest / by progress", ("–", "–"), PROGRESS, SHORTEST_HARMONY),
    Claim("longest wait, hours: by progress", "–", PROGRESS, "waited_most_hours"),
    Claim("longest wait, hours: bound at 8", "–", EIGHT_HOURS, "waited_most_hours"),
    Claim("longest wait, hours: Harmony", "–", HARMONY, "waited_most_hours"),
    Claim("longest wait, hours: shortest first", "–", SHORTEST, "waited_most_hours"),
    Claim("waits bound at 8 hours, loss: by progress / Harmony", "–", HARMONY, LOSS, EIGHT_HOURS),
    *both("waits bound at 8 hours: shortest first / by progress", ("–", "–"), EIGHT_HOURS, SHORTEST),
    Claim("ends count nothing, loss: by progress / Harmony", "–", HARMONY, LOSS, LOSS_ALONE),
    *both("ends count nothing: shortest first / by progress", ("–", "–"), LOSS_ALONE, SHORTEST),
    Claim("one job every 8 minutes, loss: by progress / Harmony", "–", HARMONY, LOSS, PROGRESS, _POISSON),
    *both("one job every 8 minutes: shortest first / by progress", ("–", "–"), PROGRESS, SHORTEST, _POISSON),
    Claim("times up to 30 % off, loss: by progress / Harmony", "–", HARMONY, LOSS, PROGRESS, misled=0.3),
    *both("times up to 30 % off: shortest first / by progress", ("–", "–"), PROGRESS, SHORTEST, misled=0.3),
    *both("Harmony / Harmony that climbs", ("–", "–"), CLIMBED, HARMONY),
    Claim("U_cpu of Harmony that climbs", "–", CLIMBED, "cpu_share"),
)
"""What it brings to go by the fall of the loss, and what climbing brings to Harmony."""

QUERY_CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for load in (QueryLoad(), QueryLoad(every_seconds=150.0))
    for name, policy in (("Harmony", HARMONY), ("isolated", FIFO), ("shortest first", SHORTEST))
    for claim in (
        *(
            Claim(f"{load} beside {name}: {what}", "–", policy, measure, queries=load)
            for what, measure in (
                ("error over time / at equal shares", "query_error_ratio"),
                ("time to exact / at equal shares", "query_time_ratio"),
                ("seconds to exact", "query_seconds_mean"),
                ("share of the cores", "query_share"),
            )
        ),
        *(
            Claim(
                f"{load}: {name} with / without, {what}",
                "–",
                policy,
                measure,
                policy,
                queries=load,
                is_bare=True,
            )
            for what, measure in (("mean completion", COMPLETION), ("last end", MAKESPAN))
        ),
    )
)
"""What queries get beside jobs in groups, and what they cost these."""

STUDIES: dict[str, tuple[Claim, ...]] = {
    "harmony:paper": CLAIMS,
    "harmony:baselines": BASELINES,
    "harmony:progress": PROGRESS_CLAIMS,
    "harmony:queries": QUERY_CLAIMS,
}
"""By their names on the command line."""
