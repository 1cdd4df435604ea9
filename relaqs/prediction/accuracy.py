"""The accuracy that lies ahead of training runs, as a distribution: many curves, each with its weight.

The theory in half a page. A run may stop early if we can say how good it would become. Domhan,
Springenberg and Hutter 2015 (Speeding up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves, IJCAI) sample parametric curves by Markov chains, which takes seconds for
each run. All of their curves that we use have the form

    accuracy(x) = c − s·φ(x),  s ≥ 0, c ≤ 1,

where φ falls with the passes x and has at most two numbers of its own. So we put these numbers on a grid.
For each point of the grid c and s are a straight-line fit, for all runs at once, and what is left over
gives the noise. Each point is a model. It weighs exp(−BIC/2) (Schwarz 1978), so a curve with more numbers
must fit better. The prediction is the mixture of all of them. Its variance is the noise, and how little
the line is known, and how far the curves lie apart.

| family | φ(x) | from |
|---|---|---|
| power | x^−α | Domhan's pow3; α = 1 is harmonic, SLAQ's slowest |
| logarithm | 1/ln(1 + x) | Domhan's ilog2 |
| Weibull | e^−(κx)^δ | Domhan; his Janoschek is the same curve with other letters; δ = 1 is geometric |
| sublinear | 1/(1 + b·x + a·x²) | SLAQ |

No curve foresees a change of the algorithm, such as a smaller learning rate, or an optimiser that leaves a
plateau. So a variance for what no curve knows grows with the way ahead, as that of a random walk over ln x
(Kennedy, O'Hagan 2001, Bayesian calibration of computer models, call it discrepancy). How large it is was
measured: docs/benchmarks.md.

What the accuracies of runs promise follows from it (`accuracy_ahead`): a run ends early if it is at most 5
% likely to become better than what is wanted (Domhan et al., section 4), or at the best accuracy that is
to be expected (Wang, Liu, Shen 2020, section 3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

FEWEST = 4  # accuracies, before which nothing is said
NOISE = 0.005  # assumed of an accuracy, and worth one observation
DRIFT = 0.6  # what no curve knows: this part of the newer half's range, over a factor of e of the passes
DRIFT_LEAST = 0.002  # of accuracy, at least
GAIN_DOUBT = 0.5  # standard deviation of a predicted gain, as a part of it
RECENCY = 3.0  # an observation counts as its place among the passes to this power


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """A mixture of G normal distributions for each of J runs, at K positions ahead.

    Attributes:
        values: the accuracy by each curve, shape (J, G, K).
        deviations: their standard deviations, shape (J, G, K).
        weights: of each curve, shape (J, G). They add up to 1.
    """

    values: FloatArray
    deviations: FloatArray
    weights: FloatArray

    @property
    def mean(self) -> FloatArray:
        """The expected accuracy, shape (J, K)."""
        return np.asarray(np.einsum("jg,jgk->jk", self.weights, self.values))

    def below(self, level: FloatArray) -> FloatArray:
        """Return the probability that the accuracy is below a level. level: shape (J, K) or (J, 1)."""
        apart = (level[:, None, :] - self.values) / self.deviations
        return np.asarray(np.einsum("jg,jgk->jk", self.weights, _normal(apart)))

    def quantile(self, share: float) -> FloatArray:
        """Return the accuracy below which it is with this probability, shape (J, K), within 1e-4."""
        low, high = np.full(self.mean.shape, -0.5), np.full(self.mean.shape, 1.5)
        for _ in range(15):
            middle = (low + high) / 2
            is_low = self.below(middle) < share
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return np.asarray(np.clip((low + high) / 2, 0.0, 1.0))


def foresee(passes: FloatArray, accuracies: FloatArray, ahead: FloatArray) -> Forecast:
    """Return what is predicted of J runs.

    Args:
        passes: how many each accuracy came after, above 0 and rising, shape (J, W), NaN where there are
            fewer.
        accuracies: shares in [0, 1], shape (J, W).
        ahead: the positions to predict, shape (J, K), in passes.

    Raises:
        ValueError: a run has fewer than `FEWEST` accuracies.
    """
    known = np.isfinite(passes) & np.isfinite(accuracies)
    counts = known.sum(axis=1)
    if len(counts) and counts.min() < FEWEST:
        raise ValueError(f"a run has {counts.min()} accuracies; give at least {FEWEST}")
    x = np.where(known, passes, 1.0)
    newest = x.max(axis=1, keepdims=True, where=known, initial=0.0)
    weight = np.where(known, (x / newest) ** RECENCY, 0.0)
    y = np.where(known, accuracies, 0.0)
    parts = [_fitted(shape, x, y, weight, newest, ahead) for shape in _SHAPES]
    values, variances, scores = (np.stack(each, axis=1) for each in zip(*parts, strict=True))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    drift = _drift(y, known)[:, None, None] ** 2 * np.log(np.maximum(ahead / newest, 1.0))[:, None, :]
    latest = (weight**4 * y).sum(axis=1) / (weight**4).sum(axis=1)
    doubt = (GAIN_DOUBT * (values - latest[:, None, None])) ** 2
    return Forecast(np.clip(values, 0.0, 1.0), np.sqrt(variances + drift + doubt), weights)


def _normal(z: FloatArray) -> FloatArray:
    """Return the normal distribution's probability below z, within 1.4e-4.

    Source: Bowling, Khasawneh, Kaewkuekool, Cho 2009, A logistic approximation to the cumulative normal
    distribution.
    """
    bounded = np.clip(z, -8.0, 8.0)
    return np.asarray(1.0 / (1.0 + np.exp(-1.5976 * bounded - 0.07056 * bounded**3)))


def _drift(y: FloatArray, known: BoolArray) -> FloatArray:
    """Return how far a run may leave its curves, over a factor of e of its passes, shape (J,)."""
    counts = known.sum(axis=1)
    half = np.cumsum(known, axis=1) > (counts // 2)[:, None]
    late = known & half
    high = np.where(late, y, -np.inf).max(axis=1)
    low = np.where(late, y, np.inf).min(axis=1)
    return np.asarray(np.maximum(DRIFT * (high - low), DRIFT_LEAST))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A curve φ. at: of the passes, and the passes so far. numbers: of its own that were fitted."""

    at: Callable[[FloatArray, FloatArray], FloatArray]
    numbers: int


def _power(alpha: float) -> _Shape:
    return _Shape(lambda x, newest: x**-alpha, 1)


def _weibull(rate: float, delta: float) -> _Shape:
    """rate: κ times the passes so far."""
    return _Shape(lambda x, newest: np.exp(-((rate * x / newest) ** delta)), 1 if delta == 1.0 else 2)


def _sublinear(linear: float, square: float) -> _Shape:
    """linear, square: b and a, times the passes so far."""

    def at(x: FloatArray, newest: FloatArray) -> FloatArray:
        t = x / newest
        return 1.0 / (1.0 + linear * t + square * t * t)

    return _Shape(at, 2)


_SHAPES = (
    *(_power(alpha) for alpha in (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)),
    _Shape(lambda x, newest: 1.0 / np.log1p(x), 0),
    *(
        _weibull(rate, delta)
        for rate in np.geomspace(0.3, 60.0, 12).tolist()
        for delta in (0.3, 0.5, 0.75, 1.0, 1.5)
    ),
    *(
        _sublinear(linear, square)
        for linear in (0.0, 1.0, 5.0, 25.0, 125.0)
        for square in (0.3, 3.0, 30.0, 300.0)
    ),
)


def _fitted(
    shape: _Shape, x: FloatArray, y: FloatArray, weight: FloatArray, newest: FloatArray, ahead: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the accuracy ahead and its variance, shape (J, K), and −BIC/2 of the curve, shape (J,)."""
    phi, phi_ahead = shape.at(x, newest), shape.at(ahead, newest)
    total = weight.sum(axis=1)
    mean_phi, mean_y = (weight * phi).sum(axis=1) / total, (weight * y).sum(axis=1) / total
    off = phi - mean_phi[:, None]
    spread = np.maximum((weight * off**2).sum(axis=1), 1e-12)
    rise = np.maximum(-(weight * off * (y - mean_y[:, None])).sum(axis=1) / spread, 0.0)
    top = mean_y + rise * mean_phi
    count = total**2 / (weight**2).sum(axis=1)
    left_over = (weight * (y - top[:, None] + rise[:, None] * phi) ** 2).sum(axis=1) * count / total
    numbers = 2 + shape.numbers
    noise = (left_over + NOISE**2) / np.maximum(count - numbers, 1.0)
    values = top[:, None] - rise[:, None] * phi_ahead
    line = 1.0 / total[:, None] + (phi_ahead - mean_phi[:, None]) ** 2 / spread[:, None]
    score = -0.5 * (count * np.log((left_over + NOISE**2) / count) + numbers * np.log(count))
    impossible = np.maximum(top - 1.0, 0.0) / NOISE  # an accuracy above 1
    return values, noise[:, None] * (1.0 + line), score - 0.5 * impossible**2


CONFIDENCE = 0.95  # that nothing better comes
MARGIN = 0.002  # an accuracy that is better by less than this is no better
FEWEST_PASSES = max(FEWEST, 8)  # before which nothing is said of a run
FAR = 10.0  # where no last pass is known: so many times the passes so far
POSITIONS = 40  # at which the way to the end is looked at


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyAhead:
    """What lies ahead of J runs.

    Attributes:
        is_best: no better accuracy is to be expected; where one is required and not reached yet, not that
            one. Shape (J,).
        passes_needed: after which the required accuracy is expected, shape (J,); inf: not before the end,
            NaN: none is required, or nothing can be said.
    """

    is_best: BoolArray
    passes_needed: FloatArray


def accuracy_ahead(accuracies: FloatArray, required: FloatArray, passes_most: FloatArray) -> AccuracyAhead:
    """Return what lies ahead of runs after their passes so far.

    Args:
        accuracies: after each pass, shape (J, W), NaN behind the last one.
        required: shape (J,), NaN where none is.
        passes_most: at the end of each run, shape (J,); inf where that is unknown.
    """
    known = np.isfinite(accuracies)
    counts = known.sum(axis=1)
    newest = accuracies[np.arange(len(counts)), np.maximum(counts - 1, 0)]
    has_required = newest >= required
    is_best = np.zeros(len(counts), dtype=bool)
    needed = np.where(has_required, counts, np.nan)
    rows = np.flatnonzero(counts >= FEWEST_PASSES)
    if not len(rows):
        return AccuracyAhead(is_best, needed)
    so_far = counts[rows].astype(np.float64)
    end = np.where(np.isfinite(passes_most[rows]), passes_most[rows], FAR * so_far)
    ahead = np.linspace(so_far + 1.0, np.maximum(end, so_far + 1.0), POSITIONS, axis=1)
    passes = np.where(known[rows], np.arange(1.0, accuracies.shape[1] + 1), np.nan)
    forecast = foresee(passes, accuracies[rows], ahead)
    better = np.nanmax(accuracies[rows], axis=1) + MARGIN
    wanted = np.where(has_required[rows], better, np.fmax(better, required[rows]))
    is_best[rows] = forecast.below(wanted[:, None]).min(axis=1) >= CONFIDENCE
    reaches = forecast.mean >= required[rows, None]
    first = np.where(reaches.any(axis=1), ahead[np.arange(len(rows)), reaches.argmax(axis=1)], np.inf)
    waits = ~has_required[rows] & np.isfinite(required[rows])
    needed[rows] = np.where(waits, first, needed[rows])
    return AccuracyAhead(is_best, needed)
