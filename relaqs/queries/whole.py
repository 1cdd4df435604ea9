"""A query that runs as a whole, as a job of one task."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.execution.estimate import Estimate, present_exact
from relaqs_engine.plans.plan import WholePlan

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.reporting import Reporter, arrow_of, own_columns


class WholeQueryJob:
    """Runs the query once, whole, as one task: for queries without a sound approximation."""

    batch_count = 1
    fractions = (1.0,)

    def __init__(
        self,
        id: str,
        plan: WholePlan,
        *,
        database_config: DatabaseConfig,
        step: int = 0,
        core_seconds: float = math.inf,
    ) -> None:
        """Make a job.

        Args:
            id: its name.
            plan: how the query is answered.
            database_config: of the database that it runs in.
            step: the index of its only step, where it ends a job that has others before it.
            core_seconds: what reading its tables is predicted to take; inf: unknown.
        """
        self.id = id
        self._step = step
        self.latest: Estimate | None = None
        self._plan = plan
        self._config = database_config
        self._core_seconds = core_seconds
        self._is_issued = False

    @property
    def folded(self) -> int:
        return 0 if self.latest is None else 1

    def next_step(self) -> Step | None:
        if self._is_issued:
            return None
        self._is_issued = True
        work = QueryWork(self._config, (), self._plan.exact_sql, self._plan.exact_reads)
        key, cores = TaskKey(self.id, self._step, 0), self._config.threads
        return Step(self._step, (Task(key, work, cores, whole_seconds=self._core_seconds),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self.fold_state(step, results)
        assert self.latest is not None
        return Reporter(None).report(step, results, self.latest)

    def close(self) -> None:
        """Do nothing: there is no state."""

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        self.latest = present_exact(self._plan, arrow_of(results[0]))
        return True

    @property
    def population_rows(self) -> int:
        return 0

    def scanned_fraction(self) -> float:
        return 1.0

    def source(self) -> pa.Table:
        assert self.latest is not None  # one step, which is the first of all parts'
        return own_columns(self.latest)
