"""What an algorithm must have to be trained: by passes, with its parameters in shards, or by mini-batches.

By passes (`TrainingJob`). A step is one pass over the data. Each task computes sums over some of the rows
for one model; the driver adds the sums up and makes the next model. Everything that is a sum over rows can
be trained like this: gradients, counts, histograms, sufficient statistics.

In shards (`ShardedTraining`). The parameters are one array, which is cut by whole rows. An owner knows its
own rows of it alone. So the next parameters must follow row by row from the last ones, the sums, and what
all owners are told: the pace, and the rows of `SharesSums`. Then no cut changes a bit of them.

By mini-batches (`MiniBatchTraining`). A pass is cut into steps, and each step changes the model by the sums
of its rows. The rows of a step are pieces of a few rows. Sums of pieces are added in a fixed order, so it
does not matter how many workers share a step, nor whether the batch changes its size between two steps.

By whole steps (`WholeSteps`). A model of somebody else's code, such as an estimator with `partial_fit`, is
given all rows of a step at once. What it does with them is its own business, so one process makes a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError, check_not_negative, check_whole
from relaqs.training.rows import Profile, Rows, Sums


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

    >>> sql = "SELECT x, 3 * x AS y FROM numbers WHERE x <= 100"
    >>> run = db.train(Mean(sql))
    >>> print(run.result(), len(run.steps))
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
    """What a `TrainingJob` adds so that its accuracy can be measured on rows that are held out."""

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


class ShardedJob(ShardedTraining, TrainingJob, Protocol):
    """A training job whose parameters can be cut."""


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

    >>> sql = "SELECT x, 3 * x AS y FROM numbers WHERE x <= 100"
    >>> job = SteppedMean(sql=sql, start_rows=1, passes_most=1)
    >>> print(db.train(job).result().round(6))
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
            check_whole(name, getattr(self, name))
        for name in ("warm_up_steps", "seed"):
            check_whole(name, getattr(self, name), least=0)
        check_not_negative("tolerance", self.tolerance)
        if self.rows_most is not None and check_whole("rows_most", self.rows_most) < self.start_rows:
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


class Learner(Protocol):
    """A model of somebody else's code between two steps, in the process that makes them."""

    def step(self, rows: Rows, draw: int) -> float:
        """Learn from all rows of a step. Return their loss before it, summed over them.

        draw: a number that is drawn for this step, for all that is random in it.
        """
        ...

    def state(self) -> Any:
        """Return the model as it is now: picklable, and not changed by later steps."""
        ...

    def evaluated(self, rows: Rows) -> Sums:
        """Return what `MiniBatchTraining.evaluate` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSteps(MiniBatches):
    """A training by mini-batches whose steps are made whole, by a `Learner`: its sums would not add up."""

    def learner(self, state: Any) -> Learner:
        """Return a model that goes on from a state."""
        raise NotImplementedError

    def evaluate(self, state: Any, rows: Rows) -> Sums:
        return self.learner(state).evaluated(rows)

    @property
    def label(self) -> str:
        """What is trained, for people."""
        return type(self).__name__

    @property
    def takes_all(self) -> bool:
        """Whether features may be of any type, and NULL: they are then in `Rows.others`, or NaN."""
        return False

    def rate(self, progress: float) -> float:
        """Return 1: the model has its own."""
        return 1.0

    def partial(self, state: Any, rows: Rows, draw: int) -> Sums:
        """Never called: there are no sums."""
        raise NotImplementedError

    def gradients(self, sums: Sums) -> Sums:
        """Return none: nobody sees them."""
        return ()

    def update(self, state: Any, sums: Sums, rows: int, rate: float) -> Any:
        """Never called: there are no sums."""
        raise NotImplementedError


def most_rows(job: MiniBatchTraining) -> int:
    """Return the most rows that a step of the job may have."""
    return job.start_rows * MOST_GROWTH if job.rows_most is None else job.rows_most
