"""Models in parts on workers of a real Dask cluster: the same bits wherever parts are, and whatever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from relaqs import ArgumentError, Session, connect
from relaqs.executors.dask import DaskExecutor
from relaqs.executors.slot_desk import slot_name
from relaqs.policies.registry import PolicyError
from relaqs.training import ModelParts, TorchModule, TrainingRun
from relaqs.training.elastic.membership import RESIDENTS
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, running_cluster
from tests.relaqs.training.gangs import gang

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow  # each worker imports torch

SQL = "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits"
DEEP = TorchModule(
    SQL,
    "y",
    "tests.relaqs.training.torch_modules:deep",
    start_rows=32,
    first_rate=0.02,
    passes_most=2,
    held_out=0.3,
    tolerance=0.0,
    patience_passes=10**6,
)
ENDLESS = replace(DEEP, passes_most=10**6)
BATCH_ROWS = 96  # three pieces
WORKERS = 2


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    log = tmp_path_factory.mktemp("parts") / "scheduler.log"
    with running_cluster(log, workers=WORKERS) as address, Client(address, set_as_default=False) as client:
        yield client


@pytest.fixture
def db(client: Client, training_warehouse: Path) -> Iterator[Session]:
    client.wait_for_workers(WORKERS, timeout=LONG_SECONDS)
    with connect(training_warehouse, cluster=client) as session:
        yield session
    eventually(lambda: set(client.run(parts_held).values()) == {0})


@pytest.fixture(scope="module")
def whole(training_warehouse: Path) -> dict[str, Any]:
    """The numbers of the model that is not cut."""
    with connect(training_warehouse, threads=1) as db:
        return numbers(db.train(DEEP, batch=BATCH_ROWS))


def parts_held() -> int:
    return len(RESIDENTS)


def numbers(run: TrainingRun) -> dict[str, Any]:
    found: dict[str, Any] = run.result(timeout=LONG_SECONDS).state_dict()
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def workers_of(run: TrainingRun) -> list[str]:
    return [part.worker for part in run.placement]


def as_in_one_piece(run: TrainingRun, warehouse: Path) -> bool:
    """Whether a run that was stopped has the numbers that the model has in one piece after as many steps."""
    assert run.journal is not None
    with connect(warehouse, threads=1) as db:
        again = db.train(ENDLESS, batch=run.journal)
        found = numbers(again)
        passes = len(run.steps)
        return same(run.latest.state_dict(), found) and again.losses[:passes] == run.losses


def test_stages_and_replicas_on_workers_change_no_bit(db: Session, whole: dict[str, Any]) -> None:
    run = db.train(DEEP, batch=BATCH_ROWS, parts=ModelParts(2, replicas=2))
    assert same(numbers(run), whole)
    assert [(part.stage, part.replica) for part in run.placement] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({*workers_of(run)}) > 1
    assert set(run.journal.ranks) == {2}


def test_parts_go_where_they_are_put_and_are_moved(
    db: Session, client: Client, training_warehouse: Path
) -> None:
    one, two = sorted(client.scheduler_info(n_workers=-1)["workers"])
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=ModelParts(2, placed={(0, 0): one, (1, 0): two})) as run:
        eventually(lambda: run.steps)
        assert workers_of(run) == [one, two]
        assert {job.workers for job in db.status().jobs} == {(one, two)}
        run.move(1, 0, one)
        eventually(lambda: workers_of(run) == [one, one])
        passes = len(run.steps)
        eventually(lambda: len(run.steps) > passes)
        run.move(0, 0, two)
        eventually(lambda: workers_of(run) == [two, one])
        with pytest.raises(ArgumentError, match="there is no part of stage 2 and replica 0; the stag"):
            run.move(2, 0, one)
        with pytest.raises(ArgumentError, match=r"worker is 'nowhere'; the workers are tcp://"):
            run.move(0, 0, "nowhere")
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_a_worker_that_is_killed_costs_no_bit(db: Session, client: Client, training_warehouse: Path) -> None:
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=3) as run:
        eventually(lambda: run.steps)
        process, victim = client.run(os.getpid), workers_of(run)[0]
        os.kill(process[victim], signal.SIGKILL)
        eventually(lambda: victim not in workers_of(run))
        passes = len(run.steps)
        eventually(lambda: len(run.steps) > passes)
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_all_workers_are_killed_at_once(db: Session, client: Client, training_warehouse: Path) -> None:
    with db.train(ENDLESS, batch=BATCH_ROWS, parts=ModelParts(2, replicas=3)) as run:
        eventually(lambda: run.steps)
        for process in client.run(os.getpid).values():
            os.kill(process, signal.SIGKILL)
        passes = len(run.steps)
        eventually(lambda: len(run.steps) > passes)
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)


def test_a_module_that_workers_lack_is_named(
    db: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("from torch import nn", "def net():", "    return nn.Sequential(nn.Linear(64, 10))")
    (tmp_path / "only_here.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    run = db.train(replace(DEEP, module="only_here:net"), parts=1)
    with pytest.raises(ArgumentError, match="module is 'only_here:net', which cannot be imported here"):
        run.result(timeout=LONG_SECONDS)


def test_two_runs_in_parts_and_a_query_share_the_workers(
    db: Session, client: Client, whole: dict[str, Any]
) -> None:
    """Both have parts on the same workers, so neither may hold one and wait for the other."""
    one, two = sorted(client.scheduler_info(n_workers=-1)["workers"])
    placed = {(0, 0): one, (1, 0): two}
    back = {(0, 0): two, (1, 0): one}
    runs = [db.train(DEEP, batch=BATCH_ROWS, parts=ModelParts(2, placed=each)) for each in (placed, back)]
    answer = db.online_sql("SELECT y, avg(x20) FROM digits GROUP BY y").result(timeout=LONG_SECONDS)
    assert answer.is_exact
    assert all(same(numbers(run), whole) for run in runs)


def test_runs_are_placed_beside_each_other(db: Session, training_warehouse: Path) -> None:
    """A policy sees the parts of all runs: two are on two workers, and the room of one that ends is taken."""
    runs = list[TrainingRun]()
    for _ in range(3):
        runs.append(run := db.train(ENDLESS, batch=BATCH_ROWS, parts=1))
        eventually(lambda run=run: run.steps)
    where = [workers_of(run)[0] for run in runs]
    assert where[0] != where[1]
    alone = next(run for run, worker in zip(runs, where, strict=True) if where.count(worker) == 1)
    alone.stop()
    left = [run for run in runs if run is not alone]
    eventually(lambda: workers_of(left[0]) != workers_of(left[1]))
    for run in left:
        passes = len(run.steps)
        eventually(lambda run=run, passes=passes: len(run.steps) > passes)
        run.stop()
    assert all(run.wait(LONG_SECONDS) for run in runs)
    assert all(as_in_one_piece(run, training_warehouse) for run in runs)


def test_what_is_placed_wrongly_is_said_at_once(db: Session) -> None:
    with pytest.raises(PolicyError, match="there is no placed policy 'mlf_j'; did you mean 'mlf_h'"):
        db.train(DEEP, parts=ModelParts(2, placed="mlf_j"))
    with pytest.raises(ArgumentError, match=r"placed has no worker for \(1, 0\); name one"):
        db.train(DEEP, parts=ModelParts(2, placed={(0, 0): "tcp://somewhere:1"}))
    with pytest.raises(ArgumentError, match=r"part \(0, 0\) on 'tcp://somewhere:1'; the workers are tcp://"):
        db.train(DEEP, parts=ModelParts(1, placed={(0, 0): "tcp://somewhere:1"}))


def test_parts_that_wait_for_a_gang_say_so_and_can_be_moved(
    db: Session, client: Client, training_warehouse: Path
) -> None:
    one, two = sorted(client.scheduler_info(n_workers=-1)["workers"])
    with closing(DaskExecutor(client)) as executor:
        other = gang(executor, "keeps-a-slot", (slot_name(one, 0),))
        other.start()
        eventually(lambda: other.step)
        placed = ModelParts(2, placed={(0, 0): one, (1, 0): two})
        with db.train(ENDLESS, batch=BATCH_ROWS, parts=placed) as run:
            eventually(lambda: f"waits for: the slots {slot_name(one, 0)}, " in run.explain())
            assert not run.steps
            run.move(0, 0, two)
            eventually(lambda: run.steps)
            assert workers_of(run) == [two, two]
            assert run.explain().splitlines()[0] == f"parameters: in 2 parts, on {two}"
        other.stop()
        other.wait()
    assert run.wait(LONG_SECONDS)
    assert as_in_one_piece(run, training_warehouse)
