"""How workers of a cluster speak with each other, for work whose state lies on them.

A service is a class. Each worker makes one of it when a letter for it comes, or a task asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from numpy.typing import NDArray

LEAST_BYTES_PER_SECOND = 1e6  # of a network that is not called broken, with all that others send over it

Haste = Literal["pull", "push"]
"""Which letters to a worker leave first: "pull" before "push". One at a time is on its way to it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What one worker says to another.

    Attributes:
        subject: what it is about.
        said: a value that can be pickled, of a few KB.
        arrays: travel from where they lie, and must not change meanwhile.
    """

    subject: str
    said: Any = None
    arrays: tuple[NDArray[Any], ...] = ()


class PeerLostError(Exception):
    """A worker does not answer. address: of the worker. why: for people."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why


class PeerForgotError(PeerLostError):
    """A worker answers, but does not have what it is asked for."""


class Peers(Protocol):
    """The other workers, as a service sees them, on the event loop of its worker."""

    @property
    def address(self) -> str:
        """This worker's own."""
        ...

    async def ask(self, address: str, letter: Letter, haste: Haste, limit_seconds: float) -> Letter:
        """Return a worker's answer. Raises PeerLostError where there is none in time."""
        ...


class PeerService(Protocol):
    """What a service class makes. It is called on the event loop of its worker."""

    def __init__(self, peers: Peers) -> None: ...

    async def answer(self, letter: Letter) -> tuple[Letter, Haste]:
        """Return the answer to a letter, and how soon it is to leave."""
        ...

    def sweep(self) -> None:
        """Let go what nobody uses any more. Called about once a second."""
        ...


@runtime_checkable
class HostsPeers(Protocol):
    """A cluster whose workers speak with each other."""

    def peers(self) -> tuple[str, ...]:
        """Return the addresses of its workers now, each with an agent."""
        ...
