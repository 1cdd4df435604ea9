"""Which ranks train together from now on: a generation of a gang."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RankAddress:
    """Where a rank listens for its peers.

    Attributes:
        slot: the slot that it holds, as `relaqs.executors.leases` names it.
        host, port: of its listening socket.
    """

    slot: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The ranks of one generation, and how they train. What changes makes a new generation.

    >>> one = Membership(0, (RankAddress("a/0", "127.0.0.1", 4711),), batch_rows=64, token="secret")
    >>> one.size, one.rank_of("a/0")
    (1, 0)

    Attributes:
        generation: 0, 1, 2, …
        ranks: their addresses, in order. How many there are is a power of two, so that sums keep their bits.
        batch_rows: rows of a mini-batch, over all ranks together. None: the job's own rule says it. The
            learning rate follows from the rows.
        token: random. A connection that cannot say it belongs to something else, and is closed.
    """

    generation: int
    ranks: tuple[RankAddress, ...]
    batch_rows: int | None
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        assert self.size.bit_count() == 1, f"{self.size} ranks are no power of two"
        assert self.batch_rows is None or self.batch_rows > 0

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(each.slot for each in self.ranks)

    def rank_of(self, slot: str) -> int:
        """Return the rank that holds a slot of this generation."""
        return self.slots.index(slot)


def most_ranks(slots: int) -> int:
    """Return how many ranks can use so many slots: the largest power of two.

    >>> [most_ranks(slots) for slots in (1, 2, 3, 4, 7)]
    [1, 2, 2, 4, 4]
    """
    return 1 << (slots.bit_length() - 1)
