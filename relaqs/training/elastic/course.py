"""The course of a run: where it stands between two steps, and the pure way from one step to the next.

Whoever carries a run (tasks, workers that live longer, a replay) goes round like this:

    step = next_step(job, rule, order, course)
    sums = the sums of the pieces in step.pieces, added in pairs      piece_sums.py
    course = after(job, order, course, step, sums)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray
from relaqs_engine.errors import DataError

from relaqs.training.elastic.batches import BatchRule
from relaqs.training.elastic.noise import Noise
from relaqs.training.elastic.order import Order, pieces_of_step
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.rates import WarmUp, scale_of
from relaqs.training.rows import Sums


@dataclass(frozen=True, slots=True)
class TrainingCourse:
    """Where a run stands between two steps: all that the next step depends on. Picklable.

    Attributes:
        state: the model, and what its optimiser remembers.
        batch_rows: the rows of the last step.
        step: how many steps are done.
        passes: how many passes are done.
        pieces: how many pieces of the present pass are done.
        progress: how many first steps the steps amount to.
        scale: how many times the rate of a first step the last step had.
        warm_up: the way of the rate since the rows changed last.
        changed_passes: how many passes were done then.
        loss_sum: the loss of the present pass's rows; at the end of a pass, of that pass.
        loss_rows: how many rows these are.
        noise: of the gradients.
    """

    state: Any
    batch_rows: int
    step: int = 0
    passes: int = 0
    pieces: int = 0
    progress: float = 0.0
    scale: float = 1.0
    warm_up: WarmUp = field(default_factory=WarmUp)
    changed_passes: int = 0
    loss_sum: float = 0.0
    loss_rows: int = 0
    noise: Noise = field(default_factory=Noise)

    @property
    def changed_step(self) -> int:
        """The first step with the present rows."""
        return self.warm_up.step

    @property
    def noise_rows(self) -> float:
        """The noise scale, in rows; NaN where it is not known."""
        return self.noise.rows

    @property
    def is_between_passes(self) -> bool:
        """Whether a pass is just over, or none has begun."""
        return self.pieces == 0


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """One step, decided. The numbers follow from the course before it.

    Attributes:
        batch_rows: how many rows it was to have.
        rows: how many it has; fewer where pieces are short, or the pass is nearly over.
        pieces: shape (pieces,), in the order in which they are added.
    """

    step: int
    batch_rows: int
    rows: int
    rate: float
    scale: float
    warm_up: WarmUp
    pieces: IntArray


def first_course(job: MiniBatchTraining, state: Any) -> TrainingCourse:
    """Return the course of a run that has not made a step."""
    return TrainingCourse(state, job.start_rows)


def next_step(job: MiniBatchTraining, rule: BatchRule, order: Order, course: TrainingCourse) -> MiniBatch:
    """Return which rows the next step takes, and its rate."""
    rows = rule.rows(course)
    warm_up = course.warm_up if rows == course.batch_rows else WarmUp(course.scale, course.step)
    goal = scale_of(job.scaling, rows, job.start_rows, course.noise_rows)
    scale = warm_up.scale_at(course.step, goal, job.warm_up_steps)
    end = course.pieces + pieces_of_step(rows, order.piece_rows)
    pieces = order.of_pass(course.passes)[course.pieces : end]
    return MiniBatch(
        step=course.step,
        batch_rows=rows,
        rows=order.row_count_of(pieces),
        rate=rule.rate(course.step, scale * job.rate(course.progress)),
        scale=scale,
        warm_up=warm_up,
        pieces=pieces,
    )


def after(
    job: MiniBatchTraining, order: Order, course: TrainingCourse, step: MiniBatch, sums: Sums
) -> TrainingCourse:
    """Return the course after a step.

    sums: of all its pieces, as `piece_sums` gives them.

    Raises DataError where the loss is no number.
    """
    *own, squares = sums
    loss = _checked(float(own[0]), step)
    gradients = job.gradients(tuple(own))
    noise = course.noise
    if gradients:
        noise = noise.after(gradients, float(squares), len(step.pieces), step.rows)
    return advanced(
        job, order, course, step, loss, job.update(course.state, tuple(own), step.rows, step.rate), noise
    )


def advanced(
    job: MiniBatchTraining,
    order: Order,
    course: TrainingCourse,
    step: MiniBatch,
    loss: float,
    state: Any,
    noise: Noise,
) -> TrainingCourse:
    """Return the course after a step that somebody else has made.

    Args:
        loss: summed over the rows of the step.
        state: after it.
        noise: of the gradients, with those of the step.

    Raises DataError where the loss is no number.
    """
    _checked(loss, step)
    pieces = course.pieces + len(step.pieces)
    is_over = pieces >= order.piece_count
    same_pass = course.pieces > 0
    return TrainingCourse(
        state=state,
        batch_rows=step.batch_rows,
        step=course.step + 1,
        passes=course.passes + is_over,
        pieces=0 if is_over else pieces,
        progress=course.progress + (step.scale if job.scaling == "gain" else step.rows / job.start_rows),
        scale=step.scale,
        warm_up=step.warm_up,
        changed_passes=course.changed_passes if step.batch_rows == course.batch_rows else course.passes,
        loss_sum=loss + (course.loss_sum if same_pass else 0.0),
        loss_rows=step.rows + (course.loss_rows if same_pass else 0),
        noise=noise,
    )


def _checked(loss: float, step: MiniBatch) -> float:
    if not np.isfinite(loss):
        raise DataError(
            f"the loss is {loss} at step {step.step} with a rate of {step.rate:.3g}; give a lower rate, "
            "or scale the features in SQL"
        )
    return loss
