"""Fifty elastic jobs as in the evaluation of ONES: its Table 2, made from a seed and without any folder.

The table lists models and sizes of data: 24 jobs on parts of ImageNet, 15 on CIFAR10 and 11 of language.
It does not say how fast a step is, how many passes a job takes, or when jobs come. These are assumptions:

- ResNet18, ResNet50 and BERT are as AdaptDL measured them on up to 16 machines of 4 GPUs: seven numbers of
  speed each, fitted to its step times, and the noise scale at eight moments of a run. The noise is that of
  a batch four times the first one.
- Every other model is like the measured one of its data. It computes longer by its arithmetic operations,
  and adds gradients up longer by its parameters.
- AdaptDL's GPUs are T4s on Ethernet. The paper's are V100s on InfiniBand, and are taken to need a quarter
  of each time. Its sentences are taken to have a quarter of the tokens.
- A job makes about 40 passes, one of language 13. The last ten are above the target accuracy, as in the
  paper. Users ask for 1, 2, 4 or 8 slots, and for the first batch on each.
- Two numbers were chosen so that Tiresias's mean times of execution and queuing are the paper's: how many
  passes there are in all, and how often jobs come. `python -m benchmarks.gang_study calibrate` shows it.

Source: Bian et al., Online Evolutionary Batch Size Orchestration, SC 2021, Table 2. Step times and noise:
Qiao et al., Pollux, OSDI 2021, branch osdi21-artifact of AdaptDL, Apache-2.0.

What the paper of ONES reports of the 50 jobs of its Table 2, to be put beside what is simulated.

Source: Bian et al., Online Evolutionary Batch Size Orchestration, SC 2021, figure 15 and its text. It
gives execution and queuing as changes relative to other policies; the seconds follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.simulation.machines.workloads import (
    Convergence,
    ElasticJob,
    FittedRates,
    GangWorkload,
    Trainable,
)

TABLE2_NAME = "the 50 jobs of Table 2"
ARRIVAL_SECONDS = 2.9  # between two jobs on average
PASSES_SCALE = 0.625
SECONDS_OF_A_V100 = 0.25  # relative to a T4
PASSES_SPREAD = 0.5  # one deviation of the logarithm of a job's passes
SLOTS_ASKED = (1, 2, 4, 8)
_ARRIVALS, _JOBS = 0, 1  # streams of one seed: what the jobs are does not depend on when they come


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model as AdaptDL measured it. noise_rows: the noise scale, at evenly spaced moments of a run."""

    speed: tuple[float, ...]
    noise_rows: tuple[float, ...]
    quality: tuple[float, ...]
    start_rows: float
    slot_rows_least: float
    slot_rows_most: float
    rows_most: float


MEASURED = {
    "ResNet18": MeasuredModel(
        speed=(0.0182, 0.000683, 0.0344, 0.00431, 0.1259, 0.00252, 2.18),
        noise_rows=(139, 2700, 5310, 8700, 13300, 31600, 45600, 58400),
        quality=(0.0, 0.85, 0.91, 0.94, 0.962, 0.985, 0.997, 1.0),
        start_rows=128,
        slot_rows_least=32,
        slot_rows_most=1024,
        rows_most=4096,
    ),
    "ResNet50": MeasuredModel(
        speed=(0.0637, 0.00449, 0.0949, 0.0121, 0.3249, 0.0059, 2.62),
        noise_rows=(687, 7600, 8500, 30000, 26300, 36000, 55000, 54300),
        quality=(0.0, 0.6, 0.642, 0.9, 0.902, 0.93, 0.995, 1.0),
        start_rows=200,
        slot_rows_least=20,
        slot_rows_most=200,
        rows_most=12800,
    ),
    "BERT": MeasuredModel(
        speed=(0.1741, 0.05868, 0.256, 0.0435, 1.365, 0.0103, 1.96),
        noise_rows=(1440, 1440, 1440, 1440, 7640, 7640, 7640, 7640),
        quality=(0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.0),
        start_rows=12,
        slot_rows_least=4,
        slot_rows_most=12,
        rows_most=384,
    ),
}


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A row of Table 2. compute, sync: how much longer than the measured model."""

    data: str
    model: str
    like: str
    rows: tuple[int, ...]
    passes: float
    compute: float = 1.0
    sync: float = 1.0

    def trainable(self, rows: int, passes: float, *, is_linear: bool) -> Trainable:
        """Return the model with so many rows of data, ready to be trained for so many passes."""
        like, stages = MEASURED[self.like], max(round(passes), 2)
        times = [self.compute] * 2 + [self.sync] * 4
        speed = np.array([*np.array(like.speed[:6]) * times * SECONDS_OF_A_V100, like.speed[6]])
        convergence = Convergence.of_noise(
            like.start_rows,
            float(rows),
            _at_stages(like.noise_rows, stages).tolist(),
            quality=_at_stages(like.quality, stages),
            is_linear=is_linear,
        )
        return Trainable(
            name=f"{self.model} on {self.data}",
            pass_rows=float(rows),
            rates=FittedRates(speed),
            convergence=convergence,
            slot_rows_least=like.slot_rows_least,
            slot_rows_most=like.slot_rows_most,
            rows_most=like.rows_most,
        )


_IMAGENET, _CIFAR = tuple(range(10_000, 20_001, 2000)), tuple(range(20_000, 40_001, 5000))
_TOKENS = 0.25  # of a sentence, relative to the questions and texts that AdaptDL's BERT read
TABLE = (
    ListedModel("ImageNet", "AlexNet", "ResNet50", _IMAGENET, 40, compute=0.17, sync=2.4),
    ListedModel("ImageNet", "ResNet50", "ResNet50", _IMAGENET, 40),
    ListedModel("ImageNet", "VGG16", "ResNet50", _IMAGENET, 40, compute=3.8, sync=5.4),
    ListedModel("ImageNet", "InceptionV3", "ResNet50", _IMAGENET, 40, compute=1.4, sync=0.93),
    ListedModel("CIFAR10", "ResNet18", "ResNet18", _CIFAR, 40),
    ListedModel("CIFAR10", "VGG16", "ResNet18", _CIFAR, 40, compute=0.56, sync=1.3),
    ListedModel("CIFAR10", "GoogleNet", "ResNet18", _CIFAR, 40, compute=2.7, sync=0.55),
    ListedModel("COLA", "BERT", "BERT", (5000, 6000, 7000, 8000), 13, compute=_TOKENS),
    ListedModel("MRPC", "BERT", "BERT", (3600,), 13, compute=_TOKENS),
    ListedModel("SST-2", "BERT", "BERT", tuple(range(10_000, 20_001, 2000)), 13, compute=_TOKENS),
)


def table2_workload(
    seed: int,
    *,
    arrival_seconds: float = ARRIVAL_SECONDS,
    passes_scale: float = PASSES_SCALE,
    is_linear: bool = False,
    is_elastic: bool = True,
    spike_jobs: int = 0,
) -> GangWorkload:
    """Return the 50 jobs of Table 2, shuffled by a seed, with Poisson arrivals.

    Args:
        seed: of the order, the passes, what users ask for, and the arrivals.
        arrival_seconds: between two jobs on average. The first comes at 0.
        passes_scale: how many times the usual passes each job makes.
        is_linear: a row brings a job equally far in a batch of any size, as the paper assumes.
        is_elastic: a batch may grow to what the model takes. If not, to what the user asked for.
        spike_jobs: so many in the middle come at once, when the first of them does. The others come as ever.

    >>> jobs = table2_workload(seed=0).jobs
    >>> len(jobs), sum("BERT" in job.name for job in jobs), jobs[0].arrival_seconds
    (50, 11, 0.0)
    """
    random = np.random.default_rng([seed, _JOBS])
    listed = [(row, rows) for row in TABLE for rows in row.rows]
    spaces = np.random.default_rng([seed, _ARRIVALS]).exponential(arrival_seconds, len(listed) - 1)
    times = np.concatenate([[0.0], np.cumsum(spaces)])
    first = (len(times) - spike_jobs) // 2
    times[first : first + spike_jobs] = times[first]
    jobs = []
    for number, seconds in zip(random.permutation(len(listed)), times, strict=True):
        row, rows = listed[number]
        passes = row.passes * passes_scale * float(np.exp(random.normal(0.0, PASSES_SPREAD)))
        trains = row.trainable(rows, passes, is_linear=is_linear)
        slots = int(random.choice(SLOTS_ASKED))
        asked = min(trains.start_rows * slots, trains.rows_most)
        trains = trains if is_elastic else replace(trains, rows_most=asked)
        jobs.append(ElasticJob(f"{trains.name}, {rows:,} rows", trains, float(seconds), slots, asked))
    return GangWorkload(f"{TABLE2_NAME}, seed {seed}", tuple(jobs))


def _at_stages(values: tuple[float, ...], stages: int) -> FloatArray:
    """Return values at evenly spaced moments of a run, interpolated at as many moments as it has stages."""
    known = np.linspace(0.0, 1.0, len(values))
    return np.asarray(np.interp(np.linspace(0.0, 1.0, stages), known, values))


SOON_SECONDS = 200.0  # the paper tells the share of jobs that are done within them


@dataclass(frozen=True, slots=True)
class PublishedTimes:
    """Mean seconds of a job. mean_seconds: from arrival to end, execution and queuing together."""

    mean_seconds: float
    executed_seconds: float
    queuing_seconds: float


PUBLISHED = {
    "tiresias": PublishedTimes(450, 343, 107),
    "optimus": PublishedTimes(420, 220, 200),
    "one_at_a_time": PublishedTimes(335, 209, 127),  # in place of a policy by reinforcement learning
    "ones": PublishedTimes(245, 158, 87),
}
ONES_LESS_THAN = {"tiresias": 0.456, "optimus": 0.417}  # by which share its mean is smaller
ONES_SOON_SHARE = 0.86
ONES_LONGEST_SECONDS = 2000.0  # at most
