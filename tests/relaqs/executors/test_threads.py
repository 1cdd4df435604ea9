"""The thread executor, with real threads and real DuckDB statements."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest
from relaqs_engine.duck import Interrupted
from relaqs_engine.errors import ClusterError

from relaqs.executors import open_executor, threads
from relaqs.executors.threads import ThreadExecutor, usable_cores
from relaqs.jobs.executor import Done
from relaqs.jobs.job import JobDescription, Task, TaskKey, TaskResult, Work
from relaqs.sharing.view import Kind
from tests.relaqs.executors.toy_jobs import Fails, LongQuery, Number, query_work

SHORT_SQL = "SELECT sum(a)::BIGINT AS n FROM range(3_000_000) t(a)"
PROMPT_SECONDS = 10.0  # generous on a busy machine; what must stop would take days


@pytest.fixture
def one_core() -> Iterator[ThreadExecutor]:
    with closing(ThreadExecutor(1)) as executor:
        yield executor


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "running"
    os.mkfifo(path)
    return path


def submit(executor: ThreadExecutor, job: str, works: list[Work], done: Done, *, weight: float = 1.0) -> None:
    """Enter a job of which nothing is known, and submit its only step."""
    executor.enter(JobDescription(job, weight=weight))
    executor.submit([Task(TaskKey(job, 0, index), work) for index, work in enumerate(works)], done)


def test_every_task_has_one_result_with_its_core_seconds() -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    began = time.perf_counter()
    with closing(ThreadExecutor(3)) as executor:
        submit(executor, "job", [Number(i, 0.01) for i in range(9)], results.put)
        got = [results.get(timeout=PROMPT_SECONDS) for _ in range(9)]
    assert sorted(result.key.index for result in got) == list(range(9))
    assert all(result.value == result.key.index for result in got)
    took = time.perf_counter() - began
    assert all(0.01 <= result.core_seconds < took for result in got)
    assert results.empty()


def test_capacity_is_the_cores_of_this_process_unless_told() -> None:
    with closing(open_executor()) as executor:
        assert executor.capacity == usable_cores()
    with closing(open_executor(cores=3)) as executor:
        assert executor.capacity == 3
        assert executor.describe() == "3 threads in this process"
    with pytest.raises(ValueError, match="cores is 0"):
        ThreadExecutor(0)


def test_one_thread_is_said_as_one(one_core: ThreadExecutor) -> None:
    assert one_core.describe() == "1 thread in this process"


def test_embedded_use_never_imports_dask() -> None:
    script = """
import sys, relaqs.executors
relaqs.executors.open_executor().close()
sys.exit(bool({"dask", "distributed"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_an_error_is_its_task_s_result_and_harms_nobody_else(one_core: ThreadExecutor) -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    submit(one_core, "job", [Fails(SystemExit(3)), Number(1)], results.put)
    assert isinstance(results.get(timeout=PROMPT_SECONDS).error, SystemExit)
    assert results.get(timeout=PROMPT_SECONDS).value == 1


@dataclass
class Ledger:
    """Adds up measured core-seconds and says when the first job is through."""

    used: dict[str, float]
    left: dict[str, int]
    first_done: threading.Event
    at_first_done: dict[str, float]
    lock: threading.Lock

    def done(self, result: TaskResult) -> None:
        with self.lock:
            job = result.key.job
            self.used[job] += result.core_seconds
            self.left[job] -= 1
            if not self.left[job] and not self.at_first_done:
                self.at_first_done.update(self.used)
                self.first_done.set()


def test_weights_of_three_to_one_give_three_to_one_of_the_core_seconds() -> None:
    """Counted in measured core-seconds up to the end of one job's work, so a busy machine changes nothing."""
    works: dict[str, list[Work]] = {
        "heavy": [Number(0, 0.015)] * 40,  # 0.6 core-seconds
        "light": [Number(0, 0.005)] * 120,  # of which a third is served meanwhile, in smaller tasks
    }
    ledger = Ledger(
        dict.fromkeys(works, 0.0),
        {job: len(each) for job, each in works.items()},
        threading.Event(),
        {},
        threading.Lock(),
    )
    with closing(ThreadExecutor(2)) as executor:
        submit(executor, "heavy", works["heavy"], ledger.done, weight=3.0)
        submit(executor, "light", works["light"], ledger.done)
        assert ledger.first_done.wait(60)
    used = ledger.at_first_done
    # 0.6 : 0.2, give or take a task of each job in each thread.
    assert used["heavy"] / used["light"] == pytest.approx(3.0, rel=0.25)


def test_cancel_drops_what_waits_and_interrupts_what_runs(one_core: ThreadExecutor, pipe: Path) -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    submit(one_core, "long", [LongQuery(str(pipe)), Number(1)], results.put)
    pipe.read_text()  # returns once the first task runs
    assert one_core.status().jobs[0].used_cores > 0.0
    one_core.cancel("long")
    # Of so light a job the second task would come after anything of the first job that still waited.
    submit(one_core, "light", [Number(2, 0.01), Number(3)], results.put, weight=0.001)
    interrupted, *following = (results.get(timeout=PROMPT_SECONDS) for _ in range(3))
    assert isinstance(interrupted.error, Interrupted)
    assert [result.value for result in following] == [2, 3]


def test_cancelling_one_job_leaves_another_job_s_statement_alone(pipe: Path) -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    with closing(ThreadExecutor(2)) as executor:
        submit(executor, "long", [LongQuery(str(pipe))], results.put)
        submit(executor, "short", [query_work(SHORT_SQL)], results.put)
        pipe.read_text()
        executor.cancel("long")
        got = {result.key.job: result for result in (results.get(timeout=PROMPT_SECONDS) for _ in range(2))}
    assert isinstance(got["long"].error, Interrupted)
    assert got["short"].value.to_pydict() == {"n": [4499998500000]}  # type: ignore[attr-defined]


def test_close_interrupts_joins_and_takes_no_more(pipe: Path) -> None:
    executor = ThreadExecutor(1)
    results: SimpleQueue[TaskResult] = SimpleQueue()
    submit(executor, "long", [LongQuery(str(pipe))], results.put)
    pipe.read_text()
    executor.close()
    assert isinstance(results.get(timeout=PROMPT_SECONDS).error, Interrupted)
    with pytest.raises(ClusterError, match="closed"):
        executor.submit([Task(TaskKey("long", 1, 0), Number(1))], results.put)
    with pytest.raises(ClusterError, match="closed"):
        submit(executor, "late", [Number(1)], results.put)
    executor.close()


ENDLESS = """
import sys
from relaqs.executors import open_executor
from relaqs.jobs.executor import Done
from relaqs.jobs.runner import JobRunner
from tests.relaqs.executors.toy_jobs import LONG_SQL, LongQuery, ToyJob, query_work

works = [query_work(LONG_SQL), LongQuery(sys.argv[1])]
runner = JobRunner(ToyJob("endless", [works]), open_executor(cores=2))
runner.start()
runner.wait()
"""


@pytest.mark.parametrize("main_thread", ["waits", "ends"])
def test_ctrl_c_or_the_end_of_the_program_ends_the_process_at_once(pipe: Path, main_thread: str) -> None:
    """While two statements run that would take days."""
    ends = ENDLESS.replace("runner.wait()", "open(sys.argv[1]).read()")
    script = ENDLESS if main_thread == "waits" else ends
    with subprocess.Popen([sys.executable, "-c", script, str(pipe)], stderr=subprocess.PIPE) as process:
        if main_thread == "waits":
            pipe.read_text()
            process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=PROMPT_SECONDS)
        finally:
            process.kill()
    if main_thread == "waits":
        assert b"KeyboardInterrupt" in errors
        assert process.returncode in (1, 130, -signal.SIGINT)
    else:
        assert (process.returncode, errors) == (0, b"")


@dataclass
class Held:
    """Work that goes on until it is let go, and how much of it runs at once."""

    may_end: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: int = 0
    running: int = 0
    most: int = 0

    def run(self, owner: str) -> int:
        with self.lock:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.may_end.wait(60)
        with self.lock:
            self.running -= 1
            return self.running

    def wait_for(self, count: int) -> None:
        """Wait until so much of it runs, and a little longer, for more to begin."""
        until = time.monotonic() + PROMPT_SECONDS
        while self.running < count:
            assert time.monotonic() < until, self.running
            time.sleep(0.005)
        time.sleep(0.15)


@contextmanager
def holding(
    executor: ThreadExecutor, whole_seconds: float | None, *, jobs: int, cores_most: float = math.inf
) -> Iterator[Held]:
    """Have jobs of eve submitted to a block, each of one task that goes on until its end."""
    held, results = Held(), SimpleQueue[TaskResult]()
    kind = Kind.EXACT if whole_seconds is not None else Kind.TRAINING
    for number in range(jobs):
        job = f"eve-{number}"
        executor.enter(JobDescription(job, kind, user="eve", user_cores_most=cores_most))
        executor.submit([Task(TaskKey(job, 0, 0), held, whole_seconds=whole_seconds)], results.put)
    try:
        yield held
    finally:
        held.may_end.set()
        for _ in range(jobs):
            assert results.get(timeout=PROMPT_SECONDS).error is None


def test_who_cancels_takes_no_word_that_is_for_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that cancels waits for a task's end, and the others are told of new tasks meanwhile."""
    monkeypatch.setattr(threads, "SETTLE_SECONDS", 60.0)
    results: SimpleQueue[TaskResult] = SimpleQueue()
    with closing(ThreadExecutor(3)) as executor, holding(executor, PART, jobs=1) as held:
        held.wait_for(1)
        canceller = threading.Thread(target=executor.cancel, args=("eve-0",))
        canceller.start()
        executor.enter(JobDescription("short"))
        for number in range(3):  # two threads wait, one of them after the one that cancels
            time.sleep(0.1)
            executor.submit([Task(TaskKey("short", number, 0), Number(number))], results.put)
            assert results.get(timeout=PROMPT_SECONDS).value == number
        held.may_end.set()
        canceller.join(PROMPT_SECONDS)
        assert not canceller.is_alive()


LONG, SHORT, PART = 9.0, 0.001, None


@pytest.mark.parametrize(
    ("user", "kind", "whole_seconds"),
    [
        ("bob", Kind.EXACT, SHORT),
        ("bob", Kind.EXACT, LONG),
        ("bob", Kind.QUERY, PART),
        ("bob", Kind.TRAINING, PART),
        ("eve", Kind.EXACT, SHORT),
        ("eve", Kind.QUERY, PART),
    ],
)
@pytest.mark.parametrize("eve_runs", [LONG, SHORT, PART])
@pytest.mark.parametrize("cores", [1, 2, 3])
def test_what_holds_all_cores_keeps_nobody_waiting(
    cores: int, eve_runs: float | None, user: str, kind: Kind, whole_seconds: float | None
) -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    with closing(ThreadExecutor(cores)) as executor:
        with holding(executor, eve_runs, jobs=cores if user == "eve" else 2 * cores):
            for step in range(3):
                job = f"{user}-small-{step}"
                executor.enter(JobDescription(job, kind, user=user))
                executor.submit(
                    [Task(TaskKey(job, 0, 0), Number(step), whole_seconds=whole_seconds)], results.put
                )
                assert results.get(timeout=PROMPT_SECONDS).value == step
                executor.cancel(job)
        until(lambda: len(executor._threads) == cores)  # the others have ended


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_long_wholes_of_a_user_leave_a_core_and_wait_for_each_other(cores: int) -> None:
    with closing(ThreadExecutor(cores)) as executor:
        with holding(executor, LONG, jobs=4) as held:
            held.wait_for(max(1, cores - 1))
            assert held.begun == held.most == max(1, cores - 1)
        assert held.begun == 4


@pytest.mark.parametrize(("whole_seconds", "most"), [(LONG, 1), (SHORT, 3), (PART, 2)])
def test_one_user_holds_few_places_whatever_was_predicted(whole_seconds: float | None, most: int) -> None:
    with closing(ThreadExecutor(2)) as executor, holding(executor, whole_seconds, jobs=12) as held:
        held.wait_for(most)
        assert held.begun == held.most == most


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_one_query_alone_has_no_more_threads_than_cores(cores: int) -> None:
    held, results = Held(), SimpleQueue[TaskResult]()
    with closing(ThreadExecutor(cores)) as executor:
        executor.enter(JobDescription("alone", Kind.QUERY))
        executor.submit([Task(TaskKey("alone", 0, index), held) for index in range(9)], results.put)
        held.wait_for(1)
        assert held.begun == held.most <= cores
        held.may_end.set()
        for _ in range(9):
            assert results.get(timeout=PROMPT_SECONDS).error is None
        assert held.most <= cores == len(executor._threads)


@pytest.mark.parametrize("whole_seconds", [LONG, SHORT, PART])
@pytest.mark.parametrize(("cores_most", "most"), [(0.5, 1), (1.0, 1), (1.5, 2)])
def test_a_user_has_no_more_cores_than_allowed(
    cores_most: float, most: int, whole_seconds: float | None
) -> None:
    with (
        closing(ThreadExecutor(4)) as executor,
        holding(executor, whole_seconds, jobs=6, cores_most=cores_most) as held,
    ):
        held.wait_for(most)
        assert held.begun == held.most == most
        held.may_end.set()
    assert (held.begun, held.most) == (6, most)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROMPT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
