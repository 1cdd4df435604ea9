"""Fair shares: whatever tasks cost, jobs get core-seconds in proportion to their weights."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.executors.fair import FairQueue, FairStarts
from relaqs.executors.shares import CREDIT_CORE_SECONDS


def serve(queue: FairQueue[float], until_core_seconds: float) -> Counter[str]:
    """Return the core-seconds each job got of one core. Items are their own costs."""
    used: Counter[str] = Counter()
    while used.total() < until_core_seconds and (turn := queue.pop()) is not None:
        queue.settle(turn, turn.item)
        used[turn.job] += turn.item
    return used


costs = st.lists(st.floats(0.001, 0.3), min_size=1, max_size=8)


@given(costs, costs, st.sampled_from([0.1, 1.0, 3.0, 10.0]))
def test_shares_follow_the_weights(first: list[float], second: list[float], weight: float) -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("first", weight)
    queue.add("first", first * 3000)
    queue.enter("second", 1.0)
    queue.add("second", second * 3000)
    used = serve(queue, until_core_seconds=2.0)
    # One job is served while its virtual time is least, so they never part by more than the largest task.
    assert used["first"] / weight == pytest.approx(used["second"], abs=0.3 + 0.3 / weight)


def test_items_of_a_job_keep_their_order() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("job", 1.0)
    queue.add("job", [1, 2])
    queue.enter("job", 1.0)
    queue.add("job", [3])
    turns = [queue.pop(), queue.pop(), queue.pop(), queue.pop()]
    assert [turn.item for turn in turns if turn is not None] == [1, 2, 3]
    assert turns[3] is None


def test_tasks_that_start_together_spread_over_the_jobs() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("a", 1.0)
    queue.add("a", range(4))
    queue.enter("b", 1.0)
    queue.add("b", range(4))
    turns = [queue.pop() for _ in range(4)]  # four cores, nothing measured yet
    assert Counter(turn.job for turn in turns if turn is not None) == {"a": 2, "b": 2}


def test_a_new_job_owes_nothing_and_is_owed_nothing() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("old", 1.0)
    queue.add("old", [0.1] * 200)
    serve(queue, until_core_seconds=10.0)
    queue.enter("new", 1.0)
    queue.add("new", [0.1] * 200)
    used = serve(queue, until_core_seconds=4.0)
    assert used["new"] == pytest.approx(2.0, abs=0.2)


def test_a_job_that_comes_back_has_a_bounded_credit() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("guest", 1.0)
    queue.add("guest", [0.1])
    serve(queue, until_core_seconds=0.1)
    queue.enter("busy", 1.0)
    queue.add("busy", [0.1] * 400)
    serve(queue, until_core_seconds=10.0)
    queue.enter("guest", 1.0)
    queue.add("guest", [0.1] * 400)
    used = serve(queue, until_core_seconds=4.0)
    assert used["guest"] == pytest.approx(2.0 + CREDIT_CORE_SECONDS / 2, abs=0.15)


def test_a_new_weight_counts_from_the_next_task() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("a", 1.0)
    queue.add("a", [0.05] * 400)
    queue.enter("b", 1.0)
    queue.add("b", [0.05] * 400)
    serve(queue, until_core_seconds=4.0)
    queue.set_shares({"a": 4.0})
    assert serve(queue, until_core_seconds=5.0)["a"] == pytest.approx(4.0, abs=0.2)


def test_a_dropped_job_is_forgotten_even_while_a_task_of_it_runs() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("job", 1.0)
    queue.add("job", [1, 2])
    turn = queue.pop()
    queue.drop("job")
    assert turn is not None
    queue.settle(turn, 1.0)
    assert queue.pop() is None
    assert queue.jobs() == []


class Cluster:
    """A simulated cluster: of the tasks that clients sent ahead, the earliest start gets the next core.

    clients: for each its jobs: (weight, tasks a step, core-seconds a task). Two steps a job are in flight.
    speed: core-seconds that a core gives a second: other users take the rest.
    """

    def __init__(
        self, clients: list[dict[str, tuple[float, int, float]]], *, cores: int, speed: float, guess: int
    ) -> None:
        self.clients = clients
        self.cores = cores
        self.speed = speed
        self.now_seconds = 1000.0
        self.used: Counter[str] = Counter()
        self._plans = [FairStarts(guess) for _ in clients]
        self._waiting: list[tuple[float, int, int, str]] = []
        self._running: list[tuple[float, int, int, str]] = []
        self._returned: Counter[str] = Counter()
        self._sent = 0

    def run(self, seconds: float) -> Counter[str]:
        """Return the core-seconds that each job got."""
        end = self.now_seconds + seconds
        for client, jobs in enumerate(self.clients):
            for job in jobs:
                self._send_step(client, job)
                self._send_step(client, job)
        while self.now_seconds < end:
            self._fill_cores()
            self._finish_one()
        return self.used

    def _send_step(self, client: int, job: str) -> None:
        weight, tasks, _ = self.clients[client][job]
        for start in self._plans[client].plan(job, weight, tasks, self.now_seconds):
            self._sent += 1
            heapq.heappush(self._waiting, (start, self._sent, client, job))

    def _fill_cores(self) -> None:
        while self._waiting and len(self._running) < self.cores:
            _, number, client, job = heapq.heappop(self._waiting)
            ends = self.now_seconds + self.clients[client][job][2] / self.speed
            heapq.heappush(self._running, (ends, number, client, job))

    def _finish_one(self) -> None:
        self.now_seconds, _, client, job = heapq.heappop(self._running)
        _, tasks, core_seconds = self.clients[client][job]
        self.used[job] += core_seconds
        self._plans[client].settle(job, core_seconds, self.now_seconds)
        self._returned[job] += 1
        if self._returned[job] % tasks == 0:
            self._send_step(client, job)


@pytest.mark.parametrize("speed", [1.0, 0.2])
@pytest.mark.parametrize("guess", [1, 100])
@pytest.mark.parametrize("tasks", [8, 40])
def test_tasks_sent_ahead_share_by_weight_at_any_pace(speed: float, guess: int, tasks: int) -> None:
    jobs = {"heavy": (3.0, tasks, 0.05), "light": (1.0, 8, 0.02)}
    used = Cluster([jobs], cores=4, speed=speed, guess=guess).run(60 / speed)
    assert used["heavy"] / used.total() == pytest.approx(0.75, abs=0.05)


def test_no_job_starves_beside_a_greedier_client_that_came_first() -> None:
    clients = [{"greedy": (1.0, 200, 0.05)}, {"modest": (1.0, 8, 0.05)}]
    used = Cluster(clients, cores=2, speed=1.0, guess=2).run(120)
    assert used["modest"] / used.total() > 0.1  # first come, first served would give 8 of 208


def test_a_changed_weight_counts_for_tasks_planned_later() -> None:
    starts = FairStarts(1)
    assert starts.plan("a", 1.0, 2, 0.0) == pytest.approx([0.0, 0.05])
    starts.plan("b", 1.0, 1, 0.0)
    starts.set_weight("b", 3.0)
    assert starts.plan("a", 1.0, 1, 0.0) == pytest.approx([2 * 0.05 * 4])
    starts.drop("b")
    starts.settle("b", 0.05, 1.0)  # of a task that ran when its job was dropped
    assert starts.plan("b", 1.0, 1, 1.0) == [1.0]
