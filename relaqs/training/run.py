"""TrainingRun: the user's handle of a model in training. Watch its losses, steer it, take the model."""

from __future__ import annotations

import math
from typing import Any, Literal

from relaqs_engine.errors import RelaqsError

from relaqs.arguments import ArgumentError, check_loss, check_seconds
from relaqs.jobs.executor import Executor, Stopwatch
from relaqs.jobs.handle import Handle
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState
from relaqs.progress import StopReason
from relaqs.sharing.view import Kind
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.turns import Rescale
from relaqs.training.goals import TrainingOptions
from relaqs.training.listener import JobInParts, JobInShards, ModelJob, TrainingListener, TrainingStep
from relaqs.training.parted.cut import PlacedPart
from relaqs.training.sharded.subtask_seconds import SubtaskSeconds

TrainingState = Literal["waiting", "running", "paused", "stopped", "converged", "failed"]


class TrainingRun(Handle[TrainingStep]):
    """A model that is being trained, better and better. Steer it as a query: `pause`, `priority`, `stop` …

    Each `for` or `async for` gets the newest step each time round; all of them are in `steps`. Leaving a
    `with` stops the run. So do ctrl-C while waiting, and dropping the last reference to it.

    >>> import duckdb, relaqs
    >>> from relaqs.training import LinearRegression
    >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
    >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
    >>> db = relaqs.connect("data", threads=1)
    >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
    >>> for step in run:
    ...     pass
    >>> run.state, step.loss == run.losses[-1], len(run.steps) == len(run.losses)
    ('converged', True, True)
    """

    def __init__(
        self,
        job: ModelJob,
        executor: Executor,
        options: TrainingOptions,
        *,
        stopwatch: Stopwatch,
        running: RunningJobs | None = None,
    ) -> None:
        """Set the run up.

        Args:
            job: the model in training.
            executor: where its tasks run.
            options: what the user asked for.
            stopwatch: counts since it was submitted.
            running: the jobs of its session.
        """
        description = JobDescription(
            job.id,
            Kind.TRAINING,
            name=job.name,
            weight=options.priority,
            cores_most=job.tasks_most,
            work_total=options.passes_most,
            target=options.target_loss,
            deadline_seconds=math.inf if options.goals.deadline is None else options.goals.deadline,
            goals=options.goals.of_job,
            is_abreast=isinstance(job, JobInShards),
        )
        deadline = options.goals.deadline
        self._deadline_seconds = None if deadline is None else float(deadline)
        self._progress = TrainingListener(job, options, stopwatch, running)
        runner = JobRunner(job, executor, description, self._progress, timeout_seconds=options.timeout)
        super().__init__(runner, self._progress)

    @property
    def state(self) -> TrainingState:
        """One of waiting, running, paused; at the end stopped, converged or failed.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
        >>> model = run.result()
        >>> run.state
        'converged'
        """
        return _STATES[self.runner.state]

    @property
    def steps(self) -> tuple[TrainingStep, ...]:
        """The passes made so far. The first look at the data is left out, because it has no loss.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), max_steps=1)
        >>> model = run.result()
        >>> len(run.steps)
        1
        """
        return tuple(self._progress.steps)

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss after each pass, in the algorithm's own unit.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), max_steps=1)
        >>> model = run.result()
        >>> run.losses[-1] == run.steps[-1].loss
        True
        """
        return tuple(self._progress.losses)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run stopped by itself before it converged: at its target or accuracy, in time, with no
        visible change, or because the cluster is overloaded.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), target_loss=1e9)
        >>> model = run.result()
        >>> run.stop_reason.value
        'target reached'
        """
        return self._progress.stop_reason

    @property
    def accuracy(self) -> float:
        """The share of the held-out rows that `latest` tells rightly. NaN where accuracy is not measured.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LogisticRegression
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> job = LogisticRegression("SELECT x, late FROM points", target="late")
        >>> run = db.train(job, accuracy=0.9, stop="required")
        >>> model = run.result()
        >>> run.accuracy >= 0.9, run.stop_reason.value
        (True, 'required accuracy reached')
        """
        return self._progress.job.accuracy

    @property
    def deadline_seconds(self) -> float | None:
        """The seconds after its start by which the user wants what the run is for. None: no hurry.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), deadline=60)
        >>> run.deadline_seconds
        60.0
        """
        return self._deadline_seconds

    @property
    def latest(self) -> Any:
        """The best model so far as a fitted estimator, a new one each time. None before the first loss.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
        >>> run.wait()
        True
        >>> round(float(run.latest.intercept_), 3)
        1.0
        """
        fitted = self._progress.job.latest
        return None if fitted is None else fitted.estimator()

    @property
    def batch_rows(self) -> int | None:
        """The rows of a step as it is now. None where a step is a pass over all rows.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.batch_rows
        64
        """
        return self._progress.job.batch_rows

    @property
    def ranks(self) -> int | None:
        """How many ranks share a step now. None where a step is a pass over all rows.

        On a Dask cluster a rank lives in a worker, and the slot policy says how many there are. Elsewhere it
        is a task. Ranks change no bit of the model.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> model = run.result()
        >>> run.ranks
        1
        """
        return self._progress.job.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        """The changes of ranks and rows that a gang of a Dask cluster has made, and the pause of each.

        The first one is its start. There are none without a cluster, because tasks need no change.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.rescales
        ()
        """
        return self._progress.job.rescales

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        """Where each part of the model is, by stage and replica. Empty where it is not cut or placed.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.placement
        ()
        """
        job = self._progress.job
        return job.placement if isinstance(job, JobInParts) else ()

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None:
        """What a pass is made of, where the parameters lie in shards: computing, sending, and the rest.

        None where they do not, and before the fourth pass in shards.

        >>> import duckdb, relaqs
        >>> from relaqs.training import KMeans
        >>> points = duckdb.sql("SELECT x, x % 7 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(KMeans("SELECT x, y FROM points", clusters=2), max_steps=1)
        >>> print(run.subtask_seconds)
        None
        """
        job = self._progress.job
        return job.subtask_seconds if isinstance(job, JobInShards) else None

    def move(self, stage: int, replica: int, worker: str) -> None:
        """Let a part of the model go on at another worker, after the step in hand.

        It changes no bit of the model.

        Raises:
            ArgumentError: the model is not cut, or there is no such part or worker.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.move(0, 0, "tcp://10.0.0.7:4711")
        Traceback (most recent call last):
        ...
        relaqs.arguments.ArgumentError: stage is 0, but the model is not cut; train it with parts=
        """
        job = self._progress.job
        if not isinstance(job, JobInParts):
            raise ArgumentError(f"stage is {stage}, but the model is not cut; train it with parts=")
        job.move(stage, replica, worker)

    @property
    def journal(self) -> Journal | None:
        """The rows, rate and ranks of each mini-batch so far. None where a step is a pass over all rows.

        `relaqs.training.replay` trains the same model again by it.

        >>> import duckdb, relaqs
        >>> from relaqs.training import MiniBatchLinear
        >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> model = run.result()
        >>> list(run.journal.changes())
        [Change(step=0, batch_rows=64, ranks=1)]
        """
        return self._progress.job.journal

    def explain(self) -> str:
        """Return where the model's parameters are, and why; by mini-batches also what a step is shared by.

        >>> import duckdb, relaqs
        >>> from relaqs.training import Lasso
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> print(db.train(Lasso("SELECT x, y FROM points", target="y")).explain())
        parameters: whole, in the client
        """
        job = self._progress.job
        lines = [job.explain()]
        if job.batch_rows is not None:
            lines.append(f"a step: {job.batch_rows} rows, ranks: {job.ranks}")
        lines += [
            f"stage {part.stage} of replica {part.replica}: on {part.worker}" for part in self.placement
        ]
        return "\n".join(lines)

    @property
    def target_loss(self) -> float | None:
        """The loss to stop at, which is also `target`. Set it at any time. A loss already reached stops the
        run.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
        >>> run.target_loss = 0.5
        >>> run.target
        0.5
        """
        return self.target

    @target_loss.setter
    def target_loss(self, loss: float | None) -> None:
        self.target = loss

    def result(self, timeout: float | None = None) -> Any:
        """Return the fitted estimator once the run has converged or was stopped. The run is over then.

        Args:
            timeout: seconds after which the run is stopped, and the best model so far is returned.

        Raises:
            RelaqsError: there is no model yet, or the run failed. Another error that made it fail is raised
                as it is.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, 3 * x + 1 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
        >>> round(float(run.result().coef_[0]), 3)
        3.0
        """
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        try:
            self.runner.wait(seconds)
        finally:
            self.stop()
        self.runner.wait()
        if self.runner.error is not None:
            raise self.runner.error
        if self._progress.job.latest is None:
            raise RelaqsError(
                "training ended before the first pass over the data was complete; allow it more time"
            )
        return self.latest

    def _checked_target(self, target: Any) -> float | None:
        return None if target is None else check_loss("target_loss", target)

    def __repr__(self) -> str:
        reached = f", loss {self.losses[-1]:.6g} after {len(self.steps)} passes" if self.steps else ""
        return f"<TrainingRun {self.state}{reached}>"


_STATES: dict[RunState, TrainingState] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "converged",
    RunState.FAILED: "failed",
}
