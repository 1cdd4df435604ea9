"""The runner: steps folded whole, once, in order, one ahead; pause, stop and errors from every side."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.errors import DataError

from relaqs.executors.threads import ThreadExecutor
from relaqs.jobs.executor import Done, Stoppable, run_measured
from relaqs.jobs.job import ClusterStatus, JobDescription, Step, StepReport, Task, TaskResult
from relaqs.jobs.runner import JobRunner, RunState, Successor
from tests.relaqs.executors.toy_jobs import Fails, Number, ToyJob, counted, counting_job
from tests.relaqs.listening import Listens

LONG_SECONDS = 20.0  # nothing here takes as long unless it hangs


class ManualExecutor:
    """Runs nothing by itself: the test says which result arrives when."""

    capacity = 1

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.cancelled: list[str] = []
        self.said: list[tuple[str, str, object]] = []  # to the scheduler
        self._done: Done | None = None
        self._submitted = threading.Condition()

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self.said.append(("enter", description.id, description.weight))

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        with self._submitted:
            self.tasks.extend(tasks)
            self._done = done
            self._submitted.notify_all()

    def report(self, job_id: str, report: StepReport) -> None:
        self.said.append(("report", job_id, report.step))

    def wait_for_tasks(self, count: int) -> None:
        with self._submitted:
            assert self._submitted.wait_for(lambda: len(self.tasks) >= count, LONG_SECONDS), self.tasks

    def finish(self, *indices: int) -> None:
        """Deliver the results of these tasks, counted in order of submission."""
        for index in indices:
            self.deliver(run_measured(self.tasks[index], "job"))

    def deliver(self, result: TaskResult) -> None:
        assert self._done is not None
        self._done(result)

    def set_weight(self, job_id: str, weight: float) -> None:
        self.said.append(("weight", job_id, weight))

    def set_target(self, job_id: str, target: float | None) -> None:
        self.said.append(("target", job_id, target))

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self.said.append(("waiting", job_id, is_waiting))

    def status(self) -> ClusterStatus:
        return ClusterStatus(0.0, self.capacity, "none", ())

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)

    def close(self) -> None: ...

    def describe(self) -> str:
        return "by hand"


@pytest.fixture
def threads() -> Iterator[ThreadExecutor]:
    with closing(ThreadExecutor(2)) as executor:
        yield executor


def run_to_end(runner: JobRunner) -> JobRunner:
    runner.start()
    assert runner.wait(LONG_SECONDS)
    return runner


def test_a_job_runs_to_its_final_report(threads: ThreadExecutor) -> None:
    job = counting_job("job", steps=6, tasks=5)
    reports: list[StepReport] = []
    ends: list[RunState] = []
    runner = JobRunner(
        job, threads, listener=Listens(on_report=reports.append, on_end=lambda: ends.append(runner.state))
    )
    run_to_end(runner)
    assert (runner.state, runner.error, ends) == (RunState.EXACT, None, [RunState.EXACT])
    assert job.folded == counted(steps=6, tasks=5)
    assert [report.step for report in reports] == list(range(6))
    assert reports[-1].is_final


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=6))
def test_whatever_order_results_arrive_in_and_however_often(order: list[int], again: list[int]) -> None:
    """Three tasks in each of two steps, both in flight."""
    executor = ManualExecutor()
    job = counting_job("job", steps=2, tasks=3)
    runner = JobRunner(job, executor)
    runner.start()
    executor.wait_for_tasks(6)
    executor.finish(*order[:3], *again, *order[3:], *again)
    assert runner.wait(LONG_SECONDS)
    assert job.folded == counted(steps=2, tasks=3)
    assert runner.state is RunState.EXACT


def test_an_error_that_comes_after_a_result_of_the_same_task_changes_nothing() -> None:
    executor = ManualExecutor()
    job = counting_job("job", steps=1, tasks=2)
    runner = JobRunner(job, executor)
    runner.start()
    executor.wait_for_tasks(2)
    executor.finish(0)
    executor.deliver(TaskResult(executor.tasks[0].key, None, 0.0, DataError("from a worker thought dead")))
    executor.finish(1)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, job.folded) == (RunState.EXACT, counted(steps=1, tasks=2))


@pytest.mark.parametrize(
    ("cores", "tasks", "issued_before_folding"),
    [(1, 1, 2), (4, 8, 2), (4, 3, 2), (4, 2, 3), (4, 1, 5), (4, 0, 5)],
)
def test_steps_are_ahead_by_one_or_until_every_core_has_a_task(
    cores: int, tasks: int, issued_before_folding: int
) -> None:
    class Watched(ToyJob):
        def next_step(self) -> Step | None:
            if (step := super().next_step()) is not None:
                issued.append((step.index, len(self.folded)))
            return step

    issued: list[tuple[int, int]] = []  # which step, and how many were folded before
    with closing(ThreadExecutor(cores)) as executor:
        run_to_end(JobRunner(Watched("job", [[Number(0)] * tasks] * 7), executor))
    assert issued == [(step, max(0, step + 1 - issued_before_folding)) for step in range(7)]


def test_a_job_may_wait_for_a_fold_before_it_gives_the_next_step(threads: ThreadExecutor) -> None:
    class OneAtATime(ToyJob):
        def next_step(self) -> Step | None:
            return super().next_step() if self.issued == len(self.folded) else None

    job = OneAtATime("job", [[Number(0)], [Number(1)], [Number(2)]])
    assert run_to_end(JobRunner(job, threads)).state is RunState.EXACT
    assert job.folded == counted(steps=3, tasks=1)


def test_a_step_without_tasks_is_folded_at_once(threads: ThreadExecutor) -> None:
    job = ToyJob("job", [[], [Number(7)], []])
    assert run_to_end(JobRunner(job, threads)).state is RunState.EXACT
    assert job.folded == [(0, []), (1, [7]), (2, [])]


def test_states_on_the_way() -> None:
    executor = ManualExecutor()
    reached = threading.Event()
    runner = JobRunner(
        counting_job("job", steps=2, tasks=1),
        executor,
        listener=Listens(on_report=lambda report: reached.set()),
    )
    assert runner.state is RunState.WAITING
    runner.start()
    executor.wait_for_tasks(2)
    assert runner.state is RunState.WAITING
    executor.finish(0)
    assert reached.wait(LONG_SECONDS)
    assert runner.state is RunState.RUNNING
    assert not runner.wait(0)
    executor.finish(1)
    assert runner.wait(LONG_SECONDS)
    assert runner.state is RunState.EXACT
    runner.pause()
    runner.stop()
    assert runner.state is RunState.EXACT
    assert executor.cancelled == ["job"]


def test_pause_folds_what_is_in_flight_and_resume_goes_on() -> None:
    executor = ManualExecutor()
    job = counting_job("job", steps=5, tasks=1)
    two_folded = threading.Event()
    runner = JobRunner(
        job,
        executor,
        listener=Listens(on_report=lambda report: two_folded.set() if report.step == 1 else None),
    )
    runner.start()
    executor.wait_for_tasks(2)
    runner.pause()
    executor.finish(0, 1)
    assert two_folded.wait(LONG_SECONDS)
    assert runner.state is RunState.PAUSED
    assert (len(job.folded), job.issued) == (2, 2)
    runner.resume()
    executor.wait_for_tasks(4)
    executor.finish(2)
    executor.wait_for_tasks(5)
    executor.finish(3, 4)
    assert runner.wait(LONG_SECONDS)
    assert job.folded == counted(steps=5, tasks=1)


def test_a_paused_job_whose_last_step_was_in_flight_is_exact() -> None:
    executor = ManualExecutor()
    runner = JobRunner(counting_job("job", steps=2, tasks=1), executor)
    runner.start()
    executor.wait_for_tasks(2)
    runner.pause()
    executor.finish(0, 1)
    assert runner.wait(LONG_SECONDS)
    assert runner.state is RunState.EXACT


def test_stop_frees_the_cores_and_folds_no_more() -> None:
    executor = ManualExecutor()
    job = counting_job("job", steps=3, tasks=2)
    runner = JobRunner(job, executor)
    runner.start()
    executor.wait_for_tasks(4)
    runner.stop()
    runner.stop()
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, executor.cancelled, job.folded) == (RunState.STOPPED, ["job"], [])
    executor.finish(0, 1)  # too late to matter
    assert job.folded == []


def test_stop_before_start_issues_nothing() -> None:
    executor = ManualExecutor()
    runner = JobRunner(counting_job("job", steps=1, tasks=1), executor)
    runner.stop()
    run_to_end(runner)
    assert (runner.state, executor.tasks) == (RunState.STOPPED, [])


def test_stop_from_a_callback(threads: ThreadExecutor) -> None:
    job = counting_job("job", steps=50, tasks=1)
    runner = JobRunner(
        job, threads, listener=Listens(on_report=lambda report: runner.stop() if report.step == 3 else None)
    )
    run_to_end(runner)
    assert runner.state is RunState.STOPPED
    assert job.folded == counted(steps=4, tasks=1)


def test_stop_from_a_finalizer_in_the_runner_s_own_thread(threads: ThreadExecutor) -> None:
    class Owner:
        def __init__(self, stop: Callable[[], None]) -> None:
            self.myself = self  # a cycle, so that the collector calls __del__ at a moment of its own
            self.stop = stop

        def __del__(self) -> None:
            self.stop()

    def drop_an_owner(report: StepReport) -> None:
        if report.step == 2:
            Owner(runner.stop)
            gc.collect()

    job = counting_job("job", steps=50, tasks=1)
    runner = JobRunner(job, threads, listener=Listens(on_report=drop_an_owner))
    run_to_end(runner)
    assert runner.state is RunState.STOPPED
    assert job.folded == counted(steps=3, tasks=1)


def test_should_stop_ends_the_job_before_another_step() -> None:
    executor = ManualExecutor()
    job = counting_job("job", steps=9, tasks=1)
    reports: list[int] = []
    runner = JobRunner(
        job,
        executor,
        listener=Listens(
            on_report=lambda report: reports.append(report.step), should_stop=lambda report: report.step == 1
        ),
    )
    runner.start()
    executor.wait_for_tasks(2)
    executor.finish(0)
    executor.wait_for_tasks(3)
    executor.finish(1)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, reports, job.issued) == (RunState.STOPPED, [0, 1], 3)


def test_a_task_s_error_fails_the_job_and_frees_its_cores() -> None:
    executor = ManualExecutor()
    error = DataError("the partition is gone")
    runner = JobRunner(ToyJob("job", [[Number(1), Fails(error)], [Number(2)]]), executor)
    runner.start()
    executor.wait_for_tasks(3)
    executor.finish(1)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, executor.cancelled) == (RunState.FAILED, ["job"])
    assert runner.error is error


def test_another_job_takes_the_place_of_one_that_failed() -> None:
    """What of the first arrives late is folded by neither, though its step and place are the other's too."""
    executor, error = ManualExecutor(), DataError("no room")
    other = ToyJob("other", [[Number(5), Number(6)]])
    asked: list[Exception] = []

    def instead(failed: Exception) -> Successor:
        asked.append(failed)
        return Successor(other, JobDescription("other"))

    runner = JobRunner(
        ToyJob("job", [[Number(1), Fails(error)]]), executor, listener=Listens(instead=instead)
    )
    runner.start()
    executor.wait_for_tasks(2)
    executor.finish(1)
    executor.wait_for_tasks(4)
    executor.finish(0, 2, 3)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, runner.id, runner.error) == (RunState.EXACT, "other", None)
    assert (other.folded, asked) == ([(0, [5, 6])], [error])
    entered = [job for what, job, _ in executor.said if what == "enter"]
    assert (entered, executor.cancelled) == (["job", "other"], ["job", "other"])


class ResigningJob(ToyJob):
    """Gives up with each fold."""

    why = DataError("more is not worth its cost")

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        return replace(super().fold(step, results), is_final=False, gives_up=self.why)


def test_a_job_that_gives_up_is_replaced_once_its_report_was_taken() -> None:
    executor, reports = ManualExecutor(), list[StepReport]()
    asked: list[Exception] = []

    def instead(failed: Exception) -> Successor:
        asked.append(failed)
        return Successor(ToyJob("other", [[Number(5)]]), JobDescription("other"))

    listener = Listens(on_report=reports.append, instead=instead)
    runner = JobRunner(
        ResigningJob("job", [[Number(1)], [Number(2)], [Number(3)]]), executor, listener=listener
    )
    runner.start()
    executor.wait_for_tasks(2)
    executor.finish(0)
    executor.wait_for_tasks(3)
    executor.finish(2)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, runner.id, runner.error) == (RunState.EXACT, "other", None)
    assert ([each.step for each in reports], asked) == ([0, 0], [ResigningJob.why])
    assert len(executor.tasks) == 3, "nothing more of a job that gave up is run"


def test_where_the_other_job_fails_too_the_run_has_failed(threads: ThreadExecutor) -> None:
    first, second = DataError("no room"), DataError("none at all")
    other = Successor(ToyJob("other", [[Fails(second)]]), JobDescription("other"))
    runner = JobRunner(
        ToyJob("job", [[Fails(first)]]),
        threads,
        listener=Listens(instead=lambda error: other if error is first else None),
    )
    assert (run_to_end(runner).state, runner.error) == (RunState.FAILED, second)


class BrokenJob(ToyJob):
    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        raise ZeroDivisionError("in the fold")


class EndlessJob(ToyJob):
    """Gives no more steps, and never a final report."""

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        return StepReport(step.index, 0.0, None, 0.0, is_final=False)


@pytest.mark.parametrize(
    ("job", "on_report", "match"),
    [
        (BrokenJob("job", [[Number(1)]]), lambda report: None, "in the fold"),
        (EndlessJob("job", [[Number(1)]]), lambda report: None, "reported no end"),
        (counting_job("job", steps=2, tasks=1), lambda report: 1 / 0, "division by zero"),
    ],
)
def test_errors_of_folds_and_callbacks_fail_the_job(
    threads: ThreadExecutor, job: ToyJob, on_report: Callable[[StepReport], None], match: str
) -> None:
    runner = run_to_end(JobRunner(job, threads, listener=Listens(on_report=on_report)))
    assert runner.state is RunState.FAILED
    assert match in str(runner.error)


def test_a_callback_cannot_wait_for_its_own_job(threads: ThreadExecutor) -> None:
    runner = JobRunner(
        counting_job("job", steps=1, tasks=1),
        threads,
        listener=Listens(on_report=lambda report: runner.wait() and None),
    )
    run_to_end(runner)
    assert "wait in another thread" in str(runner.error)


def test_the_scheduler_is_told_of_the_job_its_steps_and_what_changes() -> None:
    executor = ManualExecutor()
    runner = JobRunner(counting_job("job", steps=3, tasks=1), executor, JobDescription("job", weight=2.0))
    runner.start()
    executor.wait_for_tasks(2)
    runner.weight = 5.0
    runner.set_target(0.1)
    executor.finish(0)
    executor.wait_for_tasks(3)
    assert executor.said == [
        ("enter", "job", 2.0),
        ("weight", "job", 5.0),
        ("target", "job", 0.1),
        ("report", "job", 0),
    ]
    with pytest.raises(ValueError, match="weight is 0"):
        runner.weight = 0
    runner.stop()
    assert runner.wait(LONG_SECONDS)


def test_what_changes_before_the_start_holds_from_the_start() -> None:
    executor = ManualExecutor()
    runner = JobRunner(counting_job("job", steps=1, tasks=1), executor)
    runner.weight = 3.0
    runner.pause()
    executor.said.clear()
    runner.start()
    runner.resume()
    executor.wait_for_tasks(1)
    executor.finish(0)
    assert runner.wait(LONG_SECONDS)
    assert executor.said[0] == ("enter", "job", 3.0)
    assert ("waiting", "job", True) in executor.said


def test_two_jobs_share_an_executor_by_weight(threads: ThreadExecutor) -> None:
    """Both have more work than the other's end; what each used when the first ends is in proportion."""
    heavy = counting_job("heavy", steps=20, tasks=4, core_seconds=0.006)
    light = counting_job("light", steps=20, tasks=4, core_seconds=0.006)
    used_by_light: list[float] = []
    second = JobRunner(light, threads)
    first = JobRunner(
        heavy,
        threads,
        JobDescription("heavy", weight=3.0),
        listener=Listens(on_end=lambda: used_by_light.append(light.core_seconds)),
    )
    second.start()
    first.start()
    assert first.wait(LONG_SECONDS)
    second.stop()
    assert second.wait(LONG_SECONDS)
    # A fold counts a step's tasks together, and a step of the light job is an eighth of what it gets.
    assert heavy.core_seconds / used_by_light[0] == pytest.approx(3.0, rel=0.4)
