"""What the timed runs of one query come to: medians, their ratios, and which of them are over budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.timed import OnlineRun, PlainRun

# What the project promises of a large table. The exact answer: of one table, and of joins.
FIRST_SECONDS = 0.100
FIRST_SHARE_OF_DUCKDB = 0.03
EXACT_RATIO, EXACT_RATIO_OF_JOINS = 1.15, 1.40
BARS_RATIO = 1.10


@dataclass(slots=True)
class Runs:
    """All runs of one query, those of a kind in the order they were made. cold: the session's first."""

    cold: OnlineRun
    online: list[OnlineRun] = field(default_factory=list)
    without_bars: list[OnlineRun] = field(default_factory=list)
    duckdb: list[PlainRun] = field(default_factory=list)
    duckdb_on_originals: list[PlainRun] = field(default_factory=list)

    @property
    def answers(self) -> list[pa.Table]:
        """Return every answer given, which must all be one."""
        online = [run.answer for run in (self.cold, *self.online, *self.without_bars)]
        return online + [run.answer for run in (*self.duckdb, *self.duckdb_on_originals)]


@dataclass(frozen=True, slots=True)
class Medians:
    """One query. rows: of the streamed table that measures the scan. figures: seconds, and their ratios."""

    number: int
    rows: int
    batches: int
    tasks: int
    is_join: bool
    figures: Mapping[str, float]

    @classmethod
    def of(cls, number: int, rows: int, is_join: bool, runs: Runs) -> Medians:
        online, duckdb = runs.online, runs.duckdb
        first = median(run.first_seconds for run in online)
        exact, plain_exact = (
            median(run.exact_seconds for run in online),
            median(run.seconds for run in duckdb),
        )
        core, plain_core = _core(online), _core(duckdb)
        figures = {
            "first_cold": runs.cold.first_seconds,
            "first": first,
            "first_share": first / plain_exact,
            "within_5": median(run.within_5_seconds for run in online),
            "within_1": median(run.within_1_seconds for run in online),
            "exact_cold": runs.cold.exact_seconds,
            "exact": exact,
            "duckdb": plain_exact,
            "duckdb_on_originals": median(run.seconds for run in runs.duckdb_on_originals),
            "ratio": exact / plain_exact,
            "ratio_core": core / plain_core,
            "ratio_originals": exact / median(run.seconds for run in runs.duckdb_on_originals),
            "bars": exact / median(run.exact_seconds for run in runs.without_bars),
            "bars_core": core / _core(runs.without_bars),
            "core_tasks": median(run.task_core_seconds for run in online),
            "core_else": median(run.other_core_seconds for run in online),
            "core_duckdb": plain_core,
        }
        return cls(number, rows, runs.cold.batches, runs.cold.tasks, is_join, figures)

    @property
    def budgets(self) -> dict[str, float]:
        """Return what each figure with a budget may be at most."""
        return {
            "first": FIRST_SECONDS,
            "first_share": FIRST_SHARE_OF_DUCKDB,
            "ratio": EXACT_RATIO_OF_JOINS if self.is_join else EXACT_RATIO,
            "bars": BARS_RATIO,
        }

    def over_budget(self) -> frozenset[str]:
        return frozenset(name for name, most in self.budgets.items() if self.figures[name] > most)

    def as_record(self) -> dict[str, Any]:
        return {**asdict(self), "budgets": self.budgets, "over_budget": sorted(self.over_budget())}


def _core(runs: Iterable[OnlineRun] | Iterable[PlainRun]) -> float:
    return median(run.core_seconds for run in runs)
