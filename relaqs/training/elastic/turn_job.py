"""Drives a gang whose ranks live in the workers of a cluster, turn by turn, and changes it while it runs.

**The idea.** A turn is one pinned task on each slot. It ends early where a task waits for its core. The
next turn is sent shortly before, so that it waits on its worker when the first one ends: no core waits for
its messages. What changes (slots, rows of a mini-batch, a death) makes a new generation: turns in flight
end, the next turn carries the new membership, and the ranks meet anew.

    slots a    generation 0: turn 0 | turn 1 | turn 2 │ generation 1: turn 3 | turn 4
    slots b          prepare: import, build, read ... │                turn 3 | turn 4

All that happens arrives in one mailbox and is handled by one thread, so a gang needs no lock.

`TurnsInFlight` has what the ranks have said of each turn, and `TurnsMade` what was reached by those that
are over: the steps, and the state that the driver keeps.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from relaqs_engine.errors import ClusterError

from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND, Done, background_thread, is_set_in_time
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.training.elastic.course import Journal, Rescale, StepLog, StepsMade, TrainingCourse
from relaqs.training.elastic.gang_executor import GangExecutor, GangWitness
from relaqs.training.elastic.membership import DismissWork, Membership, RankAddress, RankRoster, most_ranks
from relaqs.training.elastic.rank import (
    MEETING_SECONDS,
    EndOfPass,
    PrepareWork,
    RankFreedError,
    Recipe,
    Restart,
    TurnResult,
    TurnWork,
)


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


TURN_SECONDS = 0.5  # the longest time for which other gangs wait for a slot of this one
TURNS_IN_FLIGHT = 2  # on workers of one thread: the next turn then waits where it will run
LEAD_SECONDS = 0.03  # before a turn ends, the next one is asked for and sent
PASSES_AHEAD = 1  # that ranks begin before the driver has the state at the end of the one before
PARTING_SECONDS = 1.0  # at most, for ranks to be freed at the end; else they are after a while
ASK_SECONDS = 1.0  # before a turn is asked for again: the scheduler may have been started again
FIND_SECONDS = 0.5  # between two looks for workers, where those of the gang are gone
KEEP_SECONDS = 10.0  # between two states that the driver keeps
GRACE_SECONDS = 2.0  # for the other ranks to tell that their generation is over
LOOK_SECONDS = 0.05  # between two looks at the clock
AWAY_SECONDS = 1.0  # between two looks: the process of the driver was stopped, and could hear no rank
PLACED = -2  # the index of a gang's tasks; no other task of its job has one below COMMON_INDEX


@dataclass(frozen=True, slots=True)
class Wish:
    """How a gang is to train from now on.

    Attributes:
        slots: those it may hold. A power of two of them is used. Without one it waits, and keeps its state.
        batch_rows: rows of a mini-batch, over all ranks. None: the job's own rule says it.
    """

    slots: tuple[str, ...]
    batch_rows: int | None = None


class TurnJob:
    """A gang in training. Its ranks are on slots that `resize` names.

    Args:
        job_id: unique in its session.
        executor: where.
        wish: how it begins.
        end_step: after how many steps it ends. inf: when it is stopped.
        description: what the scheduler knows of it. None: its id.
        end_passes: after how many passes it waits for `go_on`. Where that is not inf, the driver has the
            state at the end of each pass: each rank keeps it until then.
        witness: is told how it gets on.
        start: where the first course of the recipe stands, where that is not at the beginning.
    """

    def __init__(
        self,
        job_id: str,
        recipe: Recipe,
        executor: GangExecutor,
        wish: Wish,
        *,
        end_step: float = math.inf,
        description: JobDescription | None = None,
        end_passes: float = math.inf,
        witness: GangWitness | None = None,
        start: TrainingCourse | None = None,
    ) -> None:
        self.id = job_id
        self._recipe = recipe
        self._executor = executor
        self._end_step = end_step
        self._end_passes = end_passes
        self._witness = witness
        self._description = description or JobDescription(job_id)
        self._mailbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = background_thread(self._run, f"relaqs-gang-{job_id}")
        self._ended = threading.Event()
        self._is_over = False
        self.error: BaseException | None = None
        self._made = TurnsMade(start, by_passes=not math.isinf(end_passes))
        # What is wanted, and what is there.
        self._wish = wish
        self._leased: set[str] = set()
        self._asked_slots: tuple[str, ...] = ()
        self._roster = RankRoster(f"{job_id}-{secrets.token_hex(4)}")
        self._looked_seconds = 0.0
        self._clock_seconds = math.inf  # of the last look at the clock
        self._pass_end_seconds = math.inf  # about when the present pass is over
        self._step_seconds = math.inf  # the median of a rank; inf before it is known
        self._membership: Membership | None = None
        self._generation = -1
        self._turns = TurnsInFlight()
        self._keys = 0
        self._had_ranks = False  # of the present gang; else all begin from what the driver has
        self._cluster_slots: tuple[str, ...] = ()
        self._may_turn = False
        self._asked_seconds = -math.inf

    # From any thread.

    def start(self) -> None:
        self._thread.start()

    def resize(self, wish: Wish) -> None:
        """Train on other slots, or with other rows a step, as soon as the ranks there are ready."""
        self._post(lambda: self._take_wish(wish))

    def end_at(self, step: int) -> None:
        """Let it end after so many steps, or as soon as it can after that."""
        self._post(lambda: self._take_end(step))

    def go_on(self, end_passes: int) -> None:
        """Train on until so many passes are over."""
        self._post(lambda: self._take_passes(end_passes))

    def stop(self) -> None:
        self._post(self._end)

    def end_by_plan(self) -> None:
        self.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end. Return whether it came. Raises the error that the gang ended with."""
        if not is_set_in_time(self._ended, timeout_seconds):
            return False
        if self.error is not None:
            raise self.error
        return True

    def ends(self, timeout_seconds: float) -> bool:
        """Wait for the end, however it comes. Return whether it came in time."""
        return is_set_in_time(self._ended, timeout_seconds)

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._made.step

    @property
    def rescales(self) -> list[Rescale]:
        """The changes that were carried out."""
        return self._made.rescales

    @property
    def losses(self) -> Sequence[float]:
        """The loss of each step, before it changed the model."""
        return self._made.steps.losses

    @property
    def journal(self) -> Journal:
        return self._made.steps.journal()

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

    @property
    def kept(self) -> bytes | None:
        """The last course that the driver has, pickled. After `end_step` it is the last of all."""
        return self._made.kept

    # What the cluster says, on its event loop: see `relaqs.executors.dask.slots.GangDriver`.

    def leased(self, slots: tuple[str, ...]) -> None:
        self._post(lambda: self._note_leased(slots))

    def offered(self, slots: tuple[str, ...]) -> None:
        self.resize(Wish(slots, self._wish.batch_rows))

    def may_turn(self, number: int) -> None:
        self._post(self._note_may_turn)

    def slots_lost(self, slots: tuple[str, ...]) -> None:
        self._post(lambda: self._note_gone({*slots}))

    def refused(self, why: str) -> None:
        self.unreachable(ClusterError(f"no gang can run on this cluster: {why}"))

    def unreachable(self, error: ClusterError) -> None:
        self._post(lambda: self._fail(error))

    def _post(self, event: Callable[[], None]) -> None:
        self._mailbox.put(event)

    # On the gang's own thread.

    def _run(self) -> None:
        try:
            self._executor.enter(self._description, self)
            self._take_wish(self._wish)
            while not self._is_over:
                if self._made.kept_step >= self._end_step:
                    break  # a turn that is still in flight has no part in what is kept
                self._advance()
                with suppress(Empty):
                    self._mailbox.get(timeout=self._next_turn_in_seconds() or LOOK_SECONDS)()
                if self._mailbox.empty():
                    self._look_at_the_clock()
        except BaseException as error:
            self.error = error
        finally:
            self._part()
            if self._witness is not None:
                self._witness.ended(self.error)
            self._ended.set()

    def _part(self) -> None:
        """Free the ranks, and leave the cluster. Whoever gets the slots may queue behind the last turn."""
        told = threading.Semaphore(0)
        slots = tuple(self._roster.ready)
        with suppress(ClusterError):  # the session is closed: the ranks are freed after a while
            for slot in slots:
                self._send(slot, DismissWork(self._roster.name(slot), slot), lambda result: told.release())
            self._lease(())
            over_seconds = time.monotonic() + PARTING_SECONDS
            for _ in slots:
                told.acquire(timeout=max(0.0, over_seconds - time.monotonic()))
        self._executor.cancel(self.id)

    def _advance(self) -> None:
        """Do all that can be done now."""
        self._prepare()
        if self._roster.is_preparing and not self._may_turn:
            self._ask_turn()  # so that the first turn begins as soon as they are ready
        self._regroup()
        if not self._wish.slots and (self._asked_slots or self._roster.ready) and self._is_at_rest():
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
            self._executor.ask_turn(self.id)

    def _has_more(self) -> bool:
        """Return whether there are steps to make, or their state is to be fetched."""
        if not self._wish.slots:
            return not self._turns
        made = self._made
        is_kept = made.kept_step >= self._end_step or made.kept_passes >= self._end_passes
        return not self._is_made() or (not self._turns and not is_kept)

    def _is_made(self) -> bool:
        """Return whether there are no steps to make for now."""
        return self.step >= self._end_step or self._made.passes >= self._pass_limit()

    def _pass_limit(self) -> float:
        """Return the passes after which ranks wait, as of now."""
        if math.isinf(self._end_passes):
            return math.inf
        return min(self._end_passes, self._made.kept_passes + 1 + PASSES_AHEAD)

    def _is_at_rest(self) -> bool:
        """Return whether a gang that may hold no slot can give up those it has: nothing would be lost."""
        is_kept = self._made.kept_step >= self.step or not self._roster.knowing or self._membership is None
        return is_kept and not self._turns

    def _rest(self) -> None:
        """Give up all slots. What the driver keeps is where it goes on."""
        self._dismiss(tuple(self._roster.ready))
        self._membership = None
        self._had_ranks, self._made.reached = False, 0
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

    def _take_wish(self, wish: Wish) -> None:
        self._wish = wish
        self._roster.try_all_again()
        self._lease(tuple(dict.fromkeys((*wish.slots, *self._used_slots()))))
        self._cluster_slots = self._executor.slots()  # the answer takes as long as the lease

    def _take_end(self, step: int) -> None:
        self._end_step = max(step, self.step)

    def _take_passes(self, end_passes: int) -> None:
        self._end_passes = end_passes

    def _find_slots(self) -> None:
        """Go on elsewhere: all workers that the gang was to run on are gone."""
        if found := self._executor.slots()[: len(self._wish.slots)]:
            self._take_wish(Wish(found, self._wish.batch_rows))

    def _used_slots(self) -> tuple[str, ...]:
        current = () if self._membership is None else self._membership.slots
        return (*current, *self._turns.slots)

    def _lease(self, slots: tuple[str, ...]) -> None:
        if slots != self._asked_slots:
            self._asked_slots = slots
            self._executor.lease(self.id, slots)

    def _note_leased(self, slots: tuple[str, ...]) -> None:
        self._leased = {*slots}

    def _prepare(self) -> None:
        """Start to prepare ranks on slots that are wanted and held."""
        if self._roster.is_empty:  # nothing is left, so try again what did not answer
            self._roster.try_again()
            self._lease(tuple(slot for slot in self._wish.slots if slot not in self._roster.gone))
        for slot in self._roster.missing(self._wish.slots):
            if slot in self._leased:
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
        wanted = [slot for slot in self._wish.slots if slot in self._roster.ready]
        if not wanted:
            return
        chosen = self._roster.bridged(wanted[: most_ranks(len(wanted))])
        present = self._membership
        if present is not None and (present.slots, present.batch_rows) == (chosen, self._wish.batch_rows):
            self._let_go()
            return
        self._had_ranks = True
        self._pass_end_seconds = math.inf
        self._generation += 1
        self._membership = Membership(
            self._generation,
            tuple(self._roster.ready[slot] for slot in chosen),
            self._wish.batch_rows,
            secrets.token_hex(16),
        )

    def _is_waiting_for_slots(self) -> bool:
        return self._roster.awaits_any or self._leased != {*self._asked_slots}

    def _let_go(self) -> None:
        """Give slots back on which no turn runs any more."""
        if self._roster.is_preparing or not self._asked_slots:
            return
        used = {*self._used_slots(), *self._wish.slots}
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
            self._had_ranks, self._made.reached = False, 0
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

    def _turn_work(self, turn: Turn, slot: str) -> TurnWork:
        return TurnWork(
            self._roster.name(slot),
            slot,
            turn.membership,
            turn.number,
            TURN_SECONDS,
            self._end_step,
            self._made.restart(knows=bool(self._roster.knowing)),
            self._wants_state(),
            self._pass_limit(),
            self._made.kept_passes,
        )

    def _wants_state(self) -> bool:
        is_old = time.monotonic() - self._made.kept_seconds >= KEEP_SECONDS
        return self._is_made() or not self._wish.slots or is_old

    def _note_may_turn(self) -> None:
        self._may_turn, self._asked_seconds = True, -math.inf

    def _note_turn(self, slot: str, result: TaskResult) -> None:
        if isinstance(result.error, RankFreedError):
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
        self._tell(turn)
        if self._witness is not None:
            self._witness.turned(turn.membership, results, turn.core_seconds)
            for passes, course in self._made.passed:
                self._witness.passed(passes, course)
        self._made.passed.clear()

    def _tell(self, turn: Turn) -> None:
        """Report a turn to the scheduler."""
        loss = self.losses[-1] if self.losses else math.inf
        done = None if math.isinf(self._end_step) else self.step / self._end_step
        is_final = self._made.kept_step >= self._end_step
        self._executor.report(self.id, StepReport(turn.number, loss, done, turn.core_seconds, is_final))

    def _look_at_the_clock(self) -> None:
        """Give up ranks that do not answer, and look for slots where none is left."""
        before, self._clock_seconds = self._clock_seconds, (now := time.monotonic())
        if now - before > AWAY_SECONDS:  # their answers may be on their way
            for turn in self._turns:
                turn.postpone(now - before)
            self._roster.postpone(now - before)
        if (
            self._wish.slots
            and self._roster.gone.issuperset(self._wish.slots)
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

    def _send(self, slot: str, work: Work, done: Done) -> None:
        task = Task(TaskKey(self.id, self._keys, PLACED), work, place=worker_of(slot))
        self._keys += 1
        self._executor.submit([task], done)

    def _note_setback(self, why: BaseException) -> None:
        """Note that a rank was lost. Where all are, again and again, it is the job that ends its workers."""
        if self._roster.is_empty and (error := self._made.note_all_lost(why)) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self._end()

    def _end(self) -> None:
        self._is_over = True
