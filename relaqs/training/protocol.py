"""What a training algorithm must say of itself, so that it can be trained over partitions, step by step.

A step is one pass over the data. Each task computes sums over some of the rows, for a model that
stands still meanwhile; the driver adds them up and makes the next model. Whatever is a sum over rows can be
trained like this: gradients, counts, histograms, sufficient statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums


@dataclass(frozen=True, slots=True)
class Fold:
    """What a pass gave. model: the best model so far. loss: its loss. is_final: it will not get better."""

    model: Any
    loss: float
    is_final: bool


class Training(Protocol):
    """One run of a job, on the driver. Called from one thread at a time."""

    @property
    def model(self) -> Any:
        """What the next pass is computed for: picklable, and not changed afterwards."""
        ...

    def fold(self, sums: Sums) -> Fold:
        """Take in the sums of a pass for `model`, over all rows, and choose the next model."""
        ...

    def close(self) -> None:
        """Free what the run holds. Called once, whatever its end was."""
        ...


@runtime_checkable
class TrainingJob(Protocol):
    """Data and hyperparameters: picklable, and the same for every run. Its code must exist on the workers.

    `partial` is called with 8192 rows at most. A job whose rows take long sets another size (`SizedPieces`).
    """

    @property
    def sql(self) -> str:
        """The SELECT whose rows are trained on. Its columns but the target are the features, in order."""
        ...

    @property
    def target(self) -> str | None:
        """The name of the column to predict; None where there is nothing to predict."""
        ...

    def begin(self, profile: Profile) -> Training:
        """Return a run that starts from the initial model."""
        ...

    def partial(self, model: Any, rows: Rows) -> Sums:
        """Return the sums of some rows for the model. Runs on workers; a pure function of its arguments."""
        ...

    def estimator(self, profile: Profile, model: Any) -> Any:
        """Return a model as the fitted estimator of its ecosystem. May be called while training goes on."""
        ...


@runtime_checkable
class SizedPieces(Protocol):
    """What a `TrainingJob` adds to choose the size of its pieces.

    Tasks should be short, since a query that arrives waits for one to end. So choose fewer rows than 8192
    where one row takes over 5 µs. Example, in the class of a job: `piece_rows: ClassVar[int] = 1024`.
    """

    @property
    def piece_rows(self) -> int:
        """The most rows that `partial` is called with."""
        ...


Update: TypeAlias = Callable[[Any, Sums], tuple[float, Any, bool]]
"""(model, its sums) → the model's loss, the next model, and whether that will not get better."""


class Iteration:
    """The `Training` of an algorithm whose next model is a function of the last one and its sums."""

    def __init__(self, start: Any, update: Update) -> None:
        self.model = start
        self._update = update

    def fold(self, sums: Sums) -> Fold:
        evaluated = self.model
        loss, self.model, is_final = self._update(evaluated, sums)
        return Fold(evaluated, loss, is_final)

    def close(self) -> None:
        """There is nothing to free."""
