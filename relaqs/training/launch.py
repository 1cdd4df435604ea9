"""From a training job and a planned SELECT to a run that is ready to start.

Who makes the steps follows from the job, what was asked of it, and where it runs:

| the job trains by | on threads | on a cluster |
|---|---|---|
| passes over all rows | `LossJob` | `LossJob`; `ShardJob` with its parameters in shards |
| mini-batches | `StepJob`: tasks | `GangJob`: ranks that live in workers; a replay is a `StepJob` |
| whole steps | `StepJob` | `StepJob` |
| mini-batches, in parts | `PartedJob`: all parts in this process | `PartedJob`: each part on a slot |

Each room of these is imported when a job needs it: a run on threads loads nothing of gangs, parts and shards.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeGuard, get_args

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.arguments import ArgumentError, check_whole
from relaqs.jobs.checkpoint import RunKeeper
from relaqs.jobs.executor import Executor, HostsPeers, Stopwatch
from relaqs.jobs.runner import RunningJobs
from relaqs.plugins import require
from relaqs.training.passes import LossJob, ModelJob, ReadableRows, RunRows
from relaqs.training.protocol import MiniBatchTraining, ShardedJob, ShardedTraining, TrainingJob, WholeSteps
from relaqs.training.row_cache import limit_bytes
from relaqs.training.rows import training_set
from relaqs.training.run import Batch, GivenModel, ParametersWord, StopWord, TrainingOptions, TrainingRun

if TYPE_CHECKING:
    from relaqs.training.elastic.course import BatchRule
    from relaqs.training.parted.placing import ModelParts

KEPT_SHARE = 0.5  # of a process's memory limit, for partitions' arrays kept between passes


class TrainArguments(TypedDict, total=False):
    """The arguments of `Session.train` beside the job, all by name. `Session.fit` has fewer.

    Attributes:
        batch: how many rows a step of an algorithm by mini-batches has: a number; "elastic" for few at first
            and more once that pays; or a journal of an earlier run to follow. By default it is the job's own
            `start_rows`. Other algorithms look at all rows in each step, and take none.
        parameters: where those of `SoftmaxRegression` and `Lasso` are between passes: in this process
            ("client"), in shards on the workers of a Dask cluster ("sharded"), or wherever that is faster
            ("auto"). `run.explain()` says where, and why.
        priority: its weight beside queries and other jobs.
        target_loss: stop when the loss is this small.
        timeout: stop after this many seconds.
        max_steps: stop after this many passes over the data.
        chart_pixels: the height of a chart of losses. Training stops when the last three passes made no
            visible change in it.
        deadline: the seconds in which the accuracy, the target or the end is wanted. Policies see it, and
            `deadlines` serves by it. The run goes on then; `timeout` would end it.
        accuracy: the share of held-out rows that a classifier must tell rightly, such as 0.95.
        urgency: how much its deadline counts beside those of others, from 1 to 10.
        stop: when it stops by itself: "iterations", "best" when no better accuracy is to be expected, or
            "required" at `accuracy`.
        may_stop: which of "best" and "required" the policy `load_control` may choose for it when there are
            too few cores.
        held_out: the share of partitions that are not trained on. Accuracy is measured on them after each
            pass. Default: 0.05 where an accuracy or a stop is asked for, else none.
        parts: cuts the layers of a `TorchModule` into so many stages, or as a `ModelParts` says. On a cluster
            each part is on a worker. They change no bit of the model.
        checkpoint: a file that is not there yet. The state of the run is kept in it, for `Session.resume`.
        checkpoint_seconds: between two states that are kept, at least. Default: 10.
    """

    batch: Batch
    parameters: ParametersWord
    priority: float
    target_loss: float | None
    timeout: float | None
    max_steps: int | None
    chart_pixels: int | None
    deadline: float | None
    accuracy: float | None
    urgency: float
    stop: StopWord
    may_stop: Sequence[StopWord]
    held_out: float | None
    parts: int | ModelParts | None
    checkpoint: str | Path | None
    checkpoint_seconds: float


def asked_of_train(asked: TrainArguments) -> TrainingOptions:
    """Return the options of a run. Raises ArgumentError for a name or a value that is not accepted."""
    known = TrainArguments.__annotations__
    for name in asked:
        if name not in known:
            raise ArgumentError(f"train takes no {name!r}; it takes {', '.join(known)}")
    return TrainingOptions(**asked)


def training_run(
    job: TrainingJob | MiniBatchTraining,
    plan: OnlinePlan,
    catalog: Catalog,
    config: DatabaseConfig,
    executor: Executor,
    options: TrainingOptions,
    running: RunningJobs,
    given: GivenModel | None = None,
    keeper: RunKeeper | None = None,
) -> TrainingRun:
    """Return the run of a job, not started.

    Args:
        plan: of its SELECT.
        given: the model that the user gave, if that is not what the job fits.
        keeper: keeps the run's state, and has the one that it goes on from.

    Raises DataError where RELAQS_SPILL_LIMIT is no size.
    """
    stopwatch = Stopwatch()
    check_parameters(job, executor, options)
    limit_bytes()  # a wrong one is said now, and not once memory is full
    takes_all = isinstance(job, WholeSteps) and job.takes_all
    data = training_set(plan, catalog, config, job.target, takes_all=takes_all)
    rows = RunRows(uuid.uuid4().hex[:12], data, int(config.memory_limit_bytes * KEPT_SHARE))
    model_job, executor = _model_job(rows, job, executor, options)
    return TrainingRun(
        model_job, executor, options, stopwatch=stopwatch, running=running, given=given, keeper=keeper
    )


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """How a training run is begun.

    Attributes:
        options: what is asked of the run.
        given: the model that the user gave, if that is not what the job fits.
    """

    job: TrainingJob | MiniBatchTraining
    options: TrainingOptions
    given: GivenModel | None = None

    def begun(self, session: Any, keeper: RunKeeper) -> TrainingRun:
        run: TrainingRun = session._training_run(self.job, self.options, self.given, keeper)
        run.start()
        return run


def _model_job(
    rows: RunRows, job: TrainingJob | MiniBatchTraining, executor: Executor, options: TrainingOptions
) -> tuple[ModelJob, Executor]:
    """Return the job, and where it runs."""
    held_out = options.held_out_of(job, len(rows.data.reads))
    if isinstance(job, MiniBatchTraining):
        return _mini_batch_job(rows, job, executor, options)
    return _full_pass_job(rows, job, executor, options, held_out), executor


def _full_pass_job(
    rows: RunRows, job: TrainingJob, executor: Executor, options: TrainingOptions, held_out: int
) -> LossJob:
    """Return a job whose steps are passes over all rows; on a cluster its parameters may lie in shards."""
    if options.batch is not None:
        raise ArgumentError(
            f"batch is {options.batch!r}, but each step of {type(job).__name__} reads all rows; leave it "
            "out, or train one of the algorithms by mini-batches, such as relaqs.training.MiniBatchLinear"
        )
    if options.parts is not None:
        raise ArgumentError(
            f"parts is {options.parts!r}, but {type(job).__name__} cannot be cut; give a TorchModule, or "
            "leave parts out"
        )
    word = options.parameters
    if word != "client" and not held_out and isinstance(executor, HostsPeers) and can_shard(job):
        from relaqs.training.sharded.shard_job import ShardJob

        is_forced = word == "sharded"
        return ShardJob(rows, job, executor, is_forced=is_forced, max_steps=options.max_steps)
    return LossJob(rows, job, held_out)


def _mini_batch_job(
    rows: RunRows, job: MiniBatchTraining, executor: Executor, options: TrainingOptions
) -> tuple[ModelJob, Executor]:
    """Return a job by mini-batches. On a cluster a gang makes its steps; a replay needs none."""
    from relaqs.training.elastic.course import Journal
    from relaqs.training.elastic.driver import GangExecutor
    from relaqs.training.elastic.gang_carrier import GangCarrier, GangJob
    from relaqs.training.elastic.step_job import StepJob, check_start_rows

    check_start_rows(job, sum(read.row_count for read in rows.data.reads))
    rule = _rule(job, options.batch)
    if options.parts is not None and isinstance(job, WholeSteps):
        raise ArgumentError(
            f"parts is {options.parts!r}, but {type(job).__name__} makes its steps in one piece; leave it out"
        )
    if options.parts is not None:
        from relaqs.training.parted.parted_job import parted_job

        return parted_job(rows, job, rule, options.parts, executor)
    has_no_ranks = isinstance(options.batch, Journal) or isinstance(job, WholeSteps)
    if has_no_ranks or not isinstance(executor, GangExecutor):
        return StepJob(rows, job, rule), executor
    carrier = GangCarrier(rows.run_id, executor)
    return GangJob(rows, job, rule, carrier), carrier


def _rule(job: MiniBatchTraining, batch: Batch) -> BatchRule:
    """Return who decides the rows of a step. Raises ArgumentError where `batch` is not accepted."""
    from relaqs.training.elastic.course import ElasticBatch, FixedBatch, Journal, ReplayedBatch

    if batch is None:
        return FixedBatch(job.start_rows)
    if batch == "elastic":
        return ElasticBatch.of(job)
    if isinstance(batch, Journal):
        if not len(batch):
            raise ArgumentError("the journal has no steps; give that of a run that made some")
        return ReplayedBatch(batch)
    if isinstance(batch, str):
        raise ArgumentError(f'batch is {batch!r}; it must be "elastic", a number of rows, or a journal')
    return FixedBatch(check_whole("batch", batch))


class Lays(Protocol):
    """What plans a SELECT and lays tables out: a session."""

    def plan(self, sql: str, *, intervals: bool) -> OnlinePlan: ...

    def lay_out(self, table: str) -> object: ...


def planned_rows(job: object, session: Lays) -> OnlinePlan:
    """Return the plan of a job's SELECT. Plain tables that it reads are laid out first."""
    return _planned(checked_job(job).sql, session)


def readable_rows(
    sql: str, target: str | None, session: Lays, catalog: Catalog, config: DatabaseConfig
) -> ReadableRows:
    """Return how the rows of a SELECT are read by a function of the user's own."""
    plan = _planned(sql, session)
    data = training_set(plan, catalog, replace(config, civil_time=plan.civil_time), target, takes_all=True)
    return ReadableRows(data, int(config.memory_limit_bytes * KEPT_SHARE))


def _planned(sql: str, session: Lays) -> OnlinePlan:
    plan = session.plan(sql, intervals=False)
    if plan.is_estimated or not plan.plain_tables:
        return plan
    for table in plan.plain_tables:
        session.lay_out(table)
    return session.plan(sql, intervals=False)


def checked_job(job: object) -> TrainingJob | MiniBatchTraining:
    """Return the job. Raises ArgumentError if it is none, MissingPackageError if none can be trained here."""
    require("threadpoolctl")
    if not isinstance(job, TrainingJob | MiniBatchTraining):
        raise ArgumentError(
            f"the training job is {job!r}; give one of relaqs.training, such as KMeans(sql), or an object "
            "with sql, target, begin, partial and estimator (see relaqs.training.TrainingJob)"
        )
    return job


def can_shard(job: object) -> TypeGuard[ShardedJob]:
    """Return whether the parameters of a job can be cut."""
    return isinstance(job, TrainingJob) and isinstance(job, ShardedTraining)


def check_parameters(job: object, executor: object, options: TrainingOptions) -> None:
    """Raise ArgumentError where `parameters` is no such word, or asks for shards that cannot be."""
    if (word := options.parameters) not in get_args(ParametersWord):
        raise ArgumentError(f'parameters is {word!r}; it must be "auto", "client" or "sharded"')
    if word != "sharded":
        return
    if not can_shard(job):
        raise ArgumentError(
            f'parameters is "sharded", but {type(job).__name__} cannot cut its parameters; train KMeans, '
            "Lasso, MatrixFactorisation, SoftmaxRegression or TopicModel, or leave it out"
        )
    if not isinstance(executor, HostsPeers):
        raise ArgumentError(
            'parameters is "sharded", but this session has no Dask cluster; open one with '
            "relaqs.connect(…, cluster=…), or leave it out"
        )
    if options.asking is not None:
        raise ArgumentError(
            'parameters is "sharded", but accuracy is measured with whole parameters only; leave out '
            "accuracy, stop, may_stop and held_out, or parameters"
        )
