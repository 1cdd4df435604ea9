"""ReLAQS on a Dask scheduler: the jobs of all clients, who gets how much, and the hooks that make it so.

All of it runs on the scheduler's event loop, so it needs no lock, and must be quick.
"""

# mypy: allow-untyped-calls, disable-error-code="misc"
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import SchedulerPlugin
from distributed.protocol import pickle

from relaqs.executors.dask.charges import Charges
from relaqs.executors.dask.contract import broken_contract, chosen_credit
from relaqs.executors.dask.departed import Departed
from relaqs.executors.dask.hung_workers import Silence, SilentWorkerWarning
from relaqs.executors.dask.mechanism import ENDS, CreditEnforcement, Enforcement, QueueEnforcement
from relaqs.executors.dask.names import (
    CORE_SECONDS,
    FOREIGN,
    HELLO_RPC,
    RELAQS_VERSION,
    STATUS_RPC,
    STREAM_OP,
    Hello,
    Mechanism,
    job_of,
)
from relaqs.executors.dask.no_workers import Absence, NoWorkersWarning
from relaqs.executors.dask.past import PastSpans
from relaqs.executors.dask.policy_choice import Wishes
from relaqs.jobs.description import JobDescription
from relaqs.jobs.job import StepReport
from relaqs.policies import DEFAULT_POLICY, make_policy
from relaqs.scheduling import EPOCH_SECONDS, Allocator
from relaqs.scheduling.shares import FairShares
from relaqs.sharing.plan import Plan

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

logger = logging.getLogger("distributed.scheduler.relaqs")  # where operators look


class RelaqsPlugin(SchedulerPlugin):
    """The one object that all clients of a scheduler share. The first one registers it, for good."""

    name = "relaqs"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Take the scheduler's queue over, and answer clients. Called once, in the scheduler's process."""
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._wishes = Wishes(make_policy(DEFAULT_POLICY))
        self._allocator = Allocator(self._wishes.in_force)
        self._shares = FairShares(credit_core_seconds=chosen_credit())
        self._shares.enter(FOREIGN)
        self._charges = Charges(self._shares)
        self._silence = Silence(scheduler, partial(tell_clients, scheduler, SilentWorkerWarning))
        self._absence = Absence(scheduler, partial(tell_clients, scheduler, NoWorkersWarning))
        self._departed = Departed(scheduler)
        self._past = PastSpans(scheduler)
        self._client_of: dict[str, str] = {}  # of jobs
        self._plan_in_force = Plan((), np.zeros(0), 0.0)
        self._next_plan: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._why_credits = broken_contract(scheduler)
        made_by = QueueEnforcement if self._why_credits is None else CreditEnforcement
        self._enforcement: Enforcement = made_by(scheduler, self._shares, self._charges, self._account_of)
        self._calls: dict[str, Callable[..., None]] = {
            "enter": self._enter,
            "report": self._report,
            "set_weight": self._allocator_call("set_weight"),
            "set_target": self._allocator_call("set_target"),
            "set_waiting": self._allocator_call("set_waiting"),
            "demand": self._demand,
            "leave": self._leave,
            "bye": self._bye,
        }
        scheduler.stream_handlers[STREAM_OP] = self._on_message
        scheduler.handlers[HELLO_RPC] = self._hello
        scheduler.handlers[STATUS_RPC] = self._status

    @property
    def plan(self) -> Plan:
        """The plan in force, by the jobs' names on the cluster."""
        return self._plan_in_force

    async def close(self) -> None:
        self._is_closed = True
        if self._next_plan is not None:
            self._next_plan.cancel()

    # What Dask tells.

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **kwargs: Any) -> None:
        self._enforcement.arrived(tasks)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Charge what starts and what ends. Called after each change of a task's state."""
        if finish in ENDS:
            ended = self._charges.end(key, core_seconds_of(kwargs))
            if ended is not None:
                self._allocator.charge(*ended, time.monotonic())
        elif finish in ("queued", "processing") and self._account_of(key) == FOREIGN:
            self._take_in(JobDescription(FOREIGN, name="tasks of other programs"))
        self._enforcement.moved(key, start, finish)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        for job in [job for job, owner in self._client_of.items() if owner == client]:
            self._leave(client, job)
        self._wishes.end_client(client)
        self._follow_wishes()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._plan_soon()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        self._departed.note(worker)
        self._plan_soon()

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks were dropped, by `Client.restart`; our clients submit theirs again."""
        self._enforcement.clear()

    # What clients tell and ask.

    def _on_message(self, client: str, call: str, arguments: bytes) -> None:
        """Take a message. It must not raise: Dask would cut the client off."""
        try:
            self._calls[call](client, *pickle.loads(arguments))
        except Exception:
            logger.exception("message %r of client %s is lost", call, client)

    def _enter(self, client: str, description: JobDescription) -> None:
        self._client_of[description.id] = client
        self._shares.enter(description.id)
        self._take_in(description)

    def _report(self, client: str, job: str, report: StepReport) -> None:
        self._allocator.report(job, report)
        self._plan_if_due()

    def _allocator_call(self, method: str) -> Callable[..., None]:
        """Return what passes a change of a job on to the allocator, and lets it count at once."""

        def call(client: str, job: str, value: object) -> None:
            getattr(self._allocator, method)(job, value)
            self._plan_soon()

        return call

    def _demand(self, client: str, job: str, count: int, session: str) -> None:
        if isinstance(self._enforcement, CreditEnforcement):
            self._enforcement.demand(session, job, count)

    def _leave(self, client: str, job: str) -> None:
        if self._client_of.pop(job, None) is not None:
            self._shares.leave(job)
            self._allocator.leave(job)
            self._enforcement.left(job)
            self._plan_soon()

    def _bye(self, client: str, session: str) -> None:
        """A session ends; its client may have others."""
        self._wishes.end_session(session)
        self._follow_wishes()

    def _hello(self, client: str, session: str, policy: bytes | None) -> dict[str, Any]:
        """Return a `Hello` as a dict, which clients of any version can read.

        policy: pickled, or None where the session has no wish.
        """
        if policy is not None:
            self._wishes.ask(session, client, pickle.loads(policy))
            self._follow_wishes()
        mechanism: Mechanism = "credits" if self._why_credits else "queue"
        return asdict(Hello(RELAQS_VERSION, self._wishes.in_force.name, mechanism, self._why_credits))

    def _status(self) -> bytes:
        """Return a pickled `ClusterStatus`."""
        running: dict[str, Sequence[float]] = dict.fromkeys(self._charges.running_jobs(), ())
        running |= self._held_seconds()
        status: bytes = pickle.dumps(self._allocator.status(time.monotonic(), self._cores(), running))
        return status

    # What follows from it.

    def _account_of(self, key: object) -> str:
        name = job_of(key)
        return name if name is not None and name in self._client_of else FOREIGN

    def _held_seconds(self) -> dict[str, list[float]]:
        """Return for how long each running task has held its core, by job, as the workers told last."""
        now, held = time.time(), defaultdict[str, list[float]](list)
        for worker in self._scheduler.workers.values():
            for task, seconds in worker.executing.items():
                if task.processing_on is worker:  # it has not ended since
                    held[self._account_of(task.key)].append(seconds + now - worker.last_seen)
        return held

    def _follow_wishes(self) -> None:
        if self._allocator.policy is not self._wishes.in_force:
            self._allocator.policy = self._wishes.in_force
            self._plan_soon()

    def _cores(self) -> int:
        return sum(worker.nthreads for worker in self._scheduler.running)

    def _take_in(self, description: JobDescription) -> None:
        if description.id not in self._allocator:
            self._allocator.enter(description, time.monotonic())
            self._plan_soon()

    def _plan_soon(self) -> None:
        """Plan after what happens now is over: several jobs that come together are planned for once."""
        self._plan_in(0.0)

    def _plan_if_due(self) -> None:
        if self._allocator.is_due(time.monotonic(), self._cores()):
            self._plan_soon()

    def _plan_in(self, seconds: float) -> None:
        if self._is_closed:
            return
        if self._next_plan is not None:
            self._next_plan.cancel()
        self._next_plan = self._loop.call_later(seconds, self._plan)

    def _plan(self) -> None:
        self._next_plan = None
        self._departed.look()
        self._past.look()
        self._silence.look()
        self._absence.look(set(self._client_of.values()))
        if FOREIGN in self._allocator and not self._enforcement.has_foreign_tasks():
            self._allocator.leave(FOREIGN)
        self._plan_in_force = self._allocator.plan(time.monotonic(), self._cores())
        self._shares.set_shares(self._plan_in_force.cores_by_job())
        self._enforcement.changed()
        if len(self._allocator):
            self._plan_in(EPOCH_SECONDS)


def tell_clients(scheduler: Scheduler, category: type[Warning], text: str) -> None:
    """Show a warning in every client's process, by the way Dask's own workers do."""
    message = {"message": pickle.dumps(text), "category": pickle.dumps(category)}
    scheduler.log_event("warn", message)


def core_seconds_of(message: Mapping[str, Any]) -> float | None:
    """Return the core-seconds of a task that has ended, from what Dask was told of it; None if nothing was.

    Our tasks say what they measured. Of others there is the time that a thread was busy with them.
    """
    metadata = message.get("metadata") or {}
    if CORE_SECONDS in metadata:
        return float(metadata[CORE_SECONDS])
    computed = [each for each in message.get("startstops") or () if each["action"] == "compute"]
    return sum(each["stop"] - each["start"] for each in computed) if computed else None
