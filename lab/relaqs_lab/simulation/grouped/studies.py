"""Studies of group policies beside the evaluation of Harmony, each a list of claims."""

from __future__ import annotations

from relaqs_lab.simulation.grouped.grouped_study import HarmonyJobs
from relaqs_lab.simulation.grouped.queries import QueryLoad
from relaqs_lab.simulation.grouped.reproduction import (
    CLAIMS,
    COMPLETION,
    FIFO,
    HALF,
    HARMONY,
    MAKESPAN,
    MURI,
    SHORTEST,
    SHORTEST_HARMONY,
    Claim,
    NamedPolicy,
    both,
)

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
