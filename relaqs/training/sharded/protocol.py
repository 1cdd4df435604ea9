"""What an algorithm must have so that its parameters can be cut into shards.

The parameters are one array, which is cut by whole rows. An owner knows its own rows of it alone. So the next
parameters must follow row by row from the last ones, the sums, and what all owners are told: the pace, and
the rows of `SharesSums`. Then no cut changes a bit of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.training.profile import Profile
from relaqs.training.protocol import Fold
from relaqs.training.rows import Sums

ShardState: TypeAlias = tuple[FloatArray, ...]
"""What an owner keeps of some rows of the parameters. The first array is what COMP is given."""


@dataclass(frozen=True, slots=True)
class ShardCourse:
    """Where a descent stands, as the driver knows it.

    Attributes:
        step: the version of the parameters that is judged next.
        pace: what all owners are told for the update of that version.
        loss: of the version before; inf where there is none.
        is_final: whether the version before is the result.
        memory: what else the algorithm judges by.
    """

    step: int
    pace: tuple[float, ...]
    loss: float = math.inf
    is_final: bool = False
    memory: tuple[float, ...] = ()


class ShardedDescent(Protocol):
    """One run of an algorithm, but for what changes: picklable, and the same on every worker."""

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the parameters."""
        ...

    def first(self, rows: slice) -> ShardState:
        """Return the state of some rows before the first step. All arrays have the columns of `shape`."""
        ...

    def model(self, values: FloatArray) -> Any:
        """Return what `TrainingJob.partial` is given. values: all parameters, in `shape`."""
        ...

    def penalty(self, values: FloatArray) -> float:
        """Return what is judged beside the sums over rows, such as a ridge. values: all parameters."""
        ...

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        """Return the next state of some rows, row by row, with no product of matrices.

        Such a product may add in another order where the parameters are cut in another way.

        Args:
            gradient: the first of the sums over all training rows, for these rows of the parameters. Where a
                descent `SharesSums`, the shared rows are below them.
            pace: as the course says it.
            rows: which rows of the parameters.
        """
        ...

    def begin(self) -> ShardCourse:
        """Return the course before the first step."""
        ...

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        """Return the course after a step. Raises DataError where the loss is no number.

        totals: the sums over all training rows but the first one.
        """
        ...


@runtime_checkable
class SharesSums(Protocol):
    """What a `ShardedDescent` adds whose update needs more sums than those for the rows of one owner.

    >>> class Moments:
    ...     shared_rows = 2
    >>> isinstance(Moments(), SharesSums)
    True
    """

    @property
    def shared_rows(self) -> int:
        """How many rows of the first of the sums every owner is sent. They are below the parameters' own."""
        ...


@runtime_checkable
class ShardedTraining(Protocol):
    """What a `TrainingJob` adds so that its parameters can lie in shards.

    The first array that its `partial` returns is added to the parameters' gradient and has their shape, but
    for the rows of `SharesSums`. Its `begin` returns `WholeParameters(self.descent(profile))`.
    """

    def descent(self, profile: Profile) -> ShardedDescent:
        """Return how the parameters begin, change and are judged."""
        ...


def split_sums(sums: Sums, descent: ShardedDescent) -> tuple[FloatArray, Sums]:
    """Return what is added to the gradient, and the other sums.

    Raises DataError where the gradient has another shape than the parameters and what is shared.
    """
    rows, columns = descent.shape
    shared_rows = descent.shared_rows if isinstance(descent, SharesSums) else 0
    if sums[0].shape != (rows + shared_rows, columns):
        shared = f" and {shared_rows} rows that are shared" if shared_rows else ""
        raise DataError(
            f"the first of the arrays that partial() returns has the shape {sums[0].shape}, the parameters "
            f"have {descent.shape}{shared}; they must be the same"
        )
    return sums[0], sums[1:]


class WholeParameters:
    """The `Training` of a sharded algorithm whose parameters lie in one process: client mode.

    The same arithmetic as in shards, and so the same bits.

    Args:
        descent: of the run.
        course, state: where it goes on, if not at the beginning.
    """

    def __init__(
        self, descent: ShardedDescent, course: ShardCourse | None = None, state: ShardState | None = None
    ) -> None:
        self.descent = descent
        self._rows = slice(0, descent.shape[0])
        self.course = course or descent.begin()
        self.state = state or descent.first(self._rows)

    @property
    def model(self) -> Any:
        return self.descent.model(self.state[0])

    def fold(self, sums: Sums) -> Fold:
        gradient, totals = split_sums(sums, self.descent)
        evaluated, values, course = self.model, self.state[0], self.course
        self.course = self.descent.judge(course, totals, self.descent.penalty(values))
        self.state = self.descent.update(self.state, gradient, course.pace, self._rows)
        return Fold(evaluated, self.course.loss, self.course.is_final)

    def close(self) -> None:
        """There is nothing to free."""
