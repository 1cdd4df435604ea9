"""What steps that grow cost in accuracy and in passes, and what a sudden large step does.

    python -m benchmarks.elastic_accuracy [--seeds 5] [--passes 12] [--data "digits;lineitem;flights"]

A perceptron is trained on each of three data sets by each seed, for the same passes, in four ways:

- *fixed*: steps of the first rows, B₀.
- *elastic*: steps that grow up to 8 · B₀ as the noise of the gradients allows: `batch="elastic"`.
- *each pass*: steps that double after each pass up to 8 · B₀, whatever the noise, by a journal.
- *sudden*: a pass of B₀, and then at once 8 · B₀ with eight times the rate, not warmed up, by a journal.

A fifth of the partitions is held out for losses and accuracies. Accuracies are means of the last three
passes. The target of a seed is the loss of *fixed* at its end, and a tenth of the way back to its first pass.
*Spike* is the largest loss of the three passes after the first, relative to the first: above 1, training went
backwards.

"digits, steep" has a rate at which steps of B₀ are barely stable, which is where a sudden step does harm.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import training_data
from benchmarks.record import circumstances, headline, write
from relaqs.opening import connect
from relaqs.session import Session
from relaqs.training import Journal, MiniBatchPerceptron
from relaqs.training.elastic.course import WarmUp

WAYS = ("fixed", "elastic", "each pass", "sudden")
MOST = 8  # times the first rows
NEAR = 0.1  # of the way from the first loss to the least: how close the target is


@dataclass(frozen=True, slots=True)
class Data:
    """A SELECT to train on, and the settings that suit it."""

    sql: str
    start_rows: int
    first_rate: float


DATA_SETS = {
    "digits": Data("SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits", 16, 0.03),
    "digits, steep": Data("SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits", 16, 0.08),
    "lineitem": Data(
        f"SELECT {training_data.LINEITEM}, "
        "l_extendedprice * (1 - l_discount) * (1 + l_tax) > 40000 AS y FROM lineitem",
        64,
        0.02,
    ),
    "flights": Data(
        f"SELECT {training_data.FLIGHTS}, arr_delay > 15 AS y {training_data.FLOWN} AND month <= 3", 64, 0.02
    ),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """One run: the losses and accuracies after each pass, and the rows of its last step."""

    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    batch_rows: int

    def passes_to(self, loss: float) -> float:
        """Return after how many passes the loss was reached, between passes by a line; NaN if never."""
        best = np.minimum.accumulate(self.losses)
        reached = np.flatnonzero(best <= loss)
        if not len(reached):
            return np.nan
        after = int(reached[0])
        return 1.0 if after == 0 else after + (best[after - 1] - loss) / (best[after - 1] - best[after])

    @property
    def spike(self) -> float:
        return max(self.losses[1:4]) / self.losses[0]


def trained(session: Session, data: Data, seed: int, passes: int) -> dict[str, Trained]:
    """Return a run of each way."""
    job = MiniBatchPerceptron(
        data.sql,
        "y",
        hidden=(32,),
        solver="sgd",
        first_rate=data.first_rate,
        start_rows=data.start_rows,
        rows_most=MOST * data.start_rows,
        scaling="linear",
        held_out=0.2,
        tolerance=0.0,
        patience_passes=passes,
        passes_most=passes,
        seed=seed,
    )
    fixed = _run(session, job, None)
    steps = _steps_of_pass(session, job)
    doubled = [min(1 << index, MOST) for index in range(passes)]
    return {
        "fixed": fixed,
        "elastic": _run(session, job, "elastic"),
        "each pass": _run(session, job, journal_of(job, steps, doubled, job.warm_up_steps)),
        "sudden": _run(session, job, journal_of(job, steps, [1] + [MOST] * (passes - 1), warm_up_steps=0)),
    }


def journal_of(job: MiniBatchPerceptron, steps: int, times: Sequence[int], warm_up_steps: int) -> Journal:
    """Return a journal whose passes have steps of so many times the first rows each, at such rates.

    steps: of a pass of first steps, each of one piece.
    """
    rows, rates = list[int](), list[float]()
    warm_up, scale, last = WarmUp(), 1.0, 1
    for each in times:
        if each != last:
            warm_up, last = WarmUp(scale, len(rows)), each
        for _ in range(-(-steps // each)):
            scale = warm_up.scale_at(len(rows), float(each), warm_up_steps)
            rows.append(each * job.start_rows)
            rates.append(scale * job.first_rate)
    return Journal(np.array(rows), np.array(rates), np.ones(len(rows), dtype=np.int64))


def _run(session: Session, job: MiniBatchPerceptron, batch: Literal["elastic"] | Journal | None) -> Trained:
    run = session.train(job, batch=batch)
    run.result()
    steps = run.steps
    return Trained(
        tuple(step.loss for step in steps), tuple(step.accuracy for step in steps), run.batch_rows or 0
    )


def _steps_of_pass(session: Session, job: MiniBatchPerceptron) -> int:
    run = session.train(job, max_steps=1)
    run.result()
    journal = run.journal
    assert journal is not None
    return len(journal)


def figures(runs: Sequence[dict[str, Trained]], way: str) -> list[float]:
    """Return the cells of one line: means over seeds, with the error of the second, and the largest spike."""
    lost, passes = [], []
    for run in runs:
        fixed, other = run["fixed"], run[way]
        end = float(np.mean(fixed.losses[-3:]))
        target = end + NEAR * (fixed.losses[0] - end)
        lost.append(100 * (np.mean(fixed.accuracies[-3:]) - np.mean(other.accuracies[-3:])))
        passes.append(other.passes_to(target) / fixed.passes_to(target))
    spikes = [run[way].spike for run in runs]
    return [
        float(np.mean([100 * np.mean(run[way].accuracies[-3:]) for run in runs])),
        float(np.mean(lost)),
        float(np.std(lost) / np.sqrt(len(lost))),
        float(np.nanmean(passes)),
        float(np.isfinite(passes).sum()),
        float(np.max(spikes)),
        float(np.mean([run[way].batch_rows for run in runs])),
    ]


def cells(found: Sequence[float], seeds: int) -> tuple[str, ...]:
    """Return the numbers of one line as text."""
    accuracy, lost, error, passes, reached, spike, rows = found
    to_target = f"{passes:.2f} x ({reached:.0f} of {seeds})"
    return f"{accuracy:.2f}", f"{lost:+.2f} ± {error:.2f}", to_target, f"{spike:.2f}", f"{rows:.0f}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--data", default=";".join(DATA_SETS))
    parser.add_argument("--scale", type=float, default=0.01, help="of TPC-H")
    options = parser.parse_args(words)
    facts = circumstances("elastic_accuracy", words)
    table = Table(title="Steps that grow, beside fixed ones", caption="± : standard error over seeds")
    for column in ("data", "way", "accuracy %", "points lost", "passes to target", "spike", "last rows"):
        table.add_column(column, justify="left" if column in ("data", "way") else "right")
    content = {}
    folder: Path = training_data.warehouse(options.scale)
    with connect(folder, threads=1) as session:
        for name in options.data.split(";"):
            runs = [trained(session, DATA_SETS[name], seed, options.passes) for seed in range(options.seeds)]
            for way in WAYS:
                found = content[f"{name}, {way}"] = figures(runs, way)
                table.add_row(name, way, *cells(found, len(runs)))
    console = Console(width=110)
    console.print(headline(facts))
    console.print(table)
    console.print(f"kept in {write('elastic-accuracy', facts, {'figures': content})}")


if __name__ == "__main__":
    main()
