"""What the plugin on a Dask scheduler is made of, without a cluster: queue, charges, contract, wishes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dask
import distributed.scheduler
import pytest
from distributed.collections import HeapSet
from hypothesis import given
from hypothesis import strategies as st

from relaqs.executors.dask.messages import CORE_SECONDS, FOREIGN, job_of
from relaqs.executors.dask.plugin import core_seconds_of
from relaqs.executors.dask.queue import KNOWN_RELEASE, JobQueue, broken_contract, broken_source, chosen_credit
from relaqs.executors.dask.task import Parcel, graph_of, key_of
from relaqs.executors.dask.workers import chosen_silence
from relaqs.jobs.job import TaskKey
from relaqs.policies import make_policy
from relaqs.scheduling.desk import Wishes
from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, Charges, FairShares
from relaqs.training.elastic.driver import PLACED

A, B = "relaqs-a", "relaqs-b"


@dataclass(eq=False)
class WaitingTask:
    """As much of Dask's TaskState as a queue sees."""

    key: Any
    priority: tuple[int, ...] = (0,)


def queue_of(shares: FairShares, abreast: int = 0) -> Any:  # of WaitingTask, which to mypy are no TaskState
    def account_of(key: object) -> str:
        name = job_of(key)
        return name if name in shares else FOREIGN

    return JobQueue(shares, account_of, lambda job: abreast if job == A else 0)


def opened(**shares: float) -> FairShares:
    accounts = FairShares()
    for job, share in shares.items():
        accounts.enter({"a": A, "b": B, "foreign": FOREIGN}[job], share)
    return accounts


def steps_of(job: str, count: int) -> list[WaitingTask]:
    return [WaitingTask((job, step, index)) for step in range(count) for index in range(2)]


def taken(queue: Any, shares: FairShares, count: int) -> Iterator[WaitingTask]:
    """Take tasks as Dask does, each for 0.05 core-seconds, and yield them."""
    for _ in range(count):
        task = queue.peek()
        queue.discard(task)
        job = job_of(task.key) or FOREIGN
        shares.settle(job, shares.start(job), 0.05)
        yield task


def test_jobs_take_turns_by_their_shares_each_in_the_order_of_its_steps() -> None:
    shares = opened(a=1.5, b=0.5)
    queue = queue_of(shares)
    for task in [*reversed(steps_of(A, 20)), *reversed(steps_of(B, 20))]:
        queue.add(task)
    keys = [task.key for task in taken(queue, shares, 40)]
    assert [key for key in keys if key[0] == A] == [task.key for task in steps_of(A, 15)]
    assert [key for key in keys if key[0] == B] == [task.key for task in steps_of(B, 5)]


def test_the_last_tasks_of_a_step_that_has_begun_go_on_where_a_job_is_abreast() -> None:
    shares = opened(a=1.0, b=1.0)
    queue = queue_of(shares, abreast=2)
    for task in [*(WaitingTask((A, 0, index)) for index in range(4)), *steps_of(B, 5)]:
        queue.add(task)
    order = [(task.key[0], queue.passes_by(task.key)) for task in taken(queue, shares, 8)]
    # In turn, while more than two tasks of A's step wait. Then both go on, and B has the turns it lost.
    assert order == [
        *((A, False), (B, False), (A, False), (A, True), (A, True)),
        *((B, False), (B, False), (B, False)),
    ]


def test_a_step_that_is_abreast_does_not_take_the_next_one_along() -> None:
    shares = opened(a=1.0, b=1.0)
    queue = queue_of(shares, abreast=2)
    for task in [*steps_of(A, 1), *steps_of(B, 1)]:
        queue.add(task)
    assert [task.key[0] for task in taken(queue, shares, 2)] == [A, A]
    for task in steps_of(A, 2)[2:]:
        queue.add(task)
    assert [task.key[:2] for task in taken(queue, shares, 4)] == [(B, 0), (B, 0), (A, 1), (A, 1)]


def test_a_new_share_counts_from_the_next_task() -> None:
    shares = opened(a=1.9, b=0.1)
    queue = queue_of(shares)
    for task in [*steps_of(A, 20), *steps_of(B, 20)]:
        queue.add(task)
    list(taken(queue, shares, 10))
    shares.set_shares({A: 0.0, B: 2.0})
    assert queue.peek().key[0] == B
    assert {task.key[0] for task in taken(queue, shares, 30)} == {B}
    for task in [task for task in queue if task.key[0] == B]:
        queue.discard(task)
    assert queue.peek().key[0] == A  # a core is not kept from a job because its share is nothing


def test_tasks_of_others_share_a_turn_in_the_order_of_dask() -> None:
    shares = opened(a=1.0, foreign=1.0)
    queue = queue_of(shares)
    foreign = [WaitingTask(f"sum-{number}", (0, -number)) for number in range(10)]
    for task in [*foreign, *steps_of(A, 5)]:
        queue.add(task)
    order = list(taken(queue, shares, 20))
    assert [task for task in order if task in foreign] == foreign[::-1]
    assert 4 <= sum(task in foreign for task in order[:10]) <= 6


def test_what_a_job_leaves_behind_is_foreign() -> None:
    shares = opened(a=1.0, foreign=1.0)
    queue = queue_of(shares)
    left = WaitingTask((A, 0, 0), (7,))
    queue.add(left)
    shares.leave(A)
    queue.sort_again(A)
    assert not queue.has_tasks_of(A)
    assert queue.has_tasks_of(FOREIGN)
    assert queue.peek() is left


@given(st.lists(st.tuples(st.sampled_from(["add", "discard"]), st.integers(0, 11))))
def test_it_is_a_set_as_the_one_it_replaces(changes: list[tuple[str, int]]) -> None:
    shares = opened(a=1.0, foreign=1.0)
    pool = [WaitingTask((A, i, 0) if i % 2 else f"other-{i}", (i,)) for i in range(12)]
    queue, model = queue_of(shares), HeapSet[WaitingTask](key=lambda task: task.priority)
    for change, position in changes:
        getattr(queue, change)(pool[position])
        getattr(model, change)(pool[position])
        assert (len(queue), bool(queue), set(queue)) == (len(model), bool(model), set(model))
        assert all((task in queue) == (task in model) for task in pool)
        assert not model or queue.peek() in model
    queue.clear()
    with pytest.raises(KeyError):
        queue.peek()


def test_a_task_is_charged_once_whatever_is_told_of_it() -> None:
    shares = opened(a=1.0)
    charges = Charges(shares)
    charges.start("key", A, in_turn=True)
    charges.start("key", A, in_turn=True)
    assert (len(charges), charges.running(A)) == (1, 1)
    assert charges.end("key", 0.3) == (A, 0.3)
    assert charges.end("key", 0.3) is None
    charges.start("lost", A, in_turn=True)
    job, charged = charges.end("lost", None) or ("", math.nan)
    assert job == A
    assert 0.05 < charged < 0.3  # the mean of its tasks so far, since nobody measured this one
    charges.start("restarted", A, in_turn=True)
    charges.clear()
    assert (len(charges), charges.running(A)) == (0, 0)


def test_core_seconds_are_those_a_task_tells_or_the_time_its_thread_was_busy() -> None:
    busy = {"action": "compute", "start": 10.0, "stop": 10.5}
    fetch = {"action": "transfer", "start": 9.0, "stop": 10.0}
    assert core_seconds_of({"metadata": {CORE_SECONDS: 0.2}, "startstops": [busy]}) == 0.2
    assert core_seconds_of({"metadata": {}, "startstops": [fetch, busy]}) == 0.5
    assert core_seconds_of({"startstops": []}) is None
    assert core_seconds_of({}) is None


def scheduler(**changed: object) -> Any:
    return SimpleNamespace(**{"queued": HeapSet(key=len), "WORKER_SATURATION": 1.1, **changed})


def test_the_release_that_is_named_is_the_one_that_is_pinned() -> None:
    constraints = Path(__file__).resolve().parents[3] / "constraints.txt"
    assert f"distributed=={KNOWN_RELEASE}" in constraints.read_text(encoding="utf-8").splitlines()


def test_the_contract_holds_with_the_dask_that_is_installed() -> None:
    assert broken_contract(scheduler()) is None


def test_the_settings_are_read_and_checked() -> None:
    assert (chosen_credit(), chosen_silence()) == (CREDIT_CORE_SECONDS, 30.0)
    with dask.config.set({"relaqs.credit-core-seconds": "0.5", "relaqs.worker-silence": "2 minutes"}):
        assert (chosen_credit(), chosen_silence()) == (0.5, 120.0)
    with dask.config.set({"relaqs.credit-core-seconds": -1, "relaqs.worker-silence": "0s"}):
        with pytest.raises(ValueError, match=r"relaqs\.credit-core-seconds is -1; give core-seconds"):
            chosen_credit()
        with pytest.raises(ValueError, match=r"relaqs\.worker-silence is '0s'; give a time"):
            chosen_silence()


def test_a_broken_contract_is_named() -> None:
    said = broken_contract(scheduler(queued={}))
    assert said is not None
    assert said.startswith(f"distributed {distributed.__version__} ")  # type: ignore[attr-defined]
    assert said.endswith("keeps its waiting tasks otherwise")
    assert "worker-saturation is inf" in (broken_contract(scheduler(WORKER_SATURATION=math.inf)) or "")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("self.queued.remove(ts)", "self.queued.banish(ts)", "asks its queue to banish"),
        ("qts = self.queued.peek()", "qts = min(self.queued)", "takes tasks from its queue otherwise"),
        ("ts.run_spec.data_producer", "ts.annotations", "marks tasks that wait on it otherwise"),
    ],
)
def test_a_release_that_asks_for_more_is_noticed(old: str, new: str, complaint: str) -> None:
    source = inspect.getsource(distributed.scheduler)
    assert broken_source(source) is None
    assert complaint in (broken_source(source.replace(old, new)) or "")


def test_the_first_wish_holds_as_long_as_its_session() -> None:
    fair, fifo = make_policy("fair"), make_policy("fifo")
    wishes = Wishes(make_policy("relaqs"))
    assert wishes.in_force.name == "index"
    wishes.ask("first", "ann", fair)
    wishes.ask("second", "bob", fifo)
    wishes.ask("third", "cyd", make_policy("fair"))
    assert wishes.in_force is fair
    wishes.end_session("first")
    assert wishes.in_force.name == "fair"  # the third one's
    wishes.end_client("cyd")
    assert wishes.in_force.name == "index"
    wishes.ask("second", "bob", fifo)
    assert wishes.in_force is fifo


def test_keys_of_others_have_no_job() -> None:
    keys = ["relaqs-a", ("sum", 0), ("relaqs-a", 1, 2), 7, (1, 2), cast("Any", None)]
    assert [job_of(key) for key in keys] == [None, None, "relaqs-a", None, None, None]


def test_a_pinned_task_has_a_key_of_its_own() -> None:
    """Also beside tasks with a common part: a run looks at held-out rows while its gang goes on."""
    step = [Parcel(TaskKey("a", 4, index), b"", lambda result: None, common=b"model") for index in (0, 1)]
    pinned = Parcel(TaskKey("a", 4, PLACED), b"", lambda result: None, place="tcp://b:1")
    assert key_of(A, pinned) not in graph_of(A, step, "versions")
