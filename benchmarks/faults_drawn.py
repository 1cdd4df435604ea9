"""Which faults a run has, drawn from its seed: the same seed draws the same ones on any machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KILLED, STOPPED, RESTARTED = "worker killed", "worker stopped", "worker restarted"
SCHEDULER, LATE, SMALL = "scheduler restarted", "worker joins late", "worker with little memory"
FULL, BUSY, CLIENT, BITS = "worker with a full disk", "busy disk", "client killed", "flipped bits"
KINDS = (KILLED, STOPPED, RESTARTED, SCHEDULER, LATE, SMALL, FULL, BUSY, CLIENT, BITS)
JOINING = (SMALL, FULL)  # a worker joins, and is in want of something

LATEST_SECONDS = 0.8  # after the query was sent: most run for about as long
LONGEST_STOP_SECONDS = 6.0  # some longer than the silence after which a worker is given up


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, while a query runs. after_seconds: since the query was sent. hold_seconds: of a stop.

    place: which worker, client, partition or byte, as a part of how many there are. query: a number of the
    mix. seed: of the query.
    """

    kind: str
    query: int
    seed: int
    after_seconds: float
    hold_seconds: float
    place: float


def drawn(seed: int, count: int, kinds: Sequence[str], queries: int) -> list[Fault]:
    """Return so many faults of these kinds, each kind about as often. queries: how many the mix has."""
    source = random.Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        for kind in source.sample(list(kinds), len(kinds)):
            faults.append(
                Fault(
                    kind,
                    source.randrange(queries),
                    source.randrange(1000),
                    source.uniform(0.0, LATEST_SECONDS),
                    source.uniform(0.5, LONGEST_STOP_SECONDS),
                    source.random(),
                )
            )
    return faults[:count]
