"""Loops that are not ours: they take turns, report, and end when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import relaqs
from relaqs import Pacer, RelaqsError, Session, connect, shuffle
from relaqs.executors import ThreadExecutor
from relaqs.executors.base import Done
from relaqs.job import Task, TaskResult
from relaqs.pacing import report

LONG_SECONDS = 20.0


@pytest.fixture
def one_core() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor(1)
    yield executor
    executor.close()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Session]:
    shuffle(pa.table({"x": np.arange(1000.0)}), tmp_path / "t", partitions=10)
    with connect(tmp_path, threads=1) as session:
        yield session


def test_one_core_is_one_loops_at_a_time(one_core: ThreadExecutor) -> None:
    inside, together, turns = [0], [0], [0, 0]

    def loop(number: int) -> None:
        with Pacer(one_core, turn_seconds=0.0) as pacer:
            for step in range(50):
                inside[0] += 1
                together[0] = max(together[0], inside[0])
                turns[number] += 1
                inside[0] -= 1
                assert pacer.report(1.0 / (step + 1))

    threads = [threading.Thread(target=loop, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert turns == [50, 50]
    assert together == [1]


def test_a_turn_is_charged_the_time_the_core_was_held(one_core: ThreadExecutor) -> None:
    results: list[TaskResult] = []

    class Metered:
        """Hands everything on, and notes what came back."""

        def __getattr__(self, name: str) -> Any:
            return getattr(one_core, name)

        def submit(self, tasks: Sequence[Task], done: Done) -> None:
            def noted(result: TaskResult) -> None:
                results.append(result)
                done(result)

            one_core.submit(tasks, noted)

    with Pacer(Metered(), turn_seconds=0.0) as pacer:
        threading.Event().wait(0.05)  # it idles, and holds the core all the same
        pacer.report(1.0)
    assert results[0].core_seconds >= 0.05


def test_quick_steps_share_a_turn(one_core: ThreadExecutor) -> None:
    with Pacer(one_core, turn_seconds=LONG_SECONDS) as pacer:
        assert [pacer.report(loss) for loss in (3.0, 2.0, 1.0)] == [True] * 3
    assert pacer.losses == (3.0, 2.0, 1.0)


def test_a_target_ends_the_loop(one_core: ThreadExecutor) -> None:
    with Pacer(one_core, target_loss=2.5, turn_seconds=0.0) as pacer:
        losses = iter([4.0, 3.0, 2.0, 1.0])
        while pacer.report(next(losses)):
            pass
    assert pacer.losses == (4.0, 3.0, 2.0)


def test_a_query_gets_its_turn_between_reports(db: Session) -> None:
    with db.pace() as pacer:
        query = db.online_sql("SELECT sum(x) AS s FROM t")
        while query.state != "exact":
            assert pacer.report(1.0)
        assert query.result().table["s"].to_pylist() == [499_500.0]


def test_report_finds_the_pacer_of_the_block_it_runs_in(one_core: ThreadExecutor) -> None:
    assert relaqs.report(1.0)  # nobody listens
    with Pacer(one_core) as outer:
        report(np.float32(2.0))
        assert report(1.5)
    assert report(0.5)
    assert outer.losses == (2.0, 1.5)


def test_outside_its_block_a_pacer_takes_no_reports(one_core: ThreadExecutor) -> None:
    pacer = Pacer(one_core)
    with pytest.raises(RelaqsError, match="outside the pacer's block"):
        pacer.report(1.0)


def test_closing_the_session_ends_the_loop(db: Session) -> None:
    with db.pace() as pacer:
        assert pacer.report(1.0)
        db.close()
        assert not pacer.report(1.0)
    with pytest.raises(RelaqsError, match="closed"), db.pace():
        pass


def test_an_error_in_the_loop_frees_its_core(db: Session) -> None:
    with pytest.raises(ZeroDivisionError), db.pace() as pacer:
        pacer.report(1 / 0)
    assert db.online_sql("SELECT count(*) AS n FROM t").result().table["n"].to_pylist() == [1000]


def test_a_paused_loop_waits_in_its_report(one_core: ThreadExecutor) -> None:
    reported = threading.Event()

    def loop() -> None:
        with pacer:
            pacer.pause()
            pacer.report(1.0)
            reported.set()

    pacer = Pacer(one_core, turn_seconds=0.0)
    thread = threading.Thread(target=loop)
    thread.start()
    assert not reported.wait(0.1)
    pacer.resume()
    assert reported.wait(LONG_SECONDS)
    thread.join(LONG_SECONDS)


def test_xgboosts_own_loop(one_core: ThreadExecutor) -> None:
    import xgboost

    from relaqs.training.xgboost_callback import Report

    random = np.random.default_rng(0)
    matrix = xgboost.DMatrix(random.normal(size=(50, 3)), random.normal(size=50))
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        booster = xgboost.train({"nthread": 1}, matrix, 5, evals=[(matrix, "all")], callbacks=[Report()])
    assert booster.num_boosted_rounds() == 5
    assert len(pacer.losses) == 5
    assert np.all(np.diff(pacer.losses) < 0)
    with Pacer(one_core, target_loss=pacer.losses[1], turn_seconds=0.0):
        booster = xgboost.train({"nthread": 1}, matrix, 5, evals=[(matrix, "all")], callbacks=[Report()])
    assert booster.num_boosted_rounds() == 2
    with pytest.raises(ValueError, match="no loss to report"):
        xgboost.train({}, matrix, 1, callbacks=[Report()])


def test_scikit_learns_partial_fit(one_core: ThreadExecutor) -> None:
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    random = np.random.default_rng(0)
    features = random.normal(size=(100, 3))
    classes = (features[:, 0] > 0).astype(int)
    model = SGDClassifier(loss="log_loss", random_state=0)
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        for _ in range(5):
            model.partial_fit(features, classes, classes=[0, 1])
            relaqs.report(log_loss(classes, model.predict_proba(features)))
    assert len(pacer.losses) == 5
