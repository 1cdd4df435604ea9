"""A training by mini-batches on a cluster: by tasks while passes are short, and else by a gang.

The first look at the data, and that at held-out rows after each pass, are tasks in any case.

The executor of one run whose passes are made by a gang. All other tasks go to the cluster as they are.

    runner ── a pass ──► carrier ── first time ──► TurnJob ── turns, leases ──► cluster
           ◄── course ──         ◄── pass over ──

For the cluster all of it is one job: the runner has entered it, and the gang has its turns in it.

The gang is one pass ahead: it goes on while the runner looks at held-out rows after the pass before. What
it makes after the last pass is dropped.
"""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.errors import ClusterError

from relaqs.jobs.executor import Done, Executor, Stoppable
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskResult, Work
from relaqs.training.elastic.course import BatchRule, Journal, Rescale, TrainingCourse, pieces_of_step
from relaqs.training.elastic.gang_executor import Carrier, GangFacts, LeasesSlots
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import Recipe, TableRecipe, TurnResult
from relaqs.training.elastic.step_job import PassEnd, StepJob
from relaqs.training.elastic.turn_job import TurnJob, Wish
from relaqs.training.protocol import MiniBatchTraining
from relaqs.training.rows import TrainingSet

PARTING_SECONDS = 3.0  # for a gang to end: a turn in flight ends first
AHEAD = 1  # passes that a gang makes before the runner asks for them


@dataclass(frozen=True, slots=True)
class GangPass:
    """What a task says that stands for one more pass by a gang. It never runs itself.

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
class PassMade:
    """What a gang's pass gives: the course after it."""

    course: TrainingCourse


@dataclass(frozen=True, slots=True)
class NoGangs:
    """What a gang's pass gives where no gang can run. why: for people."""

    why: str


class GangCarrier(Carrier):
    """An `Executor` for one run.

    Args:
        cluster: where everything runs.
        leases: the same cluster, as it leases slots.
    """

    def __init__(self, cluster: Executor, leases: LeasesSlots) -> None:
        super().__init__(cluster)
        self._leases = leases
        self._core_seconds = 0.0  # of turns, since the last pass
        self._made: dict[int, tuple[bytes, float]] = {}  # passes ahead: their courses and core-seconds
        self._lock = threading.Lock()
        self._driver: Stoppable | None = None
        self._gang: TurnJob | None = None
        self._wanted: tuple[Task, Done] | None = None
        self._facts: GangFacts | None = None
        self._has_stopped = False
        self._failure: BaseException | None = None  # of the gang, which is no more

    # What a run shows of its gang.

    @property
    def ranks(self) -> int:
        """How many ranks train now."""
        return 0 if self._gang is None else self._gang.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return () if self._gang is None else tuple(self._gang.rescales)

    @property
    def batch_rows(self) -> int | None:
        return None if self._gang is None else self._gang.batch_rows

    def journal_since(self, step: int) -> Journal | None:
        """Return the steps from one on. None: there is no gang yet."""
        return None if self._gang is None else self._gang.journal_since(step)

    # What the runner asks.

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._driver = driver
        self._cluster.enter(description, self)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        if len(tasks) == 1 and isinstance(tasks[0].work, GangPass):
            self._train(tasks[0], tasks[0].work, done)
        else:
            self._cluster.submit(tasks, done)

    @property
    def has_stopped(self) -> bool:
        """Whether the run is over, so that what the gang made ahead is dropped."""
        return self._has_stopped

    def cancel(self, job_id: str) -> None:
        with self._lock:
            self._has_stopped, self._wanted = True, None
        if self._gang is not None:
            self._cluster.set_waiting(job_id, False)  # its slots are planned for others while it parts
            self._gang.stop()
            self._gang.ends(PARTING_SECONDS)
        self._cluster.cancel(job_id)

    def _train(self, task: Task, asked: GangPass, done: Done) -> None:
        with self._lock:
            self._wanted, self._facts = (task, done), asked.facts
        if self._gang is None:
            job_id = task.key.job
            self._gang = TurnJob(
                job_id,
                asked.recipe,
                _OfOneRun(self._cluster, self._leases),
                Wish(()),
                end_passes=asked.passes + AHEAD,
                witness=self,
                start=asked.course,
            )
            self._gang.start()
        else:
            self._gang.go_on(asked.passes + AHEAD)
            self._answer_pass()
            if self._failure is not None:
                self._answer(None, self._failure)
        self._leases.tell_gang(task.key.job, asked.facts.gang())

    # What the gang says.

    def turned(self, membership: Membership, results: Sequence[TurnResult], core_seconds: float) -> None:
        self._core_seconds += core_seconds
        assert self._facts is not None
        assert self._gang is not None
        self._facts.turned(membership, results)
        if not self._has_stopped:
            self._leases.tell_gang(self._gang.id, self._facts.gang())

    def passed(self, passes: int, course: bytes) -> None:
        with self._lock:
            self._made[passes] = (course, self._core_seconds)
            self._core_seconds = 0.0
        self._answer_pass()

    def _answer_pass(self) -> None:
        """Give the runner the pass that it waits for, if that is over."""
        with self._lock:
            if self._wanted is None or _passes_of(self._wanted[0]) not in self._made:
                return
            (task, done), self._wanted = self._wanted, None
            course, core_seconds = self._made.pop(_passes_of(task))
        done(TaskResult(task.key, PassMade(pickle.loads(course)), core_seconds, None))

    def ended(self, error: BaseException | None) -> None:
        with self._lock:
            self._failure = error or ClusterError("the gang has ended before its pass was over")
        self._answer(None, self._failure)

    def _answer(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted[1](TaskResult(wanted[0].key, value, 0.0, error))

    # What the cluster says, on its event loop: see `relaqs.executors.dask.slots.GangDriver`.

    def end_by_plan(self) -> None:
        if self._driver is not None:
            self._driver.end_by_plan()

    def leased(self, slots: tuple[str, ...]) -> None:
        if self._gang is not None:
            self._gang.leased(slots)

    def offered(self, slots: tuple[str, ...]) -> None:
        if self._gang is not None:
            self._gang.offered(slots)

    def may_turn(self, number: int) -> None:
        if self._gang is not None:
            self._gang.may_turn(number)

    def slots_lost(self, slots: tuple[str, ...]) -> None:
        if self._gang is not None:
            self._gang.slots_lost(slots)

    def unreachable(self, error: ClusterError) -> None:
        """The gang ends, and tells with which error: it may be waiting for a turn, and not for a task."""
        if self._gang is not None:
            self._gang.unreachable(error)

    def refused(self, why: str) -> None:
        """No gang can run here: whoever asked for the pass makes it by tasks."""
        self._answer(NoGangs(why), None)
        if self._gang is not None:
            self._gang.stop()


class _OfOneRun:
    """The cluster as the gang of a run sees it: the run has entered there, reports and leaves itself."""

    def __init__(self, cluster: Executor, leases: LeasesSlots) -> None:
        self.submit = cluster.submit
        self.lease = leases.lease
        self.ask_turn = leases.ask_turn
        self.slots = leases.slots

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        """Do nothing: the run has entered."""

    def report(self, job_id: str, report: StepReport) -> None:
        """Do nothing: the run reports whole passes."""

    def cancel(self, job_id: str) -> None:
        """Do nothing: the run leaves once the gang has ended."""


def _passes_of(task: Task) -> int:
    assert isinstance(task.work, GangPass)
    return task.work.passes


LEAST_PASS_SECONDS = 0.5  # of a core. For a shorter pass it is not worth to keep ranks in workers


class GangJob(StepJob):
    """A `StepJob` that asks a gang for its steps once a pass turns out to be long. Both give the same bits.

    Where no gang can run, it makes all its steps by tasks.

    Args:
        carrier: the executor of this run.
    """

    def __init__(
        self,
        id: str,
        job: MiniBatchTraining,
        data: TrainingSet,
        rule: BatchRule,
        carrier: GangCarrier,
        *,
        budget_bytes: int,
    ) -> None:
        super().__init__(id, job, data, rule, budget_bytes=budget_bytes)
        self._carrier = carrier
        self._facts: GangFacts | None = None
        self._is_refused = self._is_final = False

    @property
    def ranks(self) -> int:
        return super().ranks if self._is_refused else self._carrier.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return self._carrier.rescales

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
        new = None if is_over else self._carrier.journal_since(len(made))
        return made if new is None else made.then(new)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._is_refused or (self._facts is None and self._is_short(course)):
            return super()._step_works(course)
        book = self._book
        if self._facts is None:
            self._facts = GangFacts(self.id, book.order, book.rule.rows(course))
        sources = book.sources(range(book.held_out.start))
        recipe = TableRecipe(self._job, book.rule, book.order, course, sources)
        return [GangPass(recipe, course, course.passes + 1, self._facts)]

    def _is_short(self, course: TrainingCourse) -> bool:
        """Return whether a pass takes little time, as far as is known."""
        if self._pass_core_seconds >= LEAST_PASS_SECONDS:
            return False
        order = self._book.order
        steps = order.piece_count / pieces_of_step(self._book.rule.rows(course), order.piece_rows)
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
        elif isinstance(made, PassMade):
            journal = self._carrier.journal_since(self._book.steps)
            assert journal is not None
            self._book.passed(made.course, journal.until(made.course.step - self._book.steps))
        else:
            super()._take_made(values, results)

    def _end(self) -> PassEnd | None:
        if self._book.course is None or not self._book.steps:
            return None  # the gang was refused
        end = super()._end()
        if end is not None and self._facts is not None:
            self._facts.passed(end.loss, end.accuracy)
        self._is_final = end is not None and end.is_final
        return end
