"""A warehouse with TPC-H in it: its scale, its queries that can be estimated, and sessions over it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import LayoutError
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.sql.binder import Binder

from relaqs.executors import Executor
from relaqs.memory import machine_memory_bytes
from relaqs.session import Session
from relaqs_tpch import record
from relaqs_tpch.queries import QUERIES, query
from relaqs_tpch.tables import TABLES

MEMORY_SHARE = 0.5  # of the machine's, for all sessions of a process together


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder of TPC-H tables. scale: NaN where `relaqs tpch generate` did not make it."""

    folder: Path
    catalog: Catalog
    scale: float

    @classmethod
    def open(cls, folder: Path) -> Warehouse:
        """Return the warehouse. Raises LayoutError if tables of TPC-H are missing, or half made."""
        catalog = Catalog.open(folder)
        missing = [table.name for table in TABLES if table.name not in catalog.tables]
        if missing:
            raise LayoutError(
                f"{folder} has no {', '.join(missing)}; make the tables with "
                f"`relaqs tpch generate --scale 1 --into {folder}`"
            )
        made = record.read(folder)
        return cls(folder, catalog, math.nan if made is None else made.recipe.scale)

    @property
    def label(self) -> str:
        return self.folder.name if math.isnan(self.scale) else f"scale {self.scale:g}"

    @property
    def contents(self) -> str:
        """Which data this is, and how it is laid out, in words: where they are equal, so are the answers."""
        alike: dict[tuple[int, int], list[str]] = {}
        for layout in self.catalog.layouts:
            if layout.is_sampled:
                alike.setdefault((len(layout.partitions), layout.seed), []).append(layout.table)
        sampled = [
            f"{', '.join(tables)} in {partitions} partitions of seed {seed}"
            for (partitions, seed), tables in alike.items()
        ]
        return f"{self.label} with {' and '.join(sampled) or 'nothing sampled'}"

    def plans(self, numbers: tuple[int, ...] = QUERIES) -> dict[int, OnlinePlan]:
        """Return how each of these queries is answered here."""
        binder = Binder(self.catalog)
        return {number: plan_query(query(number), self.catalog, binder) for number in numbers}

    def progressive_queries(self) -> list[int]:
        """Return the queries that have estimates before the end."""
        return [number for number, plan in self.plans().items() if plan.is_estimated]

    def session(self, executor: Executor, *, is_embedded: bool, of: int = 1) -> Session:
        """Return a session over it. of: how many sessions share the process's memory."""
        share = MEMORY_SHARE if is_embedded else MEMORY_SHARE / 2
        return Session(
            self.catalog,
            {},
            executor,
            memory_limit_bytes=int(machine_memory_bytes() * share / of),
            exact_threads=executor.capacity if is_embedded else 1,
        )
