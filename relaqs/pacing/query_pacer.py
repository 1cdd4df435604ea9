"""The door for another incremental query engine: it reports results, and is scheduled like ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.arrow_arrays import doubles

from relaqs.arguments import ArgumentError, relative_error
from relaqs.jobs.executor import Executor
from relaqs.jobs.runner import RunningJobs
from relaqs.pacing.paced_loop import TURN_SECONDS, PacedLoop, Reported
from relaqs.progress import Cells, ResultDelta
from relaqs.sharing.view import Kind


class QueryPacer(PacedLoop):
    """A paced loop that computes approximate results of one query, each over more of the data.

    `Session.pace_query` makes one.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> db = relaqs.connect("data", threads=1)
    >>> with db.pace_query(["late"]) as pacer:
    ...     pacer.report_result({"airport": ["JFK", "LGA"], "late": [12.1, 10.2]}, 0.1)
    ...     pacer.report_result({"airport": ["JFK", "LGA"], "late": [11.8, 10.4]}, 0.2)
    True
    True
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
        """Report a result over a share of the data. Return whether to go on, as `report` does.

        Args:
            result: a table by the Arrow capsule interface (pyarrow, pandas, polars, DuckDB), or a mapping of
                names to values of the columns. NaN or NULL is a cell that does not count yet.
            fraction: the share of the data that was read, in (0, 1].
            error: the relative error of the result, where the engine knows it. Otherwise it follows from how
                far results move.

        Raises:
            ArgumentError: the result has no such columns of numbers, or the fraction is not a share.
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
    """The relative error of results, estimated from how far they move, for engines that do not know it.

    The mean of a sample of a share f of the data has variance σ²(1/f − 1). Between two shares f < g it moves
    with variance σ²(1/f − 1/g). So every move is an estimate of σ, relative to the value. We use the mean
    square of all moves of all cells so far. Example: a mean that moved by 2 % between 10 % and 20 % of the
    data has σ = 0.02 / √5, and a standard error of 1.8 % at 20 %."""

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
