"""Handle: what a user holds of anything that runs: a query, a training run, a paced loop.

All three are steered alike, and read alike:

    with db.train(KMeans(sql)) as run:      leaving the block stops it
        for step in run:                    the newest report each time round, and always the last
            run.priority = 2.0              counts twice as much as one with 1.0
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

from relaqs.arguments import check_priority
from relaqs.jobs.feed import AnyReport, Feed
from relaqs.jobs.listener import RunListener, RunState
from relaqs.jobs.reader import Reader
from relaqs.jobs.runner import JobRunner, stop_when_forgotten


class Handle(ABC, Generic[AnyReport]):
    """Steers and reads a job: pause, resume, stop, priority, target, wait, `with`, and reading its reports.

    Dropping the last reference to it stops the job. So does ctrl-C while waiting for a report, and in asyncio
    the cancelling of a task that waits for one.

    Attributes:
        runner: drives the job. Once the handle is gone it stops the job, when the tasks that run have ended.
    """

    def __init__(self, runner: JobRunner, listener: RunListener[AnyReport]) -> None:
        self.runner = runner
        self._listener = listener
        self._own_reader = Reader(listener.feed, partial(_stop, runner, listener.feed))
        stop_when_forgotten(self, runner)

    def start(self) -> None:
        """Begin, once. What cannot begin has failed, and is not waited for."""
        try:
            self._listener.starting(self.runner)
            self.runner.start()
        except Exception as error:
            self._listener.ended(RunState.FAILED, error)
            raise

    @property
    def id(self) -> str:
        """The name of its job, by which `Session.status` tells of it.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> len(query.id)
        12
        """
        return self.runner.id

    @property
    def priority(self) -> float:
        """Its weight: with 2.0 it counts twice as much as one with 1.0. Set it at any time.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.priority = 2.0
        >>> query.priority
        2.0
        """
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    @property
    def target(self) -> float | None:
        """The error or loss to stop at. Set it at any time. A target that is met already stops the job.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.target = "1%"
        >>> query.target
        0.01
        """
        return self._listener.target

    @target.setter
    def target(self, target: Any) -> None:
        self._listener.target = checked = self._checked_target(target)
        self.runner.set_target(checked)
        if self._listener.is_good_enough():
            self.stop()

    def pause(self) -> None:
        """Start no more steps. Those that run are finished. A timeout goes on."""
        self.runner.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.runner.resume()

    def stop(self) -> None:
        """End with what there is. Returns at once; its cores are free within one task.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.stop()
        >>> query.wait()
        True
        """
        _stop(self.runner, self._listener.feed)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over and its cores are free, within the timeout in seconds.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.wait(timeout=60)
        True
        """
        return self.runner.wait(timeout)

    def __iter__(self) -> Reader[AnyReport]:
        return Reader(self._listener.feed, self.stop, owner=self)

    def __next__(self) -> AnyReport:
        return next(self._own_reader)

    def __aiter__(self) -> Reader[AnyReport]:
        return iter(self)

    async def __anext__(self) -> AnyReport:
        return await anext(self._own_reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @abstractmethod
    def _checked_target(self, target: Any) -> float | None:
        """Return the target as a number. Raises ArgumentError for what is none."""


def _stop(runner: JobRunner, feed: Feed[Any]) -> None:
    """End the reports with the newest, and the job with the tasks that run."""
    feed.close("stopped")
    runner.stop()
