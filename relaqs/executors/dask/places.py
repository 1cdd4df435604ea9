"""Pinned turns on Dask: what the driver of a gang asks for and hears, and where a rank runs."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from distributed import get_worker
from distributed.comm.addressing import get_address_host
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.messages import GangAnswer, Leased, MayTurn, NoLeases, SlotsLost, SlotsOffered
from relaqs.jobs.executor import Stoppable


@runtime_checkable
class GangDriver(Stoppable, Protocol):
    """What drives a gang. Each call comes on the client's event loop, must return at once and not raise."""

    def leased(self, slots: tuple[str, ...]) -> None:
        """The gang holds these slots now, and no others."""
        ...

    def offered(self, slots: tuple[str, ...]) -> None:
        """The gang is to train on these slots and no others."""
        ...

    def may_turn(self, number: int) -> None:
        """The gang may take one turn. number: of its asking."""
        ...

    def slots_lost(self, slots: tuple[str, ...]) -> None:
        """These slots are gone with their worker, and with what ran there."""
        ...

    def refused(self, why: str) -> None:
        """No gang can run on this cluster."""
        ...

    def unreachable(self, error: ClusterError) -> None:
        """The cluster is out of reach for good: nothing that was asked for will come."""
        ...


def tell_driver(driver: GangDriver, answer: GangAnswer) -> None:
    """Pass on what the plugin says."""
    match answer:
        case Leased(_, slots):
            driver.leased(slots)
        case SlotsOffered(_, slots):
            driver.offered(slots)
        case MayTurn(_, number):
            driver.may_turn(number)
        case SlotsLost(_, slots):
            driver.slots_lost(slots)
        case NoLeases(_, why):
            driver.refused(why)


@dataclass(frozen=True, slots=True)
class WorkerHere:
    """The Dask worker that runs the calling task.

    Attributes:
        host: the address by which other workers reach its machine.
        calling, called: its contexts of TLS. None: the cluster is without.
    """

    host: str
    calling: ssl.SSLContext | None
    called: ssl.SSLContext | None


def worker_here() -> WorkerHere | None:
    """Return the worker whose thread calls, or None: it is no thread of a worker."""
    try:
        worker = get_worker()
    except ValueError:
        return None
    if not worker.address.startswith(("tls://", "wss://")):
        return WorkerHere(get_address_host(worker.address), None, None)
    calling = worker.security.get_connection_args("worker")["ssl_context"]
    called = worker.security.get_listen_args("worker")["ssl_context"]
    return WorkerHere(get_address_host(worker.address), calling, called)
