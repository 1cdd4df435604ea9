"""A training by mini-batches of a model that is cut into parts.

The first look at the data, and that at held-out rows after each pass, are tasks in any case.

The executor of one run whose steps are made by the parts of a model, on the workers of a cluster.

    runner ── a turn ──► carrier ── where is each part? ──► placed policy
           ◄── states ──         ── a turn? ───► cluster ── a pinned task on each slot with parts

**A turn** is a few steps. The carrier asks for all slots that have parts and for a turn in one. So the
parts of two runs never wait for each other in a circle, and runs and queries keep their shares. The turn
ends with its step where a task waits for one of the cores. The run holds its slots until it asks for the
next turn. If its runner does not ask for one at once, they are free.

**A change** (a worker that dies, comes or hangs, a part that the user moves) is a new generation of
places, between two turns. A turn that was lost is made once more from the state before it. Its bits are
the same.

**A plan** sees the parts of all runs of the session, and may move them (`placing.py` beside this).

One thread does one thing after another. What happens meanwhile arrives in a mailbox.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from relaqs_engine.errors import ClusterError

from relaqs.arguments import ArgumentError
from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.executor import Done, Executor, Stoppable
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskResult, Work
from relaqs.policies.registry import make_placed_policy
from relaqs.sharing.parts import PlacedPolicy
from relaqs.training.elastic.course import (
    BatchRule,
    ElasticBatch,
    MiniBatch,
    ReplayedBatch,
    TrainingCourse,
    advanced,
    piece_rows_of,
    pieces_of_step,
)
from relaqs.training.elastic.driver import Driver, GangExecutor, StoppedError
from relaqs.training.elastic.gang_carrier import TURN_SECONDS
from relaqs.training.elastic.membership import Membership, PrepareWork, StateLostError
from relaqs.training.elastic.mesh import RankAddress
from relaqs.training.elastic.step_job import MOST_MORE, StepJob
from relaqs.training.elastic.torch_module import TorchModule, joined_state, layer_sizes, row_bytes
from relaqs.training.parted.part_host import (
    MEETING_SECONDS,
    PartRecipe,
    PartTurn,
    PartTurnWork,
    StepsHere,
    planned_steps,
)
from relaqs.training.parted.placing import (
    ModelCut,
    ModelParts,
    Part,
    PartSizes,
    RunHistory,
    RunInParts,
    check_workers,
    cut_of,
    placed_runs_of,
)
from relaqs.training.passes import PlacedPart, RunRows
from relaqs.training.protocol import MiniBatchTraining

PREPARE_SECONDS = 60.0  # for a slot to import and to read rows; then it is left out
HOLD_SECONDS = 0.05  # after a turn, for the runner to ask for the next one; then the slots are free
LONG_SECONDS = 1.0  # after which a run says for which slots it waits
LOOK_SECONDS = 5.0  # between two looks at the clock, and at the slots of the cluster: some may have come
FIND_SECONDS = 0.5  # between two looks for workers, where there is none
GRACE_SECONDS = MEETING_SECONDS + 2.0  # for the other slots to tell that a turn is broken
LOSSES_MOST = 10  # of one turn: then it is the model that ends its workers
LOSSES = OSError | ClusterError  # what a task ends with whose worker is gone, or is not well


@dataclass(slots=True)
class _SlotAnswers:
    """What the slots have said of some tasks, each sent to one of them."""

    slots: tuple[str, ...]
    results: dict[str, TaskResult] = field(default_factory=dict)

    @property
    def missing(self) -> set[str]:
        return {*self.slots} - {*self.results}

    @property
    def lost(self) -> set[str]:
        """The slots whose worker is gone."""
        return {slot for slot, result in self.results.items() if isinstance(result.error, LOSSES)}

    @property
    def why_lost(self) -> str | None:
        """What one of these has said, for people. None: none is lost."""
        errors = (result.error for result in self.results.values())
        return next((f"{type(each).__name__}: {each}" for each in errors if isinstance(each, LOSSES)), None)

    @property
    def error(self) -> BaseException | None:
        """What the job itself did wrong, if anything."""
        errors = [result.error for result in self.results.values() if result.error is not None]
        return next((each for each in errors if not isinstance(each, LOSSES | StateLostError)), None)

    @property
    def is_broken(self) -> bool:
        """Whether the turn came to nothing: a slot was lost, or has no state any more."""
        return any(result.error is not None for result in self.results.values())


class PartCarrier(Driver):
    """The parts of one run's model, and the executor of that run.

    Args:
        given: the workers of parts that the user has placed.
    """

    carries = PartTurn
    what = "no parts of a model"

    def __init__(
        self, id: str, cluster: GangExecutor, policy: PlacedPolicy, given: Mapping[Part, str]
    ) -> None:
        super().__init__(id, cluster)
        self._policy = policy
        self._given = dict(given)
        self._all = placed_runs_of(cluster)
        self._run_in_parts: RunInParts | None = None
        self._history: RunHistory | None = None
        self._name = secrets.token_hex(8)  # of the run, on its workers
        # Where parts are.
        self._slots: tuple[str, ...] = ()
        self._must_look = True  # for the slots of the cluster: something has changed
        self._looked_seconds = -math.inf  # when it last did, on the monotonic clock
        self._has_new_slots = False  # since the last plan
        self._left_out: set[str] = set()
        self._why_lost = "silence"  # the last one
        self._slot_of: dict[Part, str] = {}
        self._membership: Membership | None = None
        self._generation = -1
        self._held_step = -1  # the step before which the slots of this generation have their states
        self._ready: set[str] = set()
        # What the cluster is asked, and has said.
        self._turn_number = 0  # of the newest asking for a turn
        self._waiting: tuple[tuple[str, ...], float] | None = None  # for which slots, since when
        self._may_turn = False

    # What a run shows of its parts, and what its user asks. From any thread.

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        """Where each part is, by stage and replica."""
        return tuple(
            PlacedPart(*part, worker=worker_of(slot)) for part, slot in sorted(self._slot_of.items())
        )

    def explain(self) -> str:
        """Return on how many workers the parts are, and for which slots they have waited for a while."""
        workers = ", ".join(sorted({*map(worker_of, self._slot_of.values())}))
        told = f"parameters: in {len(self._slot_of)} parts, on {workers or 'no worker yet'}"
        if (waiting := self._waiting) is None or time.monotonic() - waiting[1] < LONG_SECONDS:
            return told
        return (
            f"{told}\nwaits for: the slots {', '.join(waiting[0])}, which another run holds; a gang keeps "
            "its slots until its run ends, so stop it, or put the parts elsewhere by placed= or move()"
        )

    def move(self, cut: ModelCut, stage: int, replica: int, worker: str) -> None:
        """Let a part go on at another worker after the turn in hand. Raises ArgumentError."""
        if (part := Part(stage, replica)) not in cut.parts:
            raise ArgumentError(
                f"there is no part of stage {stage} and replica {replica}; the stages are 0 to "
                f"{cut.stages - 1}, with the replicas 0 to {cut.replicas - 1}"
            )
        workers = sorted({*map(worker_of, self._cluster.slots())})
        if worker not in workers:
            raise ArgumentError(f"worker is {worker!r}; the workers are {', '.join(workers) or 'none'}")
        self._post(lambda: self._take_given(part, worker))

    # What the runner asks.

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._history = RunHistory(description, time.monotonic())
        super().enter(description, driver)

    def report(self, job_id: str, report: StepReport) -> None:
        assert self._history is not None
        self._history.reported(report)
        super().report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        if self._history is not None:
            self._history.weight = weight
        super().set_weight(job_id, weight)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        if self._thread is not None and not any(isinstance(task.work, PartTurn) for task in tasks):
            self._post(self._free)
        super().submit(tasks, done)

    def _take_on(self, work: PartTurn) -> None:
        self._post(lambda: None)  # whoever waits looks whether something is wanted

    # Events, on the thread of the carrier.

    def _take_given(self, part: Part, worker: str) -> None:
        self._given[part], self._must_look = worker, True

    def _note_may_turn(self, number: int) -> None:
        self._may_turn |= number == self._turn_number  # another one is late: more was asked since

    def _note_gone(self, slots: set[str]) -> None:
        self._left_out |= slots

    def _wait(self, is_so: Callable[[], object], seconds: float = math.inf) -> bool:
        """Wait for something that an event brings. Return whether it came in time."""
        over_seconds = time.monotonic() + seconds
        while not is_so():
            if self._is_over:
                raise self.error or StoppedError
            if (left_seconds := over_seconds - time.monotonic()) <= 0:
                return False
            self._hear(min(left_seconds, LOOK_SECONDS))
        return True

    # One thing after another.

    def _drive(self) -> None:
        while True:
            if not self._wait(lambda: self._wanted is not None, HOLD_SECONDS):
                self._free()
                self._wait(lambda: self._wanted is not None)
            if isinstance(turn := self._wanted_work, PartTurn):
                self._make(turn)

    def _make(self, turn: PartTurn) -> None:
        """Give the runner what a turn gives, or why it gives nothing."""
        try:
            made, core_seconds = self._made(turn)
        except StoppedError:
            raise
        except Exception as error:
            self._answer(None, error=error)
        else:
            self._answer(made, core_seconds)

    def _made(self, turn: PartTurn) -> tuple[StepsHere, float]:
        """Return what a turn gives, and its core-seconds. It is made again until nobody is lost in it."""
        for _ in range(LOSSES_MOST):
            self._settle(turn)
            answers = self._turned(turn)
            if answers is not None and not (answers.missing or answers.is_broken):
                core_seconds = sum(result.core_seconds for result in answers.results.values())
                return self._taken(turn, answers), core_seconds
            self._free()
            if answers is not None:
                if (error := answers.error) is not None:
                    raise error
                self._left_out |= answers.missing | answers.lost
                self._why_lost = answers.why_lost or self._why_lost
            self._membership, self._must_look = None, True
        raise ClusterError(_lost_again(turn, self._why_lost))

    # Where parts are.

    def _settle(self, turn: PartTurn) -> None:
        """Have a place for each part, and what it needs there. Raises ClusterError."""
        for _ in range(LOSSES_MOST):
            slot_of = self._places(turn)
            if self._membership is not None and slot_of == self._slot_of:
                return
            slots = tuple(sorted({*slot_of.values()}))
            if self._may_use(slots) and (addresses := self._prepared(turn, slots, slot_of)) is not None:
                break
            self._must_look = True
        else:
            raise ClusterError(_lost_again(turn, self._why_lost))
        self._slot_of = slot_of
        self._generation += 1
        self._held_step = -1
        ranks = tuple(addresses[slot] for slot in slots)
        self._membership = Membership(self._generation, ranks, secrets.token_hex(16))

    def _places(self, turn: PartTurn) -> dict[Part, str]:
        """Return the slot of each part: where it is, where the user wants it, or what the policy says."""
        while not (slots := self._there()):
            self._wait(lambda: False, FIND_SECONDS)
        has_new_slots, self._has_new_slots = self._has_new_slots, False
        return self._all.placed(self._told(turn), slots, self._given, has_new_slots)

    def _told(self, turn: PartTurn) -> RunInParts:
        """Return this run, as far as all that plan are to know it."""
        assert self._history is not None
        self._history.begin_turn(turn.passes)
        if self._run_in_parts is None:
            self._run_in_parts = RunInParts(self._policy, self._history, turn.recipe.cut, turn.sizes)
        return self._run_in_parts

    def _there(self) -> tuple[str, ...]:
        """Return the slots of the cluster that answer."""
        if self._must_look or time.monotonic() - self._looked_seconds >= LOOK_SECONDS:
            self._look()
        if found := tuple(slot for slot in self._slots if slot not in self._left_out):
            return found
        self._left_out.clear()  # nothing else is left, so try again what did not answer
        self._must_look = True
        return ()

    def _look(self) -> None:
        """Look at the slots of the cluster, and whether some are new. Raises ClusterError if it must."""
        self._looked_seconds = time.monotonic()
        try:
            found = self._cluster.slots()
        except ClusterError:
            if self._must_look:
                raise
            return  # its scheduler is away, perhaps for a moment; the next turn tells
        self._has_new_slots |= bool(self._slots) and not {*found} <= {*self._slots}
        self._slots, self._must_look = found, False
        self._left_out &= {*found}

    def _prepared(
        self, turn: PartTurn, slots: tuple[str, ...], slot_of: Mapping[Part, str]
    ) -> dict[str, RankAddress] | None:
        """Return the address of each slot once it is ready. None: one was lost, and is left out."""
        ends = (0, turn.recipe.cut.stages - 1)
        reading = {slot for part, slot in slot_of.items() if part.stage in ends}

        def work(slot: str) -> Work:
            return PrepareWork(self._name, slot, replace(turn.recipe, reads=slot in reading))

        answers = self._asked(slots, work, PREPARE_SECONDS, PREPARE_SECONDS)
        if (error := answers.error) is not None:
            raise error
        if gone := answers.missing | answers.lost:
            self._left_out |= gone
            self._why_lost = answers.why_lost or self._why_lost
            return None
        self._ready |= {*slots}
        addresses: Mapping[str, Any] = {slot: result.value for slot, result in answers.results.items()}
        return dict(addresses)

    # Turns.

    def _turned(self, turn: PartTurn) -> _SlotAnswers | None:
        """Return what the slots say of a turn. None: a slot was lost before it began."""
        membership = self._membership
        assert membership is not None
        slots = membership.slots
        if not self._may_use(slots):
            return None
        states = turn.states() if self._held_step != turn.steps[0].step else None
        self._held_step = -1
        slot_of = self._slot_of
        place_of = {part: membership.rank_of(slot) for part, slot in slot_of.items()}

        def work(slot: str) -> Work:
            stages = {part.stage for part, own in slot_of.items() if own == slot}
            own = None if states is None else {stage: states[stage] for stage in sorted(stages)}
            return PartTurnWork(self._name, slot, membership, place_of, turn.steps, turn.seconds, own)

        return self._asked(slots, work, math.inf, GRACE_SECONDS)

    def _may_use(self, slots: tuple[str, ...]) -> bool:
        """Wait for a turn on these slots. Return whether it came before one was lost or a part was moved."""
        self._turn_number += 1
        self._may_turn = False
        self._cluster.ask_turn(self.id, slots, self._turn_number)
        self._waiting = slots, time.monotonic()
        self._wait(lambda: self._may_turn or self._must_look or not self._left_out.isdisjoint(slots))
        self._waiting = None
        return self._may_turn and self._left_out.isdisjoint(slots)

    def _free(self) -> None:
        """Give the slots of the last turn back."""
        self._may_turn = False
        self._cluster.lease(self.id, ())

    def _taken(self, turn: PartTurn, answers: _SlotAnswers) -> StepsHere:
        told: list[Any] = [result.value for result in answers.results.values()]
        count, seconds = told[0].count, max(each.seconds for each in told)
        self._held_step = turn.steps[0].step + count
        states = {stage: state for each in told for stage, state in each.states.items()}
        losses = next(each.losses for each in told if each.losses)
        assert self._history is not None
        self._history.turned(len(answers.slots), seconds)
        return StepsHere(states, losses, count, sum(each.reads for each in told), seconds)

    def _asked(
        self, slots: tuple[str, ...], work: Callable[[str], Work], seconds: float, grace_seconds: float
    ) -> _SlotAnswers:
        """Send a task to each slot, and return what they say.

        Args:
            seconds: to wait for them.
            grace_seconds: to wait for the others, once one is lost or has told of it.
        """
        answers = _SlotAnswers(slots)
        for slot in slots:
            self._send(slot, work(slot), self._taker(answers, slot))

        def is_over() -> bool:
            return not answers.missing or answers.error is not None

        def is_broken() -> bool:
            return answers.is_broken or not self._left_out.isdisjoint(answers.missing)

        if self._wait(lambda: is_over() or is_broken(), seconds) and not is_over():
            self._wait(lambda: is_over() or self._left_out >= answers.missing, grace_seconds)
        return answers

    def _taker(self, answers: _SlotAnswers, slot: str) -> Done:
        def take(result: TaskResult) -> None:
            self._post(lambda: answers.results.update({slot: result}))

        return take

    def _part(self) -> None:
        """Free the slots, and what is held there."""
        if self._run_in_parts is not None:
            self._all.leave(self._run_in_parts)
        with suppress(ClusterError):  # the session is closed: the slots are freed after a while
            self._dismiss_all(dict.fromkeys(sorted(self._ready - self._left_out), self._name))()
            self._free()


def _lost_again(turn: PartTurn, why: str) -> str:
    return (
        f"a worker with parts of the model was lost {LOSSES_MOST} times in a row at step "
        f"{turn.steps[0].step}, the last time by {why}; see the workers' logs: a part may need more "
        "memory than they have, or a file that they do not see"
    )


STEPS_PER_TURN = 2  # times those that were made in as many seconds: then it is the time that ends a turn


class PartedJob(StepJob):
    """A `StepJob` whose steps are made by the parts of a model. The bits are those of the whole model.

    Args:
        carrier: the executor of this run. None: all parts are in the process of the session.
    """

    def __init__(
        self, rows: RunRows, job: TorchModule, rule: BatchRule, cut: ModelCut, carrier: PartCarrier | None
    ) -> None:
        super().__init__(rows, job, rule)
        self._module = job
        self._cut = cut
        self._carrier = carrier
        self._recipe: PartRecipe | None = None
        self._sizes: PartSizes | None = None
        self._planned: tuple[MiniBatch, ...] = ()  # the steps of the turn in hand

    @property
    def tasks_most(self) -> int:
        return 1 if self._carrier is None else len(self._cut.parts)

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        if self._carrier is not None:
            return self._carrier.placement
        return tuple(PlacedPart(*part, worker="this process") for part in self._cut.parts)

    def explain(self) -> str:
        if self._carrier is None:
            return f"parameters: in {len(self._cut.parts)} parts, in this process"
        return self._carrier.explain()

    def move(self, stage: int, replica: int, worker: str) -> None:
        if self._carrier is None:
            raise ArgumentError(
                f"worker is {worker!r}, but all parts are in this process; connect with cluster= to move them"
            )
        self._carrier.move(self._cut, stage, replica, worker)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._recipe is None or self._sizes is None:
            sources = self._sources(range(self._trained))
            self._recipe = PartRecipe(self._module, self._cut, self._order, sources)
            self._sizes = self._sizes_of(course)
        count = min(self._count, self._steps_left)
        self._planned = planned_steps(self._job, self._rule, self._order, course, count)
        passes = course.passes, self._job.passes_most
        return [PartTurn(self._recipe, self._sizes, course.state, self._planned, TURN_SECONDS, passes)]

    def _sizes_of(self, course: TrainingCourse) -> PartSizes:
        assert self._profile is not None
        pieces = pieces_of_step(self._rule.rows(course), self._order.piece_rows)
        layers = layer_sizes(self._module)
        parameters = [sum(layers[i] for i in self._cut.layers_of(s)) for s in range(self._cut.stages)]
        rows = self._rule.rows(course) / self._cut.replicas
        passed = np.array(row_bytes(self._module, self._cut, course.state, len(self._profile.names)))
        pieces_each = max(1, pieces // self._cut.replicas)
        return PartSizes(np.array(parameters, dtype=np.float64), rows * passed, pieces_each)

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        made = values[0]
        assert isinstance(made, StepsHere)
        course = self._course
        assert course is not None
        state = joined_state(tuple(made.states[stage] for stage in range(self._cut.stages)))
        steps = self._planned[: made.count]
        for step, loss in zip(steps, made.losses, strict=True):
            course = advanced(self._job, self._order, course, step, loss, state, course.noise)
        self._note(course, steps, ranks=self._cut.replicas)
        if made.reads:
            self._count = MOST_MORE * made.count  # reading was most of it
        else:
            wanted = int(STEPS_PER_TURN * TURN_SECONDS * made.count / max(made.seconds, 1e-9))
            self._count = max(1, self._count // 2, min(wanted, MOST_MORE * self._count))


def parted_job(
    rows: RunRows, job: MiniBatchTraining, rule: BatchRule, parts: int | ModelParts, executor: Executor
) -> tuple[PartedJob, Executor]:
    """Return the job of a model in parts, and where it runs: on the slots of a cluster, or in one process.

    Raises:
        ArgumentError: the model cannot be cut so, or its parts cannot be placed so.
        PolicyError: there is no such placed policy.
    """
    parts = parts if isinstance(parts, ModelParts) else ModelParts(parts)
    cut = model_cut(job, parts, rule)
    assert isinstance(job, TorchModule)
    placed = parts.placed
    if not isinstance(executor, GangExecutor):
        if isinstance(placed, Mapping):
            raise ArgumentError("placed names workers, but there is no cluster; connect with cluster=")
        return PartedJob(rows, job, rule, cut, None), executor
    given = {}
    if isinstance(placed, Mapping):
        check_workers(placed, cut, {*map(worker_of, executor.slots())})
        given, placed = {Part(*part): worker for part, worker in placed.items()}, "mlf_h"
    policy = make_placed_policy(placed) if isinstance(placed, str) else placed
    carrier = PartCarrier(rows.run_id, executor, policy, given)
    return PartedJob(rows, job, rule, cut, carrier), carrier


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
