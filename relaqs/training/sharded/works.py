"""The tasks of a run whose parameters lie in shards: open them, make a step, fetch them, drop them."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from relaqs.executors.peers import PeerForgotError, PeerLostError
from relaqs.jobs.executor import busy_seconds
from relaqs.jobs.job import Metered
from relaqs.training.passes import PartitionSource, PassWork
from relaqs.training.protocol import TrainingJob
from relaqs.training.rows import Sums
from relaqs.training.sharded.holder import PulledParameters, ShardHolder
from relaqs.training.sharded.protocol import ShardedDescent, ShardState, split_sums
from relaqs.training.sharded.shards import ShardMap
from relaqs.training.sharded.subtask_seconds import TaskSeconds

if TYPE_CHECKING:
    from relaqs.executors.dask.peer_agent import PeerAgent

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
    return agent.call(ask, agent.service(ShardHolder), *arguments, **named)


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
class OpenWork:
    """Gives all owners their shards. Returns None, or `LostShards`. state: None for the first one."""

    cut: ShardMap
    descent: ShardedDescent
    version: int
    state: ShardState | None

    def run(self, owner: str) -> LostShards | None:
        try:
            call_holder(ShardHolder.open, self.cut, self.descent, self.version, self.state)
        except PeerLostError as error:
            return LostShards.of(error)
        return None


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
        job: computes the sums.
        cut: where the parameters are.
        version: of the parameters.
        sender: the position of these pieces among those of the step's tasks.
        pace: what the owners are told for the update.
        source, pieces_cut, first, end: the pieces, as `PassWork` has them.
    """

    job: TrainingJob
    cut: ShardMap
    version: int
    sender: int
    pace: tuple[float, ...]
    source: PartitionSource
    pieces_cut: int
    first: int
    end: int

    def run(self, owner: str) -> Metered:
        core_seconds = 0.0
        try:
            pulled = pull(self.cut, self.version)
            busy, computed, begun = busy_seconds(), time.thread_time(), time.monotonic()
            model = pulled.descent.model(pulled.values)
            work = PassWork(self.job, model, self.source, self.pieces_cut, self.first, self.end)
            summed = work.run(owner)
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


@dataclass(frozen=True, slots=True)
class FetchWork:
    """Gives a version's state of all rows, or `LostShards`. It holds no core."""

    cut: ShardMap
    version: int

    def run(self, owner: str) -> Metered:
        computed = time.thread_time()
        agent_here().leave_core()
        found: ShardState | LostShards
        try:
            found = call_holder(ShardHolder.fetch, self.cut, self.version)
        except PeerLostError as error:
            found = LostShards.of(error)
        return Metered(found, time.thread_time() - computed)


@dataclass(frozen=True, slots=True)
class DropWork:
    """Lets all owners forget a run. former: those of generations before."""

    cut: ShardMap
    former: tuple[str, ...]

    def run(self, owner: str) -> None:
        call_holder(ShardHolder.drop, self.cut, self.former)
