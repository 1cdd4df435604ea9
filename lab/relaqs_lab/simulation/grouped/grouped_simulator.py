"""Machines that jobs share in groups, from event to event: jobs come, are moved, take turns, and end."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.groups import (
    Fleet,
    Group,
    GroupPlan,
    GroupPolicy,
    GroupView,
    Lost,
    Phase,
    Subtasks,
    SubtaskTimes,
    TurnTaking,
)
from relaqs_lab.simulation.grouped.grouped_workload import GroupedJob
from relaqs_lab.simulation.grouped.queries import QueriesBeside, QueryLoad, QueryOutcome, QueryPool
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Sharing, sharing

_LEAST_ITERATIONS = 3  # of each job between two changes of a group, for them to be compared with the model


@dataclass(slots=True, eq=False)
class RunningGroup:
    """Some machines and the jobs that share them.

    Attributes:
        number: of the group, in the order in which groups were made.
        machines: how many it has, once it is open.
        jobs: who is meant to be here.
        present: who takes its machines: runs, is loaded or is saved.
        is_open: it has its machines. Before that it waits for them.
        is_closing: it gives its machines back when the last one has left.
        queries: that want its cores, too.
        version: counts changes of what happens next.
        errors: of the model, as in `GroupedOutcome.model_errors`.
    """

    number: int
    machines: int
    turns: TurnTaking
    jobs: list[int] = field(default_factory=list)
    present: set[int] = field(default_factory=set)
    is_open: bool = False
    is_closing: bool = False
    queries: QueriesBeside | None = None
    version: int = 0
    errors: list[float] = field(default_factory=list)
    _lanes: Sharing | None = None
    _needs: dict[int, IterationSeconds] = field(default_factory=dict)
    _ends: dict[int, list[float]] = field(default_factory=dict)

    @property
    def lanes(self) -> Sharing:
        if self._lanes is None:
            self._lanes = sharing(self.turns, self.queries)
        return self._lanes

    def begin(
        self, job: int, needs: IterationSeconds, planned: IterationSeconds, now: float, after_seconds: float
    ) -> None:
        """Let a job begin an iteration that needs so much, where it is planned to need `planned`."""
        self.lanes.begin(job, needs, now, after_seconds)
        if self._needs.get(job) != planned:
            self._compare()
            self._needs[job] = planned
        self.version += 1

    def leave(self, job: int, now: float) -> None:
        self.lanes.leave(job, now)
        self._compare()
        self._needs.pop(job, None)
        self.version += 1

    def note_end(self, job: int, now: float) -> None:
        """Note that a job has ended an iteration."""
        self._ends.setdefault(job, []).append(now)

    def predicted_seconds(self) -> float:
        """Return T_g of who runs here by equation 1, with the disk as a third lane."""
        needs = list(self._needs.values())
        lanes = [
            sum(each.comp for each in needs),
            sum(each.pull + each.push for each in needs),
            sum(each.reload for each in needs),
        ]
        return max(*lanes, max(each.alone for each in needs))

    def _compare(self) -> None:
        """Compare the longest mean iteration since the last change with the model's, and begin anew."""
        ends = self._ends
        self._ends = {}
        if not self._needs or set(ends) != set(self._needs):
            return
        if any(len(times) <= _LEAST_ITERATIONS for times in ends.values()):
            return
        measured = max((times[-1] - times[0]) / (len(times) - 1) for times in ends.values())
        self.errors.append(abs(measured - self.predicted_seconds()) / measured)


class Place(IntEnum):
    """Where a job is."""

    TO_COME = 0
    OUTSIDE = 1  # no machine has anything of it but its rows and its last checkpoint
    LOADED = 2  # is being loaded
    RUNNING = 3
    SAVED = 4  # is being saved
    ENDED = 5


@dataclass(slots=True, eq=False)
class GroupedJobState:
    """One job.

    Attributes:
        job: what it does.
        told: by how much a policy is misled about its COMP and COMM, 1: not at all.
        target: the group that it is meant to be in.
        host: the group whose machines it takes now.
        spilled: its α.
        is_known: its times have been profiled.
        waited_seconds: until `since_seconds`, in which no machine had anything of it.
        loss_seconds: the integral of its loss over time, until `noted_seconds`.
        version: counts changes of place, so that what was to happen before means nothing.
    """

    job: GroupedJob
    told: tuple[float, float]
    is_known: bool
    place: Place = Place.TO_COME
    target: RunningGroup | None = None
    host: RunningGroup | None = None
    spilled: float = 0.0
    iterations_done: int = 0
    version: int = 0
    since_seconds: float = 0.0
    moves: int = 0
    paused_seconds: float = 0.0
    running_seconds: float = 0.0
    waited_seconds: float = 0.0
    loss_seconds: float = 0.0
    noted_seconds: float = 0.0
    end_seconds: float = np.nan
    was_saved: bool = False

    def enter(self, place: Place, now: float) -> None:
        """Be somewhere from now on."""
        passed = now - self.since_seconds
        if self.place is Place.OUTSIDE:
            self.waited_seconds += passed
        elif self.place is Place.RUNNING:
            self.running_seconds += passed
        elif self.place is Place.SAVED or (self.place is Place.LOADED and self.was_saved):
            self.paused_seconds += passed
        self.place, self.since_seconds = place, now
        self.version += 1

    def note_loss(self, now: float) -> None:
        """Add the loss since the last iteration ended, or since it came, to the integral."""
        self.loss_seconds += (now - self.noted_seconds) * self.job.loss(self.iterations_done)
        self.noted_seconds = now

    def needs(
        self, machines: int, disk_bytes_per_second: float, decode_seconds_per_byte: float
    ) -> IterationSeconds:
        """Return what an iteration takes on so many machines."""
        job = self.job
        comm = job.comm_seconds * (1.0 - 1.0 / machines)
        read = self.spilled * job.input_bytes / machines
        return IterationSeconds(
            pull=job.pull_share * comm,
            comp=job.comp_machine_seconds / machines + read * decode_seconds_per_byte,
            push=(1.0 - job.pull_share) * comm,
            reload=read / disk_bytes_per_second,
        )

    def seen(self, now: float, decode_seconds_per_byte: float) -> SubtaskTimes:
        """Return what a policy sees of it."""
        done = self.iterations_done
        outside = now - self.since_seconds if self.place is Place.OUTSIDE else 0.0
        phase = Phase.PROFILED if self.is_known else Phase.NEW
        if self.target is not None:
            phase = Phase.RUNNING
        elif done:
            phase = Phase.PAUSED
        comp, comm = self.told if self.is_known else (np.nan, np.nan)
        return SubtaskTimes(
            self.job.name,
            comp_machine_seconds=self.job.comp_machine_seconds * comp,
            comm_seconds=self.job.comm_seconds * comm,
            input_bytes=self.job.input_bytes,
            model_bytes=self.job.model_bytes,
            decode_seconds_per_byte=decode_seconds_per_byte,
            arrival_seconds=self.job.arrival_seconds,
            phase=phase,
            iterations_left=float(self.job.iterations - done),
            loss=self.job.loss(done),
            loss_fall=self.job.loss(done) - self.job.loss(done + 1),
            waited_seconds=self.waited_seconds + outside,
        )


def noisy(needs: IterationSeconds, factors: Sequence[float]) -> IterationSeconds:
    """Return an iteration whose pull, COMP and push take so many times as long."""
    pull, comp, push = factors
    return IterationSeconds(needs.pull * pull, needs.comp * comp, needs.push * push, needs.reload)


@dataclass(slots=True)
class Means:
    """Numbers that are averaged over time."""

    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, seconds: float, **values: float) -> None:
        self.seconds += seconds
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + seconds * value

    def of(self, name: str) -> float:
        return self.sums.get(name, 0.0) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupedOutcome:
    """What each of J jobs did, columns of shape (J,) in the order of arrival. Times in seconds, NaN: never.

    Attributes:
        end_seconds: on the clock of the arrivals.
        moves: how often a job was started on machines after its first time.
        paused_seconds: how long it was being saved and loaded.
        running_seconds: how long it made iterations.
        waited_seconds: how long no machine had anything of it.
        loss_seconds: the integral of its loss over time, from its arrival to its end, where the loss is 1 at
            the start and 0 at the end.
        cpu_share, net_share: of all machines' time, from the first arrival to the last end, in which they
            computed and communicated.
        jobs_mean, groups_mean: how many jobs were in groups, and how many groups there were, on average.
        spilled_mean: the mean α of jobs in groups.
        model_errors: |measured − predicted| / measured of the iteration of each group, over the times between
            changes in which each of its jobs made 3 iterations or more, shape (k,).
        decision_seconds: what each plan took by the stopwatch, shape (plans,).
        queries: beside the jobs. None: there were none.
    """

    names: tuple[str, ...]
    arrival_seconds: FloatArray
    end_seconds: FloatArray
    moves: FloatArray
    paused_seconds: FloatArray
    running_seconds: FloatArray
    waited_seconds: FloatArray
    loss_seconds: FloatArray
    cpu_share: float
    net_share: float
    jobs_mean: float
    groups_mean: float
    spilled_mean: float
    model_errors: FloatArray
    decision_seconds: FloatArray
    queries: QueryOutcome | None = None

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to end."""
        return self.end_seconds - self.arrival_seconds

    @property
    def makespan_seconds(self) -> float:
        """The time from the first arrival to the last end; NaN if a job did not end."""
        return float(np.max(self.end_seconds) - self.arrival_seconds[0])

    @property
    def moving_share(self) -> float:
        """The part of the jobs' time on machines in which they were saved and loaded again."""
        total = float(self.paused_seconds.sum() + self.running_seconds.sum())
        return float(self.paused_seconds.sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class GroupedRules:
    """What running in groups costs, and what policies know.

    Attributes:
        profile_iterations: after how many a job's times are known: 3 that are skipped, and 3 that are used.
            It counts for policies that say `profiles = True`; others are told from the start.
        noise: one deviation of the logarithm of each subtask's time.
        misled: policies are told times that are wrong by up to this share, uniformly.
        moving: moves cost what saving and loading take. If not, they cost nothing.
        decode_seconds_per_byte: of rows that come from the disk, on one machine.
        until_seconds: when the simulation stops, whatever is left.
        queries: that come beside the jobs. Policies know nothing of them. None: there are none.
    """

    profile_iterations: int = 6
    noise: float = 0.0
    misled: float = 0.0
    moving: bool = True
    decode_seconds_per_byte: float = 1e-9
    until_seconds: float = math.inf
    queries: QueryLoad | None = None

    def __post_init__(self) -> None:
        for name in ("profile_iterations", "noise", "decode_seconds_per_byte"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")
        if not 0 <= self.misled < 1:
            raise ValueError(f"misled is {self.misled}; give a share from 0 to below 1, such as 0.05")


def simulate_groups(
    jobs: Sequence[GroupedJob],
    policy: GroupPolicy,
    fleet: Fleet,
    rules: GroupedRules | None = None,
    *,
    seed: int = 0,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> GroupedOutcome:
    """Return what a group policy makes of some jobs on a fleet of machines.

    Each PULL, COMP and PUSH is an event of its own (`Lanes`, `SharedAtOnce`), and so is each save and load. A
    job that moves goes on to the end of its iteration, is saved at the speed of its machines' disks, and is
    loaded with its parameters and with the rows that stay in memory. The others go on meanwhile. A group of
    another number of machines is a new group. It opens when there are so many free machines.

    Queries have the cores of free machines, and those of groups in turns with COMP (`QueryPool`).

    Args:
        jobs: what they do, and when they come.
        policy: asked when jobs come, are profiled and end; and every `asks_every_seconds`, where it says so.
        fleet: the machines.
        rules: what is charged and known.
        seed: of the noise, of what policies are misled by, and of the moments at which shared jobs begin.
        stopwatch: the only clock of the real world. It times decisions, and changes nothing else.

    Raises:
        ValueError: there are no jobs, or jobs wait and nothing will ever happen, or there are queries beside
            jobs that share all at once.
    """
    if not jobs:
        raise ValueError("there are no jobs to simulate; give at least one")
    return _GroupedSimulation(jobs, policy, fleet, rules or GroupedRules(), seed, stopwatch).run()


class _GroupedSimulation:
    def __init__(
        self,
        jobs: Sequence[GroupedJob],
        policy: GroupPolicy,
        fleet: Fleet,
        rules: GroupedRules,
        seed: int,
        stopwatch: Callable[[], float],
    ) -> None:
        self._random = np.random.default_rng(seed)
        told = 1 + rules.misled * self._random.uniform(-1, 1, (len(jobs), 2))
        profiles = bool(getattr(policy, "profiles", False)) and rules.profile_iterations > 0
        self._jobs = [
            GroupedJobState(job, (float(comp), float(comm)), is_known=not profiles)
            for job, (comp, comm) in zip(jobs, told, strict=True)
        ]
        self._place = {state.job.name: i for i, state in enumerate(self._jobs)}
        self._policy, self._fleet, self._rules, self._stopwatch = policy, fleet, rules, stopwatch
        self._asks_every_seconds = float(getattr(policy, "asks_every_seconds", math.inf))
        self._turns: TurnTaking = "pull_first"
        self._now = min(job.arrival_seconds for job in jobs)
        self._free = fleet.machines
        self._groups: list[RunningGroup] = []
        self._closed: list[RunningGroup] = []
        self._queries: QueryPool | None = None
        if self._rules.queries is not None:
            self._queries = QueryPool(self._rules.queries, fleet.machines, seed, self._now)
        self._idle = RunningGroup(-1, 0, "pull_first")  # the free machines, on which there are only queries
        self._lost: list[tuple[RunningGroup, GroupedJobState]] = []
        self._numbers, self._order = count(), count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._is_planned = True
        self._memory: object | None = None
        self._means = Means()
        self._decision_seconds: list[float] = []

    def run(self) -> GroupedOutcome:
        for number, state in enumerate(self._jobs):
            self._at(state.job.arrival_seconds, lambda i=number: self._arrive(i))  # type: ignore[misc]
        if self._queries is not None:
            self._idle.queries = self._queries.beside(lambda: self._free)
            self._at(self._queries.next_arrival, self._query_arrives)
        if math.isfinite(self._asks_every_seconds):
            self._at(self._now + self._asks_every_seconds, self._ask_again)
        while any(state.place is not Place.ENDED for state in self._jobs):
            following = self._events[0][0] if self._events else math.inf
            if not self._is_planned and following > self._now:
                self._plan()
                continue
            if math.isinf(following):
                raise ValueError(
                    f"at {self._now:g} s jobs wait, and nothing will happen any more: policy "
                    f"{self._policy.name!r} starts none of them; give more machines or more memory"
                )
            if following > self._rules.until_seconds:
                break
            self._pass(following)
            heapq.heappop(self._events)[2]()
        return self._outcome()

    def _at(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (seconds, next(self._order), happens))

    def _pass(self, until: float) -> None:
        grouped = [state for state in self._jobs if state.target is not None]
        spilled = sum(state.spilled for state in grouped) / len(grouped) if grouped else 0.0
        groups = sum(not group.is_closing for group in self._groups)
        if self._queries is not None:
            self._queries.pass_equal(self._now, until - self._now, len(grouped))
        self._means.add(until - self._now, jobs=len(grouped), groups=groups, spilled=spilled)
        self._now = until

    # What happens to jobs

    def _arrive(self, number: int) -> None:
        self._jobs[number].enter(Place.OUTSIDE, self._now)
        self._jobs[number].noted_seconds = self._now
        self._is_planned = False

    def _ask_again(self) -> None:
        """Ask the policy, and again after a while, as long as anything else will happen."""
        self._is_planned = False
        if self._events:
            self._at(self._now + self._asks_every_seconds, self._ask_again)

    def _query_arrives(self) -> None:
        """Let a query come, and the next one after it as long as anything happens to the jobs."""
        assert self._queries is not None
        self._queries.arrive()
        idle = (Place.OUTSIDE, Place.ENDED)
        if any(state.target is not None or state.place not in idle for state in self._jobs):
            self._at(self._queries.next_arrival, self._query_arrives)
        for group in self._groups:
            if group.is_open:
                self._offer(group)
        self._offer(self._idle)

    def _offer(self, group: RunningGroup) -> None:
        """Let queries have what is idle of a group."""
        if self._queries is not None:
            group.lanes.look(self._now)
            group.version += 1
            self._watch(group)

    def _load(self, number: int) -> None:
        """Bring a job's parameters and rows onto the machines of its group."""
        state = self._jobs[number]
        group = state.target
        assert group is not None
        assert group.is_open, group.number
        state.host = group
        group.present.add(number)
        state.moves += state.iterations_done > 0
        state.enter(Place.LOADED, self._now)
        loaded = (1 - state.spilled) * state.job.input_bytes + state.was_saved * state.job.model_bytes
        version = state.version
        self._at(self._now + self._io_seconds(loaded, group), lambda: self._loaded(number, version))

    def _io_seconds(self, size: float, group: RunningGroup) -> float:
        speed = group.machines * self._fleet.disk_bytes_per_second
        return size / speed if self._rules.moving else 0.0

    def _loaded(self, number: int, version: int) -> None:
        state = self._jobs[number]
        if state.version == version:
            state.enter(Place.RUNNING, self._now)
            self._iterate(number, is_first=True)

    def _iterate(self, number: int, *, is_first: bool = False) -> None:
        state = self._jobs[number]
        group = state.host
        assert group is not None
        planned = state.needs(
            group.machines, self._fleet.disk_bytes_per_second, self._rules.decode_seconds_per_byte
        )
        needs = self._noisy(planned)
        is_random = is_first and group.turns == "shared"
        after = float(self._random.uniform(0, planned.alone)) if is_random else 0.0
        group.begin(number, needs, planned, self._now, after)
        self._watch(group)

    def _noisy(self, needs: IterationSeconds) -> IterationSeconds:
        spread = self._rules.noise
        if not spread:
            return needs
        # numpy's exp has another last digit where a processor has other vector instructions. Ties fall by it.
        drawn = self._random.normal(-spread * spread / 2, spread, 3)
        return noisy(needs, [math.exp(each) for each in drawn])

    def _watch(self, group: RunningGroup) -> None:
        seconds, version = group.lanes.next_seconds(), group.version
        if not math.isinf(seconds):
            self._at(seconds, lambda: self._step(group, version))

    def _step(self, group: RunningGroup, version: int) -> None:
        if group.version != version:
            return
        ended = group.lanes.step()
        group.version += 1
        if ended is None:
            self._watch(group)
        else:
            self._iterated(ended, group)

    def _iterated(self, number: int, group: RunningGroup) -> None:
        state = self._jobs[number]
        state.note_loss(self._now)
        state.iterations_done += 1
        group.note_end(number, self._now)
        if not state.is_known and state.iterations_done >= self._rules.profile_iterations:
            state.is_known, self._is_planned = True, False
        if state.iterations_done == state.job.iterations:
            group.leave(number, self._now)
            self._end(number)
        elif state.target is group:
            self._iterate(number)
            return
        else:
            group.leave(number, self._now)
            state.enter(Place.SAVED, self._now)
            version = state.version
            saving = self._io_seconds(state.job.model_bytes, group)
            self._at(self._now + saving, lambda: self._saved(number, version))
        self._watch(group)

    def _saved(self, number: int, version: int) -> None:
        state = self._jobs[number]
        assert state.version == version, (state.version, version)
        state.was_saved = True
        self._depart(number)
        state.enter(Place.OUTSIDE, self._now)
        if state.target is not None and state.target.is_open:
            self._load(number)

    def _end(self, number: int) -> None:
        state = self._jobs[number]
        state.end_seconds = self._now
        if self._queries is not None:
            self._queries.left(number)
        state.enter(Place.ENDED, self._now)
        self._is_planned = False
        if state.target is not None:
            state.target.jobs.remove(number)
            self._lost.append((state.target, state))
            if not state.target.jobs:
                self._give_up(state.target)
            state.target = None
        self._depart(number)

    def _depart(self, number: int) -> None:
        state = self._jobs[number]
        group, state.host = state.host, None
        assert group is not None
        group.present.remove(number)
        self._close_if_left(group)

    # What happens to groups

    def _plan(self) -> None:
        self._is_planned = True
        numbers = [i for i, each in enumerate(self._jobs) if each.place not in (Place.TO_COME, Place.ENDED)]
        if not numbers:
            return
        decode = self._rules.decode_seconds_per_byte
        subtasks = Subtasks.of([self._jobs[i].seen(self._now, decode) for i in numbers])
        open_groups = [group for group in self._groups if not group.is_closing]
        groups = tuple(Group(self._names(group.jobs), group.machines) for group in open_groups)
        lost = tuple(
            Lost(open_groups.index(group), state.job.comp_machine_seconds, state.job.comm_seconds)
            for group, state in self._lost
            if group in open_groups
        )
        view = GroupView(self._now, self._fleet, subtasks, groups, lost, self._memory)
        started = self._stopwatch()
        plan = self._policy.plan(view)
        self._decision_seconds.append(self._stopwatch() - started)
        self._lost, self._memory = [], plan.memory
        self._carry_out(plan, open_groups)

    def _names(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._jobs[i].job.name for i in numbers)

    def _carry_out(self, plan: GroupPlan, present: list[RunningGroup]) -> None:
        self._turns = plan.turns
        wanted = [[self._place[name] for name in group.jobs] for group in plan.groups]
        kept = self._kept(plan, wanted, present)
        given_up = [group for group in present if group not in kept.values()]
        for group in given_up:
            group.is_closing = True
        for state in self._jobs:
            state.target = None
        for position, numbers in enumerate(wanted):
            group = kept.get(position) or self._new_group(plan.groups[position].machines)
            group.jobs = numbers
            for number in numbers:
                self._jobs[number].target = group
                self._jobs[number].spilled = plan.spilled.get(self._jobs[number].job.name, 0.0)
        for number, state in enumerate(self._jobs):
            if state.place is Place.LOADED and state.host is not state.target:
                self._depart(number)
                state.enter(Place.OUTSIDE, self._now)
        for group in given_up:
            self._close_if_left(group)
        self._open()
        for number, state in enumerate(self._jobs):
            if state.place is Place.OUTSIDE and state.target is not None and state.target.is_open:
                self._load(number)

    def _kept(
        self, plan: GroupPlan, wanted: list[list[int]], present: list[RunningGroup]
    ) -> dict[int, RunningGroup]:
        """Return which planned group goes on as which present one: as large, with most jobs in common."""
        common = [
            (-len(set(numbers) & set(group.jobs)), position, group.number, group)
            for position, numbers in enumerate(wanted)
            for group in present
            if plan.groups[position].machines == group.machines and group.turns == plan.turns
        ]
        kept: dict[int, RunningGroup] = {}
        for shared, position, _, group in sorted(common, key=lambda each: each[:3]):
            if shared < 0 and position not in kept and group not in kept.values():
                kept[position] = group
        return kept

    def _new_group(self, machines: int) -> RunningGroup:
        group = RunningGroup(next(self._numbers), machines, self._turns)
        if self._queries is not None:
            if self._turns == "shared":
                raise ValueError(
                    f"policy {self._policy.name!r} lets jobs share all at once, where queries have no turns; "
                    "leave the queries out, or let jobs take turns"
                )
            group.queries = self._queries.beside(lambda: machines if group in self._groups else 0)
        self._groups.append(group)
        return group

    def _give_up(self, group: RunningGroup) -> None:
        group.is_closing = True
        self._close_if_left(group)

    def _close_if_left(self, group: RunningGroup) -> None:
        if not group.is_closing or group.present or group not in self._groups:
            return
        self._groups.remove(group)
        if group.is_open:
            self._closed.append(group)
            self._free += group.machines
            self._open()
            self._offer(self._idle)

    def _open(self) -> None:
        """Give free machines to the groups that wait for them, and load their jobs."""
        for group in [each for each in self._groups if not each.is_open and not each.is_closing]:
            if group.machines <= self._free:
                self._free -= group.machines
                group.is_open = True
                self._offer(group)
                for number in group.jobs:
                    if self._jobs[number].place is Place.OUTSIDE:
                        self._load(number)

    def _outcome(self) -> GroupedOutcome:
        arrival = np.array([state.job.arrival_seconds for state in self._jobs])
        ends = np.array([state.end_seconds for state in self._jobs])
        span = (float(np.nanmax(ends)) if np.isfinite(ends).any() else self._now) - float(arrival.min())
        groups = [*self._closed, *(each for each in self._groups if each.is_open)]
        whole = self._fleet.machines * span if span > 0 else math.nan
        return GroupedOutcome(
            names=tuple(state.job.name for state in self._jobs),
            arrival_seconds=arrival,
            end_seconds=ends,
            moves=np.array([float(state.moves) for state in self._jobs]),
            paused_seconds=np.array([state.paused_seconds for state in self._jobs]),
            running_seconds=np.array([state.running_seconds for state in self._jobs]),
            waited_seconds=np.array([state.waited_seconds for state in self._jobs]),
            loss_seconds=np.array([state.loss_seconds for state in self._jobs]),
            cpu_share=sum(each.machines * each.lanes.comp_seconds for each in groups) / whole,
            net_share=sum(each.machines * each.lanes.comm_seconds for each in groups) / whole,
            jobs_mean=self._means.of("jobs"),
            groups_mean=self._means.of("groups"),
            spilled_mean=self._means.of("spilled"),
            model_errors=np.array([error for group in groups for error in group.errors]),
            decision_seconds=np.array(self._decision_seconds),
            queries=None if self._queries is None else self._queries.outcome(),
        )
