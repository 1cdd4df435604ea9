"""A training run whose parameters lie in shards on workers, as long as there are two of them.

It is a `LossJob` that makes its passes in another way. Both give the same bits, so it changes between them
whenever it wants to: it begins with whole parameters, opens shards, and goes back where workers are lacking.

    whole ──► open ──► step, step, … ──► fetch     the last model
      ▲        ▲          │ an owner is lost
      └────────┼──────────┤
               └── move ◄─┘ workers have come: what a step would begin from is fetched, and cut anew

Now and then a step has one task more, which fetches the state that the step begins from: to go on from
when an owner is lost. Meanwhile the others compute.

Whether it pays to keep parameters in shards, by what is known after two passes.

Where the parameters of a run are to be: what callers may say, and what can be done.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from relaqs_engine.errors import ClusterError

from relaqs.arguments import ArgumentError
from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND, Executor, HostsPeers
from relaqs.jobs.job import JobDescription, Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.training.passes import (
    LossJob,
    RunRows,
    SavedJob,
    SubtaskSeconds,
    TrainedModel,
    add_sums,
    in_pairs,
)
from relaqs.training.protocol import (
    ShardCourse,
    ShardedDescent,
    ShardedJob,
    ShardState,
    Training,
    WholeParameters,
)
from relaqs.training.rows import Profile
from relaqs.training.sharded.holder import AskWork, IterateWork, LostShards, ShardHolder, SubtaskClock
from relaqs.training.sharded.shards import ShardMap

CLIENT_BYTES_PER_SECOND = 1.1e8  # of a client's link of 1 Gbit/s, which all workers share
LEAST_SHARE = 0.2  # of a pass, that the client's link would be busy for it


@dataclass(frozen=True, slots=True)
class ShardWorth:
    """Whether shards pay, and why or why not, for people."""

    pays: bool
    why: str


def worth_of(byte_count: int, workers: Sequence[str], pass_core_seconds: float) -> ShardWorth:
    """Return whether shards pay.

    In client mode each worker is sent the parameters in each pass, and sends sums as large back. All of that
    goes over the client's link.

    Args:
        byte_count: of the parameters.
        workers: the addresses of those that would own shards.
        pass_core_seconds: what a pass takes.

    >>> worth_of(8_000_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.1:2"), 1.0).why
    'all workers are on one host, where sending is computing'
    >>> print(worth_of(80_000_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1"), 4.0).why)
    the client's link would be busy for 2.9 s in each pass of 2.0 s
    >>> worth_of(8_000, ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1"), 1.0).pays
    False
    """
    if len(workers) < 2:
        return ShardWorth(False, "there are fewer than two workers")
    if len({urlsplit(worker).hostname for worker in workers}) < 2:
        return ShardWorth(False, "all workers are on one host, where sending is computing")
    link_seconds = 2 * byte_count * len(workers) / CLIENT_BYTES_PER_SECOND
    pass_seconds = pass_core_seconds / len(workers)
    busy = f"be busy for {link_seconds:.2g} s in each pass of {pass_seconds:.1f} s"
    if link_seconds < LEAST_SHARE * pass_seconds:
        return ShardWorth(False, f"the client's link would only {busy}")
    return ShardWorth(True, f"the client's link would {busy}")


KEEP_SECONDS = 10.0  # between two states that the client keeps, at least
KEEP_SHARE = 0.05  # of the time, at most, to fetch them
MOVE_SECONDS = 10.0  # between two cuts of one run, at least
MOVE_SHARE = 0.02  # of the time, at most, to cut anew where workers have come
IDLE_SECONDS = 60.0  # after which workers forget a run, and at least IDLE_PASSES passes
IDLE_PASSES = 10.0
TRIES = 10  # to open shards without one more pass, before the run fails
LAST_SECONDS = 10.0  # for the last model to come, beside the time for its bytes
AGAIN_FACTOR = 3.0  # of the time that passes took which are made again for the last model, at most
DROP_SECONDS = 2.0  # for workers to be told that the run is over. Else they forget it after a while

ShardPhase = Literal["whole", "open", "step", "move", "fetch"]


class HostingExecutor(Executor, HostsPeers, Protocol):
    """An executor whose workers speak with each other."""


class ShardJob(LossJob):
    """See the module.

    Args:
        is_forced: whether shards are opened in any case. Else they are where it pays.
        max_steps: after how many passes the run ends in any case. The last of them is reported once its
            model is there, so that it can be made again where an owner is lost.
    """

    is_abreast = True

    def __init__(
        self,
        rows: RunRows,
        job: ShardedJob,
        executor: HostingExecutor,
        *,
        is_forced: bool,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(rows, job)
        self._executor = executor
        self._is_forced = is_forced
        self._max_steps = max_steps
        self._where = "whole, in the client"
        self._why = "it is not known yet how long a pass takes"
        self._phase: ShardPhase = "whole"
        self._is_settled = False
        self._whole: WholeParameters
        self._descent: ShardedDescent
        self._kept: WholeParameters  # where the run goes on when shards are lost
        self._course: ShardCourse
        self._cut_of_parameters: ShardMap | None = None  # None: no worker has a shard
        self._generation = -1
        self._shunned: set[str] = set()  # workers that did not answer
        self._owners: set[str] = set()  # of all generations
        self._tries = 0
        self._core_seconds = 0.0  # of the last pass
        self._begun_seconds = self._kept_seconds = time.monotonic()
        self._step_seconds = self._fetch_seconds = 0.0
        self._clock = SubtaskClock()
        self._looked_seconds = self._opened_seconds = time.monotonic()  # for workers, and of the last cut
        self._move_seconds = 0.0  # what the last cut took
        self._keeps = False  # whether the step in hand fetches the state
        self._last: float | None = None  # the core-seconds of the last pass, while its model is fetched

    def explain(self) -> str:
        return f"parameters: {self._where}\nwhy: {self._why}"

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None:
        return self._clock.seconds

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        core_seconds = sum(result.core_seconds for result in results)
        if self._phase == "whole":
            self._core_seconds = core_seconds
            return super().fold(step, results)
        self._folded += 1
        values: list[Any] = [result.value for result in results]
        if lost := [value for value in values if isinstance(value, LostShards)]:
            self._note_lost(lost)
            return _without_pass(step, core_seconds)
        if self._phase == "move":
            self._fetch_seconds = results[0].held_seconds
            self._keep(values[0])
            self._phase = "open"
            return _without_pass(step, core_seconds)
        if self._phase == "open":
            self._phase, self._course = "step", self._kept.course
            self._opened_seconds = time.monotonic()
            self._move_seconds = self._opened_seconds - self._begun_seconds
            return _without_pass(step, core_seconds)
        if self._phase == "fetch":
            self._phase = "whole"  # nothing is left to fetch
            self._take_model(values[0])
            assert self._last is not None
            return self._passed(step, self._last + core_seconds)
        if self._keeps:
            self._fetch_seconds = results[0].held_seconds
            self._keep(values.pop(0))
        return self._stepped(step, values, core_seconds)

    def close(self) -> None:
        """Get the model of the last pass, and let the workers forget the run."""
        has_shards = self._cut_of_parameters is not None and self._phase != "whole"
        if has_shards and self._kept.course.step < self.passes:
            self._take_last_model()
        if (cut := self._cut_of_parameters) is not None:
            drop = AskWork(ShardHolder.drop, (cut, self._former(cut)))
            _results_aside(self._executor, f"{self.id}-drop", [drop], DROP_SECONDS)
            self._cut_of_parameters = None
        super().close()

    def _former(self, cut: ShardMap) -> tuple[str, ...]:
        """Return the owners of generations before that are still there."""
        if not (former := self._owners.difference(cut.owners)):
            return ()
        try:
            return tuple(former.intersection(self._executor.peers()))
        except ClusterError:
            return ()

    def _take_training(self, profile: Profile, training: Training) -> None:
        super()._take_training(profile, training)
        if not isinstance(training, WholeParameters):
            raise ArgumentError(
                f"{type(self._job).__name__}.begin() returned a {type(training).__name__}; where a job "
                "has descent(), it must be relaqs.training.WholeParameters(self.descent(profile))"
            )
        self._whole, self._descent = training, training.descent

    def saved(self) -> SavedJob | None:
        """Of parameters in shards, the state that was fetched last."""
        if self._training is None or self._phase == "whole":
            return super().saved()
        model = None if self.latest is None else self.latest.model
        return self._saved(self._kept.course.step, self._kept, model)

    def _reported(self, step: Step, made: Any, core_seconds: float) -> StepReport:
        """Return the report of a pass with whole parameters. One that is made again was reported before."""
        if self._whole.course.step <= self.passes:
            return _without_pass(step, core_seconds)
        self._tries = 0
        return super()._reported(step, made, core_seconds)

    def _works(self) -> list[Work]:
        if self._training is None:
            return super()._works()
        if self._phase == "whole":
            self._consider()
        self._begun_seconds = time.monotonic()
        if self._phase == "whole":
            return super()._works()
        if self._phase == "open":
            return self._open_works()
        cut = self._cut_of_parameters
        assert cut is not None
        if self._phase == "fetch":
            return [AskWork(ShardHolder.fetch, (cut, self._course.step - 1))]
        fetch = AskWork(ShardHolder.fetch, (cut, self._course.step))
        if self._is_time_to_move(cut):
            self._phase = "move"
            return [fetch]
        self._keeps = self._is_time_to_keep()
        return [*([fetch] if self._keeps else []), *self._iterate_works(cut)]

    # Whether there are shards.

    def _consider(self) -> None:
        """Leave the whole parameters for shards, where that pays and can be."""
        if self._is_settled or (not self._is_forced and self.passes < 2):  # the first one reads
            return
        workers = self._workers()
        worth = worth_of(8 * math.prod(self._descent.shape), workers, self._core_seconds)
        self._is_settled = not self._is_forced and not worth.pays
        self._why = "the caller asks for it" if self._is_forced else worth.why
        if self._is_forced and len(workers) < 2:
            self._why = f"shards need two workers, and there are {len(workers)}"
        elif self._is_forced or worth.pays:
            self._kept = WholeParameters(self._descent, self._whole.course, self._whole.state)
            self._phase = "open"

    def _workers(self) -> tuple[str, ...]:
        """Return the workers that may own shards: no more than the parameters have rows."""
        found = [worker for worker in self._executor.peers() if worker not in self._shunned]
        return tuple(found[: self._descent.shape[0]])

    def _is_time_to_move(self, cut: ShardMap) -> bool:
        """Return whether workers have come that could own shards. It is looked at now and then."""
        now = time.monotonic()
        least_seconds = max(MOVE_SECONDS, (self._fetch_seconds + self._move_seconds) / MOVE_SHARE)
        if now - self._looked_seconds < MOVE_SECONDS or now - self._opened_seconds < least_seconds:
            return False
        self._looked_seconds = now
        try:
            return not set(cut.owners).issuperset(self._workers())
        except ClusterError:  # its scheduler may be started again just now
            return False

    def _open_works(self) -> list[Work]:
        workers = self._workers()
        if len(workers) < 2:
            self._go_whole(len(workers))
            return super()._works()
        rows, columns = self._descent.shape
        pieces = self._trained * self._cut
        self._per_sender = 1 << max(0, math.floor(math.log2(max(1, pieces // len(workers)))))
        senders = -(-pieces // self._per_sender)
        self._generation += 1
        idle_seconds = max(IDLE_SECONDS, IDLE_PASSES * self._step_seconds) * (1 + self._tries)
        cut = ShardMap(
            self.id, self._generation, workers, rows, columns, senders, idle_seconds, self._budget_bytes
        )
        self._cut_of_parameters = cut
        self._owners.update(workers)
        self._where = f"in shards on {len(workers)} workers"
        version = self._kept.course.step
        state = self._kept.state if version else None
        return [AskWork(ShardHolder.open, (cut, self._descent, version, state))]

    def _go_whole(self, workers: int) -> None:
        """Go on in client mode from what is kept."""
        self._why = f"shards need two workers, and there are {workers}"
        self._where = "whole, in the client"
        self._phase, self._cut_of_parameters = "whole", None
        self._training = self._whole = self._kept

    def _note_lost(self, lost: Sequence[LostShards]) -> None:
        """Open the shards again, from what is kept."""
        self._shunned.update(each.address for each in lost if each.is_silent)
        self._phase, self._last = "open", None
        self._tries += 1
        if self._tries > TRIES:
            each = lost[0]
            raise ClusterError(
                f"the parameters in shards were lost {self._tries} times in a row, the last time at "
                f"{each.address}: {each.why}; see whether the workers reach each other, or train with "
                "parameters='client'"
            )

    # Passes.

    def _iterate_works(self, cut: ShardMap) -> list[Work]:
        works = self._pass_works(self._job, None, range(0, self._trained * self._cut, self._per_sender))
        course = self._course
        return [IterateWork(cut, course.step, i, course.pace, work) for i, work in enumerate(works)]

    def _stepped(self, step: Step, values: Sequence[Any], core_seconds: float) -> StepReport:
        self._step_seconds = time.monotonic() - self._begun_seconds
        cut = self._cut_of_parameters
        assert cut is not None
        self._clock.note([part.seconds for part in values], len(cut.owners), self._step_seconds)
        totals = in_pairs([part.totals for part in values], add_sums)
        self._course = self._descent.judge(self._course, totals, values[0].penalty)
        if self._course.step <= self.passes:  # it is made again
            return _without_pass(step, core_seconds)
        self._tries = 0
        if self._course.is_final or self._course.step == self._max_steps:
            self._phase, self._last = "fetch", core_seconds
            return _without_pass(step, 0.0)
        return self._passed(step, core_seconds)

    def _is_time_to_keep(self) -> bool:
        least_seconds = max(KEEP_SECONDS, self._fetch_seconds / KEEP_SHARE)
        return self.latest is None or time.monotonic() - self._kept_seconds > least_seconds

    def _keep(self, state: ShardState) -> None:
        """Take over the state that a pass began from."""
        self._take_model(state)
        self._kept = WholeParameters(self._descent, self._course, state)
        self._kept_seconds = time.monotonic()

    def _passed(self, step: Step, core_seconds: float) -> StepReport:
        self.passes += 1
        course = self._course
        progress = self._progress.update(course.loss)
        return StepReport(step.index, course.loss, None, core_seconds, course.is_final, progress)

    def _take_model(self, state: ShardState) -> None:
        assert self._profile is not None
        self._latest = TrainedModel(self._job, self._profile, self._descent.model(state[0]))

    def _take_last_model(self) -> None:
        """Take the model of the last pass over, for a run that has left: it has its goal, or was stopped."""
        if not self._fetch_last_model() and (self._tries > TRIES or not self._make_last_pass_again()):
            warnings.warn(
                f"the parameters of the last of {self.passes} passes are lost with their workers; the model "
                f"is that before pass {self._kept.course.step + 1}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _fetch_last_model(self) -> bool:
        """Return whether the model of the last pass came, or the one after it where a step more was made.

        An owner that does not answer is asked again while there is time: it may be stopped for a while.
        """
        cut, version = self._cut_of_parameters, self.passes - 1
        assert cut is not None
        end_seconds = time.monotonic() + LAST_SECONDS + cut.byte_count / LEAST_BYTES_PER_SECOND
        for attempt in count():
            results = _results_aside(
                self._executor,
                f"{self.id}-last-{attempt}",
                [AskWork(ShardHolder.fetch, (cut, version))],
                _seconds_until(end_seconds),
            )
            if results is None:  # there is no cluster any more, or no time
                return False
            found: Any = results[0].value
            if not isinstance(found, LostShards):
                self._take_model(found)
                return True
            if not found.is_silent:  # an owner has other versions
                if version == self.passes:
                    return False
                version = self.passes
        return False

    def _make_last_pass_again(self) -> bool:
        """Go on from what is kept up to the last pass, and return whether its model is there.

        It may take a few times as long as these passes took. Its steps are those of `next_step`, run aside.
        """
        kept_for_seconds = time.monotonic() - self._kept_seconds
        end_seconds = time.monotonic() + LAST_SECONDS + AGAIN_FACTOR * kept_for_seconds
        passes = self._max_steps = self.passes
        self.passes -= 1
        self._phase, self._issued = "open", self._folded
        try:
            while self.passes < passes:
                step = self.next_step()
                assert step is not None
                works = [task.work for task in step.tasks]
                results = _results_aside(
                    self._executor, f"{self.id}-again-{step.index}", works, _seconds_until(end_seconds)
                )
                if results is None:
                    return False
                self.fold(step, results)
        except ClusterError:
            return False
        finally:
            self.passes = passes
        return True


def _without_pass(step: Step, core_seconds: float) -> StepReport:
    """Return the report of a step that gives no loss."""
    return StepReport(step.index, math.inf, None, core_seconds, False)


def _seconds_until(end_seconds: float) -> float:
    """Return how long it is until a moment of the monotonic clock, 0 where it has passed."""
    return max(0.0, end_seconds - time.monotonic())


def _results_aside(
    executor: Executor, job_id: str, works: Sequence[Work], limit_seconds: float
) -> list[TaskResult] | None:
    """Return what tasks give, in their order, for a run that has left already.

    They are those of a job of their own, `job_id`. None: one failed, or they take longer than the limit.
    """
    answers: SimpleQueue[TaskResult] = SimpleQueue()
    results: dict[int, TaskResult] = {}
    end_seconds = time.monotonic() + limit_seconds
    try:
        executor.enter(JobDescription(job_id))
        executor.submit([Task(TaskKey(job_id, 0, i), work) for i, work in enumerate(works)], answers.put)
        while len(results) < len(works):
            result = answers.get(timeout=_seconds_until(end_seconds))
            results[result.key.index] = result
    except (ClusterError, Empty):
        return None
    finally:
        executor.cancel(job_id)
    if any(result.error is not None for result in results.values()):
        return None
    return [results[i] for i in range(len(works))]
