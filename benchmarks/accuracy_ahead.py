"""How well the accuracy at the end is foreseen, by how much of a run was seen, and what early stops save.

    python -m benchmarks.accuracy_ahead [--seeds 3] [--first 100]

The constants of `relaqs.prediction.accuracy` were chosen on seeds 0 to 3; from 100 on are others. A run
that converged before 30 passes is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy_curves import AccuracyCurve, accuracy_curves
from relaqs.prediction.accuracy import FEWEST_PASSES, accuracy_ahead, foresee

FEWEST_OF_A_RUN = 30
SHARES_SEEN = (0.2, 0.35, 0.5, 0.7, 0.85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=100)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    runs = [run for run in accuracy_curves(seeds) if len(run.accuracies) >= FEWEST_OF_A_RUN]
    console = Console(width=120)
    console.print(coverage_table(runs))
    console.print(best_line(runs), highlight=False)


def coverage_table(runs: Sequence[AccuracyCurve]) -> Table:
    """Return how often 90 % intervals hold the accuracy at the end, and how far off predictions are."""
    table = Table(title=f"the accuracy at the end of {len(runs)} runs, 90 % intervals", box=None)
    for heading in ("seen", "covered", "± (binomial)", "width", "error", "if it stayed"):
        table.add_column(heading, justify="right")
    for share in SHARES_SEEN:
        rows = np.array([_foreseen(run, share) for run in runs])
        covered, width, error, stayed = rows.mean(axis=0)
        spread = np.sqrt(covered * (1 - covered) / len(runs))
        cells = (share, covered, spread, width, error, stayed)
        table.add_row(*(f"{100 * each:.1f} %" for each in cells))
    return table


def _foreseen(run: AccuracyCurve, share: float) -> tuple[float, float, float, float]:
    """Return whether the end is covered, the interval's width, and the errors of two predictions."""
    accuracies, passes = run.accuracies, len(run.accuracies)
    seen = int(share * passes)
    ahead = np.array([[float(passes)]])
    forecast = foresee(np.arange(1.0, seen + 1)[None, :], accuracies[None, :seen], ahead)
    low, high = forecast.quantile(0.05)[0, 0], forecast.quantile(0.95)[0, 0]
    end = accuracies[-1]
    off = abs(end - forecast.mean[0, 0]), abs(end - accuracies[seen - 1])
    return float(low <= end <= high), high - low, *off


def best_line(runs: Sequence[AccuracyCurve]) -> str:
    """Return how much stopping at the best saves, and how much accuracy it costs."""
    used, lost = zip(*(_stopped(run) for run in runs), strict=True)
    return (
        f'stop="best" makes {100 * np.mean(used):.1f} % of the passes. The end is better than the best until '
        f"then by {100 * np.mean(lost):.2f} points on average and {100 * np.max(lost):.1f} at most."
    )


def _stopped(run: AccuracyCurve) -> tuple[float, float]:
    """Return the share of the passes that are made, and what the end is better by."""
    passes = len(run.accuracies)
    for made in range(FEWEST_PASSES, passes):
        seen = run.accuracies[None, :made]
        if accuracy_ahead(seen, np.array([np.nan]), np.array([float(passes)])).is_best[0]:
            return made / passes, max(run.accuracies[-1] - seen.max(), 0.0)
    return 1.0, 0.0


if __name__ == "__main__":
    main()
