"""Drives a gang whose ranks live in the workers of a cluster, turn by turn, and changes it while it runs.

**The idea.** A turn is one pinned task on each slot. It ends early where a task waits for its core. The
next turn is sent shortly before, so that it waits on its worker when the first one ends: no core waits for
its messages. What changes (slots, rows of a mini-batch, a death) makes a new generation: turns in flight
end, the next turn carries the new membership, and the ranks meet anew.

    slots a    generation 0: turn 0 | turn 1 | turn 2 │ generation 1: turn 3 | turn 4
    slots b          prepare: import, build, read ... │                turn 3 | turn 4

All that happens arrives in one mailbox and is handled by one thread. A lock has only what is said to the
runner of the job, which asks for passes:

    runner ── a pass ──► GangCarrier ── turns, leases ──► cluster
           ◄── course ──

For the cluster all of it is one job: the runner has entered it, and the gang has its turns in it. The gang
is one pass ahead: it goes on while the runner looks at held-out rows after the pass before. What it makes
after the last pass is dropped.

`TurnsInFlight` has what the ranks have said of each turn, and `TurnsMade` what was reached by those that
are over: the steps, and the state that the driver keeps. `GangFacts` is what a slot policy hears of it.

The first look at the data, and that at held-out rows after each pass, are tasks in any case. So are the steps
while passes are short (`GangJob`).
"""

from __future__ import annotations

import math
import pickle
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from relaqs_engine.errors import ClusterError

from relaqs.executors.slot_desk import most_ranks, worker_of
from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND
from relaqs.jobs.job import TaskResult, Work
from relaqs.prediction.throughput import Measured, fit_speed
from relaqs.sharing.gangs import Gang
from relaqs.training.elastic.course import (
    BatchRule,
    Journal,
    Order,
    Rescale,
    StepLog,
    StepsMade,
    TrainingCourse,
    pieces_of_step,
)
from relaqs.training.elastic.driver import Driver, GangExecutor
from relaqs.training.elastic.membership import (
    DismissWork,
    Membership,
    PrepareWork,
    RankRoster,
    Recipe,
    StateLostError,
)
from relaqs.training.elastic.mesh import RankAddress
from relaqs.training.elastic.rank import MEETING_SECONDS, EndOfPass, RankTurn, TableRecipe, TurnResult
from relaqs.training.elastic.step_job import PassEnd, StepJob
from relaqs.training.passes import RunRows
from relaqs.training.protocol import MiniBatchTraining


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
        """Give all of them these seconds more: the driver itself was away."""
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

    Attributes:
        steps: all that were made.
        rescales: the changes that were carried out.
        passes: how many are over.
        changed_passes: how many were when the ranks changed last.
        is_new: whether the last turn was the first of its generation.
        kept: the last course that the driver has, pickled. None: the first one.
        kept_step, kept_passes: how many steps and passes were done before it.
        kept_seconds: when it came, on the monotonic clock.
        passed: passes that are over, with the pickled course after each, and not told of yet.
    """

    def __init__(self, start: TrainingCourse | None = None) -> None:
        first_step, passes = (0, 0) if start is None else (start.step, start.passes)
        self.steps = StepLog(first_step)
        self.rescales: list[Rescale] = []
        self.passes = self.kept_passes = passes
        self.kept: bytes | None = None
        self.kept_step = first_step
        self.kept_seconds = time.monotonic()
        self.passed: list[tuple[int, bytes]] = []
        self.changed_passes, self.is_new = passes, False
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
        self.passes = max((self.passes, *(each.passes for each in results)))
        for each in results:
            for end in each.ends:
                self._pass_over(end)
            if each.kept is not None and each.passes == self.kept_passes:
                self._keep(each.kept, each.step, each.passes)
        if made:
            self._note_rescale(membership, made, results)
        return results

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
        """Take in the end of a pass. Several ranks may tell of one, and none is passed over.

        The end of one may be lost with the rank that told of it. The others then tell of it once more.
        """
        if end.passes == self.kept_passes + 1:
            self.passed.append((end.passes, end.course))
            self._keep(end.course, end.step, end.passes)

    def _keep(self, course: bytes, step: int, passes: int) -> None:
        self.kept, self.kept_step, self.kept_seconds = course, step, time.monotonic()
        self.kept_passes = passes

    def _note_rescale(self, membership: Membership, made: StepsMade, results: Sequence[TurnResult]) -> None:
        self.is_new = self._noted_generation != membership.generation
        if self.is_new:
            self._noted_generation, self.changed_passes = membership.generation, self.passes
            pauses = [each.pause_seconds for each in results if each.pause_seconds is not None]
            rows = int(made.batch_rows[0])
            self.rescales.append(Rescale(made.first_step, membership.size, rows, max(pauses, default=None)))


class GangFacts:
    """What is known of a gang, for whoever divides slots: how far it is, and how fast on how many slots.

    Its rows a step are decided by the job's own rule. So a policy sees them as the only ones it may have,
    and a slot gets one piece of a step at least.

    Args:
        batch_rows: of the first step.
    """

    def __init__(self, id: str, order: Order, batch_rows: int) -> None:
        self._id = id
        self._order = order
        self._first_rows = batch_rows
        self._measured = Measured()
        self._speed: tuple[float, ...] = ()
        self._fitted = 0
        self._losses: list[float] = []
        self._accuracy = math.nan
        self._noise_rows = math.nan

    def turned(self, membership: Membership, results: Sequence[TurnResult], made: TurnsMade) -> None:
        """Note a turn that was taken in. The first one of a generation is not measured: ranks met in it."""
        if any(each.made for each in results):
            self._noise_rows = results[0].noise_rows
            if not made.is_new:
                self._measure(membership, results, made)

    def passed(self, loss: float, accuracy: float) -> None:
        """Note what a pass gave."""
        self._losses.append(loss)
        self._accuracy = accuracy

    def gang(self, made: TurnsMade) -> Gang:
        """Return what is known now."""
        batch_rows = made.steps.batch_rows or self._first_rows
        rows, piece_rows = float(batch_rows), float(self._order.piece_rows)
        if len(self._measured) > self._fitted:
            self._fitted = len(self._measured)
            self._speed = tuple(fit_speed(self._measured).tolist())
        whole = made.passes * self._order.row_count
        pauses = [each.pause_seconds for each in made.rescales if each.pause_seconds is not None]
        return Gang(
            self._id,
            pass_rows=float(self._order.row_count),
            start_rows=rows,
            slot_rows_least=min(piece_rows, rows),
            rows_most=rows,
            rows_done=float(min(max(made.steps.row_count, whole), whole + self._order.row_count)),
            steps_done=float(made.step),
            passes_done=float(made.passes),
            passes_since_change=float(made.passes - made.changed_passes),
            first_loss=self._losses[0] if self._losses else math.nan,
            loss=self._losses[-1] if self._losses else math.nan,
            accuracy=self._accuracy,
            batch_rows=rows,
            noise_rows=self._noise_rows,
            rescales=float(max(0, len(made.rescales) - 1)),
            pause_seconds=fmean(pauses) if pauses else math.nan,
            slots_asked=pieces_of_step(batch_rows, self._order.piece_rows),
            rows_asked=rows,
            speed=self._speed,
        )

    def _measure(self, membership: Membership, results: Sequence[TurnResult], made: TurnsMade) -> None:
        compute = max(each.compute_seconds for each in results)
        step = max(each.step_seconds for each in results)
        if 0 < compute <= step:
            machines = {worker_of(slot).rpartition(":")[0] for slot in membership.slots}
            slot_rows = (made.steps.batch_rows or self._first_rows) / membership.size
            self._measured.add(len(machines), membership.size, slot_rows, compute, step)


TURN_SECONDS = 0.5  # the longest time for which other gangs wait for a slot of this one
TURNS_IN_FLIGHT = 2  # on workers of one thread: the next turn then waits where it will run
LEAD_SECONDS = 0.03  # before a turn ends, the next one is asked for and sent
PASSES_AHEAD = 1  # that ranks begin before the driver has the state at the end of the one before
AHEAD = 1  # passes that a gang makes before the runner asks for them
ASK_SECONDS = 1.0  # before a turn is asked for again: the scheduler may have been started again
FIND_SECONDS = 0.5  # between two looks for workers, where those of the gang are gone
KEEP_SECONDS = 10.0  # between two states that the driver keeps
GRACE_SECONDS = 2.0  # for the other ranks to tell that their generation is over
LOOK_SECONDS = 0.05  # between two looks at the clock
AWAY_SECONDS = 1.0  # between two looks: the process of the driver was stopped, and could hear no rank


@dataclass(frozen=True, slots=True)
class GangPass:
    """What a task says that stands for one more pass by a gang, and gives the course after it.

    Attributes:
        recipe: begins at the course.
        course: where the run stands.
        passes: how many are over after it.
        facts: what is known of the gang.
    """

    recipe: Recipe
    course: TrainingCourse
    passes: int
    facts: GangFacts

    def run(self, owner: str) -> object:
        raise AssertionError("a pass by a gang is no task of a worker")


@dataclass(frozen=True, slots=True)
class NoGangs:
    """What a gang's pass gives where no gang can run. why: for people."""

    why: str


class GangCarrier(Driver):
    """The gang of one run, and the executor of that run. See `Driver`."""

    carries = GangPass

    def __init__(self, id: str, cluster: GangExecutor) -> None:
        super().__init__(id, cluster)
        self._recipe: Recipe | None = None
        self._end_passes = 0.0  # after which it waits for more
        self._made = TurnsMade()
        # What the runner asks, and is told.
        self._facts: GangFacts | None = None
        self._core_seconds = 0.0  # of turns, since the last pass
        self._ahead: dict[int, tuple[bytes, float]] = {}  # passes made: their courses and core-seconds
        # What is wanted, and what is there.
        self._wanted_slots: tuple[str, ...] = ()  # without one it waits, and keeps its state
        self._leased: set[str] = set()
        self._asked_slots: tuple[str, ...] = ()
        self._roster = RankRoster(f"{id}-{secrets.token_hex(4)}")
        self._looked_seconds = 0.0
        self._clock_seconds = math.inf  # of the last look at the clock
        self._pass_end_seconds = math.inf  # about when the present pass is over
        self._step_seconds = math.inf  # the median of a rank; inf before it is known
        self._membership: Membership | None = None
        self._generation = -1
        self._turns = TurnsInFlight()
        self._had_ranks = False  # of the present gang; else all begin from what the driver has
        self._cluster_slots: tuple[str, ...] = ()
        self._may_turn = False
        self._asked_seconds = -math.inf

    # What its job shows. From any thread.

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._made.step

    @property
    def rescales(self) -> list[Rescale]:
        """The changes that were carried out."""
        return self._made.rescales

    def journal_since(self, step: int) -> Journal:
        return self._made.steps.journal(step)

    @property
    def batch_rows(self) -> int | None:
        """The rows of the last step, None before it."""
        return self._made.steps.batch_rows

    @property
    def ranks(self) -> int:
        """How many ranks train now."""
        return 0 if (present := self._membership) is None else present.size

    # What the cluster says, on its event loop: see `relaqs.executors.dask.slots.GangDriver`.

    def leased(self, slots: tuple[str, ...]) -> None:
        self._post(lambda: self._note_leased(slots))

    def offered(self, slots: tuple[str, ...]) -> None:
        """Train on these slots as soon as ranks there are ready. A power of two of them is used."""
        self._post(lambda: self._take_slots(slots))

    def refused(self, why: str) -> None:
        """No gang can run here: whoever asked for the pass makes it by tasks."""
        self._answer(NoGangs(why))
        self.stop()

    # What the runner is told.

    def _take_on(self, work: GangPass) -> None:
        self._facts, end_passes = work.facts, work.passes + AHEAD
        if self._thread is None:
            self._recipe, self._made = work.recipe, TurnsMade(work.course)
            self._end_passes = end_passes
        else:
            self._post(lambda: self._take_passes(end_passes))
            self._answer_pass()
        self._cluster.tell_gang(self.id, work.facts.gang(self._made))

    def _answer_pass(self) -> None:
        """Give the runner the pass that it waits for, if that is over."""
        if isinstance(wanted := self._wanted_work, GangPass):
            with self._lock:
                made = self._ahead.pop(wanted.passes, None)
            if made is not None:
                self._answer(pickle.loads(made[0]), made[1])

    def _tell(self, turn: Turn, results: Sequence[TurnResult]) -> None:
        """Tell what a turn gave. results: what counts of it."""
        self._core_seconds += turn.core_seconds
        if self._facts is not None:
            self._facts.turned(turn.membership, results, self._made)
            if not self.has_stopped:
                self._cluster.tell_gang(self.id, self._facts.gang(self._made))
        for passes, course in self._made.passed:
            with self._lock:
                self._ahead[passes] = (course, self._core_seconds)
                self._core_seconds = 0.0
            self._answer_pass()
        self._made.passed.clear()

    # On the gang's own thread.

    def _drive(self) -> None:
        while not self._is_over:
            self._advance()
            self._hear(self._next_turn_in_seconds() or LOOK_SECONDS)
            if self._mailbox.empty():
                self._look_at_the_clock()

    def _part(self) -> None:
        """Free the ranks. Whoever gets the slots may queue behind the last turn."""
        with suppress(ClusterError):  # the session is closed: the ranks are freed after a while
            wait = self._dismiss_all({slot: self._roster.name(slot) for slot in self._roster.ready})
            self._lease(())
            wait()

    def _advance(self) -> None:
        """Do all that can be done now."""
        self._prepare()
        if self._roster.is_preparing and not self._may_turn:
            self._ask_turn()  # so that the first turn begins as soon as they are ready
        self._regroup()
        if not self._wanted_slots and (self._asked_slots or self._roster.ready) and self._is_at_rest():
            self._rest()
        if self._membership is None or self._is_over:
            return
        if len(self._turns) < self._turns_most() and self._has_more():
            if self._may_turn:
                self._send_turn(self._membership)
            else:
                self._ask_turn()

    def _ask_turn(self) -> None:
        if time.monotonic() - self._asked_seconds > ASK_SECONDS:
            self._asked_seconds = time.monotonic()
            self._cluster.ask_turn(self.id)

    def _has_more(self) -> bool:
        """Return whether there are steps to make, or their state is to be fetched."""
        if not self._wanted_slots:
            return not self._turns
        is_kept = self._made.kept_passes >= self._end_passes
        return not self._is_made() or (not self._turns and not is_kept)

    def _is_made(self) -> bool:
        """Return whether there are no steps to make for now."""
        return self._made.passes >= self._pass_limit()

    def _pass_limit(self) -> float:
        """Return the passes after which ranks wait, as of now."""
        return min(self._end_passes, self._made.kept_passes + 1 + PASSES_AHEAD)

    def _is_at_rest(self) -> bool:
        """Return whether a gang that may hold no slot can give up those it has: nothing would be lost."""
        is_kept = self._made.kept_step >= self.step or not self._roster.knowing or self._membership is None
        return is_kept and not self._turns

    def _rest(self) -> None:
        """Give up all slots. What the driver keeps is where it goes on."""
        self._dismiss(tuple(self._roster.ready))
        self._membership = None
        self._had_ranks = False
        self._lease(())

    def _turns_most(self) -> int:
        """Return how many turns may be in flight. A worker of several threads would start both at once."""
        assert self._membership is not None
        workers = [worker_of(slot) for slot in self._cluster_slots]
        alone = all(workers.count(worker_of(slot)) == 1 for slot in self._membership.slots)
        return TURNS_IN_FLIGHT if alone and not self._next_turn_in_seconds() else 1

    def _next_turn_in_seconds(self) -> float:
        """Return in how long a turn may be sent behind the one that runs. One ends with the pass, too.

        The first turn of a generation is sent at once, so that new ranks do not wait until the turn before
        is over: it ends for it. Where a step takes long, they would wait in vain to meet the others.
        """
        is_short = self._step_seconds < MEETING_SECONDS / 4
        if is_short and self._membership is not None and self._turns.has_other_than(self._membership):
            return 0.0
        end_seconds = min(self._turns.end_seconds(TURN_SECONDS), self._pass_end_seconds)
        return max(0.0, end_seconds - LEAD_SECONDS - time.monotonic())

    # What is wanted.

    def _take_slots(self, slots: tuple[str, ...]) -> None:
        self._wanted_slots = slots
        self._roster.try_all_again()
        self._lease(tuple(dict.fromkeys((*slots, *self._used_slots()))))
        self._cluster_slots = self._cluster.slots()  # the answer takes as long as the lease

    def _take_passes(self, end_passes: float) -> None:
        self._end_passes = end_passes

    def _find_slots(self) -> None:
        """Go on elsewhere: all workers that the gang was to run on are gone."""
        if found := self._cluster.slots()[: len(self._wanted_slots)]:
            self._take_slots(found)

    def _used_slots(self) -> tuple[str, ...]:
        current = () if self._membership is None else self._membership.slots
        return (*current, *self._turns.slots)

    def _lease(self, slots: tuple[str, ...]) -> None:
        if slots != self._asked_slots:
            self._asked_slots = slots
            self._cluster.lease(self.id, slots)

    def _note_leased(self, slots: tuple[str, ...]) -> None:
        self._leased = {*slots}

    def _prepare(self) -> None:
        """Start to prepare ranks on slots that are wanted and held."""
        if self._roster.is_empty:  # nothing is left, so try again what did not answer
            self._roster.try_again()
            self._lease(tuple(slot for slot in self._wanted_slots if slot not in self._roster.gone))
        for slot in self._roster.missing(self._wanted_slots):
            if slot in self._leased:
                assert self._recipe is not None
                self._roster.begin(slot, time.monotonic())
                self._submit(
                    slot, PrepareWork(self._roster.name(slot), slot, self._recipe), self._note_prepared
                )

    def _note_prepared(self, slot: str, result: TaskResult) -> None:
        if isinstance(result.error, OSError | ClusterError):
            self._roster.leave_out(slot)
            self._note_setback(result.error)
        elif result.error is not None:
            self._fail(result.error)
        else:
            assert isinstance(result.value, RankAddress)
            self._roster.note_ready(slot, result.value, time.monotonic())

    # Generations.

    def _regroup(self) -> None:
        """Make a new generation, if other ranks are there and wanted than those of the present one."""
        if any(turn.is_broken for turn in self._turns):
            return  # ranks that are still there will say so
        if self._is_waiting_for_slots() and (self._membership is not None or not self._had_ranks):
            return  # training goes on meanwhile
        wanted = [slot for slot in self._wanted_slots if slot in self._roster.ready]
        if not wanted:
            return
        chosen = self._roster.bridged(wanted[: most_ranks(len(wanted))])
        present = self._membership
        if present is not None and present.slots == chosen:
            self._let_go()
            return
        self._had_ranks = True
        self._pass_end_seconds = math.inf
        self._generation += 1
        self._membership = Membership(
            self._generation, tuple(self._roster.ready[slot] for slot in chosen), secrets.token_hex(16)
        )

    def _is_waiting_for_slots(self) -> bool:
        return self._roster.awaits_any or self._leased != {*self._asked_slots}

    def _let_go(self) -> None:
        """Give slots back on which no turn runs any more."""
        if self._roster.is_preparing or not self._asked_slots:
            return
        used = {*self._used_slots(), *self._wanted_slots}
        if unused := {*self._asked_slots} - used:
            self._dismiss(tuple(slot for slot in self._roster.ready if slot in unused))
            self._lease(tuple(slot for slot in self._asked_slots if slot in used))

    def _dismiss(self, slots: tuple[str, ...]) -> None:
        for slot in slots:
            self._submit(slot, DismissWork(self._roster.name(slot), slot), lambda slot, result: None)
        self._roster.forget(slots)

    def _note_gone(self, slots: set[str]) -> None:
        self._roster.gone |= slots
        self._lose(slots)

    def _lose(self, slots: set[str]) -> None:
        """Go on without these slots."""
        self._leased -= slots
        self._lease(tuple(slot for slot in self._asked_slots if slot not in slots))
        self._roster.lose(slots)
        self._go_on_without(slots)

    def _go_on_without(self, slots: set[str]) -> None:
        """Go on without the ranks on these slots. A turn in flight has no result of them."""
        if not self._roster.ready:
            self._had_ranks = False
        if self._membership is not None and not slots.isdisjoint(self._membership.slots):
            self._membership = None
        self._turns.lose(slots, time.monotonic() + MEETING_SECONDS + GRACE_SECONDS)
        self._fold_whole()

    # Turns.

    def _send_turn(self, membership: Membership) -> None:
        self._may_turn = False
        turn = self._turns.begin(membership, time.monotonic())
        for slot in membership.slots:
            self._submit(slot, self._turn_work(turn, slot), self._note_turn)

    def _turn_work(self, turn: Turn, slot: str) -> RankTurn:
        return RankTurn(
            self._roster.name(slot),
            slot,
            turn.membership,
            turn.number,
            TURN_SECONDS,
            None if self._roster.knowing else self._made.kept,
            self._wants_state(),
            self._pass_limit(),
            self._made.kept_passes,
        )

    def _wants_state(self) -> bool:
        is_old = time.monotonic() - self._made.kept_seconds >= KEEP_SECONDS
        return self._is_made() or not self._wanted_slots or is_old

    def _note_may_turn(self, number: int) -> None:
        self._may_turn, self._asked_seconds = True, -math.inf

    def _note_turn(self, slot: str, result: TaskResult) -> None:
        if isinstance(result.error, StateLostError):
            self._roster.forget({slot})  # its worker is well, and prepares it once more
            self._go_on_without({slot})
            return
        if isinstance(result.error, OSError | ClusterError):
            self._lose({slot})
            self._note_setback(result.error)
            return
        if result.error is not None:
            self._fail(result.error)
            return
        told = result.value
        assert isinstance(told, TurnResult)
        if (turn := self._turns.get(told.turn)) is None:
            return
        turn.results[slot] = told
        turn.core_seconds += result.core_seconds
        turn.due_seconds = min(turn.due_seconds, time.monotonic() + self._patience_seconds(told))
        if told.broken is not None:
            turn.note_broken(time.monotonic() + GRACE_SECONDS)
            if self._membership is turn.membership:
                self._membership = None
        self._fold_whole()

    def _patience_seconds(self, told: TurnResult) -> float:
        """Return for how long the other ranks may be silent once one has told of a turn."""
        seconds = MEETING_SECONDS + GRACE_SECONDS
        if self._wants_state() or told.passes > self._made.kept_passes:  # one of them sends its state
            seconds += told.state_bytes / LEAST_BYTES_PER_SECOND
        return seconds

    def _fold_whole(self) -> None:
        for turn in self._turns.take_whole():
            self._fold(turn)

    def _fold(self, turn: Turn) -> None:
        """Take in what a turn has made. It is left out where what came before it was lost with all ranks."""
        results = self._made.take(turn.membership, list(turn.results.values()))
        left_seconds = max((each.pass_seconds_left for each in results), default=math.inf)
        self._pass_end_seconds = time.monotonic() + left_seconds
        self._step_seconds = max((each.step_seconds for each in results), default=math.inf) or math.inf
        self._roster.knowing |= {
            each.slot
            for each in results
            if each.step and each.slot in self._roster.ready and each.slot not in turn.lost
        }
        self._tell(turn, results)

    def _look_at_the_clock(self) -> None:
        """Give up ranks that do not answer, and look for slots where none is left."""
        before, self._clock_seconds = self._clock_seconds, (now := time.monotonic())
        if now - before > AWAY_SECONDS:  # their answers may be on their way
            for turn in self._turns:
                turn.postpone(now - before)
            self._roster.postpone(now - before)
        if (
            self._wanted_slots
            and self._roster.gone.issuperset(self._wanted_slots)
            and now - self._looked_seconds > FIND_SECONDS
        ):
            self._looked_seconds = now
            self._find_slots()
        self._roster.give_up_late(now)
        for turn in self._turns:
            if late := turn.late(now):
                self._roster.note_silent(late)
                self._lose(late)

    def _submit(self, slot: str, work: Work, done: Callable[[str, TaskResult], None]) -> None:
        name = self._roster.name(slot)

        def hear(result: TaskResult) -> None:
            if name == self._roster.name(slot) or isinstance(result.value, TurnResult):
                done(slot, result)  # of a rank that was lost meanwhile, only the steps count

        def take(result: TaskResult) -> None:
            self._post(lambda: hear(result))

        self._send(slot, work, take)

    def _note_setback(self, why: BaseException) -> None:
        """Note that a rank was lost. Where all are, again and again, it is the job that ends its workers."""
        if self._roster.is_empty and (error := self._made.note_all_lost(why)) is not None:
            self._fail(error)


LEAST_PASS_SECONDS = 0.5  # of a core. For a shorter pass it is not worth to keep ranks in workers


class GangJob(StepJob):
    """A `StepJob` that asks a gang for its steps once a pass turns out to be long. Both give the same bits.

    Where no gang can run, it makes all its steps by tasks.

    Args:
        carrier: the executor of this run.
    """

    def __init__(self, rows: RunRows, job: MiniBatchTraining, rule: BatchRule, carrier: GangCarrier) -> None:
        super().__init__(rows, job, rule)
        self._carrier = carrier
        self._facts: GangFacts | None = None
        self._is_refused = self._is_final = False

    @property
    def ranks(self) -> int:
        return super().ranks if self._is_refused else self._carrier.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return tuple(self._carrier.rescales)

    @property
    def batch_rows(self) -> int:
        return self._carrier.batch_rows or super().batch_rows

    @property
    def journal(self) -> Journal:
        """The steps so far. Those of the pass that is being made may still be made once more, the same.

        Steps that were made ahead are no part of the model once the run has ended.
        """
        made = super().journal
        is_over = self._is_refused or self._is_final or self._carrier.has_stopped
        return made if is_over else made.then(self._carrier.journal_since(len(made)))

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._is_refused or (self._facts is None and self._is_short(course)):
            return super()._step_works(course)
        if self._facts is None:
            self._facts = GangFacts(self.id, self._order, self._rule.rows(course))
        recipe = TableRecipe(self._job, self._rule, self._order, course, self._sources(range(self._trained)))
        return [GangPass(recipe, course, course.passes + 1, self._facts)]

    def _is_short(self, course: TrainingCourse) -> bool:
        """Return whether a pass takes little time, as far as is known."""
        if self._pass_core_seconds >= LEAST_PASS_SECONDS:
            return False
        order = self._order
        steps = order.piece_count / pieces_of_step(self._rule.rows(course), order.piece_rows)
        return not self._step_seconds * steps >= LEAST_PASS_SECONDS  # NaN before it was measured

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        made = values[0]
        if isinstance(made, NoGangs):
            self._is_refused = True
            warnings.warn(
                f"no gang can run on this cluster, so mini-batches are made by tasks: {made.why}",
                RuntimeWarning,
                stacklevel=2,
            )
        elif isinstance(made, TrainingCourse):
            before = self._log.end
            journal = self._carrier.journal_since(before).until(made.step - before)
            assert made.step == before + len(journal), (made.step, before, len(journal))
            self._log.add(journal.batch_rows.tolist(), journal.rates.tolist(), journal.ranks.tolist())
            self._course = made
        else:
            super()._take_made(values, results)

    def _end(self) -> PassEnd | None:
        if self._course is None or not self._log.end:
            return None  # the gang was refused
        end = super()._end()
        if end is not None and self._facts is not None:
            self._facts.passed(end.loss, end.accuracy)
        self._is_final = end is not None and end.is_final
        return end
