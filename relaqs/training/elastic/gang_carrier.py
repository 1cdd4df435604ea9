"""The executor of one run whose passes are made by a gang. All other tasks go to the cluster as they are.

    runner ── a pass ──► carrier ── first time ──► TurnJob ── turns, leases ──► cluster
           ◄── course ──         ◄── pass over ──

For the cluster all of it is one job: the runner has entered it, and the gang has its turns in it.

The gang is one pass ahead: it goes on while the runner looks at held-out rows after the pass before. What it
makes after the last pass is dropped.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.errors import ClusterError

from relaqs.jobs.executor import Done, Executor, Stoppable
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskResult
from relaqs.training.elastic.carrier import Carrier
from relaqs.training.elastic.course import TrainingCourse
from relaqs.training.elastic.gang_executor import LeasesSlots
from relaqs.training.elastic.gang_facts import GangFacts
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.lesson import Recipe
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import TurnResult
from relaqs.training.elastic.step_log import Rescale
from relaqs.training.elastic.turn_job import TurnJob, Wish

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

    # What the cluster says, on its event loop: see `relaqs.executors.dask.places.GangDriver`.

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
