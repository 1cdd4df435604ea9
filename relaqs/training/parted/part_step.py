"""A step of a model that is cut into parts, as the parts of one place make it.

A replica takes some neighbouring pieces of the step. Each goes forward through all stages and then backward
again, one after another, so that a stage can work on one while others work on the next. A stage holds at most
as many pieces at a time as there are stages from it on: one forward, one backward.

    stage 0   F0 F1 .. .. B0 F2 B1 ..      F: forward, B: backward, and the number of the piece
    stage 1   .. F0 B0 F1 B1 .. F2 B2

Source: Narayanan et al. 2019, PipeDream (SOSP), section 3.2, for the order. Here a step ends before the next
one begins, as in Huang et al. 2019, GPipe (NeurIPS), section 2. So the numbers are those of the whole model.

The sums of pieces are added in the pairs in which the whole model's would be, and each stage makes the step
of its own sums. So every bit is the same, whatever parts there are and wherever they are.

Any place may want to end after the step in hand, until its last piece goes forward. It says so in the letters
of this step: forward they tell the last stage, backward they tell the stages before it, and the sums tell the
other replicas. So all know it when the step ends, and no letter is sent for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.course import MiniBatch, subtrees
from relaqs.training.elastic.lesson import ReadsPieces
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.parted.cut import ModelCut, Part, Passed
from relaqs.training.parted.mail import Mail
from relaqs.training.passes import PairTree, add_sums, in_pairs
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
        job: what is trained.
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
