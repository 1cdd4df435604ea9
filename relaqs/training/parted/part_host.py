"""The parts of a model that live in a worker: they are prepared on a slot, and make steps in turns.

A turn is a pinned task on each slot that has parts. Between turns the states stay here, as long as the
parts stay. Each turn tells the driver the state of its stages, too. So whatever dies, a turn is lost at
most.

Some steps of a model in parts: what the runner of a job asks for, and what it gets.

A step of a model that is cut into parts, as the parts of one place make it.

A replica takes some neighbouring pieces of the step. Each goes forward through all stages and then
backward again, one after another, so that a stage can work on one while others work on the next. A stage
holds at most as many pieces at a time as there are stages from it on: one forward, one backward.

    stage 0   F0 F1 .. .. B0 F2 B1 ..      F: forward, B: backward, and the number of the piece
    stage 1   .. F0 B0 F1 B1 .. F2 B2

Source: Narayanan et al. 2019, PipeDream (SOSP), section 3.2, for the order. Here a step ends before the
next one begins, as in Huang et al. 2019, GPipe (NeurIPS), section 2. So the numbers are those of the whole
model.

The sums of pieces are added in the pairs in which the whole model's would be, and each stage makes the
step of its own sums. So every bit is the same, whatever parts there are and wherever they are.

Any place may want to end after the step in hand, until its last piece goes forward. It says so in the
letters of this step: forward they tell the last stage, backward they tell the stages before it, and the
sums tell the other replicas. So all know it when the step ends, and no letter is sent for it alone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.jobs.executor import is_core_wanted
from relaqs.training.elastic.course import (
    BatchRule,
    MiniBatch,
    Order,
    TrainingCourse,
    advanced,
    next_step,
    subtrees,
)
from relaqs.training.elastic.exchange import ExchangeBrokenError, Mail, SocketMail, met
from relaqs.training.elastic.membership import RESIDENTS, RankAddress
from relaqs.training.elastic.rank import PieceReader, ReadsPieces, place_here
from relaqs.training.elastic.torch_module import TorchModule, TorchState
from relaqs.training.parted.placing import ModelCut, Part, PartSizes, Passed
from relaqs.training.parted.torch_stages import TorchStage, joined_state, layer_sizes, split_state
from relaqs.training.passes import PairTree, PartitionSource, add_sums, in_pairs, one_thread
from relaqs.training.protocol import MiniBatchTraining
from relaqs.training.rows import Rows, Sums


class StagePass(Protocol):
    """A piece on its way through a stage: `torch_stages.TorchPass` is one."""

    @property
    def passed(self) -> Passed: ...

    def backward(self, slopes: Any) -> tuple[Sums, Any]: ...


class Stage(Protocol):
    """The layers of a stage: `torch_stages.TorchStage` is one."""

    def forward(
        self, state: Any, count: int, rows: Rows | None, given: Passed | None, draw: int
    ) -> StagePass: ...


@dataclass(slots=True)
class _Lane:
    """The pieces of one part in one step.

    Attributes:
        ends: whether this is to be the last step, as far as this place and letters of this replica have told.
        passes: of pieces that went forward and not backward yet.
    """

    part: Part
    pieces: IntArray
    ends: bool = False
    forward: int = 0
    backward: int = 0
    passes: dict[int, StagePass] = field(default_factory=dict)
    sums: PairTree[Sums] = field(default_factory=lambda: PairTree(add_sums))

    @property
    def is_done(self) -> bool:
        return self.backward == len(self.pieces)


@dataclass(frozen=True, slots=True)
class StepsHere:
    """What some steps gave at one place.

    Attributes:
        states: after them, of the stages that are here.
        losses: of each of them, summed over its rows; empty where the last stage is elsewhere.
        count: how many steps were made. It is the same at all places.
    """

    states: dict[int, Any]
    losses: tuple[float, ...]
    count: int


class PartsHere:
    """The parts of one place. Those of other places make the same steps at the same time.

    Args:
        cut: into parts.
        stages: the stages of which there are parts here.
        places: where each part is.
        here: which of the places this is.
        reader: of the rows.
        mail: to the other places; None where there are none.
    """

    def __init__(
        self,
        job: MiniBatchTraining,
        cut: ModelCut,
        stages: Mapping[int, Stage],
        places: Mapping[Part, int],
        here: int,
        reader: ReadsPieces,
        mail: Mail | None,
    ) -> None:
        self._job, self._cut, self._stages = job, cut, stages
        self._places, self._here = places, here
        self._reader, self._mail = reader, mail
        self._inbox: dict[tuple[Any, ...], tuple[Any, bool]] = {}  # what is told, and whether to end
        self._wants_end: Callable[[], bool] = lambda: False
        self._is_over = False

    def steps(
        self,
        states: Mapping[int, Any],
        steps: Sequence[MiniBatch],
        ends: Callable[[], bool] = lambda: False,
    ) -> StepsHere:
        """Make these steps, or the first of them.

        Args:
            states: of the stages that are here.
            steps: at least one.
            ends: says, before each piece goes forward, whether this place wants its step to be the last one.
                One place is enough.

        Raises:
            ExchangeBrokenError: another place is gone.
        """
        now, losses, count = dict(states), list[float](), 0
        self._wants_end, self._is_over = ends, False
        while not self._is_over and count < len(steps):
            step = steps[count]
            totals = self._totals(now, step)
            for stage, total in totals.items():
                now[stage] = self._job.update(now[stage], total, step.rows, step.rate)
            if (last := totals.get(self._cut.stages - 1)) is not None:
                losses.append(float(last[0]))
            count += 1
        return StepsHere(now, tuple(losses), count)

    def _totals(self, states: Mapping[int, Any], step: MiniBatch) -> dict[int, Sums]:
        """Return the sums of each stage that is here, over all pieces of a step."""
        shares = [step.pieces[share] for share in subtrees(len(step.pieces), self._cut.replicas)]
        lanes = [_Lane(part, shares[part.replica]) for part in self._own()]
        lanes.reverse()  # later stages first: they free what others hold
        while not all(lane.is_done for lane in lanes):
            if not any(self._advanced(lane, states, step) for lane in lanes):
                self._take()
        for lane in lanes:
            if len(lane.pieces):
                self._share(lane, step)
        return {stage: self._total(stage, shares, step) for stage in sorted(self._stages)}

    def _own(self) -> Iterator[Part]:
        return (part for part in self._cut.parts if self._places[part] == self._here)

    def _advanced(self, lane: _Lane, states: Mapping[int, Any], step: MiniBatch) -> bool:
        """Take a piece backward, or else one forward, if there is one that can go. Return whether."""
        stage, replica = lane.part
        is_first, is_last = not stage, stage == self._cut.stages - 1
        slopes = (step.step, "slopes", stage, replica, lane.backward)
        if lane.backward < lane.forward and (is_last or slopes in self._inbox):
            sums, before = lane.passes.pop(lane.backward).backward(self._read(lane, slopes))
            lane.sums.add(sums)
            if not is_first:
                self._send(lane, stage - 1, (step.step, "slopes", stage - 1, replica, lane.backward), before)
            lane.backward += 1
            return True
        given = (step.step, "passed", stage, replica, lane.forward)
        has_room = len(lane.passes) < self._cut.stages - stage
        if lane.forward < len(lane.pieces) and has_room and (is_first or given in self._inbox):
            self._go_forward(lane, states[stage], step, self._read(lane, given))
            return True
        return False

    def _go_forward(self, lane: _Lane, state: Any, step: MiniBatch, given: Passed | None) -> None:
        stage, replica = lane.part
        is_last = stage == self._cut.stages - 1
        piece = lane.pieces[lane.forward]
        lane.ends |= self._wants_end()
        order = self._reader.order
        rows = self._reader.rows(int(piece)) if given is None or is_last else None
        count = order.row_count_of(np.array([piece]))
        going = self._stages[stage].forward(state, count, rows, given, order.draw(step.step, int(piece)))
        lane.passes[lane.forward] = going
        if not is_last:
            self._send(lane, stage + 1, (step.step, "passed", stage + 1, replica, lane.forward), going.passed)
        lane.forward += 1

    def _share(self, lane: _Lane, step: MiniBatch) -> None:
        """Give the sums of a part to all places with its stage."""
        stage, replica = lane.part
        total, key = (lane.sums.total(), lane.ends), (step.step, "sums", stage, replica)
        self._inbox[key] = total
        there = {self._places[Part(stage, other)] for other in range(self._cut.replicas)} - {self._here}
        for place in sorted(there):
            self._post(place, key, total)

    def _total(self, stage: int, shares: Sequence[IntArray], step: MiniBatch) -> Sums:
        keys = [(step.step, "sums", stage, replica) for replica, own in enumerate(shares) if len(own)]
        while any(key not in self._inbox for key in keys):
            self._take()
        told = [self._inbox.pop(key) for key in keys]
        self._is_over |= any(ends for _, ends in told)
        return in_pairs([sums for sums, _ in told], add_sums)

    def _read(self, lane: _Lane, key: tuple[Any, ...]) -> Any:
        """Return what a letter to a part says. None: the first stage gets none, and the last none back."""
        value, ends = self._inbox.pop(key, (None, False))
        lane.ends |= ends
        return value

    def _send(self, lane: _Lane, stage: int, key: tuple[Any, ...], value: Any) -> None:
        """Tell the same replica of another stage."""
        if (place := self._places[Part(stage, lane.part.replica)]) == self._here:
            self._inbox[key] = value, lane.ends
        else:
            self._post(place, key, (value, lane.ends))

    def _post(self, place: int, key: tuple[Any, ...], value: tuple[Any, bool]) -> None:
        assert self._mail is not None, f"there is no other place for {key}"
        self._mail.send(place, (key, value))

    def _take(self) -> None:
        assert self._mail is not None, "a piece can go neither forward nor backward"
        key, value = self._mail.take()
        self._inbox[key] = value


MEETING_SECONDS = 5.0  # for all places of a generation to be there
LEAST_TURN_SECONDS = 0.025  # before a turn ends for a task that waits: else a busy query leaves no steps
FIRST_SECONDS = 30.0  # for a place to say anything in its first turn, for which it may read rows
LATER_SECONDS, LATE_STEPS = 4.0, 20.0  # after that, or so many times what a step took at most


@dataclass(frozen=True, slots=True)
class PartRecipe:
    """What all parts of a run have in common.

    Attributes:
        sources: of all partitions that are trained on, by their positions in the order.
    """

    job: TorchModule
    cut: ModelCut
    order: Order
    sources: Mapping[int, PartitionSource]

    def parts_here(
        self, places: Mapping[Part, int], here: int, reader: PieceReader, mail: SocketMail | None
    ) -> PartsHere:
        """Return the parts of one place."""
        own = {part.stage for part, place in places.items() if place == here}
        stages = {
            stage: TorchStage(self.job, self.cut.layers_of(stage), is_last=stage == self.cut.stages - 1)
            for stage in own
        }
        return PartsHere(self.job, self.cut, stages, places, here, reader, mail)


@dataclass(frozen=True, slots=True)
class PartMembership:
    """Where all parts are, from one change to the next.

    Attributes:
        generation: 0, 1, 2, …
        places: the addresses of those who have parts, in their order.
        place_of: which of these each part is at.
        token: random. A connection that cannot say it belongs to something else, and is closed.
    """

    generation: int
    places: tuple[RankAddress, ...]
    place_of: Mapping[Part, int]
    token: str = field(repr=False)

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(each.slot for each in self.places)

    def stages_at(self, slot: str) -> tuple[int, ...]:
        """Return the stages of which there are parts on a slot."""
        here = self.slots.index(slot)
        return tuple(sorted({part.stage for part, place in self.place_of.items() if place == here}))


@dataclass(frozen=True, slots=True)
class PartTurnResult:
    """What a turn gave on one slot.

    Attributes:
        count: how many steps were made. It is the same on all slots.
        losses: of each step, summed over its rows; empty where the last stage is elsewhere.
        states: after the turn, of the stages that have their first replica here.
        reads: how many partitions were read.
        seconds: that the turn took.
        broken: why the turn came to nothing. None: it did not.
    """

    slot: str
    count: int = 0
    losses: tuple[float, ...] = ()
    states: Mapping[int, Any] = field(default_factory=dict)
    reads: int = 0
    seconds: float = 0.0
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class PreparePartsWork:
    """Prepares a slot, and returns its address. What is there already stays as it is.

    reads: whether its parts need rows. Then all that fit into memory are read now.
    """

    run_name: str
    slot: str
    recipe: PartRecipe
    reads: bool

    def run(self, owner: str) -> RankAddress:
        def make() -> PartHost:
            layer_sizes(self.recipe.job)  # imports what the first step needs
            return PartHost(self.slot, self.recipe, owner)

        host = RESIDENTS.settled(self.run_name, self.slot, PartHost, make)
        if self.reads:
            with host.lock:
                host.reader.read_ahead()
        return host.address


@dataclass(frozen=True, slots=True)
class PartTurnWork:
    """The turn of the parts on one slot.

    It ends early, with the step in hand, where a task waits for one of its cores.

    Attributes:
        steps: those that it makes at most.
        seconds: after which it ends with the next one.
        states: of the stages here before the first step. None: they are here from the turn before.
    """

    run_name: str
    slot: str
    membership: PartMembership
    steps: tuple[MiniBatch, ...]
    seconds: float
    states: Mapping[int, Any] | None

    def run(self, owner: str) -> PartTurnResult:
        if (host := RESIDENTS.get(self.run_name, self.slot, PartHost)) is None:
            return PartTurnResult(self.slot, broken="its parts were freed")
        with host.lock, one_thread():
            return host.take(self)


def turn_end(seconds: float) -> Callable[[], bool]:
    """Return what says whether a turn is to end that begins now.

    seconds: that it lasts at most. It ends earlier where a task waits for the core of whoever asks.
    """
    began_seconds = time.monotonic()

    def ends() -> bool:
        turned_seconds = time.monotonic() - began_seconds
        return turned_seconds >= seconds or (turned_seconds >= LEAST_TURN_SECONDS and is_core_wanted())

    return ends


class PartHost:
    """The parts on one slot. `lock` is held in a turn."""

    def __init__(self, slot: str, recipe: PartRecipe, owner: str) -> None:
        here = place_here()
        self._listener = socket.create_server((here.host, 0), family=here.family, backlog=64)
        self._encryption = here.encryption
        host, port = self._listener.getsockname()[:2]
        self.address = RankAddress(slot, host, port)
        self.lock = threading.Lock()
        self.used_seconds = time.monotonic()
        self.reader = PieceReader(owner, recipe.order, recipe.sources)
        self._recipe = recipe
        self._generation = -1
        self._mail: SocketMail | None = None
        self._parts: PartsHere | None = None
        self._states: dict[int, Any] = {}
        self._step = -1  # the next one, that these states are for
        self._step_seconds = 0.0  # the longest one of this generation, as the mean of a turn

    def take(self, work: PartTurnWork) -> PartTurnResult:
        """Make the steps of a turn with all other parts."""
        started_seconds, reads = time.monotonic(), self.reader.reads
        ends = turn_end(work.seconds)
        try:
            self._join(work)
            made = self._made(work, ends)
        except ExchangeBrokenError as error:
            self._leave()
            return PartTurnResult(self.address.slot, broken=str(error))
        except BaseException:
            self._leave()  # frees those who wait for this place
            raise
        self.used_seconds = time.monotonic()
        first = work.membership.place_of
        here = work.membership.slots.index(self.address.slot)
        return PartTurnResult(
            self.address.slot,
            made.count,
            made.losses,
            {stage: state for stage, state in self._states.items() if first[Part(stage, 0)] == here},
            self.reader.reads - reads,
            self.used_seconds - started_seconds,
        )

    def close(self) -> None:
        """Free the slot. A turn that still runs ends."""
        if (mail := self._mail) is not None:
            mail.close()
        with self.lock:
            self._leave()
            self._listener.close()

    def is_idle_since(self, seconds: float) -> bool:
        """Whether it had no turn since then, on the monotonic clock."""
        return self.used_seconds < seconds and not self.lock.locked()

    def _join(self, work: PartTurnWork) -> None:
        """Be in the generation of a turn, with the states before its first step."""
        there = work.membership
        here = there.slots.index(self.address.slot)
        if there.generation != self._generation:
            self._leave()
            self._generation, self._step_seconds = there.generation, 0.0
            if len(there.places) > 1:
                limits = (MEETING_SECONDS, FIRST_SECONDS)
                self._mail = met(there.places, there.token, here, self._listener, self._encryption, limits)
            self._parts = self._recipe.parts_here(there.place_of, here, self.reader, self._mail)
        if work.states is not None:
            self._states, self._step = dict(work.states), work.steps[0].step
        if self._parts is None or self._step != work.steps[0].step:
            raise ExchangeBrokenError(here, "its states are not those before this turn")

    def _made(self, work: PartTurnWork, ends: Callable[[], bool]) -> StepsHere:
        assert self._parts is not None
        self._step, started_seconds = -1, time.monotonic()  # until all is well
        made = self._parts.steps(self._states, work.steps, ends)
        if self._mail is not None:
            self._mail.flush()
            step_seconds = (time.monotonic() - started_seconds) / made.count
            self._step_seconds = max(self._step_seconds, step_seconds)
            self._mail.limit_seconds = max(LATER_SECONDS, LATE_STEPS * self._step_seconds)
        self._states, self._step = made.states, work.steps[0].step + made.count
        return made

    def _leave(self) -> None:
        self._parts, self._states, self._step = None, {}, -1
        if (mail := self._mail) is not None:
            self._mail = None
            mail.free()


@dataclass(frozen=True, slots=True)
class PartStepsMade:
    """What a turn gives.

    Attributes:
        steps: that were made.
        losses: of each of them, summed over its rows.
        state: of the whole model after them.
        reads: how many partitions were read.
        seconds: that it took.
    """

    steps: tuple[MiniBatch, ...]
    losses: tuple[float, ...]
    state: TorchState
    reads: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PartTurn:
    """Makes some steps. On a cluster a `PartCarrier` does it, and this never runs itself.

    Attributes:
        sizes: of the parts, for a placed policy.
        state: of the whole model, before the steps.
        steps: those that it makes at most.
        seconds: after which it ends with the next one.
        passes: how many are done, and how many there are at most.
    """

    recipe: PartRecipe
    sizes: PartSizes
    state: TorchState
    steps: tuple[MiniBatch, ...]
    seconds: float
    passes: tuple[int, int]

    def run(self, owner: str) -> PartStepsMade:
        """Make the steps in this process: all parts are here."""
        recipe, started_seconds = self.recipe, time.monotonic()
        reader = PieceReader(owner, recipe.order, recipe.sources)
        parts = recipe.parts_here(dict.fromkeys(recipe.cut.parts, 0), 0, reader, None)
        with one_thread():
            made = parts.steps(self.states(), self.steps, turn_end(self.seconds))
        return self.made(made.states, made.losses, reader.reads, time.monotonic() - started_seconds)

    def states(self) -> dict[int, Any]:
        """Return the state of each stage before the steps."""
        return dict(enumerate(split_state(self.recipe.job, self.recipe.cut, self.state)))

    def made(
        self, states: Mapping[int, Any], losses: tuple[float, ...], reads: int, seconds: float
    ) -> PartStepsMade:
        """Return what the turn gives. losses: of each step that was made. states: after them."""
        steps = self.steps[: len(losses)]
        joined = joined_state(tuple(states[stage] for stage in range(self.recipe.cut.stages)))
        return PartStepsMade(steps, losses, joined, reads, seconds)


def planned_steps(
    job: MiniBatchTraining, rule: BatchRule, order: Order, course: TrainingCourse, count: float
) -> tuple[MiniBatch, ...]:
    """Return the next steps of a run, to the end of its pass at most, before any of them is made.

    The rule must not look at the noise of the gradients, which nobody measures of a model in parts.
    """
    bare, steps = replace(course, state=None), list[MiniBatch]()
    while len(steps) < count and (not steps or not bare.is_between_passes):
        step = next_step(job, rule, order, bare)
        bare = advanced(job, order, bare, step, 0.0, None, bare.noise)
        steps.append(step)
    return tuple(steps)
