"""`Session.resume`: runs that go on in another process, to the last bit, and what a run says at its end."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor

from relaqs import ArgumentError, RelaqsError, Session, SqlError, connect, shuffle
from relaqs.jobs import checkpoint
from relaqs.jobs.checkpoint import FileKeeper, RunKeeper, _remove_drafts
from relaqs.jobs.handle import RunListener
from relaqs.jobs.runner import RunState
from relaqs.pacing import Context
from relaqs.pacing.function_run import Saved
from relaqs.pacing.trials import PRUNERS, Losses
from relaqs.progress import StopReason, StopRules
from relaqs.queries.jobs import Checkpoint, SavedState
from relaqs.training import KMeans, launch
from relaqs.training import LogisticRegression as ByGradients
from relaqs.training.algorithms import linear

SQL = "SELECT * FROM points"
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow  # a process for each kill
@pytest.mark.parametrize("kind", ["fit", "trees", "elastic", "function", "search"])
def test_a_run_that_is_killed_gives_what_it_would_have_given(kind: str) -> None:
    """Four kills of each, in another process each time, after a drawn number of states."""
    command = [sys.executable, "-m", "benchmarks.resumed_runs", "--kills", "4", "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" 0 differ from the uninterrupted run\n"), done.stdout
    assert int(done.stdout.split(", ")[1].split()[0]) >= 4


def stopped_on_the_way(run: Any, reached: int) -> None:
    while len(run.losses) < reached:
        time.sleep(0.001)
    run.stop()
    assert run.wait(timeout=60)


def test_a_run_that_was_stopped_goes_on(db: Session, tmp_path: Path) -> None:
    model = SGDClassifier(loss="log_loss", max_iter=300, tol=None)
    path = tmp_path / "fit.run"
    run = db.fit(model, SQL, target="late", batch=64, checkpoint=path)
    stopped_on_the_way(run, 2)
    assert (run.stop_reason, run.shortfall) == (StopReason.STOPPED, None)
    before = run.losses
    again = db.resume(path)
    assert again.losses[: len(before)] == before
    stopped_on_the_way(again, len(before) + 2)
    third = db.resume(path)
    third.stop()
    assert third.wait(timeout=60)
    assert len(third.losses) >= len(before) + 2
    assert third.latest.get_params() == {**model.get_params(), "random_state": 0}


def test_a_run_that_was_over_ends_again_as_it_did(
    db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state is kept behind the end, from where it would make one more pass."""
    monkeypatch.setattr(checkpoint, "LARGEST_SHARE", 1e9)
    model = SGDClassifier(loss="log_loss", max_iter=3, tol=None)
    path = tmp_path / "over.run"
    run = db.fit(model, SQL, target="late", checkpoint=path, checkpoint_seconds=1e-9)
    coefficients = run.result(timeout=60).coef_.tolist()
    again = db.resume(path)
    assert again.result(timeout=60).coef_.tolist() == coefficients
    assert (again.losses, again.stop_reason) == (run.losses, run.stop_reason)


def test_a_state_that_is_too_large_does_not_end_the_run(
    db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "MOST_TOLD_BYTES", 64)  # three gradients of two weights and an intercept
    monkeypatch.setattr(checkpoint, "LARGEST_SHARE", 1e9)
    path = tmp_path / "large.run"
    job = ByGradients("SELECT x, z, late FROM points", target="late")
    run = db.train(job, checkpoint=path, checkpoint_seconds=1e-9)
    with pytest.warns(RuntimeWarning, match="gradients of all passes .* the run goes on without"):
        model = run.result(timeout=60)
    with pytest.warns(RuntimeWarning, match="the run goes on without"):
        again = db.resume(path).result(timeout=60)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_search_goes_on_with_its_finished_trials(db: Session, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def descend(ctx: Context, floor: float) -> float:
        with calls.open("a") as file:
            file.write(f"{floor}\n")
        for step in range(ctx.load(0), 20 if floor < 0.3 else 100_000):
            if not ctx.report(floor + 1 / (1 + step)):
                break
            ctx.save(step + 1)
            time.sleep(0.001)
        return floor

    path = tmp_path / "search.run"
    asked: dict[str, Any] = {"trials": 4, "stop": None, "abreast": 3}
    search = db.search(descend, {"floor": [0.1, 0.2, 0.5, 0.6]}, checkpoint=path, **asked)
    while sum(trial.state == "returned" for trial in search.trials) < 2:
        time.sleep(0.01)
    search.stop()
    assert search.wait(timeout=60)
    before = {trial.parameters["floor"]: trial.losses for trial in search.trials}
    again = db.resume(path)
    while len(again.trials) < 4 or not all(
        len(trial.losses) >= len(before.get(trial.parameters["floor"], "one")) for trial in again.trials
    ):
        time.sleep(0.01)
    for trial in again.trials:
        known = before.get(trial.parameters["floor"], ())
        assert trial.losses[: len(known)] == known
    again.stop()
    assert again.result(timeout=60) == 0.1
    told = calls.read_text().split()
    assert (told.count("0.1"), told.count("0.2")) == (1, 1)


def test_what_is_no_checkpoint_of_these_rows_is_refused(db: Session, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    with pytest.raises(RelaqsError, match="there is no checkpoint"):
        db.resume(path)
    path.write_bytes(b"relaqs checkpoint 2\nand more")
    with pytest.raises(RelaqsError, match="damaged"):
        db.resume(path)
    with pytest.raises(ArgumentError, match=r"there already; go on from it by db\.resume"):
        db.run(lambda ctx: 1, checkpoint=path)
    with pytest.raises(RelaqsError, match="make it first"):
        db.run(lambda ctx: 1, checkpoint=tmp_path / "nowhere" / "a.run")
    with pytest.raises(ArgumentError, match="checkpoint_seconds"):
        db.run(lambda ctx: 1, checkpoint=tmp_path / "b.run", checkpoint_seconds=0)
    with pytest.raises(ArgumentError, match="cannot be sent to another process"):
        db.run(lambda ctx, lock: 1, {"lock": threading.Lock()}, checkpoint=tmp_path / "b.run")
    assert not (tmp_path / "b.run").exists()
    state = SavedState(3, pa.table({"k0": [1, 2]}), np.arange(4))
    Checkpoint(tmp_path / "q", "a query").save(state, 5.0)
    with pytest.raises(RelaqsError, match="checkpoint of a query"):
        db.resume(tmp_path / "q")


def test_other_rows_of_the_same_name_are_not_gone_on_with(tmp_path: Path) -> None:
    def lay_out(factor: int) -> None:
        rows = duckdb.sql(f"SELECT i AS x, {factor} * i AS y FROM range(3000) AS t(i)")
        shuffle(rows, tmp_path / "data" / "lines", partitions=5, force=True)

    lay_out(2)
    path = tmp_path / "fit.run"
    with connect(tmp_path / "data", threads=1) as session:
        model = SGDRegressor(max_iter=300, tol=None, eta0=1e-9)
        run = session.fit(model, "SELECT x, y FROM lines", target="y", batch=64, checkpoint=path)
        stopped_on_the_way(run, 1)
        function = session.run(read_slowly, checkpoint=tmp_path / "function.run")
        search = session.search(
            model, {"alpha": [1e-4]}, "SELECT x, y FROM lines", target="y", checkpoint=tmp_path / "search.run"
        )
        stopped_on_the_way(function, 3)
        while not search.trials or not search.trials[0].losses:
            time.sleep(0.001)
        search.stop()
        assert search.wait(timeout=60)
    lay_out(3)
    with connect(tmp_path / "data", threads=1) as session:
        for kind in ("fit", "function", "search"):
            with pytest.raises(RelaqsError, match="rows of the SELECT are not those"):
                session.resume(tmp_path / f"{kind}.run")


def read_slowly(ctx: Context) -> int:
    for batch in ctx.batches("SELECT x, y FROM lines", rows=10):
        ctx.save(len(batch))
        if not ctx.report(1.0):
            break
        time.sleep(0.01)
    return 1


def test_a_run_that_cannot_begin_leaves_no_file(db: Session, tmp_path: Path) -> None:
    path = tmp_path / "fit.run"
    with pytest.raises(SqlError):
        db.train(ByGradients("SELECT nope, late FROM points", target="late"), checkpoint=path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SqlError):
        db.search(
            SGDClassifier(),
            {"alpha": [1e-4]},
            "SELECT nope, late FROM points",
            target="late",
            checkpoint=path,
        )
    db.train(ByGradients(SQL, target="late"), checkpoint=path).result(timeout=60)


def test_going_on_removes_drafts_of_processes_that_are_gone_alone(db: Session, tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    db.run(lambda ctx: 1, checkpoint=path).result(timeout=60)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    draft, empty = tmp_path / f".a.run-{gone.pid}-0a1b2c3d", tmp_path / f".a.run-{2**22 + 1}-{0:08x}"
    draft.write_bytes(b"relaqs checkpoint 2\nhalf of it")
    empty.touch()
    own = tmp_path / f".a.run-{os.getpid()}-{0:08x}"
    others = (".a.run-notes", f".b.run-{gone.pid}-{0:08x}", f".a.run-{2**22 + 2}-{0:08x}")
    kept = [tmp_path / name for name in others]
    for each in kept:
        each.write_text("mine")
    (tmp_path / f".a.run-{2**22 + 3}-{0:08x}").mkdir()
    (tmp_path / ".a.run-folder").mkdir()
    assert db.resume(path).result(timeout=60) == 1
    assert not draft.exists()
    assert not empty.exists()
    assert all(each.read_text() == "mine" for each in kept)
    own.write_bytes(b"relaqs checkpoint 2\n")
    _remove_drafts(path)
    assert own.exists()


def test_a_run_whose_module_is_missing_says_so(
    db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_the_run.py").write_text("def constant(ctx):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a.run"
    db.run(importlib.import_module("of_the_run").constant, checkpoint=path).result(timeout=60)
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "of_the_run")
    with pytest.raises(RelaqsError, match=r"No module named 'of_the_run'.*importable"):
        db.resume(path)


def test_options_of_a_class_that_is_gone_are_said(
    db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = type("GoneOptions", (), {"__module__": launch.__name__})
    monkeypatch.setattr(launch, "GoneOptions", gone, raising=False)
    recipe = launch.TrainingRecipe(KMeans("SELECT v FROM t"), gone())
    path = tmp_path / "a.run"
    checkpoint.FileKeeper(path, 1.0, checkpoint.packed(recipe, "the run"))
    monkeypatch.undo()
    kept = path.read_bytes()
    with pytest.raises(
        RelaqsError, match=r"does not have \(AttributeError: .*GoneOptions.*begin the run anew"
    ):
        db.resume(path)
    assert path.read_bytes() == kept


def test_another_python_does_not_go_on(db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.run"
    db.run(lambda ctx: 1, checkpoint=path).result(timeout=60)
    monkeypatch.setattr(checkpoint, "_WRITER", "relaqs 1 on Python 3.99")
    with pytest.raises(RelaqsError, match=r"was written by relaqs .* on Python 3\..*, and this is"):
        db.resume(path)


class Holding(RunListener[float]):
    """The listener of a job that holds something, and has a state that cannot be pickled."""

    is_released = False

    def saved(self) -> Any:
        return threading.Lock()

    def _release(self) -> None:
        self.is_released = True


class Failing(RunKeeper):
    def keep(self, saved: Any) -> None:
        raise OSError("no keeper is to fail, and this one does")


def test_a_state_that_cannot_be_pickled_does_not_end_the_run(tmp_path: Path) -> None:
    keeper = FileKeeper(tmp_path / "a.run", 1.0, b"")
    before = (tmp_path / "a.run").read_bytes()
    listener = Holding("a", StopRules(None), keeper=keeper)
    with pytest.warns(RuntimeWarning, match="cannot pickle .*; the run goes on without"):
        listener.ended(RunState.STOPPED, None)
    assert listener.is_released
    assert (tmp_path / "a.run").read_bytes() == before
    listener = Holding("a", StopRules(None), keeper=Failing())
    with pytest.raises(OSError, match="this one does"):
        listener.ended(RunState.STOPPED, None)
    assert listener.is_released


def test_what_cannot_be_pickled_runs_without_a_checkpoint(db: Session) -> None:
    lock = threading.Lock()
    assert db.run(lambda ctx: lock.locked()).result(timeout=60) is False


def test_an_end_says_what_is_missing(db: Session) -> None:
    def constant(ctx: Context, loss: float) -> float:
        ctx.report(loss)
        time.sleep(0.02)
        return loss

    met = db.run(constant, {"loss": 0.5}, until=0.5, within=60)
    assert met.result(timeout=60, strict=True) == 0.5
    assert (met.stop_reason, met.shortfall) == (StopReason.TARGET, None)
    late = db.run(constant, {"loss": 0.5}, until=0.5, within=0.01)
    assert late.result(timeout=60) == 0.5
    assert late.stop_reason is StopReason.LATE
    with pytest.raises(RelaqsError, match=r"not within 0\.01 s"):
        late.result(strict=True)
    missed = db.run(constant, {"loss": 0.5}, until=0.25)
    assert missed.result(timeout=60) == 0.5
    with pytest.raises(RelaqsError, match=r"the loss is 0\.5, not 0\.25 or less"):
        missed.result(strict=True)
    fit = db.fit(
        LogisticRegression(), SQL, target="late", until={"accuracy": 0.999, "loss": 1e-9}, within=1e-6
    )
    fit.result(timeout=60)
    assert fit.stop_reason is StopReason.MISSED
    with pytest.raises(RelaqsError, match=r"the loss is .*; the accuracy is .*, not 0.999 or more; it ended"):
        fit.result(strict=True)
    search = db.search(constant, {"loss": [0.5, 0.75]}, until=0.25)
    assert search.result(timeout=60) == 0.5
    with pytest.raises(RelaqsError, match=r"the loss is 0\.5, not 0\.25 or less"):
        search.result(strict=True)


class Kept:
    """A seat that has the newest state."""

    def __init__(self) -> None:
        self.saved: Saved | None = None
        self.digest = "those rows"

    def readable(self, sql: str, target: str | None) -> Any:
        class Rows:
            digest = self.digest

            def batches(self, rows: int, seed: int, form: str, owner: str) -> Iterator[Any]:
                yield from np.arange(5.0)

        return Rows()

    def note(self, loss: float) -> bool:
        return True

    def keep(self, saved: Saved) -> None:
        self.saved = saved


def test_a_loop_that_a_later_life_leaves_out_begins_anew() -> None:
    seat = Kept()
    first = Context(seat, "f")
    reading = first.batches("a")
    assert [next(reading), next(reading)] == [0.0, 1.0]
    first.save("in the middle of a")
    second = Context(seat, "f", seat.saved)
    second.save("before it reads, it may still go on")
    assert seat.saved is not None
    assert [place.batches for place in seat.saved.places.values()] == [2]
    for _ in second.batches("b"):
        second.save("b in the place of a")
    assert seat.saved.places
    assert all("'a'" not in place for place in seat.saved.places)
    third = Context(seat, "f", seat.saved)
    assert list(third.batches("a")) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_loop_goes_on_over_the_rows_that_it_was_in_alone() -> None:
    seat = Kept()
    first = Context(seat, "f")
    next(first.batches("a"))
    reading = first.batches("a")
    next(reading)
    first.save("in the middle of a")
    seat.digest = "other rows"
    with pytest.raises(RelaqsError, match="rows of the SELECT are not those"):
        next(Context(seat, "f", seat.saved).batches("a"))
    assert next(Context(seat, "f", seat.saved).batches("b")) == 0.0


def test_pruners_need_not_read_what_they_have_seen() -> None:
    """What they are told by is that of the losses read anew."""
    draws = np.random.default_rng(3)
    drawn = [draws.uniform(0, 2, count).tolist() for count in (1, 4, 9, 30, 30)]
    for each in drawn:
        losses = Losses(each[:1])
        losses.extend(each[1:])
        for count in range(1, len(each) + 1):
            assert losses.best(count) == min(each[:count])
            assert losses.mean(count) == pytest.approx(np.mean(each[:count]))
    assert {name: PRUNERS[name]([Losses(each) for each in drawn]) for name in PRUNERS}["median"] == [
        len([1 for other in drawn if other is not each and len(other) >= len(each) > 1]) > 1
        and min(each)
        > np.median(
            [np.mean(other[: len(each)]) for other in drawn if other is not each and len(other) >= len(each)]
        )
        for each in drawn
    ]
