"""The first look at all rows: small partitions share a task, and that changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

from relaqs import Session
from relaqs.training import KMeans, passes
from relaqs.training.passes import partitions_per_look, profile_works

DIGITS = KMeans("SELECT * EXCLUDE (y) FROM digits", clusters=10, seed=1)


@pytest.mark.parametrize(
    ("row_counts", "columns", "expected"),
    [
        ([3_750] * 80, 7, 16),
        ([3_750] * 5, 7, 8),  # no more than hold all
        ([3_750] * 80, 500, 1),  # many columns take long to read
        ([10**6] * 80, 7, 1),
        ([0, 0, 0], 7, 4),
    ],
)
def test_small_partitions_are_looked_at_together(row_counts: list[int], columns: int, expected: int) -> None:
    assert partitions_per_look(row_counts, columns) == expected


def test_how_partitions_share_tasks_changes_no_bit(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []

    def counted(*args: object) -> object:
        works = profile_works(*args)
        tasks.append(len(works))
        return works

    monkeypatch.setattr("relaqs.training.passes.profile_works", counted)
    together = db.train(DIGITS)
    centers = together.result().cluster_centers_
    monkeypatch.setattr(passes, "LOOK_VALUES", 1)
    alone = db.train(DIGITS)
    assert np.array_equal(alone.result().cluster_centers_, centers)
    assert alone.losses == together.losses
    assert tasks[0] == 1 < tasks[1]
