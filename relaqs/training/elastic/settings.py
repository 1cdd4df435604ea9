"""The numbers of every mini-batch algorithm: how large steps are, how they may grow, when a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from relaqs.arguments import ArgumentError
from relaqs.training.arguments import check_count, check_not_negative
from relaqs.training.elastic.protocol import MiniBatchTraining, Scaling

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
            check_count(name, getattr(self, name))
        for name in ("warm_up_steps", "seed"):
            check_count(name, getattr(self, name), least=0)
        check_not_negative("tolerance", self.tolerance)
        if self.rows_most is not None and check_count("rows_most", self.rows_most) < self.start_rows:
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


def most_rows(job: MiniBatchTraining) -> int:
    """Return the most rows that a step of the job may have."""
    return job.start_rows * MOST_GROWTH if job.rows_most is None else job.rows_most
