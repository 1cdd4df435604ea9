"""Exhibits of jobs that ran alone: error over time, and what the metric says of it (thesis 4.1, 4.2, 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.view import Kind
from relaqs_lab.records import QueryRun
from relaqs_lab.report.exhibit import (
    NOT_GIVEN,
    SERIES,
    Exhibit,
    Finding,
    Missing,
    Palette,
    commands_of,
    in_percent,
    picture,
    plain_numbers,
    shared_legend,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREFERRED = ("Q1", "Q6", "Q12")  # shown where they are: one table with groups, one number, a join
RUN = "relaqs tpch run --data DIR"


def alone(runs: Sequence[QueryRun]) -> list[Exhibit | Missing]:
    """Return the exhibits of queries that were run alone."""
    queries = [run for run in runs if run.kind is Kind.QUERY and len(run.steps.work_done) > 3]
    if not queries:
        return [
            Missing("The error over time, beside the exact run", "ReLAQS thesis, figure 4.1", RUN),
            Missing("The error over the data read", "ReLAQS thesis, figure 4.2", RUN),
            Missing("What the metric says of the error", "ReLAQS thesis, figure 4.5", RUN),
        ]
    chosen = one_of_each(queries)
    return [_over_time(chosen), _over_data(chosen), _metric(chosen)]


def one_of_each(queries: Sequence[QueryRun]) -> list[QueryRun]:
    """Return the newest run of up to three queries, the preferred ones first."""
    newest = {run.name: run for run in queries}
    names = [*(name for name in PREFERRED if name in newest), *(n for n in newest if n not in PREFERRED)]
    return [newest[name] for name in names[:3]]


def measured_on(runs: Sequence[QueryRun]) -> str:
    """Return what data and how many threads the runs had, as a sentence of a caption."""
    places = dict.fromkeys(
        f"{'data of unknown scale' if np.isnan(run.scale) else f'TPC-H scale {run.scale:g}'}, "
        f"{run.threads} thread{'s' if run.threads > 1 else ''}"
        for run in runs
    )
    return f"On {'; '.join(places)}."


def _over_time(runs: Sequence[QueryRun]) -> Exhibit:
    def draw(axes: list[Axes], palette: Palette) -> None:
        for panel, run in zip(axes, runs, strict=False):
            steps = run.steps
            shown = slice(0, -1)
            panel.plot(
                steps.elapsed_seconds[shown],
                100 * steps.true_error[shown],
                color=palette["one"],
                marker="o",
                markersize=3,
                label="true error",
            )
            panel.plot(
                steps.elapsed_seconds[shown],
                100 * steps.half_width[shown],
                color=palette["two"],
                linestyle="--",
                label="95 % half-width",
            )
            panel.axvline(run.duckdb_seconds, color=palette["muted"], linestyle=":", label="DuckDB, exact")
            panel.axvline(run.exact_seconds, color=palette["three"], linestyle="-.", label="exact here")
            panel.set(title=run.name, xlabel="seconds", yscale="log", xlim=(0, None))
            plain_numbers(panel.yaxis)
        axes[0].set_ylabel("% of the exact value")
        shared_legend(axes[0])

    findings = [
        Finding(
            f"{run.name}: first snapshot, and its true error",
            NOT_GIVEN,
            f"{run.first_seconds:.2f} s, {in_percent(run.steps.true_error[0], 1)} off; DuckDB "
            f"{run.duckdb_seconds:.2f} s",
        )
        for run in runs
    ]
    return Exhibit(
        name="thesis-4-1",
        title="The error over time, beside the exact run",
        source="ReLAQS thesis, figure 4.1",
        caption=(
            f"{measured_on(runs)} The true error, the mean over the cells of the answer of |shown − exact| ÷ "
            "|exact|, and the mean half-width of the 95 % intervals, at each snapshot; lines where plain "
            "DuckDB has its answer, on the same files with as many threads, and where ours is exact."
        ),
        picture=picture("thesis-4-1", draw, columns=len(runs)),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )


def _over_data(runs: Sequence[QueryRun]) -> Exhibit:
    def draw(axes: list[Axes], palette: Palette) -> None:
        [panel] = axes
        for role, run in zip(SERIES, runs, strict=False):
            steps = run.steps
            panel.plot(
                100 * steps.work_done,
                100 * run.trace.normalised_error,
                color=palette[role],
                marker="o",
                markersize=3,
                label=run.name,
            )
        share = np.linspace(min(run.steps.work_done[0] for run in runs), 1.0, 200)
        theory = np.sqrt(1 / share - 1)
        panel.plot(
            100 * share, 100 * theory / theory[0], color=palette["muted"], linestyle="--", label="√(1/x − 1)"
        )
        panel.set(xlabel="% of the rows read", ylabel="% of the largest true error")
        shared_legend(panel)

    findings = [
        Finding(f"{run.name}: true error at 10 % of the rows", NOT_GIVEN, in_percent(_error_at(run, 0.1), 1))
        for run in runs
    ]
    return Exhibit(
        name="thesis-4-2",
        title="The error over the data read",
        source="ReLAQS thesis, figure 4.2: how answers improve with diminishing returns",
        caption=(
            f"{measured_on(runs)} The true error relative to the run's largest, and the shape that sampling "
            "theory gives to the standard error of a mean."
        ),
        picture=picture("thesis-4-2", draw),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )


def _error_at(run: QueryRun, share: float) -> float:
    at = int(np.flatnonzero(run.steps.work_done >= share)[0])
    return float(run.steps.true_error[at])


def _metric(runs: Sequence[QueryRun]) -> Exhibit:
    def draw(axes: list[Axes], palette: Palette) -> None:
        for panel, run in zip(axes, runs, strict=False):
            steps = run.steps
            step = np.arange(1, len(steps.progress))
            width = steps.quality / steps.quality[np.isfinite(steps.quality)].max(initial=1e-300)
            for role, style, label, values in (
                ("one", "-", "true error", run.trace.normalised_error),
                ("two", "--", "result delta (the thesis's metric)", steps.progress),
                ("three", "-.", "widest interval", np.where(np.isfinite(width), width, np.nan)),
            ):
                panel.plot(step, 100 * values[:-1], color=palette[role], linestyle=style, label=label)
            panel.set(title=run.name, xlabel="snapshot", ylim=(0, None))
            whole_numbers(panel.xaxis)
        axes[0].set_ylabel("% of the largest")
        shared_legend(axes[0])

    findings = []
    for run in runs:
        error = run.trace.normalised_error[:-1]
        delta, width = run.steps.progress[:-1], run.steps.quality[:-1]
        findings.append(
            Finding(
                f"{run.name}: rank correlation with the true error, of the metric and of the interval",
                NOT_GIVEN,
                f"{rank_correlation(delta, error):.2f}, {rank_correlation(width, error):.2f}",
            )
        )
    return Exhibit(
        name="thesis-4-5",
        title="What the metric says of the error",
        source="ReLAQS thesis, figure 4.5, with the interval's width beside it",
        caption=(
            f"{measured_on(runs)} The thesis's result-delta metric tells how far the last step moved the "
            "answer; the interval says how far the answer may be off. Each relative to its own largest."
        ),
        picture=picture("thesis-4-5", draw, columns=len(runs)),
        findings=tuple(findings),
        commands=commands_of([run.circumstances for run in runs]),
    )


def rank_correlation(one: FloatArray, other: FloatArray) -> float:
    """Return Spearman's rank correlation of the pairs that are finite, NaN for fewer than three."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < 3:
        return float("nan")
    ranks = [np.argsort(np.argsort(values[known], kind="stable"), kind="stable") for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
