"""What a session can pace: loops of the user's own, beside queries and training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from relaqs_engine.errors import UnsupportedError

from relaqs.jobs.executor import Executor
from relaqs.jobs.runner import RunningJobs

if TYPE_CHECKING:
    from relaqs.pacing.pacer import Pacer
    from relaqs.pacing.query_pacer import QueryPacer


class MayBeClosed(Protocol):
    """What is asked of a session's planner."""

    def check_open(self) -> None: ...


class PacesLoops:
    """The part of a `Session` that paces loops."""

    _executor: Executor
    _running: RunningJobs
    _planner: MayBeClosed

    def pace(self, *, priority: float = 1.0, target_loss: float | None = None, name: str = "a loop") -> Pacer:
        """Let a loop of your own take turns with other work: in its `with`, call `pacer.report(loss)`.

        Args:
            priority: the loop's weight beside queries and training.
            target_loss: the loss at which `report` says to stop.
            name: for people.

        Raises:
            UnsupportedError: on a cluster, whose cores a loop of this process does not use.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> with db.pace(target_loss=0.3) as pacer:
        ...     step = 1
        ...     while pacer.report(1 / step):
        ...         step += 1
        >>> pacer.losses[-1] <= 0.3
        True
        """
        from relaqs.pacing.pacer import Pacer

        self._check_can_pace()
        return Pacer(
            self._executor, priority=priority, target_loss=target_loss, name=name, running=self._running
        )

    def pace_query(
        self,
        columns: Sequence[str],
        *,
        priority: float = 1.0,
        target: float | str | None = None,
        name: str = "a query",
    ) -> QueryPacer:
        """Let another incremental query engine take turns: it calls `pacer.report_result(table, fraction)`.

        Args:
            columns: the approximate columns of its results that count.
            priority: its weight beside other jobs.
            target: the relative error at which `report_result` says to stop.
            name: for people, such as the SQL.

        Raises:
            UnsupportedError: on a cluster, as `pace` does.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> with db.pace_query(["late"], target="5%") as pacer:
        ...     pacer.report_result({"airport": ["JFK"], "late": [12.1]}, 0.1, error=0.2)
        True
        """
        from relaqs.pacing.query_pacer import QueryPacer

        self._check_can_pace()
        return QueryPacer(
            self._executor, columns, priority=priority, target=target, name=name, running=self._running
        )

    def _check_can_pace(self) -> None:
        from relaqs.executors.threads import ThreadExecutor

        self._planner.check_open()
        if not isinstance(self._executor, ThreadExecutor):
            raise UnsupportedError(
                f"a loop of this process cannot take turns with {self._executor.describe()}; pace it in a "
                "session without a cluster"
            )
