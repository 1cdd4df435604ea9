"""A study of slot policies: cases of policy, workload and seed, each simulated to its record.

`KnownPasses` is told what no live run knows, and is then off by as much as is asked for.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.policies.registry import make_slot_policy, policy_in_words
from relaqs.sharing.gangs import Gangs, Nodes, SlotPolicy
from relaqs.slot_policies.ones import Draws
from relaqs_lab.records.simulated_runs import GangRun, GangTimes, SlotSeries
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.machine_simulator import GangOutcome, Timing, simulate_gangs
from relaqs_lab.simulation.machines.table2 import (
    ARRIVAL_SECONDS,
    PASSES_SCALE,
    TABLE2_NAME,
    table2_workload,
)
from relaqs_lab.simulation.machines.workloads import GangWorkload, read_workload


@dataclass(frozen=True, slots=True)
class KnownPasses:
    """The passes that jobs still need, times a factor of each job: exp(error · z), with z normal.

    A job's factor is the same at every plan, and follows from its id and the seed. So what a study finds is
    what errors of this size cost, whatever the method that makes them.

    Args:
        error: one deviation of the factor's logarithm. 0: all is known.
        seed: of the factors.
    """

    error: float = 0.0
    seed: int = 0
    needs_rows_left: ClassVar[bool] = True  # the simulator tells them

    def __post_init__(self) -> None:
        if not 0 <= self.error < math.inf:
            raise ValueError(f"error is {self.error}; give a finite number, 0 or more")

    def __call__(self, gangs: Gangs, finished: FloatArray) -> FloatArray:
        normal = np.array([_normal(self.seed, name) for name in gangs.ids])
        return np.asarray(gangs.rows_left / gangs.pass_rows * np.exp(self.error * normal))


def _normal(seed: int, name: str) -> float:
    """Return a number of a normal distribution that follows from a name, by Box and Muller's formula."""
    above_zero, angle = 1.0 - Draws(seed, zlib.crc32(name.encode())).uniform(0, 2)
    return math.sqrt(-2.0 * math.log(above_zero)) * math.cos(2.0 * math.pi * angle)


SERIES_SPANS = 150


@dataclass(frozen=True, slots=True)
class Table2:
    """The 50 jobs of Table 2 of ONES's paper. Fields as in `table2_workload`.

    >>> str(Table2(arrival_seconds=30.0))
    'the 50 jobs of Table 2, one every 30 s, 0.625 × the passes'
    """

    arrival_seconds: float = ARRIVAL_SECONDS
    passes_scale: float = PASSES_SCALE
    is_linear: bool = False
    is_elastic: bool = True
    spike_jobs: int = 0

    def __str__(self) -> str:
        linear = ", every row counts alike" if self.is_linear else ""
        linear += "" if self.is_elastic else ", batches at most as asked for"
        linear += f", {self.spike_jobs} of them at once" if self.spike_jobs else ""
        every, passes = f"one every {self.arrival_seconds:g} s", f"{self.passes_scale:g} × the passes"
        return f"{TABLE2_NAME}, {every}, {passes}{linear}"

    def workload(self, seed: int) -> GangWorkload:
        return table2_workload(
            seed,
            arrival_seconds=self.arrival_seconds,
            passes_scale=self.passes_scale,
            is_linear=self.is_linear,
            is_elastic=self.is_elastic,
            spike_jobs=self.spike_jobs,
        )


@dataclass(frozen=True, slots=True)
class AdaptDl:
    """The workloads of AdaptDL's artifact. Seed 0 is its workload 1, and so on.

    folder: `simulator` of the artifact, with `traces` and `workloads` in it.
    """

    folder: Path

    def __str__(self) -> str:
        return f"AdaptDL's workloads in {self.folder}"

    def workload(self, seed: int) -> GangWorkload:
        return read_workload(self.folder, f"workloads/workload-{seed + 1}.csv")

    def check(self, seeds: int) -> None:
        """Raise DataError where the folder has fewer workloads than seeds are asked for."""
        there = len(list((self.folder / "workloads").glob("workload-*.csv")))
        if not there:
            raise DataError(
                f"{self.folder} has no files workloads/workload-1.csv and so on; give the folder `simulator` "
                "of AdaptDL's artifact (branch osdi21-artifact), or --gangs table2, which needs no folder"
            )
        if seeds > there:
            raise DataError(
                f"{self.folder} has {there} workloads, and each is one seed; ask for at most --seeds {there}"
            )


@dataclass(frozen=True, slots=True)
class GangCase:
    """One simulation.

    Attributes:
        parameters: those of the policy that differ from its defaults.
        faults: drawn from the case's own seed. None: nothing goes wrong.
    """

    policy: str
    seed: int
    mix: Table2 | AdaptDl
    nodes: int = 16
    node_slots: int = 4
    timing: Timing = field(default_factory=Timing)
    parameters: tuple[tuple[str, Any], ...] = ()
    faults: Faults | None = None

    def made(self) -> SlotPolicy:
        return make_slot_policy(self.policy, **dict(self.parameters))

    @property
    def label(self) -> str:
        """The policy's name, and what differs from its defaults."""
        return policy_in_words(self.policy, self.parameters)

    @property
    def workload(self) -> str:
        """The jobs, the rules of time, and what goes wrong, in words."""
        faults = "" if self.faults is None else f", {self.faults}"
        return f"{self.mix}, {words_of(self.timing)}{faults}"

    @property
    def key(self) -> tuple[object, ...]:
        """As in `GangRun.key`, known before it has run. The table of jobs always has 50; others are read."""
        jobs = len(self.mix.workload(self.seed))
        return ("simulated", self.workload, self.nodes, self.node_slots, jobs, self.label, self.seed)


def words_of(timing: Timing) -> str:
    """Return when plans are made and what a change costs, in words.

    >>> words_of(Timing(round_seconds=600.0, rescale_seconds=30.0))
    'a plan every 600 s, 30 s a rescale'
    """
    plans = [] if math.isinf(timing.round_seconds) else [f"every {timing.round_seconds:g} s"]
    plans += ["at events"] if timing.at_events else []
    words = f"a plan {' and '.join(plans)}, {timing.rescale_seconds:g} s a rescale"
    return words if math.isinf(timing.until_seconds) else f"{words}, until {timing.until_seconds:g} s"


def run_gang_case(case: GangCase, circumstances: dict[str, Any], stopwatch: Callable[[], float]) -> GangRun:
    """Return the record of one case. The same case gives the same record but for the time of decisions."""
    outcome = simulate_gangs(
        case.mix.workload(case.seed),
        case.made(),
        Nodes.equal(case.nodes, case.node_slots),
        case.timing,
        faults=None if case.faults is None else replace(case.faults, seed=case.seed),
        stopwatch=stopwatch,
    )
    return GangRun(
        source="simulated",
        policy=case.label,
        seed=case.seed,
        workload=case.workload,
        nodes=case.nodes,
        node_slots=case.node_slots,
        jobs=times_of(outcome),
        used_share=outcome.used_share,
        lost_share=float(outcome.rows_lost.sum() / max((outcome.rows_done + outcome.rows_lost).sum(), 1.0)),
        slots=slots_over_time(outcome),
        plans=len(outcome.decision_seconds),
        decision_ms_mean=float(outcome.decision_seconds.mean() * 1e3),
        decision_ms_most=float(outcome.decision_seconds.max() * 1e3),
        circumstances=circumstances,
    )


def times_of(outcome: GangOutcome) -> GangTimes:
    """Return what a record keeps of an outcome's jobs."""
    return GangTimes(
        names=outcome.names,
        arrival_seconds=outcome.arrival_seconds,
        completion_seconds=outcome.completion_seconds,
        executed_seconds=outcome.executed_seconds,
        paused_seconds=outcome.paused_seconds,
        rescales=outcome.rescales,
        slot_seconds=outcome.slot_seconds,
    )


def slots_over_time(outcome: GangOutcome) -> SlotSeries:
    """Return the mean slots that jobs held in SERIES_SPANS equal spans, from the first arrival to the end."""
    at, held = outcome.change_seconds, outcome.held_slots
    edges = np.linspace(outcome.arrival_seconds[0], at[-1], SERIES_SPANS + 1)
    taken = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(at))])  # slot-seconds until each change
    until = np.interp(edges, at, taken, left=0.0)
    return SlotSeries(edges[1:] - outcome.arrival_seconds[0], np.diff(until) / np.diff(edges))
