"""What an algorithm must have, so that it can be trained on mini-batches that change their size.

A pass is once through the data. It is cut into steps, and each step changes the model by the sums of its
rows. The rows of a step are pieces of a few rows. Sums of pieces are added in a fixed order, so it does not
matter how many workers share a step.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums

Scaling: TypeAlias = Literal["linear", "sqrt", "gain", "none"]
"""How the rate follows the number of rows of a step. `relaqs/training/elastic/rates.py` has the rules."""


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
