"""The jobs of a session that are not over: who is kept alive by them, and how they are stopped."""

from __future__ import annotations

import gc
import weakref

from relaqs.jobs.running import RunningJobs


class Owner:
    pass


class Runner:
    """Notes that it was stopped and waited for."""

    id = "job"

    def __init__(self) -> None:
        self.said: list[str] = []

    def stop(self) -> None:
        self.said.append("stop")

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self.said.append(f"wait {timeout_seconds}")
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
    running.close(5.0)
    running.register(late)
    assert (early.said, late.said) == (["stop", "wait 5.0"], ["stop"])
    del owner
