"""`Session.train` on a Dask cluster: gangs over a real table, and a slot policy that decides as they run."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import relaqs.executors.dask.plugin as plugin
import relaqs.training.elastic.gang_carrier as gang_carrier
from relaqs import ArgumentError, ClusterError, Session, connect
from relaqs.cli import program
from relaqs.jobs import checkpoint
from relaqs.scheduling.desk import Allocator
from relaqs.sharing.gangs import SlotPlan, SlotView
from relaqs.training import MiniBatchLinear, TorchModule, TrainingRun, replay
from relaqs.training.elastic.gang_carrier import GangCarrier
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually

SQL = "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits"
JOB = MiniBatchLinear(SQL, "y", first_rate=0.1, start_rows=16, passes_most=4, held_out=0.3)
ENDLESS = MiniBatchLinear(SQL, "y", first_rate=0.05, start_rows=16, tolerance=0.0, patience_passes=10**6)
BATCH_ROWS = 128  # eight pieces


class Failing:
    name = "failing"

    def plan(self, view: SlotView) -> SlotPlan:
        raise ZeroDivisionError("no idea")


@pytest.fixture(autouse=True)
def gangs_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are small, so tasks would make all steps."""
    monkeypatch.setattr(gang_carrier, "LEAST_PASS_SECONDS", 0.0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def db(client: Client, training_warehouse: Path) -> Iterator[Session]:
    with connect(training_warehouse, cluster=client, slot_policy="equal_slots") as session:
        yield session


@pytest.fixture(scope="module")
def embedded(training_warehouse: Path) -> np.ndarray:
    with connect(training_warehouse, threads=1) as db:
        return db.train(JOB, batch=BATCH_ROWS).result().coef_


def has_ranks(run: TrainingRun, count: int) -> None:
    eventually(lambda: run.ranks == count and run.rescales and run.rescales[-1].ranks == count)


def test_a_gang_gives_the_bits_of_threads_and_tells_of_itself(
    db: Session, training_warehouse: Path, embedded: np.ndarray
) -> None:
    run = db.train(JOB, batch=BATCH_ROWS)
    assert (run.result(timeout=LONG_SECONDS).coef_ == embedded).all()
    assert run.state == "converged"
    assert run.batch_rows == BATCH_ROWS
    assert set(run.journal.ranks) == {2}
    assert [(each.ranks, each.batch_rows) for each in run.rescales] == [(2, BATCH_ROWS)]
    assert len(run.steps) == 4
    assert run.steps[-1].accuracy > 0.8
    with connect(training_warehouse, threads=1) as threads:
        assert (replay(run.journal, JOB, threads).coef_ == embedded).all()


def test_two_gangs_divide_the_slots_and_one_gets_them_back(db: Session, client: Client) -> None:
    with db.train(ENDLESS, batch=BATCH_ROWS) as first:
        has_ranks(first, 2)
        with db.train(ENDLESS, batch=BATCH_ROWS) as second:
            has_ranks(second, 1)
            has_ranks(first, 1)
            eventually(lambda: {job.slots for job in db.status().jobs} == {1})
        assert second.wait(LONG_SECONDS)
        has_ranks(first, 2)
        eventually(lambda: [(job.slots, job.batch_rows) for job in db.status().jobs] == [(2, BATCH_ROWS)])
        assert db.status().slot_policy == "equal_slots"
        eventually(lambda: db.status().jobs[0].rescales >= 2)
        words = ["cluster", "status", client.scheduler.address]
        shown = CliRunner().invoke(program, words, env={"COLUMNS": "220"}).output
        assert "slots by equal_slots" in shown
        assert re.search(r"slots +batch +rescales", shown)
        assert re.search(rf" 2 +{BATCH_ROWS} +[2-9] ", shown)
    assert first.wait(LONG_SECONDS)
    assert all(each.pause_seconds is not None for each in first.rescales[1:])


def test_a_slot_that_is_let_go_is_offered_before_the_next_plan(
    db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "EPOCH_SECONDS", 3600.0)
    monkeypatch.setattr(Allocator, "is_due", lambda accounts, now_seconds, cores: False)
    with db.train(ENDLESS, batch=BATCH_ROWS) as first:
        has_ranks(first, 2)
        with db.train(ENDLESS, batch=BATCH_ROWS) as second:  # it is planned for when it comes
            has_ranks(second, 1)
        assert second.wait(LONG_SECONDS)
    assert first.wait(LONG_SECONDS)


def test_steps_made_ahead_of_the_last_pass_are_dropped(db: Session) -> None:
    run = db.train(JOB, batch=BATCH_ROWS)
    run.result(timeout=LONG_SECONDS)
    passes = replace(JOB, passes_most=2)
    shorter = db.train(passes, batch=BATCH_ROWS)
    shorter.result(timeout=LONG_SECONDS)
    assert len(shorter.journal) * 2 == len(run.journal)
    stopped = db.train(JOB, batch=BATCH_ROWS, max_steps=2)
    assert (stopped.result(timeout=LONG_SECONDS).coef_ == shorter.latest.coef_).all()
    assert len(stopped.journal) == len(shorter.journal)


def test_a_gang_that_fails_between_two_passes_ends_its_run(db: Session) -> None:
    run = db.train(ENDLESS, batch=BATCH_ROWS)
    has_ranks(run, 2)
    carrier = run.runner._executor
    assert isinstance(carrier, GangCarrier)
    run.pause()
    eventually(lambda: carrier._wanted is None)
    carrier._post(lambda: carrier._fail(ZeroDivisionError("between two passes")))
    assert carrier.ends(LONG_SECONDS)
    run.resume()
    with pytest.raises(ZeroDivisionError, match="between two passes"):
        run.result(timeout=LONG_SECONDS)


def test_a_paused_gang_gives_its_slots_up_and_goes_on_where_it_was(db: Session, embedded: np.ndarray) -> None:
    run = db.train(JOB, batch=BATCH_ROWS)
    eventually(lambda: run.rescales)
    run.pause()
    eventually(lambda: run.runner.state.is_over or db.status().jobs[0].slots == 0)
    run.resume()
    assert (run.result(timeout=LONG_SECONDS).coef_ == embedded).all()


def test_a_worker_that_dies_costs_no_bit(db: Session, client: Client, training_warehouse: Path) -> None:
    with db.train(ENDLESS, batch="elastic") as run:
        has_ranks(run, 2)  # a first step is a single piece, for one rank
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        has_ranks(run, 1)
        has_ranks(run, 2)  # its nanny has started it again
        passes = len(run.steps)
        eventually(lambda: len(run.steps) > passes)
    assert run.wait(LONG_SECONDS)
    assert len(set(run.journal.batch_rows)) > 1
    with connect(training_warehouse, threads=1) as threads:
        again = threads.train(ENDLESS, batch="elastic", max_steps=len(run.steps)).result()
    assert (run.latest.coef_ == again.coef_).all()


def test_a_slot_policy_that_fails_is_named_and_training_goes_on(
    client: Client, training_warehouse: Path, embedded: np.ndarray
) -> None:
    with connect(training_warehouse, cluster=client, slot_policy=Failing()) as db:
        with pytest.warns(RuntimeWarning, match=r"slot policy 'failing' failed \(ZeroDivisionError"):
            model = db.train(JOB, batch=BATCH_ROWS).result(timeout=LONG_SECONDS)
        assert (model.coef_ == embedded).all()


def test_a_gang_goes_on_from_its_checkpoint_also_without_a_cluster(
    db: Session,
    training_warehouse: Path,
    embedded: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state is kept at the end of each pass, since another gang and a single core begin there alike."""
    monkeypatch.setattr(checkpoint, "LARGEST_SHARE", 1e9)
    paths = [tmp_path / "gang.run", tmp_path / "alone.run"]
    run = db.train(JOB, batch=BATCH_ROWS, checkpoint=paths[0], checkpoint_seconds=1e-9)
    eventually(lambda: len(run.steps) >= 2)
    run.stop()
    assert run.wait(LONG_SECONDS)
    assert run.rescales, "a gang has made its passes"
    made = len(run.steps)
    shutil.copy(*paths)
    with connect(training_warehouse, threads=1) as threads:
        for session, path in zip((db, threads), paths, strict=True):
            again = session.resume(path)
            assert (again.result(timeout=LONG_SECONDS).coef_ == embedded).all()
            assert again.losses[: made - 1] == run.losses[: made - 1]
            assert len(again.steps) == 4
            assert again.journal.ranks[0] == 2, "its first step was made by the gang"
            assert again.steps[0] == run.steps[0], "its first pass took the seconds that the gang took"
            assert (replay(again.journal, JOB, threads).coef_ == embedded).all()


@pytest.mark.slow
def test_a_module_of_pytorch_has_the_same_bits_by_a_gang(db: Session, training_warehouse: Path) -> None:
    """It drops half of a layer at random, and normalises pieces."""
    pytest.importorskip("torch")
    job = TorchModule(
        SQL,
        "y",
        "tests.relaqs.training.torch_modules:random",
        start_rows=64,
        rows_most=256,
        passes_most=2,
        warm_up_steps=2,
        first_rate=0.02,
    )
    run = db.train(job, batch=256)
    found = run.result(timeout=LONG_SECONDS).state_dict()
    assert set(run.journal.ranks) == {2}
    with connect(training_warehouse, threads=1) as threads:
        wanted = threads.train(job, batch=256).result().state_dict()
    assert all((found[name] == wanted[name]).all() for name in wanted)


def test_short_passes_are_made_by_tasks(
    db: Session, embedded: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_carrier, "LEAST_PASS_SECONDS", 1e6)
    run = db.train(JOB, batch=BATCH_ROWS)
    assert (run.result(timeout=LONG_SECONDS).coef_ == embedded).all()
    assert run.rescales == ()


@pytest.mark.slow
def test_a_slot_policy_needs_a_cluster_and_one_name_holds(db: Session, training_warehouse: Path) -> None:
    with pytest.raises(ArgumentError, match="slot_policy is 'ones', but there is no cluster"):
        connect(training_warehouse, slot_policy="ones")
    with pytest.raises(ClusterError, match="has chosen the slot_policy 'equal_slots', this one asks for 'on"):
        connect(training_warehouse, cluster=db._executor._client, slot_policy="ones")
