"""What a session offers for code of the user's own: loops that are paced, and functions that it runs.

`Session` is one of these. Nothing of the loops is loaded before the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaqs_engine.errors import UnsupportedError

from relaqs.executors import Executor
from relaqs.jobs.runner import RunningJobs

if TYPE_CHECKING:
    from relaqs.pacing.function_run import FunctionRun, ReadsRows
    from relaqs.pacing.paced_loop import Pacer, QueryPacer


class RunsOwnCode:
    """A session's verbs for code of the user's own."""

    _executor: Executor
    _running: RunningJobs

    def _check_open(self) -> None:
        raise NotImplementedError

    def _readable(self, sql: str, target: str | None) -> ReadsRows:
        """Return how the rows of a SELECT are read, partition by partition."""
        raise NotImplementedError

    def run(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        until: float | None = None,
        within: float | None = None,
        timeout: float | None = None,
        priority: float = 1.0,
        name: str | None = None,
    ) -> FunctionRun:
        """Run a function of your own beside queries and other jobs, and return its run at once.

        The function is called with a `Context`, by which it reads rows, reports losses and keeps its state.
        In a session of this process it runs on a thread. On a Dask cluster it runs on a worker, and gives
        the core back where it saves its state: it is called again then, and `ctx.load()` returns the state.

        Args:
            function: called with a `relaqs.pacing.Context`, and the arguments by name.
            arguments: by name.
            until: the loss at which `ctx.report` says to end.
            within: the seconds in which that is wanted. Policies see them.
            timeout: the seconds after which `ctx.report` says to end. Ten seconds later it is stopped.
            priority: its weight beside queries and other jobs.
            name: for people. By default it is the function's.

        Raises:
            ArgumentError: an argument is not accepted.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> def mean(ctx, start):
        ...     total = count = 0
        ...     for x in ctx.batches("SELECT x FROM numbers", rows=100):
        ...         total, count = total + x.sum(), count + len(x)
        ...         if not ctx.report(abs(total / count - start)):
        ...             break
        ...     return total / count
        >>> run = db.run(mean, {"start": 500.0})
        >>> run.result(), len(run.losses)
        (np.float64(499.5), 10)
        """
        from relaqs.pacing.function_run import Call, FunctionRun, RunGoals

        self._check_open()
        program = Call(function, dict(arguments or {}), name)
        goals = RunGoals(until, within, timeout, priority)
        run = FunctionRun(program, goals, self._executor, self._readable, self._running)
        run.start()
        return run

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
        from relaqs.pacing.paced_loop import Pacer

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
        from relaqs.pacing.paced_loop import QueryPacer

        self._check_can_pace()
        return QueryPacer(
            self._executor, columns, priority=priority, target=target, name=name, running=self._running
        )

    def _check_can_pace(self) -> None:
        from relaqs.executors.threads import ThreadExecutor

        self._check_open()
        if not isinstance(self._executor, ThreadExecutor):
            raise UnsupportedError(
                f"a loop of this process cannot take turns with {self._executor.describe()}; pace it in a "
                "session without a cluster"
            )
