"""What a query falls back to when its state is too large, its groups too many, its sample gone: the whole.

Where estimating fails by a fault of ours, the whole is still right, and the fault becomes a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.errors import (
    BrokenDatabaseError,
    MemoryLimitError,
    SqlError,
    TooManyGroupsError,
    fault_of,
    is_fault,
    is_strict,
)
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.executors.intact_files import UnseenFileError
from relaqs.queries.asker import AskingUser
from relaqs.queries.options import QueryOptions
from relaqs.queries.planner import Planner
from relaqs.queries.publisher import Resort
from relaqs.queries.start import query_description
from relaqs.queries.whole import WholeQueryJob

_GONE = "its table was not laid out after all, and the first part of the layout is gone"
_FAULT = "it could not be estimated further, by a fault that should be reported: {}"
_TOO_LARGE = "what is kept of it to estimate from does not fit into the memory limit"


@dataclass(frozen=True, slots=True)
class WholeFallback:
    """Runs a query as a whole after it ran out of memory for its state, or lost the first part it sampled.

    So does one that turns out to be computed from too many groups.

    A query that returns rows has no such fallback: the rows that did not fit are the answer itself.

    Attributes:
        planner: makes the other plan.
        plan: how the query was answered at first.
        options: of the query; with fallback="error" there is no other way.
        asker: who asks.
        job_id: of the job that failed.
        database_config: of the database that runs it as a whole.
    """

    planner: Planner
    plan: OnlinePlan
    options: QueryOptions
    asker: AskingUser
    job_id: str
    database_config: DatabaseConfig

    def after(self, error: Exception, *, has_answered: bool) -> Resort | None:
        """Return how the query goes on, None where it cannot.

        If it goes on as a whole before its first snapshot, it begins so when it is asked again.
        """
        if not (why := self._why_whole(error)):
            return None
        whole, job_id = self.planner.plan_as_whole(self.plan, why), f"{self.job_id}-whole"
        if isinstance(error, TooManyGroupsError) and not has_answered:
            self.planner.note_whole(self.plan, self.options, whole)
        job = WholeQueryJob(job_id, whole, database_config=self.database_config)
        cores = self.database_config.threads
        description = query_description(job_id, whole, self.options, self.asker, exact_cores=cores)
        return Resort(job, whole, description)

    def _why_whole(self, error: Exception) -> str:
        if isinstance(error, UnseenFileError) and self.plan.sample_may_go:
            return _GONE
        if self.options.fallback == "error":
            return ""
        if self.plan.is_estimated and not is_strict() and _is_fault(error):
            return _FAULT.format(fault_of(error))
        if not self.plan.may_run_whole:
            return ""
        if isinstance(error, TooManyGroupsError):
            return error.reason
        return _TOO_LARGE if isinstance(error, MemoryLimitError) else ""


def _is_fault(error: Exception) -> bool:
    """Whether estimating failed and neither the data nor the machine did. The SQL of tasks is our own."""
    return isinstance(error, SqlError | BrokenDatabaseError) or is_fault(error)
