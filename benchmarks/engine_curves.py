"""Progress of TPC-H queries as the engine reports it to the scheduler, query by query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from relaqs_tpch.warehouse import query

from benchmarks.live import Driver, LiveJob
from relaqs.executors.threads import usable_cores
from relaqs.queries.online_query import OnlineQuery
from relaqs.session import Session
from relaqs.sharing.view import Kind

APART_SECONDS = 1e6  # on a clock that skips what nobody works in: one query after another
FEWEST_MOVES = 8  # answers that are exact early, or never certified, leave nothing to predict


@dataclass(frozen=True, slots=True)
class EngineCurve:
    """One run of a query. fraction: scanned after each step but the last, which ends it; progress: P_i there.

    Shape (steps,) each; the progress is NaN where no cell was followed.
    """

    name: str
    fraction: NDArray[np.float64]
    progress: NDArray[np.float64]


def engine_curves(data: Path, batches: int | None, seed: int) -> list[EngineCurve]:
    """Return a run of every query that is estimated. batches: so many equal ones; None: they grow."""

    def start(number: int, session: Session) -> OnlineQuery:
        return session.online_sql(query(number), seed=seed, batches=batches)

    jobs = [LiveJob(f"Q{number}", Kind.QUERY, partial(start, number)) for number in range(1, 23)]
    with Driver(data, usable_cores(), "fair", "work") as driver:
        run = driver.run(jobs, np.arange(len(jobs), dtype=np.float64) * APART_SECONDS)
    curves = [
        EngineCurve(
            each.job.name,
            np.array([report.work_done or np.nan for report in each.reports[:-1]]),
            np.array([report.progress for report in each.reports[:-1]]),
        )
        for each in run.finished
    ]
    return [curve for curve in curves if np.count_nonzero(curve.progress > 0) > FEWEST_MOVES]
