"""Which ranks train together from now on: a generation of a gang; and who is there for the next one.

The roster has the ranks of one gang by slot: those being prepared, those ready, those lost. It is pure: it
sends nothing and reads no clock. Every `now_seconds` is on the monotonic clock.

What stays in a worker between the turns of a gang: it is settled once on a slot, and freed if idle.
"""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relaqs.jobs.executor import call_later
from relaqs.training.elastic.mesh import Encryption, ExchangeBrokenError, Mesh, RankAddress, meet
from relaqs.training.passes import one_thread


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is there from one change to the next. What changes makes a new generation.

    Attributes:
        generation: 0, 1, 2, …
        ranks: their addresses, in order.
        token: random. A connection that cannot say it belongs to something else, and is closed.
    """

    generation: int
    ranks: tuple[RankAddress, ...]
    token: str = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(each.slot for each in self.ranks)

    def rank_of(self, slot: str) -> int:
        """Return the rank that holds a slot of this generation."""
        return self.slots.index(slot)


PREPARE_SECONDS = 10.0  # after which a new rank is left out, where another one is ready


class RankRoster:
    """The ranks of a gang, and what became of them.

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


IDLE_SECONDS = 30.0  # who had no turn for so long is freed: its driver died


def listener_here() -> tuple[socket.socket, Encryption | None]:
    """Return where peers reach this process, and how they speak.

    That is a Dask worker's own address and its own certificates; else this machine alone.
    """
    from relaqs.executors.dask.slots import worker_here

    here = worker_here()
    host = "127.0.0.1" if here is None else here.host
    encryption = None if here is None or here.contexts is None else Encryption(*here.contexts)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=64), encryption


class StateLostError(Exception):
    """An actor has no state any more.

    It had no turn for so long that its worker freed it, as if its driver had died; or it has lost its peers.
    """


class Actor(ABC):
    """What is on a slot between turns, and meets those on other slots in each generation.

    `lock` is held in a turn: a worker with several threads may start two at once.
    """

    def __init__(self, slot: str) -> None:
        self._listener, self._encryption = listener_here()
        host, port = self._listener.getsockname()[:2]
        self.address = RankAddress(slot, host, port)
        self.lock = threading.Lock()
        self.used_seconds = time.monotonic()
        self.is_freed = False
        self._generation = -1
        self._mesh: Mesh | None = None

    def take(self, work: Any) -> Any:
        """Take part in a turn, and return what it gave. Where that fails, whoever waits for it is freed."""
        try:
            return self._turn(work)
        except ExchangeBrokenError as error:
            self._leave()
            return self._broken(work, error)
        except BaseException:
            self._leave()
            raise
        finally:
            self.used_seconds = time.monotonic()

    def get_ready(self, recipe: Any) -> None:
        """Have what a recipe says, where this was made by another one."""
        return

    @abstractmethod
    def _turn(self, work: Any) -> Any:
        """Make a turn, and return what it gave."""

    def _broken(self, work: Any, error: ExchangeBrokenError) -> Any:
        """Return what a turn gave in which a peer was lost. Raises StateLostError where that is nothing."""
        raise StateLostError(str(error))

    def close(self) -> None:
        """Free the slot. A turn that still runs ends."""
        if (mesh := self._mesh) is not None:
            mesh.close()
        with self.lock:
            self.is_freed = True
            self._leave()
            self._listener.close()

    def is_idle_since(self, seconds: float) -> bool:
        """Whether it had no turn since then, on the monotonic clock."""
        return self.used_seconds < seconds and not self.lock.locked()

    def _meet(
        self, there: Membership, limits_seconds: tuple[float, float], peers: Collection[int] | None = None
    ) -> Mesh:
        """Be in a generation, and return its mesh. See `meet`."""
        self._leave()
        self._generation = there.generation
        rank = there.rank_of(self.address.slot)
        self._mesh = meet(
            there.ranks, there.token, rank, self._listener, self._encryption, limits_seconds, peers
        )
        return self._mesh

    def _leave(self) -> None:
        """Leave the generation. It frees the peers that wait for this one."""
        if (mesh := self._mesh) is not None:
            self._mesh = None
            mesh.free()


class Residents:
    """The residents of this process, by gang and slot. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[tuple[str, str], Actor] = {}
        self._sweeper: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._there)

    def gangs(self) -> list[str]:
        """Return the gang of each resident."""
        with self._lock:
            return [gang for gang, _ in self._there]

    def get(self, gang: str, slot: str) -> Actor | None:
        """Return who lives there. None: nobody does."""
        with self._lock:
            if (there := self._there.get((gang, slot))) is not None:
                there.used_seconds = time.monotonic()
            return there

    def settled(self, gang: str, slot: str, make: Callable[[], Actor]) -> Actor:
        """Return who lives there, or settle whom `make` gives. Of two who come at once, the first stays."""
        if (there := self.get(gang, slot)) is not None:
            return there
        made = make()
        with self._lock:
            first = self._there.setdefault((gang, slot), made)
            self._sweep_later()
        if first is not made:
            made.close()
        return first

    def forget(self, gang: str, slot: str) -> None:
        """Free who lives there."""
        with self._lock:
            there = self._there.pop((gang, slot), None)
        if there is not None:
            there.close()

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = call_later(IDLE_SECONDS, self._sweep)

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


RESIDENTS = Residents()


class Recipe(Protocol):
    """Makes an actor on a worker: it imports, builds, compiles and reads first rows. It is picklable."""

    def actor(self, slot: str, owner: str) -> Actor:
        """Return it, ready for its first step. owner: the name by which a read can be interrupted."""
        ...


@dataclass(frozen=True, slots=True)
class PrepareWork:
    """Prepares an actor on a slot, and returns its address. One that is there already stays.

    gang: the name of all actors of a run, or of this one alone.
    """

    gang: str
    slot: str
    recipe: Recipe

    def run(self, owner: str) -> RankAddress:
        actor = RESIDENTS.settled(self.gang, self.slot, lambda: self.recipe.actor(self.slot, owner))
        actor.get_ready(self.recipe)
        return actor.address


@dataclass(frozen=True, slots=True)
class TurnWork:
    """The part that one actor has in a turn. Each kind of actor says more of its turns.

    gang, slot: which actor.
    """

    gang: str
    slot: str

    def run(self, owner: str) -> Any:
        freed = StateLostError(f"what was on {self.slot} was freed; prepare it once more")
        if (actor := RESIDENTS.get(self.gang, self.slot)) is None:
            raise freed
        with actor.lock, one_thread():
            if actor.is_freed:  # just now
                raise freed
            return actor.take(self)


@dataclass(frozen=True, slots=True)
class DismissWork:
    """Frees who lives on a slot of a gang, and is not needed any more."""

    gang: str
    slot: str

    def run(self, owner: str) -> None:
        RESIDENTS.forget(self.gang, self.slot)
