"""The door for another incremental query engine: it reports results, and is scheduled like ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.execution.arrays import doubles

from relaqs.arguments import ArgumentError, relative_error
from relaqs.jobs.executor import Executor
from relaqs.jobs.running import RunningJobs
from relaqs.pacing.paced_job import Reported
from relaqs.pacing.paced_loop import TURN_SECONDS, PacedLoop
from relaqs.progress import Cells, ResultDelta
from relaqs.sharing.view import Kind


class QueryPacer(PacedLoop):
    """A paced loop that computes approximate results of one query, each over more of the data.

    `Session.pace_query` makes one.
    """

    def __init__(
        self,
        executor: Executor,
        columns: Sequence[str],
        *,
        priority: float = 1.0,
        target: float | str | None = None,
        name: str = "a query",
        turn_seconds: float = TURN_SECONDS,
        running: RunningJobs | None = None,
    ) -> None:
        """Set it up.

        Args:
            executor: whose cores it takes turns on.
            columns: those of its results that are approximate and count; the others tell groups apart.
            priority: its weight beside other jobs.
            target: the relative error at which `report_result` says to stop.
            name: for people, e.g. the SQL.
            turn_seconds: how long it may compute before a report ends its turn.
            running: the jobs of its session.
        """
        super().__init__(
            executor,
            Kind.QUERY,
            priority=priority,
            quality_target=relative_error(target),
            name=name,
            turn_seconds=turn_seconds,
            running=running,
        )
        self._columns = tuple(columns)
        self._moved = ResultDelta()
        self._movement = Movement()

    def report_result(self, result: Any, fraction: float, *, error: float | None = None) -> bool:
        """Report a result over a share of the data, in (0, 1]. Return whether to go on, as `report` does.

        result: a table by the Arrow capsule interface (pyarrow, pandas, polars, DuckDB), or name → values of
        the columns; NaN or NULL for a cell that does not count yet. error: its relative error, where the
        engine knows it; else it is told from how far results move. Raises ArgumentError for what is no such
        result.
        """
        if not 0 < fraction <= 1:
            raise ArgumentError(f"fraction is {fraction!r}; it must be the share of the data read, in (0, 1]")
        cells = self._cells(result)
        estimated = self._movement.error(cells, fraction)
        quality = estimated if error is None else float(error)
        return self._note(Reported(quality, fraction, self._moved.update(cells)))

    def _checked_target(self, target: Any) -> float | None:
        return relative_error(target)

    def _cells(self, result: Any) -> Cells:
        try:
            table = pa.table(dict(result) if isinstance(result, Mapping) else result)
            values = np.stack([doubles(table.column(name)) for name in self._columns], axis=1)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise ArgumentError(
                f"the result has no numbers in {list(self._columns)} ({error}); give a table, or names and "
                "values, of which these are columns"
            ) from error
        keys = [table.column(name).to_pylist() for name in table.column_names if name not in self._columns]
        rows = [repr(row) for row in zip(*keys, strict=True)] if keys else [""] * table.num_rows
        try:
            return Cells(tuple(rows), values, np.isfinite(values))
        except ValueError as error:
            raise ArgumentError(f"{error}; the keys are the columns beside {list(self._columns)}") from error


class Movement:
    """The relative error of results, told from how far they move, for engines that do not know it.

    The mean of a sample of a share f of the data has variance σ²(1/f − 1), and moves between two shares by
    σ²(1/f − 1/g). So every move tells σ, relative to the value; the mean square of all cells' moves so far
    is taken for all of them.
    """

    def __init__(self) -> None:
        self._before: dict[object, FloatArray] = {}
        self._fraction = 0.0
        self._squares, self._moves = 0.0, 0

    def error(self, cells: Cells, fraction: float) -> float:
        """Return the relative standard error of the next result, inf before a second one."""
        if 0 < self._fraction < fraction:
            self._learn(cells, 1 / self._fraction - 1 / fraction)
        self._before = dict(zip(cells.keys, cells.values, strict=True))
        self._fraction = fraction
        if fraction >= 1:
            return 0.0
        return math.sqrt(self._squares / self._moves * (1 / fraction - 1)) if self._moves else math.inf

    def _learn(self, cells: Cells, apart: float) -> None:
        for key, now in zip(cells.keys, cells.values, strict=True):
            if (before := self._before.get(key)) is not None:
                with np.errstate(divide="ignore", invalid="ignore"):
                    squares = ((now - before) / now) ** 2 / apart
                known = np.isfinite(squares)
                self._squares += float(squares[known].sum())
                self._moves += int(known.sum())
