"""OnlineQuery: the user's handle of a running query. Iterate it, ask for its result, steer it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from relaqs_engine.errors import RelaqsError
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.online_plan import OnlinePlan

from relaqs.jobs.description import JobDescription
from relaqs.jobs.executor import Executor
from relaqs.jobs.job import Job, StepReport
from relaqs.jobs.runner import JobRunner, RunState, Successor, stop_when_forgotten
from relaqs.jobs.stopping import StopReason
from relaqs.options import QueryOptions, check_priority, check_seconds, relative_error
from relaqs.prediction.arrival import Expected
from relaqs.queries.feed import End, State
from relaqs.queries.publisher import EstimatingJob, Publisher, no_snapshot_within
from relaqs.queries.reader import Reader
from relaqs.snapshot import Snapshot


class EstimatingQueryJob(Job, EstimatingJob, Protocol):
    """A job whose steps give estimates of one query's answer."""


@dataclass(frozen=True, slots=True)
class Resort:
    """Another way to answer a query, where the first failed. job: under an id of its own."""

    job: EstimatingQueryJob
    plan: OnlinePlan
    description: JobDescription


class OnlineQuery:
    """A query that is being answered, better and better.

    Each `for` or `async for` gets the newest snapshot each time round: a slow loop skips some, the last
    always arrives, and over a query that has ended it is the only one. Leaving a `with` stops the query; so
    do ctrl-C while waiting for a snapshot, and dropping the last reference to the query.
    runner: drives the job, and outlives this handle by a task.
    """

    def __init__(
        self,
        job: EstimatingQueryJob,
        plan: OnlinePlan,
        executor: Executor,
        options: QueryOptions,
        description: JobDescription,
        *,
        elapsed_seconds: Callable[[], float],
        on_fold: Callable[[], None] = lambda: None,
        instead: Callable[[Exception], Resort | None] = lambda error: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the job up. description: what the scheduler is told of it.

        elapsed_seconds: since the query was submitted. on_fold: called after each mini-batch, once its
        snapshot is out; instead: asked for another way when the job failed; on_end: when the query is over.
        """
        publisher = Publisher(job, plan, options, elapsed_seconds, lambda: float(executor.capacity))

        def end() -> None:
            publisher.close(_ENDS[runner.state], runner.error)
            on_end()

        def folded(report: StepReport) -> StepReport:
            revised = publisher.on_report(report)
            on_fold()
            return revised

        def succeed(error: Exception) -> Successor | None:
            if (resort := instead(error)) is None:
                return None
            publisher.follow(resort.job, resort.plan)
            return Successor(resort.job, resort.description)

        runner = JobRunner(job, executor, description, on_report=folded, instead=succeed, on_end=end)
        self._publisher = publisher
        self.runner = runner
        self._own_reader = Reader(publisher.feed, partial(publisher.close, "stopped"))
        stop_when_forgotten(self, runner)

    def start(self) -> None:
        """Begin to answer, once."""
        self._publisher.begin(self.runner.stop)
        self.runner.start()

    @property
    def id(self) -> str:
        """The name of the query's job, by which `Session.status` tells of it."""
        return self.runner.id

    @property
    def sql(self) -> str:
        return self.plan.sql

    @property
    def plan(self) -> OnlinePlan:
        """How the query is answered."""
        return self._publisher.plan

    @property
    def state(self) -> State:
        """One of waiting, running, paused; at the end stopped, exact or failed."""
        return self._publisher.feed.end or _STATES[self.runner.state]

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it stopped by itself before it was exact: target reached, time is up, no visible change."""
        return self._publisher.stop_reason

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first."""
        return self._publisher.feed.latest

    @property
    def target(self) -> float | None:
        """The relative error to stop at. Set it at any time; a target already met stops the query."""
        return self._publisher.target

    @target.setter
    def target(self, target: float | str | None) -> None:
        self._publisher.target = relative_error(target)
        self.runner.set_target(self._publisher.target)

    @property
    def priority(self) -> float:
        """The query's weight: with 2.0 it gets twice the cores of one with 1.0. Set it at any time."""
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    def expected(self, target: float | str) -> Expected | None:
        """Return when the error will be the target, as the newest snapshot has it; None before the first."""
        return None if self.latest is None else self.latest.expected(target)

    def pause(self) -> None:
        """Start no more mini-batches; those that run are finished. The timeout goes on."""
        self._publisher.pause()
        self.runner.pause()

    def resume(self) -> None:
        self._publisher.resume()
        self.runner.resume()

    def stop(self) -> None:
        """End the query with the snapshots it has. Returns at once; its cores are free within one task."""
        self._publisher.close("stopped")

    def explain(self) -> str:
        """Return the plan in words and SQL."""
        return explain(self.plan)

    def display(self, **look: Any) -> object:
        """Return what a notebook shows of the query while it runs: its chart, as on a dashboard.

        look: `chart` (bars, line, number, table, scatter or histogram), `title`, and the columns `x`, `y` and
        `series`. Needs anywidget; without it, this is the newest snapshot, as a table.
        """
        from relaqs.rendering.notebook import display

        return display(self, **look)

    def result(self, until: float | str | None = None, timeout: float | None = None) -> Snapshot:
        """Return the exact answer, or the first snapshot with an error of `until`, and end the query.

        timeout: in seconds; when they are over, the newest snapshot is returned.
        Raises QueryTimeoutError if none came until then, and whatever made the query fail.
        """
        enough = relative_error(until, "until")
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        reader = iter(self)
        while (snapshot := reader.next_within(_seconds_left(deadline))) is not None:
            if snapshot.is_exact or (enough is not None and snapshot.error <= enough):
                break
        snapshot = snapshot or self.latest
        self.stop()
        if snapshot is not None:
            return snapshot
        if deadline is not None and not _seconds_left(deadline):
            raise no_snapshot_within(seconds)
        raise RelaqsError("the query was stopped before its first snapshot; run it again, or stop it later")

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the query is over and its cores are free, within the timeout in seconds."""
        return self.runner.wait(timeout)

    def __iter__(self) -> Reader:
        return Reader(self._publisher.feed, self.stop, owner=self)

    def __next__(self) -> Snapshot:
        return next(self._own_reader)

    def __aiter__(self) -> Reader:
        return iter(self)

    async def __anext__(self) -> Snapshot:
        return await anext(self._own_reader)

    def __enter__(self) -> OnlineQuery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        newest = "no snapshot yet" if self.latest is None else repr(self.latest)
        return f"<OnlineQuery {self.state}: {newest}>"


_ENDS: dict[RunState, End] = {
    RunState.STOPPED: "stopped",
    RunState.EXACT: "exact",
    RunState.FAILED: "failed",
}
_STATES: dict[RunState, State] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    **_ENDS,
}


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
