"""Many runs of one model or function with other parameters each: `Session.search`, and who of them goes on.

Each trial is a job of its own, so the scheduler shares the cores among trials, queries and all else. A
search does two things more. It looks at the losses of its trials twenty times a second:

- *Weights.* Trials are ranked by the loss that each is expected to come to (`forecasts`). The first has the
  priority of the search, the second half of it, the third a third: cores go to those that may win.
- *Ends.* A `Pruner` says which trials go no further.

| pruner | a trial ends when |
|---|---|
| `"forecast"` | it would not reach the best loss so far even if it fell half as far again as its curve says |
| `"asha"` | it reaches a rung (1, 3, 9, 27 … losses) and is not among the best third of those that did |
| `"median"` | its best loss is worse than the median of the others' mean losses up to there |

Losses are compared, so they must be of rows that all trials are judged by. A fitted model is judged by rows
that are held out. Sources: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning (ASHA);
Golovin et al. 2017, Google Vizier (median stopping).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import RelaqsError

from relaqs.arguments import ArgumentError, check_loss, check_priority, check_seconds, check_whole, refusal
from relaqs.jobs.checkpoint import NO_KEEPER, RunKeeper, check_same_rows, packed, unpacked
from relaqs.jobs.executor import Stopwatch, background_thread, is_set_in_time, raised_anew, without_frames
from relaqs.jobs.handle import check_strictly, lacking_loss
from relaqs.plugins import require
from relaqs.prediction import GEOMETRIC, HARMONIC, SUBLINEAR
from relaqs.prediction.curves import WINDOW, Series, fit_best_curves
from relaqs.progress import StopReason

PrunerWord = Literal["forecast", "asha", "median"]
LOOK_SECONDS = 0.05
FEWEST_LOSSES = 4  # from there on families of curves are chosen among
FAR = 10.0  # times the losses so far: what a curve says there is taken for the end
FURTHER = 1.5  # times as far as its curve says a trial may still fall
FIRST_RUNG, REDUCTION = 1, 3
HELD_OUT = 0.1  # of the partitions, by which models are compared: many trials are


class TrialRun(Protocol):
    """What a search asks of the run of a trial."""

    priority: float

    @property
    def state(self) -> str: ...

    @property
    def latest(self) -> Any: ...

    @property
    def stop_reason(self) -> StopReason | None: ...

    def stop(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def result(self, timeout: float | None = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a search, as it stands.

    Attributes:
        parameters: that it has.
        losses: of the rows that all trials are judged by, oldest first.
        state: of its run.
        pruned: whether the search ended it.

    >>> Trial({"alpha": 0.1}, (0.5, 0.25), "running", False).loss
    0.25
    """

    parameters: Mapping[str, Any]
    losses: tuple[float, ...]
    state: str
    pruned: bool

    @property
    def loss(self) -> float:
        """The best loss so far; inf before the first."""
        return min(self.losses, default=math.inf)


def forecasts(losses: Sequence[Sequence[float]]) -> FloatArray:
    """Return the loss that each trial is expected to come to, shape (trials,); inf before its first."""
    most = max((min(len(each), WINDOW) for each in losses), default=0)
    if not most:
        return np.full(len(losses), np.inf)
    x, y = np.full((len(losses), most), np.nan), np.full((len(losses), most), np.nan)
    for row, each in enumerate(losses):
        kept = min(len(each), most)
        if kept:
            x[row, -kept:] = np.arange(len(each) - kept, len(each)) + 1.0
            y[row, -kept:] = each[-kept:]
    counts = np.array([len(each) for each in losses], dtype=np.float64)
    curves = fit_best_curves((SUBLINEAR, GEOMETRIC), Series.of(x, y), first=HARMONIC)
    return np.where(counts > 0, curves.at(FAR * counts[:, None])[:, 0], np.inf)


class Losses(Sequence[float]):
    """The losses of one trial, oldest first, with what pruners ask of the first n of them.

    >>> losses = Losses([3.0, 1.0, 2.0])
    >>> losses.best(1), losses.best(3), losses.mean(2)
    (3.0, 1.0, 2.0)
    """

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self._losses: list[float] = []
        self._bests: list[float] = []
        self._sums = [0.0]
        self.extend(losses)

    def extend(self, losses: Iterable[float]) -> None:
        """Take in what is new."""
        for loss in losses:
            self._losses.append(loss)
            self._bests.append(min(loss, self._bests[-1] if self._bests else math.inf))
            self._sums.append(self._sums[-1] + loss)

    def __len__(self) -> int:
        return len(self._losses)

    def __getitem__(self, index: Any) -> Any:
        return self._losses[index]

    def best(self, count: int | None = None) -> float:
        """Return the least of the first, by default of all; inf of none."""
        last = len(self._bests) if count is None else count
        return self._bests[last - 1] if last else math.inf

    def mean(self, count: int) -> float:
        """Return the mean of the first."""
        return self._sums[count] / count


Pruner: TypeAlias = Callable[[Sequence[Losses]], Sequence[bool]]
"""Says of each trial whether it ends now, by the losses of all. It is pure, and reads few losses of each."""


def without_a_chance(losses: Sequence[Losses]) -> list[bool]:
    """Return which trials would not reach the best loss even if they fell further than their curves say.

    >>> without_a_chance([Losses([1.0, 0.5, 0.33, 0.25]), Losses([3.0, 2.9, 2.87, 2.86]), Losses([2.0])])
    [False, True, False]
    """
    best = min((each.best() for each in losses), default=math.inf)
    return [
        len(each) >= FEWEST_LOSSES
        and each.best() > best
        and each.best() - FURTHER * max(each[-1] - end, 0.0) > best
        for each, end in zip(losses, forecasts(losses).tolist(), strict=True)
    ]


def below_the_median(losses: Sequence[Losses]) -> list[bool]:
    """Return which trials are worse than the median of the others' mean losses up to the same number.

    >>> below_the_median([Losses([1.0, 0.5]), Losses([1.0, 0.6]), Losses([1.0, 0.9])])
    [False, False, True]
    """
    ends = []
    for trial, each in enumerate(losses):
        others = [
            other.mean(len(each))
            for index, other in enumerate(losses)
            if index != trial and len(other) >= len(each) > 1
        ]
        ends.append(len(others) > 1 and each.best() > float(np.median(others)))
    return ends


def below_a_rung(losses: Sequence[Losses]) -> list[bool]:
    """Return which trials are not among the best third at some rung that they have reached.

    >>> below_a_rung([Losses([1.0]), Losses([2.0]), Losses([3.0])])
    [False, True, True]
    """
    ends = [False] * len(losses)
    rung = FIRST_RUNG
    while any(len(each) >= rung for each in losses):
        reached = {trial: each.best(rung) for trial, each in enumerate(losses) if len(each) >= rung}
        go_on = max(1, len(reached) // REDUCTION)
        if len(reached) >= REDUCTION:
            for trial in sorted(reached, key=lambda trial: reached[trial])[go_on:]:
                ends[trial] = True
        rung *= REDUCTION
    return ends


PRUNERS: Mapping[str, Pruner] = {
    "forecast": without_a_chance,
    "asha": below_a_rung,
    "median": below_the_median,
}


@dataclass(frozen=True, slots=True)
class SearchGoals:
    """What a user wants of a search. Raises ArgumentError for what is not accepted.

    Attributes:
        trials: how many there are at most. abreast: how many at the same time.
    """

    trials: int
    abreast: int
    stop: PrunerWord | None = "forecast"
    until: float | None = None
    timeout: float | None = None
    priority: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("trials", self.trials)
        check_whole("abreast", self.abreast)
        check_whole("seed", self.seed, least=0)
        check_priority(self.priority)
        if self.stop is not None and self.stop not in get_args(PrunerWord):
            raise refusal("stop", self.stop, f"None or {' or '.join(map(repr, get_args(PrunerWord)))}")
        if self.until is not None:
            check_loss("until", self.until)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)


def drawn_parameters(space: Mapping[str, Any], trials: int, seed: int) -> list[dict[str, Any]]:
    """Return the parameters of each trial.

    Args:
        space: for each name a list of values, or a distribution with `rvs`, such as scipy.stats.loguniform.

    Raises ArgumentError where the space is no such mapping.
    """
    require("sklearn")
    from sklearn.model_selection import ParameterSampler

    if not isinstance(space, Mapping) or not space:
        raise refusal("space", space, 'a mapping of names to values, such as {"alpha": [0.01, 0.1]}')
    for name, values in space.items():
        if not hasattr(values, "rvs") and not (isinstance(values, Sequence) and not isinstance(values, str)):
            raise refusal(f"space[{name!r}]", values, "a list of values, or a distribution of scipy.stats")
    most = math.inf
    if not any(hasattr(values, "rvs") for values in space.values()):
        most = math.prod(len(values) for values in space.values())
    sampled = ParameterSampler(space, int(min(trials, most)), random_state=seed)
    return [
        {name: value.item() if isinstance(value, np.generic) else value for name, value in drawn.items()}
        for drawn in sampled
    ]


@dataclass(slots=True)
class EndedTrial:
    """The run of a trial that ended in another process: what was kept of it.

    Attributes:
        latest: what it gave, or the newest of one that was ended before.
        error: why it failed, if it did.
        seen: all its losses, also those that are not finite.
    """

    state: str
    stop_reason: StopReason | None
    latest: Any
    error: str | None
    seen: tuple[float, ...]
    priority: float = 1.0

    def losses_from(self, start: int) -> Sequence[float]:
        return self.seen[start:]

    def stop(self) -> None:
        """Do nothing: it is over."""

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise RelaqsError(self.error)
        return self.latest


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """What a search goes on with of a trial that has begun. ended: pickled; None of one that was going on."""

    pruned: bool
    ended: bytes | None
    state: bytes | None


@dataclass(frozen=True, slots=True)
class KeptSearch:
    """What a search goes on from in another process.

    Attributes:
        trials: those that have begun.
        elapsed_seconds: that it had run.
        digest: of the rows that models are fitted to; empty for a function, of which each trial has its own.
    """

    trials: tuple[KeptTrial, ...]
    elapsed_seconds: float
    digest: str


class _Begun:
    """A trial that has begun."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        run: TrialRun,
        losses: Callable[[int], Sequence[float]],
        keeper: RunKeeper | None = None,
    ) -> None:
        self.parameters, self.run, self._losses = parameters, run, losses
        self.pruned = False
        self._keeper = keeper or NO_KEEPER
        self._lock = threading.Lock()
        self._seen = 0
        self._finite = Losses()
        self._ended: bytes | None = None

    @property
    def losses(self) -> Losses:
        """The finite losses so far. They grow; what is new is added where they are asked for."""
        with self._lock:
            new = self._losses(self._seen)
            self._seen += len(new)
            self._finite.extend(loss for loss in new if math.isfinite(loss))
            return self._finite

    @property
    def loss(self) -> float:
        """The best loss so far; inf before the first."""
        return self.losses.best()

    @property
    def trial(self) -> Trial:
        return Trial(self.parameters, tuple(self.losses), self.run.state, self.pruned)

    @property
    def is_over(self) -> bool:
        return self.run.wait(0.0)

    def kept(self) -> KeptTrial:
        """Return what another process goes on with."""
        if self._ended is None and self._is_done:
            self._ended = packed(self._as_ended(), "what a trial gave")
        return KeptTrial(self.pruned, self._ended, None if self._ended else self._keeper.state)

    @property
    def _is_done(self) -> bool:
        """Whether it has come to its end, and was not only stopped with its search."""
        return self.is_over and (self.pruned or self.run.stop_reason is not StopReason.STOPPED)

    def _as_ended(self) -> EndedTrial:
        run, given, error = self.run, None, None
        try:
            given = run.latest if run.state == "stopped" else run.result()
        except Exception as failure:
            error = str(failure)
        return EndedTrial(run.state, run.stop_reason, given, error, tuple(self._losses(0)))


Begun: TypeAlias = tuple[TrialRun, Callable[[int], Sequence[float]]]
"""The run of a trial, and what says its losses from some number on."""

Begin = Callable[[Mapping[str, Any], "RunKeeper"], Begun]
"""Starts a trial, from what its keeper has."""


@dataclass(frozen=True, slots=True)
class SearchRecipe:
    """How a search is begun.

    Attributes:
        model: an estimator, or a function.
        parameters: of each trial.
        sql: the SELECT of the rows; None for a function.
        asked: what else is asked of each trial.
    """

    model: Any
    parameters: tuple[Mapping[str, Any], ...]
    sql: str | None
    goals: SearchGoals
    asked: Mapping[str, Any]

    def begun(self, session: Any, keeper: RunKeeper) -> SearchRun:
        def begin(parameters: Mapping[str, Any], keeper: RunKeeper) -> Begun:
            if self.sql is None:
                return self._begun_function(session, parameters, keeper)
            return self._begun_fit(session, parameters, keeper)

        digest = ""
        if self.sql is not None and keeper is not NO_KEEPER:
            digest = session._readable(self.sql, None).digest
            if (kept := keeper.restored()) is not None:
                check_same_rows(kept.digest, digest)
        search = SearchRun(begin, self.parameters, self.goals, keeper, digest)
        search.start()
        return search

    def _begun_function(self, session: Any, parameters: Mapping[str, Any], keeper: RunKeeper) -> Begun:
        from relaqs.pacing.function_run import Call, FunctionRecipe, RunGoals

        asked = dict(self.asked)
        program = Call(self.model, dict(parameters), asked.pop("name", None))
        run = FunctionRecipe(program, RunGoals(**asked)).begun(session, keeper)
        return run, run.losses_from

    def _begun_fit(self, session: Any, parameters: Mapping[str, Any], keeper: RunKeeper) -> Begun:
        """Return the run of a model with other parameters, and what says its losses on held-out rows."""
        from sklearn.base import clone

        own = clone(self.model).set_params(**parameters)
        recipe = session._fit_recipe(own, self.sql, {"held_out": HELD_OUT, **self.asked})
        fitted: Any = recipe.begun(session, keeper)
        if fitted.batch_rows is not None:
            return fitted, lambda start: fitted.losses[start:]
        return fitted, lambda start: [1.0 - step.accuracy for step in fitted.steps[start:]]


class SearchRun:
    """A search that goes on. `Session.search` makes one.

    >>> def approach(ctx, goal):
    ...     for step in range(1, 30):
    ...         if not ctx.report(abs(goal - 3) + 1 / step):
    ...             break
    ...     return goal
    >>> with relaqs.connect("data", threads=2) as db:
    ...     search = db.search(approach, {"goal": [1, 2, 3, 4]}, trials=4)
    ...     search.result(), search.best.parameters, len(search.trials)
    (3, {'goal': 3}, 4)
    """

    def __init__(
        self,
        begin: Begin,
        parameters: Sequence[Mapping[str, Any]],
        goals: SearchGoals,
        keeper: RunKeeper,
        digest: str = "",
    ) -> None:
        """Set it up.

        Args:
            parameters: of each trial.
            goals: what is wanted of it.
            keeper: keeps the states of its trials, and has those that it goes on from.
            digest: of the rows that its models are fitted to.
        """
        self._begin, self._goals, self._keeper, self._digest = begin, goals, keeper, digest
        self._waiting = list(parameters)
        self._begun: list[_Begun] = []
        self._prune = None if goals.stop is None else PRUNERS[goals.stop]
        self._stopwatch, self._earlier_seconds = Stopwatch(), 0.0
        self._judged = 0  # losses, of all trials, at the last look
        self._reason: StopReason | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = background_thread(self._drive, "relaqs-search")

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials that have begun, in that order."""
        return tuple(each.trial for each in list(self._begun))

    @property
    def best(self) -> Trial | None:
        """The trial with the best loss so far. None before the first loss."""
        best = self._best
        return None if best is None else best.trial

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the search is over; None while it is not."""
        return self._reason if self._ended.is_set() else None

    def stop(self) -> None:
        """End all trials with what there is. Returns at once."""
        self._reason = self._reason or StopReason.STOPPED

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over, within the timeout in seconds."""
        return is_set_in_time(self._ended, timeout)

    @property
    def shortfall(self) -> str | None:
        """What was asked for and has not come, for people; None where all has, or the search is not over."""
        best = self._best
        is_over = self._ended.is_set()
        return lacking_loss(math.inf if best is None else best.loss, self._goals.until) if is_over else None

    def result(self, timeout: float | None = None, *, strict: bool = False) -> Any:
        """Return what the best trial gives: a fitted estimator, or what the function returned.

        Of a function that was ended before it returned it is what it saved last.

        Args:
            timeout: seconds after which the search is stopped.
            strict: whether to raise where no trial has reached `until`.

        Raises:
            RelaqsError: no trial has a loss, or what was asked for has not come. The error of a trial is
                raised where all have failed.
        """
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        try:
            self.wait(seconds)
        finally:
            self.stop()
        self.wait()
        if self._error is not None:
            raise raised_anew(self._error)
        if (best := self._best) is None:
            for each in self._begun:
                each.run.result()  # raises what made it fail
            step = "allow it more time"
            if self._reason is StopReason.PASSES:
                step = "give a function that calls ctx.report(loss) with finite losses"
            raise RelaqsError(f"the search ended before any trial had a loss; {step}")
        check_strictly(self.shortfall, strict)
        if best.run.state in ("stopped", "failed"):
            return best.run.latest
        return best.run.result()

    def __repr__(self) -> str:
        best = self.best
        reached = "" if best is None else f", loss {best.loss:.6g} by {dict(best.parameters)}"
        return f"<SearchRun of {len(self._begun)} trials{reached}>"

    @property
    def _best(self) -> _Begun | None:
        found = [(each.loss, each) for each in list(self._begun)]
        return min(
            (pair for pair in found if pair[0] < math.inf), key=lambda pair: pair[0], default=(0, None)
        )[1]

    def _drive(self) -> None:
        try:
            self._go_on_from(self._keeper.restored())
            while self._goes_on():
                self._look()
                self._keeper.keep_if_due(self._kept)
                time.sleep(LOOK_SECONDS)
        except BaseException as error:
            self._error, self._reason = without_frames(error), StopReason.FAILED
        finally:
            for each in self._begun:
                each.run.stop()
            for each in self._begun:
                each.run.wait()
            with suppress(RelaqsError):
                if self._reason in (StopReason.STOPPED, StopReason.TIME):
                    self._keeper.keep(self._kept)
            self._ended.set()

    def _kept(self) -> KeptSearch:
        """Return what another process goes on from."""
        kept = tuple(each.kept() for each in self._begun)
        return KeptSearch(kept, self._stopwatch.seconds(), self._digest)

    def _go_on_from(self, kept: KeptSearch | None) -> None:
        """Begin the trials of another process again, each from its state."""
        if kept is None:
            return
        self._stopwatch.earlier_seconds = self._earlier_seconds = kept.elapsed_seconds
        for each in kept.trials:
            if each.ended is None:
                begun = self._begun_trial(self._waiting.pop(0), each.state)
                if each.pruned:
                    begun.run.stop()
            else:
                ended: EndedTrial = unpacked(each.ended)
                begun = _Begun(self._waiting.pop(0), ended, ended.losses_from)
            begun.pruned = each.pruned
            self._begun.append(begun)

    def _begun_trial(self, parameters: Mapping[str, Any], state: bytes | None = None) -> _Begun:
        keeper = NO_KEEPER if self._keeper is NO_KEEPER else RunKeeper(self._keeper.seconds / 2, state)
        return _Begun(parameters, *self._begin(parameters, keeper), keeper)

    def _goes_on(self) -> bool:
        """Begin trials while there is room. Return whether any is left."""
        if self._reason is not None:
            return False
        goals, best = self._goals, self._best
        if best is not None and goals.until is not None and best.loss <= goals.until:
            self._reason = StopReason.TARGET
        elif goals.timeout is not None and self._ran_seconds >= goals.timeout:
            self._reason = StopReason.TIME
        if self._reason is not None:
            return False
        going = sum(not each.is_over for each in self._begun)
        while self._waiting and going < goals.abreast:
            self._begun.append(self._begun_trial(self._waiting.pop(0)))
            going += 1
        if not going:
            self._reason = StopReason.PASSES
        return going > 0

    @property
    def _ran_seconds(self) -> float:
        """How long it has run in this process."""
        return self._stopwatch.seconds() - self._earlier_seconds

    def _look(self) -> None:
        """End trials, and weigh those that go on, if any has a new loss."""
        begun = list(self._begun)
        losses = [each.losses for each in begun]
        judged, self._judged = self._judged, sum(map(len, losses))
        if judged == self._judged:
            return
        if self._prune is not None:
            for each, ends in zip(begun, self._prune(losses), strict=True):
                if ends and not each.is_over:
                    each.pruned = True
                    each.run.stop()
        order = np.argsort(forecasts(losses), kind="stable")
        going = [begun[index] for index in order if not begun[index].is_over]
        for rank, each in enumerate(going, 1):
            each.run.priority = self._goals.priority / rank


def check_fit(model: Any, sql: str | None) -> None:
    """Raise ArgumentError where a search is given neither a function, nor a model and its rows."""
    if isinstance(model, type) and hasattr(model, "set_params"):
        raise ArgumentError(f"the model is the class {model.__name__}; give an instance of it")
    if hasattr(model, "set_params"):
        from sklearn.base import is_classifier

        last = model.steps[-1][1] if getattr(model, "steps", None) else model
        if not hasattr(last, "partial_fit") and not is_classifier(last):
            raise ArgumentError(
                f"the model is {model!r}, which has no loss on rows held out to compare trials by; give a "
                "classifier, an estimator with partial_fit such as SGDRegressor or MiniBatchKMeans, or a "
                "function that reports a loss"
            )
        return
    if callable(model) and sql is None:
        return
    raise ArgumentError(
        f"the model is {model!r}; give an estimator of scikit-learn with its SELECT, or a function that "
        "takes a relaqs.pacing.Context and parameters by name"
    )
