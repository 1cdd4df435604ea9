"""A task on a worker of the cluster: how it runs, how it is stopped, and what it tells the scheduler."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import threading
import traceback
from dataclasses import replace
from typing import Any

from distributed import WorkerPlugin, get_worker
from distributed.protocol import pickle
from relaqs_engine.errors import ClusterError, RelaqsError

from relaqs import worker
from relaqs.executors.base import run_measured
from relaqs.executors.dask.connection import named_versions
from relaqs.executors.dask.names import CORE_SECONDS, job_of
from relaqs.job import Task, TaskResult


def run_task(name: str, wanted: str, pickled: bytes) -> TaskResult:
    """Return the task's result, its error as a value. Runs on a worker's thread.

    name: of the job on this cluster. wanted: the client's `named_versions`. pickled: a Task, so that the
    scheduler need not look into it. Raises ClusterError on a worker that joined late with other versions,
    whose results must not be mixed with the rest.
    """
    if (found := named_versions()) != wanted:
        raise ClusterError(
            f"the worker at {get_worker().address} has {found}, the client {wanted}; install the same "
            "packages there, start it again, and run the job again"
        )
    task: Task = pickle.loads(pickled)
    result = run_measured(task, name)
    tell_core_seconds(result.core_seconds)
    if result.error is None:
        return result
    return replace(result, error=portable(result.error, get_worker().address))


def tell_core_seconds(core_seconds: float) -> None:
    """Put what the running task took where it goes to the scheduler, in the message that it has ended."""
    dask_worker = get_worker()
    state = dask_worker.state.tasks.get(dask_worker.get_current_task())
    if state is not None:  # None: it was released meanwhile
        state.metadata[CORE_SECONDS] = core_seconds


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


class InterruptReleased(WorkerPlugin):
    """Stops a running task that nobody waits for any more: its job was cancelled, or its client died."""

    name = "relaqs-interrupt"
    idempotent = True

    def transition(self, key: object, start: str, finish: str, **kwargs: Any) -> None:
        """Called by the worker, in its event loop, which must not wait for the interruption."""
        if start == "executing" and finish == "released" and (name := job_of(key)) is not None:
            threading.Thread(target=worker.interrupt, args=(name,), daemon=True).start()
