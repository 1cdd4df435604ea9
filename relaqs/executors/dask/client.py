"""The executor of a client: it sends tasks, and hands results over. The plugin decides who runs next.

The tasks of a step go to the scheduler in one message and wait there. Each result is gathered as soon as
it exists, since what a worker holds is lost with the worker.

`ClientShare` is a share of the cluster's cores for one Dask client with tasks of any program.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from distributed import Client, Future, Security
from distributed.protocol import pickle
from relaqs_engine.errors import ClusterError

from relaqs.arguments import check_priority
from relaqs.executors.dask import messages
from relaqs.executors.dask.link import Link, checked, connect, secured
from relaqs.executors.dask.peer_agent import install_agents
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.executors.dask.slots import GangDriver, tell_driver
from relaqs.executors.dask.task import (
    CONNECTION_LOST,
    RESTARTED,
    JobInFlight,
    Parcel,
    explained,
    graph_of,
    key_of,
    lost,
    parcels_of,
    reason_of,
    seen_from_here,
)
from relaqs.executors.slot_desk import slots_of, worker_of
from relaqs.jobs.executor import Done, Stoppable, client_name
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task, TaskKey, TaskResult
from relaqs.policies import DEFAULT_POLICY, chosen_policy
from relaqs.policies.registry import chosen_slot_policy
from relaqs.sharing.gangs import Gang, SlotPolicy
from relaqs.sharing.view import Policy

CONNECT_SECONDS = 5.0
RECONNECT_SECONDS = 60.0  # for a scheduler to be started again
CLOSE_SECONDS = 10.0
BREAK_SECONDS = 0.1  # within which all connections to a process that died break
PLACED_PRIORITY = 1  # of tasks with a place, before all others that the worker has
_FIRST_STEPS = 3  # of a job, whose results come in messages of their own: a first estimate and a small answer
CAPACITY_SECONDS = 1.0  # how old the count of the cluster's cores may be: asking takes milliseconds


class DaskExecutor:
    """An `Executor` on a Dask cluster.

    What callers ask is done on the client's event loop, in the order of their calls. So it needs no lock.

    Args:
        cluster: the address of its scheduler, or a synchronous client of it, which stays open.
        policy: who gets how much, among the jobs of all clients. The default follows whatever is in force.
        slot_policy: who of the gangs gets which slots; its default alike.
        security: the certificates for a scheduler that speaks TLS. None: what Dask's configuration says.
        connect_seconds: how long to try to reach the scheduler.
        reconnect_seconds: how long jobs wait for a scheduler that went away and is started again. A client
            that was handed in has its own timeout.

    Raises:
        ClusterError: the cluster cannot be reached, or cannot run this version of ReLAQS.
    """

    def __init__(
        self,
        cluster: str | Client,
        *,
        policy: str | Policy = DEFAULT_POLICY,
        slot_policy: str | SlotPolicy | None = None,
        security: Security | Mapping[str, Any] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        self._owns_client = isinstance(cluster, str)
        self._client = (
            connect(
                cluster, connect_seconds, reconnect_seconds, None if security is None else secured(security)
            )
            if isinstance(cluster, str)
            else checked(cluster)
        )
        self._session = uuid.uuid4().hex[:8]
        self._link = Link(
            self._client,
            self._session,
            None if policy == DEFAULT_POLICY else chosen_policy(policy),
            None if slot_policy is None else chosen_slot_policy(slot_policy),
            on_answer=self._on_answer,
            on_back=self._register_again,
            on_lost=self._fail_all,
            on_restarted=self._send_unsent,
        )
        self._address = self._link.address
        assert self._client.loop is not None  # it is connected
        self._loop = self._client.loop
        self._flights: dict[str, JobInFlight] = {}
        self._is_closed = False
        self._cores = 0
        self._counted_seconds = -math.inf  # on the monotonic clock
        try:
            self._client.sync(self._link.open)
            self._cores = self._count_cores()
        except OSError as error:
            self.close()
            raise lost(self._address, error) from error
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        """Cores that run tasks now; while the scheduler is busy or out of reach, the last count."""
        self._check_open()
        if time.monotonic() - self._counted_seconds >= CAPACITY_SECONDS:
            if self._client.status != "connecting":
                with contextlib.suppress(OSError):  # jobs wait for it, and are told if it does not come back
                    self._cores = self._count_cores()
            self._counted_seconds = time.monotonic()
        return self._cores

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._check_open()
        flight = JobInFlight(
            replace(description, id=self._name_there(description.id), client=client_name()), driver
        )
        self._do(self._enter, flight, description.id)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        self._check_open()
        if tasks:
            self._do(self._submit, tasks[0].key.job, parcels_of(tasks, done))

    def report(self, job_id: str, report: StepReport) -> None:
        self._do(self._tell, job_id, messages.StepFolded(self._name_there(job_id), report))

    def set_weight(self, job_id: str, weight: float) -> None:
        self._do(self._tell, job_id, messages.SetWeight(self._name_there(job_id), weight))

    def set_target(self, job_id: str, target: float | None) -> None:
        self._do(self._tell, job_id, messages.SetTarget(self._name_there(job_id), target))

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._do(self._tell, job_id, messages.SetWaiting(self._name_there(job_id), is_waiting))

    def slots(self) -> tuple[str, ...]:
        """Return all slots of the cluster: one for each thread of a worker."""
        self._check_open()
        try:
            return slots_of(self._threads())
        except OSError as error:
            raise lost(self._address, error) from error

    def peers(self) -> tuple[str, ...]:
        """Return the addresses of all workers. They can send each other letters then."""
        self._check_open()
        try:
            self._client.sync(self._link.install, install_agents, callback_timeout=CONNECT_SECONDS)
            return tuple(sorted(self._threads()))
        except OSError as error:
            raise lost(self._address, error) from error

    def lease(self, job_id: str, slots: tuple[str, ...]) -> None:
        """Ask that a gang hold these slots and no others. Its driver hears when it does."""
        self._check_open()
        self._do(self._tell, job_id, messages.Lease(self._name_there(job_id), slots))

    def tell_gang(self, job_id: str, gang: Gang) -> None:
        """Say how a gang gets on. Its driver hears which slots it is offered."""
        name = self._name_there(job_id)
        self._do(self._tell, job_id, messages.GangTold(name, replace(gang, id=name)))

    def ask_turn(self, job_id: str, slots: tuple[str, ...] = (), number: int = 0) -> None:
        """Ask for a gang's next turn. Its driver hears when it may take it.

        Args:
            slots: which it holds from that turn until it asks again, or leases others. What it holds is free
                meanwhile. Empty: those that it leases.
            number: that the driver hears then.
        """
        self._do(self._tell, job_id, messages.AskTurn(self._name_there(job_id), slots, number))

    def status(self) -> ClusterStatus:
        """Return how the jobs of all clients stand. Those of this session go by the ids it gave them."""
        self._check_open()
        try:
            status: ClusterStatus = self._client.sync(self._link.status, callback_timeout=CONNECT_SECONDS)
        except OSError as error:
            raise lost(self._address, error) from error
        own = {flight.name: job for job, flight in list(self._flights.items())}
        jobs = tuple(replace(job, id=own.get(job.id, job.id)) for job in status.jobs)
        return replace(status, jobs=jobs)

    def stop_of_any(self, job: str) -> None:
        """Stop a job of any client, by its id in `status`; it ends with what there is.

        Raises ClusterError if there is none, or if it is made of tasks of other programs.
        """
        self._ask_for_job(self._link.stop_job, self._named(job))

    def cap_of_any(self, job: str, cores: int) -> None:
        """Limit the cores of a job of any client at once. Raises ClusterError as `stop_of_any` does."""
        self._ask_for_job(self._link.cap_job, self._named(job), cores)

    def _named(self, job: str) -> str:
        return self._name_there(job) if job in self._flights else job

    def _ask_for_job(self, ask: Callable[..., Awaitable[str | None]], *arguments: object) -> None:
        self._check_open()
        try:
            why_not = self._client.sync(ask, *arguments, callback_timeout=CONNECT_SECONDS)
        except OSError as error:
            raise lost(self._address, error) from error
        if why_not is not None:
            raise ClusterError(why_not)

    def cancel(self, job_id: str) -> None:
        self._do(self._cancel, job_id)

    def close(self) -> None:
        self._is_closed = True
        if self._client.status == "running":
            with contextlib.suppress(OSError):  # the scheduler went away meanwhile: nothing to cancel
                self._client.sync(self._cancel_all, callback_timeout=CLOSE_SECONDS)
        if self._owns_client:
            self._client.close(CLOSE_SECONDS)

    def describe(self) -> str:
        try:
            return f"the Dask cluster at {self._address}, {self.capacity} cores"
        except ClusterError:
            return f"the Dask cluster at {self._address}, out of reach"

    def _name_there(self, job_id: str) -> str:
        """Return the job's name on the cluster, unique among all sessions."""
        return f"{messages.KEY_PREFIX}{job_id}-{self._session}"

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterError("this session is closed; open another with relaqs.connect")
        if self._link.is_out:
            raise ClusterError(
                f"the connection to the Dask scheduler at {self._address} is {self._client.status}; see "
                "whether it runs, and open another session with relaqs.connect"
            )

    def _count_cores(self) -> int:
        """Return the threads of all workers. Raises OSError if the scheduler does not answer."""
        return sum(self._threads().values())

    def _threads(self) -> dict[str, int]:
        assert self._client.scheduler is not None
        # What Client.nthreads() asks, which would wait for a dead scheduler's answer for half a minute.
        threads: dict[str, int] = self._client.sync(
            self._client.scheduler.ncores, callback_timeout=CONNECT_SECONDS
        )
        return threads

    # On the event loop of the client.

    def _do(self, action: Callable[..., None], *arguments: object) -> None:
        self._loop.add_callback(action, *arguments)

    def _enter(self, flight: JobInFlight, job_id: str) -> None:
        self._flights[job_id] = flight
        self._link.tell(messages.Enter(flight.description, self._session))

    def _tell(self, job_id: str, message: messages.StepFolded | messages.Setting) -> None:
        """Pass on what is said of a job, and keep it for a scheduler that comes back."""
        if (flight := self._flights.get(job_id)) is not None:
            flight.note(message)
            self._link.tell(message)

    def _submit(self, job_id: str, parcels: Sequence[Parcel]) -> None:
        flight = self._flights.get(job_id)
        if flight is None:
            return  # cancelled meanwhile
        flight.parcels |= {parcel.key: parcel for parcel in parcels}
        if self._link.takes_tasks:  # else they go when it does
            self._dispatch(flight, parcels)

    def _dispatch(self, flight: JobInFlight, parcels: Sequence[Parcel]) -> None:
        """Send tasks, those of a gang to their places. Above a cap they are held."""
        if parcels and parcels[0].place is not None:  # a gang has asked before
            for place in {parcel.place for parcel in parcels}:
                self._send(flight, [parcel for parcel in parcels if parcel.place == place], place)
        else:
            flight.held.extend(parcels)
            self._send_held(flight)

    def _send_held(self, flight: JobInFlight) -> None:
        """Send what is held and has room."""
        if released := flight.released():
            self._send(flight, released)

    def _send(self, flight: JobInFlight, parcels: Sequence[Parcel], place: str | None = None) -> None:
        """Submit tasks in one message, to the cluster or to one worker."""
        try:
            keys = [key_of(flight.name, parcel) for parcel in parcels]
            graph = graph_of(flight.name, parcels, messages.named_versions())
        except Exception as error:  # here on the event loop nobody else would hear of it
            for parcel in parcels:
                self._hand_over(flight, TaskResult(parcel.key, None, 0.0, error))
            return
        for step, seconds in {parcel.key.step: parcel.whole_seconds for parcel in parcels}.items():
            if seconds is not None:
                self._link.tell(messages.RunsWhole(flight.name, step, seconds))
        try:
            # fifo_timeout: each step has a priority of its own, so that the job's steps keep their order.
            futures = self._client.get(
                graph,
                keys,
                sync=False,
                fifo_timeout="0ms",
                workers=None if place is None else [place],
                priority=0 if place is None else PLACED_PRIORITY,
            )
        except Exception as error:  # a closed client raises a bare Exception
            for parcel in parcels:
                self._hand_over(flight, TaskResult(parcel.key, None, 0.0, lost(self._address, error)))
            return
        for parcel, future in zip(parcels, futures, strict=True):
            flight.futures[parcel.key] = future
            self._loop.add_callback(self._deliver, flight, parcel, future)

    async def _deliver(self, flight: JobInFlight, parcel: Parcel, future: Future[TaskResult]) -> None:
        """Wait for one result, fetch it, let the cluster forget it and hand it over."""
        key = parcel.key
        try:
            is_alone = parcel.place is not None or key.step < _FIRST_STEPS
            result = await (self._fetched_alone(future) if is_alone else self._fetched(future))
        except (Exception, asyncio.CancelledError) as error:
            if await self._is_lost(error):
                self._resend(flight, key)
                future.release()  # else it holds the key of the new one until garbage is looked for
                return
            result = TaskResult(key, None, 0.0, explained(self._address, key, error))
        future.release()
        self._hand_over(flight, seen_from_here(result))

    async def _fetched(self, future: Future[TaskResult]) -> TaskResult:
        """Return a result. Those that are there together come in one message, as fast as the slowest."""
        result: TaskResult = await self._client.gather(future, asynchronous=True)
        return result

    async def _fetched_alone(self, future: Future[TaskResult]) -> TaskResult:
        """Return a result in a message of its own.

        Whoever places tasks waits for their workers together. Where one of them hangs, the results of the
        others tell it. So they must not wait in one message with a result that lies there. Nor are the first
        results of a query to wait for large ones of others.
        """
        await future.exception(asynchronous=True)  # it has come to an end
        if future.status == "finished":
            assert self._client.scheduler is not None
            found = await self._client.scheduler.gather(keys=[future.key])
            if found["status"] == "OK":
                return found["data"][future.key]  # type: ignore[no-any-return]
        return await self._fetched(future)  # it says what went wrong, or waits until the task has run again

    def _hand_over(self, flight: JobInFlight, result: TaskResult) -> None:
        flight.futures.pop(result.key, None)
        parcel = flight.parcels.pop(result.key, None)
        if parcel is not None:  # else the job was cancelled meanwhile
            parcel.done(result)
        if flight.most is not None and self._link.takes_tasks:
            self._send_held(flight)

    async def _is_lost(self, error: BaseException) -> bool:
        """Return whether a task is to be sent again, now or to a scheduler that comes back."""
        if self._link.is_out:
            return False
        if isinstance(error, OSError):  # of a fetch; perhaps the scheduler's connection breaks, too
            await asyncio.sleep(BREAK_SECONDS)
            return not self._link.is_up and not self._link.is_out
        if reason_of(error) == RESTARTED:
            self._link.note_restart()
        return reason_of(error) in (CONNECTION_LOST, RESTARTED)

    def _resend(self, flight: JobInFlight, key: TaskKey) -> None:
        flight.futures.pop(key, None)
        if key in flight.parcels and self._link.takes_tasks:
            self._dispatch(flight, [flight.parcels[key]])

    def _send_unsent(self) -> None:
        """Send what was kept back while workers were restarted."""
        for flight in self._flights.values():
            held = {parcel.key for parcel in flight.held}
            unsent = [
                parcel
                for key, parcel in flight.parcels.items()
                if key not in flight.futures and key not in held
            ]
            if unsent and self._link.takes_tasks:
                self._dispatch(flight, unsent)

    def _cancel(self, job_id: str) -> None:
        flight = self._flights.pop(job_id, None)
        if flight is None:
            return
        flight.parcels.clear()
        flight.held.clear()
        futures = list(flight.futures.values())
        if futures and self._link.is_up:
            # The scheduler drops what waits; on the workers InterruptReleased stops what runs.
            self._loop.add_callback(self._client.cancel, futures, reason="job-cancelled")
        self._link.tell(messages.Leave(flight.name))

    async def _cancel_all(self) -> None:
        for job_id in list(self._flights):
            self._cancel(job_id)
        self._link.close()

    def _register_again(self) -> None:
        """Tell a scheduler that was started again of all jobs, and send what has no result yet."""
        for flight in self._flights.values():
            self._give_up_places(flight, {parcel.place for parcel in flight.parcels.values() if parcel.place})
            self._link.tell(messages.Enter(flight.description, self._session))
            for message in flight.to_say_again():
                self._link.tell(message)
            flight.held.clear()
            flight.futures.clear()
            if flight.parcels:
                self._dispatch(flight, list(flight.parcels.values()))

    def _fail_all(self, error: ClusterError) -> None:
        for flight in self._flights.values():
            for key in list(flight.parcels):
                self._hand_over(flight, TaskResult(key, None, 0.0, error))
            if isinstance(flight.driver, GangDriver):
                flight.driver.unreachable(error)

    def _on_answer(self, answer: messages.Answer) -> None:
        match answer:
            case messages.Stops(jobs):
                self._stop(jobs)
            case messages.Cap(job, cores):
                self._cap(job, cores)
            case _:
                self._pass_on(answer)

    def _cap(self, job: str, cores: int) -> None:
        for flight in self._flights.values():
            if flight.name == job:
                flight.most = cores
                flight.description = replace(flight.description, cores_most=cores)
                if self._link.takes_tasks:
                    self._send_held(flight)

    def _pass_on(self, answer: messages.GangAnswer) -> None:
        """Pass on what the plugin says to the driver of a gang. What ran on lost slots has no result."""
        for flight in self._flights.values():
            if flight.name == answer.job and isinstance(flight.driver, GangDriver):
                if isinstance(answer, messages.MayTurn):
                    flight.said.pop(messages.AskTurn, None)
                if isinstance(answer, messages.SlotsLost):
                    self._give_up_places(flight, {worker_of(slot) for slot in answer.slots})
                tell_driver(flight.driver, answer)

    def _give_up_places(self, flight: JobInFlight, places: Collection[str]) -> None:
        """Drop the tasks that only these workers may run: the scheduler would keep them for ever."""
        for parcel in [parcel for parcel in flight.parcels.values() if parcel.place in places]:
            if (future := flight.futures.get(parcel.key)) is not None:
                future.release()
            gone = ClusterError(f"the worker at {parcel.place} is gone, with what it ran")
            self._hand_over(flight, TaskResult(parcel.key, None, 0.0, gone))

    def _stop(self, jobs: Collection[str]) -> None:
        """Ask the drivers of jobs that a plan stops to end them. They cancel their jobs here in turn."""
        for flight in self._flights.values():
            if flight.name in jobs and flight.driver is not None:
                flight.driver.end_by_plan()


class ClientShare:
    """The share that a Dask client has of its cluster's cores, until it is closed. A context manager.

    `share_cores` makes one.
    """

    def __init__(self, client: Client, name: str, weight: float, policy: str | Policy) -> None:
        self._client = checked(client)
        self._name = name
        self._weight = check_priority(weight)
        self._session = uuid.uuid4().hex[:8]
        self._client.sync(self._open, chosen_policy(policy))

    @property
    def weight(self) -> float:
        """How much the client counts. Set it at any time: 2.0 counts twice as much as 1.0."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = check_priority(weight)
        self._tell(messages.Share(self._name, self._weight))

    def close(self) -> None:
        """Count among all other programs again. The second call does nothing."""
        self._tell(messages.ShareNoMore())
        self._tell(messages.Bye(self._session))

    async def _open(self, policy: Policy) -> None:
        await self._client.register_plugin(RelaqsPlugin())
        hello = getattr(self._client.scheduler, messages.HELLO_RPC)
        answer = await hello(client=self._client.id, session=self._session, policy=pickle.dumps(policy))
        if answer is None or not messages.same_release(answer["version"]):
            raise ClusterError(
                "the Dask scheduler has another plugin called relaqs, or another release of it; install the "
                "same there, and start it again"
            )
        if answer["policy"] != policy.name:
            raise ClusterError(
                f"a session on this cluster has chosen the policy {answer['policy']!r}, this one asks for "
                f"{policy.name!r}; give policy={answer['policy']!r}, or wait until that one is closed"
            )
        self._send(messages.Share(self._name, self._weight))

    def _tell(self, message: messages.Message) -> None:
        if self._client.status == "running":
            assert self._client.loop is not None  # it is connected
            self._client.loop.add_callback(self._send, message)

    def _send(self, message: messages.Message) -> None:
        assert self._client.scheduler_comm is not None  # it is connected
        self._client.scheduler_comm.send({"op": messages.STREAM_OP, "message": pickle.dumps(message)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def share_cores(
    client: Client, weight: float = 1.0, *, name: str | None = None, policy: str | Policy = "weighted_fair"
) -> ClientShare:
    """Let a Dask client have its own share of the cluster's cores, whatever its tasks compute.

    Of the tasks that wait on the scheduler, the next is one of the client that is furthest behind its share.
    Clients that do not call this are one job together, of weight 1. The workers need no ReLAQS.

    Args:
        client: a connected `dask.distributed.Client`, not an asynchronous one.
        weight: with 2.0 it gets twice the cores of one with 1.0, while both have tasks that wait.
        name: for people, in `relaqs cluster list`; by default the process's.
        policy: who gets how much. All programs of a cluster have the same.

    Raises:
        ClusterError: the client is closed, or the cluster has another policy, or another release.
        ArgumentError: the weight is none.

    >>> with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as client:
    ...     with share_cores(client, weight=3.0):
    ...         sum(client.gather(client.map(abs, range(-3, 0))))
    6
    """
    return ClientShare(client, name or client_name(), weight, policy)
