"""The rows of a run by mini-batches in the order in which it takes them, for estimators fitted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relaqs import Session
from relaqs.training import MiniBatchTraining, Rows
from relaqs.training.elastic.course import Order, piece_rows_of, pieces_of_step
from relaqs.training.launch import planned_rows
from relaqs.training.rows import TrainingSet, training_set


def data_of(db: Session, job: MiniBatchTraining) -> TrainingSet:
    return training_set(planned_rows(job, db), db._catalog, db._databases.tasks, job.target)


def ordered_steps(db: Session, job: MiniBatchTraining, passes: int) -> Iterator[Rows]:
    """Yield the rows of each step of `start_rows` rows."""
    partitions = [read.rows("test") for read in data_of(db, job).reads]
    order = Order(tuple(map(len, partitions)), piece_rows_of(job.start_rows), job.seed)
    size = pieces_of_step(job.start_rows, order.piece_rows)
    for index in range(passes):
        pieces = order.of_pass(index)
        for first in range(0, len(pieces), size):
            yield joined([piece_rows(partitions, order, piece) for piece in pieces[first : first + size]])


def piece_rows(partitions: list[Rows], order: Order, piece: int) -> Rows:
    partition, first, end = order.place(int(piece))
    picked = order.rows_of(partition)[first:end]
    rows = partitions[partition]
    return Rows(rows.features[picked], None if rows.target is None else rows.target[picked])


def joined(parts: list[Rows]) -> Rows:
    features = np.concatenate([part.features for part in parts])
    targets = [part.target for part in parts if part.target is not None]
    return Rows(features, np.concatenate(targets) if targets else None)
