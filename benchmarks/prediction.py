"""How well the next results are predicted, and how fast: real queries, real training, all jobs at once.

    python -m benchmarks.prediction [--data WAREHOUSE] [--trained] [--seeds 3]

Progress of queries in percentage points (the thesis reports 5 % one step ahead and 7 % five), of TPC-H in the
engine over a warehouse, or of plain aggregations in numpy; losses in percent of the run's whole fall (SLAQ:
below 5 % ten steps ahead). Beside the fits the simplest guesses: the last value stays, the last change
repeats; and scipy's optimiser, one call a job.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from relaqs_lab.report.predicted import errors_ahead
from rich.console import Console
from rich.table import Table
from scipy.optimize import OptimizeWarning, curve_fit

from benchmarks.engine_curves import engine_curves
from benchmarks.loss_curves import LossCurve, loss_curves
from benchmarks.query_curves import query_curves
from benchmarks.training_data import training_jobs, warehouse
from relaqs import connect
from relaqs.prediction import (
    GEOMETRIC,
    HARMONIC,
    INVERSE_SQUARE,
    LAST_VALUE,
    RESULT_DELTA,
    SUBLINEAR,
    WINDOW,
    Series,
    fit_best_curves,
    fit_curves,
    spacing,
)
from relaqs.training.run import TrainingRun

FloatArray = NDArray[np.float64]
Predictor = Callable[[Series, FloatArray], FloatArray]
"""(observations so far, positions) → predicted values, one row a job."""

ProgressRun = tuple[str, FloatArray, FloatArray]
"""A query's name, the fractions scanned after its steps, and its progress there."""

BATCHES = 100  # equal mini-batches of a query in numpy,
ENGINE_BATCHES = 40  # and in the engine
QUERY_STEPS_AHEAD = (1, 5)
TRAINING_STEPS_AHEAD = (1, 5, 10)
STEPS_SEEN = (5, 10, 20, 40)
YOUNGEST = 3
JOBS_TIMED = 4_000
SCALE = 0.1  # of TPC-H's lineitem, for training
LEAST_PASSES = max(TRAINING_STEPS_AHEAD) + STEPS_SEEN[0]

QUERY_PREDICTORS: dict[str, tuple[Callable[[FloatArray], FloatArray], Predictor]] = {
    "1/(A·x² + B), thesis": (
        lambda fraction: fraction,
        lambda seen, x: fit_curves(INVERSE_SQUARE, seen, through_newest=False).at(x),
    ),
    "c·√(1/x₁ − 1/x₂)": (
        spacing,
        lambda seen, x: fit_curves(RESULT_DELTA, seen, through_newest=False).at(x),
    ),
    "last value": (lambda fraction: fraction, lambda seen, x: fit_curves(LAST_VALUE, seen).at(x)),
}
"""Positions of steps by the fractions scanned after them, and what is predicted from those."""


def _last_change(seen: Series, x: FloatArray) -> FloatArray:
    (x_now, y_now), (_, y_before) = seen.newest, seen.before(np.ones(len(x), dtype=np.int64)).newest
    return y_now[:, None] + (x - x_now[:, None]) * (y_now - y_before)[:, None]


def _scipy(seen: Series, x: FloatArray) -> FloatArray:
    return np.array([_scipy_one(*row) for row in zip(seen.x, seen.y, seen.weight, x, strict=True)])


def _scipy_one(k: FloatArray, loss: FloatArray, weight: FloatArray, x: FloatArray) -> FloatArray:
    """Return the better fit of SLAQ's two curves, by one optimiser call each; the last loss if both fail."""
    k, loss, weight, x = k[weight > 0], loss[weight > 0], weight[weight > 0], x - k[weight > 0][0]
    k = k - k[0]
    low, fall = loss.min(), max(np.ptp(loss), 1e-9)
    curves: list[tuple[Callable[..., FloatArray], list[float], list[float], list[float]]] = [
        (
            lambda k, a, b, c, d: 1 / (a * k * k + b * k + c) + d,
            [1e-3 / fall, 0.1 / fall, 1 / fall, low - 0.1 * fall],
            [0, 0, 1e-12, -np.inf],
            [np.inf] * 4,
        ),
        (lambda k, s, m, c: s * m**k + c, [fall, 0.9, low], [0, 1e-6, -np.inf], [np.inf, 1, np.inf]),
    ]
    fits = []
    for curve, start, lower, upper in curves:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OptimizeWarning)  # of the covariance, which nobody asks for
                found, _ = curve_fit(
                    curve, k, loss, p0=start, sigma=1 / np.sqrt(weight), bounds=(lower, upper), maxfev=2000
                )
        except (RuntimeError, ValueError):
            continue
        fits.append((float((weight * (loss - curve(k, *found)) ** 2).sum()), curve(x, *found)))
    return min(fits, key=lambda fit: fit[0])[1] if fits else np.full(len(x), loss[-1])


def _best_of_two(seen: Series, x: FloatArray) -> FloatArray:
    return fit_best_curves((SUBLINEAR, GEOMETRIC), seen, first=HARMONIC).at(x)


TRAINING_PREDICTORS: dict[str, Predictor] = {
    "best of two, held out": _best_of_two,
    "1/(a·k² + b·k + c) + d": lambda seen, x: fit_curves(SUBLINEAR, seen).at(x),
    "μ^(k − b) + c": lambda seen, x: fit_curves(GEOMETRIC, seen).at(x),
    "scipy, a call a job": _scipy,
    "last change repeats": _last_change,
    "last value": lambda seen, x: fit_curves(LAST_VALUE, seen).at(x),
}


def seen_at(values: FloatArray, counts: FloatArray) -> Series:
    """Return what was known after so many steps of one run: the newest values, a row for each count."""
    step = counts[:, None] - np.arange(WINDOW - 1, -1, -1.0)
    known = np.where(step > 0, values[np.maximum(step, 1).astype(int) - 1], np.nan)
    return Series.of(np.where(step > 0, step, np.nan), known)


def errors(predict: Predictor, values: FloatArray, counts: FloatArray, ahead: tuple[int, ...]) -> FloatArray:
    """Return |predicted − true| for each count (rows) and each number of steps ahead (columns)."""
    positions = counts[:, None] + np.array(ahead, dtype=np.float64)
    wrong: FloatArray = np.abs(
        predict(seen_at(values, counts), positions) - values[positions.astype(int) - 1]
    )
    return wrong


def query_table(seeds: int) -> Table:
    """Return the errors of plain aggregations, in numpy."""
    curves = [curve for seed in range(seeds) for curve in query_curves(BATCHES, seed)]
    fraction = np.arange(1.0, BATCHES + 1) / BATCHES
    runs = [(curve.name, fraction, curve.progress) for curve in curves]
    return _query_table({f"{BATCHES} equal mini-batches": runs}, "Queries")


def engine_table(data: Path, seeds: int) -> Table:
    """Return the errors of TPC-H in the engine, in the thesis's equal mini-batches and in those that grow."""
    ways = {f"{ENGINE_BATCHES} equal mini-batches": ENGINE_BATCHES, "mini-batches that grow": None}
    runs = {
        way: [
            (curve.name, curve.fraction, curve.progress)
            for seed in range(seeds)
            for curve in engine_curves(data, batches, seed)
        ]
        for way, batches in ways.items()
    }
    return _query_table(runs, "TPC-H in the engine")


def _query_table(ways: dict[str, list[ProgressRun]], title: str) -> Table:
    ahead = " and ".join(map(str, QUERY_STEPS_AHEAD))
    table = Table(title=f"{title}: mean error of predicted progress, points, {ahead} steps ahead")
    table.add_column("query", no_wrap=True)
    for way in ways:
        for name in QUERY_PREDICTORS:
            table.add_column(f"{way}: {name}", justify="right")
    names = dict.fromkeys(name for runs in ways.values() for name, _, _ in runs)
    for query in (*names, None):
        chosen = [[run for run in runs if query in (None, run[0])] for runs in ways.values()]
        if query is None:
            table.add_section()
        table.add_row(
            query or "all", *(_query_cell(runs, each) for runs in chosen for each in QUERY_PREDICTORS)
        )
    return table


def _query_cell(runs: Sequence[ProgressRun], predictor: str) -> str:
    positions, predict = QUERY_PREDICTORS[predictor]
    parts = [
        [errors_ahead(positions(fraction), moved, ahead, predict) for _, fraction, moved in runs]
        for ahead in QUERY_STEPS_AHEAD
    ]
    wrong = [np.concatenate(each) if each else np.empty(0) for each in parts]
    return _cell(np.array([each.mean() if len(each) else np.nan for each in wrong]))


def training_table(title: str, curves: Sequence[LossCurve]) -> Table:
    seen = ", ".join(map(str, STEPS_SEEN))
    table = Table(title=f"{title}, after {seen} steps: mean error of predicted loss, % of the whole fall")
    table.add_column("steps ahead: " + ", ".join(map(str, TRAINING_STEPS_AHEAD)), no_wrap=True)
    for name in TRAINING_PREDICTORS:
        table.add_column(name, justify="right")
    curves = sorted(curves, key=lambda curve: curve.algorithm)
    for algorithm, runs in groupby(curves, key=lambda curve: curve.algorithm):
        table.add_row(algorithm, *_training_row(list(runs), STEPS_SEEN))
    table.add_section()
    table.add_row("all", *_training_row(curves, STEPS_SEEN))
    for count in (YOUNGEST, *STEPS_SEEN):
        table.add_row(f"all, after {count}", *_training_row(curves, (count,)))
    return table


def trained_curves() -> list[LossCurve]:
    """Return the losses of the runs of `benchmarks.training_live`, but for those that converge at once."""
    with connect(warehouse(SCALE)) as session:
        runs = [(job.name.split(" on ")[0].rstrip(","), job.start(session)) for job in training_jobs()]
        found = [
            (name, np.array(run.losses)) for name, run in runs if isinstance(run, TrainingRun) and run.wait()
        ]
    return [LossCurve(name, losses) for name, losses in found if len(losses) >= LEAST_PASSES]


def _training_row(runs: list[LossCurve], counts: tuple[int, ...]) -> list[str]:
    return [
        _cell(np.concatenate([_shares(predict, run.losses, counts) for run in runs]).mean(axis=0))
        for predict in TRAINING_PREDICTORS.values()
    ]


def _shares(predict: Predictor, losses: FloatArray, counts: tuple[int, ...]) -> FloatArray:
    """Return the errors as shares of the run's fall, shape (counts that leave enough to predict, ahead)."""
    usable = [float(count) for count in counts if count + max(TRAINING_STEPS_AHEAD) <= len(losses)]
    if not usable:
        return np.empty((0, len(TRAINING_STEPS_AHEAD)))
    wrong = errors(predict, losses, np.array(usable), TRAINING_STEPS_AHEAD)
    return wrong / float(losses[0] - losses.min())


def _cell(shares: FloatArray) -> str:
    return " ".join(f"{100 * share:5.2f}" for share in shares)


def speed_table() -> Table:
    table = Table(title=f"{JOBS_TIMED:,} jobs with {WINDOW} observations each: CPU seconds")
    for heading in ("fit", "all at once", "scipy, a call a job"):
        table.add_column(heading, justify="right")
    runs = [curve.losses[:WINDOW] for curve in loss_curves()]
    losses = np.array([runs[i % len(runs)] for i in range(JOBS_TIMED)])
    losses *= np.random.default_rng(0).uniform(0.9, 1.1, (JOBS_TIMED, 1))
    seen = Series.of(np.tile(np.arange(1.0, WINDOW + 1), (JOBS_TIMED, 1)), losses)
    ahead = seen.x[:, -1:] + 10.0
    few = np.arange(50)
    one_by_one = _cpu_seconds(partial(_scipy, seen.of_jobs(few), ahead[few])) * JOBS_TIMED / len(few)
    at_once = _cpu_seconds(partial(_best_of_two, seen, ahead))
    table.add_row("training, best of two", f"{at_once:.2f}", f"{one_by_one:.0f}")
    for family in (INVERSE_SQUARE, RESULT_DELTA):
        table.add_row(family.name, f"{_cpu_seconds(partial(fit_curves, family, seen)):.3f}", "")
    return table


def _cpu_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="orders of the rows of each query")
    parser.add_argument("--data", type=Path, help="a warehouse of TPC-H, whose 22 queries are run as well")
    parser.add_argument("--trained", action="store_true", help="train the nine algorithms by ReLAQS as well")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    if options.data is not None:
        console.print(engine_table(options.data, options.seeds))
    if options.trained:
        console.print(training_table("relaqs.training", trained_curves()))
    plain = training_table("Trainers in numpy", loss_curves())
    console.print(query_table(options.seeds), plain, speed_table())


if __name__ == "__main__":
    main()
