"""What a session offers for code of the user's own: loops that are paced, and functions that it runs.

`Session` is one of these. Nothing of the loops is loaded before the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaqs_engine.errors import UnsupportedError

from relaqs.executors import Executor
from relaqs.jobs.checkpoint import SECONDS_BETWEEN, Keeping, RunKeeper, begun
from relaqs.jobs.runner import RunningJobs

if TYPE_CHECKING:
    from relaqs.pacing.function_run import Call, FunctionRun, ReadsRows, RunGoals
    from relaqs.pacing.paced_loop import Pacer, QueryPacer
    from relaqs.pacing.trials import PrunerWord, SearchRun


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
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = SECONDS_BETWEEN,
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
            checkpoint: a file that is not there yet. What the function saves is kept in it, for `resume`.
            checkpoint_seconds: between two states that are kept, at least.

        Raises:
            ArgumentError: an argument is not accepted, or the function cannot be pickled.
            RelaqsError: the checkpoint cannot be written.

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
        from relaqs.pacing.function_run import Call, FunctionRecipe, RunGoals

        self._check_open()
        program = Call(function, dict(arguments or {}), name)
        recipe = FunctionRecipe(program, RunGoals(until, within, timeout, priority))
        run: FunctionRun = begun(recipe, self, Keeping(checkpoint, checkpoint_seconds))
        return run

    def _function_run(self, program: Call, goals: RunGoals, keeper: RunKeeper) -> FunctionRun:
        """Return the run of a function, not started."""
        from relaqs.pacing.function_run import FunctionRun

        return FunctionRun(program, goals, self._executor, self._readable, self._running, keeper)

    def search(
        self,
        model: Any,
        space: Mapping[str, Any],
        sql: str | None = None,
        *,
        trials: int = 16,
        abreast: int | None = None,
        stop: PrunerWord | None = "forecast",
        until: float | None = None,
        within: float | None = None,
        timeout: float | None = None,
        priority: float = 1.0,
        seed: int = 0,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = SECONDS_BETWEEN,
        **asked: Any,
    ) -> SearchRun:
        """Start many runs of a model or a function with other parameters each, and return the search at once.

        Cores go to the trials that may win, and the others are ended. A model is judged by rows that are held
        out: by its loss, or, where it is trained by passes over all rows, by the share that it tells wrongly.

        Args:
            model: an estimator of scikit-learn that `fit` takes, or a function that `run` takes.
            space: for each parameter a list of values, or a distribution such as scipy.stats.loguniform.
            sql: the SELECT of the rows, for a model.
            trials: how many there are at most.
            abreast: how many at the same time. Default: two for each core.
            stop: which trials end early: those without a chance by the "forecast" of their losses, by "asha",
                by "median" stopping; or None.
            until: the loss at which the search ends.
            within: the seconds in which each trial is wanted. Policies see them.
            timeout: the seconds after which the search ends.
            priority: of the first trial. The others have less of it.
            seed: of the parameters that are drawn.
            checkpoint: a file that is not there yet. It keeps the states of all trials, for `resume`.
            checkpoint_seconds: between two states that are kept, at least.
            asked: what else `fit` takes, such as target= and passes=.

        Raises:
            ArgumentError: an argument is not accepted, or the model or the function cannot be pickled.
            RelaqsError: the checkpoint cannot be written.

        >>> import duckdb, relaqs
        >>> rows = duckdb.sql("SELECT i / 500 - 1 AS x, i >= 500 AS late FROM range(1000) AS t(i)")
        >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
        >>> from sklearn.linear_model import SGDClassifier
        >>> with relaqs.connect("warehouse", threads=2) as db:
        ...     model, space = SGDClassifier(loss="log_loss"), {"alpha": [1e-4, 1e-2, 1.0]}
        ...     search = db.search(model, space, "SELECT x, late FROM points", target="late", passes=5)
        ...     best = search.result()
        >>> len(search.trials), search.best.parameters["alpha"] == best.alpha
        (3, True)
        """
        from relaqs.pacing.trials import SearchGoals, SearchRecipe, check_fit, drawn_parameters

        self._check_open()
        check_fit(model, sql)
        most = 2 * self._executor.capacity if abreast is None else abreast
        goals = SearchGoals(trials, most, stop, until, timeout, priority, seed)
        drawn = tuple(drawn_parameters(space, trials, seed))
        recipe = SearchRecipe(model, drawn, sql, goals, {"within": within, **asked})
        search: SearchRun = begun(recipe, self, Keeping(checkpoint, checkpoint_seconds))
        return search

    def pace(self, *, priority: float = 1.0, target_loss: float | None = None, name: str = "a loop") -> Pacer:
        """Let a loop of your own take turns with other work: in its `with`, call `pacer.report(loss)`.

        Args:
            priority: the loop's weight beside queries and training.
            target_loss: the loss at which `report` says to stop.
            name: for people.

        Raises:
            UnsupportedError: on a cluster, whose cores a loop of this process does not use.

        >>> with db.pace(target_loss=0.3) as pacer:
        ...     step = 1
        ...     while pacer.report(1 / step):
        ...         step += 1
        >>> pacer.losses[-1] <= 0.3
        True
        """
        from relaqs.pacing.paced_loop import Pacer

        self._check_can_pace()
        asked = {"priority": priority, "name": name, "running": self._running}
        return Pacer(self._executor, target_loss=target_loss, **asked)

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

        >>> with db.pace_query(["late"], target="5%") as pacer:
        ...     pacer.report_result({"airport": ["JFK"], "late": [12.1]}, 0.1, error=0.2)
        True
        """
        from relaqs.pacing.paced_loop import QueryPacer

        self._check_can_pace()
        asked = {"priority": priority, "name": name, "running": self._running}
        return QueryPacer(self._executor, columns, target=target, **asked)

    def _check_can_pace(self) -> None:
        from relaqs.executors.threads import ThreadExecutor

        self._check_open()
        if not isinstance(self._executor, ThreadExecutor):
            raise UnsupportedError(
                f"a loop of this process cannot take turns with {self._executor.describe()}; pace it in a "
                "session without a cluster"
            )
