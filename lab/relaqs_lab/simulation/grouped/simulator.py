"""Machines that jobs share in groups, from event to event: jobs come, are moved, take turns, and end."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from relaqs_lab.groups.plan import GroupPlan, TurnTaking
from relaqs_lab.groups.policy import GroupPolicy
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, Group, GroupView, Lost
from relaqs_lab.simulation.grouped.outcome import GroupedOutcome
from relaqs_lab.simulation.grouped.queries import QueryLoad, QueryPool
from relaqs_lab.simulation.grouped.running import RunningGroup
from relaqs_lab.simulation.grouped.states import GroupedJobState, Means, Place, noisy
from relaqs_lab.simulation.grouped.turns import IterationSeconds
from relaqs_lab.simulation.grouped.workload import GroupedJob


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
