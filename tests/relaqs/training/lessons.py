"""A small regression by mini-batches, as a gang trains it, and what one rank alone must come to."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.elastic.course import (
    BatchRule,
    FixedBatch,
    Order,
    TrainingCourse,
    first_course,
)
from relaqs.training.elastic.rank import Lesson, Rank
from relaqs.training.protocol import MiniBatches
from relaqs.training.rows import Profile, Rows, Sums

STEADY = FixedBatch(64)
PARTITION_ROWS = (700, 0, 500, 333)
FEATURES = 12


@dataclass(frozen=True, kw_only=True)
class Regression(MiniBatches):
    """Momentum towards the least squares. padding: numbers of the model that nothing depends on.

    piece_seconds: how long a piece takes at least.
    """

    sql: str = "SELECT * FROM made_up"
    target: str = "y"
    start_rows: int = 32
    rows_most: int | None = 1024
    padding: int = 0
    piece_seconds: float = 0.0

    def begin(self, profile: Profile | None) -> tuple[FloatArray, FloatArray]:
        size = FEATURES + self.padding
        return np.zeros(size), np.zeros(size)

    def rate(self, progress: float) -> float:
        return 0.005 / (1.0 + 0.0001 * progress)

    def partial(self, state: Any, rows: Rows, draw: int) -> Sums:
        off = rows.features @ state[0][:FEATURES] - rows.target
        gradient = np.zeros(len(state[0]))
        gradient[:FEATURES] = rows.features.T @ off
        if self.piece_seconds:
            time.sleep(self.piece_seconds)
        return np.asarray(off @ off), gradient

    def gradients(self, sums: Sums) -> Sums:
        return sums[1:]

    def update(self, state: Any, sums: Sums, rows: int, rate: float) -> Any:
        moments = 0.9 * state[1] + sums[1] / rows
        return state[0] - rate * moments, moments

    def evaluate(self, state: Any, rows: Rows) -> Sums:
        return self.partial(state, rows, 0)[:1]

    def estimator(self, profile: Profile, state: Any) -> FloatArray:
        return state[0][:FEATURES]


@dataclass(frozen=True)
class MadeUpReader:
    """Rows that follow from their partition."""

    order: Order

    def rows(self, piece: int) -> Rows:
        partition, first, end = self.order.place(piece)
        features, target = _made_up(partition)
        places = self.order.rows_of(partition)[first:end]
        return Rows(features[places], target[places])


@dataclass(frozen=True)
class MadeUpRecipe:
    """Makes a lesson of a regression over made-up rows.

    rule: for the rows of a step. prepare_seconds: how long that takes. fails: what it raises instead.
    """

    job: Regression = Regression()
    rule: BatchRule = STEADY
    prepare_seconds: float = 0.0
    fails: type[Exception] | None = None

    def actor(self, slot: str, owner: str) -> Rank:
        return Rank(slot, self.lesson())

    def lesson(self) -> Lesson:
        if self.fails is not None:
            raise self.fails("this recipe fails")
        time.sleep(self.prepare_seconds)
        order = Order(PARTITION_ROWS, self.job.start_rows, self.job.seed)
        first = first_course(self.job, self.job.begin(None))
        return Lesson(self.job, self.rule, order, first, MadeUpReader(order))


def course_of(kept: bytes | None) -> TrainingCourse:
    """Return the course that a driver kept."""
    assert kept is not None
    found = pickle.loads(kept)
    assert isinstance(found, TrainingCourse)
    return found


def course_alone(recipe: MadeUpRecipe, steps: int) -> TrainingCourse:
    """Return what one rank makes in some steps."""
    lesson = recipe.lesson()
    course = lesson.first
    while course.step < steps:
        step = lesson.next(course)
        course = lesson.after(course, step, lesson.sums(course, step.pieces))
    return course


def loss_of(course: TrainingCourse) -> float:
    """Return the loss of a model over all made-up rows."""
    lesson = MadeUpRecipe().lesson()
    return float(lesson.sums(course, range(lesson.order.piece_count))[0])


@cache
def _made_up(partition: int) -> tuple[FloatArray, FloatArray]:
    draws = np.random.default_rng(partition)
    features = draws.normal(size=(PARTITION_ROWS[partition], FEATURES))
    return features, features @ np.arange(FEATURES) + draws.normal(size=len(features))
