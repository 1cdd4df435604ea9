"""Jobs to be placed: four scenarios of arrivals, sizes and deadlines, made up from a seed or from a trace.

How models are cut into parts, and what the parts need: five algorithms, as in the evaluation of MLFS.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_engine.errors import DataError

STATE_BYTES = 16.0  # for each parameter: itself, its gradient, and two moments of Adam, of four bytes each
BATCH_MEMORY_BYTES = 2e9  # of a part's rows and activations
WORKER_CORES = 2.0
SERVER_CORES = 1.0
LAYERS_WIDEST = 4


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What is trained, and how it learns.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 4.1, names the five, and how each is cut. The numbers
    of parameters are the models' own. The shares of a device have a mean of one half, since GPUs are shared
    in the paper. How accuracy rises is fitted to the runs in AdaptDL's artifact (Qiao et al., OSDI 2021):
    1 − 1/(1 + x/τ) after a share x of the run with τ = 0.01 is CIFAR10 and with 0.04 ImageNet, 1 − exp(−x/τ)
    with 0.11 is DeepSpeech2.

    Attributes:
        parameters: of the whole model.
        device_share: of a device, that a part uses.
        cut: "chain": one part after another; "layers": several parts a layer as well; "copies": each part is
            the whole model.
        tau: τ, in shares of the run. is_exponential: which of the two forms.
        accuracy_end: which the accuracy approaches.
    """

    name: str
    parameters: float
    device_share: float
    cut: str
    tau: float
    is_exponential: bool
    accuracy_end: float


ALGORITHMS = (
    Algorithm("AlexNet", 61.1e6, 0.6, "chain", 0.04, False, 0.76),
    Algorithm("ResNet", 25.6e6, 0.7, "layers", 0.01, False, 0.95),
    Algorithm("MLP", 20e6, 0.4, "chain", 0.01, False, 0.97),
    Algorithm("LSTM", 66e6, 0.5, "layers", 0.11, True, 0.77),
    Algorithm("SVM", 0.1e6, 0.3, "copies", 0.05, True, 0.90),
)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The parts of one job, by index; the server, if there is one, is the last. Columns of shape (n,).

    Attributes:
        replica: −1 for the server.
        size_share: of the model's parameters; later layers have more of them.
        time_share: of an iteration, that a part computes alone.
        edges: parent and child, shape (E, 2), sorted.
        flows: sender and receiver, shape (F, 2), sorted. The server gets gradients and sends the model.
        flow_stage: the step of an iteration in which each is sent, shape (F,).
        stages: how many such steps there are.
        flow_scale: relative to the job's bytes of one flow, shape (F,).
    """

    replica: IntArray
    level: IntArray
    is_server: BoolArray
    size_share: FloatArray
    time_share: FloatArray
    edges: IntArray
    flows: IntArray
    flow_stage: IntArray
    flow_scale: FloatArray
    stages: int


@lru_cache(maxsize=128)
def shape_of(cut: str, count: int, by_server: bool) -> Shape:
    """Return how a model is cut into so many parts on devices, with or without a server.

    Without a server, copies add their gradients up on a ring: each sends 2(n − 1)/n of them to the next. One
    copy needs neither.

    >>> shape = shape_of("layers", 8, by_server=True)
    >>> shape.level.tolist(), len(shape.edges), len(shape.flows)
    ([0, 0, 1, 1, 2, 2, 3, 3, 4], 12, 16)
    """
    width = 1 if cut == "chain" else count if cut == "copies" else _layer_width(count)
    level = np.arange(count) // width
    levels = int(level[-1]) + 1
    copies = cut == "copies"
    replica = np.arange(count) if copies else np.zeros(count, dtype=np.int64)
    size = np.ones(count) if copies else (level + 1.0) / (level + 1.0).sum()
    edges = [(a, b) for a in range(count) for b in range(count) if level[b] == level[a] + 1]
    flows = [(a, b, int(level[a]), 1.0) for a, b in edges]
    if by_server:
        leaves = [a for a in range(count) if level[a] == levels - 1]
        flows += [(a, count, levels, 1.0) for a in leaves] + [(count, a, levels + 1, 1.0) for a in leaves]
    elif copies and count > 1:
        flows += [(a, (a + 1) % count, levels, 2 * (count - 1) / count) for a in range(count)]
    flows.sort()
    servers = int(by_server)
    return Shape(
        replica=np.append(replica, [-1] * servers).astype(np.int64),
        level=np.append(level, [levels] * servers).astype(np.int64),
        is_server=np.append(np.zeros(count), [1] * servers).astype(np.bool_),
        size_share=np.append(size, [0.0] * servers),
        time_share=np.append(np.full(count, 1.0 / levels), [0.0] * servers),
        edges=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2),
        flows=np.array([flow[:2] for flow in flows], dtype=np.int64).reshape(-1, 2),
        flow_stage=np.array([flow[2] for flow in flows], dtype=np.int64),
        flow_scale=np.array([flow[3] for flow in flows], dtype=np.float64),
        stages=levels + 2,
    )


def _layer_width(count: int) -> int:
    """Return the parts of a layer: the largest power of two whose square is at most their number, or 4."""
    width = 1
    while 4 * width * width <= count and width < LAYERS_WIDEST:
        width *= 2
    return width


FIRST_LOSS, LAST_LOSS = 2.3, 0.1
ACCURACY_NOISE, LOSS_NOISE = 0.004, 0.02  # one deviation; the second is of the loss's logarithm
TAU_SPREAD = 0.3  # one deviation of the logarithm of a job's τ


@dataclass(frozen=True, slots=True, eq=False)
class LearningCurve:
    """What a job has after 0, 1, … iterations, shape (I + 1,).

    Attributes:
        accuracy: of the best model so far; it never falls. 0 at first.
        loss: after each iteration. It may rise for a while.
    """

    accuracy: FloatArray
    loss: FloatArray


def learning_curve(algorithm: Algorithm, iterations: int, random: np.random.Generator) -> LearningCurve:
    """Return one run of an algorithm, drawn around its form (`Algorithm`)."""
    tau = algorithm.tau * float(np.exp(random.normal(0.0, TAU_SPREAD)))
    share = np.arange(iterations + 1) / iterations
    risen = 1.0 - np.exp(-share / tau) if algorithm.is_exponential else share / (share + tau)
    accuracy = algorithm.accuracy_end * risen + random.normal(0.0, ACCURACY_NOISE, iterations + 1)
    accuracy[0] = 0.0
    loss = LAST_LOSS + (FIRST_LOSS - LAST_LOSS) * (1.0 - risen)
    return LearningCurve(
        accuracy=np.maximum.accumulate(np.clip(accuracy, 0.0, 1.0)),
        loss=loss * np.exp(random.normal(0.0, LOSS_NOISE, iterations + 1)),
    )


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
                "algorithms is empty; give one or more of "
                "relaqs_lab.simulation.placed.placed_workload.ALGORITHMS"
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
