"""Models that users bring: what `Session.fit` takes, and the training job that it becomes.

| the model | how it is trained |
|---|---|
| one of `COUNTERPARTS`, such as `LogisticRegression(C=0.5)` | by our own algorithm, to the same optimum |
| one with `partial_fit`, or a Pipeline that ends in one | by that, a mini-batch a call (`PartialFits`) |
| a `torch.nn.Module` | by its own loss and optimiser (`ModuleSteps` of `elastic/torch_module.py`) |
| a job of `relaqs.training` | as it says itself |

A counterpart gets the parameters that mean the same. One that our algorithm cannot honour is refused by its
name, unless it has its default. The result is what the user gave, fitted: same class, same parameters.

`partial_fit` sees a pandas DataFrame of the SELECT's columns: numbers as doubles, NULL as NaN, texts and
dates as they are. An estimator of scikit-learn that asks for no names gets an array of doubles from the
second mini-batch on, since half of a small step is spent on checks of a DataFrame.

Batches are pieces of the shuffled layout, in an order that follows from the seed. The state of the model
between two tasks is its pickled bytes, so that a task can be made again elsewhere. All steps of a Pipeline
but the last are fitted once, on a sample of 10,000 rows.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.arguments import (
    ArgumentError,
    check_loss,
    check_seconds,
    check_whole,
    is_number,
    is_whole,
    refusal,
)
from relaqs.plugins import require
from relaqs.training.algorithms import make_training_job
from relaqs.training.launch import TrainingRecipe
from relaqs.training.protocol import MiniBatchTraining, TrainingJob, WholeSteps
from relaqs.training.rows import Profile, Rows, Sums, class_codes, frame_of, known_classes
from relaqs.training.run import HELD_OUT, Batch, StopWord, TrainingOptions

if TYPE_CHECKING:
    import pandas

Measure: TypeAlias = "str | Callable[[Any, Any, Any], SupportsFloat]"
"""A loss: the name of a scorer of scikit-learn, less of which is better, or a function of model, X and y."""


@dataclass(frozen=True, slots=True)
class Counterpart:
    """An estimator of a library, and our algorithm for it.

    Attributes:
        algorithm: its name in `ALGORITHMS`.
        same: our names of parameters, by the library's.
        without_effect: parameters that change how a library gets to the optimum, and not the optimum.
        accepted: further values that mean what the default means.
        passes: what is given to `n_iter_` of the fitted estimator; None where it has none.
    """

    algorithm: str
    same: Mapping[str, str]
    without_effect: frozenset[str]
    accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    passes: Callable[[int], Any] | None = None


_HOW = frozenset({"n_jobs", "verbose", "copy_X", "copy_x", "max_iter", "dual", "algorithm"})
_SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga")

COUNTERPARTS = {
    "LinearRegression": Counterpart("linear_regression", {}, _HOW | {"tol"}),
    "LogisticRegression": Counterpart(
        "logistic_regression",
        {"C": "strength", "tol": "tolerance"},
        _HOW | {"random_state", "warm_start", "intercept_scaling"},
        {"penalty": ("l2",), "solver": _SOLVERS, "l1_ratio": (None, 0, 0.0), "multi_class": ("auto",)},
        lambda passes: np.array([passes], dtype=np.int32),
    ),
    "LinearSVC": Counterpart(
        "linear_svm", {"C": "strength", "tol": "tolerance"}, _HOW | {"random_state"}, passes=int
    ),
    "Lasso": Counterpart(
        "lasso",
        {"alpha": "alpha"},
        _HOW | {"tol", "precompute", "warm_start", "random_state", "selection"},
        passes=int,
    ),
    "KMeans": Counterpart(
        "k_means",
        {"n_clusters": "clusters", "tol": "tolerance", "random_state": "seed"},
        _HOW,
        {"n_init": (1,)},
        int,
    ),
}
"""Those of scikit-learn, by their classes' names."""


Until: TypeAlias = "float | Literal['best'] | Mapping[str, float] | None"
"""What is good enough: a loss, {"accuracy": 0.9}, both in one mapping, or "best" for the best accuracy."""


def read_until(until: Until) -> tuple[float | None, float | None, StopWord]:
    """Return the loss, the accuracy and the stop option that a user means.

    Raises ArgumentError where it is nothing of the kind.

    >>> read_until({"accuracy": 0.9}), read_until(0.25), read_until("best")
    ((None, 0.9, 'required'), (0.25, None, 'iterations'), (None, None, 'best'))
    """
    if until is None or is_number(until):
        return until, None, "iterations"
    if until == "best":
        return None, None, "best"
    if isinstance(until, Mapping) and until and set(until) <= {"loss", "accuracy"}:
        accuracy = until.get("accuracy")
        return until.get("loss"), accuracy, "iterations" if accuracy is None else "required"
    raise refusal("until", until, 'a loss, {"accuracy": 0.9}, {"loss": 0.3}, or "best"')


def goals_of_fit(
    until: Until = None,
    within: float | None = None,
    timeout: float | None = None,
    passes: int | None = None,
    priority: float = 1.0,
    may_stop: bool = False,
) -> TrainingOptions:
    """Return what a user wants of a run, by the names of `Session.fit`. Raises ArgumentError.

    >>> goals_of_fit(until=0.3).target_loss, goals_of_fit(until={"accuracy": 0.9}).stop
    (0.3, 'required')
    """
    loss, accuracy, stop = read_until(until)
    if loss is not None:
        check_loss("until", loss)
    if within is not None:
        check_seconds("within", within)
    if passes is not None:
        check_whole("passes", passes)
    if not isinstance(may_stop, bool):
        raise refusal("may_stop", may_stop, "True or False")
    words: tuple[StopWord, ...] = ("best",) if accuracy is None else ("best", "required")
    return TrainingOptions(
        priority=priority,
        target_loss=loss,
        timeout=timeout,
        max_steps=passes,
        deadline=within,
        accuracy=accuracy,
        stop=stop,
        may_stop=words if may_stop else (),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """What a user asks to be fitted: the arguments of `Session.fit` that say what is learned.

    Attributes:
        model: what the user gave.
        sql: the SELECT of the rows. None where the model is a job, which has its own.
        target: the column to predict, or None.
        weight: the column of the rows' weights, or None.
        loss: how well the model does; for a module of PyTorch what it minimises.
        optimizer, schedule: of a module of PyTorch.
        batch: what a user said of the rows of a step.
        held_out: the share of partitions to measure by, where that is said.
        seed: of the order of rows and all draws.
        goals: when it is good enough.
    """

    model: Any
    sql: str | None = None
    target: str | None = None
    weight: str | None = None
    loss: Any = None
    optimizer: Any = None
    schedule: Any = None
    batch: Batch = None
    held_out: float | None = None
    seed: int = 0
    goals: TrainingOptions = field(default_factory=TrainingOptions)

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, least=0)

    @property
    def job(self) -> TrainingJob | MiniBatchTraining:
        """The training job. Raises ArgumentError where the model cannot be trained, or not like this."""
        if isinstance(self.model, type):
            raise ArgumentError(
                f"the model is the class {self.model.__name__}; give an instance of it, such as "
                f"{self.model.__name__}()"
            )
        if isinstance(self.model, TrainingJob | MiniBatchTraining):
            self._refuse("sql", "target", "weight", "loss", "optimizer", "schedule")
            return self.model
        if not isinstance(self.sql, str):
            raise ArgumentError(
                f"sql is {self.sql!r}; it must be the SELECT of the rows, such as 'SELECT x, y FROM points'. "
                "Open a data frame with relaqs.connect(tables={'points': frame})"
            )
        if any(
            each.__module__.startswith("torch.nn.") and each.__name__ == "Module"
            for each in type(self.model).__mro__
        ):
            from relaqs.training.elastic.torch_module import module_steps

            self._refuse("weight")
            return module_steps(
                self.model, self.sql, self.target, self.loss, self.optimizer, self.schedule, self.numbers
            )
        self._refuse("optimizer", "schedule")
        if _counterpart(self.model) is not None:
            self._refuse("weight", "loss")
            return self._ours()
        return self._partial_fits()

    @property
    def options(self) -> TrainingOptions:
        """What is asked of the run."""
        own = self.job
        is_measured_here = not isinstance(own, MiniBatchTraining)
        most = own.passes_most if isinstance(own, WholeSteps) else None
        if _counterpart(self.model) is not None:
            most = _parameters(self.model).get("max_iter")
        passes = most if is_whole(most) and most > 0 else None
        return replace(
            self.goals,
            batch=self.batch,
            max_steps=passes if self.goals.max_steps is None else self.goals.max_steps,
            held_out=self.held_out if is_measured_here else None,
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """What is said of mini-batches that the model makes itself."""
        said: dict[str, Any] = {"seed": self.seed}
        if is_whole(self.batch):
            said["start_rows"] = self.batch
        if self.held_out is not None or self.goals.asking is not None:
            said["held_out"] = HELD_OUT if self.held_out is None else self.held_out
        if self.goals.max_steps is not None:
            said["passes_most"] = self.goals.max_steps
        return said

    def fitted(self, estimator: Any, passes: int) -> Any:
        """Return what our algorithm has fitted, with the user's own parameters. passes: how many it took."""
        counterpart = _counterpart(self.model)
        if counterpart is None:
            return estimator
        estimator.set_params(**_parameters(self.model))
        if counterpart.passes is not None:
            estimator.n_iter_ = counterpart.passes(passes)
        return estimator

    def _refuse(self, *names: str) -> None:
        for name in names:
            if (value := getattr(self, name)) is not None:
                raise ArgumentError(
                    f"{name} is {value!r}, which {type(self.model).__name__} does not take; leave it out"
                )

    def _ours(self) -> TrainingJob | MiniBatchTraining:
        counterpart = _counterpart(self.model)
        assert counterpart is not None
        assert self.sql is not None
        parameters = {} if counterpart.algorithm == "k_means" else {"target": self._needed_target()}
        if counterpart.algorithm == "k_means":
            self._refuse("target")
        parameters |= honoured(self.model, counterpart)
        if "seed" in parameters and parameters["seed"] is None:
            parameters["seed"] = self.seed
        return make_training_job(counterpart.algorithm, self.sql, **parameters)

    def _needed_target(self) -> str:
        if self.target is None:
            raise ArgumentError(
                f"target is None, but {type(self.model).__name__} predicts a column; give its name, as in "
                "db.fit(model, sql, target='late')"
            )
        return self.target

    def _partial_fits(self) -> PartialFits:
        assert self.sql is not None
        last = last_step(self.model)
        if not callable(getattr(last, "partial_fit", None)):
            what = "ends in" if last is not self.model else "is"
            raise ArgumentError(
                f"the model {what} {type(last).__name__}, which has no partial_fit; give an estimator that "
                "has one, such as SGDClassifier, a Pipeline that ends in one, a torch.nn.Module, or one of "
                f"{', '.join(COUNTERPARTS)}"
            )
        if _is_predictor(last):
            self._needed_target()
        return PartialFits(
            sql=self.sql,
            target=self.target,
            model=self.model,
            weight=self.weight,
            loss=self.loss,
            **{**_ends(last), **self.numbers},
        )


def fit_recipe(model: Any, sql: str | None, asked: Mapping[str, Any]) -> TrainingRecipe:
    """Return how the run of a model is begun. asked: the other arguments of `Session.fit`, by name.

    Raises ArgumentError where they do not go together.
    """
    names = signature(goals_of_fit).parameters
    goals = {name: value for name, value in asked.items() if name in names}
    others = {name: value for name, value in asked.items() if name not in names}
    fit = Fit(model, sql, **others, goals=goals_of_fit(**goals))
    return TrainingRecipe(fit.job, fit.options, fit)


def honoured(model: Any, counterpart: Counterpart) -> dict[str, Any]:
    """Return our algorithm's parameters for those of an estimator.

    Raises ArgumentError naming the first one that our algorithm cannot honour.
    """
    defaults = {name: each.default for name, each in signature(type(model)).parameters.items()}
    found = {}
    for name, value in _parameters(model).items():
        if name in counterpart.same:
            found[counterpart.same[name]] = value
        elif name not in counterpart.without_effect and not _means(
            value, (defaults.get(name, Parameter.empty), *counterpart.accepted.get(name, ()))
        ):
            accepted = dict.fromkeys((defaults.get(name), *counterpart.accepted.get(name, ())))
            raise ArgumentError(
                f"{name} is {value!r}, which relaqs does not honour for {type(model).__name__}; it must be "
                f"{' or '.join(map(repr, accepted))}. For other values give an estimator with partial_fit, "
                "such as SGDClassifier or SGDRegressor"
            )
    return found


def _means(value: Any, accepted: tuple[Any, ...]) -> bool:
    """Return whether a value is one of those accepted. An array is none, and NaN means NaN."""
    if isinstance(value, float) and math.isnan(value):
        return any(isinstance(each, float) and math.isnan(each) for each in accepted)
    if isinstance(value, np.ndarray) or callable(value):
        return False
    is_bool = isinstance(value, bool)
    return any(value is each or (value == each and isinstance(each, bool) == is_bool) for each in accepted)


def _counterpart(model: Any) -> Counterpart | None:
    """Return our algorithm for an estimator. One of a user's own class has none: it may do otherwise."""
    home, name = type(model).__module__.split(".")[0], type(model).__name__
    return COUNTERPARTS.get(name) if home == "sklearn" else None


def _parameters(model: Any, *, deep: bool = False) -> dict[str, Any]:
    """Return an estimator's parameters by name. deep: also those of estimators in it, and these."""
    found = model.get_params(deep=deep) if hasattr(model, "get_params") else {}
    return cast("dict[str, Any]", found)


def last_step(model: Any) -> Any:
    """Return the last step of a Pipeline; of anything else, itself."""
    from sklearn.pipeline import Pipeline

    return model.steps[-1][1] if isinstance(model, Pipeline) and model.steps else model


def _is_predictor(model: Any) -> bool:
    from sklearn.base import is_classifier, is_regressor

    return bool(hasattr(model, "get_params") and (is_classifier(model) or is_regressor(model)))


def _ends(last: Any) -> dict[str, Any]:
    """Return when training ends, by the parameters that estimators have for that.

    One without `max_iter`, such as GaussianNB, has learned a row when it has seen it once.
    """
    own = _parameters(last)
    if not isinstance(own.get("max_iter"), int):
        return {"passes_most": 1}
    ends: dict[str, Any] = {"passes_most": max(own["max_iter"], 1)}
    if is_number(tolerance := own.get("tol")):
        ends["tolerance"] = max(float(tolerance), 0.0)
    if is_whole(patience := own.get("n_iter_no_change")):
        ends["patience_passes"] = patience
    if "tol" in own and tolerance is None:  # it never ends before
        ends["patience_passes"] = ends["passes_most"]
    return ends


BATCH_ROWS = 1024  # from there on the overhead of a call of partial_fit is below that of its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFits(WholeSteps):
    """Calls of an estimator's own `partial_fit`, one a step, as a training by mini-batches.

    Args:
        sql, target: as `MiniBatchTraining` has them.
        model: an estimator with `partial_fit`, or a Pipeline that ends in one. It is not changed.
        weight: the column that is given as `sample_weight`, or None.
        loss: how well it does. None: log loss, or the share of rows told wrongly where there are no
            probabilities; the mean squared error of numbers; otherwise its own `score`, negated, a row.
    """

    sql: str
    target: str | None
    model: Any
    weight: str | None = None
    loss: Measure | None = None
    start_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        WholeSteps.__post_init__(self)
        require("sklearn", "pandas", "cloudpickle")
        if self.loss is not None and not callable(self.loss):
            from sklearn.metrics import get_scorer

            try:
                get_scorer(self.loss)
            except (ValueError, TypeError) as error:
                raise ArgumentError(
                    f"loss is {self.loss!r}; it must be a function of model, X and y, or the name of a "
                    "scorer of scikit-learn, such as 'neg_log_loss'"
                ) from error

    @property
    def label(self) -> str:
        return type(last_step(self.model)).__name__

    @property
    def takes_all(self) -> bool:
        return True

    @property
    def tells_classes(self) -> bool:
        """Whether it is a classifier."""
        from sklearn.base import is_classifier

        last = last_step(self.model)
        return bool(hasattr(last, "get_params") and is_classifier(last))

    def begin(self, profile: Profile) -> bytes:
        """Return the model before its first step: what comes before the last step is fitted to a sample."""
        if self.weight is not None and self.weight not in profile.names:
            raise DataError(
                f"the weight {self.weight!r} is no column of the SELECT, which has {', '.join(profile.names)}"
            )
        mean_weight = 1.0 if self.weight is None else _mean_weight(profile, self.weight)
        classes = known_classes(profile, self.target or "") if self.tells_classes else None
        columns = tuple(name for name in profile.names if name != self.weight)
        model = _seeded(self.model, self.seed)
        fitting = _Fitting(self, model, columns, profile.names, classes, mean_weight)
        fitting.fit_front(profile.sampled)
        return fitting.state()

    def learner(self, state: bytes) -> _Fitting:
        return _Fitting(self, *pickle.loads(state))

    def estimator(self, profile: Profile, state: bytes) -> Any:
        return self.learner(state).handed_out()


class _Fitting:
    """An estimator between two steps. Its last step is the one that learns.

    Args:
        columns: what it learns from, in order. names: all that is read: these, and the weight.
        classes: to tell apart, or None.
        mean_weight: of all rows. A row's loss counts by its weight over that.
        names_in: the names that scikit-learn has noted in the first step, while that gets arrays.
    """

    def __init__(
        self,
        job: PartialFits,
        model: Any,
        columns: tuple[str, ...],
        names: tuple[str, ...],
        classes: NDArray[Any] | None,
        mean_weight: float,
        has_learned: bool = False,
        names_in: NDArray[Any] | None = None,
    ) -> None:
        self._job, self.model = job, model
        self._columns, self._names, self._classes = columns, names, classes
        self._mean_weight, self._has_learned, self._names_in = mean_weight, has_learned, names_in
        self._last = last_step(model)
        self._first = model if self._last is model else model.steps[0][1]
        takes = signature(self._last.partial_fit).parameters
        self._takes_classes = "classes" in takes
        if job.weight is not None and "sample_weight" not in takes:
            raise ArgumentError(
                f"weight is {job.weight!r}, but partial_fit of {type(self._last).__name__} takes no "
                "sample_weight; leave it out"
            )
        self._takes_arrays = job.loss is None and not _asks_for_names(model)
        self._places = [names.index(name) for name in columns]

    def fit_front(self, sample: Rows) -> None:
        """Fit all steps of a Pipeline but the last."""
        if self._last is self.model or len(self.model.steps) < 2:
            return
        front = self.model[:-1]
        front.fit(self._frame(sample), sample.target)
        self.model.steps[:-1] = front.steps

    def step(self, rows: Rows, draw: int) -> float:
        from sklearn import config_context

        with config_context(skip_parameter_validation=self._has_learned):  # once is enough
            return self._stepped(rows)

    def _stepped(self, rows: Rows) -> float:
        frame = self._features(rows)
        seen = self._transformed(frame)
        if self._has_learned:
            loss = self._loss(frame, seen, rows)
            self._learn(seen, rows)
        else:
            self._learn(seen, rows)  # it says nothing before the first step
            loss = self._loss(frame, seen, rows)
        return loss * len(rows)

    def state(self) -> bytes:
        import cloudpickle

        held = (
            self.model,
            self._columns,
            self._names,
            self._classes,
            self._mean_weight,
            self._has_learned,
            self._names_in,
        )
        return cast(bytes, cloudpickle.dumps(held))

    def evaluated(self, rows: Rows) -> Sums:
        """Return the loss of held-out rows, and how many are told rightly where they have classes."""
        frame = self._features(rows)
        seen = self._transformed(frame)
        loss = np.asarray(self._loss(frame, seen, rows) * len(rows))
        if self._classes is None:
            return (loss,)
        return loss, np.asarray(float((self._last.predict(seen) == rows.target).sum()))

    def _learn(self, seen: Any, rows: Rows) -> None:
        """Learn from some rows, unless none of them has a weight."""
        weights = None if self._job.weight is None else self._weights(rows)
        if weights is not None and not weights.any():
            return
        named: dict[str, Any] = {} if weights is None else {"sample_weight": weights}
        if self._takes_classes and self._classes is not None and not self._has_learned:
            named["classes"] = self._classes
        if rows.target is None:
            self._last.partial_fit(seen, **named)
        else:
            self._last.partial_fit(seen, rows.target, **named)
        self._has_learned = True

    def _features(self, rows: Rows) -> pandas.DataFrame | FloatArray:
        """Return what the first step is given. It notes the names of columns once, from a DataFrame."""
        if not self._takes_arrays or rows.others is not None or not self._has_learned:
            return self._frame(rows)
        if (names := vars(self._first).pop("feature_names_in_", None)) is not None:
            self._names_in = names  # it would warn of arrays
        if self._job.weight is None:
            return rows.features
        return np.ascontiguousarray(rows.features[:, self._places])

    def handed_out(self) -> Any:
        """Return the model with the names that its first step has noted."""
        if self._names_in is not None:
            self._first.feature_names_in_ = self._names_in
        return self.model

    def _frame(self, rows: Rows) -> pandas.DataFrame:
        frame = frame_of(rows, self._names)
        return frame[list(self._columns)] if self._job.weight else frame

    def _weights(self, rows: Rows) -> FloatArray:
        assert self._job.weight is not None
        if rows.others is None:
            return np.ascontiguousarray(rows.features[:, self._names.index(self._job.weight)])
        return np.asarray(frame_of(rows, self._names)[self._job.weight], dtype=np.float64)

    def _transformed(self, frame: pandas.DataFrame | FloatArray) -> Any:
        """Return what the last step sees."""
        if self._last is self.model or len(self.model.steps) < 2:
            return frame
        return self.model[:-1].transform(frame)

    def _loss(self, frame: pandas.DataFrame | FloatArray, seen: Any, rows: Rows) -> float:
        """Return the mean loss of some rows, by their weights."""
        measure = self._job.loss
        weights = None if self._job.weight is None else self._weights(rows)
        if not self._has_learned:  # no row so far had a weight
            if measure is None:
                return 0.0
            raise DataError(
                f"the weight {self._job.weight!r} is 0 in all rows of the first mini-batch, after which "
                "the loss cannot be measured; give a larger batch, or leave loss out"
            )
        if callable(measure):
            return float(measure(self.model, frame, rows.target))
        if measure is not None:
            from sklearn.metrics import get_scorer

            return -float(get_scorer(measure)(self.model, frame, rows.target))
        if self._classes is not None:
            return self._weighed(self._class_losses(seen, rows), weights)
        if _is_predictor(self._last):
            assert rows.target is not None
            return self._weighed((self._last.predict(seen) - rows.target) ** 2, weights)
        return self._own_score(seen, rows)

    def _weighed(self, losses: FloatArray, weights: FloatArray | None) -> float:
        """Return the mean of losses, by weights over all rows: however these lie in batches."""
        return float(losses.mean() if weights is None else (losses * weights).mean() / self._mean_weight)

    def _class_losses(self, seen: Any, rows: Rows) -> FloatArray:
        """Return each row's log loss, or 1 for a row told wrongly where there are no probabilities."""
        if not hasattr(self._last, "predict_proba"):
            return np.asarray(self._last.predict(seen) != rows.target, dtype=np.float64)
        assert self._classes is not None
        chances = self._last.predict_proba(seen)
        own = chances[np.arange(len(rows)), class_codes(rows.target, self._classes)]
        return np.asarray(-np.log(np.clip(own, np.finfo(np.float64).eps, 1.0)))

    def _own_score(self, seen: Any, rows: Rows) -> float:
        score = getattr(self._last, "score", None)
        if score is None:
            raise ArgumentError(
                f"{type(self._last).__name__} has no score; say how well it does: "
                "db.fit(model, sql, loss=lambda model, X, y: …)"
            )
        return -float(score(seen)) / len(rows)


_BY_NAME = frozenset({"ColumnTransformer", "FunctionTransformer"})


def _asks_for_names(model: Any) -> bool:
    """Return whether a model may look at the names of columns: all but scikit-learn's own may.

    So may estimators in others, and what gives data frames.
    """
    from sklearn import get_config

    if get_config().get("transform_output", "default") != "default":
        return True
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    return not all(
        type(step).__module__.split(".")[0] == "sklearn"
        and type(step).__name__ not in _BY_NAME
        and not hasattr(step, "_sklearn_output_config")
        and not any(hasattr(each, "get_params") for each in _parameters(step, deep=True).values())
        for step in steps
    )


def _mean_weight(profile: Profile, weight: str) -> float:
    """Return the mean weight of all rows. Raises DataError where rows cannot be weighed."""
    others = profile.sampled.others
    numbers = [name for name in profile.names if others is None or name not in others.column_names]
    if weight not in numbers:
        raise DataError(f"the weight {weight!r} is no number; CAST it, or encode it by CASE")
    mean = float(profile.mean[numbers.index(weight)])
    if not math.isfinite(mean):
        raise DataError(
            f"the weight {weight!r} is NULL, NaN or infinite in some rows; leave them out with "
            "WHERE isfinite(…), or fill them with coalesce"
        )
    if mean <= 0:
        raise DataError(f"the mean of the weight {weight!r} is {mean:g}; some rows need a weight above 0")
    return mean


def _seeded(model: Any, seed: int) -> Any:
    """Return an unfitted copy. Where it would draw by chance, it draws by the seed."""
    from copy import deepcopy

    from sklearn.base import clone

    if not hasattr(model, "get_params"):
        return deepcopy(model)
    own = clone(model)
    draws = {
        name: seed
        for name, value in own.get_params(deep=True).items()
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    return own.set_params(**draws)
