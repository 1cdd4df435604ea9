"""OnlineQuery: the user's handle of a running query. Iterate it, ask for its result, steer it."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from relaqs_engine.errors import RelaqsError, naming
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.arguments import check_seconds, relative_error
from relaqs.jobs.executor import Executor
from relaqs.jobs.feed import State
from relaqs.jobs.handle import Handle
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.prediction.ahead import Expected
from relaqs.progress import StopReason
from relaqs.queries.publisher import EstimatingJob, Publisher, no_snapshot_within
from relaqs.queries.snapshot import Snapshot


class OnlineQuery(Handle[Snapshot]):
    """A query that is being answered, better and better.

    Each `for` or `async for` gets the newest snapshot each time round. A slow loop skips some. The last
    snapshot always arrives, and over a query that has ended it is the only one. `await query` gives the last
    alone. Leaving a `with` stops the query. So does ctrl-C while waiting for a snapshot, or in asyncio the
    cancelling of a task that waits for one. So does dropping the last reference to the query.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> db = relaqs.connect("data", threads=1)
    >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
    >>> for snapshot in query:
    ...     pass
    >>> snapshot.is_exact
    True
    """

    def __init__(
        self,
        publisher: Publisher,
        job: EstimatingJob,
        executor: Executor,
        description: JobDescription,
        *,
        timeout: float | None = None,
    ) -> None:
        """Set the query up.

        Args:
            publisher: makes snapshots of the job's estimates.
            job: computes the estimates.
            executor: where its tasks run.
            description: what the scheduler learns of it.
            timeout: seconds after which it is stopped.
        """
        runner = JobRunner(job, executor, description, publisher, timeout_seconds=timeout)
        super().__init__(runner, publisher)
        self._publisher = publisher

    @property
    def sql(self) -> str:
        """The SELECT that is being answered.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.sql
        'SELECT sum(x) AS total FROM numbers'
        """
        return self.plan.sql

    @property
    def plan(self) -> OnlinePlan:
        """How the query is answered.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.plan.mode.value
        'mergeable'
        """
        return self._publisher.plan

    @property
    def state(self) -> State:
        """One of waiting, running, paused; at the end stopped, exact or failed.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> snapshot = query.result()
        >>> query.state
        'exact'
        """
        return self._publisher.feed.end or _STATES[self.runner.state]

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it stopped by itself before it was exact: target reached, time is up, no visible change.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers", target="50%")
        >>> snapshots = list(query)
        >>> query.stop_reason.value
        'target reached'
        """
        return self._publisher.stop_reason

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.wait()
        True
        >>> query.latest.is_exact
        True
        """
        return self._publisher.feed.latest

    def expected(self, target: float | str) -> Expected | None:
        """Return when the error will be the target, as the newest snapshot predicts; None before it.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> snapshot = query.result()
        >>> query.expected("1%").seconds
        0.0
        """
        return None if self.latest is None else self.latest.expected(target)

    def pause(self) -> None:
        """Start no more mini-batches. Those that run are finished. The timeout goes on.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.pause()
        >>> query.resume()
        >>> query.result().is_exact
        True
        """
        self._publisher.pause()
        super().pause()

    def resume(self) -> None:
        """Go on after `pause`, whose example shows both."""
        self._publisher.resume()
        super().resume()

    def explain(self) -> str:
        """Return the plan in words and SQL.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> print(query.explain().splitlines()[0])
        mode: mergeable
        """
        from relaqs_engine.plans.explain import explain

        return explain(self.plan)

    def display(self, **look: Any) -> object:
        """Return what a notebook shows of the query while it runs: its chart, as on a dashboard.

        Without anywidget it is the newest snapshot, as a table.

        Args:
            look: what a dashboard's panel has, such as `chart="bars"`, `title`, and the columns `x`, `y` and
                `series`. `face="name"` picks the face of another package.

        Raises:
            ArgumentError: there is no such face.
        """
        from relaqs.rendering.html import display

        return display(self, **look)

    def result(self, until: float | str | None = None, timeout: float | None = None) -> Snapshot:
        """Return the exact answer, or the first snapshot with an error of `until`, and end the query.

        Args:
            until: the relative error that is good enough, such as 0.01 or "1%".
            timeout: seconds after which the newest snapshot is returned.

        Raises:
            QueryTimeoutError: no snapshot came within the timeout.
            RelaqsError: the query failed, or was stopped before its first snapshot.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.result().estimate.to_pydict()
        {'total': [Decimal('499500')]}
        """
        enough = relative_error(until, "until")
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        # The statement is asked for inside of a block too: that may fail like all else.
        with naming("reading the answer"), naming("reading the answer", self.sql):
            reader = iter(self)
            while (snapshot := reader.next_within(_seconds_left(deadline))) is not None:
                if snapshot.is_exact or (enough is not None and snapshot.error <= enough):
                    break
            snapshot = snapshot or self.latest
            was_paused = self.state == "paused"
            self.stop()
        if snapshot is not None:
            return snapshot
        if deadline is not None and not _seconds_left(deadline):
            raise no_snapshot_within(seconds, was_paused=was_paused)
        raise RelaqsError("the query was stopped before its first snapshot; run it again, or stop it later")

    def __await__(self) -> Generator[Any, None, Snapshot]:
        return self._awaited().__await__()

    async def _awaited(self) -> Snapshot:
        async for _ in self:
            pass
        return self.result()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        from relaqs.rendering.html import cell_forms

        return cell_forms(self)

    def _checked_target(self, target: Any) -> float | None:
        return relative_error(target)

    def __repr__(self) -> str:
        newest = "no snapshot yet" if self.latest is None else repr(self.latest)
        return f"<OnlineQuery {self.state}: {newest}>"


_STATES: dict[RunState, State] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "exact",
    RunState.FAILED: "failed",
}


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
