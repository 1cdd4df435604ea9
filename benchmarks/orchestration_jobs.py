"""What `benchmarks.orchestration_live` trains: elastic jobs, their targets, and fixed gangs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from relaqs_lab.simulation.workload import poisson_arrivals

import relaqs
from benchmarks.live import FloatArray, LiveJob
from benchmarks.training_data import LINEITEM
from relaqs.session import Session
from relaqs.sharing.gangs import SlotPlan, SlotView, packed
from relaqs.sharing.view import Kind
from relaqs.slot_policies import planned_by_arrival
from relaqs.training import MiniBatchPerceptron, Perceptron, TorchModule, TrainingRun

if TYPE_CHECKING:
    import torch

SQL = f"SELECT {LINEITEM}, l_extendedprice * (1 - l_discount) * (1 + l_tax) > 40000 AS y FROM lineitem"
HELD_OUT = 0.2  # of the partitions, which give the losses
NEAR = 0.1  # of the way from a job's last loss back to its first: how close its target is
PATIENCE = 3  # times the passes of a job that it may take at most


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of elastic job, and the training by whole passes that stands beside it.

    Attributes:
        name: for people.
        job: started with steps of `start_rows` rows. It never converges by itself.
        passes: how many are made with steps of fixed size to get its target.
        hidden: the widths of the same network, trained by whole passes.
    """

    name: str
    job: MiniBatchPerceptron | TorchModule
    passes: int
    hidden: tuple[int, ...]

    def started(self, session: Session, batch: int | Literal["elastic"], target_loss: float) -> TrainingRun:
        """Start it in a session, until its loss is that small."""
        most = PATIENCE * self.passes
        return session.train(self.job, batch=batch, target_loss=target_loss, max_steps=most)

    def by_whole_passes(self, session: Session, seconds: float) -> TrainingRun:
        """Train the same network by tasks, each step a pass over all rows, for so long."""
        job = Perceptron(SQL, "y", hidden=self.hidden, tolerance=1e-12)
        return session.train(job, timeout=seconds)


def templates() -> tuple[Template, ...]:
    """Return perceptrons of one or two pieces a step, and a module of PyTorch where that is installed."""
    made = [
        _perceptron("two layers, 1 piece", (128, 64), 256, 0.002, passes=2),
        _perceptron("two layers, 2 pieces", (128, 64), 512, 0.003, passes=6),
        _perceptron("wide layers, 2 pieces", (256, 128), 512, 0.002, passes=3),
    ]
    if find_spec("torch") is not None:
        made.append(Template("PyTorch, 2 pieces", _module(), 4, (128, 64)))
    return tuple(made)


def network() -> torch.nn.Module:
    """Return the module that is trained by PyTorch."""
    from torch import nn

    return nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))


def _perceptron(
    name: str, hidden: tuple[int, ...], start_rows: int, first_rate: float, *, passes: int
) -> Template:
    job = MiniBatchPerceptron(
        SQL,
        "y",
        hidden=hidden,
        first_rate=first_rate,
        start_rows=start_rows,
        tolerance=0.0,
        patience_passes=10**6,
        held_out=HELD_OUT,
    )
    return Template(name, job, passes, hidden)


def _module() -> TorchModule:
    return TorchModule(
        SQL,
        "y",
        "benchmarks.orchestration_jobs:network",
        optimizer="adam",
        scaling="sqrt",
        first_rate=0.003,
        start_rows=512,
        tolerance=0.0,
        patience_passes=10**6,
        held_out=HELD_OUT,
    )


def targets(warehouse: Path, chosen: Sequence[Template]) -> dict[str, float]:
    """Return the loss that each job is to reach, by its template's name.

    It is the loss after the template's passes with steps of fixed size, and a tenth of the way back to that
    after the first pass. All runs of a job have the same bits, so it is found once, in this process.
    """
    found = {}
    with relaqs.connect(warehouse) as session:
        for each in chosen:
            run = session.train(each.job, batch=each.job.start_rows, max_steps=each.passes)
            run.result()
            least = min(run.losses)
            found[each.name] = least + NEAR * (run.losses[0] - least)
    return found


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs to come, in the order of their arrival. arrival_seconds: shape (jobs,)."""

    jobs: tuple[LiveJob, ...]
    arrival_seconds: FloatArray


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a seed draws: a template for each training, the queries, and their order and arrivals.

    Attributes:
        trained: the template of each training.
        queries: to come beside them, ready to start.
        order: of the trainings and then the queries, as they arrive, shape (jobs,).
        arrival_seconds: shape (jobs,).
    """

    trained: tuple[Template, ...]
    queries: tuple[LiveJob, ...]
    order: tuple[int, ...]
    arrival_seconds: FloatArray

    @classmethod
    def of(
        cls, seed: int, chosen: Sequence[Template], jobs: int, queries: Sequence[LiveJob], arrival: float
    ) -> Drawn:
        """Draw by a seed. arrival: the mean seconds between two arrivals, of trainings and queries alike."""
        random = np.random.default_rng(seed)
        trained = tuple(chosen[i] for i in random.integers(len(chosen), size=jobs).tolist())
        count = jobs + len(queries)
        order = tuple(random.permutation(count).tolist())
        return cls(trained, tuple(queries), order, poisson_arrivals(random, count, arrival))

    def by_gangs(self, batch: Literal["fixed", "elastic"], losses: Mapping[str, float]) -> Mix:
        """Return the mix with training by mini-batches."""

        def job(number: int, each: Template) -> LiveJob:
            rows: int | Literal["elastic"] = "elastic" if batch == "elastic" else each.job.start_rows
            return _live(number, lambda session: each.started(session, rows, losses[each.name]))

        return self._mix([job(number, each) for number, each in enumerate(self.trained)])

    def by_whole_passes(self, seconds: Mapping[str, float]) -> Mix:
        """Return the mix with training by whole passes. seconds: of each training, by its name."""

        def job(number: int, each: Template) -> LiveJob:
            lasts = seconds[_name(number)]
            return _live(number, lambda session: each.by_whole_passes(session, lasts))

        return self._mix([job(number, each) for number, each in enumerate(self.trained)])

    def targets(self, losses: Mapping[str, float]) -> dict[str, float]:
        """Return the loss that each training is to reach, by its name."""
        return {_name(number): losses[each.name] for number, each in enumerate(self.trained)}

    def _mix(self, trainings: Sequence[LiveJob]) -> Mix:
        every = [*trainings, *self.queries]
        return Mix(tuple(every[i] for i in self.order), self.arrival_seconds)


def _live(number: int, start: Callable[[Session], TrainingRun]) -> LiveJob:
    return LiveJob(_name(number), Kind.TRAINING, start)


def _name(number: int) -> str:
    return f"training {number}"


@dataclass(frozen=True, slots=True)
class FixedGangs:
    """Gangs of fixed size, first in, first out: what clusters do that know no elastic jobs.

    A job's size is the slots that its steps can fill, or all there are, if these are fewer. It gets so many
    or none. Nobody gets slots before a job that came earlier has its own.

    Args:
        slots_most: what a job gets at most.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> sizes = {"first": 1, "second": 2, "third": 1}
    >>> jobs = [Gang(id, at, rows_most=32.0 * sizes[id], slot_rows_least=32.0) for at, id in enumerate(sizes)]
    >>> view = SlotView(9.0, Nodes.equal(1, slots=2), Gangs.of(jobs, nodes=1))
    >>> FixedGangs().plan(view).slots_by_id()
    {'first': 1, 'second': 0, 'third': 0}
    """

    slots_most: float = math.inf
    name: ClassVar[str] = "fixed_gangs"
    reads_speeds: ClassVar[bool] = False

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._whole_or_none)

    def _whole_or_none(self, view: SlotView) -> SlotPlan:
        gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
        sizes = np.minimum(gangs.slots_most, min(self.slots_most, total)).astype(np.int64)
        counts = np.where(np.cumsum(sizes) <= total, sizes, 0)
        slots = packed(counts, gangs.held, view.nodes, np.arange(len(gangs)))
        return SlotPlan.of(view, slots, gangs.rows_most)
