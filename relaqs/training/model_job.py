"""What a run needs of a job that trains a model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from relaqs.jobs.job import Job
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.step_log import Rescale
from relaqs.training.parted.cut import PlacedPart
from relaqs.training.sharded.subtask_seconds import SubtaskSeconds


class FittedModel(Protocol):
    """A model of a run, and all it takes to make an estimator of it."""

    def estimator(self) -> Any: ...


class ModelJob(Job, Protocol):
    """A job that trains a model: by passes over all rows, or by mini-batches."""

    @property
    def name(self) -> str: ...

    @property
    def tasks_most(self) -> int: ...

    @property
    def latest(self) -> FittedModel | None: ...

    @property
    def passes(self) -> int:
        """How many passes have given a loss."""
        ...

    @property
    def accuracy(self) -> float:
        """The accuracy after the last pass, NaN where it is not measured."""
        ...

    @property
    def batch_rows(self) -> int | None: ...

    @property
    def ranks(self) -> int | None: ...

    @property
    def rescales(self) -> tuple[Rescale, ...]: ...

    @property
    def journal(self) -> Journal | None: ...

    def explain(self) -> str:
        """Return where the parameters are, and why."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class JobInParts(Protocol):
    """A job whose model is cut into parts."""

    @property
    def placement(self) -> tuple[PlacedPart, ...]: ...

    def move(self, stage: int, replica: int, worker: str) -> None: ...


@runtime_checkable
class JobInShards(Protocol):
    """A job whose parameters may lie in shards."""

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None: ...
