"""Gangs whose workers, drivers and schedulers are really killed or stopped. The model keeps its bits."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from distributed import Future

from relaqs import ClusterError
from relaqs.executors.dask import DaskExecutor
from relaqs.executors.dask.task import JobInFlight, Parcel
from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.job import TaskKey, TaskResult
from relaqs.training.elastic.membership import RESIDENTS, Membership
from relaqs.training.elastic.rank import TurnResult
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    address_of,
    eventually,
    free_port,
    running_cluster,
    scheduler_command,
    started,
    workers_command,
)
from tests.relaqs.training.gangs import GROWING, LoneGang, gang, same_bits
from tests.relaqs.training.lessons import MadeUpRecipe

REPEATS = int(os.environ.get("RELAQS_FAULT_REPEATS", "1"))
TIMES = [0, *(pytest.param(again, marks=pytest.mark.slow) for again in range(1, REPEATS))]
ENDS = [
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.slow),
]
WORKERS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("turn-faults") / "scheduler.log"
    with running_cluster(log, workers=WORKERS) as address:
        yield address


@pytest.fixture
def executor(cluster: str) -> Iterator[DaskExecutor]:
    """With all workers there: those that a test has killed are started again."""
    with closing(DaskExecutor(cluster)) as executor:
        eventually(lambda: len(executor.slots()) == WORKERS)
        yield executor


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank is left out because a busy machine prepares it slowly."""
    monkeypatch.setattr("relaqs.training.elastic.membership.PREPARE_SECONDS", LONG_SECONDS)


def processes(executor: DaskExecutor) -> dict[str, int]:
    """Return the process of each slot."""
    found = executor._client.run(os.getpid)
    return {slot: found[worker_of(slot)] for slot in executor.slots()}


def goes_on(job: LoneGang, ranks: int, steps: int = 10) -> bool:
    """Wait until a gang of these ranks has made steps, end it, and return whether it has the right bits."""
    eventually(lambda: job.rescales and job.rescales[-1].ranks == ranks)
    since = job.step
    eventually(lambda: job.step >= since + steps)
    job.finish()
    return same_bits(job)


def wake(process: int) -> None:
    """Let a process go on that was stopped, if it is there."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def before_prepared(job: LoneGang, slot: str, act: Callable[[], None]) -> None:
    """Act when a rank is ready, before its driver knows it."""
    note = job._note_prepared

    def act_then_note(prepared: str, result: TaskResult) -> None:
        if prepared == slot:
            act()
        note(prepared, result)

    job._note_prepared = act_then_note  # type: ignore[method-assign]


@pytest.mark.parametrize("again", TIMES)
@pytest.mark.parametrize("ends", ENDS)
def test_a_new_rank_that_is_lost_while_it_prepares_is_left_out(
    executor: DaskExecutor, ends: signal.Signals, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs.training.elastic.membership.PREPARE_SECONDS", 1.0)
    slots, process = executor.slots(), processes(executor)
    job = gang(executor, f"preparing-{ends}-{again}", slots[:1])
    job.start()
    eventually(lambda: job.step)
    os.kill(process[slots[1]], ends)
    job.offered(slots[:2])
    try:
        eventually(lambda: not job._roster.is_preparing and job._roster.missing(slots[:2]) == [])
        assert goes_on(job, ranks=1)
        assert len(job.rescales) == 1
    finally:
        wake(process[slots[1]])


@pytest.mark.parametrize("again", TIMES)
@pytest.mark.parametrize("ends", ENDS)
def test_a_rank_that_is_lost_at_the_meeting_costs_no_step(
    executor: DaskExecutor, ends: signal.Signals, again: int
) -> None:
    slots, process = executor.slots(), processes(executor)
    job = gang(executor, f"meeting-{ends}-{again}", slots[:1])
    job.start()
    eventually(lambda: job.step)
    before_prepared(job, slots[1], lambda: os.kill(process[slots[1]], ends))
    job.offered(slots[:2])
    try:
        eventually(lambda: len(job.rescales) == 2)
        assert goes_on(job, ranks=1)
    finally:
        wake(process[slots[1]])


@pytest.mark.parametrize("again", TIMES)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("place", [0, 1])
def test_the_others_go_on_where_a_rank_is_lost_in_a_step(
    executor: DaskExecutor, ends: signal.Signals, place: int, again: int
) -> None:
    slots, process = executor.slots(), processes(executor)
    job = gang(executor, f"stepping-{ends}-{place}-{again}", slots[:2])
    job.start()
    eventually(lambda: job.step > 5)
    os.kill(process[slots[place]], ends)
    began = time.monotonic()
    try:
        assert goes_on(job, ranks=1)
        assert time.monotonic() - began < LONG_SECONDS
    finally:
        wake(process[slots[place]])


def late_by_a_turn(job: LoneGang, late: int) -> None:
    """Let the driver hear of one turn of two ranks only once it has heard of the next."""
    note, held, heard = job._note_turn, list[tuple[str, TaskResult]](), Counter[int]()

    def hold_or_note(slot: str, result: TaskResult) -> None:
        assert isinstance(result.value, TurnResult)
        if result.value.turn == late:
            held.append((slot, result))
            return
        note(slot, result)
        heard[result.value.turn] += 1
        while held and heard[late + 1] == 2:
            note(*held.pop())

    job._note_turn = hold_or_note  # type: ignore[method-assign]


@pytest.mark.usefixtures("patient")
def test_results_may_come_in_another_order_than_their_turns(executor: DaskExecutor) -> None:
    slots = executor.slots()
    job = gang(executor, "late", slots[:2])
    late_by_a_turn(job, late=1)
    job.start()
    assert goes_on(job, ranks=2, steps=60)


@pytest.mark.parametrize("again", TIMES)
def test_it_begins_where_its_driver_has_it_where_all_ranks_died(executor: DaskExecutor, again: int) -> None:
    slots, process = executor.slots(), processes(executor)
    job = gang(executor, f"all-{again}", slots[:2], GROWING)
    job.start()
    eventually(lambda: (job.batch_rows or 0) >= 64)  # the driver has the state of the end of a pass before
    assert job._made.kept_step
    made = len(job.rescales)
    for slot in slots[:2]:
        os.kill(process[slot], signal.SIGKILL)
    eventually(lambda: len(job.rescales) > made)
    eventually(lambda: job.batch_rows == 256)
    assert goes_on(job, job.rescales[-1].ranks)
    assert set(job.journal.batch_rows) == {32, 64, 128, 256}


CLIENT = """
import sys, time
from relaqs.executors.dask import DaskExecutor
from tests.relaqs.training.gangs import gang
executor = DaskExecutor(sys.argv[1])
job = gang(executor, "orphan", executor.slots()[:2])
job.start()
while not job.step:
    time.sleep(0.01)
print("trains", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("again", TIMES)
def test_the_slots_of_a_driver_that_died_are_free(executor: DaskExecutor, cluster: str, again: int) -> None:
    slots = executor.slots()
    with subprocess.Popen([sys.executable, "-c", CLIENT, cluster], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"trains\n"
        job = gang(executor, f"heir-{again}", slots[:2])
        job.start()
        time.sleep(0.3)
        assert not job.step  # it waits for the slots
        client.kill()
        assert goes_on(job, ranks=2)


@pytest.mark.usefixtures("patient")
def test_gangs_that_want_the_same_slots_take_them_one_after_another(executor: DaskExecutor) -> None:
    slots = executor.slots()
    first, second = (gang(executor, name, slots[:2]) for name in ("first", "second"))
    first.start()
    eventually(lambda: first.step)
    second.start()
    since = first.step
    eventually(lambda: first.step > since + 20)
    assert second.step == 0
    first.stop()
    first.wait()
    assert goes_on(second, ranks=2)


@pytest.mark.slow
@pytest.mark.parametrize("turns", [range(3, 4), range(3, 5)])
def test_a_rank_that_hangs_with_its_results_holds_up_no_other(executor: DaskExecutor, turns: range) -> None:
    """The results of a turn, or of all in flight, are there. One worker stops before they are fetched."""
    slots, process = executor.slots(), processes(executor)
    at_results_of(executor, turns, lambda: os.kill(process[slots[0]], signal.SIGSTOP))
    job = gang(executor, f"unfetched-{turns.stop}", slots[:2])
    job.start()
    try:
        assert goes_on(job, ranks=1)
        assert slots[0] in executor.slots()  # the cluster has not given the worker up
    finally:
        wake(process[slots[0]])


def at_results_of(executor: DaskExecutor, turns: range, act: Callable[[], None]) -> None:
    """Act when the results of turns of two ranks are on their workers, before any is fetched."""
    deliver, ended, all_there = executor._deliver, list[TaskKey](), asyncio.Event()
    keys = range(2 * turns.start + 2, 2 * turns.stop + 2)  # the first two tasks prepare the ranks

    async def deliver_later(flight: JobInFlight, parcel: Parcel, future: Future[TaskResult]) -> None:
        if parcel.key.step in keys:
            await future.exception(asynchronous=True)
            ended.append(parcel.key)
            if len(ended) == len(keys):
                act()
                all_there.set()
                await asyncio.sleep(0)  # so that all ask for their results at once
            await all_there.wait()
        await deliver(flight, parcel, future)

    executor._deliver = deliver_later  # type: ignore[method-assign]


@pytest.mark.slow
def test_a_gang_begins_without_a_worker_that_hangs_and_takes_it_in_when_it_wakes(
    executor: DaskExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs.training.elastic.membership.PREPARE_SECONDS", 1.0)
    slots, process = executor.slots(), processes(executor)
    os.kill(process[slots[1]], signal.SIGSTOP)
    job = gang(executor, "without-one", slots[:2])
    job.start()
    try:
        eventually(lambda: job.step)
        assert slots[1] in executor.slots()  # the cluster has not given the worker up
    finally:
        wake(process[slots[1]])
    assert goes_on(job, ranks=2)


@pytest.mark.usefixtures("patient")
def test_ranks_that_were_freed_meanwhile_are_prepared_once_more(executor: DaskExecutor) -> None:
    """A worker frees those that had no turn for half a minute, as if their driver had died."""
    job = gang(executor, "freed", executor.slots()[:2])
    job.start()
    eventually(lambda: job.step > 60)
    made = len(job.rescales)
    executor._client.run(free_all)
    eventually(lambda: len(job.rescales) > made)
    assert goes_on(job, ranks=2)


def test_a_rank_that_is_prepared_once_more_knows_nothing(executor: DaskExecutor) -> None:
    """Although the last turn of the one before it counts only after that."""
    first, second, *_ = executor.slots()
    job = gang(executor, "late-and-freed", (first, second))
    send, note_turn, note_prepared = job._send_turn, job._note_turn, job._note_prepared
    held = list[tuple[str, TaskResult]]()
    is_freed = is_back = False

    def send_then_free(membership: Membership) -> None:
        nonlocal is_freed
        send(membership)
        if not is_freed and job.step > 60 and len(job._turns) == 2:
            is_freed = True
            executor._client.run(free_all)

    def hold_or_note(slot: str, result: TaskResult) -> None:
        if slot == second and is_freed and not is_back:
            held.append((slot, result))
        else:
            note_turn(slot, result)

    def note_then_release(slot: str, result: TaskResult) -> None:
        nonlocal is_back
        note_prepared(slot, result)
        if slot == first and is_freed:
            is_back = True
            while held:
                note_turn(*held.pop(0))

    job._send_turn = send_then_free  # type: ignore[method-assign]
    job._note_turn = hold_or_note  # type: ignore[method-assign]
    job._note_prepared = note_then_release  # type: ignore[method-assign]
    job.start()
    eventually(lambda: is_back)
    assert goes_on(job, ranks=2, steps=60)


def free_all() -> None:
    for home in list(RESIDENTS._there):
        RESIDENTS.forget(*home)


def test_a_gang_whose_ranks_can_never_begin_says_why(executor: DaskExecutor) -> None:
    job = LoneGang(MadeUpRecipe(fails=FileNotFoundError), executor, "never", executor.slots()[:2])
    job.start()
    with pytest.raises(ClusterError, match=r"lost 10 times in a row at step 0, .* FileNotFoundError: this"):
        job.wait()


@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True])
def test_a_scheduler_that_does_not_come_back_ends_the_gang(waits: bool, tmp_path: Path) -> None:
    """Also where the gang has no task on the cluster, and waits for a turn that will never come."""
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        scheduler = stack.enter_context(started(*scheduler_command(port)))
        stack.enter_context(started(*workers_command(address)))
        executor = DaskExecutor(address, connect_seconds=LONG_SECONDS, reconnect_seconds=1.0)
        stack.enter_context(closing(executor))
        eventually(lambda: len(executor.slots()) == 2)
        job = gang(executor, "bereft", executor.slots())
        job.start()
        eventually(lambda: job.step)
        if waits:
            job.may_turn = lambda number: None  # type: ignore[method-assign]
            eventually(lambda: not job._turns)
        scheduler.kill()
        with pytest.raises(ClusterError, match="Dask scheduler at"):
            job.wait()


def test_nothing_of_a_gang_is_left_on_its_workers(executor: DaskExecutor) -> None:
    job = gang(executor, "leaves", executor.slots()[:2])
    job.start()
    eventually(lambda: job.step)
    job.stop()
    job.wait()
    assert set(executor._client.run(ranks_here, job.id).values()) == {0}


@pytest.mark.slow
def test_what_a_lesson_raises_ends_the_gang(executor: DaskExecutor) -> None:
    job = LoneGang(MadeUpRecipe(fails=ZeroDivisionError), executor, "raises", executor.slots()[:2])
    job.start()
    with pytest.raises(ZeroDivisionError, match="this recipe fails"):
        job.wait()


@pytest.mark.slow
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("again", range(REPEATS))
def test_the_scheduler_is_started_again(tmp_path: Path, again: int, rests: bool) -> None:
    """Its workers end with it, so all ranks are lost. The driver says all anew, also between two turns."""
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        first = stack.enter_context(started(*scheduler_command(port)))
        stack.enter_context(started(*workers_command(address)))
        executor = stack.enter_context(closing(DaskExecutor(address, connect_seconds=LONG_SECONDS)))
        eventually(lambda: len(executor.slots()) == 2)
        job = gang(executor, "outlives", executor.slots())
        job.start()
        eventually(lambda: job.step > 60)
        if rests:
            job.go_on(1)
            eventually(lambda: job._made.kept_passes >= 1 and not job._turns)
        first.kill()
        first.join(LONG_SECONDS)
        made = len(job.rescales)
        stack.enter_context(started(*scheduler_command(port), log=tmp_path / "scheduler.log"))
        stack.enter_context(started(*workers_command(address)))
        job.go_on(math.inf)
        eventually(lambda: len(job.rescales) > made)
        assert goes_on(job, job.rescales[-1].ranks)


def ranks_here(job_id: str) -> int:
    """Return how many ranks of a job are in this process."""
    return sum(gang.startswith(job_id) for gang in RESIDENTS.gangs())
