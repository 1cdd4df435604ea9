"""Dask clients whose tasks are a job of their own, each with a weight, whatever program they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from relaqs.executors.dask.names import FOREIGN, job_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

_PREFIX = "client "


class SharingClients:
    """Knows which tasks belong to which of these clients. All is called on the scheduler's event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[str, bool] = {}  # whether each client's job has tasks, as was last said
        self._job_of: dict[object, str] = {}  # by key

    def __contains__(self, job: str) -> bool:
        return job in self._waiting

    def enter(self, client: str) -> str:
        """Take a client in, and return the name of its job. Its tasks from now on belong to that."""
        job = _PREFIX + client
        self._waiting.setdefault(job, True)
        return job

    def leave(self, client: str) -> str | None:
        """Forget a client. Return the name of its job, None if it had none. Its tasks are foreign now."""
        job = _PREFIX + client
        if self._waiting.pop(job, None) is None:
            return None
        self._job_of = {key: other for key, other in self._job_of.items() if other != job}
        return job

    def arrived(self, client: str, keys: Iterable[object]) -> None:
        """Note whose tasks these are. Those that depend on nothing wait on the scheduler for their turn."""
        job = _PREFIX + client
        if job not in self._waiting:
            return
        for key in keys:
            task = self._scheduler.tasks.get(key)  # type: ignore[call-overload]  # it may be any key
            if task is None or job_of(key) is not None:
                continue
            self._job_of[key] = job
            work = task.run_spec
            if not task.dependencies and work is not None and not work.data_producer:  # data in the graph are
                work._data_producer = True

    def forgotten(self, key: object) -> None:
        """Dask knows of a task no more."""
        self._job_of.pop(key, None)

    def job_of(self, key: object) -> str:
        """Return the job of a task of another program."""
        return self._job_of.get(key, FOREIGN)

    def changed(self, has_tasks_of: Callable[[str], bool]) -> Iterator[tuple[str, bool]]:
        """Yield the jobs of clients that have tasks now and had none before, or the reverse."""
        for job, was_waiting in list(self._waiting.items()):
            if (is_waiting := has_tasks_of(job)) != was_waiting:
                self._waiting[job] = is_waiting
                yield job, is_waiting
