"""ReLAQS on a Dask scheduler: the jobs of all clients at one desk, and the hooks that connect it.

**The idea.** Several client processes share a cluster. Dask gives a task its priority once, when its
client submits it. A plan of cores changes twice a second. So the decision is taken where the tasks wait:
a plugin, which the first client installs, replaces the scheduler's queue of waiting tasks. When a core is
free, Dask asks its queue for the next task, and the queue asks the desk whose turn it is (`Desk.turns`).

**Example.** A query of one client and a training run of another share two workers, planned 1.5 and 0.5
cores.

1. The query's client says `Enter`, then submits 8 tasks in one message. They wait in the `JobQueue`.
2. A worker has room. Dask calls `queued.peek()`. The query is furthest behind its share, so its first task
   starts. `transition` sees it start, and `Charges.start` charges the query 0.05 core-seconds in advance.
3. The task ends. Its worker put what it measured, 0.03 core-seconds, into the metadata of Dask's own
   message. `transition` settles the turn (`Charges.end`) and charges the account (`Desk.charge`).
4. The client folds the step and says `StepFolded`. That is the first quality of the query, so a plan is
   due.
5. `_plan` runs: the desk asks the policy and carries the plan into the turns. The next free core follows
   it.

**What makes it more than that.**

- *No lock.* All of it runs on the scheduler's event loop. So it must be quick, and must not raise: Dask
  would cut the client off.
- *Tasks of other programs* make up one job, FOREIGN. It has an account while it has tasks. It keeps its
  turn. A Dask client that asks for it is a job of its own instead, with a weight (`SharingClients`).
- *A Dask release may change the queue*, which is not public. So `broken_contract` reads Dask's source
  first. If that does not fit, the plugin does not start, and whoever connects is told why.
- *A plan that stops a job* (`Plan.stops`) is sent to the session of that job, which ends it (`Stops`).
- *A scheduler that is started again* knows nothing. Clients then enter their jobs again.

Decisions and measurements: docs/decisions/0012-fair-queue-in-dask.md. The whole way of a measurement:
docs/internals/journey-of-a-core-second.md.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from distributed import SchedulerPlugin
from distributed.protocol import pickle

from relaqs.executors.dask import messages
from relaqs.executors.dask.placement import STIMULUS, AbreastPlaces, Rooms
from relaqs.executors.dask.queue import (
    ENDS,
    PINNING,
    PLACING,
    QueueEnforcement,
    check_contract,
    chosen_credit,
    lacking,
)
from relaqs.executors.dask.slots import LeasedGangs, SlotOffers
from relaqs.executors.dask.workers import (
    Absence,
    Departed,
    NoWorkersWarning,
    PastSpans,
    Silence,
    SilentWorkerWarning,
)
from relaqs.jobs.job import JobDescription, JobStatus
from relaqs.policies import DEFAULT_POLICY, make_policy
from relaqs.policies.registry import DEFAULT_SLOT_POLICY, make_slot_policy
from relaqs.scheduling import EPOCH_SECONDS, Desk
from relaqs.scheduling.desk import Wishes
from relaqs.scheduling.virtual_time import Charges
from relaqs.sharing.gangs import Gang
from relaqs.sharing.view import Plan

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
            if task is None or messages.job_of(key) is not None:
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
        return self._job_of.get(key, messages.FOREIGN)

    def changed(self, has_tasks_of: Callable[[str], bool]) -> Iterator[tuple[str, bool]]:
        """Yield the jobs of clients that have tasks now and had none before, or the reverse."""
        for job, was_waiting in list(self._waiting.items()):
            if (is_waiting := has_tasks_of(job)) != was_waiting:
                self._waiting[job] = is_waiting
                yield job, is_waiting


logger = logging.getLogger("distributed.scheduler.relaqs")  # where operators look


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a job comes from: Dask's name of its client, and the session there.

    description: as it came.
    """

    client: str
    session: str
    description: JobDescription


class RelaqsPlugin(SchedulerPlugin):
    """The one object that all clients of a scheduler share. The first one registers it, for good."""

    name = "relaqs"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Take the scheduler's queue over, and answer clients. Called once, in the scheduler's process.

        Raises ClusterError where the queue of this release of Dask cannot be taken over.
        """
        check_contract(scheduler)
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._wishes = Wishes(make_policy(DEFAULT_POLICY))
        self._slot_wishes = Wishes(make_slot_policy(DEFAULT_SLOT_POLICY))
        self._desk = Desk(self._wishes.in_force, credit_core_seconds=chosen_credit())
        self._desk.turns.enter(messages.FOREIGN)
        self._charges = Charges(self._desk.turns)
        self._silence = Silence(scheduler, partial(tell_clients, scheduler, SilentWorkerWarning))
        self._absence = Absence(scheduler, partial(tell_clients, scheduler, NoWorkersWarning))
        self._departed = Departed(scheduler)
        self._clients = SharingClients(scheduler)
        self._past = PastSpans(scheduler)
        self._homes: dict[str, _Home] = {}  # by job
        self._next_plan: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._rooms, places = self._chosen_places()
        self._enforcement = QueueEnforcement(
            scheduler,
            self._desk.turns,
            self._charges,
            self._account_of,
            self._was_next,
            self._abreast,
            places,
            self._rooms,
        )
        self._gangs = LeasedGangs(
            scheduler,
            self._desk.turns,
            self._session_of,
            self._enforcement.waiting,
            lacking(PINNING),
        )
        self._slots = SlotOffers(
            scheduler,
            self._gangs,
            self._slot_wishes.in_force,
            self._tell_gang,
            partial(tell_clients, scheduler, RuntimeWarning),
        )
        scheduler.stream_handlers[messages.STREAM_OP] = self._on_message
        scheduler.handlers[messages.HELLO_RPC] = self._hello
        scheduler.handlers[messages.STATUS_RPC] = self._status
        scheduler.handlers[messages.STOP_RPC] = self._stop_one
        scheduler.handlers[messages.CAP_RPC] = self._cap_one

    @property
    def plan(self) -> Plan:
        """The plan in force, by the jobs' names on the cluster."""
        return self._desk.plan

    async def close(self) -> None:
        self._is_closed = True
        if self._next_plan is not None:
            self._next_plan.cancel()

    # What Dask says.

    def update_graph(
        self, scheduler: Scheduler, *, tasks: list[Any], client: str = "", **kwargs: Any
    ) -> None:
        self._clients.arrived(client, tasks)
        self._enforcement.arrived(tasks)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Charge what starts and what ends. Called after each change of a task's state."""
        if finish in ENDS:
            ended = self._charges.end(key, core_seconds_of(kwargs))
            if ended is not None:
                self._desk.accounts.charge(*ended, time.monotonic())
                self._gangs.ended(ended[0])
        elif finish in ("queued", "processing") and self._account_of(key) == messages.FOREIGN:
            self._take_in(JobDescription(messages.FOREIGN, name="tasks of other programs"))
        self._enforcement.moved(key, start, finish)
        if finish in ENDS:
            self._gangs.look()
        if finish == "forgotten":
            self._clients.forgotten(key)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        for job in [job for job, home in self._homes.items() if home.client == client]:
            self._leave(job)
        self._share_no_more(client)
        self._wishes.end_client(client)
        self._slot_wishes.end_client(client)
        self._follow_wishes()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._plan_soon()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        self._departed.note(worker)
        self._gangs.worker_gone(worker)
        self._plan_soon()

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks were dropped, by `Client.restart`; our clients submit theirs again."""
        self._enforcement.clear()

    # What clients say and ask.

    def _on_message(self, client: str, message: bytes) -> None:
        """Take a pickled message. It must not raise: Dask would cut the client off."""
        try:
            self._take(client, pickle.loads(message))
        except Exception:
            logger.exception("a message of client %s is lost", client)

    def _take(self, client: str, message: messages.Message) -> None:
        match message:
            case messages.Enter(description, session):
                self._homes[description.id] = _Home(client, session, description)
                if self._rooms is not None:
                    self._rooms.enter(description)
                self._take_in(description)
            case messages.StepFolded(job, report):
                self._desk.accounts.report(job, report)
                self._plan_if_due()
            case messages.SetWeight(job, weight):
                self._desk.accounts.set_weight(job, weight)
                self._slots.set_weight(job, weight)
                self._plan_soon()
            case messages.SetTarget(job, target):
                self._desk.accounts.set_target(job, target)
                self._plan_soon()
            case messages.SetWaiting(job, is_waiting):
                self._desk.accounts.set_waiting(job, is_waiting)
                self._plan_soon()
            case messages.RunsWhole(job, step, seconds):
                if self._rooms is not None:
                    self._rooms.is_whole(job, step, seconds)
            case messages.Lease(job, slots):
                self._gangs.lease(job, slots)
                self._slots.offer_free()
            case messages.AskTurn(job, slots, number):
                self._gangs.ask_turn(job, slots, number)
            case messages.GangTold(job, gang):
                self._take_gang(job, gang)
            case messages.Leave(job):
                self._leave(job)
            case messages.Share(name, weight):
                self._share(client, name, weight)
            case messages.ShareNoMore():
                self._share_no_more(client)
            case messages.Bye(session):
                self._wishes.end_session(session)
                self._slot_wishes.end_session(session)
                self._follow_wishes()
            case _:
                assert_never(message)

    def _take_gang(self, job: str, gang: Gang) -> None:
        if job in self._homes and self._slots.take_in(gang, time.monotonic()):
            self._plan_soon()

    def _tell_gang(self, answer: messages.SlotsOffered) -> None:
        if (home := self._homes.get(answer.job)) is not None:
            messages.tell_session(self._scheduler, home.session, answer)

    def _leave(self, job: str) -> None:
        if self._homes.pop(job, None) is not None:
            self._slots.left(job)
            self._gangs.left(job)
            self._slots.offer_free()
            self._desk.leave(job)
            if self._rooms is not None:
                self._rooms.left(job)
            self._enforcement.left(job)
            self._plan_soon()

    def _share(self, client: str, name: str, weight: float) -> None:
        job = self._clients.enter(client)
        self._take_in(JobDescription(job, name=name, client=client, weight=weight))
        self._desk.accounts.set_weight(job, weight)

    def _share_no_more(self, client: str) -> None:
        if (job := self._clients.leave(client)) is not None:
            self._desk.leave(job)
            self._enforcement.left(job)
            self._plan_soon()

    def _stop_one(self, job: str) -> str | None:
        """Stop a job. Return why that cannot be."""
        if job not in self._homes:
            return self._no_job(job)
        self._stop([job])
        return None

    def _cap_one(self, job: str, cores: int) -> str | None:
        """Cap a job. Return why that cannot be."""
        if job not in self._homes:
            return self._no_job(job)
        self._desk.accounts.set_most(job, cores)
        messages.tell_session(self._scheduler, self._homes[job].session, messages.Cap(job, cores))
        self._plan_soon()
        return None

    def _no_job(self, job: str) -> str:
        if job == messages.FOREIGN or job in self._clients:
            return f"{job!r} is made of tasks of another program, which has to end or cancel them itself"
        known = ", ".join(sorted(self._homes)) or "none"
        return f"there is no job {job!r}; there are: {known}"

    def _hello(
        self, client: str, session: str, policy: bytes | None, slot_policy: bytes | None = None
    ) -> dict[str, Any]:
        """Return a `Hello` as a dict, which clients of any version can read.

        policy, slot_policy: the session's wishes, pickled. None: it has no wish.
        """
        if policy is not None:
            self._wishes.ask(session, client, pickle.loads(policy))
        if slot_policy is not None:
            self._slot_wishes.ask(session, client, pickle.loads(slot_policy))
        self._follow_wishes()
        names = self._wishes.in_force.name, self._slot_wishes.in_force.name
        return asdict(messages.Hello(messages.RELAQS_VERSION, *names))

    def _status(self) -> bytes:
        """Return a pickled `ClusterStatus`."""
        running: dict[str, Sequence[float]] = dict.fromkeys(self._charges.running_jobs(), ())
        running |= self._held_seconds()
        found = self._desk.accounts.status(time.monotonic(), self._cores(), running)
        jobs = tuple(map(self._with_slots, found.jobs))
        status: bytes = pickle.dumps(replace(found, jobs=jobs, slot_policy=self._slots.policy.name))
        return status

    def _with_slots(self, job: JobStatus) -> JobStatus:
        """Return how a job stands, with the slots that it holds if it is a gang, or where its parts are."""
        job = replace(job, workers=self._gangs.workers(job.id))
        if (gang := self._slots.gang(job.id)) is None:
            return job
        slots, rows, rescales = self._slots.slots_of(job.id), int(gang.batch_rows), int(gang.rescales)
        return replace(job, slots=slots, batch_rows=rows or None, rescales=rescales)

    # What follows from it.

    def _account_of(self, key: object) -> str:
        name = messages.job_of(key)
        return name if name is not None and name in self._homes else self._clients.job_of(key)

    def _was_next(self, job: str) -> bool | None:
        return self._gangs.was_next(job)

    def _abreast(self, job: str) -> int:
        home = self._homes.get(job)
        return self._cores() if home is not None and home.description.is_abreast else 0

    def _chosen_places(self) -> tuple[Rooms | None, AbreastPlaces | None]:
        """Take over where tasks go. None: Dask's own choice stays."""
        if (why := lacking(PLACING)) is not None:
            logger.warning("tasks go where Dask has them, and users may exceed their cores: %s", why)
            return None, None
        rooms = Rooms(self._scheduler, self._desk.accounts.attained_core_seconds, self._look_again_in)
        return rooms, AbreastPlaces(self._scheduler, lambda job: self._abreast(job) > 0, self._loop.call_soon)

    def _look_again_in(self, seconds: float) -> None:
        """Let Dask ask the queue again, as it does where a core is free."""
        self._loop.call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        if not self._is_closed:
            self._scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=STIMULUS)

    def _session_of(self, job: str) -> str | None:
        home = self._homes.get(job)
        return None if home is None else home.session

    def _held_seconds(self) -> dict[str, list[float]]:
        """Return for how long each running task has held its core, by job, as the workers said last."""
        now, held = time.time(), defaultdict[str, list[float]](list)
        for worker in self._scheduler.workers.values():
            for task, seconds in worker.executing.items():
                if task.processing_on is worker:  # it has not ended since
                    held[self._account_of(task.key)].append(seconds + now - worker.last_seen)
        return held

    def _follow_wishes(self) -> None:
        if self._desk.accounts.policy is not self._wishes.in_force:
            self._desk.accounts.policy = self._wishes.in_force
            self._plan_soon()
        if self._slots.policy is not self._slot_wishes.in_force:
            self._slots.policy = self._slot_wishes.in_force
            self._plan_soon()

    def _cores(self) -> int:
        return sum(worker.nthreads for worker in self._scheduler.running)

    def _take_in(self, description: JobDescription) -> None:
        if description.id not in self._desk:
            self._desk.enter(description, time.monotonic())
            self._plan_soon()

    def _plan_soon(self) -> None:
        """Plan once this event is handled. Several jobs that come together then get one plan."""
        self._plan_in(0.0)

    def _plan_if_due(self) -> None:
        if self._desk.accounts.is_due(time.monotonic(), self._cores()):
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
        self._absence.look({home.client for home in self._homes.values()})
        if messages.FOREIGN in self._desk and not self._enforcement.has_tasks_of(messages.FOREIGN):
            self._desk.rest(messages.FOREIGN)
        for job, is_waiting in self._clients.changed(self._enforcement.has_tasks_of):
            self._desk.accounts.set_waiting(job, is_waiting)
        self._stop(self._desk.share_out(time.monotonic(), self._cores()))
        cores = self._desk.plan.cores_by_job()
        self._slots.look(time.monotonic(), cores, cores)
        self._gangs.look()
        if len(self._desk):
            self._plan_in(EPOCH_SECONDS)

    def _stop(self, jobs: Iterable[str]) -> None:
        """Ask the sessions of these jobs to end them. Tasks of other programs have none."""
        by_session = defaultdict[str, list[str]](list)
        for job in jobs:
            if (home := self._homes.get(job)) is not None:
                by_session[home.session].append(job)
        for session, stopped in by_session.items():
            messages.tell_session(self._scheduler, session, messages.Stops(tuple(stopped)))


def tell_clients(scheduler: Scheduler, category: type[Warning], text: str) -> None:
    """Show a warning in the process of every client, as Dask's own workers do."""
    message = {"message": pickle.dumps(text), "category": pickle.dumps(category)}
    scheduler.log_event("warn", message)


def core_seconds_of(message: Mapping[str, Any]) -> float | None:
    """Return the core-seconds of a task that has ended, None if Dask was told nothing of them.

    Our tasks measured them. For other tasks they are the time that a thread was busy with the task.
    """
    metadata = message.get("metadata") or {}
    if messages.CORE_SECONDS in metadata:
        return float(metadata[messages.CORE_SECONDS])
    computed = [each for each in message.get("startstops") or () if each["action"] == "compute"]
    return sum(each["stop"] - each["start"] for each in computed) if computed else None
