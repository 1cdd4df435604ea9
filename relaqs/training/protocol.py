"""What a training algorithm must have, so that it can be trained over partitions, step by step.

A step is one pass over the data. Each task computes sums over some of the rows for one model. The driver adds
the sums up and makes the next model. Everything that is a sum over rows can be trained like this: gradients,
counts, histograms, sufficient statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums


@dataclass(frozen=True, slots=True)
class Fold:
    """What a pass gave.

    Attributes:
        model: the best model so far.
        loss: its loss.
        is_final: whether the run ends with this model, because it will not get better.

    >>> Fold(model=[0.5, 1.5], loss=0.25, is_final=False).loss
    0.25
    """

    model: Any
    loss: float
    is_final: bool


class Training(Protocol):
    """One run of a job, on the driver. Called from one thread at a time.

    `Iteration` is the simplest: the next model is a function of the last one and its sums.

    >>> class Mean:  # of numbers, in one pass
    ...     model = None
    ...     def fold(self, sums):
    ...         return Fold(sums[0] / sums[1], 0.0, True)
    ...     def close(self): ...
    >>> Mean().fold((12.0, 4)).model
    3.0
    """

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

    This job finds the mean of each column in two passes, the second to see that it is done:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Mean:
    ...     sql: str
    ...     target: None = None
    ...     def begin(self, profile):
    ...         def update(model, sums):
    ...             mean = sums[0] / profile.row_count
    ...             return 0.0, mean, model is not None  # the second pass finds nothing to change
    ...         return Iteration(None, update)
    ...     def partial(self, model, rows):
    ...         return (rows.features.sum(axis=0),)
    ...     def estimator(self, profile, model):
    ...         return model
    >>> isinstance(Mean("SELECT x FROM points"), TrainingJob)
    True

    A session trains it:

    >>> import duckdb, relaqs
    >>> rows = duckdb.sql("SELECT i AS x, 3 * i AS y FROM range(101) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=4, force=True)
    >>> with relaqs.connect("warehouse", threads=1) as db:
    ...     run = db.train(Mean("SELECT x, y FROM points"))
    ...     print(run.result(), len(run.steps))
    [ 50. 150.] 2
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
    where one row takes over 5 µs.

    >>> class SlowRows:
    ...     piece_rows = 1024
    >>> isinstance(SlowRows(), SizedPieces)
    True
    """

    @property
    def piece_rows(self) -> int:
        """The most rows that `partial` is called with."""
        ...


@runtime_checkable
class TellsClasses(Protocol):
    """What a `TrainingJob` adds so that its accuracy can be measured on rows that are held out.

    >>> import numpy as np
    >>> class Sign:
    ...     def right(self, model, rows):
    ...         return int(((rows.features[:, 0] > model) == rows.target).sum())
    >>> isinstance(Sign(), TellsClasses)
    True
    >>> Sign().right(0.5, Rows(np.array([[0.2], [0.9]]), np.array([False, False])))
    1
    """

    def right(self, model: Any, rows: Rows) -> int:
        """Return how many of some rows the model tells rightly. Runs on workers; a pure function."""
        ...


Update: TypeAlias = Callable[[Any, Sums], tuple[float, Any, bool]]
"""(model, its sums) → the model's loss, the next model, and whether to end with the model."""


class Iteration:
    """The `Training` of an algorithm whose next model is a function of the last model and its sums.

    Each pass evaluates the model that it was computed for, and reports that model with its loss. A run that
    ends gives this model, and not the next one. So `update` says True one pass after the model stopped
    changing.

    Args:
        start: the first model.
        update: a function of a model and its sums. It returns the model's loss, the next model, and whether
            to end with the model.

    >>> halving = Iteration(8.0, lambda model, sums: (model, model / 2, model <= 2))
    >>> halving.fold(()), halving.fold(()).is_final, halving.model
    (Fold(model=8.0, loss=8.0, is_final=False), False, 2.0)
    """

    def __init__(self, start: Any, update: Update) -> None:
        self.model = start
        self._update = update

    def fold(self, sums: Sums) -> Fold:
        evaluated = self.model
        loss, self.model, is_final = self._update(evaluated, sums)
        return Fold(evaluated, loss, is_final)

    def close(self) -> None:
        """There is nothing to free."""
