"""The turns of a gang that are under way: what its ranks have said of each, and which are over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import TurnResult


@dataclass(slots=True)
class Turn:
    """A turn in flight.

    Attributes:
        sent_seconds: when it was sent, on the monotonic clock.
        results: what ranks have said, by slot.
        lost: the slots whose rank was lost since it was sent. Who has not answered by then will not.
        over_seconds: until when a rank must answer, where its generation is over. On the monotonic clock.
        due_seconds: until when, where another one has: all ranks end a turn at the same step.
        core_seconds: of the tasks that have ended.
    """

    number: int
    membership: Membership
    sent_seconds: float
    results: dict[str, TurnResult] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    over_seconds: float = math.inf
    due_seconds: float = math.inf
    core_seconds: float = 0.0

    @property
    def missing(self) -> set[str]:
        """The slots that are still to answer."""
        return {*self.membership.slots} - {*self.results} - self.lost

    @property
    def is_broken(self) -> bool:
        """Whether its generation is over."""
        return self.over_seconds < math.inf

    def late(self, now_seconds: float) -> set[str]:
        """Return the slots that had to answer before."""
        return self.missing if now_seconds > min(self.over_seconds, self.due_seconds) else set()

    def postpone(self, seconds: float) -> None:
        """Let all have so much longer: the driver itself was away."""
        self.over_seconds += seconds
        self.due_seconds += seconds

    def note_broken(self, until_seconds: float) -> None:
        """Note that its generation is over. Its ranks have until then to say so."""
        self.over_seconds = min(self.over_seconds, until_seconds)


class TurnsInFlight:
    """The turns of one gang, in the order in which they were sent. Not thread-safe."""

    def __init__(self) -> None:
        self._turns: dict[int, Turn] = {}
        self._sent = 0

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Turn]:
        return iter(list(self._turns.values()))

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of all turns; a slot of two stands there twice."""
        return tuple(slot for turn in self._turns.values() for slot in turn.membership.slots)

    def end_seconds(self, turn_seconds: float) -> float:
        """Return when the last one ends, if it began when it was sent; −inf where there is none."""
        return max((turn.sent_seconds + turn_seconds for turn in self._turns.values()), default=-math.inf)

    def has_other_than(self, membership: Membership) -> bool:
        """Return whether one of them is of another generation."""
        return any(turn.membership.generation != membership.generation for turn in self._turns.values())

    def begin(self, membership: Membership, now_seconds: float) -> Turn:
        """Return a new turn of this generation."""
        turn = self._turns[self._sent] = Turn(self._sent, membership, now_seconds)
        self._sent += 1
        return turn

    def get(self, number: int) -> Turn | None:
        """Return a turn, None where it is over."""
        return self._turns.get(number)

    def lose(self, slots: Set[str], until_seconds: float) -> None:
        """Note that ranks are lost.

        until_seconds: how long the others of their turns have to say so, for they may be meeting.
        """
        for turn in self._turns.values():
            if not slots.isdisjoint(turn.missing):
                turn.note_broken(until_seconds)
            turn.lost |= slots

    def take_whole(self) -> Iterator[Turn]:
        """Take out the turns that have all their answers, in their order: answers may come in another."""
        for turn in self:
            if turn.missing:
                return
            del self._turns[turn.number]
            yield turn
