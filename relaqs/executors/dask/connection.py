"""Connecting to a Dask cluster, and seeing that it can run this version of ReLAQS."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import time

from distributed import Client
from distributed.comm.addressing import resolve_address
from relaqs_engine.duck import DUCKDB_VERSION
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.names import RELAQS_VERSION

ANSWER_SECONDS = 10.0  # for a worker to tell its versions: the first time it imports all there is
LOOK_SECONDS = 0.2  # between two looks at which workers are there


def connect(address: str, connect_seconds: float, reconnect_seconds: float) -> Client:
    """Return a client of our own, which does not become the process's default one.

    reconnect_seconds: how long it looks for a scheduler that went away.
    """
    try:
        resolve_address(address)  # here a wrong one is told at once; a client of one takes seconds to close
        client = Client(
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
    client._timeout = reconnect_seconds  # Dask has one setting for both, and a restart takes longer
    return client


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
    return {"relaqs": RELAQS_VERSION, "duckdb": DUCKDB_VERSION}


def named_versions() -> str:
    """Return them in a line, as a task takes them along: workers may join after `check_workers`."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())


async def check_workers(client: Client) -> None:
    """Raise ClusterError if a worker cannot import ReLAQS, or has another version of what must agree.

    A worker that goes away while it is asked is not judged. Nor is one that hangs, as long as another
    answers: it is given up once a task or a result is there (`silence`). To be called on the client's event
    loop.
    """
    wanted = versions()
    silent, answers = await answers_of_workers(client)
    for address, found in answers.items():
        if isinstance(found, Exception):
            raise ClusterError(
                f"the worker at {address} cannot run ReLAQS ({found}); install there what is here: {wanted}"
            )
        if found != wanted:
            raise ClusterError(
                f"the worker at {address} has {found}, this process {wanted}; install the same packages there"
            )
    if silent and not answers:
        raise ClusterError(
            f"none of the {len(silent)} workers answered within {ANSWER_SECONDS:g} s, such as the one at "
            f"{min(silent)}; see whether they hang, and start them again"
        )


async def answers_of_workers(client: Client) -> tuple[set[str], dict[str, object]]:
    """Return which workers are there and did not answer in time, and what the others said of their versions.

    A worker that could not tell them has its exception as its answer. One that went away has none.
    """
    present = await workers_of(client)
    asked = {address: asyncio.ensure_future(_versions_at(client, address)) for address in present}
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        while (waiting := [asked[each] for each in present if not asked[each].done()]) and (
            time.monotonic() < deadline
        ):
            await asyncio.wait(waiting, timeout=LOOK_SECONDS)
            present &= await workers_of(client)
        if any(_has_failed(asked[each]) for each in present):
            await asyncio.sleep(LOOK_SECONDS)  # a worker that dies may fail before the scheduler hears of it
            present &= await workers_of(client)
    finally:
        for task in asked.values():
            task.cancel()
    silent = {each for each in present if not asked[each].done()}
    return silent, {each: asked[each].result() for each in present - silent}


async def workers_of(client: Client) -> set[str]:
    """Return the addresses of the workers that the scheduler knows of now."""
    assert client.scheduler is not None  # it is connected
    return set(await client.scheduler.ncores())


async def _versions_at(client: Client, address: str) -> object:
    """Return the worker's versions, or the exception they gave; wait for ever for one that hangs."""
    while True:
        found = (await client.run(versions, workers=[address], on_error="return"))[address]
        if not isinstance(found, OSError):
            return found
        await asyncio.sleep(LOOK_SECONDS)  # its connection broke: it dies, or is asked again


def _has_failed(task: asyncio.Task[object]) -> bool:
    return task.done() and isinstance(task.result(), Exception)
