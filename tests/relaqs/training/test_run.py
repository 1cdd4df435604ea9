"""The handle of a run: its states, how it ends, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

import relaqs.training.launch
import relaqs.training.passes
from relaqs import ArgumentError, RelaqsError, Session, connect
from relaqs.training import (
    BoostedClassifier,
    Fold,
    KMeans,
    LinearRegression,
    LogisticRegression,
    MiniBatchLinear,
    MiniBatchTraining,
    Profile,
    Rows,
    Sums,
    Training,
    TrainingJob,
    TrainingRun,
)
from relaqs.training.row_cache import KEPT, LIMIT_VARIABLE
from tests.relaqs.training.conftest import PARTITIONS, Data

LONG_SECONDS = 20.0  # nothing here takes as long unless it hangs
ENDLESS = repeat(5.0)


class Gate:
    """Lets the tasks of so many more passes through."""

    def __init__(self, passes: float = 0) -> None:
        self._changed = threading.Condition()
        self._open = passes
        self.waits = threading.Event()

    def let(self, passes: float = float("inf")) -> None:
        with self._changed:
            self._open += passes
            self._changed.notify_all()

    def enter(self, index: int) -> None:
        with self._changed:
            if index >= self._open:
                self.waits.set()
            assert self._changed.wait_for(lambda: index < self._open, LONG_SECONDS)


@dataclass
class Scripted:
    """Trains nothing: its losses are given, the model is the number of the pass, and it can be held up."""

    losses: Sequence[float] | repeat[float] = field(default_factory=lambda: [3.0, 2.0, 1.0])
    gate: Gate = field(default_factory=lambda: Gate(float("inf")))
    fails_at: int | None = None
    closed: int = 0
    sql: str = "SELECT x0 FROM wine"
    target: None = None

    def begin(self, profile: Profile) -> Training:
        return ScriptedTraining(self)

    def partial(self, model: int, rows: Rows) -> Sums:
        self.gate.enter(model)
        if model == self.fails_at:
            raise ZeroDivisionError("this pass is broken")
        rows.kept["rows"] = (model, np.zeros(len(rows)))
        return (np.array(float(len(rows))),)

    def estimator(self, profile: Profile, model: int) -> str:
        return f"model {model} of {profile.row_count} rows"


class ScriptedTraining:
    def __init__(self, job: Scripted) -> None:
        self._job = job
        self._losses = iter(job.losses)
        self._count = len(job.losses) if isinstance(job.losses, list) else None
        self.model = 0

    def fold(self, sums: Sums) -> Fold:
        assert sums[0] == 178.0  # every row of wine, once
        self.model += 1
        return Fold(self.model - 1, next(self._losses), self.model == self._count)

    def close(self) -> None:
        self._job.closed += 1


def ended(run: TrainingRun) -> TrainingRun:
    assert run.wait(LONG_SECONDS)
    return run


def test_a_run_to_its_end(db: Session) -> None:
    job = Scripted()
    run = db.train(job)
    assert run.result() == "model 2 of 178 rows"
    assert run.state == "converged"
    assert run.losses == (3.0, 2.0, 1.0)
    assert [step.elapsed_seconds for step in run.steps] == sorted(s.elapsed_seconds for s in run.steps)
    assert all(step.core_seconds > 0 for step in run.steps)
    assert run.latest == "model 2 of 178 rows"
    assert job.closed == 1


@pytest.mark.parametrize(
    "job",
    [
        LinearRegression("SELECT x0, y FROM wine", "y"),
        KMeans("SELECT x0, x1 FROM wine", clusters=2),
        MiniBatchLinear("SELECT x0, y FROM wine", "y"),
    ],
    ids=lambda job: type(job).__name__,
)
def test_a_model_that_is_not_cut_has_no_parts_to_move(
    db: Session, job: TrainingJob | MiniBatchTraining
) -> None:
    run = ended(db.train(job, max_steps=1))
    assert run.steps
    assert (run.placement, run.subtask_seconds) == ((), None)
    with pytest.raises(ArgumentError, match="stage is 3, but the model is not cut; train it with parts="):
        run.move(3, 0, "tcp://10.0.0.7:4711")


def test_a_target_loss_stops_it(db: Session) -> None:
    run = db.train(Scripted([5.0, 4.0, 3.0, 2.0, 1.0]), target_loss=3.5)
    assert run.result() == "model 2 of 178 rows"
    assert (run.state, run.losses) == ("stopped", (5.0, 4.0, 3.0))
    assert run.stop_reason == "target reached"


def test_it_stops_when_the_chart_of_its_losses_would_not_change(db: Session) -> None:
    """Eight pixels show a fall from 15 to 3.5, and the last three passes make a third of a pixel each."""
    run = db.train(Scripted([15.0, 5.0, 4.5, 4.0, 3.5, 0.0]), chart_pixels=8)
    run.result()
    assert (run.losses, run.stop_reason) == ((15.0, 5.0, 4.5, 4.0, 3.5), "no visible change")


def test_a_target_set_later_stops_it(db: Session) -> None:
    run = db.train(Scripted(ENDLESS))
    run.target_loss = 4.0
    assert not run.wait(0.05)
    run.target_loss = 6.0
    assert ended(run).state == "stopped"


def test_a_target_that_was_met_already_stops_it_at_once(db: Session) -> None:
    job = Scripted(ENDLESS, Gate(1))
    run = db.train(job)
    assert job.gate.waits.wait(LONG_SECONDS)  # the second pass has begun, so the first was folded
    run.target_loss = 6.0
    job.gate.let()
    assert ended(run).losses[0] == 5.0
    assert run.state == "stopped"


def test_a_number_of_steps_stops_it(db: Session) -> None:
    run = db.train(Scripted(ENDLESS), max_steps=4)
    assert run.result() == "model 3 of 178 rows"
    assert (run.state, len(run.losses), run.stop_reason) == ("stopped", 4, "all passes made")


def test_time_stops_it(db: Session) -> None:
    run = db.train(Scripted(ENDLESS), timeout=0.2)
    assert run.result().startswith("model ")
    assert (run.state, run.stop_reason) == ("stopped", "time is up")


def test_a_result_can_be_had_before_the_end(db: Session) -> None:
    run = db.train(Scripted(ENDLESS))
    assert run.result(timeout=0.2).startswith("model ")
    assert run.state == "stopped"


def test_pause_and_resume(db: Session) -> None:
    job = Scripted([4.0, 3.0, 2.0, 1.0], Gate(1))
    run = db.train(job)
    assert job.gate.waits.wait(LONG_SECONDS)
    run.pause()
    assert run.state == "paused"
    job.gate.let()  # the second pass ends, and no third begins
    while len(run.losses) < 2:
        assert not run.wait(0.01)
    db.train(Scripted()).result()  # there is time enough for others
    assert run.losses == (4.0, 3.0)
    assert run.latest == "model 1 of 178 rows"
    run.resume()
    assert ended(run).losses == (4.0, 3.0, 2.0, 1.0)


def test_stopped_before_its_first_pass_there_is_no_model(db: Session) -> None:
    job = Scripted(gate=Gate(0))
    run = db.train(job)
    assert run.latest is None
    run.stop()
    job.gate.let()
    with pytest.raises(RelaqsError, match="before the first pass"):
        run.result()


def test_leaving_a_with_stops_it(db: Session) -> None:
    with db.train(Scripted(ENDLESS)) as run:
        assert run.state in ("waiting", "running")
    assert ended(run).state == "stopped"


def test_dropping_the_last_reference_stops_it(db: Session) -> None:
    run = db.train(Scripted(ENDLESS))
    runner, gone = run.runner, weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
    assert runner.wait(LONG_SECONDS)


def test_an_error_in_a_task_fails_it(db: Session) -> None:
    job = Scripted(ENDLESS, fails_at=2)
    run = db.train(job)
    with pytest.raises(ZeroDivisionError, match="this pass is broken"):
        run.result()
    assert run.state == "failed"
    assert run.losses == (5.0, 5.0)
    assert job.closed == 1


def test_the_priority_is_the_weight(db: Session) -> None:
    with db.train(Scripted(ENDLESS), priority=3.0) as run:
        assert run.runner.weight == 3.0
        run.priority = 0.5
        assert run.runner.weight == 0.5
        with pytest.raises(ArgumentError, match="priority is 0"):
            run.priority = 0


def test_closing_the_session_stops_its_runs(training_warehouse: Path) -> None:
    db = connect(training_warehouse, threads=1)
    run = db.train(Scripted(ENDLESS))
    db.close()
    assert run.state == "stopped"
    with pytest.raises(RelaqsError, match="closed"):
        db.train(Scripted())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 0}, "priority is 0"),
        ({"target_loss": float("nan")}, "target_loss is nan; it must be a finite number"),
        ({"timeout": -1}, "timeout is -1"),
        ({"max_steps": 0}, "max_steps is 0; it must be a whole number from 1 on"),
    ],
)
def test_options_are_checked_at_once(db: Session, options: dict[str, float], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        db.train(Scripted(), **options)  # type: ignore[arg-type]


def test_what_is_no_job_is_refused(db: Session) -> None:
    with pytest.raises(ArgumentError, match=r"the training job is 'k-means'; give one of relaqs\.training"):
        db.train("k-means")  # type: ignore[arg-type]


def test_what_a_run_keeps_is_gone_when_it_ends(db: Session) -> None:
    job = Scripted(gate=Gate(1))
    run = db.train(job)
    assert job.gate.waits.wait(LONG_SECONDS)
    kept = [KEPT.get(run.id, partition) for partition in range(PARTITIONS)]
    assert sum(len(each["rows"][1]) for each in kept if each is not None) == 178
    job.gate.let()
    run.result()
    assert [KEPT.get(run.id, partition) for partition in range(PARTITIONS)] == [None] * PARTITIONS


def test_a_program_that_trained_ends_without_a_word(training_warehouse: Path) -> None:
    program = f"""
import relaqs
from relaqs.training import LinearRegression
with relaqs.connect({str(training_warehouse)!r}, threads=1) as db:
    db.train(LinearRegression("SELECT x0, x1 FROM wine", target="x1"), max_steps=1).result()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""  # DuckDB's binding names what a thread still holds


@pytest.mark.parametrize(("spilled", "kept"), [("1GB", PARTITIONS), ("0", 2)])
def test_rows_make_room_on_disk_for_what_a_job_stores(
    training_warehouse: Path, monkeypatch: pytest.MonkeyPatch, spilled: str, kept: int
) -> None:
    """Rows take 8 bytes each, and as much is stored beside them: 1424 bytes of either."""
    monkeypatch.setenv(LIMIT_VARIABLE, spilled)
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 1900 / (3 << 30))  # of tasks' three quarters
    KEPT.drop_unused_since(float("inf"))
    job = Scripted(gate=Gate(1))
    with connect(training_warehouse, threads=1, memory_limit=4 << 30) as db:
        run = db.train(job)
        assert job.gate.waits.wait(LONG_SECONDS)
        found = [KEPT.get(run.id, partition) for partition in range(PARTITIONS)]
        job.gate.let()
        assert run.result() == "model 2 of 178 rows"
    assert len([each for each in found if each is not None]) == kept


@pytest.mark.parametrize(("budget_bytes", "spilled"), [(0, "1GB"), (3000, "0")])
def test_losses_are_the_same_bits_whatever_is_grouped_or_kept(
    training_warehouse: Path,
    data: dict[str, Data],
    monkeypatch: pytest.MonkeyPatch,
    budget_bytes: int,
    spilled: str,
) -> None:
    jobs: list[TrainingJob] = [
        KMeans("SELECT * EXCLUDE (y) FROM wine", clusters=5, tolerance=0),
        BoostedClassifier(data["wine"].sql, "y", trees=3, depth=2),
        LogisticRegression(data["wine"].sql, "y"),
    ]

    def losses(db: Session) -> list[tuple[float, ...]]:
        return [ended(db.train(job, max_steps=10)).losses for job in jobs]

    with connect(training_warehouse, threads=2) as db:
        uncut = losses(db)
        monkeypatch.setattr(relaqs.training.passes, "PIECE_ROWS", 8)  # four pieces of each partition
        expected = losses(db)
    for one, other in zip(uncut, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", budget_bytes / (1 << 30))
    monkeypatch.setattr(relaqs.training.passes, "TASK_SECONDS", 1e-9)  # a task for each piece that is kept
    monkeypatch.setenv(LIMIT_VARIABLE, spilled)
    KEPT.drop_unused_since(float("inf"))
    with connect(training_warehouse, threads=1, memory_limit=4 << 30) as db:
        assert losses(db) == expected


def test_queries_are_answered_while_it_trains(db: Session) -> None:
    with db.train(Scripted(ENDLESS)) as run:
        [row] = db.online_sql("SELECT count(*) AS n, sum(x0) AS s FROM digits").result().table.to_pylist()
        assert row["n"] == 1797
        assert run.state == "running"


def test_a_run_is_read_as_a_query_is(db: Session) -> None:
    """The loop gets the newest step each time round, the last one always, and ends with the run."""
    run = db.train(Scripted([5.0, 4.0, 3.0, 2.0, 1.0]))
    read = list(run)
    assert read[-1] == run.steps[-1]
    assert set(read) <= set(run.steps)
    assert ended(run).state == "converged"


def test_a_run_that_failed_says_so_to_its_reader(db: Session) -> None:
    with pytest.raises(ZeroDivisionError, match="this pass is broken"):
        list(db.train(Scripted(ENDLESS, fails_at=2)))


def test_a_run_is_read_on_an_event_loop(db: Session) -> None:
    async def losses() -> list[float]:
        return [step.loss async for step in db.train(Scripted())]

    assert asyncio.run(losses())[-1] == 1.0


def test_the_target_of_a_run_is_its_loss(db: Session) -> None:
    with db.train(Scripted(ENDLESS)) as run:
        assert next(run).loss == 5.0
        run.target = 5.0
        assert ended(run).stop_reason == "target reached"
    assert (run.target, run.target_loss) == (5.0, 5.0)
