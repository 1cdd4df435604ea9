"""The executor on a Dask cluster, and what it puts there: a function that runs a task, and a worker plugin.

The only module that knows Dask. Tasks of a step go to the scheduler in one message and wait there; each
result is gathered as soon as it exists, since what a worker holds is lost with the worker.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
import traceback
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from dask.base import annotate
from dask.task_spec import Task as GraphTask
from distributed import Client, Future, KilledWorker, WorkerPlugin, get_worker
from distributed.comm.addressing import resolve_address
from distributed.protocol import pickle
from relaqs_engine.duck import DUCKDB_VERSION
from relaqs_engine.errors import ClusterError, RelaqsError

from relaqs import worker
from relaqs.executors.base import Done, client_name, run_measured
from relaqs.executors.fair import FairStarts
from relaqs.job import StepReport, Task, TaskKey, TaskResult
from relaqs.policies import DEFAULT_POLICY, Policy, chosen_policy
from relaqs.scheduling import Allocator, ClusterStatus, JobDescription

CONNECT_SECONDS = 5.0
CAPACITY_SECONDS = 1.0  # how old the count of the cluster's cores may be: asking takes milliseconds
LEAST_SHARE_CORES = 1e-3  # a job whose share is nothing still has a place in the order
KEY_PREFIX = "relaqs-"

Futures = dict[TaskKey, Future[TaskResult]]


@dataclass(slots=True)
class _Flight:
    """What of one job is on the cluster. name: the job's, unique among all clients of the cluster."""

    name: str
    futures: Futures = field(default_factory=dict)


class DaskExecutor:
    """An `Executor` on a Dask cluster. cluster: its scheduler's address, or a synchronous client of it.

    A client that was handed in stays open. Raises ClusterError if the cluster cannot be reached, or cannot
    run this version of ReLAQS.
    """

    def __init__(
        self,
        cluster: str | Client,
        *,
        policy: str | Policy = DEFAULT_POLICY,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self._owns_client = isinstance(cluster, str)
        self._client = connect(cluster, connect_seconds) if isinstance(cluster, str) else checked(cluster)
        assert self._client.scheduler is not None  # it is connected
        assert self._client.loop is not None
        self._scheduler = self._client.scheduler
        self._address = self._scheduler.address
        self._loop = self._client.loop
        self._session = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}
        self._allocator = Allocator(chosen_policy(policy))  # of this client's jobs alone
        self._shares: dict[str, float] = {}
        self._is_closed = False
        self._cores = 0
        self._counted_seconds = -math.inf  # on the monotonic clock
        try:
            check_workers(self._client)
            self._client.register_plugin(InterruptReleased())
            self._starts = FairStarts(max(1, self.capacity))
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        self._check_open()
        if time.monotonic() - self._counted_seconds >= CAPACITY_SECONDS:
            self._cores = self._count_cores()
            self._counted_seconds = time.monotonic()
        return self._cores

    def _count_cores(self) -> int:
        try:
            # What Client.nthreads() asks, which would wait for a dead scheduler's answer for half a minute.
            threads = self._client.sync(self._scheduler.ncores, callback_timeout=CONNECT_SECONDS)
        except OSError as error:
            raise self._lost(error) from error
        return sum(threads.values())

    def enter(self, description: JobDescription) -> None:
        self._check_open()
        with self._lock:
            self._flights[description.id] = _Flight(f"{KEY_PREFIX}{description.id}-{self._session}")
            self._allocator.enter(replace(description, client=client_name()), time.monotonic())

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        self._check_open()
        if not tasks:
            return
        job = tasks[0].key.job
        capacity = self.capacity
        with self._lock:
            if (flight := self._flights.get(job)) is None:
                raise ValueError(f"job {job!r} has not entered; call enter with its description first")
            weight = self._share_of(job, capacity)
            starts = self._starts.plan(job, weight, len(tasks), time.time())
            try:
                futures = self._send(flight.name, weight, tasks, starts)
            except Exception as error:  # a closed client raises a bare Exception
                raise self._lost(error) from error
            flight.futures |= futures
        for key, future in futures.items():
            self._loop.add_callback(self._deliver, job, key, future, done)

    def report(self, job_id: str, report: StepReport) -> None:
        with self._lock:
            self._allocator.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        """Change the job's weight, for the steps that are submitted from now on."""
        with self._lock:
            self._allocator.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        with self._lock:
            self._allocator.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        with self._lock:
            self._allocator.set_waiting(job_id, is_waiting)

    def status(self) -> ClusterStatus:
        capacity = self.capacity
        with self._lock:
            return self._allocator.status(time.monotonic(), capacity)

    def cancel(self, job_id: str) -> None:
        with self._lock:
            flight = self._flights.pop(job_id, None)
            self._starts.drop(job_id)
            self._allocator.leave(job_id)
            self._shares.pop(job_id, None)
        if flight is None or not flight.futures or self._client.status != "running":
            return
        # The scheduler drops what waits; on the workers InterruptReleased stops what runs. A client that
        # loses its cluster meanwhile raises a bare Exception; then nothing is left to cancel.
        with contextlib.suppress(Exception):
            self._client.cancel(list(flight.futures.values()), reason="job-cancelled")

    def close(self) -> None:
        self._is_closed = True
        for job_id in list(self._flights):
            self.cancel(job_id)
        if self._owns_client:
            self._client.close()

    def describe(self) -> str:
        try:
            return f"the Dask cluster at {self._address}, {self.capacity} cores"
        except ClusterError:
            return f"the Dask cluster at {self._address}, out of reach"

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterError("this session is closed; open another with relaqs.connect")
        if self._client.status != "running":
            raise ClusterError(
                f"the connection to the Dask scheduler at {self._address} is {self._client.status}; see "
                "whether it runs, and open another session with relaqs.connect"
            )

    def _share_of(self, job: str, capacity_cores: float) -> float:
        """Return the job's planned cores, and tell the others' if there is a new plan."""
        now_seconds = time.monotonic()
        if self._allocator.is_due(now_seconds, capacity_cores):
            for each, cores in self._allocator.plan(now_seconds, capacity_cores).cores_by_job().items():
                self._shares[each] = max(cores, LEAST_SHARE_CORES)
                self._starts.set_weight(each, self._shares[each])
        return self._shares.get(job, LEAST_SHARE_CORES)

    def _send(self, name: str, weight: float, tasks: Sequence[Task], starts: Sequence[float]) -> Futures:
        """Submit the tasks in one message. Of those that wait on the scheduler the earliest start is next."""
        keys = [(name, task.key.step, task.key.index) for task in tasks]
        graph = {
            # A data producer waits on the scheduler until a core is free, instead of in a worker's own queue:
            # so its order, cancelling and workers that join take effect at once.
            key: GraphTask(key, run_task, name, pickle.dumps(task), _data_producer=True)
            for key, task in zip(keys, tasks, strict=True)
        }
        priorities = dict(zip(keys, (-start for start in starts), strict=True))
        with annotate(relaqs={"job": name, "weight": weight}, priority=priorities.get):
            futures = self._client.get(graph, keys, sync=False)
        return {task.key: future for task, future in zip(tasks, futures, strict=True)}

    async def _deliver(self, job: str, key: TaskKey, future: Future[TaskResult], done: Done) -> None:
        """Wait for one result, fetch it, let the cluster forget it and hand it over. On the client's loop."""
        try:
            # Fetches of results that are there together are joined to one message by the client.
            result: TaskResult = await self._client.gather(future, asynchronous=True)
        except (Exception, asyncio.CancelledError) as error:
            result = TaskResult(key, None, 0.0, self._explained(key, error))
        future.release()
        with self._lock:
            flight = self._flights.get(job)
            if flight is None or flight.futures.pop(key, None) is None:
                return  # cancelled meanwhile
            self._starts.settle(job, result.core_seconds, time.time())
            self._allocator.charge(job, result.core_seconds, time.monotonic())
        done(result)

    def _lost(self, error: BaseException) -> ClusterError:
        return ClusterError(
            f"the Dask scheduler at {self._address} does not answer any more ({error}); see whether it runs"
        )

    def _explained(self, key: TaskKey, error: BaseException) -> ClusterError:
        """Return what Dask says of a task that gave no result, in this project's words."""
        task = f"task {key.index} of step {key.step} of job {key.job}"
        if isinstance(error, KilledWorker):
            return ClusterError(
                f"{task} killed its worker {error.allowed_failures + 1} times, the last at "
                f"{error.last_worker.address}; probably for want of memory: see that worker's log"
            )
        if isinstance(error, CancelledError | asyncio.CancelledError):
            return ClusterError(
                f"the cluster at {self._address} lost {task} ({error}): its scheduler or the client was "
                "closed or restarted; see whether it runs, and run the job again"
            )
        cause = error.__cause__ or error
        said = f"{type(cause).__name__}: {cause}".splitlines()[0]
        return ClusterError(
            f"{task} gave no result ({said}); see that it and its result can be pickled, and give workers, "
            "scheduler and client the same packages"
        )


def connect(address: str, connect_seconds: float) -> Client:
    """Return a client of our own, which does not become the process's default one."""
    try:
        resolve_address(address)  # here a wrong one is told at once; a client of one takes seconds to close
        return Client(
            address, timeout=connect_seconds, set_as_default=False, asynchronous=False, name="relaqs"
        )
    except ValueError as error:
        raise ClusterError(
            f"{address!r} is not the address of a Dask scheduler ({error}); write it as tcp://host:8786"
        ) from error
    except OSError as error:
        raise ClusterError(
            f"no Dask scheduler answered at {address} within {connect_seconds:g} s ({error}); check the "
            "address, that `dask scheduler` runs there, and that no firewall is between"
        ) from error


def checked(client: object) -> Client:
    """Return the user's client. Raises ClusterError if it cannot be used from other threads, or is closed."""
    if not isinstance(client, Client):
        raise TypeError(f"cluster is {client!r}; give a scheduler's address or a dask.distributed.Client")
    if client.asynchronous:
        raise ClusterError(
            "the client is asynchronous; give the scheduler's address, or a Client(asynchronous=False)"
        )
    if client.status != "running":
        raise ClusterError(f"the client is {client.status}; give one that is connected to a cluster")
    return client


def versions() -> dict[str, str]:
    """Return the versions that must agree, since partial results of different ones must not be mixed."""
    return {"relaqs": version("relaqs"), "duckdb": DUCKDB_VERSION}


def check_workers(client: Client) -> None:
    """Raise ClusterError if a worker cannot import ReLAQS, or has another version of what must agree."""
    wanted = versions()
    for address, found in client.run(versions, on_error="return").items():
        if isinstance(found, Exception):
            raise ClusterError(
                f"the worker at {address} cannot run ReLAQS ({found}); install there what is here: {wanted}"
            )
        if found != wanted:
            raise ClusterError(
                f"the worker at {address} has {found}, this process {wanted}; install the same packages there"
            )


class InterruptReleased(WorkerPlugin):
    """Stops a running task that nobody waits for any more: its job was cancelled, or its client died."""

    name = "relaqs-interrupt"
    idempotent = True

    def transition(self, key: object, start: str, finish: str, **kwargs: Any) -> None:
        """Called by the worker, in its event loop, which must not wait for the interruption."""
        if start == "executing" and finish == "released" and isinstance(key, tuple):
            name = key[0]
            if isinstance(name, str) and name.startswith(KEY_PREFIX):
                threading.Thread(target=worker.interrupt, args=(name,), daemon=True).start()


def run_task(name: str, pickled: bytes) -> TaskResult:
    """Return the task's result, its error as a value. Runs on a worker's thread.

    name: of the job on this cluster. pickled: a Task, so that the scheduler need not look into it.
    """
    task: Task = pickle.loads(pickled)
    result = run_measured(task, name)
    if result.error is None:
        return result
    return replace(result, error=portable(result.error, get_worker().address))


def portable(error: BaseException, address: str) -> BaseException:
    """Return an error that says where it happened and survives pickling."""
    if isinstance(error, worker.UnseenFileError):
        return ClusterError(
            f"the worker at {address} does not see {error.path}; give all workers the same path to the data"
        )
    error.add_note(f"on the worker at {address}:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RelaqsError(f"{type(error).__name__} on the worker at {address}: {error}")
    return error
