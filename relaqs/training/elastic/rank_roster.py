"""The ranks of one gang, by slot: which are being prepared, which are ready, and which were lost.

Pure: it sends nothing and reads no clock. Every `now_seconds` is on the monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from relaqs.training.elastic.membership import RankAddress

PREPARE_SECONDS = 10.0  # after which a new rank is left out, where another one is ready


class RankRoster:
    """The ranks of a gang, and what became of them.

    >>> roster = RankRoster("gang")
    >>> roster.missing(["a", "b"])
    ['a', 'b']
    >>> roster.begin("a", now_seconds=0.0)
    >>> roster.note_ready("a", RankAddress("a", "10.0.0.1", 7000), now_seconds=1.0)
    >>> roster.missing(["a", "b"]), roster.name("a")
    (['b'], 'gang-0')
    >>> roster.lose({"a"})
    >>> roster.missing(["a", "b"]), roster.name("a")
    (['b'], 'gang-1')

    Args:
        gang: its name, unique on the cluster.

    Attributes:
        ready: the ranks that can train, by slot.
        knowing: the slots of ranks that have the gang's state.
        gone: the slots whose worker is gone.
    """

    def __init__(self, gang: str) -> None:
        self.ready: dict[str, RankAddress] = {}
        self.knowing: set[str] = set()
        self.gone: set[str] = set()
        self._gang = gang
        self._first_ready_seconds = 0.0  # when the first of those that are ready was
        self._preparing: dict[str, float] = {}  # slots, since when
        self._left_out: set[str] = set()  # slots whose rank did not answer
        self._silent: set[str] = set()  # slots that were given up in silence: nobody waits for them
        self._lives: Counter[str] = Counter()  # how many ranks were lost on a slot

    def name(self, slot: str) -> str:
        """Return the name of the rank on a slot. A rank that comes after a lost one has another there."""
        return f"{self._gang}-{self._lives[slot]}"

    @property
    def is_empty(self) -> bool:
        """Whether no rank is ready, and none will be."""
        return not self.ready and not self._preparing

    @property
    def is_preparing(self) -> bool:
        return bool(self._preparing)

    @property
    def awaits_any(self) -> bool:
        """Whether a rank is being prepared on a slot that is not known to be silent."""
        return bool(self._preparing.keys() - self._silent)

    def missing(self, slots: Iterable[str]) -> list[str]:
        """Return the slots, of these, on which a rank is to be prepared."""
        there = self.ready.keys() | self._preparing.keys() | self._left_out
        return [slot for slot in slots if slot not in there]

    def begin(self, slot: str, now_seconds: float) -> None:
        """Note that a rank is being prepared."""
        self._preparing[slot] = now_seconds

    def note_ready(self, slot: str, address: RankAddress, now_seconds: float) -> None:
        """Note that a rank can train. It may be one that was given up, and comes late."""
        self._preparing.pop(slot, None)
        self._left_out.discard(slot)
        self._silent.discard(slot)
        if not self.ready:
            self._first_ready_seconds = now_seconds
        self.ready[slot] = address

    def leave_out(self, slot: str) -> None:
        """Note that a rank could not be prepared."""
        self._preparing.pop(slot, None)
        self._left_out.add(slot)

    def try_all_again(self) -> None:
        """Let ranks be prepared on all slots, also where they did not answer."""
        self._left_out.clear()

    def try_again(self) -> None:
        """Let ranks be prepared where they did not answer, but for slots whose worker is gone."""
        self._left_out &= self.gone

    def lose(self, slots: set[str]) -> None:
        """Go on without these slots."""
        self._left_out |= slots
        self.forget(slots)

    def note_silent(self, slots: set[str]) -> None:
        """Note that ranks do not answer. Nobody waits for others on these slots."""
        self._silent |= slots

    def forget(self, slots: Iterable[str]) -> None:
        """Go on without the ranks on these slots. Others may be prepared there."""
        for slot in slots:
            self.knowing.discard(slot)
            self.ready.pop(slot, None)
            self._preparing.pop(slot, None)
            self._lives[slot] += 1

    def bridged(self, chosen: Sequence[str]) -> tuple[str, ...]:
        """Return the slots of the next generation. One of its ranks must know the state, if any rank does."""
        knowing = [slot for slot in self.knowing if slot in self.ready]
        if not knowing or not self.knowing.isdisjoint(chosen):
            return tuple(chosen)
        return knowing[0], chosen[0]

    def postpone(self, seconds: float) -> None:
        """Give ranks that are being prepared so much longer: nobody could hear them meanwhile."""
        self._preparing = {slot: since + seconds for slot, since in self._preparing.items()}

    def give_up_late(self, now_seconds: float) -> None:
        """Leave out the ranks that take too long to prepare, where another one could train meanwhile."""
        for slot, since_seconds in list(self._preparing.items()):
            waited_seconds = now_seconds - max(since_seconds, self._first_ready_seconds)
            if self.ready and waited_seconds > PREPARE_SECONDS:
                self.leave_out(slot)
                self._silent.add(slot)
