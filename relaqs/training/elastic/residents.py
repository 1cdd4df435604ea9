"""What stays in a worker between the turns of a gang: it is settled once on a slot, and freed if idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from relaqs.training.elastic.membership import RankAddress

IDLE_SECONDS = 30.0  # who had no turn for so long is freed: its driver died


class Resident(Protocol):
    """Who lives on a slot of a gang: a rank, or the parts of a model."""

    address: RankAddress
    used_seconds: float

    def is_idle_since(self, seconds: float) -> bool: ...
    def close(self) -> None: ...


Lodger = TypeVar("Lodger", bound=Resident)


class Residents:
    """The residents of this process, by gang and slot. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[tuple[str, str], Resident] = {}
        self._sweeper: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._there)

    def gangs(self) -> list[str]:
        """Return the gang of each resident."""
        with self._lock:
            return [gang for gang, _ in self._there]

    def get(self, gang: str, slot: str, kind: type[Lodger]) -> Lodger | None:
        """Return who lives there. None: nobody does."""
        with self._lock:
            if (there := self._there.get((gang, slot))) is None:
                return None
            assert isinstance(there, kind)
            there.used_seconds = time.monotonic()
            return there

    def settled(self, gang: str, slot: str, kind: type[Lodger], make: Callable[[], Lodger]) -> Lodger:
        """Return who lives there, or settle whom `make` gives. Of two who come at once, the first stays."""
        if (there := self.get(gang, slot, kind)) is not None:
            return there
        made = make()
        with self._lock:
            first = self._there.setdefault((gang, slot), made)
            self._sweep_later()
        if first is made:
            return made
        made.close()
        assert isinstance(first, kind)
        return first

    def forget(self, gang: str, slot: str) -> None:
        """Free who lives there."""
        with self._lock:
            there = self._there.pop((gang, slot), None)
        if there is not None:
            there.close()

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Timer(IDLE_SECONDS, self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        with self._lock:
            self._sweeper = None
            oldest = time.monotonic() - IDLE_SECONDS
            idle = [key for key, there in self._there.items() if there.is_idle_since(oldest)]
            freed = [self._there.pop(key) for key in idle]
            if self._there:
                self._sweep_later()
        for there in freed:
            there.close()


@dataclass(frozen=True, slots=True)
class DismissWork:
    """Frees who lives on a slot of a gang, and is not needed any more."""

    gang: str
    slot: str

    def run(self, owner: str) -> None:
        RESIDENTS.forget(self.gang, self.slot)


RESIDENTS = Residents()
