"""Who decides how many rows a step has. Every rule is pure: it sees the course so far, and nothing else.

So the same job over the same data gives the same bits, on whatever machine, also where the batch is elastic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.rates import gain
from relaqs.training.elastic.settings import most_rows

LEAST_SETTLING = 20  # steps, in which the noise is measured anew
SETTLING = 2  # times the steps of a warm-up that a number of rows stays in force at least
MOST_EXTRA = 0.15  # the share of more rows that a run may need because its steps are larger


class RunSoFar(Protocol):
    """What a rule sees of a run."""

    @property
    def step(self) -> int: ...

    @property
    def passes(self) -> int: ...

    @property
    def batch_rows(self) -> int: ...

    @property
    def changed_step(self) -> int: ...

    @property
    def changed_passes(self) -> int: ...

    @property
    def noise_rows(self) -> float: ...


class BatchRule(Protocol):
    """Says how many rows the next step has, and how many steps a run has at most."""

    def rows(self, seen: RunSoFar) -> int:
        """Return the rows of the next step."""
        ...

    def rate(self, step: int, otherwise: float) -> float:
        """Return a step's learning rate. otherwise: what the job's own rules say."""
        ...

    @property
    def steps_most(self) -> int | None:
        """After how many steps the run ends; None where the rule has no say in it."""
        ...


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """The same rows at every step."""

    batch_rows: int
    steps_most: None = None

    def rows(self, seen: RunSoFar) -> int:
        return self.batch_rows

    def rate(self, step: int, otherwise: float) -> float:
        return otherwise


@dataclass(frozen=True, slots=True)
class ElasticBatch:
    """Twice the rows, again and again, as long as the noise of the gradients says that little is lost.

    Steps of B rows need (φ + B) / (φ + B₀) times the rows that first steps of B₀ would need, where φ is the
    noise scale. The batch doubles if that is at most 1 + MOST_EXTRA afterwards. Where φ is not known, because
    the job has no gradients, it doubles after each pass. It never shrinks.

    Attributes:
        start_rows: the rows of the first steps, B₀.
        rows_most: the most rows of a step.
        settle_steps: how many steps a number of rows stays in force at least.
    """

    start_rows: int
    rows_most: int
    settle_steps: int
    steps_most: None = None

    @classmethod
    def of(cls, job: MiniBatchTraining) -> ElasticBatch:
        """Return the rule for a job."""
        settle_steps = max(LEAST_SETTLING, SETTLING * job.warm_up_steps)
        return cls(job.start_rows, most_rows(job), settle_steps)

    def rows(self, seen: RunSoFar) -> int:
        wanted = 2 * seen.batch_rows
        return wanted if wanted <= self.rows_most and self._may_grow(seen, wanted) else seen.batch_rows

    def rate(self, step: int, otherwise: float) -> float:
        return otherwise

    def _may_grow(self, seen: RunSoFar, wanted: int) -> bool:
        if math.isnan(seen.noise_rows):
            return seen.passes > seen.changed_passes
        if seen.step < seen.changed_step + self.settle_steps:
            return False
        worth = gain(wanted, self.start_rows, seen.noise_rows)  # in first steps
        return wanted / self.start_rows <= (1.0 + MOST_EXTRA) * worth


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """What a journal says."""

    journal: Journal

    @property
    def steps_most(self) -> int:
        return len(self.journal)

    def rows(self, seen: RunSoFar) -> int:
        return int(self.journal.batch_rows[seen.step])

    def rate(self, step: int, otherwise: float) -> float:
        return float(self.journal.rates[step])
