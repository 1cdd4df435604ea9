"""Steps of parts at several places, over real sockets: all places end at the step at which one wants to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.executor import core_wanted_by
from relaqs.training import Rows, TorchModule
from relaqs.training.elastic.course import FixedBatch, MiniBatch, Order, first_course
from relaqs.training.elastic.mesh import Mesh, RankAddress, meet
from relaqs.training.elastic.torch_module import TorchStage, layer_sizes, split_state
from relaqs.training.parted.part_host import LEAST_TURN_SECONDS, PartsHere, StepsHere, planned_steps, turn_end
from relaqs.training.parted.placing import ModelCut, ModelParts, Part, cut_of
from relaqs.training.rows import profile_of

torch = pytest.importorskip("torch")

JOB = TorchModule(
    "SELECT * FROM made_up",
    "y",
    "tests.relaqs.training.torch_modules:deep",
    start_rows=32,
    first_rate=0.02,
    scaling="none",
)
PARTITION_ROWS = (200, 0, 330)
STEPS = 5
LIMITS_SECONDS = (20.0, 20.0)


@dataclass(frozen=True)
class MadeUpPictures:
    """Rows that follow from their partition."""

    order: Order

    def rows(self, piece: int) -> Rows:
        partition, first, end = self.order.place(piece)
        return rows_of(partition).part(slice(first, end))


def rows_of(partition: int) -> Rows:
    draws = np.random.default_rng(partition)
    count = PARTITION_ROWS[partition]
    features: FloatArray = draws.normal(size=(count, 64))
    return Rows(features, draws.integers(0, 10, size=count))


ORDER = Order(PARTITION_ROWS, 32, JOB.seed)


def planned() -> tuple[Any, tuple[MiniBatch, ...]]:
    """Return the first state, and the first steps of three pieces each."""
    profile = profile_of(rows_of(2), tuple(f"x{i}" for i in range(64)), 10, 0)
    state = JOB.begin(profile)
    return state, planned_steps(JOB, FixedBatch(96), ORDER, first_course(JOB, state), STEPS)


def made(
    cut: ModelCut, places: Mapping[Part, int], ends: Mapping[int, Callable[[], bool]], most: int = STEPS
) -> list[StepsHere]:
    """Return what each place gives, where parts are at `places`. ends: of places that may want to end."""
    state, steps = planned()
    states = dict(enumerate(split_state(JOB, cut, state)))

    def make(here: int, mesh: Mesh | None) -> StepsHere:
        own = {part.stage for part, place in places.items() if place == here}
        stages = {each: TorchStage(JOB, cut.layers_of(each), is_last=each == cut.stages - 1) for each in own}
        parts = PartsHere(JOB, cut, stages, places, here, MadeUpPictures(ORDER), mesh)
        kept = {stage: states[stage] for stage in own}
        return parts.steps(kept, steps[:most], ends.get(here, lambda: False))

    size = max(places.values()) + 1
    if size == 1:
        return [make(0, None)]
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(size)
        ]
        there = [RankAddress(str(i), *each.getsockname()) for i, each in enumerate(listeners)]
        threads = stack.enter_context(ThreadPoolExecutor(size))

        def meet_and_make(here: int) -> StepsHere:
            mesh = meet(there, "token", here, listeners[here], None, LIMITS_SECONDS)
            stack.callback(mesh.free)
            result = make(here, mesh)
            mesh.flush()
            return result

        return list(threads.map(meet_and_make, range(size)))


def from_ask(number: int) -> Callable[[], bool]:
    """Return what wants an end from its asking of that number on; the first one is 1."""
    asks = count(1)
    return lambda: next(asks) >= number


CUTS = {
    "a chain": (ModelParts(3), {Part(0, 0): 0, Part(1, 0): 1, Part(2, 0): 2}),
    "replicas": (ModelParts(1, replicas=3), {Part(0, 0): 0, Part(0, 1): 1, Part(0, 2): 2}),
    "both": (
        ModelParts(2, replicas=2),
        {Part(0, 0): 0, Part(0, 1): 1, Part(1, 0): 2, Part(1, 1): 0},
    ),
}


PIECES = {"a chain": (3, 3, 3), "replicas": (1, 1, 1), "both": (3, 1, 2)}  # that go forward at each place


@pytest.mark.parametrize("is_late", [False, True], ids=["first piece", "last piece"])
@pytest.mark.parametrize("wanting", [0, 1, 2])
@pytest.mark.parametrize("name", CUTS)
def test_all_places_end_with_the_step_in_which_one_wants_to(name: str, wanting: int, is_late: bool) -> None:
    """It wants it in the third step. What was made until then has the bits of one piece."""
    parts, places = CUTS[name]
    cut = cut_of(parts, layer_sizes(JOB), "deep")
    pieces = PIECES[name][wanting]
    found = made(cut, places, {wanting: from_ask(3 * pieces if is_late else 2 * pieces + 1)})
    assert [each.count for each in found] == [3, 3, 3]
    (alone,) = made(cut, dict.fromkeys(cut.parts, 0), {}, most=3)
    assert {each.losses for each in found} - {()} == {alone.losses}
    for each in found:
        for stage, state in each.states.items():
            for key, numbers in state.parameters.items():
                assert torch.equal(numbers, alone.states[stage].parameters[key])


def test_nobody_wants_to_end() -> None:
    parts, places = CUTS["both"]
    cut = cut_of(parts, layer_sizes(JOB), "deep")
    assert [each.count for each in made(cut, places, {})] == [STEPS] * 3


def test_a_turn_ends_for_a_task_that_waits_and_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("relaqs.training.parted.part_host.time", SimpleNamespace(monotonic=lambda: now[0]))
    ends = turn_end(0.25)
    with core_wanted_by(lambda: True):
        assert not ends()
        now[0] = LEAST_TURN_SECONDS
        assert ends()
    assert not ends()
    now[0] = 0.25
    assert ends()
