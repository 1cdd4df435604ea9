"""A fake clock and simulated jobs, all from one integer seed: the smallest world that carries out plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from relaqs.sharing.view import History, Jobs, JobView, Kind, Observation, Plan, Policy, View

EPOCH_SECONDS = 0.5
WATCHED_CELLS = 10


@dataclass
class FakeJob:
    """A job with a known quality after every step. Steps cost the same, but for a little noise."""

    id: str
    kind: Kind
    arrival_seconds: float
    qualities: np.ndarray  # after each step
    progress: np.ndarray
    step_core_seconds: np.ndarray
    weight: float = 1.0
    cores_most: float = np.inf
    history: History = field(default_factory=History)
    spent_core_seconds: float = 0.0
    attained_core_seconds: float = 0.0
    end_seconds: float = np.inf

    @property
    def steps(self) -> int:
        return len(self.qualities)

    @property
    def is_over(self) -> bool:
        return self.history.count == self.steps

    def error(self) -> float:
        """The true normalised error: 1 before and after the first step, 0 at the end."""
        if self.history.count == 0:
            return 1.0
        first, last = self.qualities[0], self.qualities[-1]
        return float((self.qualities[self.history.count - 1] - last) / (first - last))

    def view(self) -> JobView:
        step_work = 1.0 / self.steps if self.kind is Kind.QUERY else 1.0
        return JobView(
            id=self.id,
            kind=self.kind,
            arrival_seconds=self.arrival_seconds,
            weight=self.weight,
            history=self.history,
            cores_most=self.cores_most,
            work_total=1.0 if self.kind is Kind.QUERY else float(self.steps),
            step_work=step_work,
            step_core_seconds=self.step_core_seconds[: max(self.history.count, 1)].mean(),
            spent_core_seconds=self.spent_core_seconds,
            attained_core_seconds=self.attained_core_seconds,
        )

    def work_for(self, core_seconds: float) -> None:
        self.attained_core_seconds += core_seconds
        self.spent_core_seconds += core_seconds
        while not self.is_over and self.spent_core_seconds >= self.step_core_seconds[self.history.count]:
            step = self.history.count
            self.spent_core_seconds -= self.step_core_seconds[step]
            work = (step + 1) / self.steps if self.kind is Kind.QUERY else step + 1.0
            observation = Observation(
                work, self.qualities[step], self.step_core_seconds[step], self.progress[step]
            )
            self.history = self.history.followed_by(observation)


def query(
    id: str, arrival_seconds: float, seed: int, *, steps: int = 50, core_seconds: float = 20.0, **more: float
) -> FakeJob:
    """An aggregation query in equal mini-batches: error √(1/f − 1), result deltas as sampling makes them."""
    random = np.random.default_rng(seed)
    i = np.arange(1, steps + 1.0)
    error = random.uniform(0.02, 0.5) * np.sqrt(steps / i - 1.0) * np.exp(random.normal(0, 0.03, steps))
    moves = np.abs(random.normal(size=(WATCHED_CELLS, steps))) / np.sqrt(i * np.maximum(i - 1, 1))
    moves[:, 0] = 0.0
    largest = np.maximum.accumulate(moves, axis=1)
    progress = np.where(i == 1, 1.0, (moves / np.where(largest > 0, largest, 1.0)).mean(axis=0))
    costs = core_seconds / steps * random.uniform(0.8, 1.2, steps)
    return FakeJob(id, Kind.QUERY, arrival_seconds, error, progress, costs, **more)


def training(
    id: str, arrival_seconds: float, seed: int, *, steps: int = 60, core_seconds: float = 20.0, **more: float
) -> FakeJob:
    """A training run: a loss of one of the two kinds of convergence, in a unit of its own."""
    random = np.random.default_rng(seed)
    k = np.arange(steps, dtype=float)
    shape = 1 / (1 + random.uniform(0.1, 1) * k) if seed % 2 else random.uniform(0.8, 0.95) ** k
    loss = random.uniform(0.1, 1000) * (shape + random.uniform(0, 1))
    change = np.abs(np.diff(loss, prepend=np.nan))
    progress = np.where(k == 0, 1.0, change / np.nanmax(change))
    costs = core_seconds / steps * random.uniform(0.8, 1.2, steps)
    return FakeJob(id, Kind.TRAINING, arrival_seconds, loss, progress, costs, **more)


@dataclass
class Epoch:
    """What happened in one epoch: the plan, the jobs it was for, and their true errors at its end."""

    time_seconds: float
    plan: Plan
    view: View
    errors: dict[str, float]


def run(
    policy: Policy,
    jobs: list[FakeJob],
    capacity_cores: float,
    *,
    until_seconds: float = 10_000.0,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Return every epoch until all jobs are over, on a clock that only this loop moves."""
    epochs = []
    now = 0.0
    while now < until_seconds and not all(job.is_over for job in jobs):
        live = [job for job in jobs if job.arrival_seconds <= now and not job.is_over]
        view = View(now, capacity_cores, Jobs.of([job.view() for job in live]), EPOCH_SECONDS)
        plan = policy.plan(view)
        for job in live:
            job.work_for(plan.cores_by_job()[job.id] * EPOCH_SECONDS)
            if job.is_over:
                job.end_seconds = now + EPOCH_SECONDS
        now += EPOCH_SECONDS
        epoch = Epoch(now, plan, view, {job.id: job.error() for job in live})
        after_epoch(epoch)
        epochs.append(epoch)
    return epochs


def error_integral_seconds(epochs: list[Epoch]) -> float:
    """The sum of all jobs' normalised errors over time, from arrival to end: to be kept small."""
    return sum(sum(epoch.errors.values()) for epoch in epochs) * EPOCH_SECONDS
