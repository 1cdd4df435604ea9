"""Tasks as Dask is given them: each by itself, and once what the tasks of a step have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dask.task_spec import Task as GraphTask
from dask.task_spec import TaskRef
from dask.typing import Key

from relaqs.executors.dask.flights import Parcel
from relaqs.executors.dask.names import COMMON_INDEX
from relaqs.executors.dask.task import common_part, run_task


def key_of(job: str, parcel: Parcel) -> Key:
    """Return the key of a task. job: its name on the cluster."""
    return (job, parcel.key.step, parcel.key.index)


def graph_of(job: str, parcels: Sequence[Parcel], versions: str) -> dict[Key, GraphTask]:
    """Return the tasks by their keys.

    Workers fetch what tasks have in common from each other. Where all that had it are gone, Dask makes it
    again from what it was sent.

    Args:
        job: its name on the cluster.
        versions: those of the client.
    """
    graph: dict[Key, GraphTask] = {}
    for parcel in parcels:
        key, common = key_of(job, parcel), list[TaskRef]()
        if parcel.common is not None:
            of_step = (job, parcel.key.step, COMMON_INDEX)
            graph[of_step] = _data_producer(of_step, common_part, parcel.common)
            common = [TaskRef(of_step)]
        graph[key] = _data_producer(key, run_task, versions, parcel.pickled, *common)
    return graph


def _data_producer(key: Key, function: Callable[..., object], *arguments: object) -> GraphTask:
    """Return a task that waits on the scheduler until a core is free, instead of in a worker's own queue."""
    return GraphTask(key, function, *arguments, _data_producer=True)
