"""Jobs to be placed: four scenarios of arrivals, sizes and deadlines, made up from a seed or from a trace."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.errors import DataError

from relaqs_lab.simulation.placed.curves import LearningCurve, learning_curve
from relaqs_lab.simulation.placed.models import ALGORITHMS, Algorithm

LOG_SECONDS, LOG_SPREAD = 6.79, 2.16
"""Mean and deviation of the logarithm of a job's seconds on Microsoft's Philly cluster.

Source: the public trace (Jeon et al., USENIX ATC 2019), 82,247 jobs of September to December 2017.
"""
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 86_400.0
DEVICES_OF_PHILLY = {1: 0.933, 2: 0.022, 4: 0.023, 8: 0.020, 16: 0.002}  # of the same trace
DEVICES_DRAWN = (1, 2, 4, 8, 16, 32)
PAPER_SECONDS_SCALE = 0.3  # makes the mean 32 min, which MLFS's own figures need
PAPER_HOURS = 40.0  # in which all jobs come
TRACE_LOAD = 0.9  # of all devices, in scenario "trace" where nothing else is said
WEEK_SECONDS = 7 * 86_400.0
BURST_JOBS, BURST_SECONDS = 4.0, 600.0  # jobs that come together, and within how long
_ARRIVALS, _JOBS = 0, 1  # streams of one seed: what the jobs are does not depend on when they come


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJob:
    """One job of a workload.

    Attributes:
        devices: into how many parts on devices it is cut.
        by_server: whether a server adds gradients up, and not the parts among themselves.
        run_seconds: that it takes where nothing contends.
        deadline_seconds: when it should have ended, on the workload's clock.
        accuracy_required: of the best accuracy of the whole run, a share that the user drew.
        flow_bytes: that two parts exchange in an iteration.
    """

    name: str
    algorithm: Algorithm
    devices: int
    by_server: bool
    arrival_seconds: float
    run_seconds: float
    iterations: int
    urgency: float
    deadline_seconds: float
    accuracy_required: float
    flow_bytes: float
    curve: LearningCurve

    @property
    def iteration_seconds(self) -> float:
        """What an iteration takes where nothing contends."""
        return self.run_seconds / self.iterations

    @property
    def device_seconds(self) -> float:
        """What it uses of devices in all, counted by shares."""
        return self.run_seconds * self.devices * self.algorithm.device_share


@dataclass(frozen=True, slots=True, eq=False)
class PlacedWorkload:
    """Jobs in the order of their arrival.

    network_scale: of the nodes' network, relative to their usual one.
    """

    name: str
    jobs: tuple[PlacedJob, ...]
    network_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Which jobs come, when, and what they must reach.

    - "paper": as MLFS's text says. Jobs have 1 to 32 parts, deadlines max(1.1 t, U[½, 24] h) where t is the
      time that a job takes alone, and all come within 40 hours. Durations are 0.3 of those on Philly.
    - "tight": the same with deadlines U[1.1, 3]·t.
    - "network": as "paper", with a tenth of the network.
    - "trace": durations and numbers of devices as on Philly, coming so fast that devices are 0.9 in use.

    Args:
        jobs: how many.
        philly: the trace as a CSV file with columns timestamp, duration and num_gpus, in place of numbers
            fitted to it.
        devices: how many the cluster has; what has a load must know it.
        load: jobs come so fast that this share of the devices would be in use on average, if all iterations
            were made. None: as the scenario says.
        algorithms: of which jobs are, each as often.

    >>> workload = Scenario("paper", jobs=20).workload(seed=0)
    >>> len(workload.jobs), workload.jobs[0].arrival_seconds >= 0
    (20, True)
    """

    name: str = "paper"
    jobs: int = 620
    philly: Path | None = None
    devices: int = 80
    load: float | None = None
    algorithms: tuple[Algorithm, ...] = ALGORITHMS

    def __post_init__(self) -> None:
        if self.name not in SCENARIOS:
            raise ValueError(f"the scenario is {self.name!r}; give one of {', '.join(SCENARIOS)}")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}; give 1 or more")
        if self.load is not None and not 0 < self.load < math.inf:
            raise ValueError(f"load is {self.load}; give a finite number above 0, such as 0.9")
        if not self.algorithms:
            raise ValueError(
                "algorithms is empty; give one or more of relaqs_lab.simulation.placed.models.ALGORITHMS"
            )

    def __str__(self) -> str:
        source = "durations made up" if self.philly is None else f"durations of {self.philly.name}"
        coming = "" if self.load is None else f", load {self.load:g}"
        chosen = ", ".join(each.name for each in self.algorithms)
        of = "" if self.algorithms == ALGORITHMS else f", {chosen} alone"
        return f"scenario {self.name}{coming}, {source}{of}"

    def workload(self, seed: int) -> PlacedWorkload:
        """Return the jobs of one seed. Raises DataError where the trace cannot be read."""
        random = np.random.default_rng([seed, _JOBS])
        is_trace = self.name == "trace"
        seconds = self._seconds(random) * (1.0 if is_trace else PAPER_SECONDS_SCALE)
        devices = self._devices(random)
        algorithms = random.integers(len(self.algorithms), size=self.jobs)
        shares = np.array([each.device_share for each in self.algorithms])[algorithms]
        load = TRACE_LOAD if is_trace and self.load is None else self.load
        span = PAPER_HOURS * 3600.0
        if load is not None:
            span = float((seconds * devices * shares).sum()) / (self.devices * load)
        arrivals = self._arrivals(span, np.random.default_rng([seed, _ARRIVALS]))
        jobs = tuple(
            self._job(number, self.algorithms[int(kind)], int(count), float(run), float(at), seed)
            for number, (kind, count, run, at) in enumerate(
                zip(algorithms, devices, seconds, arrivals, strict=True)
            )
        )
        return PlacedWorkload(f"{self}, seed {seed}", jobs, 0.1 if self.name == "network" else 1.0)

    def _seconds(self, random: np.random.Generator) -> FloatArray:
        if self.philly is None:
            drawn = np.exp(random.normal(LOG_SECONDS, LOG_SPREAD, self.jobs))
        else:
            drawn = random.choice(read_philly(self.philly).seconds, self.jobs)
        return np.clip(drawn, SHORTEST_SECONDS, LONGEST_SECONDS)

    def _devices(self, random: np.random.Generator) -> IntArray:
        if self.name != "trace":
            return random.choice(np.array(DEVICES_DRAWN), self.jobs)
        counts = np.array(list(DEVICES_OF_PHILLY))
        return random.choice(counts, self.jobs, p=np.array(list(DEVICES_OF_PHILLY.values())))

    def _arrivals(self, span: float, random: np.random.Generator) -> FloatArray:
        """Return when jobs come, from 0 on: those of a week of the trace, or bursts, within a span."""
        if self.philly is not None:
            times = read_philly(self.philly).arrival_seconds
            start = random.uniform(0.0, max(times[-1] - WEEK_SECONDS, 0.0))
            week = times[(times >= start) & (times < start + WEEK_SECONDS)]
            drawn = random.choice(week, self.jobs, replace=len(week) < self.jobs)
            drawn = (drawn - start) / WEEK_SECONDS * span
        else:
            bursts = random.uniform(0.0, span, max(math.ceil(self.jobs / BURST_JOBS), 1))
            drawn = random.choice(bursts, self.jobs) + random.exponential(BURST_SECONDS, self.jobs)
        return np.sort(drawn)

    def _job(
        self, number: int, algorithm: Algorithm, devices: int, seconds: float, arrival: float, seed: int
    ) -> PlacedJob:
        random = np.random.default_rng([seed, _JOBS, number])
        iterations = int(random.integers(100, 301))
        curve = learning_curve(algorithm, iterations, random)
        if self.name == "tight":
            within = float(random.uniform(1.1, 3.0)) * seconds
        else:
            within = max(1.1 * seconds, float(random.uniform(0.5, 24.0)) * 3600.0)
        return PlacedJob(
            name=f"job {number:06}, {algorithm.name} on {devices}",
            algorithm=algorithm,
            devices=devices,
            by_server=bool(random.random() < 0.5),
            arrival_seconds=arrival,
            run_seconds=seconds,
            iterations=iterations,
            urgency=float(random.integers(1, 11)),
            deadline_seconds=arrival + within,
            accuracy_required=float(random.uniform(0.9, 1.0)) * float(curve.accuracy[-1]),
            flow_bytes=float(random.uniform(50e6, 100e6)),
            curve=curve,
        )


SCENARIOS = ("paper", "tight", "network", "trace")


@dataclass(frozen=True, slots=True, eq=False)
class PhillyTrace:
    """Jobs of the trace: when each came, from 0 on and sorted, and how long jobs took, in any order."""

    arrival_seconds: FloatArray
    seconds: FloatArray


@lru_cache(maxsize=2)
def read_philly(path: Path) -> PhillyTrace:
    """Return the trace in a CSV file with columns timestamp and duration (s).

    Raises:
        DataError: the file is missing, or is not as described.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [
                (
                    datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp(),
                    float(row["duration"]),
                )
                for row in csv.DictReader(file)
            ]
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give the trace of Philly as CSV"
        ) from error
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{path} is not the trace of Philly ({error!r}); it needs the columns timestamp, as in "
            "2017-10-09 07:01:55, and duration, in seconds"
        ) from error
    if not rows:
        raise DataError(f"{path} has no jobs; give the trace of Philly as CSV")
    times, seconds = np.array(rows, dtype=np.float64).T
    return PhillyTrace(np.sort(times) - times.min(), seconds[seconds > 0])
