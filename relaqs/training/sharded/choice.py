"""Where the parameters of a run are to be: what callers may say, and what can be done."""

from __future__ import annotations

from typing import TypeGuard, get_args

from relaqs.arguments import ArgumentError
from relaqs.executors.peers import HostsPeers
from relaqs.training.goals import TrainingGoals
from relaqs.training.options import ParametersWord
from relaqs.training.protocol import TrainingJob
from relaqs.training.sharded.protocol import ShardedTraining
from relaqs.training.sharded.shard_job import ShardedJob


def can_shard(job: object) -> TypeGuard[ShardedJob]:
    """Return whether the parameters of a job can be cut."""
    return isinstance(job, TrainingJob) and isinstance(job, ShardedTraining)


def check_parameters(word: str, job: object, executor: object, goals: TrainingGoals) -> None:
    """Raise ArgumentError where `parameters` is no such word, or asks for shards that cannot be."""
    if word not in get_args(ParametersWord):
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
    if (
        goals.held_out is not None
        or goals.accuracy is not None
        or goals.stop != "iterations"
        or goals.may_stop
    ):
        raise ArgumentError(
            'parameters is "sharded", but accuracy is measured with whole parameters only; leave out '
            "accuracy, stop, may_stop and held_out, or parameters"
        )
