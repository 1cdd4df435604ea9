"""A task on a worker of the cluster: how it runs, how it is stopped, and what it tells the scheduler."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import threading
import traceback
from dataclasses import replace
from typing import Any

from distributed import Reschedule, Worker, WorkerPlugin, get_worker, secede
from distributed.protocol import pickle
from relaqs_engine.duck import Interrupted
from relaqs_engine.errors import ClusterError, InternalError, fault_of, shortened

from relaqs.executors import duck_process as worker
from relaqs.executors.dask.connection import named_versions
from relaqs.executors.dask.errors import UnseenThereError
from relaqs.executors.dask.flights import with_common
from relaqs.executors.dask.names import CORE_SECONDS, job_of
from relaqs.executors.intact_files import UnseenFileError
from relaqs.executors.local_folder import use_folder_of_worker
from relaqs.jobs.executor import run_measured
from relaqs.jobs.job import Task, TaskResult
from relaqs.jobs.threads import core_wanted_by

LONGEST_TRACE = 10_000  # characters of a traceback that a client gets


def common_part(pickled: bytes) -> object:
    """Return what the tasks of a step have in common. It counts for nobody's time."""
    tell_core_seconds(get_worker(), 0.0)
    common: object = pickle.loads(pickled)
    return common


def run_task(wanted: str, pickled: bytes, common: object = None) -> TaskResult:
    """Return the task's result, its error as a value. Runs on a worker's thread.

    wanted: the client's `named_versions`. pickled: a Task, so that the scheduler need not look into it.
    common: what it has in common with others, where that was sent by itself.
    Raises ClusterError on a worker that joined late with other versions, whose results must not be mixed
    with the rest, and Reschedule where the run was interrupted: a task that is wanted still is run again.
    """
    dask_worker = get_worker()
    if (found := named_versions()) != wanted:
        raise ClusterError(
            f"the worker at {dask_worker.address} has {found}, the client {wanted}; install the same "
            "packages there, start it again, and run the job again"
        )
    task: Task = pickle.loads(pickled)
    if common is not None:
        task = with_common(task, common)
    if task.whole_seconds is not None:
        secede()  # nothing is to wait behind it: `Rooms` says what may start beside it
    with core_wanted_by(lambda: bool(dask_worker.state.ready)):
        result = run_measured(task, run_of(dask_worker, dask_worker.get_current_task()))
    tell_core_seconds(dask_worker, result.core_seconds)
    if result.error is None:
        return result
    if isinstance(result.error, Interrupted):
        raise Reschedule
    return replace(result, error=portable(result.error, dask_worker.address))


def run_of(dask_worker: Worker, key: Any) -> str:
    """Return the name of the task's run on this worker. If it is wanted again later, that is another run."""
    state = dask_worker.state.tasks.get(key)
    return f"{key}, run {state.run_id if state is not None else None}"


def tell_core_seconds(dask_worker: Worker, core_seconds: float) -> None:
    """Put what the running task took where it goes to the scheduler, in the message that it has ended."""
    state = dask_worker.state.tasks.get(dask_worker.get_current_task())
    if state is not None:  # None: it was released meanwhile
        state.metadata[CORE_SECONDS] = core_seconds


def portable(error: BaseException, address: str) -> BaseException:
    """Return an error that says where it happened and survives pickling."""
    if isinstance(error, UnseenFileError):
        return UnseenThereError(error.path, address)
    trace = shortened("".join(traceback.format_exception(error)), LONGEST_TRACE)
    error.add_note(f"on the worker at {address}:\n{trace}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return InternalError(f"a task on the worker at {address}", fault_of(error))
    return error


class InterruptReleased(WorkerPlugin):
    """Stops a running task that nobody waits for any more: its job was cancelled, or its client died.

    It stops that run alone, since the job may go on: a result that has just been fetched from a worker that
    dies is computed again, until the scheduler hears that it is not needed.
    """

    name = "relaqs-interrupt"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        use_folder_of_worker(worker.local_directory)

    def transition(self, key: object, start: str, finish: str, **kwargs: Any) -> None:
        """Called by the worker, in its event loop, which must not wait for the interruption."""
        runs = start in ("executing", "long-running")  # the latter left its core, and may have one again
        if runs and finish == "released" and job_of(key) is not None:
            run = run_of(self._worker, key)
            threading.Thread(target=worker.interrupt, args=(run,), daemon=True).start()
