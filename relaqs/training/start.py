"""From a training job and a planned SELECT to a run that is ready to start."""

from __future__ import annotations

import uuid

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.plans.online_plan import OnlinePlan

from relaqs.arguments import ArgumentError
from relaqs.jobs.executor import Executor
from relaqs.jobs.running import RunningJobs
from relaqs.jobs.stopwatch import Stopwatch
from relaqs.training.arguments import require
from relaqs.training.loss_job import LossJob
from relaqs.training.protocol import TrainingJob
from relaqs.training.reading import training_set
from relaqs.training.run import TrainingOptions, TrainingRun
from relaqs.training.spill import limit_bytes

KEPT_SHARE = 0.5  # of a process's memory limit, for partitions' arrays kept between passes


def training_run(
    job: TrainingJob,
    plan: OnlinePlan,
    catalog: Catalog,
    config: DatabaseConfig,
    executor: Executor,
    options: TrainingOptions,
    running: RunningJobs,
) -> TrainingRun:
    """Return the run of a job, not started.

    Args:
        plan: of its SELECT.
        running: the jobs of the session.

    Raises DataError where RELAQS_SPILL_LIMIT is no size.
    """
    stopwatch = Stopwatch()
    limit_bytes()  # a wrong one is said now, and not once memory is full
    loss_job = LossJob(
        uuid.uuid4().hex[:12],
        job,
        training_set(plan, catalog, config, job.target),
        budget_bytes=int(config.memory_limit_bytes * KEPT_SHARE),
    )
    return TrainingRun(loss_job, executor, options, stopwatch=stopwatch, running=running)


def checked_job(job: object) -> TrainingJob:
    """Return the job. Raises ArgumentError if it is none, MissingPackageError if none can be trained here."""
    require("threadpoolctl")
    if not isinstance(job, TrainingJob):
        raise ArgumentError(
            f"the training job is {job!r}; give one of relaqs.training, such as KMeans(sql), or an object "
            "with sql, target, begin, partial and estimator (see relaqs.training.TrainingJob)"
        )
    return job
