"""Turns on slots: who is furthest behind gets them, whole or not at all, and no core waits for nobody."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from relaqs.executors.slot_desk import SlotTurns
from relaqs.scheduling.virtual_time import FairShares

ONE, TWO, THREE = (f"tcp://{name}:1/0" for name in "abc")


class Turning:
    """Runs that take turns of a quarter of a second, and what each has had."""

    def __init__(self, **shares: float) -> None:
        self.shares = FairShares()
        self.turns = SlotTurns(self.shares)
        self.used: Counter[str] = Counter()
        for job, share in shares.items():
            self.shares.enter(job, share)

    def granted(self, *waiting: str) -> list[str]:
        return [job for job, _ in self.turns.granted(waiting)]

    def end(self, job: str, tasks: int = 1) -> None:
        """Let the tasks of a job's turn run and end."""
        for charged in [self.shares.start(job) for _ in range(tasks)]:
            self.shares.settle(job, charged, 0.25)
            self.turns.ended(job)
            self.used[job] += 0.25


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5))
def test_runs_on_one_slot_get_their_shares(shares: list[float]) -> None:
    """Each is off by a turn of its own and one of each other at most, as jobs of tasks are."""
    runs = Turning(**{str(i): share for i, share in enumerate(shares)})
    for job in map(str, range(len(shares))):
        runs.turns.ask_turn(job, (ONE,))
    for _ in range(200):
        (job,) = runs.granted()
        runs.end(job)
        runs.turns.ask_turn(job, (ONE,))
    for i, share in enumerate(shares):
        assert abs(runs.used[str(i)] - 50.0 * share / sum(shares)) <= 0.25 * len(shares)


def test_slots_are_kept_for_who_is_further_behind_and_given_to_who_is_not() -> None:
    runs = Turning(a=1.5, b=0.5)
    runs.turns.ask_turn("a", (ONE,))
    assert runs.granted() == ["a"]
    runs.turns.ask_turn("b", (ONE,))
    assert runs.granted() == []  # its turn runs
    runs.end("a")
    assert runs.granted() == ["b"]  # which has had nothing
    runs.turns.ask_turn("a", (ONE,))
    runs.end("b")
    assert runs.granted() == ["a"]
    runs.turns.ask_turn("b", (ONE,))
    runs.end("a")
    assert runs.granted() == []  # kept: a is further behind, and is to ask again
    assert runs.turns.held("a") == (ONE,)
    runs.turns.leave("a")
    assert runs.granted() == ["b"]


def test_who_needs_several_slots_is_not_passed_by_on_any() -> None:
    runs = Turning(pair=1.0, one=1.0, two=1.0, three=1.0)
    for job, slot in (("one", ONE), ("two", TWO)):
        runs.turns.ask_turn(job, (slot,))
    assert runs.granted() == ["one", "two"]
    runs.turns.ask_turn("pair", (ONE, TWO))
    runs.end("one")
    runs.turns.ask_turn("one", (ONE,))
    runs.turns.ask_turn("three", (THREE,))
    assert runs.granted() == ["three"]  # one waits behind the pair, which waits for two
    assert runs.turns.was_next("three") is False
    assert runs.turns.was_next("one") is None
    runs.end("two")
    assert runs.granted() == ["pair"]
    assert runs.turns.held("two") == ()
    assert runs.turns.was_next("pair") is True
    runs.end("pair", tasks=2)
    assert runs.granted() == ["one"]


def test_a_job_of_tasks_that_is_further_behind_comes_first() -> None:
    runs = Turning(run=1.0, query=1.0)
    runs.turns.ask_turn("run", (ONE,))
    assert runs.granted() == ["run"]
    runs.end("run")
    runs.turns.ask_turn("run", (ONE,))
    assert runs.granted("query") == []
    assert runs.granted() == ["run"]


def test_gangs_that_wait_for_slots_come_before_runs_that_take_turns() -> None:
    runs = Turning(run=1.0, gang=1.0)
    runs.turns.ask_turn("run", (ONE, TWO))
    assert runs.granted() == ["run"]
    assert runs.turns.lease("gang", (ONE,)) == ()
    runs.end("run", tasks=2)
    assert runs.turns.ask_turn("run", (ONE, TWO)) == ("gang",)
    assert runs.granted() == []
    runs.turns.ask_turn("gang")
    assert runs.granted() == ["gang"]
    assert runs.turns.held("gang") == (ONE,)
    assert runs.turns.was_next("gang") is None


def test_what_is_asked_for_on_a_worker_that_is_gone_is_dropped() -> None:
    runs = Turning(run=1.0, other=1.0)
    runs.turns.ask_turn("run", (ONE, TWO))
    runs.turns.ask_turn("other", (TWO,))
    assert runs.turns.lost("tcp://a:1") == {"run": (ONE,)}
    assert runs.granted() == ["other"]


def test_the_number_of_the_asking_comes_back() -> None:
    runs = Turning(run=1.0)
    runs.turns.ask_turn("run", (ONE,), number=6)
    runs.turns.ask_turn("run", (TWO,), number=7)
    assert list(runs.turns.granted(())) == [("run", 7)]
    assert runs.turns.held("run") == (TWO,)


def test_a_run_that_waited_for_its_slots_is_owed_what_it_waited_for() -> None:
    """The other one had two seconds in one turn, so it has the next eight."""
    runs = Turning(long=1.0, waits=1.0)
    runs.turns.ask_turn("long", (ONE,))
    assert runs.granted() == ["long"]
    runs.turns.ask_turn("waits", (ONE,))
    charged = runs.shares.start("long")
    runs.shares.settle("long", charged, 2.0)
    runs.turns.ended("long")
    runs.turns.ask_turn("long", (ONE,))
    order = list[str]()
    for _ in range(8):
        (job,) = runs.granted()
        runs.end(job)
        runs.turns.ask_turn(job, (ONE,))
        order.append(job)
    assert order == ["waits"] * 8


def test_slots_are_leased_whole_or_not_at_all_in_the_order_of_asking() -> None:
    slots = SlotTurns(FairShares())
    assert slots.lease("a", ("1", "2")) == ("a",)
    assert (slots.lease("b", ("2", "3")), slots.lease("c", ("3",)), slots.held("b")) == ((), (), ())
    assert (slots.leave("a"), slots.held("b")) == (("b",), ("2", "3"))
