"""The turns of a gang: those that are under way, and what was reached by those that are over.

- `TurnsInFlight`: what the ranks have said of each turn.
- `StepLog`: the steps, each once, and the changes that were carried out.
- `TurnsMade`: the steps and the state that the driver keeps.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import IntArray
from relaqs_engine.errors import ClusterError

from relaqs.training.elastic.course import TrainingCourse
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import EndOfPass, Restart, StepsMade, TurnResult

if TYPE_CHECKING:
    from relaqs.training.elastic.rank import StepsMade


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of the gang that was carried out.

    Attributes:
        step: the first step after it.
        ranks, batch_rows: since then.
        pause_seconds: from the end of the last step before to the start of that one, of the worst rank. None
            where no rank had made a step before.

    >>> Rescale(step=120, ranks=4, batch_rows=512, pause_seconds=0.02).ranks
    4
    """

    step: int
    ranks: int
    batch_rows: int
    pause_seconds: float | None


class StepLog:
    """The steps that were made, each once. What is made again is what was made before.

    first_step: those before it were made by others.
    """

    def __init__(self, first_step: int = 0) -> None:
        self._first_step = first_step
        self._rows, self._rates, self._ranks = array("q"), array("d"), array("q")
        self.losses = array("d")

    @property
    def end(self) -> int:
        """The first step that was not made yet."""
        return self._first_step + len(self._rows)

    def note(self, made: StepsMade, ranks: int) -> None:
        assert made.first_step <= self.end
        new = slice(max(0, self.end - made.first_step), None)
        self._rows.extend(made.batch_rows[new].tolist())
        self._rates.extend(made.rates[new].tolist())
        self.losses.extend(made.losses[new].tolist())
        self._ranks.extend([ranks] * (len(self._rows) - len(self._ranks)))

    def rows_since(self, step: int) -> IntArray:
        return np.array(self._rows[step - self._first_step :], dtype=np.int64)

    @property
    def batch_rows(self) -> int | None:
        """The rows of the last step; None before the first one. May be asked for from any thread."""
        return self._rows[-1] if self._rows else None

    def journal(self, since_step: int | None = None) -> Journal:
        """Return what was noted from a step on. May be asked for from any thread."""
        first = 0 if since_step is None else since_step - self._first_step
        ranks, rates, rows = self._ranks[first:], self._rates[first:], self._rows[first:]
        whole = slice(0, len(ranks))  # another thread may have noted more steps meanwhile
        return Journal(np.array(rows[whole]), np.array(rates[whole]), np.array(ranks))


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


LOSSES_MOST = 10  # of all ranks, without a step between. Then it is the job that ends its workers


class TurnsMade:
    """Takes turns in. Not thread-safe, but for `steps` and `rescales`, which may be read.

    Args:
        start: where the first turn begins, where that is not at the beginning.
        by_passes: whether the state after each pass is kept for somebody who asks for it.

    Attributes:
        steps: all that were made.
        rescales: the changes that were carried out.
        reached: the steps that the ranks of the present gang have done; 0 where these are lost.
        passes: how many are over.
        kept: the last course that the driver has, pickled. None: the first one.
        kept_step, kept_passes: how many steps and passes were done before it.
        kept_seconds: when it came, on the monotonic clock.
        passed: passes that are over, with the pickled course after each, and not told of yet.
    """

    def __init__(self, start: TrainingCourse | None, *, by_passes: bool) -> None:
        first_step, passes = (0, 0) if start is None else (start.step, start.passes)
        self.steps = StepLog(first_step)
        self.rescales: list[Rescale] = []
        self.reached = 0
        self.passes = self.kept_passes = passes
        self.kept: bytes | None = None
        self.kept_step = first_step
        self.kept_seconds = time.monotonic()
        self.passed: list[tuple[int, bytes]] = []
        self._by_passes = by_passes
        self._losses = 0  # of all ranks, since the last step
        self._noted_generation = -1

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self.steps.end

    def take(self, membership: Membership, told: Sequence[TurnResult]) -> list[TurnResult]:
        """Take a turn in, and return what counts of it.

        What does not follow on what was made is left out: what came before it was lost with all ranks.
        """
        results = [each for each in told if each.made is None or each.made.first_step <= self.step]
        made = max((each.made for each in results if each.made), key=lambda made: made.end, default=None)
        if made is not None:
            self._losses = 0 if made.end > self.step else self._losses
            self.steps.note(made, membership.size)
        self.reached = max((each.step for each in results), default=self.reached)
        self.passes = max((self.passes, *(each.passes for each in results)))
        for each in results:
            for end in each.ends:
                self._pass_over(end)
            if each.kept is not None and self._follows(each.passes, ahead=0):
                self._keep(each.kept, each.step, each.passes)
        if made:
            self._note_rescale(membership, made, results)
        return results

    def restart(self, *, knows: bool) -> Restart | None:
        """Return where to begin, as long as no rank of the present gang has done what was done before.

        knows: whether a rank has a state.
        """
        if knows and self.reached >= self.step:
            return None
        return Restart(None if knows else self.kept, self.kept_step, self.steps.rows_since(self.kept_step))

    def note_all_lost(self, why: BaseException) -> ClusterError | None:
        """Note that all ranks are lost. Return what to say where that happens again and again."""
        self._losses += 1
        if self._losses < LOSSES_MOST:
            return None
        error = ClusterError(
            f"all ranks of the job were lost {self._losses} times in a row at step {self.step}, the last "
            f"time by {type(why).__name__}: {why}; see the workers' logs: a rank may need more memory than "
            "they have, or a file that they do not see"
        )
        error.__cause__ = why
        return error

    def _pass_over(self, end: EndOfPass) -> None:
        """Take in the end of a pass. Several ranks may tell of one."""
        if end.passes <= self.kept_passes or not self._follows(end.passes, ahead=1):
            return
        if self._by_passes:
            self.passed.append((end.passes, end.course))
        self._keep(end.course, end.step, end.passes)

    def _follows(self, passes: int, *, ahead: int) -> bool:
        """Return whether a state may be kept: where each pass is told of, none is passed over.

        The end of one may be lost with the rank that told of it. The others then tell of it once more.
        """
        return not self._by_passes or passes == self.kept_passes + ahead

    def _keep(self, course: bytes, step: int, passes: int) -> None:
        self.kept, self.kept_step, self.kept_seconds = course, step, time.monotonic()
        self.kept_passes = passes

    def _note_rescale(self, membership: Membership, made: StepsMade, results: Sequence[TurnResult]) -> None:
        if self._noted_generation != membership.generation:
            self._noted_generation = membership.generation
            pauses = [each.pause_seconds for each in results if each.pause_seconds is not None]
            rows = int(made.batch_rows[0])
            self.rescales.append(Rescale(made.first_step, membership.size, rows, max(pauses, default=None)))
