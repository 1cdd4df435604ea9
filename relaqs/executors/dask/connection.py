"""Connecting to a Dask cluster, and seeing that it can run this version of ReLAQS."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

from distributed import Client
from distributed.comm.addressing import resolve_address
from relaqs_engine.duck import DUCKDB_VERSION
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.names import RELAQS_VERSION


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

    To be called on the client's event loop.
    """
    wanted = versions()
    for address, found in (await client.run(versions, on_error="return")).items():
        if isinstance(found, Exception):
            raise ClusterError(
                f"the worker at {address} cannot run ReLAQS ({found}); install there what is here: {wanted}"
            )
        if found != wanted:
            raise ClusterError(
                f"the worker at {address} has {found}, this process {wanted}; install the same packages there"
            )
