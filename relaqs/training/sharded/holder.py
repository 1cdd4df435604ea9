"""What a worker has and does for a run in shards: the holder of shards, the tasks, and the seconds they take.

The holder of a worker: it has shards of runs, answers PULLs and takes PUSHes, and asks its peers.

    task ── pull ──► holder ── PULL of a version ──► owners     answered once they have that version
    task ── push ──► holder ── PUSH of a part ─────► owners     the last one of a step makes the next version

A worker that has sent its part begins to fetch the next version at once, on no core. So versions take the
place of barriers. All is on the event loop of the worker, and needs no lock but for updates, which are
made on a thread.

The tasks open the shards, make an iteration, fetch the parameters, and drop them. The driver
(`shard_job.py`) is told what each iteration was made of: the seconds of PULL, COMP and PUSH on each
worker, and a rest in which the run has neither a core nor the network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.executor import (
    LEAST_BYTES_PER_SECOND,
    Haste,
    Letter,
    PeerForgotError,
    PeerLostError,
    Peers,
    busy_seconds,
)
from relaqs.jobs.job import Metered
from relaqs.training.passes import PassWork, SubtaskSeconds
from relaqs.training.protocol import ShardedDescent, ShardState, split_sums
from relaqs.training.row_cache import TornError
from relaqs.training.rows import Sums
from relaqs.training.sharded.shards import KeptState, KeptStates, Shard, ShardMap

if TYPE_CHECKING:
    from relaqs.executors.dask.peer_agent import PeerAgent

SKIPPED_PASSES = 3  # in which workers read and connect. So the authors of Harmony skip, too
KEPT_SHARE_OF_MEAN = 0.8  # of the running mean, in the next one


@dataclass(frozen=True, slots=True)
class TaskSeconds:
    """What one task of a step took.

    Attributes:
        comp: from when it had the parameters and a core until it left the core.
        pull: from when the version was there until this worker had it whole.
        push: from when the core was left until all owners had their part.
    """

    comp: float
    pull: float
    push: float


class SubtaskClock:
    """Running means of what the passes of a run take.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B2: times of subtasks by a moving average.
    """

    def __init__(self) -> None:
        self.seconds: SubtaskSeconds | None = None
        self._skipped = 0

    def note(self, tasks: Sequence[TaskSeconds], workers: int, step_seconds: float) -> None:
        """Take in a pass. step_seconds: from one judged loss to the next."""
        if self._skipped < SKIPPED_PASSES:
            self._skipped += 1
            return
        comp = sum(task.comp for task in tasks) / workers
        pull, push = (sum(getattr(task, name) for task in tasks) / len(tasks) for name in ("pull", "push"))
        newest = SubtaskSeconds(comp, pull, push, max(0.0, step_seconds - comp - pull - push))
        if self.seconds is None:
            self.seconds = newest
            return
        pairs = zip(astuple(self.seconds), astuple(newest), strict=True)
        kept = KEPT_SHARE_OF_MEAN
        self.seconds = SubtaskSeconds(*(kept * mean + (1 - kept) * value for mean, value in pairs))


AHEAD_SECONDS = 30.0  # for which a version that is fetched ahead may not be there yet
DEMAND_SECONDS = 5.0  # for one that a task needs, beside the time for its bytes: it is there or on its way
ANSWER_SECONDS = 30.0  # for an answer, beside the time for its bytes: a worker that died is noticed at once
PARTING_SECONDS = 1.0  # for owners to hear that a run is over

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class PulledParameters:
    """A version of the parameters, whole, and how the run goes.

    seconds: for which they were on their way, once the version was there.
    """

    descent: ShardedDescent
    values: FloatArray
    seconds: float


@dataclass(frozen=True, slots=True)
class _Pulled:
    """What has been fetched of a version. seconds: as `PulledParameters` has them."""

    kept: KeptState
    seconds: float


@dataclass(slots=True)
class _HeldRun:
    """What a worker has of one run. shard: where it is an owner. pulls: versions, whole or on their way."""

    cut: ShardMap
    descent: ShardedDescent
    shard: Shard | None
    used_seconds: float = field(default_factory=time.monotonic)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    pulls: dict[int, asyncio.Task[_Pulled]] = field(default_factory=dict)
    is_over: bool = False


class ShardHolder:
    """The `PeerService` of sharded training."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._runs: dict[str, _HeldRun] = {}
        self.kept = KeptStates()

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs of which this worker has something."""
        return tuple(self._runs)

    # What tasks of this worker ask. Each raises PeerLostError, naming the owner at fault.

    async def open(
        self, cut: ShardMap, descent: ShardedDescent, version: int, state: ShardState | None
    ) -> None:
        """Let all owners have their shards. What they had of the run before is forgotten.

        state: of all rows. None: each owner makes the first one.
        """

        def letter(shard: int) -> Letter:
            rows = cut.rows_of(shard)
            arrays = () if state is None else tuple(array[rows] for array in state)
            return Letter("open", (cut, descent, shard, version), arrays)

        await self._ask_owners(cut, [letter(shard) for shard in range(len(cut.owners))], "push", 0.0)

    async def has(self, cut: ShardMap, version: int) -> bool:
        """Return whether this worker has the parameters already, so that `pull` gives them at once."""
        run = self._held(cut.job, cut.generation)
        found = None if run is None else run.pulls.get(version)
        return found is not None and _is_whole(found)

    async def pull(self, cut: ShardMap, version: int) -> PulledParameters:
        """Return the parameters. They are fetched once for all tasks of this worker."""
        run = await self._run_of(cut)
        found = run.pulls.get(version)
        if found is None or (found.done() and not _is_whole(found)):
            found = self._fetch_ahead(run, version, DEMAND_SECONDS)
        elif not found.done():
            await asyncio.wait([found], timeout=DEMAND_SECONDS + cut.byte_count / LEAST_BYTES_PER_SECOND)
            if not _is_whole(found):
                found = self._fetch_ahead(run, version, DEMAND_SECONDS)
        pulled = await asyncio.shield(found)
        try:
            (values,) = await asyncio.to_thread(pulled.kept.arrays)
        except TornError as error:
            raise self._gone(f"its copy of the parameters is damaged: {error}") from error
        return PulledParameters(run.descent, values, pulled.seconds)

    async def push(
        self, cut: ShardMap, version: int, sender: int, sums: FloatArray, pace: tuple[float, ...]
    ) -> None:
        """Send each owner its part of the sums, and the rows below those of the parameters."""
        said = (cut.job, cut.generation, version, sender, pace)
        parts = (cut.part_of(sums, shard) for shard in range(len(cut.owners)))
        letters = [Letter("push", said, (part,)) for part in parts]
        await self._ask_owners(cut, letters, "push", 0.0)
        run = await self._run_of(cut)
        if version + 1 not in run.pulls:
            self._fetch_ahead(run, version + 1, AHEAD_SECONDS)

    async def fetch(self, cut: ShardMap, version: int) -> ShardState:
        """Return a version's state of all rows."""
        letter = Letter("state", (cut.job, cut.generation, version, DEMAND_SECONDS))
        answers = await self._ask_owners(cut, [letter] * len(cut.owners), "pull", DEMAND_SECONDS)
        return tuple(np.concatenate(parts) for parts in zip(*(a.arrays for a in answers), strict=True))

    async def drop(self, cut: ShardMap, former: Sequence[str] = ()) -> None:
        """Let all owners forget the run, and those of generations before. One that hangs does it later."""
        letter = Letter("drop", (cut.job, cut.generation))
        owners = dict.fromkeys([*cut.owners, *former])
        asked = [self._ask(cut, owner, letter, "pull", PARTING_SECONDS) for owner in owners]
        await asyncio.gather(*asked, return_exceptions=True)
        await self._forget(cut.job, cut.generation)

    # What others ask.

    async def answer(self, letter: Letter) -> tuple[Letter, Haste]:
        """Return the answer to a letter, and whether it has parameters that somebody waits for."""
        haste: Haste = "pull" if letter.subject in ("descent", "values", "state") else "push"
        try:
            return await self._answer(letter), haste
        except PeerForgotError as error:
            return Letter("gone", error.why), haste
        except TornError as error:  # the driver opens the run again from what is kept
            await self._forget(*letter.said[:2])
            return Letter("gone", f"its shard is damaged: {error}"), haste

    async def _answer(self, letter: Letter) -> Letter:
        match letter.subject:
            case "open":
                return await self._opened(letter)
            case "descent":
                return Letter("descent", self._there(*letter.said).descent)
            case "values":
                return await self._version_of(*letter.said, of_values=True)
            case "state":
                return await self._version_of(*letter.said, of_values=False)
            case "push":
                return await self._pushed(letter.arrays[0], *letter.said)
            case "drop":
                await self._forget(*letter.said)
                return Letter("dropped")
        raise self._gone(f"it knows nothing of {letter.subject!r}")

    def sweep(self) -> None:
        """Forget the runs that asked for nothing for a while."""
        now = time.monotonic()
        for job, run in list(self._runs.items()):
            if now - run.used_seconds > run.cut.idle_seconds:
                _end(self._runs.pop(job))

    async def _opened(self, letter: Letter) -> Letter:
        cut, descent, shard, version = letter.said
        rows = cut.rows_of(shard)

        def made() -> Shard:
            state = tuple(letter.arrays or descent.first(rows))
            return Shard(descent, rows, version, state, cut.senders, self._keep_of(cut))

        held = await asyncio.to_thread(made)
        there = self._runs.get(cut.job)
        if there is not None and there.cut.generation > cut.generation:
            raise self._gone("it has a later generation of the run")
        if there is not None:
            _end(there)
        self._runs[cut.job] = _HeldRun(cut, descent, held)
        return Letter("opened")

    async def _version_of(
        self, job: str, generation: int, version: int, wait_seconds: float, *, of_values: bool
    ) -> Letter:
        """Return a version of this owner's rows, once it is there, and how long that was waited for."""
        run, shard = self._owned(job, generation)
        asked = time.monotonic()
        try:
            async with asyncio.timeout(wait_seconds), run.changed:
                await run.changed.wait_for(lambda: run.is_over or shard.version >= version)
        except TimeoutError:
            why = f"it has version {shard.version} of the parameters and not {version}"
            raise self._gone(why) from None
        waited_seconds = time.monotonic() - asked
        state = await asyncio.to_thread(shard.state, version)
        if state is None or run.is_over:
            raise self._gone(f"version {version} of the parameters is over")
        return Letter("version", waited_seconds, state[:1] if of_values else state)

    async def _pushed(
        self, part: FloatArray, job: str, generation: int, version: int, sender: int, pace: tuple[float, ...]
    ) -> Letter:
        run, shard = self._owned(job, generation)
        async with run.changed:  # one update at a time
            is_taken = await asyncio.to_thread(shard.push, sender, version, part, pace)
            run.changed.notify_all()
        newest = shard.version
        has_tasks = run.cut.senders >= len(run.cut.owners)  # in most steps
        if has_tasks and newest > version and newest not in run.pulls and not run.is_over:
            self._fetch_ahead(run, newest, AHEAD_SECONDS)
        if not is_taken:
            raise self._gone(f"it has missed version {version} of the parameters")
        return Letter("pushed")

    async def _forget(self, job: str, generation: int) -> None:
        """Let go what there is of a run up to this generation."""
        run = self._runs.get(job)
        if run is not None and run.cut.generation <= generation:
            del self._runs[job]
            _end(run)
            async with run.changed:
                run.changed.notify_all()

    def _keep_of(self, cut: ShardMap) -> Callable[[ShardState], KeptState]:
        return partial(self.kept.keep, budget_bytes=cut.budget_bytes)

    def _gone(self, why: str) -> PeerForgotError:
        """Return what to raise where this worker does not have what is asked for."""
        return PeerForgotError(self._peers.address, why)

    def _there(self, job: str, generation: int) -> _HeldRun:
        if (run := self._held(job, generation)) is None:
            raise self._gone("it has nothing of the run")
        return run

    def _owned(self, job: str, generation: int) -> tuple[_HeldRun, Shard]:
        if (shard := (run := self._there(job, generation)).shard) is None:
            raise self._gone("it has nothing of the run")
        return run, shard

    def _held(self, job: str, generation: int) -> _HeldRun | None:
        run = self._runs.get(job)
        if run is None or run.cut.generation != generation:
            return None
        run.used_seconds = time.monotonic()
        return run

    # What is asked of others.

    async def _run_of(self, cut: ShardMap) -> _HeldRun:
        """Return what this worker has of a run. One that owns no shard asks an owner how the run goes."""
        if (run := self._held(cut.job, cut.generation)) is not None:
            return run
        asked = Letter("descent", (cut.job, cut.generation))
        answer = await self._ask(cut, cut.owners[0], asked, "pull", 0.0)
        if (run := self._held(cut.job, cut.generation)) is None:
            if (older := self._runs.get(cut.job)) is not None:
                _end(older)
            run = self._runs[cut.job] = _HeldRun(cut, answer.said, None)
        return run

    def _fetch_ahead(self, run: _HeldRun, version: int, wait_seconds: float) -> asyncio.Task[_Pulled]:
        """Begin to fetch a version, and let go those before it."""
        for other in [each for each in run.pulls if each < version]:
            run.pulls.pop(other)
        task = asyncio.create_task(self._fetched(run.cut, version, wait_seconds))
        task.add_done_callback(_heard)
        run.pulls[version] = task
        return task

    async def _fetched(self, cut: ShardMap, version: int, wait_seconds: float) -> _Pulled:
        asked = time.monotonic()
        letter = Letter("values", (cut.job, cut.generation, version, wait_seconds))
        answers = await self._ask_owners(cut, [letter] * len(cut.owners), "pull", wait_seconds)
        values = np.concatenate([answer.arrays[0] for answer in answers])
        values.setflags(write=False)
        kept = await asyncio.to_thread(self._keep_of(cut), (values,))
        return _Pulled(kept, time.monotonic() - asked - max(answer.said for answer in answers))

    async def _ask_owners(
        self, cut: ShardMap, letters: Sequence[Letter], haste: Haste, wait_seconds: float
    ) -> list[Letter]:
        """Return the answers of all owners, in their order.

        Each worker begins with the one after it. So workers that send at the same time do not all send to
        the first one, while the links of the others have nothing to do.
        """
        turned = cut.turned(self._peers.address)
        answers = await _all(
            [self._ask(cut, cut.owners[at], letters[at], haste, wait_seconds) for at in turned]
        )
        return [answer for _, answer in sorted(zip(turned, answers, strict=True), key=itemgetter(0))]

    async def _ask(
        self, cut: ShardMap, owner: str, letter: Letter, haste: Haste, wait_seconds: float
    ) -> Letter:
        if owner == self._peers.address:
            found, _ = await self.answer(letter)
        else:
            limit_seconds = wait_seconds + ANSWER_SECONDS + cut.byte_count / LEAST_BYTES_PER_SECOND
            found = await self._peers.ask(owner, letter, haste, limit_seconds)
        if found.subject == "gone":
            raise PeerForgotError(owner, found.said)
        return found


def _end(run: _HeldRun) -> None:
    run.is_over = True
    for task in run.pulls.values():
        task.cancel()


def _is_whole(task: asyncio.Task[Any]) -> bool:
    """Return whether a task has given what it was to give."""
    return task.done() and not task.cancelled() and task.exception() is None


def _heard(task: asyncio.Task[Any]) -> None:
    """Look at what a task raised: nobody else may."""
    if not task.cancelled():
        task.exception()


async def _all(asked: Sequence[Coroutine[Any, Any, Found]]) -> list[Found]:
    """Return what all give, in their order. The first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


Heard = TypeVar("Heard")
Saying = ParamSpec("Saying")


def agent_here() -> PeerAgent:
    """Return the agent of the worker whose thread calls."""
    from relaqs.executors.dask.peer_agent import peer_agent_here

    return peer_agent_here()


def call_holder(
    ask: Callable[Concatenate[ShardHolder, Saying], Coroutine[Any, Any, Heard]],
    *arguments: Saying.args,
    **named: Saying.kwargs,
) -> Heard:
    """Return what the holder of the worker answers whose thread calls. Raises PeerLostError as it does."""
    agent = agent_here()
    return agent.call(ask, agent.call(agent.serving, ShardHolder), *arguments, **named)


def pull(cut: ShardMap, version: int) -> PulledParameters:
    """Return the parameters, once they are there. Raises PeerLostError, and then the task has no core.

    While they are on their way the core is left to other tasks.
    """
    if call_holder(ShardHolder.has, cut, version):
        return call_holder(ShardHolder.pull, cut, version)
    agent_here().leave_core()
    pulled = call_holder(ShardHolder.pull, cut, version)
    agent_here().take_core()
    return pulled


@dataclass(frozen=True, slots=True)
class LostShards:
    """What a task gives that could not go on.

    Attributes:
        address: of the owner at fault.
        why: for people.
        is_silent: whether it did not answer. False: it does not have what it was asked for.
    """

    address: str
    why: str
    is_silent: bool

    @classmethod
    def of(cls, error: PeerLostError) -> LostShards:
        return cls(error.address, error.why, not isinstance(error, PeerForgotError))


@dataclass(frozen=True, slots=True)
class AskWork:
    """Asks the holder of its worker something: `ShardHolder.open`, `fetch` or `drop`. It holds no core.

    Gives the answer, or `LostShards`.
    """

    ask: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]

    def run(self, owner: str) -> Metered:
        computed = time.thread_time()
        agent_here().leave_core()
        try:
            found = call_holder(self.ask, *self.arguments)
        except PeerLostError as error:
            found = LostShards.of(error)
        return Metered(found, time.thread_time() - computed)


@dataclass(frozen=True, slots=True)
class StepPart:
    """What one task of a step tells the driver. The gradient is at the owners.

    Attributes:
        totals: the other sums over its rows.
        penalty: what the loss has beside sums over rows, where the task was to say it.
        seconds: what it took.
    """

    totals: Sums
    penalty: float
    seconds: TaskSeconds


@dataclass(frozen=True, slots=True)
class IterateWork:
    """PULL, COMP and PUSH over some pieces. Gives a `StepPart` or `LostShards`. Only COMP holds a core.

    It may run twice, on any worker: what was sent already changes nothing.

    Attributes:
        cut: where the parameters are.
        version: of the parameters.
        sender: the position of these pieces among those of the step's tasks.
        pace: what the owners are told for the update.
        work: over the pieces, for no model yet.
    """

    cut: ShardMap
    version: int
    sender: int
    pace: tuple[float, ...]
    work: PassWork

    def run(self, owner: str) -> Metered:
        core_seconds = 0.0
        try:
            pulled = pull(self.cut, self.version)
            busy, computed, begun = busy_seconds(), time.thread_time(), time.monotonic()
            summed = self.work.with_common(pulled.descent.model(pulled.values)).run(owner)
            gradient, totals = split_sums(summed.sums, pulled.descent)
            penalty = pulled.descent.penalty(pulled.values) if self.sender == 0 else 0.0
            core_seconds = max(busy_seconds() - busy, time.thread_time() - computed)
            agent_here().leave_core()
            left = time.monotonic()
            call_holder(ShardHolder.push, self.cut, self.version, self.sender, gradient, self.pace)
        except PeerLostError as error:
            return Metered(LostShards.of(error), core_seconds)
        seconds = TaskSeconds(left - begun, pulled.seconds, time.monotonic() - left)
        return Metered(StepPart(totals, penalty, seconds), core_seconds)
