"""Which jobs come when in a live schedule: drawn from a seed, the same for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from relaqs_engine.errors import RelaqsError
from relaqs_lab.simulation.workload import poisson_arrivals

from relaqs_tpch.training import ALGORITHMS
from relaqs_tpch.warehouse import Warehouse

_ARRIVALS, _JOBS = 0, 1  # streams of one seed: who comes does not depend on when


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job to come.

    Attributes:
        number: of the query, None for training by `algorithm`.
        seed: of its own order.
    """

    at_seconds: float
    folder: Path
    label: str
    number: int | None
    algorithm: str
    seed: int

    @property
    def name(self) -> str:
        job = self.algorithm if self.number is None else f"Q{self.number}"
        return f"{job}, {self.label}"


def arrivals(
    warehouses: Sequence[Warehouse],
    queries: Sequence[int],
    *,
    jobs: int,
    mean_seconds: float,
    training_share: float,
    seed: int,
) -> list[Arrival]:
    """Return so many jobs: queries, and this share of training runs, each on one of the warehouses.

    queries: to draw from; empty: all that a warehouse can estimate. Raises RelaqsError if it can estimate
    none.
    """
    random = np.random.default_rng([seed, _JOBS])
    times = poisson_arrivals(np.random.default_rng([seed, _ARRIVALS]), jobs, mean_seconds)
    choices = {each.folder: list(queries) or each.progressive_queries() for each in warehouses}
    for warehouse in warehouses:
        if not choices[warehouse.folder]:
            raise RelaqsError(
                f"none of the queries has estimates on {warehouse.folder}; name some by --queries"
            )
    drawn = []
    for index, at in enumerate(times.tolist()):
        warehouse = warehouses[int(random.integers(len(warehouses)))]
        trains = bool(random.random() < training_share)
        number = int(random.choice(choices[warehouse.folder]))
        algorithm = ALGORITHMS[int(random.integers(len(ALGORITHMS)))]
        drawn.append(
            Arrival(
                at_seconds=at,
                folder=warehouse.folder,
                label=warehouse.label,
                number=None if trains else number,
                algorithm=algorithm if trains else "",
                seed=seed * jobs + index,
            )
        )
    return drawn


def in_words(
    warehouses: Sequence[Warehouse],
    queries: Sequence[int],
    training_share: float,
    *,
    is_on_cluster: bool = False,
) -> str:
    """Return the workload as records name it: equal words, comparable runs."""
    places = "; ".join(warehouse.contents for warehouse in warehouses)
    chosen = "Q" + ", ".join(map(str, queries)) if queries else "all queries with estimates"
    training = f", {100 * training_share:.9g}% training" if training_share else ""
    return f"TPC-H {places}: {chosen}{training}{', on a Dask cluster' if is_on_cluster else ''}"
