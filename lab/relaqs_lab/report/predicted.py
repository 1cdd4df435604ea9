"""Exhibits of prediction (thesis 4.9, SLAQ) and of training alone, from the recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction import (
    GEOMETRIC,
    HARMONIC,
    INVERSE_SQUARE,
    LAST_VALUE,
    RESULT_DELTA,
    STANDARD_ERROR,
    SUBLINEAR,
    WINDOW,
    Series,
    fit_best_curves,
    fit_curves,
    spacing,
)
from relaqs.sharing.view import Kind
from relaqs_lab.records import QueryRun
from relaqs_lab.report.alone import measured_on
from relaqs_lab.report.exhibit import (
    NOT_GIVEN,
    SERIES,
    Exhibit,
    Finding,
    Missing,
    Palette,
    commands_of,
    in_percent,
    legend_below,
    picture,
    plain_numbers,
    shared_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Predictor = Callable[[Series, FloatArray], FloatArray]

YOUNGEST = 3  # observations before anything is predicted
SMALL = 0.1  # of the largest change of a loss
QUERY_AHEAD, TRAINING_AHEAD = (1, 5), (1, 5, 10)
THESIS_ERRORS = ("5 %", "7 %")  # of progress, one step and five ahead
MOVES = "c·√(1/x₁ − 1/x₂)"
PROGRESS: dict[str, Predictor] = {
    "1/(A·x² + B), thesis": lambda seen, x: fit_curves(INVERSE_SQUARE, seen, through_newest=False).at(x),
    "last value": lambda seen, x: fit_curves(LAST_VALUE, seen).at(x),
    MOVES: lambda seen, x: fit_curves(RESULT_DELTA, seen, through_newest=False).at(x),
}
WIDTHS: dict[str, Predictor] = {
    "√(1/x − 1)": lambda seen, x: fit_curves(STANDARD_ERROR, seen).at(x),
    "last value": PROGRESS["last value"],
}
LOSSES: dict[str, Predictor] = {
    "best of two families": lambda seen, x: fit_best_curves((SUBLINEAR, GEOMETRIC), seen, first=HARMONIC).at(
        x
    ),
    "last value": PROGRESS["last value"],
}


def predicted(runs: Sequence[QueryRun]) -> list[Exhibit | Missing]:
    """Return the exhibits of prediction and of training."""
    queries = [run for run in runs if run.kind is Kind.QUERY and len(run.steps.work_done) > YOUNGEST + 2]
    trained = [run for run in runs if run.kind is Kind.TRAINING and len(run.steps.work_done) > 2]
    found: list[Exhibit | Missing] = []
    if queries:
        found.append(_of_queries(queries))
    else:
        found.append(Missing("Prediction error", "ReLAQS thesis, figure 4.9", "relaqs tpch run --data DIR"))
    if trained:
        runs_of_each = list({run.name: run for run in trained}.values())  # the newest
        return [*found, _work_to_reduce(runs_of_each), _changes(runs_of_each), _of_training(trained)]
    command = "relaqs tpch run --data DIR --training all"
    titles = ("Work to reduce a loss", "How much each pass changes the loss", "Prediction error of losses")
    return [*found, *(Missing(title, "SLAQ, figures 3.1 and 3.5 to 3.10", command) for title in titles)]


def measured_alike(runs: Sequence[QueryRun]) -> tuple[list[QueryRun], str]:
    """Return the largest group of runs on one kind of data and threads, and a sentence that names it."""
    by_setting: dict[tuple[str, int], list[QueryRun]] = {}
    for run in runs:
        by_setting.setdefault((run.data, run.threads), []).append(run)
    chosen = max(by_setting.values(), key=len)
    names = ", ".join(dict.fromkeys(run.name for run in chosen))
    seeds = len({run.seed for run in chosen})
    over = (
        f"{measured_on(chosen)} Over {len(chosen)} run{'s' if len(chosen) > 1 else ''}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}, of {names}; data: {chosen[0].data}."
    )
    if others := len(runs) - len(chosen):
        over += f" Left out: {others} more run{'s' if others > 1 else ''}, on other data or threads."
    return chosen, over


def errors_ahead(
    x: FloatArray, y: FloatArray, ahead: int, predict: Predictor, least: int = YOUNGEST
) -> FloatArray:
    """Return |predicted − observed| so many steps ahead, for every step from which that can be said."""
    counts = [count for count in range(least, len(y) - ahead + 1) if np.isfinite(y[:count]).sum() >= 2]
    if not counts:
        return np.empty(0)
    seen = np.array([np.arange(count - WINDOW, count) for count in counts])
    known = seen >= 0
    positions = np.where(known, x[np.maximum(seen, 0)], np.nan)
    values = np.where(known, y[np.maximum(seen, 0)], np.nan)
    targets = np.array(counts) + ahead - 1
    wrong = np.abs(predict(Series.of(positions, values), x[targets][:, None])[:, 0] - y[targets])
    return np.asarray(wrong[np.isfinite(wrong)])


def _mean(parts: Sequence[FloatArray]) -> float:
    everything = np.concatenate(parts) if parts else np.empty(0)
    return float(everything.mean()) if len(everything) else float("nan")


def _of_queries(every: Sequence[QueryRun]) -> Exhibit:
    runs, over = measured_alike(every)

    def progress(name: str, ahead: int) -> float:
        parts = []
        for run in runs:  # the last step ends the answer: there is nothing to predict of it
            positions = spacing(run.steps.work_done) if name == MOVES else run.steps.work_done
            parts.append(errors_ahead(positions[:-1], run.steps.progress[:-1], ahead, PROGRESS[name]))
        return _mean(parts)

    def width(predict: Predictor, ahead: int) -> float:
        parts = []
        for run in runs:
            quality = np.where(np.isfinite(run.steps.quality), run.steps.quality, np.nan)[:-1]
            largest = np.nanmax(quality) if np.isfinite(quality).any() else np.nan
            parts.append(errors_ahead(run.steps.work_done[:-1], quality / largest, ahead, predict))
        return _mean(parts)

    progressed = {name: [progress(name, ahead) for ahead in QUERY_AHEAD] for name in PROGRESS}
    widths = {name: [width(each, ahead) for ahead in QUERY_AHEAD] for name, each in WIDTHS.items()}

    def draw(axes: list[Axes], palette: Palette) -> None:
        _bars(axes[0], palette, progressed, QUERY_AHEAD)
        axes[0].set(title="progress metric", ylabel="mean error, points", xlabel="steps ahead")
        _bars(axes[1], palette, widths, QUERY_AHEAD)
        axes[1].set(
            title="width of the intervals", ylabel="mean error, % of the widest", xlabel="steps ahead"
        )

    findings = [
        Finding(f"progress, {ahead} step{'s' if ahead > 1 else ''} ahead, {name}", paper, in_percent(ours, 1))
        for name in (next(iter(PROGRESS)), MOVES)
        for ahead, paper, ours in zip(QUERY_AHEAD, THESIS_ERRORS, progressed[name], strict=True)
    ]
    findings += [
        Finding(f"width, {ahead} ahead, √(1/x − 1)", NOT_GIVEN, in_percent(ours, 1))
        for ahead, ours in zip(QUERY_AHEAD, widths["√(1/x − 1)"], strict=True)
    ]
    return Exhibit(
        name="thesis-4-9",
        title="Prediction error",
        source="ReLAQS thesis, figure 4.9",
        caption=(
            f"{over} From the third snapshot on. Here mini-batches grow, in the thesis they are equal: one "
            "step ahead is further."
        ),
        picture=picture("thesis-4-9", draw, columns=2),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )


def _bars(panel: Axes, palette: Palette, values: dict[str, list[float]], labels: Sequence[object]) -> None:
    width = 0.8 / len(values)
    for index, (role, (name, each)) in enumerate(zip(SERIES, values.items(), strict=False)):
        panel.bar(
            np.arange(len(each)) + index * width, 100 * np.array(each), width, color=palette[role], label=name
        )
    panel.set_xticks(np.arange(len(labels)) + 0.4 - width / 2, [str(label) for label in labels])
    legend_below(panel)


def _work_to_reduce(runs: Sequence[QueryRun]) -> Exhibit:
    levels = np.linspace(0.05, 1.0, 39)

    def shares(run: QueryRun) -> FloatArray:
        error, spent = run.trace.normalised_error, run.steps.core_seconds.cumsum()
        after = np.concatenate([[1.0], error])
        first = [int(np.flatnonzero(after <= 1 - level + 1e-12)[0]) for level in levels]
        return np.asarray(np.concatenate([[0.0], spent])[first] / spent[-1])

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for index, (role, run) in enumerate(zip(SERIES, runs, strict=False)):
            line = ("-", "--", "-.")[index % 3]
            panel.plot(100 * levels, 100 * shares(run), color=palette[role], linestyle=line, label=run.name)
        panel.set(xlabel="reduction of the loss, %", ylabel="% of the run's core-seconds", ylim=(0, 102))
        shared_legend(panel)

    at = int(np.argmin(np.abs(levels - 0.9)))
    findings = [Finding(f"{run.name}: work to −90 %", NOT_GIVEN, in_percent(shares(run)[at])) for run in runs]
    return Exhibit(
        name="slaq-3-1",
        title="Work to reduce a loss",
        source="SLAQ, figure 3.1: most of the work brings the last of the quality",
        caption=(
            f"{measured_on(runs)} Each algorithm alone, to its convergence or its last pass. The first pass "
            "costs most: it reads the tables, and later ones find the rows in memory."
        ),
        picture=picture("slaq-3-1", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )


def _changes(runs: Sequence[QueryRun]) -> Exhibit:
    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for index, (role, run) in enumerate(zip(SERIES, runs, strict=False)):
            line = ("-", "--", "-.")[index % 3]
            passes = np.arange(1, len(run.steps.progress) + 1)
            panel.plot(passes, 100 * run.steps.progress, color=palette[role], linestyle=line, label=run.name)
        panel.set(xlabel="pass over the data", ylabel="change of the loss, % of the largest", xscale="log")
        plain_numbers(panel.xaxis)
        shared_legend(panel)

    return Exhibit(
        name="slaq-changes",
        title="How much each pass changes the loss",
        source="SLAQ, among figures 3.5 to 3.10: the normalised change of loss",
        caption=f"{measured_on(runs)} Losses of any unit become comparable by their largest change so far.",
        picture=picture("slaq-changes", draw),
        findings=tuple(
            Finding(
                f"{run.name}: passes until changes stay below {in_percent(SMALL)}", NOT_GIVEN, _settled(run)
            )
            for run in runs
        ),
        commands=commands_of([run.circumstances for run in runs]),
    )


def _settled(run: QueryRun) -> str:
    """Return after how many passes the loss no longer changes by more than SMALL, of how many."""
    passes = len(run.steps.progress)
    large = np.flatnonzero(run.steps.progress >= SMALL)
    return f"{large[-1] + 1 if len(large) else 0} of {passes}"


def _of_training(every: Sequence[QueryRun]) -> Exhibit:
    runs, over = measured_alike(every)

    def errors(predict: Predictor, ahead: int) -> float:
        parts = []
        for run in runs:
            losses = run.steps.quality
            fall = float(losses.max() - losses.min())
            if fall > 0:
                passes = np.arange(1.0, len(losses) + 1)
                parts.append(errors_ahead(passes, losses, ahead, predict, least=5) / fall)
        return _mean(parts)

    wrong = {name: [errors(each, ahead) for ahead in TRAINING_AHEAD] for name, each in LOSSES.items()}

    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        _bars(panel, palette, wrong, TRAINING_AHEAD)
        panel.set(xlabel="passes ahead", ylabel="mean error, % of the run's whole fall")

    papers = (NOT_GIVEN, NOT_GIVEN, "below 5 %")
    findings = [
        Finding(f"loss, {ahead} ahead", paper, in_percent(ours, 1))
        for ahead, paper, ours in zip(TRAINING_AHEAD, papers, wrong["best of two families"], strict=True)
    ]
    return Exhibit(
        name="slaq-prediction",
        title="Prediction error of losses",
        source="SLAQ, among figures 3.5 to 3.10",
        caption=f"{over} From the fifth pass on.",
        picture=picture("slaq-prediction", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )
