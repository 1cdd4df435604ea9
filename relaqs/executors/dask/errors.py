"""What Dask says of a task that gave no result, in this project's words."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

from distributed import KilledWorker
from relaqs_engine.errors import ClusterError, RelaqsError

from relaqs.executors.intact_files import UnseenFileError
from relaqs.jobs.job import TaskKey, TaskResult

# Why Dask cancels a task that nobody asked to cancel; such a task is simply sent again.
CONNECTION_LOST = "scheduler-connection-lost"
RESTARTED = "scheduler-restart"  # somebody called Client.restart


class UnseenThereError(Exception):
    """A worker does not see a file that its task reads. Whether anybody does, the client finds out."""

    def __init__(self, path: str, address: str) -> None:
        super().__init__(path, address)
        self.path = path
        self.address = address


def seen_from_here(result: TaskResult) -> TaskResult:
    """Return the result as the client tells it: what a worker does not see may be there, or be gone.

    To be called in the client's process, which found the table there.
    """
    if not isinstance(error := result.error, UnseenThereError):
        return result
    told: RelaqsError = UnseenFileError(error.path)
    if Path(error.path).exists():
        told = ClusterError(
            f"the worker at {error.address} does not see {error.path}, which this process sees; give all "
            "workers the same path to the data"
        )
    return replace(result, error=told)


def reason_of(error: BaseException) -> str | None:
    """Return why Dask cancelled the task, None if it did not."""
    reason: str | None = getattr(error, "reason", None)
    return reason


def lost(address: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"the Dask scheduler at {address} does not answer any more ({error}); see whether it runs"
    )


def explained(address: str, key: TaskKey, error: BaseException) -> ClusterError:
    """Return why a task gave no result, and what to do about it."""
    if isinstance(error, ClusterError):  # said over there, in full
        return error
    task = f"task {key.index} of step {key.step} of job {key.job}"
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"{task} killed its worker {error.allowed_failures + 1} times, the last at "
            f"{error.last_worker.address}; probably for want of memory: see that worker's log"
        )
    if isinstance(error, CancelledError | asyncio.CancelledError):
        return ClusterError(
            f"the cluster at {address} lost {task} ({error}): its scheduler or the client was "
            "closed or restarted; see whether it runs, and run the job again"
        )
    cause = error.__cause__ or error
    said = f"{type(cause).__name__}: {cause}".splitlines()[0]
    return ClusterError(
        f"{task} gave no result ({said}); see that it and its result can be pickled, and give workers, "
        "scheduler and client the same packages"
    )
