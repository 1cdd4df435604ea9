"""Loops that are not ours: they take turns, report, and end when they are told to."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.errors import ClusterError

import relaqs
from relaqs import ArgumentError, Pacer, RelaqsError, Session, connect, shuffle
from relaqs.executors import ThreadExecutor
from relaqs.jobs.executor import Done
from relaqs.jobs.job import StepReport, Task, TaskResult
from relaqs.pacing.libraries import report_fits, report_losses
from relaqs.pacing.paced_loop import report

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


def test_ctrl_c_before_the_first_turn_leaves_the_core_to_others(
    one_core: ThreadExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    pacer = Pacer(one_core)
    monkeypatch.setattr(pacer._turns, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), pacer:
        pytest.fail("it was interrupted before")
    assert pacer.runner.wait(0)
    assert report(1.0)  # to nobody
    with Pacer(one_core) as next_one:
        next_one.report(1.0)
    assert (next_one.losses, pacer.losses) == ((1.0,), ())


def test_a_pacer_that_cannot_start_takes_no_reports() -> None:
    executor = ThreadExecutor(1)
    executor.close()
    with pytest.raises(ClusterError, match="session is closed"), Pacer(executor):
        pytest.fail("it cannot start")
    assert report(1.0)  # to nobody


def test_outside_its_block_a_pacer_takes_no_reports(one_core: ThreadExecutor) -> None:
    pacer = Pacer(one_core)
    with pytest.raises(RelaqsError, match="outside the pacer's block"):
        pacer.report(1.0)


def test_a_pacer_keeps_its_session_open_until_its_block(db: Session, tmp_path: Path) -> None:
    with connect(tmp_path, threads=1).pace() as pacer:  # nothing else refers to that session
        assert pacer.report(1.0)
        assert pacer.report(0.5)


def test_a_pacer_is_for_one_block(db: Session) -> None:
    with db.pace() as pacer:
        with pytest.raises(RelaqsError, match="for one block"), pacer:
            pytest.fail("it is in its block")
        assert pacer.report(1.0)
    with pytest.raises(RelaqsError, match="for one block"), pacer:
        pytest.fail("its block is over")
    assert db.status().jobs == ()


@pytest.mark.parametrize("target", [math.inf, math.nan, "0.1"])
def test_a_target_that_is_no_loss_is_refused(db: Session, target: Any) -> None:
    with pytest.raises(ArgumentError, match="target_loss is"):
        db.pace(target_loss=target)


@pytest.mark.parametrize("loss", [np.array([0.3, 0.2]), "much", None])
def test_what_is_no_number_is_refused(one_core: ThreadExecutor, loss: Any) -> None:
    with Pacer(one_core) as pacer:
        with pytest.raises(ArgumentError, match=f"of type {type(loss).__name__}, is not one number.*mean"):
            pacer.report(loss)
        pacer.report(0.5)
    assert pacer.losses == (0.5,)


def test_a_loss_that_is_not_a_number_any_more_leaves_others_alone(db: Session) -> None:
    with db.pace() as pacer:
        query = db.online_sql("SELECT sum(x) FROM t")
        for loss in (2.0, 1.0, math.nan, math.inf, math.nan):
            pacer.report(loss)
            db.status()
    assert query.result().is_exact


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

    from relaqs.pacing.xgboost import Report

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


def test_scikit_learns_partial_fit_in_one_line(one_core: ThreadExecutor) -> None:
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    random = np.random.default_rng(0)
    features = random.normal(size=(100, 3))
    classes = (features[:, 0] > 0).astype(int)
    model = SGDClassifier(loss="log_loss", random_state=0)
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        assert report_fits(model, lambda each: log_loss(classes, each.predict_proba(features))) is model
        for _ in range(5):
            model.partial_fit(features, classes, classes=[0, 1])
    assert len(pacer.losses) == 5
    assert pacer.losses[-1] < pacer.losses[0]
    model.partial_fit(features, classes)  # outside of the block it reports to nobody
    assert len(pacer.losses) == 5


def test_a_model_that_reports_is_saved_and_copied_without_its_reports(one_core: ThreadExecutor) -> None:
    from sklearn.base import clone
    from sklearn.cluster import KMeans

    features = np.random.default_rng(0).normal(size=(60, 3))
    model = report_fits(KMeans(2, n_init=1, random_state=0))
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        model.fit(features)
        for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), clone(model)):
            assert copied.fit(features).cluster_centers_.tolist() == model.cluster_centers_.tolist()
    assert len(pacer.losses) == 1


def test_a_loop_whose_reports_are_made_for_it_asks_whether_it_is_over(one_core: ThreadExecutor) -> None:
    from sklearn.linear_model import SGDRegressor

    model = report_fits(SGDRegressor(), lambda each: 1 / each.t_)
    features = np.ones((10, 1))
    with Pacer(one_core, target_loss=0.035, turn_seconds=0.0) as pacer:
        while not pacer.is_over:
            model.partial_fit(features, features[:, 0])
    assert pacer.losses == pytest.approx([1 / 11, 1 / 21, 1 / 31])


def test_scikit_learns_warm_start_reports_the_loss_it_keeps(one_core: ThreadExecutor) -> None:
    from sklearn.cluster import KMeans
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.neural_network import MLPRegressor

    random = np.random.default_rng(0)
    features = random.normal(size=(60, 3))
    target = features.sum(axis=1)
    trees = report_fits(GradientBoostingRegressor(n_estimators=2, warm_start=True, random_state=0))
    net = report_fits(MLPRegressor(hidden_layer_sizes=(4,), random_state=0))
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        for count in (4, 6, 8):
            trees.set_params(n_estimators=count).fit(features, target)
    assert np.all(np.diff(pacer.losses) < 0)
    assert pacer.losses[-1] == trees.train_score_[-1]
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        for _ in range(3):
            net.partial_fit(features, target)
    assert pacer.losses == pytest.approx(net.loss_curve_)
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        report_fits(KMeans(2, n_init=1, random_state=0)).fit(features)
    assert len(pacer.losses) == 1


def test_an_estimator_without_a_loss_is_refused() -> None:
    from sklearn.linear_model import SGDClassifier

    model = report_fits(SGDClassifier())
    with pytest.raises(ArgumentError, match="SGDClassifier keeps no loss; say how to measure it"):
        model.fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ArgumentError, match="no fit and no partial_fit"):
        report_fits(object())


class Tensor:
    """What of a PyTorch tensor a loop and a hook touch."""

    def __init__(self, value: float, *, requires_grad: bool) -> None:
        self._value = value
        self.requires_grad = requires_grad

    def detach(self) -> Tensor:
        return Tensor(self._value, requires_grad=False)

    def __float__(self) -> float:
        if self.requires_grad:  # PyTorch warns: a number has no gradient
            raise TypeError("converting a tensor with requires_grad=True to a scalar")
        return self._value


class Criterion:
    """What of a PyTorch loss module a hook touches: it is called after each forward pass."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    def register_forward_hook(self, hook: Any) -> object:
        self._hooks.append(hook)
        return object()

    def __call__(self, value: float, *, requires_grad: bool = True) -> Tensor:
        loss = Tensor(value, requires_grad=requires_grad)
        for hook in self._hooks:
            replaced = hook(self, (value,), loss)
            loss = loss if replaced is None else replaced
        return loss


def test_pytorchs_loop_in_one_line(one_core: ThreadExecutor) -> None:
    criterion = report_losses(Criterion())
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        for value in (3.0, 2.0, 1.0):
            assert criterion(value).requires_grad  # the loss goes on to backward() as it was
            criterion(9.0, requires_grad=False)  # an evaluation
    assert pacer.losses == (3.0, 2.0, 1.0)
    with pytest.raises(ArgumentError, match="no PyTorch module"):
        report_losses(lambda output, target: 0.0)


def test_the_losses_of_a_turn_are_one_step_with_their_mean(
    one_core: ThreadExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[StepReport] = []
    monkeypatch.setattr(one_core, "report", lambda job_id, report: reports.append(report))
    with Pacer(one_core, turn_seconds=LONG_SECONDS) as pacer:
        pacer.report(3.0)
        pacer.report(1.0)
        pacer._turn_seconds = 0.0
        pacer.report(2.0)
        pacer.report(5.0)
    assert [report.quality for report in reports][:1] == [2.0]


def test_a_loop_is_shown_among_the_jobs(db: Session) -> None:
    with db.pace(priority=2.0, name="my net") as pacer:
        pacer.report(0.5)
        [job] = db.status().jobs
        assert (job.name, job.kind, job.weight) == ("my net", "training", 2.0)
    assert db.status().jobs == ()


def test_another_thread_reads_what_the_loop_reports(one_core: ThreadExecutor) -> None:
    """And the loop is steered by the same words as a query: target, priority, pause, state."""
    seen: list[float] = []
    with Pacer(one_core, turn_seconds=0.0) as pacer:
        reader = threading.Thread(target=lambda: seen.extend(reported.quality for reported in pacer))
        reader.start()
        assert pacer.state in ("waiting", "running")
        assert pacer.report(3.0)
        pacer.target = 2.0
        while pacer.report(2.0):
            pass
    reader.join(LONG_SECONDS)
    assert seen[-1] == 2.0
    assert (pacer.state, pacer.target) == ("stopped", 2.0)
