"""Gangs on a real cluster: turns, changes while they run, and the same bits whatever the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.training.elastic import gang_carrier
from relaqs.training.elastic.course import Change, FixedBatch
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, running_cluster
from tests.relaqs.executors.toy_jobs import counting_job
from tests.relaqs.training.gangs import GROWING, LoneGang, gang, same_bits
from tests.relaqs.training.lessons import MadeUpRecipe, Regression, course_of, loss_of


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskExecutor]:
    log = tmp_path_factory.mktemp("turns") / "scheduler.log"
    with running_cluster(log, workers=4) as address, closing(DaskExecutor(address)) as executor:
        yield executor


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_gives_the_same_bits(executor: DaskExecutor, ranks: int) -> None:
    job = gang(executor, f"fixed-{ranks}", executor.slots()[:ranks], FixedBatch(224))
    job.start()
    eventually(lambda: job.step >= 60)
    job.finish()
    assert list(job.journal.changes()) == [Change(0, 224, ranks)]
    assert loss_of(course_of(job._made.kept)) < loss_of(MadeUpRecipe().lesson().first) / 10
    assert same_bits(job)


def test_ranks_come_and_go_while_it_trains(executor: DaskExecutor) -> None:
    slots = executor.slots()
    job = gang(executor, "rescaled", slots[:1], GROWING)
    job.start()
    eventually(lambda: job.rescales)
    for ranks, batch_rows in ((2, 64), (4, 256), (1, 256)):
        job.offered(slots[:ranks])
        eventually(lambda ranks=ranks: job.rescales[-1].ranks == ranks)
        eventually(lambda batch_rows=batch_rows: (job.batch_rows or 0) >= batch_rows)
    job.finish()
    assert [each.ranks for each in job.rescales] == [1, 2, 4, 1]
    rows = job.journal.batch_rows
    assert set(rows) == {32, 64, 128, 256}
    assert {1, 4} <= set(job.journal.ranks[rows == 256])
    assert all(each.pause_seconds is not None for each in job.rescales[1:])
    assert same_bits(job)


def test_a_new_rank_does_not_wait_for_the_end_of_a_turn(
    executor: DaskExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn then ends at the end of a pass alone, which has 25 steps."""
    slots = executor.slots()
    job = LoneGang(MadeUpRecipe(Regression(piece_seconds=0.05)), executor, "joined", slots[:1])
    job.start()
    eventually(lambda: job.step)
    monkeypatch.setattr(gang_carrier, "TURN_SECONDS", LONG_SECONDS)
    since = job.step
    eventually(lambda: job.step > since)
    job.offered(slots[:2])
    eventually(lambda: len(job.rescales) == 2)
    job.stop()
    job.wait()
    assert job.rescales[1].step % 25


def test_a_gang_moves_to_other_slots(executor: DaskExecutor) -> None:
    """No rank of the new slots knows the state, so the last one that does takes part for a turn."""
    slots = executor.slots()
    job = gang(executor, "moved", slots[:1])
    job.start()
    eventually(lambda: job.step)
    job.offered(slots[2:])
    eventually(lambda: len(job.rescales) == 3)
    job.finish()
    assert [each.ranks for each in job.rescales] == [1, 2, 2]
    assert same_bits(job)


def test_a_job_of_tasks_beside_a_gang_keeps_its_share(executor: DaskExecutor) -> None:
    """Both may use all four cores. Turns of the gang wait while the other job is further behind."""
    job = gang(executor, "beside", executor.slots(), FixedBatch(224))
    job.start()
    eventually(lambda: job.step)
    runner = JobRunner(counting_job("tasks", steps=12, tasks=16, core_seconds=0.02), executor)
    runner.start()
    assert runner.wait(LONG_SECONDS)  # it would wait for ever behind a gang that takes every turn
    assert runner.state is RunState.EXACT
    since = job.step
    eventually(lambda: job.step > since)
    job.stop()
    job.wait()
