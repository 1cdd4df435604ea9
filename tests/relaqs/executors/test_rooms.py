"""On a real cluster: a user's cores are a wall, and long wholes keep nobody waiting."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from queue import SimpleQueue

import pytest

from relaqs.executors.dask import DaskExecutor
from relaqs.executors.places import OVERDUE_SECONDS, Held, Need, Places
from relaqs.jobs.job import JobDescription, Task, TaskKey, TaskResult
from relaqs.sharing.view import Kind
from tests.relaqs.executors.clusters import LONG_SECONDS, running_cluster
from tests.relaqs.executors.toy_jobs import Niceness, Times

LONG, SHORT, PART = 9.0, 0.001, None  # what tasks are predicted to take: of wholes, and of no whole
NO_VALIDATION = {  # it takes for granted that a task never waits while a worker has nothing to do
    "DASK_DISTRIBUTED__SCHEDULER__VALIDATE": "False"
}


@pytest.fixture(scope="module")
def cluster_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], str]]:
    """Give the address of a cluster of so many workers. Tests that need equally many have the same."""
    with ExitStack() as stack:

        @cache
        def address(workers: int) -> str:
            log = tmp_path_factory.mktemp("rooms") / "log"
            return stack.enter_context(
                running_cluster(log, workers=workers, nannies=False, settings=NO_VALIDATION)
            )

        yield address


@contextmanager
def executors(address: str) -> Iterator[tuple[DaskExecutor, DaskExecutor]]:
    """Give two clients of one cluster."""
    with closing(DaskExecutor(address)) as one, closing(DaskExecutor(address)) as other:
        yield one, other


class Asked:
    """Tasks of one user, each of a job of its own, and from when to when they ran."""

    def __init__(self, executor: DaskExecutor, user: str, cores_most: float = math.inf) -> None:
        self._executor = executor
        self._user = user
        self._cores_most = cores_most
        self._results = SimpleQueue[TaskResult]()
        self._count = 0

    def ask(self, seconds: float, whole_seconds: float | None) -> None:
        job = f"{self._user}-{self._count}"
        self._count += 1
        kind = Kind.QUERY if whole_seconds is None else Kind.EXACT
        self._executor.enter(JobDescription(job, kind, user=self._user, user_cores_most=self._cores_most))
        self._executor.submit(
            [Task(TaskKey(job, 0, 0), Times(seconds), whole_seconds=whole_seconds)], self._results.put
        )

    def times(self, count: int) -> list[tuple[float, float]]:
        """Return when the next tasks to end ran. Their jobs leave."""
        return [(began, ended) for began, ended, _ in self.ran(count)]

    def ran(self, count: int) -> list[tuple[float, float, int]]:
        """Return when the next tasks to end ran, and in which process. Their jobs leave."""
        found = []
        for _ in range(count):
            result = self._results.get(timeout=LONG_SECONDS)
            assert result.error is None
            assert isinstance(result.value, tuple)
            self._executor.cancel(result.key.job)
            found.append(result.value)
        return found


def most_at_once(times: list[tuple[float, float]]) -> int:
    return max(sum(began <= moment < ended for began, ended in times) for moment, _ in times)


@pytest.mark.parametrize("whole_seconds", [LONG, SHORT, PART])
def test_a_user_has_no_more_cores_of_a_cluster_than_allowed(
    cluster_of: Callable[[int], str], whole_seconds: float | None
) -> None:
    with executors(cluster_of(3)) as (one, other):
        eves = [Asked(one, "eve", 1.0), Asked(other, "eve", 1.0)]  # by two programs
        for _ in range(3):
            for eve in eves:
                eve.ask(0.3, whole_seconds)
        assert most_at_once([*eves[0].times(3), *eves[1].times(3)]) == 1
        ben = Asked(one, "ben", 2.0)
        for _ in range(4):
            ben.ask(0.5, whole_seconds)
        assert most_at_once(ben.times(4)) == 2


def test_long_wholes_of_a_user_leave_a_worker_to_others(cluster_of: Callable[[int], str]) -> None:
    with executors(cluster_of(2)) as (one, other):
        eve, bob = Asked(one, "eve"), Asked(other, "bob")
        for _ in range(3):
            eve.ask(1.5, LONG)
        took = waits_of(bob, SHORT, 6)
        times = eve.times(3)
        assert most_at_once(times) == 1
        assert max(took) < 1.0  # of a task of eve 1.5 s are left, or the next one's


@pytest.mark.parametrize("whole_seconds", [SHORT, PART])
def test_a_short_task_starts_beside_long_wholes_of_all_workers(
    cluster_of: Callable[[int], str], whole_seconds: float | None
) -> None:
    with executors(cluster_of(2)) as (one, other):
        holders = [Asked(one, user) for user in ("eve", "dan")]
        for holder in holders:
            holder.ask(4.0, LONG)
        time.sleep(0.5)
        took = waits_of(Asked(other, "ann"), whole_seconds, 5)
        assert max(took) < 1.0
        assert most_at_once([time for holder in holders for time in holder.times(1)]) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has a priority for each thread")
def test_what_takes_long_has_less_weight_on_its_worker_and_nothing_that_runs_there_later(
    cluster_of: Callable[[int], str],
) -> None:
    results = SimpleQueue[TaskResult]()
    with executors(cluster_of(1)) as (one, _):
        for number, (whole_seconds, seconds, is_less) in enumerate(
            [
                (PART, 0.0, 0),
                (LONG, 0.3, 1),
                (SHORT, 0.0, 0),
                (SHORT, OVERDUE_SECONDS + 0.5, 1),
                (PART, 0.0, 0),
            ]
        ):
            one.enter(JobDescription(f"j{number}", Kind.EXACT))
            task = Task(TaskKey(f"j{number}", 0, 0), Niceness(seconds), whole_seconds=whole_seconds)
            one.submit([task], results.put)
            result = results.get(timeout=LONG_SECONDS)
            assert result.error is None
            assert (result.value > 0) == is_less, number
            one.cancel(f"j{number}")


@pytest.mark.parametrize("whole_seconds", [SHORT, PART])
def test_a_short_task_starts_beside_a_long_whole_and_not_behind_what_runs_elsewhere(
    cluster_of: Callable[[int], str], whole_seconds: float | None
) -> None:
    with executors(cluster_of(2)) as (one, other):
        holders = [Asked(one, user) for user in ("eve", "dan")]
        for holder, kind in zip(holders, [LONG, PART], strict=True):
            holder.ask(4.0, kind)
            time.sleep(0.5)
        assert max(waits_of(Asked(other, "ann"), whole_seconds, 3)) < 1.0
        assert most_at_once([time for holder in holders for time in holder.times(1)]) == 2


@pytest.mark.parametrize("whole_seconds", [SHORT, PART])
def test_a_long_whole_shares_no_core_for_its_whole_life_where_another_one_will_be_free(
    cluster_of: Callable[[int], str], whole_seconds: float | None
) -> None:
    with executors(cluster_of(2)) as (one, other):
        dan, xen, bob = Asked(one, "dan"), Asked(one, "xen"), Asked(other, "bob")
        dan.ask(3.0, LONG)
        time.sleep(0.5)
        xen.ask(0.5, whole_seconds)
        time.sleep(0.2)
        bob.ask(1.0, LONG)
        process_of = {asked: asked.ran(1)[0][2] for asked in (xen, bob, dan)}
        assert process_of[bob] == process_of[xen] != process_of[dan]


def waits_of(asked: Asked, whole_seconds: float | None, count: int) -> list[float]:
    """Return how long a user waits for each of some short tasks, one asked for after the other."""
    took = []
    for _ in range(count):
        began_seconds = time.monotonic()
        asked.ask(0.0, whole_seconds)
        asked.times(1)
        took.append(time.monotonic() - began_seconds)
    return took


@pytest.mark.slow
def test_beside_a_long_whole_of_another_user_a_light_question_starts() -> None:
    eve, bob = Need("e", "eve", whole_seconds=9.0), Need("b", "bob", whole_seconds=0.001, is_light=True)
    places = Places(2, [Held(eve, 0.0)], now_seconds=0.01)
    assert (places.may_start(eve), places.may_start(bob)) == (False, True)
    places = Places(2, [Held(eve, 0.0), Held(bob, 0.01)], now_seconds=0.015)
    assert (places.has_usual, places.may_start(Need("a", "ann")), places.spare_at_seconds) == (
        False,
        False,
        0.02,
    )
