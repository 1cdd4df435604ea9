"""Gangs on a real cluster: turns, changes while they run, and the same bits whatever the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.training.elastic import turn_job
from relaqs.training.elastic.course import Change
from relaqs.training.elastic.turn_job import Wish
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, running_cluster
from tests.relaqs.executors.toy_jobs import counting_job
from tests.relaqs.training.gangs import gang, gang_of, same_bits
from tests.relaqs.training.lessons import MadeUpRecipe, Regression


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskExecutor]:
    log = tmp_path_factory.mktemp("turns") / "scheduler.log"
    with running_cluster(log, workers=4) as address, closing(DaskExecutor(address)) as executor:
        yield executor


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_gives_the_same_bits(executor: DaskExecutor, ranks: int) -> None:
    job = gang(executor, f"fixed-{ranks}", Wish(executor.slots()[:ranks], 224), 60)
    job.start()
    assert job.wait(LONG_SECONDS)
    assert job.step == 60
    assert job.losses[-1] < job.losses[0] / 10
    assert list(job.journal.changes()) == [Change(0, 224, ranks)]
    assert same_bits(job)


def test_ranks_come_and_go_while_it_trains(executor: DaskExecutor) -> None:
    slots = executor.slots()
    job = gang(executor, "rescaled", Wish(slots[:1], 64))
    job.start()
    eventually(lambda: job.rescales)
    for ranks, batch_rows in ((2, 128), (4, 256), (1, 64)):
        job.resize(Wish(slots[:ranks], batch_rows))
        eventually(lambda ranks=ranks: job.rescales[-1].ranks == ranks)
    job.end_at(job.step + 20)
    assert job.wait(LONG_SECONDS)
    assert [(each.ranks, each.batch_rows) for each in job.rescales] == [(1, 64), (2, 128), (4, 256), (1, 64)]
    assert all(each.pause_seconds is not None for each in job.rescales[1:])
    assert same_bits(job)


def test_a_new_rank_does_not_wait_for_the_end_of_a_turn(
    executor: DaskExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn then ends at the end of a pass alone, which has 25 steps."""
    slots = executor.slots()
    job = gang_of(MadeUpRecipe(Regression(piece_seconds=0.05)), executor, "joined", Wish(slots[:1], 64))
    job.start()
    eventually(lambda: job.step)
    monkeypatch.setattr(turn_job, "TURN_SECONDS", LONG_SECONDS)
    since = job.step
    eventually(lambda: job.step > since)
    job.resize(Wish(slots[:2], 64))
    eventually(lambda: len(job.rescales) == 2)
    job.stop()
    assert job.wait(LONG_SECONDS)
    assert job.rescales[1].step % 25


def test_a_gang_moves_to_other_slots(executor: DaskExecutor) -> None:
    """No rank of the new slots knows the state, so the last one that does takes part for a turn."""
    slots = executor.slots()
    job = gang(executor, "moved", Wish(slots[:1], 64))
    job.start()
    eventually(lambda: job.step)
    job.resize(Wish(slots[2:], 64))
    eventually(lambda: len(job.rescales) == 3)
    job.end_at(job.step + 20)
    assert job.wait(LONG_SECONDS)
    assert [each.ranks for each in job.rescales] == [1, 2, 2]
    assert same_bits(job)


def test_a_job_of_tasks_beside_a_gang_keeps_its_share(executor: DaskExecutor) -> None:
    """Both may use all four cores. Turns of the gang wait while the other job is further behind."""
    job = gang(executor, "beside", Wish(executor.slots(), 224))
    job.start()
    eventually(lambda: job.step)
    runner = JobRunner(counting_job("tasks", steps=12, tasks=16, core_seconds=0.02), executor)
    runner.start()
    assert runner.wait(LONG_SECONDS)  # it would wait for ever behind a gang that takes every turn
    assert runner.state is RunState.EXACT
    since = job.step
    eventually(lambda: job.step > since)
    job.stop()
    assert job.wait(LONG_SECONDS)
