"""Connecting to a Dask cluster, and seeing that it can run this version of ReLAQS."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from distributed import Client, Security
from distributed.comm.addressing import resolve_address
from distributed.comm.core import FatalCommClosedError
from distributed.comm.core import connect as open_comm
from relaqs_engine.duck import DUCKDB_VERSION
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.messages import RELEASE

ENCRYPTED = ("tls://", "wss://")  # addresses by which Dask speaks TLS
ANSWER_SECONDS = 10.0  # for a worker to tell its versions: the first time it imports all there is
ATTEMPT_SECONDS = 5.0  # for one attempt to find a scheduler again that went away
LOOK_SECONDS = 0.2  # between two looks at which workers are there


def connect(
    address: str, connect_seconds: float, reconnect_seconds: float, security: Security | None = None
) -> Client:
    """Return a client of our own, which does not become the process's default one.

    reconnect_seconds: how long it looks for a scheduler that went away. security: as `secured` gives it.
    """
    try:
        resolve_address(address)  # here a wrong one is told at once; a client of one takes seconds to close
        security = Security() if security is None else security  # what Dask's configuration says
        check_encryption(address, security)
        client = Client(
            address,
            timeout=connect_seconds,
            set_as_default=False,
            asynchronous=False,
            name="relaqs",
            security=security,
        )
    except ValueError as error:
        raise ClusterError(
            f"{address!r} is not the address of a Dask scheduler ({error}); write it as tcp://host:8786"
        ) from error
    except FatalCommClosedError as error:
        raise _other_certificates(address, error.__cause__ or error) from error
    except OSError as error:
        if "SSL" in str(error):  # it closed the connection before it had said why
            raise _other_certificates(address, error) from error
        raise ClusterError(
            f"no Dask scheduler answered at {address} within {connect_seconds:g} s ({error}); check the "
            "address (tls://… where the scheduler speaks TLS), that `dask scheduler` runs there, and that no "
            "firewall is between"
        ) from error
    client._timeout = reconnect_seconds  # Dask has one setting for both, and a restart takes longer
    _attempt_often(client)
    return client


def _attempt_often(client: Client) -> None:
    """Let a client look for its scheduler in short attempts. One that is there may take its time to answer.

    In one long attempt Dask doubles its pauses. A scheduler that is away for 10 s is then found 20 s later.
    """
    attempt = client._ensure_connected

    async def attempt_once_it_is_there(timeout: float) -> None:
        over_seconds = time.monotonic() + timeout
        if client.scheduler is not None:  # else the client is closed meanwhile
            seconds = min(timeout, ATTEMPT_SECONDS)
            found = await open_comm(client.scheduler.address, timeout=seconds, **client.connection_args)
            found.abort()
        await attempt(timeout=max(LOOK_SECONDS, over_seconds - time.monotonic()))

    client._ensure_connected = attempt_once_it_is_there  # type: ignore[method-assign, assignment]


def _other_certificates(address: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"the Dask scheduler at {address} and this process do not accept each other's certificate "
        f"({error}); give the authority that signed the scheduler's certificate, and a certificate signed by "
        "the scheduler's authority"
    )


def secured(security: Security | Mapping[str, Any]) -> Security:
    """Return it as a `Security` whose files can be read. Raises ClusterError if they cannot."""
    try:
        made = security if isinstance(security, Security) else Security(**security)
        made.get_connection_args("client")
    except (TypeError, ValueError, OSError) as error:
        raise ClusterError(
            f"security is {security!r}, which cannot be used ({error}); give a distributed.Security, or its "
            "arguments: tls_ca_file, tls_client_cert and tls_client_key, each the path of a PEM file"
        ) from error
    return made


def check_encryption(address: str, security: Security) -> None:
    """Raise ClusterError if the address asks for encryption and the security has no certificate, or reverse.

    Dask would try again and again.
    """
    is_encrypted = address.startswith(ENCRYPTED)
    arguments = security.get_connection_args("client")
    if is_encrypted and arguments.get("ssl_context") is None:
        raise ClusterError(
            f"{address} asks for TLS, and there is no certificate; give the files of the authority, the "
            "certificate and its key: security={'tls_ca_file': …, 'tls_client_cert': …, 'tls_client_key': "
            "…}, --tls-ca-file, --tls-cert and --tls-key, or Dask's own settings"
        )
    if not is_encrypted and arguments.get("require_encryption"):
        raise ClusterError(
            f"encryption is required, and {address} is without; write it as tls://host:8786, and start the "
            "scheduler with --tls-ca-file, --tls-cert and --tls-key"
        )


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
    """Return the versions that must agree, since partial results of different ones must not be mixed.

    Of ReLAQS it is the release, without the number of its patch.
    """
    return {"relaqs": RELEASE, "duckdb": DUCKDB_VERSION}


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
        answers = await client.run(versions, workers=[address], on_error="return")
        if address in answers and not isinstance(answers[address], OSError):
            return answers[address]
        await asyncio.sleep(LOOK_SECONDS)  # its connection broke: it dies, or is asked again


def _has_failed(task: asyncio.Task[object]) -> bool:
    return task.done() and isinstance(task.result(), Exception)
