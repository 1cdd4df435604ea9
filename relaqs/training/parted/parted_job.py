"""A training by mini-batches of a model that is cut into parts.

The first look at the data, and that at held-out rows after each pass, are tasks in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaqs.arguments import ArgumentError
from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.executor import Executor
from relaqs.jobs.job import TaskResult, Work
from relaqs.placed_policies.registry import make_placed_policy
from relaqs.training.elastic.course import (
    BatchRule,
    ElasticBatch,
    ReplayedBatch,
    TrainingCourse,
    advanced,
    piece_rows_of,
    pieces_of_step,
)
from relaqs.training.elastic.gang_executor import LeasesSlots
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.step_job import MOST_MORE, StepJob
from relaqs.training.elastic.torch_module import TorchModule
from relaqs.training.elastic.turn_job import TURN_SECONDS
from relaqs.training.parted.cut import ModelCut, ModelParts, Part, PlacedPart, check_workers, cut_of
from relaqs.training.parted.part_carrier import PartCarrier
from relaqs.training.parted.part_host import PartRecipe, PartStepsMade, PartTurn, planned_steps
from relaqs.training.parted.placing import PartSizes
from relaqs.training.parted.torch_stages import layer_sizes, row_bytes
from relaqs.training.reading import TrainingSet

STEPS_PER_TURN = 2  # times those that were made in as many seconds: then it is the time that ends a turn


class PartedJob(StepJob):
    """A `StepJob` whose steps are made by the parts of a model. The bits are those of the whole model.

    Args:
        cut: into parts.
        carrier: the executor of this run. None: all parts are in the process of the session.
    """

    def __init__(
        self,
        id: str,
        job: TorchModule,
        data: TrainingSet,
        rule: BatchRule,
        cut: ModelCut,
        carrier: PartCarrier | None,
        *,
        budget_bytes: int,
    ) -> None:
        super().__init__(id, job, data, rule, budget_bytes=budget_bytes)
        self._module = job
        self._cut = cut
        self._carrier = carrier
        self._recipe: PartRecipe | None = None
        self._sizes: PartSizes | None = None

    @property
    def tasks_most(self) -> int:
        return 1 if self._carrier is None else len(self._cut.parts)

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        """Where each part is, by stage and replica; empty before the first step."""
        if self._carrier is not None:
            return self._carrier.placement
        return tuple(PlacedPart(*part, worker="this process") for part in self._cut.parts)

    def explain(self) -> str:
        if self._carrier is None:
            return f"parameters: in {len(self._cut.parts)} parts, in this process"
        return self._carrier.explain()

    def move(self, stage: int, replica: int, worker: str) -> None:
        """Let a part go on at another worker after the step in hand. Raises ArgumentError."""
        if self._carrier is None:
            raise ArgumentError(
                f"worker is {worker!r}, but all parts are in this process; connect with cluster= to move them"
            )
        self._carrier.move(self._cut, stage, replica, worker)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        book = self._book
        if self._recipe is None or self._sizes is None:
            sources = book.sources(range(book.held_out.start))
            self._recipe = PartRecipe(self._module, self._cut, book.order, sources)
            self._sizes = self._sizes_of(course)
        count = min(self._count, book.steps_left)
        steps = planned_steps(self._job, book.rule, book.order, course, count)
        passes = course.passes, self._job.passes_most
        return [PartTurn(self._recipe, self._sizes, course.state, steps, TURN_SECONDS, passes)]

    def _sizes_of(self, course: TrainingCourse) -> PartSizes:
        pieces = pieces_of_step(self._book.rule.rows(course), self._book.order.piece_rows)
        layers = layer_sizes(self._module)
        parameters = [sum(layers[i] for i in self._cut.layers_of(s)) for s in range(self._cut.stages)]
        rows = self._book.rule.rows(course) / self._cut.replicas
        passed = np.array(row_bytes(self._module, self._cut, course.state, self._book.feature_count))
        pieces_each = max(1, pieces // self._cut.replicas)
        return PartSizes(np.array(parameters, dtype=np.float64), rows * passed, pieces_each)

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        made = values[0]
        assert isinstance(made, PartStepsMade)
        course = self._book.course
        assert course is not None
        for step, loss in zip(made.steps, made.losses, strict=True):
            course = advanced(self._job, self._book.order, course, step, loss, made.state, course.noise)
        self._book.made(course, made.steps, ranks=self._cut.replicas)
        count = len(made.steps)
        if made.reads:
            self._count = MOST_MORE * count  # reading was most of it
        else:
            wanted = int(STEPS_PER_TURN * TURN_SECONDS * count / max(made.seconds, 1e-9))
            self._count = max(1, self._count // 2, min(wanted, MOST_MORE * self._count))


def parted_job(
    id: str,
    job: MiniBatchTraining,
    data: TrainingSet,
    rule: BatchRule,
    parts: ModelParts,
    executor: Executor,
    *,
    budget_bytes: int,
) -> tuple[PartedJob, Executor]:
    """Return the job of a model in parts, and where it runs: on the slots of a cluster, or in one process.

    Raises:
        ArgumentError: the model cannot be cut so, or its parts cannot be placed so.
        PolicyError: there is no such placed policy.
    """
    cut = model_cut(job, parts, rule)
    assert isinstance(job, TorchModule)
    placed = parts.placed
    if not isinstance(executor, LeasesSlots):
        if isinstance(placed, Mapping):
            raise ArgumentError("placed names workers, but there is no cluster; connect with cluster=")
        return PartedJob(id, job, data, rule, cut, None, budget_bytes=budget_bytes), executor
    given = {}
    if isinstance(placed, Mapping):
        check_workers(placed, cut, {*map(worker_of, executor.slots())})
        given, placed = {Part(*part): worker for part, worker in placed.items()}, "mlf_h"
    policy = make_placed_policy(placed) if isinstance(placed, str) else placed
    carrier = PartCarrier(executor, executor, policy, given)
    return PartedJob(id, job, data, rule, cut, carrier, budget_bytes=budget_bytes), carrier


def model_cut(job: MiniBatchTraining, parts: ModelParts, rule: BatchRule) -> ModelCut:
    """Return how a job's model is cut. Raises ArgumentError where it cannot be."""
    if not isinstance(job, TorchModule):
        raise ArgumentError(
            f"parts are given, but {type(job).__name__} cannot be cut; give a TorchModule, or leave parts out"
        )
    if isinstance(rule, ElasticBatch):
        raise ArgumentError(
            "batch is 'elastic', but nobody measures the noise of the gradients of a model in parts; give a "
            "number of rows, or leave parts out"
        )
    cut = cut_of(parts, layer_sizes(job), repr(job.place))
    if isinstance(rule, ReplayedBatch):
        return cut
    rows = rule.rows(TrainingCourse(None, job.start_rows))
    if job.scaling == "gain" and rows != job.start_rows:
        raise ArgumentError(
            f"scaling is 'gain', but nobody measures the noise of the gradients of a model in parts; give "
            f"another, or batch={job.start_rows}, which is start_rows"
        )
    piece_rows = piece_rows_of(job.start_rows)
    pieces = pieces_of_step(rows, piece_rows)
    if cut.replicas > pieces:
        few = "one piece" if pieces == 1 else f"{pieces} pieces"
        raise ArgumentError(
            f"replicas is {cut.replicas}, but a step of {rows} rows is {few} of {piece_rows} rows; give "
            f"fewer, or batch={cut.replicas * piece_rows}"
        )
    return cut
