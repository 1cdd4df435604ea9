"""The jobs of a session that are not over: who is kept alive by them, and how they are stopped."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from relaqs.jobs.runner import RunningJobs


class Owner:
    pass


class Silent:
    """Is over at once."""

    def __init__(self, id: str) -> None:
        self.id = id

    def stop(self) -> None: ...

    def wait(self, timeout_seconds: float | None = None) -> bool:
        return True


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Runner:
    """Notes that it was stopped and waited for."""

    id = "job"

    def __init__(self) -> None:
        self.said: list[str] = []

    def stop(self) -> None:
        self.said.append("stop")

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self.said.append(f"wait {timeout_seconds:.1f}")
        return True


def test_a_running_job_keeps_its_owner_alive() -> None:
    owner = Owner()
    running, gone = RunningJobs(owner), weakref.ref(owner)
    running.register(Runner())
    del owner
    gc.collect()
    assert gone() is not None
    running.forget("job")
    gc.collect()
    assert gone() is None


def test_closing_stops_what_runs_and_what_comes_later() -> None:
    running, early, late = RunningJobs(owner := Owner()), Runner(), Runner()
    running.register(early)
    assert running.close(5.0)
    running.register(late)
    assert (early.said, late.said) == (["stop", "wait 5.0"], ["stop"])
    del owner


class Stubborn(Runner):
    """Is not over in time."""

    def wait(self, timeout_seconds: float | None = None) -> bool:
        super().wait(timeout_seconds)
        return False


def test_closing_waits_for_all_and_says_where_one_goes_on() -> None:
    running, last = RunningJobs(owner := Owner()), Runner()
    running.register(Stubborn())
    last.id = "last"
    running.register(last)
    assert not running.close(5.0)
    assert last.said == ["stop", "wait 5.0"]
    del owner


@pytest.mark.usefixtures("many_switches")
def test_jobs_may_end_while_the_others_are_stopped() -> None:
    running, closed = RunningJobs(owner := Owner()), threading.Event()
    for number in range(100_000):
        running.register(Silent(str(number)))

    def come_and_go() -> None:
        while not closed.is_set():
            running.register(Silent("quick"))
            running.forget("quick")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        running.close(5.0)
    finally:
        closed.set()
        thread.join(20)
    del owner
