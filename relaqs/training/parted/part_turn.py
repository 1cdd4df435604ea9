"""Some steps of a model in parts: what the runner of a job asks for, and what it gets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from relaqs.training.elastic.batches import BatchRule
from relaqs.training.elastic.course import MiniBatch, TrainingCourse, advanced, next_step
from relaqs.training.elastic.order import Order
from relaqs.training.elastic.piece_sums import PieceReader
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.torch_module import TorchState
from relaqs.training.one_thread import one_thread
from relaqs.training.parted.part_host import PartRecipe, turn_end
from relaqs.training.parted.placing import PartSizes
from relaqs.training.parted.torch_stages import joined_state, split_state


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
