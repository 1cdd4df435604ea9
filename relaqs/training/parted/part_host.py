"""The parts of a model that live in a worker: they are prepared on a slot, and make steps in turns.

A turn is a pinned task on each slot that has parts. Between turns the states stay here, as long as the parts
stay. Each turn tells the driver the state of its stages, too. So whatever dies, a turn is lost at most.

**A step** (`PartsHere`). A replica takes some neighbouring pieces of the step. Each goes forward through
all stages and then backward again, one after another, so that a stage can work on one while others work on
the next. A stage holds at most as many pieces at a time as there are stages from it on: one forward, one
backward.

    stage 0   F0 F1 .. .. B0 F2 B1 ..      F: forward, B: backward, and the number of the piece
    stage 1   .. F0 B0 F1 B1 .. F2 B2

Source: Narayanan et al. 2019, PipeDream (SOSP), section 3.2, for the order. Here a step ends before the next
one begins, as in Huang et al. 2019, GPipe (NeurIPS), section 2. So the numbers are those of the whole model.

The sums of pieces are added in the pairs in which the whole model's would be, and each stage makes the
step of its own sums. So every bit is the same, whatever parts there are and wherever they are.

Any place may want to end after the step in hand, until its last piece goes forward. It says so in the
letters of this step: forward they tell the last stage, backward they tell the stages before it, and the
sums tell the other replicas. So all know it when the step ends, and no letter is sent for it alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from relaqs.training.elastic.membership import Actor, Membership, TurnWork
from relaqs.training.elastic.mesh import ExchangeBrokenError, Mesh
from relaqs.training.elastic.rank import PieceReader, ReadsPieces
from relaqs.training.elastic.torch_module import (
    Passed,
    TorchModule,
    TorchPass,
    TorchStage,
    TorchState,
    layer_sizes,
    split_state,
)
from relaqs.training.parted.placing import ModelCut, Part, PartSizes
from relaqs.training.passes import PairTree, PartitionSource, add_sums, in_pairs, one_thread
from relaqs.training.protocol import MiniBatchTraining
from relaqs.training.rows import Sums


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
    passes: dict[int, TorchPass] = field(default_factory=dict)
    sums: PairTree[Sums] = field(default_factory=lambda: PairTree(add_sums))

    @property
    def is_done(self) -> bool:
        return self.backward == len(self.pieces)


@dataclass(frozen=True, slots=True)
class StepsHere:
    """What some steps gave at one place, or at all of them.

    Attributes:
        states: after them, of the stages that are here.
        losses: of each of them, summed over its rows; empty where the last stage is elsewhere.
        count: how many steps were made. It is the same at all places.
        reads: how many partitions were read.
        seconds: that they took.
    """

    states: dict[int, Any]
    losses: tuple[float, ...]
    count: int
    reads: int = 0
    seconds: float = 0.0


class PartsHere:
    """The parts of one place. Those of other places make the same steps at the same time.

    Args:
        stages: the stages of which there are parts here.
        here: which of the places this is.
        reader: of the rows.
        mesh: with the other places; None where there are none.
    """

    def __init__(
        self,
        job: MiniBatchTraining,
        cut: ModelCut,
        stages: Mapping[int, TorchStage],
        places: Mapping[Part, int],
        here: int,
        reader: ReadsPieces,
        mesh: Mesh | None,
    ) -> None:
        self._job, self._cut, self._stages = job, cut, stages
        self._places, self._here = places, here
        self._reader, self._mesh = reader, mesh
        self._inbox: dict[tuple[Any, ...], tuple[Any, bool]] = {}  # what is told, and whether to end
        self._wants_end: Callable[[], bool] = lambda: False
        self._is_over = False

    def steps(
        self, states: Mapping[int, Any], steps: Sequence[MiniBatch], ends: Callable[[], bool] = lambda: False
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
        assert self._mesh is not None, f"there is no other place for {key}"
        self._mesh.send(place, (key, value))

    def _take(self) -> None:
        assert self._mesh is not None, "a piece can go neither forward nor backward"
        key, value = self._mesh.take()
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
        reads: whether a slot needs rows. Then all that fit into memory are read as it gets ready.
    """

    job: TorchModule
    cut: ModelCut
    order: Order
    sources: Mapping[int, PartitionSource]
    reads: bool = False

    def actor(self, slot: str, owner: str) -> PartHost:
        layer_sizes(self.job)  # imports what the first step needs
        return PartHost(slot, self, owner)

    def parts_here(
        self, places: Mapping[Part, int], here: int, reader: PieceReader, mesh: Mesh | None
    ) -> PartsHere:
        """Return the parts of one place."""
        own = {part.stage for part, place in places.items() if place == here}
        stages = {
            stage: TorchStage(self.job, self.cut.layers_of(stage), is_last=stage == self.cut.stages - 1)
            for stage in own
        }
        return PartsHere(self.job, self.cut, stages, places, here, reader, mesh)


@dataclass(frozen=True, slots=True)
class PartTurnWork(TurnWork):
    """The turn of the parts on one slot.

    It ends early, with the step in hand, where a task waits for one of its cores.

    Attributes:
        place_of: which of the ranks each part is at.
        steps: those that it makes at most.
        seconds: after which it ends with the next one.
        states: of the stages here before the first step. None: they are here from the turn before.
    """

    membership: Membership
    place_of: Mapping[Part, int]
    steps: tuple[MiniBatch, ...]
    seconds: float
    states: Mapping[int, Any] | None


def turn_end(seconds: float) -> Callable[[], bool]:
    """Return what says whether a turn is to end that begins now.

    seconds: that it lasts at most. It ends earlier where a task waits for the core of whoever asks.
    """
    began_seconds = time.monotonic()

    def ends() -> bool:
        turned_seconds = time.monotonic() - began_seconds
        return turned_seconds >= seconds or (turned_seconds >= LEAST_TURN_SECONDS and is_core_wanted())

    return ends


class PartHost(Actor):
    """The parts on one slot."""

    def __init__(self, slot: str, recipe: PartRecipe, owner: str) -> None:
        super().__init__(slot)
        self.reader = PieceReader(owner, recipe.order, recipe.sources)
        self._recipe = recipe
        self._parts: PartsHere | None = None
        self._states: dict[int, Any] = {}
        self._step = -1  # the next one, that these states are for
        self._step_seconds = 0.0  # the longest one of this generation, as the mean of a turn

    def get_ready(self, recipe: PartRecipe) -> None:
        if recipe.reads:
            with self.lock:
                self.reader.read_ahead()

    def _turn(self, work: PartTurnWork) -> StepsHere:
        """Make the steps of a turn with all other parts. The first replica of a stage tells its state."""
        started_seconds, reads = time.monotonic(), self.reader.reads
        ends = turn_end(work.seconds)
        self._join(work)
        made = self._made(work, ends)
        here = work.membership.rank_of(self.address.slot)
        states = {
            stage: state for stage, state in self._states.items() if work.place_of[Part(stage, 0)] == here
        }
        seconds = time.monotonic() - started_seconds
        return replace(made, states=states, reads=self.reader.reads - reads, seconds=seconds)

    def _join(self, work: PartTurnWork) -> None:
        """Be in the generation of a turn, with the states before its first step."""
        there = work.membership
        here = there.rank_of(self.address.slot)
        if there.generation != self._generation:
            mesh = self._meet(there, (MEETING_SECONDS, FIRST_SECONDS))
            self._step_seconds = 0.0
            self._parts = self._recipe.parts_here(work.place_of, here, self.reader, mesh)
        if work.states is not None:
            self._states, self._step = dict(work.states), work.steps[0].step
        if self._parts is None or self._step != work.steps[0].step:
            raise ExchangeBrokenError(here, "its states are not those before this turn")

    def _made(self, work: PartTurnWork, ends: Callable[[], bool]) -> StepsHere:
        assert self._parts is not None
        assert self._mesh is not None
        self._step, started_seconds = -1, time.monotonic()  # until all is well
        made = self._parts.steps(self._states, work.steps, ends)
        self._mesh.flush()
        step_seconds = (time.monotonic() - started_seconds) / made.count
        self._step_seconds = max(self._step_seconds, step_seconds)
        self._mesh.limit_seconds = max(LATER_SECONDS, LATE_STEPS * self._step_seconds)
        self._states, self._step = made.states, work.steps[0].step + made.count
        return made

    def _leave(self) -> None:
        self._parts, self._states, self._step = None, {}, -1
        super()._leave()


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

    def run(self, owner: str) -> StepsHere:
        """Make the steps in this process: all parts are here."""
        recipe, started_seconds = self.recipe, time.monotonic()
        reader = PieceReader(owner, recipe.order, recipe.sources)
        parts = recipe.parts_here(dict.fromkeys(recipe.cut.parts, 0), 0, reader, None)
        with one_thread():
            made = parts.steps(self.states(), self.steps, turn_end(self.seconds))
        return replace(made, reads=reader.reads, seconds=time.monotonic() - started_seconds)

    def states(self) -> dict[int, Any]:
        """Return the state of each stage before the steps."""
        return dict(enumerate(split_state(self.recipe.job, self.recipe.cut, self.state)))


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
