"""ONES as its paper describes it: an evolution of schedules that deploys the one with the least utilisation.

The paper leaves a few things open, and the text that we could read has lost its formulas. The record on
ONES in `docs/decisions` lists how each is read here, and what we hold to be weak about the method.

What ONES remembers from one plan to the next: its schedules and the batch limits, frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.gangs.packing import packed
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import Gangs, Nodes, SlotView
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs.slot_policies.ones.evolution import (
    BetaQuantiles,
    Draws,
    Evolution,
    RowsLeft,
    filled,
    random_schedules,
)
from relaqs.slot_policies.ones.utilisation import (
    IDLE,
    BatchLimits,
    Predictor,
    Progress,
    SlotSeconds,
    by_ended_jobs,
    counts,
    of_places,
    rows_left,
    slot_rows,
    to_places,
)


@dataclass(frozen=True, slots=True)
class Population:
    """Schedules by the names of jobs and nodes, so that they outlive both.

    Two populations are equal if all their schedules are. They can be pickled.

    Attributes:
        generation: how many generations there have been.
        jobs: the jobs' ids; a gene is a position here.
        nodes: the ids of the nodes, and the slots of each.
        genes: the schedules as bytes of 32-bit numbers.
        limits: the doublings of each job's batch limit and the passes counted in it, in the order of jobs.
    """

    generation: int
    jobs: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    genes: bytes
    limits: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls,
        generation: int,
        ids: tuple[str, ...],
        nodes: Nodes,
        genomes: IntArray,
        limits: dict[str, tuple[float, float]],
    ) -> Population:
        """Return the population of some schedules, shape (K, G)."""
        slots = tuple(zip(nodes.ids, nodes.usable_slots.tolist(), strict=True))
        return cls(
            generation, ids, slots, genomes.astype(np.int32).tobytes(), tuple(limits[each] for each in ids)
        )

    def limits_by_id(self) -> dict[str, tuple[float, float]]:
        """Return the doublings and the passes counted of each job."""
        return dict(zip(self.jobs, self.limits, strict=True))

    def on(self, ids: tuple[str, ...], nodes: Nodes) -> IntArray:
        """Return the schedules for the jobs and nodes there are now, shape (K, G).

        Slots of jobs that ended and slots that are new are IDLE.
        """
        row = {name: position for position, name in enumerate(ids)}
        now = np.array([*(row.get(name, IDLE) for name in self.jobs), IDLE])
        width = sum(slots for _, slots in self.nodes)
        before = now[np.frombuffer(self.genes, dtype=np.int32).reshape(-1, width)]
        starts = dict(zip((name for name, _ in self.nodes), _starts([s for _, s in self.nodes]), strict=True))
        had = dict(self.nodes)
        usable = nodes.usable_slots.tolist()
        genomes = np.full((len(before), sum(usable)), IDLE)
        for name, slots, start in zip(nodes.ids, usable, _starts(usable), strict=True):
            kept = min(slots, had.get(name, 0))
            old = starts.get(name, 0)
            genomes[:, start : start + kept] = before[:, old : old + kept]
        return genomes


def _starts(slots: list[int]) -> list[int]:
    return [sum(slots[:node]) for node in range(len(slots))]


LARGEST_POPULATION = 64


@dataclass(frozen=True, slots=True)
class Ones:
    """Online evolutionary batch size orchestration (Bian, Li, Wang, You, SC 2021).

    A schedule says which job has which slot. A slot of a job always has its start batch, so a job's batch
    grows with its slots. A population of schedules goes through a few generations at each plan. The score of
    a schedule is the sum of the slot-seconds that its running jobs still need, in one draw of how far each
    has come. The schedule with the least score is deployed once every running job has made a whole pass since
    its last change. Until then each job keeps what it has.

    The user's weights do not count: the paper knows none.

    Args:
        population: how many schedules live on; None: as many as there are slots, at most 64.
        generations: how many there are in one plan.
        mutation: the rate at which a job of a mutant loses its slots. The paper's value is not known.
        crossover: whether genes of pairs are mixed. False shows what the search does without.
        warm_up_steps: a job keeps its start batch for so many steps.
        sigma: the rate by which long runs lower a batch limit, each second: a number, or the rate of
            arrivals.
        deploy: "all_passes" deploys as above. With "own_pass" a job may change as soon as it has made a whole
            pass itself, and free slots are filled at once.
        places: "genome" puts a job where its genes are. With "held" a job with as many slots as before keeps
            its places.
        predictor: tells the passes that jobs still need.
        seed: of all draws.

    >>> from relaqs.gangs.view import Gang, Gangs
    >>> from relaqs.gangs.view import Nodes
    >>> gangs = Gangs.of([Gang("a"), Gang("b")], nodes=1)
    >>> Ones().plan(SlotView(0.0, Nodes.equal(1, slots=4), gangs)).slots_by_id()
    {'a': 1, 'b': 1}
    """

    population: int | None = None
    generations: int = 4
    mutation: float = 0.2
    crossover: bool = True
    warm_up_steps: int = 10
    sigma: float | Literal["arrival rate"] = "arrival rate"
    deploy: Literal["all_passes", "own_pass"] = "all_passes"
    places: Literal["genome", "held"] = "genome"
    predictor: Predictor = by_ended_jobs
    seed: int = 0
    name: ClassVar[str] = "ones"

    def __post_init__(self) -> None:
        _check(self.population is None or self.population >= 1, "population", self.population, "1 or more")
        _check(self.generations >= 1, "generations", self.generations, "1 or more")
        _check(0 <= self.mutation <= 1, "mutation", self.mutation, "a number from 0 to 1")
        _check(self.warm_up_steps >= 0, "warm_up_steps", self.warm_up_steps, "0 or more")
        is_rate = self.sigma == "arrival rate" or (not isinstance(self.sigma, str) and self.sigma >= 0)
        _check(is_rate, "sigma", self.sigma, "a number from 0 on, or 'arrival rate'")
        _check(self.deploy in ("all_passes", "own_pass"), "deploy", self.deploy, "'all_passes' or 'own_pass'")
        _check(self.places in ("genome", "held"), "places", self.places, "'genome' or 'held'")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._plan)

    def _plan(self, view: SlotView) -> SlotPlan:
        before = view.memory if isinstance(view.memory, Population) else None
        limits = BatchLimits.grown(
            view.gangs,
            {} if before is None else before.limits_by_id(),
            self.warm_up_steps,
        )
        costs = SlotSeconds.of(view.gangs, self._slots_most(view, limits), view.nodes.usable_slots)
        evolution = self._evolution(view, costs)
        genomes, generation = self._evolved(view, evolution, before)
        places = self._deployed(view, genomes[0], evolution)
        batch = self._batches(view, places)
        if (places != view.gangs.held).any():
            limits = limits.after_rejection((view.gangs.slots == 0) & (places.sum(axis=1) == 0))
        ids = view.gangs.ids
        memory = Population.of(generation, ids, view.nodes, genomes, limits.by_id(ids))
        return SlotPlan.of(view, places, batch, memory)

    def _slots_most(self, view: SlotView, limits: BatchLimits) -> IntArray:
        """Return the slots that each job may have, shape (E,): its limit, and at most twice what runs now."""
        gangs, slots = view.gangs, int(view.nodes.usable_slots.sum())
        known = 0.0 if np.isnan(view.arrivals_per_second) else view.arrivals_per_second
        per_second = known if isinstance(self.sigma, str) else self.sigma
        rows = limits.rows(gangs.executed_seconds, per_second, gangs.rows_most)
        rows = np.where(gangs.is_running, np.minimum(rows, 2.0 * gangs.batch_rows), rows)
        most = np.floor(rows / slot_rows(gangs) + 1e-9)
        return np.asarray(np.clip(most, 1, slots).astype(np.int64))

    def _evolution(self, view: SlotView, costs: SlotSeconds) -> Evolution:
        gangs = view.gangs
        return Evolution(
            costs=costs,
            rows_left=_sampled(gangs, Progress.of(gangs, view.finished, self.predictor)),
            is_new=(gangs.executed_seconds <= 0) & ~gangs.is_running,
            executed_seconds=gangs.executed_seconds,
            population=self.population or min(int(costs.node_slots.sum()), LARGEST_POPULATION),
            mutation=self.mutation,
            crossover=self.crossover,
        )

    def _evolved(
        self, view: SlotView, evolution: Evolution, before: Population | None
    ) -> tuple[IntArray, int]:
        """Return the schedules after this plan's generations, best first, and how many there were in all."""
        generation = 0 if before is None else before.generation
        if before is None:
            held = of_places(np.where(view.nodes.alive, view.gangs.held, 0), view.nodes.usable_slots)
            draws = Draws(self.seed, generation)
            others = random_schedules(evolution.population - 1, len(held), len(view.gangs), draws)
            genomes = np.concatenate([held[None, :], others])
        else:
            genomes = before.on(view.gangs.ids, view.nodes)
        for _ in range(self.generations):
            generation += 1
            genomes = evolution.after(genomes, Draws(self.seed, generation))
        return genomes, generation

    def _deployed(self, view: SlotView, genes: IntArray, evolution: Evolution) -> IntArray:
        """Return the slots of each job on each node, shape (E, N): of the best schedule, or as they are."""
        held = np.where(view.nodes.alive, view.gangs.held, 0)
        keeps = (held.sum(axis=1) > 0) & (view.gangs.passes_since_change < 1)
        if keeps.any() and self.deploy == "all_passes":
            return held
        if not keeps.any() and self.places == "genome":
            return to_places(genes, len(view.gangs), view.nodes.usable_slots)
        count = counts(genes[None, :], len(view.gangs))[0]
        if keeps.any():
            count = _beside(keeps, held, count, view, evolution)
        return packed(count, held, view.nodes, np.argsort(-count, kind="stable"))

    def _batches(self, view: SlotView, places: IntArray) -> FloatArray:
        """Return the batch of each job: its start batch on each slot, unless nothing changes for it."""
        gangs, slots = view.gangs, places.sum(axis=1)
        is_as_before = (slots == gangs.slots) & (gangs.batch_rows >= 1)
        return np.asarray(np.where(is_as_before, gangs.batch_rows, slot_rows(gangs) * slots))


def _beside(
    keeps: BoolArray, held: IntArray, wanted: IntArray, view: SlotView, evolution: Evolution
) -> IntArray:
    """Return the slots of each job where some keep what they hold and the others share the rest, (E,).

    The others get what the schedule gives them, in the order of arrival, as far as it goes; what is then idle
    is filled as in a schedule.
    """
    kept = np.where(keeps, held.sum(axis=1), 0)
    free = int(view.nodes.usable_slots.sum()) - int(kept.sum())
    asked = np.where(keeps, 0, wanted)
    given = np.clip(free - (np.cumsum(asked) - asked), 0, asked)
    genes = np.full((1, free), IDLE)
    genes[0, : given.sum()] = np.repeat(np.arange(len(given)), given)
    rows = evolution.rows_left(np.full((1, len(given)), 0.5))
    others = replace(evolution.costs, most=np.where(keeps, 0, evolution.costs.most))
    return np.asarray(kept + counts(filled(genes, rows, others), len(given))[0])


def _sampled(gangs: Gangs, progress: Progress) -> RowsLeft:
    """Return what draws the rows that jobs still process, from even numbers: Algorithm 1 of the paper.

    The schedules of one selection are compared by one draw, which is a reading of ours.
    """
    quantiles = BetaQuantiles.of(progress.alpha, progress.beta)
    return lambda even: rows_left(gangs.rows_done, quantiles.at(even))


def _check(is_right: bool, name: str, value: object, accepted: str) -> None:
    if not is_right:
        raise ValueError(f"{name} is {value!r}; give {accepted}")
