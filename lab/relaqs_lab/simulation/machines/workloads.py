"""Elastic jobs for the simulator: what each trains, when it comes, and what its user asked for.

How long a step takes on the slots that a job holds, and how far rows of training bring it by the batch
they came in, are true here. A policy only measures them.

**The traces of AdaptDL's simulator**, for whoever has their folder. Six models were measured on up to 16
machines with 4 GPUs each. For every model there are the seconds of a step by placement and local batch
(`placements.csv`, `scalability.csv`), and training runs with fixed batches (`validation-B.csv`). Eight
workloads say when 160 jobs arrive and what their users ask for.

Source: Qiao et al., Pollux, OSDI 2021, and the branch osdi21-artifact of AdaptDL, Apache-2.0.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.plugins import needed
from relaqs.sharing.gangs import compute_seconds, efficiency, step_seconds


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
    """The way of a job to its end, in stages. Progress is counted in rows that came in batches of start_rows.

    A row in a larger batch brings less: (φ + B₀)/(φ + B) of progress, with the noise scale φ = B₀ · variance
    / square of the gradient in this stage (Pollux, OSDI 2021). Between two batches that were measured, square
    and variance are interpolated.

    Attributes:
        start_rows: B₀.
        stage_ends: the progress at which each stage is over, shape (S,), rising. The job ends with the last.
        batch_rows: the batches that were measured, shape (B,), rising.
        gradient_square: of each batch in each stage, shape (B, S).
        gradient_variance: the same.
        quality: how good the model is at the end of each stage, shape (S,).
        is_linear: every row counts alike, whatever the batch.

    >>> constant = Convergence.of_noise(start_rows=32.0, stage_rows=1000.0, noise_rows=[96.0, 480.0])
    >>> constant.worth(batch_rows=64.0, stage=0), constant.worth(batch_rows=64.0, stage=1)
    (0.8, 0.9411764705882353)
    >>> constant.rows_by_stage(batch_rows=64.0).tolist()
    [1250.0, 1062.5]
    """

    start_rows: float
    stage_ends: FloatArray
    batch_rows: FloatArray
    gradient_square: FloatArray
    gradient_variance: FloatArray
    quality: FloatArray
    is_linear: bool = False

    @classmethod
    def of_noise(
        cls,
        start_rows: float,
        stage_rows: float,
        noise_rows: list[float],
        *,
        quality: FloatArray | None = None,
        is_linear: bool = False,
    ) -> Convergence:
        """Return a way of equally long stages with a noise scale each, the same for every batch."""
        stages = len(noise_rows)
        rising = np.arange(1.0, stages + 1.0) / float(stages) if quality is None else quality
        return cls(
            start_rows,
            np.array([stage_rows * stage for stage in range(1, stages + 1)]),
            np.array([start_rows]),
            np.ones((1, stages)),
            np.array([noise_rows]) / start_rows,
            rising,
            is_linear,
        )

    @property
    def stages(self) -> int:
        return len(self.stage_ends)

    def noise_rows(self, batch_rows: float, stage: int) -> float:
        """Return the noise scale φ in rows that a job with this batch measures in a stage."""
        square = np.interp(batch_rows, self.batch_rows, self.gradient_square[:, stage])
        variance = np.interp(batch_rows, self.batch_rows, self.gradient_variance[:, stage])
        return float(self.start_rows * variance / square)

    def worth(self, batch_rows: float, stage: int) -> float:
        """Return the progress of one row in a batch of so many."""
        if self.is_linear:
            return 1.0
        return float(efficiency(batch_rows, self.start_rows, self.noise_rows(batch_rows, stage)))

    def rows_by_stage(self, batch_rows: float) -> FloatArray:
        """Return the rows that each stage takes if every batch has so many, shape (S,)."""
        worth = np.array([self.worth(batch_rows, stage) for stage in range(self.stages)])
        return np.asarray(np.diff(self.stage_ends, prepend=0.0) / worth)


class RateModel(Protocol):
    """What a job achieves in a placement."""

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        """Return the seconds of a step, and how many of them one piece computes.

        Args:
            placement: the slots on each node that is used, in the nodes' order.
            slot_rows: the rows that each slot computes at once.
        """
        ...


def seconds_a_step(
    rates: RateModel, placement: tuple[int, ...], slot_rows: float, pieces: float
) -> tuple[float, float]:
    """Return the seconds of a step in several pieces, and those in which one piece is computed."""
    step, compute = rates.step_and_compute(placement, slot_rows)
    return step + (pieces - 1) * compute, compute


@dataclass(frozen=True, slots=True, eq=False)
class FittedRates:
    """Seven numbers: the model of `relaqs.sharing.gangs`.

    >>> import numpy as np
    >>> rates = FittedRates(np.array([0.1, 0.001, 0.05, 0.0, 0.21, 0.01, 1.0]))
    >>> rates.step_and_compute((2, 2), slot_rows=100)
    (0.43, 0.2)
    """

    speed: FloatArray

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        step = step_seconds(self.speed, sum(placement), len(placement), slot_rows)
        return float(step), float(compute_seconds(self.speed, slot_rows))


@dataclass(frozen=True, slots=True, eq=False)
class Trainable:
    """A model with its data: how fast a step is, how far rows bring it, and which batches it takes.

    Attributes:
        pass_rows: the rows of its data.
        slot_rows_least: a slot gets at least so many rows of each step.
        slot_rows_most: a slot computes at most so many rows at once.
        rows_most: the largest batch.
    """

    name: str
    pass_rows: float
    rates: RateModel
    convergence: Convergence
    slot_rows_least: float
    slot_rows_most: float
    rows_most: float

    @property
    def start_rows(self) -> float:
        return self.convergence.start_rows


@dataclass(frozen=True, slots=True, eq=False)
class ElasticJob:
    """One job of a workload.

    Attributes:
        slots_asked: how many slots its user asked for, for policies that give no other number.
        rows_asked: the batch that its user asked for.
    """

    name: str
    trains: Trainable
    arrival_seconds: float
    slots_asked: int = 1
    rows_asked: float = math.nan

    def __post_init__(self) -> None:
        if not self.slots_asked >= 1:
            raise ValueError(f"job {self.name!r} asks for {self.slots_asked} slots; it must be 1 or more")


@dataclass(frozen=True, slots=True, eq=False)
class GangWorkload:
    """Elastic jobs in the order of their arrival. name: in words that tell this workload from others."""

    name: str
    jobs: tuple[ElasticJob, ...]

    def __post_init__(self) -> None:
        if not self.jobs:
            raise ValueError(f"the workload {self.name!r} has no jobs")
        times = [job.arrival_seconds for job in self.jobs]
        if times != sorted(times):
            raise ValueError(f"the jobs of the workload {self.name!r} are not in the order of their arrival")
        if len({job.name for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"two jobs of the workload {self.name!r} have the same name")

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[ElasticJob]:
        return iter(self.jobs)


STAGES = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
SLOT_ROWS_MOST = {"yolov3": 8.0}  # where memory allows fewer rows than were measured
ONE_SLOT_ROWS = {"ncf": 32768.0}  # trains on one slot with this batch alone
NODES_MEASURED = 16


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRates:
    """Seconds of steps as they were measured, interpolated by rows, and where needed by slots and nodes.

    Attributes:
        by_placement: for each placement in its smallest rotation, rows of (slot_rows, step, sync).
        everything: rows of (nodes, slots, slot_rows, step, sync) over all placements.
    """

    by_placement: Mapping[tuple[int, ...], FloatArray]
    everything: FloatArray
    _known: dict[tuple[tuple[int, ...], float], tuple[float, float]]
    _between: list[Any]

    @classmethod
    def of(cls, placements: FloatArray, scalability: FloatArray) -> MeasuredRates:
        """Return the rates of two files' rows: (placement, slot_rows, step, sync), (nodes, slots, …)."""
        names = [tuple(map(int, str(int(name)))) for name in placements[:, 0]]
        by_placement = {
            name: placements[[each == name for each in names], 1:] for name in dict.fromkeys(names)
        }
        sizes = np.array([(len(name), sum(name)) for name in names], dtype=np.float64)
        keys, inverse = np.unique(np.column_stack([sizes, placements[:, 1]]), axis=0, return_inverse=True)
        count = np.bincount(inverse.ravel())
        means = [np.bincount(inverse.ravel(), weights=placements[:, column]) / count for column in (2, 3)]
        everything = np.concatenate([np.column_stack([keys, *means]), scalability])
        return cls(by_placement, everything, {}, [])

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        key = (placement, slot_rows)
        if key not in self._known:
            step, sync = self._measured(placement, slot_rows)
            self._known[key] = step, step - sync
        return self._known[key]

    def _measured(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        rotation = min(placement[i:] + placement[:i] for i in range(len(placement)))
        if rotation in self.by_placement:
            table = self.by_placement[rotation]
            return tuple(float(np.interp(slot_rows, table[:, 0], table[:, i])) for i in (1, 2))  # type: ignore[return-value]
        point = [min(len(placement), NODES_MEASURED), sum(placement), slot_rows]
        step, sync = self._interpolator()(np.array([point], dtype=np.float64))[0]
        if not np.isfinite(step):
            raise DataError(
                f"{sum(placement)} slots on {len(placement)} nodes with {slot_rows:g} rows each are beyond "
                "what AdaptDL measured; simulate at most 16 nodes of 4 slots"
            )
        return float(step), float(sync)

    def _interpolator(self) -> Any:
        if not self._between:
            try:
                from scipy.interpolate import LinearNDInterpolator
            except ModuleNotFoundError as error:
                raise needed("scipy", "a model whose speed was measured", "lab") from error

            self._between.append(LinearNDInterpolator(self.everything[:, :3], self.everything[:, 3:]))
        return self._between[0]


@cache
def read_trainable(folder: Path, name: str) -> Trainable:
    """Return one of the models, from the folder `traces` of the simulator."""
    home = folder / name
    placements = _table(home / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time"))
    scalability = _table(
        home / "scalability.csv", ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    )
    runs = {int(path.stem.split("-")[1]): path for path in home.glob("validation-*.csv")}
    if not runs:
        raise DataError(f"{home} has no files validation-B.csv; give the folder `simulator` of AdaptDL")
    columns = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
    tables = [_table(runs[rows], columns)[: STAGES[name]] for rows in sorted(runs)]
    start, most = float(min(runs)), float(max(runs))
    if name in ONE_SLOT_ROWS:
        most = ONE_SLOT_ROWS[name]
    convergence = Convergence(
        start_rows=start,
        stage_ends=np.min([table[:, 0] for table in tables], axis=0) * start,
        batch_rows=np.array(sorted(runs), dtype=np.float64),
        gradient_square=np.array([table[:, 3] for table in tables]),
        gradient_variance=np.array([table[:, 4] for table in tables]),
        quality=_rising(tables[0][:, 2]),
    )
    return Trainable(
        name=name,
        pass_rows=float(convergence.stage_ends[0]),
        rates=MeasuredRates.of(placements, scalability),
        convergence=convergence,
        slot_rows_least=ONE_SLOT_ROWS.get(name, float(placements[:, 1].min())),
        slot_rows_most=SLOT_ROWS_MOST.get(name, float(placements[:, 1].max())),
        rows_most=most,
    )


def read_workload(folder: Path, file: str) -> GangWorkload:
    """Return a workload, such as `workloads/workload-6.csv`, of the folder `simulator`.

    Raises:
        DataError: a file is missing, or is not as in AdaptDL's artifact.
    """
    path = folder / file
    jobs = []
    for row in _rows(path):
        try:
            name, application = row["name"], row["application"]
            seconds, slots, rows = float(row["time"]), int(row["num_replicas"]), float(row["batch_size"])
        except (KeyError, ValueError) as error:
            raise DataError(f"{path}: {row} is no job of an AdaptDL workload ({error})") from error
        if application not in STAGES:
            raise DataError(f"{path}: there are no traces of {application!r}; known are {', '.join(STAGES)}")
        jobs.append(ElasticJob(name, read_trainable(folder / "traces", application), seconds, slots, rows))
    return GangWorkload(f"AdaptDL {path.stem}", tuple(jobs))


def _rising(metric: FloatArray) -> FloatArray:
    """Return a metric as a quality from 0 to 1 that grows, whichever way the metric goes."""
    best = np.maximum.accumulate(metric) if metric[-1] >= metric[0] else -np.minimum.accumulate(metric)
    return np.asarray((best - best[0] + 1e-9) / (best[-1] - best[0] + 1e-9))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give the folder `simulator` of AdaptDL's artifact, "
            "with `traces` and `workloads` in it"
        ) from error


def _table(path: Path, columns: tuple[str, ...]) -> FloatArray:
    try:
        return np.array([[float(row[name]) for name in columns] for row in _rows(path)], dtype=np.float64)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} has not the columns {', '.join(columns)} as numbers ({error})") from error
