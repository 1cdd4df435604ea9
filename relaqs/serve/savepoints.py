"""Savepoints: places in a transaction that a failed one goes back to, and then takes statements again.

Nothing is written here, so going back gives the settings of that time, and forgets later cursors. Drivers
make them where one transaction is opened inside of another: psycopg, SQLAlchemy's `begin_nested`, Django.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs.serve.failures import FULL, RefusedError
from relaqs.serve.settings import KeptSettings

_MOST = 1000
_UNKNOWN, _NO_TRANSACTION = "3B001", "25P01"


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A place in a transaction: its name, and the settings and cursors of that time."""

    name: str
    settings: KeptSettings
    cursors: frozenset[str]


class Savepoints:
    """The savepoints of one transaction. The later of two with one name hides the earlier, as in Postgres."""

    def __init__(self) -> None:
        self._places: list[KeptPlace] = []

    def keep(self, place: KeptPlace) -> None:
        """Add a place. Raises RefusedError if there are too many."""
        if len(self._places) >= _MOST:
            raise RefusedError(FULL, f"{_MOST} savepoints are kept, the most allowed; release some")
        self._places.append(place)

    def release(self, name: str) -> None:
        """Forget a place and all after it. Raises RefusedError where there is none of this name."""
        del self._places[self._find(name) :]

    def back_to(self, name: str) -> KeptPlace:
        """Return a place, and forget all after it. Raises RefusedError where there is none of this name."""
        position = self._find(name)
        del self._places[position + 1 :]
        return self._places[position]

    def clear(self) -> None:
        """Forget all, at the end of the transaction."""
        self._places.clear()

    def _find(self, name: str) -> int:
        for position in reversed(range(len(self._places))):
            if self._places[position].name == name:
                return position
        raise RefusedError(_UNKNOWN, f"there is no savepoint {name!r}; say SAVEPOINT {name} before")


def check_transaction(tag: str, *, in_transaction: bool) -> None:
    """Raise RefusedError for a statement about savepoints outside of a transaction."""
    if not in_transaction:
        raise RefusedError(_NO_TRANSACTION, f"{tag} of a savepoint needs a transaction; say BEGIN before")
