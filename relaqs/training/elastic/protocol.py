"""What an algorithm must have, so that it can be trained on mini-batches that change their size.

A pass is once through the data. It is cut into steps, and each step changes the model by the sums of its
rows. The rows of a step are pieces of a few rows. Sums of pieces are added in a fixed order, so it does
not matter how many workers share a step.

The numbers of every mini-batch algorithm: how large steps are, how they may grow, when a run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from relaqs.arguments import ArgumentError
from relaqs.training.arguments import check_count, check_not_negative
from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums

Scaling: TypeAlias = Literal["linear", "sqrt", "gain", "none"]
"""How the rate follows the number of rows of a step. `relaqs/training/elastic/course.py` has the rules."""


@runtime_checkable
class MiniBatchTraining(Protocol):
    """Data and hyperparameters of a training by mini-batches: picklable, and the same for every run.

    Subclass `MiniBatches` to get all the numbers below the methods. Its code must exist on the workers.

    This job finds the mean of each column by steps towards the mean of each mini-batch:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from relaqs.training import MiniBatches
    >>> @dataclass(frozen=True, kw_only=True)
    ... class SteppedMean(MiniBatches):
    ...     sql: str
    ...     target: None = None
    ...     def begin(self, profile):
    ...         return np.zeros(len(profile.names))
    ...     def rate(self, progress):
    ...         return 1 / (1 + progress)
    ...     def partial(self, state, rows, draw):
    ...         off = state - rows.features
    ...         return (off**2).sum(), off.sum(axis=0)
    ...     def gradients(self, sums):
    ...         return sums[1:]
    ...     def update(self, state, sums, rows, rate):
    ...         return state - min(rate, 1.0) * sums[1] / rows
    ...     def evaluate(self, state, rows):
    ...         return (((state - rows.features) ** 2).sum(),)
    ...     def estimator(self, profile, state):
    ...         return state
    >>> isinstance(SteppedMean(sql="SELECT x FROM points"), MiniBatchTraining)
    True

    A session trains it:

    >>> import duckdb, relaqs
    >>> rows = duckdb.sql("SELECT i AS x, 3 * i AS y FROM range(101) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=4, force=True)
    >>> with relaqs.connect("warehouse", threads=1) as db:
    ...     job = SteppedMean(sql="SELECT x, y FROM points", start_rows=1, passes_most=1)
    ...     print(db.train(job).result().round(6))
    [ 50. 150.]
    """

    @property
    def sql(self) -> str:
        """The SELECT whose rows are trained on. Its columns but the target are the features, in order."""
        ...

    @property
    def target(self) -> str | None:
        """The name of the column to predict; None where there is nothing to predict."""
        ...

    def begin(self, profile: Profile) -> Any:
        """Return the first state: the model and what its optimiser remembers. It is picklable."""
        ...

    def rate(self, progress: float) -> float:
        """Return the learning rate of a step of `start_rows` rows.

        progress: how many such steps the rows so far amount to.
        """
        ...

    def partial(self, state: Any, rows: Rows, draw: int) -> Sums:
        """Return sums of some rows for a state: the loss first, then arrays. Runs on workers.

        draw: a number that is drawn for this step and these rows, the seed of dropout for example. The
        result is a pure function of the arguments.
        """
        ...

    def gradients(self, sums: Sums) -> Sums:
        """Return those of the sums that are gradients of the loss. Return () where none are."""
        ...

    def update(self, state: Any, sums: Sums, rows: int, rate: float) -> Any:
        """Return the next state. It is pure: the state before is not changed.

        sums: of all rows of the step. rows: how many these are.
        """
        ...

    def evaluate(self, state: Any, rows: Rows) -> Sums:
        """Return sums over held-out rows: the loss, and for classes how many rows were told rightly."""
        ...

    def estimator(self, profile: Profile, state: Any) -> Any:
        """Return a state as the fitted estimator of its ecosystem. May be called while training goes on."""
        ...

    @property
    def start_rows(self) -> int:
        """The rows of the first steps."""
        ...

    @property
    def rows_most(self) -> int | None:
        """The most rows that a step may have. None: eight times `start_rows`."""
        ...

    @property
    def passes_most(self) -> int:
        """After how many passes the run ends."""
        ...

    @property
    def tolerance(self) -> float:
        """A pass that betters the best loss by less than this brought nothing."""
        ...

    @property
    def patience_passes(self) -> int:
        """After how many passes in a row that brought nothing the run ends."""
        ...

    @property
    def held_out(self) -> float:
        """The share of partitions that the model is judged by and not trained on."""
        ...

    @property
    def scaling(self) -> Scaling:
        """How the rate follows the number of rows of a step."""
        ...

    @property
    def warm_up_steps(self) -> int:
        """Over how many steps the rate goes to its new value when a step gets more rows."""
        ...

    @property
    def seed(self) -> int:
        """Of the order of the rows and of all other draws."""
        ...


MOST_GROWTH = 8  # times the rows of the first steps, where the job does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniBatches:
    """How a job's data are cut into mini-batches, and when training ends.

    Args:
        start_rows: the rows of the first steps. The learning rate is meant for steps of this size.
        rows_most: the most rows that a step may have where the batch is elastic. Default: eight times
            `start_rows`.
        passes_most: training ends after so many passes over the data.
        tolerance: a pass that betters the best loss by less than this brought nothing.
        patience_passes: training has converged after so many passes in a row that brought nothing.
        held_out: the share of partitions that are not trained on. They give the loss and the accuracy after
            each pass. 0: the loss of a pass is the mean over its steps, each before its update.
        scaling: how the learning rate follows the rows of a step. "linear": as the rows. "sqrt": as their
            root. "gain": by the measured noise, at most linearly (Johnson et al. 2020, AdaScale). "none".
        warm_up_steps: over how many steps the rate goes to its new value when steps get more rows.
        seed: of the order of rows, of the first model, and of all other draws.

    >>> from relaqs.training import MiniBatchLinear
    >>> job = MiniBatchLinear("SELECT x, y FROM points", "y", start_rows=128, passes_most=3)
    >>> job.start_rows, job.passes_most, job.held_out
    (128, 3, 0.0)
    """

    start_rows: int = 64
    rows_most: int | None = None
    passes_most: int = 1000
    tolerance: float = 1e-3
    patience_passes: int = 5
    held_out: float = 0.0
    scaling: Scaling = "linear"
    warm_up_steps: int = 50
    seed: int = 0

    @property
    def tells_classes(self) -> bool:
        """Whether `evaluate` returns how many rows are told rightly, so that accuracy can be measured."""
        return False

    def __post_init__(self) -> None:
        for name in ("start_rows", "passes_most", "patience_passes"):
            check_count(name, getattr(self, name))
        for name in ("warm_up_steps", "seed"):
            check_count(name, getattr(self, name), least=0)
        check_not_negative("tolerance", self.tolerance)
        if self.rows_most is not None and check_count("rows_most", self.rows_most) < self.start_rows:
            raise ArgumentError(
                f"rows_most is {self.rows_most}, below start_rows, which is {self.start_rows}; "
                "give at least as many rows as the first steps have"
            )
        if not check_not_negative("held_out", self.held_out) < 1:
            raise ArgumentError(f"held_out is {self.held_out}; it must be a share from 0 to below 1")
        if self.scaling not in get_args(Scaling):
            raise ArgumentError(
                f"scaling is {self.scaling!r}; it must be one of {', '.join(get_args(Scaling))}"
            )


def most_rows(job: MiniBatchTraining) -> int:
    """Return the most rows that a step of the job may have."""
    return job.start_rows * MOST_GROWTH if job.rows_most is None else job.rows_most
