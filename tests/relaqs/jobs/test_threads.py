"""The end of a program waits for its threads: none may be inside DuckDB when the interpreter goes."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar, copy_context
from pathlib import Path
from queue import SimpleQueue
from weakref import WeakSet

import pytest

from relaqs.jobs import executor
from relaqs.jobs.executor import FIRST_SECONDS, Precedence, background_thread, call_later, join_all
from tests.relaqs.executors.clusters import eventually


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test waits for its own threads, and not for those of others that ran in its process before it."""
    monkeypatch.setattr(executor, "_MADE", WeakSet())
    monkeypatch.setattr(executor, "_WAITING", executor._Waiting())


@pytest.mark.usefixtures("own_threads")
def test_threads_and_those_they_start_are_joined() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def first() -> None:
        let_go.wait()
        background_thread(ended.set, "relaqs-second").start()

    background_thread(first, "relaqs-first").start()
    assert not join_all(timeout_seconds=0.01)
    let_go.set()
    assert join_all(timeout_seconds=20)
    assert ended.is_set()


@pytest.mark.usefixtures("own_threads")
def test_a_thread_that_never_started_is_not_waited_for() -> None:
    waiting = background_thread(threading.Event().wait, "relaqs-idle")
    assert join_all(timeout_seconds=20)
    assert waiting.daemon


@pytest.mark.usefixtures("own_threads")
def test_a_call_that_is_to_come_later_ends_with_the_process() -> None:
    called = threading.Event()
    call_later(0.0, called.set)
    assert called.wait(20)
    waiting = call_later(1000.0, called.clear)
    assert join_all(timeout_seconds=20)
    assert called.is_set()
    assert waiting.daemon
    assert not waiting.is_alive()


@pytest.mark.usefixtures("own_threads")
def test_a_thread_goes_on_with_what_comes_next_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = ContextVar("noted", default="nothing")
    seen: SimpleQueue[tuple[int, str, str]] = SimpleQueue()

    class Note:
        def __call__(self) -> None:
            seen.put((threading.get_ident(), threading.current_thread().name, noted.get()))
            noted.set("something")

    notes = [Note(), Note()]
    kept = [weakref.ref(note) for note in notes]
    executor._WAITING.run(notes.pop(), "relaqs-first")
    first = seen.get(timeout=20)
    eventually(lambda: len(executor._WAITING._idle) == 1)
    executor._WAITING.run(notes.pop(), "relaqs-second")
    assert seen.get(timeout=20) == (first[0], "relaqs-second", "nothing")
    eventually(lambda: len(executor._WAITING._idle) == 1)
    assert [ref() for ref in kept] == [None, None]
    assert join_all(timeout_seconds=20)  # idle threads are told to end


@pytest.mark.usefixtures("own_threads")
def test_a_thread_without_a_call_ends_and_those_at_once_have_one_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "IDLE_SECONDS", 0.001)
    for _ in range(20):  # calls come just as threads end
        together = threading.Barrier(3)
        for _ in range(2):
            executor._WAITING.run(together.wait, "relaqs-call")
        together.wait(timeout=20)
    eventually(lambda: not executor._WAITING._idle)
    assert not [thread for thread in executor._MADE if thread.is_alive()] or join_all(timeout_seconds=20)


def test_a_forked_process_has_threads_of_its_own() -> None:
    program = """
import multiprocessing, threading
from relaqs.jobs import executor
def call():
    called = threading.Event()
    executor.run_in_background(called.set, "relaqs-call")
    return called.wait(20)
def ask():
    print(call(), flush=True)
assert call()
while not executor._WAITING._idle:
    pass
child = multiprocessing.get_context("fork").Process(target=ask)
child.start()
child.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_program_may_end_while_queries_and_sessions_are_being_dropped(tpch_warehouse: Path) -> None:
    program = f"""
import relaqs
for _ in range(4):
    answer = relaqs.online_sql("SELECT sum(l_quantity) FROM lineitem", data={str(tpch_warehouse)!r}).result()
session = relaqs.connect({str(tpch_warehouse)!r})
print(next(iter(session.online_sql("SELECT avg(l_quantity) FROM lineitem"))))
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_program_may_end_while_queries_are_planned(tpch_warehouse: Path) -> None:
    """Threads that no stop reaches, as of a dashboard that plans: each stands still at its next statement."""
    program = f"""
import relaqs, sys, threading
from relaqs.jobs.executor import background_thread
session = relaqs.connect({str(tpch_warehouse)!r})
begun = threading.Semaphore(0)
def plan():
    for number in range(10**6):
        session.explain(f"SELECT avg(l_quantity) FROM lineitem WHERE l_orderkey > {{number}}")
        begun.release()
for _ in range(3):
    background_thread(plan, "relaqs-plan").start()
for _ in range(3):
    begun.acquire()
sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


def test_who_had_far_more_of_late_gives_way_for_a_moment_and_then_goes_on() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    precedence.charge("eve", 1.0)
    precedence.charge("bob", 0.01)
    assert not precedence.gives_way("eve")  # nobody asks
    with precedence.asking("eve"):
        assert not precedence.gives_way("bob")
    with precedence.asking("bob"):
        assert precedence.gives_way("eve")
        assert not precedence.gives_way("bob")
        now = FIRST_SECONDS - 0.01
        assert precedence.gives_way("eve")
    assert not precedence.gives_way("eve")
    with precedence.asking("bob"):
        assert precedence.gives_way("eve")  # she may go on between two statements, and not for longer
        now += 0.02
        assert not precedence.gives_way("eve")  # she has waited for long enough
        now += FIRST_SECONDS
        assert not precedence.gives_way("eve")  # it has been under way for too long
    with precedence.asking("bob"):
        assert precedence.gives_way("eve")
        now += 100.0
    with precedence.asking("bob"):
        assert not precedence.gives_way("eve")  # what she had is long ago


@pytest.mark.parametrize("between_seconds", [0.0, 0.003, 0.02])
def test_whoever_gives_way_goes_on_for_a_fifth_of_the_time_whatever_others_ask(
    between_seconds: float,
) -> None:
    now = went_on = 0.0
    precedence = Precedence(lambda: now)
    while now < 20.0:
        precedence.charge("eve", 1.0)
        began = now
        with precedence.asking("bob"):
            while now < began + 0.07:
                went_on += 0.0 if precedence.gives_way("eve") else 0.001
                now += 0.001
        now += between_seconds  # the next statement comes before she asks
        went_on += between_seconds
    assert went_on > 0.19 * now


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("has_more", [False, True])
def test_what_was_asked_before_goes_on_for_a_fifth_of_the_time_though_its_user_asks_anew(
    share: float, has_more: bool
) -> None:
    now = begun_went_on = new_went_on = 0.0
    precedence = Precedence(lambda: now)
    for _ in range(1000):
        with precedence.asking("bob"):
            for step in range(20):
                now += 0.001
                precedence.charge("eve", 0.001)
                precedence.charge("bob", 0.0 if has_more else 0.001)
                if step < 20 * share and not precedence.gives_way("eve", now + 0.05):
                    new_went_on += 0.001
                if step % 4 == 0 and not precedence.gives_way("eve", now - 1.0):
                    begun_went_on += 0.004
    assert 0.17 * now < begun_went_on < 0.25 * now
    most = 0.25 if has_more else 1.01
    assert 0.15 * now * share < new_went_on < most * now


def test_a_statement_that_is_not_new_any_more_brings_what_it_waited() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    precedence.charge("eve", 1.0)
    with precedence.asking("bob"):
        assert precedence.gives_way("eve", 0.09)
        now = 0.08
        assert precedence.gives_way("eve", 0.09)
        now = 0.095
        assert precedence.gives_way("eve", 0.09)
    with precedence.asking("bob"):
        now = 0.1
        assert not precedence.gives_way("eve", 0.09)
        assert not precedence.gives_way("eve", 0.2)  # all of hers go on
        now += 0.026
        assert precedence.gives_way("eve", 0.09)
        assert precedence.gives_way("eve", 0.2)


def test_a_statement_that_ends_in_another_context_is_over_and_charged() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    precedence.charge("eve", 1.0)
    for _ in range(300):
        asking = precedence.asking("bob")
        copy_context().run(asking.__enter__)
        assert precedence.gives_way("eve")
        with pytest.raises(ValueError, match="different Context"):
            asking.__exit__(None, None, None)
        assert not precedence.gives_way("eve")
    assert precedence.had_more("bob", "ann")


def test_nothing_is_kept_of_users_who_came_once() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    kept: list[int] = []
    with precedence.asking("bob"):
        for user in range(4000):
            precedence.gives_way(f"user {user}", now - 1.0)
            precedence.charge(f"user {user}", 1e-6)
            kept.append(sum(map(len, filter(lambda each: isinstance(each, dict), vars(precedence).values()))))
    assert max(kept) < 2100


def test_a_statement_that_is_not_new_any_more_gives_way_to_new_ones_of_who_had_not_far_more() -> None:
    now = 10.0
    precedence = Precedence(lambda: now)
    for user, core_seconds in (("eve", 0.3), ("bob", 0.4), ("dan", 1.0), ("ann", 0.05)):
        precedence.charge(user, core_seconds)
    with precedence.asking("bob"):
        assert precedence.gives_way("eve", now - 1.0)
        assert not precedence.gives_way("eve", now + 1.0)
        assert not precedence.gives_way("eve")
        assert not precedence.gives_way("ann", now - 1.0)  # she had little, however long ago she asked
    for other in ("eve", "dan"):
        with precedence.asking(other):
            assert not precedence.gives_way("eve", now - 1.0)


def test_who_gave_up_while_giving_way_is_not_free_of_it_for_as_long_as_that_is_ago() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    for ago_seconds in (0.0, 600.0):  # the first statement is given up; nobody asks for her any more
        now += ago_seconds
        precedence.charge("eve", 1.0)
        with precedence.asking("bob"):
            assert precedence.gives_way("eve")
    now += FIRST_SECONDS
    assert not precedence.gives_way("eve")
    now += FIRST_SECONDS + 0.01
    precedence.charge("eve", 1.0)
    with precedence.asking("bob"):
        assert precedence.gives_way("eve")


def test_one_long_query_and_messages_without_end_count_as_what_they_take() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    precedence.charge("eve", 1e6)  # all cores for days
    now = 30.0
    assert not precedence.had_more("eve", "bob")
    for _ in range(1000):
        with precedence.asking("eve"):
            pass
    assert precedence.had_more("eve", "bob")
    for user in range(2000):
        precedence.charge(f"user {user}", 1e-6)
    assert precedence.had_more("eve", "bob")


def test_a_pause_ends_where_somebody_lighter_waits_for_the_thread() -> None:
    now = 0.0
    precedence = Precedence(lambda: now)
    precedence.charge("eve", 1.0)
    looks: list[int] = []

    def waiting() -> list[str]:
        nonlocal now
        now += 0.004
        looks.append(len(looks))
        return ["eve"] if len(looks) < 3 else ["eve", "bob"]

    with precedence.asking("bob"):
        precedence.pause("eve", waiting)
        assert not precedence.gives_way("eve")  # she has waited
    assert len(looks) == 3
