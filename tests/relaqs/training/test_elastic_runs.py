"""Real runs by mini-batches: how they end, what they tell, and what changes no bit of them."""

from __future__ import annotations

import numpy as np
import pytest

import relaqs.training.elastic.step_job as step_job
from relaqs import ArgumentError, DataError, Session
from relaqs.training import KMeans, MiniBatchLinear, replay

DIGITS = MiniBatchLinear(
    "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits", "y", first_rate=0.1, start_rows=16, seed=3
)
TELLS = MiniBatchLinear(DIGITS.sql, "y", first_rate=0.1, start_rows=16, held_out=0.3, passes_most=4)


@pytest.fixture(scope="module")
def elastic(db: Session) -> tuple[object, np.ndarray]:
    run = db.train(DIGITS, batch="elastic", max_steps=6)
    return run, run.result().coef_


def test_an_elastic_run_grows_and_a_fixed_one_does_not(db: Session, elastic: tuple) -> None:
    run, _ = elastic
    changes = list(run.journal.changes())
    assert [change.batch_rows for change in changes] == [16, 32, 64, 128][: len(changes)]
    assert len(changes) > 2
    assert run.batch_rows == changes[-1].batch_rows
    assert len(run.steps) == 6
    fixed = db.train(DIGITS, max_steps=2)
    fixed.result()
    assert [change.batch_rows for change in fixed.journal.changes()] == [16]
    large = db.train(DIGITS, batch=100, max_steps=1)
    large.result()
    assert large.batch_rows == 100


def test_steps_shared_out_over_tasks_give_the_same_bits(
    db: Session, elastic: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is shared out: over 2 tasks at first, over as many as it has pieces later."""
    run, coefficients = elastic
    monkeypatch.setattr(step_job, "SPLIT_SECONDS", 0.0)
    monkeypatch.setattr(step_job, "LEAST_SECONDS", 1e-6)
    shared = db.train(DIGITS, batch="elastic", max_steps=6)
    assert (shared.result().coef_ == coefficients).all()
    assert shared.losses == run.losses
    assert set(shared.journal.ranks) >= {2, 4}
    assert shared.journal.batch_rows.tolist() == run.journal.batch_rows.tolist()


def test_one_step_a_task_gives_the_same_bits(
    db: Session, elastic: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, coefficients = elastic
    monkeypatch.setattr(step_job, "TASK_SECONDS", 0.0)
    assert (db.train(DIGITS, batch="elastic", max_steps=6).result().coef_ == coefficients).all()


def test_a_journal_replays_a_run_that_was_stopped_anywhere(db: Session) -> None:
    run = db.train(DIGITS, batch="elastic", timeout=0.5)
    while run.latest is None:
        assert not run.wait(0.005), run.runner.error
    run.stop()
    run.wait()
    model = run.result()
    again = replay(run.journal, DIGITS, db)
    assert (again.coef_ == model.coef_).all()
    assert (again.intercept_ == model.intercept_).all()


def test_held_out_rows_give_loss_and_accuracy(db: Session) -> None:
    run = db.train(TELLS)
    run.result()
    assert run.state == "converged"
    assert len(run.steps) == 4  # passes_most
    assert all(0.8 < step.accuracy <= 1.0 for step in run.steps)
    # 2 of the 7 partitions are held out, so the steps of a pass have about 5/7 of the 1797 rows.
    assert len(run.journal) * 16 / 4 == pytest.approx(1797 * 5 / 7, rel=0.1)


def test_a_run_ends_when_passes_bring_nothing(db: Session) -> None:
    job = MiniBatchLinear(DIGITS.sql, "y", first_rate=0.1, tolerance=10.0, patience_passes=2)
    run = db.train(job)
    run.result()
    assert run.state == "converged"
    assert len(run.steps) == 3  # the first betters a loss that was infinite


def test_a_run_is_paused_and_goes_on(db: Session) -> None:
    run = db.train(DIGITS)
    while not run.steps:
        assert not run.wait(0.005), run.runner.error
    run.pause()
    run.resume()
    seen = len(run.steps)
    while len(run.steps) <= seen:
        assert not run.wait(0.005), run.runner.error
    run.stop()
    run.wait()
    assert run.state == "stopped"


def test_settings_are_checked_by_name() -> None:
    with pytest.raises(ArgumentError, match="rows_most is 32, below start_rows, which is 64"):
        MiniBatchLinear("SELECT 1", "y", rows_most=32)
    with pytest.raises(ArgumentError, match="start_rows is 0; it must be a whole number from 1 on"):
        MiniBatchLinear("SELECT 1", "y", start_rows=0)
    with pytest.raises(ArgumentError, match=r"held_out is 1\.0; it must be a share"):
        MiniBatchLinear("SELECT 1", "y", held_out=1.0)
    with pytest.raises(ArgumentError, match="scaling is 'cubic'"):
        MiniBatchLinear("SELECT 1", "y", scaling="cubic")
    with pytest.raises(ArgumentError, match="loss is 'log'; for classes it is one of hinge"):
        MiniBatchLinear("SELECT 1", "y", loss="log")


def test_what_a_run_cannot_be_is_said_before_a_task_starts(db: Session) -> None:
    with pytest.raises(ArgumentError, match="start_rows is 2000, but there are 1797 rows"):
        db.train(MiniBatchLinear(DIGITS.sql, "y", start_rows=2000))
    with pytest.raises(ArgumentError, match="batch is 'large'; it must be \"elastic\""):
        db.train(DIGITS, batch="large")
    with pytest.raises(ArgumentError, match="batch is 0"):
        db.train(DIGITS, batch=0)
    with pytest.raises(ArgumentError, match="each step of KMeans reads all rows"):
        db.train(KMeans("SELECT x0 FROM digits"), batch="elastic")
    with pytest.raises(ArgumentError, match=r"held_out is 0\.99, which is 7 of the 7 partitions"):
        db.train(MiniBatchLinear(DIGITS.sql, "y", held_out=0.99))


def test_rows_that_the_select_leaves_out_count_for_the_first_step(db: Session) -> None:
    job = MiniBatchLinear("SELECT x0, x1, y FROM digits WHERE x2 > 12", "y", start_rows=1000)
    with pytest.raises(ArgumentError, match="start_rows is 1000, but there are"):
        db.train(job).result()


def test_a_loss_that_is_no_number_ends_the_run(db: Session) -> None:
    job = MiniBatchLinear("SELECT * FROM diabetes", "y", loss="squared_error", first_rate=1e6, penalty=0)
    with pytest.raises(DataError, match=r"the loss is .* at step .* with a rate of .*; give a lower rate"):
        db.train(job).result()
