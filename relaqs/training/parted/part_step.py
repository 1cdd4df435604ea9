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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.course import MiniBatch
from relaqs.training.elastic.order import subtrees
from relaqs.training.elastic.piece_sums import ReadsPieces
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.parted.cut import ModelCut, Part
from relaqs.training.parted.mail import Mail
from relaqs.training.parted.passed import Passed
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
    """The pieces of one part in one step. passes: of pieces that went forward and not backward yet."""

    part: Part
    pieces: IntArray
    forward: int = 0
    backward: int = 0
    passes: dict[int, StagePass] = field(default_factory=dict)
    sums: PairTree[Sums] = field(default_factory=lambda: PairTree(add_sums))

    @property
    def is_done(self) -> bool:
        return self.backward == len(self.pieces)


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
        self._inbox: dict[tuple[Any, ...], Any] = {}

    def steps(
        self, states: Mapping[int, Any], steps: Sequence[MiniBatch]
    ) -> tuple[dict[int, Any], list[float]]:
        """Return the states after some steps, and the loss of each of these, summed over its rows.

        There are no losses where the last stage is elsewhere.

        states: of the stages that are here.

        Raises ExchangeBrokenError where another place is gone.
        """
        now, losses = dict(states), list[float]()
        for step in steps:
            totals = self._totals(now, step)
            for stage, total in totals.items():
                now[stage] = self._job.update(now[stage], total, step.rows, step.rate)
            if (last := totals.get(self._cut.stages - 1)) is not None:
                losses.append(float(last[0]))
        return now, losses

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
            sums, before = lane.passes.pop(lane.backward).backward(self._inbox.pop(slopes, None))
            lane.sums.add(sums)
            if not is_first:
                self._send(
                    Part(stage - 1, replica),
                    (step.step, "slopes", stage - 1, replica, lane.backward),
                    before,
                )
            lane.backward += 1
            return True
        given = (step.step, "passed", stage, replica, lane.forward)
        has_room = len(lane.passes) < self._cut.stages - stage
        if lane.forward < len(lane.pieces) and has_room and (is_first or given in self._inbox):
            self._go_forward(lane, states[stage], step, self._inbox.pop(given, None))
            return True
        return False

    def _go_forward(self, lane: _Lane, state: Any, step: MiniBatch, given: Passed | None) -> None:
        stage, replica = lane.part
        is_last = stage == self._cut.stages - 1
        piece = lane.pieces[lane.forward]
        order = self._reader.order
        rows = self._reader.rows(int(piece)) if given is None or is_last else None
        count = order.row_count_of(np.array([piece]))
        going = self._stages[stage].forward(state, count, rows, given, order.draw(step.step, int(piece)))
        lane.passes[lane.forward] = going
        if not is_last:
            key = (step.step, "passed", stage + 1, replica, lane.forward)
            self._send(Part(stage + 1, replica), key, going.passed)
        lane.forward += 1

    def _share(self, lane: _Lane, step: MiniBatch) -> None:
        """Give the sums of a part to all places with its stage."""
        stage, replica = lane.part
        total, key = lane.sums.total(), (step.step, "sums", stage, replica)
        self._inbox[key] = total
        there = {self._places[Part(stage, other)] for other in range(self._cut.replicas)} - {self._here}
        for place in sorted(there):
            self._post(place, key, total)

    def _total(self, stage: int, shares: Sequence[IntArray], step: MiniBatch) -> Sums:
        keys = [(step.step, "sums", stage, replica) for replica, own in enumerate(shares) if len(own)]
        while any(key not in self._inbox for key in keys):
            self._take()
        return in_pairs([self._inbox.pop(key) for key in keys], add_sums)

    def _send(self, part: Part, key: tuple[Any, ...], value: Any) -> None:
        if (place := self._places[part]) == self._here:
            self._inbox[key] = value
        else:
            self._post(place, key, value)

    def _post(self, place: int, key: tuple[Any, ...], value: Any) -> None:
        assert self._mail is not None, f"there is no other place for {key}"
        self._mail.send(place, (key, value))

    def _take(self) -> None:
        assert self._mail is not None, "a piece can go neither forward nor backward"
        key, value = self._mail.take()
        self._inbox[key] = value
