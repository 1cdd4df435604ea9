"""Eighty jobs as in the evaluation of Harmony, made from a seed.

The paper lists four algorithms on two data sets each, with the bytes of rows and of parameters, and ten
settings of each. The times of iterations and their split are in a picture only. These are assumptions:

- On 16 machines a job computes for 20 to 80 % of an iteration, uniformly.
- An iteration on 16 machines takes 60 s in the median, lognormal with 0.9. Parameters of 24 GB take 175 s a
  direction on the paper's network, so iterations of minutes are to be expected.
- A job makes 120 iterations in the median, lognormal with 0.6, so that isolated jobs take more than 1,000
  minutes in all: 80 arrivals 8 minutes apart take 640, and a gain in the last end was still measured there.
- PULL is 40 to 60 % of COMM, uniformly.
- The loss falls exponentially, and a job ends where 1/7 to 1/400 of it is left (2 to 6 in the exponent,
  uniformly). It is counted from 1 at the start to 0 at that end.
- Half of a machine's 32 GB is for rows and parameters (`PAPER_FLEET`), as objects of Java need about twice
  the bytes. With all of it hardly any rows would lie on disk. A disk reads 125 MB/s, which is what the
  volumes of that machine do at most.

Source: Lee et al., Harmony, ICDCS 2021, Table I and section V; the calibration is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.groups import Fleet

Arrivals: TypeAlias = Literal["at once", "poisson", "bursts"]
Mix: TypeAlias = Literal["all", "computing", "communicating"]

PAPER_FLEET = Fleet(machines=100, memory_bytes=16e9, disk_bytes_per_second=125e6)
ITERATION_SECONDS = 60.0  # the median on 16 machines
ITERATION_SPREAD = 0.9  # one deviation of the logarithm
ITERATIONS = 120.0  # the median
ITERATIONS_SPREAD = 0.6
COMP_SHARES = (0.2, 0.8)
PULL_SHARES = (0.4, 0.6)
LOSS_DECAYS = (2.0, 6.0)
BURST_JOBS = 5.0  # on average
_DOP = 16
_JOBS, _ARRIVALS, _LOSSES = 0, 1, 2  # streams of one seed: what jobs are does not depend on when they come
_GB = 1e9

TABLE = (
    ("NMF on Netflix64x", 45.6, 1.0),
    ("NMF on Netflix128x", 91.2, 5.0),
    ("LDA on PubMed", 4.3, 2.1),
    ("LDA on NYTimes", 0.6, 1.1),
    ("MLR on 78 GB", 78.4, 12.0),
    ("MLR on 155 GB", 155.0, 24.0),
    ("Lasso on 78 GB", 78.4, 12.0),
    ("Lasso on 155 GB", 155.0, 24.0),
)
"""Name, GB of rows, GB of parameters."""


@dataclass(frozen=True, slots=True)
class GroupedJob:
    """What a job does, iteration after iteration.

    Attributes:
        iterations: until it ends.
        comp_machine_seconds, comm_seconds: W and N of an iteration (`relaqs_lab.groups.Subtasks`).
        pull_share: of COMM, what PULL takes.
        input_bytes, model_bytes: of all machines together.
        loss_decay: d, where the loss falls as exp(−d · the share of the iterations); 0 is a straight line.
    """

    name: str
    arrival_seconds: float
    iterations: int
    comp_machine_seconds: float
    comm_seconds: float
    pull_share: float = 0.5
    input_bytes: float = 0.0
    model_bytes: float = 0.0
    loss_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.iterations < 1 or not (self.comp_machine_seconds > 0 and self.comm_seconds >= 0):
            raise ValueError(
                f"{self.name} has {self.iterations} iterations of {self.comp_machine_seconds:g} s of COMP "
                f"and {self.comm_seconds:g} s of COMM; give 1 or more, above 0, and 0 or more"
            )

    def loss(self, iterations: int) -> float:
        """Return the loss after so many iterations, from 1 to 0.

        >>> job = GroupedJob("a", 0.0, 10, 60.0, 4.0, loss_decay=4.0)
        >>> [round(job.loss(done), 2) for done in (0, 2, 5, 10)]
        [1.0, 0.44, 0.12, 0.0]
        """
        share, decay = iterations / self.iterations, self.loss_decay
        if decay == 0:
            return 1.0 - share
        least = math.exp(-decay)
        return (math.exp(-decay * share) - least) / (1.0 - least)

    @property
    def comp_share(self) -> float:
        """The part of an iteration on 16 machines in which it computes."""
        comp = self.comp_machine_seconds / _DOP
        return comp / (comp + self.comm_seconds * (1 - 1 / _DOP))


def harmony_jobs(
    seed: int,
    *,
    arrivals: Arrivals = "at once",
    arrival_seconds: float = 480.0,
    mix: Mix = "all",
    iteration_spread: float = ITERATION_SPREAD,
    iterations_spread: float = ITERATIONS_SPREAD,
) -> tuple[GroupedJob, ...]:
    """Return the jobs in the order of their arrival, shuffled by a seed.

    Args:
        seed: of the order, the times and the arrivals.
        arrivals: all at 0; one by one (Poisson); or in bursts of a geometric size, as many on average.
        arrival_seconds: the mean time between two jobs, where they do not come at once.
        mix: all 80, or the 60 that compute or communicate most for what they do of the other.
        iteration_spread, iterations_spread: one deviation of the logarithm of an iteration's time, and of the
            number of iterations.

    >>> jobs = harmony_jobs(seed=0)
    >>> len(jobs), jobs[0].arrival_seconds, len(harmony_jobs(seed=0, mix="computing"))
    (80, 0.0, 60)
    """
    random = np.random.default_rng([seed, _JOBS])
    spreads = iteration_spread, iterations_spread
    jobs = [
        _job(name, rows, model, number, spreads, random)
        for name, rows, model in TABLE
        for number in range(10)
    ]
    decays = np.random.default_rng([seed, _LOSSES]).uniform(*LOSS_DECAYS, len(jobs)).tolist()
    jobs = [replace(job, loss_decay=decay) for job, decay in zip(jobs, decays, strict=True)]
    if mix != "all":
        jobs.sort(key=lambda job: job.comp_share, reverse=mix == "computing")
        jobs = jobs[: len(jobs) * 3 // 4]
    shuffled = [jobs[i] for i in random.permutation(len(jobs)).tolist()]
    times = _times(len(jobs), arrivals, arrival_seconds, np.random.default_rng([seed, _ARRIVALS]))
    return tuple(
        replace(job, arrival_seconds=float(seconds)) for job, seconds in zip(shuffled, times, strict=True)
    )


def _job(
    name: str,
    rows: float,
    model: float,
    number: int,
    spreads: tuple[float, float],
    random: np.random.Generator,
) -> GroupedJob:
    seconds = ITERATION_SECONDS * math.exp(random.normal(0.0, spreads[0]))
    share = float(random.uniform(*COMP_SHARES))
    return GroupedJob(
        name=f"{name}, setting {number}",
        arrival_seconds=0.0,
        iterations=max(round(ITERATIONS * math.exp(random.normal(0.0, spreads[1]))), 1),
        comp_machine_seconds=seconds * share * _DOP,
        comm_seconds=seconds * (1 - share) / (1 - 1 / _DOP),
        pull_share=float(random.uniform(*PULL_SHARES)),
        input_bytes=rows * _GB,
        model_bytes=model * _GB,
    )


def _times(count: int, arrivals: Arrivals, mean: float, random: np.random.Generator) -> FloatArray:
    if arrivals == "at once":
        return np.zeros(count)
    sizes = np.ones(count, dtype=np.int64)
    if arrivals == "bursts":
        sizes = random.geometric(1 / BURST_JOBS, count)
    starts = np.concatenate([[0.0], np.cumsum(random.exponential(mean * float(sizes.mean()), count - 1))])
    return np.asarray(np.repeat(starts, sizes)[:count])
