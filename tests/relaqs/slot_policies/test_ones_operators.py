"""What holds for each operator of the evolution, whatever the schedules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaqs.slot_policies.ones import (
    IDLE,
    Draws,
    Evolution,
    SlotSeconds,
    best,
    counts,
    crossed,
    filled,
    of_places,
    preempted,
    random_schedules,
    refreshed,
    reordered,
    scores,
    starts_run,
    to_places,
    trimmed,
)

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@dataclass(frozen=True)
class World:
    """A few schedules of a few jobs, and what slots cost these."""

    genomes: np.ndarray
    costs: SlotSeconds
    rows: np.ndarray
    is_new: np.ndarray
    executed_seconds: np.ndarray
    seed: int

    @property
    def jobs(self) -> int:
        return len(self.costs.most)

    def is_valid(self, genomes: np.ndarray) -> bool:
        return bool(((genomes >= IDLE) & (genomes < self.jobs)).all())


@st.composite
def worlds(draw: st.DrawFn) -> World:
    jobs, slots, schedules = draw(st.integers(1, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 10_000))
    random = np.random.default_rng(seed)
    node_slots = np.array([slots // 2, slots - slots // 2])
    per_row = random.uniform(0.1, 1.0, (jobs, 2, slots + 1)) * np.arange(slots + 1)
    most = random.integers(1, slots + 1, jobs)
    return World(
        genomes=random.integers(IDLE, jobs, (schedules, slots)),
        costs=SlotSeconds(per_row, most, node_slots),
        rows=random.uniform(0, 100, (schedules, jobs)),
        is_new=random.random(jobs) < 0.3,
        executed_seconds=random.uniform(1, 100, jobs),
        seed=seed,
    )


def bags(genomes: np.ndarray) -> list[list[int]]:
    return np.sort(genomes, axis=0).tolist()


@given(worlds())
def test_counts_are_those_of_a_plain_loop(world: World) -> None:
    plain = [[int((genes == job).sum()) for job in range(world.jobs)] for genes in world.genomes]
    assert counts(world.genomes, world.jobs).tolist() == plain


@given(worlds())
def test_reorder_keeps_counts_and_first_occurrences_and_makes_runs(world: World) -> None:
    after = reordered(world.genomes, world.jobs)
    assert (counts(after, world.jobs) == counts(world.genomes, world.jobs)).all()
    for genes, packed in zip(world.genomes, after, strict=True):
        runs = packed[starts_run(packed[None, :])[0]].tolist()
        assert len(set(runs)) == len(runs)
        assert runs == [*dict.fromkeys(gene for gene in genes.tolist() if gene >= 0)] + [IDLE] * (
            IDLE in runs
        )
    assert (reordered(after, world.jobs) == after).all()


@given(worlds())
def test_trimming_leaves_each_job_what_it_may_have_and_no_less(world: World) -> None:
    before = reordered(world.genomes, world.jobs)
    after = trimmed(before, world.costs.most)
    assert (counts(after, world.jobs) == np.minimum(counts(before, world.jobs), world.costs.most)).all()
    assert ((after == before) | (after == IDLE)).all()


@given(worlds())
def test_no_slot_is_idle_that_a_job_could_use_and_nobody_loses_one(world: World) -> None:
    before = trimmed(reordered(world.genomes, world.jobs), world.costs.most)
    after = filled(before, world.rows, world.costs)
    count = counts(after, world.jobs)
    assert world.is_valid(after)
    assert ((after == before) | (before == IDLE)).all()
    assert (count <= world.costs.most).all()
    usable = min(world.genomes.shape[1], int(world.costs.most.sum()))
    assert (count.sum(axis=1) == usable).all()


@given(worlds())
def test_filling_serves_one_after_another_whose_utilisation_rises_least(world: World) -> None:
    """The same rule as a plain loop over one schedule."""
    before = trimmed(reordered(world.genomes, world.jobs), world.costs.most)
    packed, most = world.costs.packed, world.costs.most
    for genes, rows in zip(before, world.rows, strict=True):
        count = counts(genes[None, :], world.jobs)[0]
        idle = int((genes == IDLE).sum())
        while idle:
            goal = np.minimum(np.where(count == 0, 1, 2 * count), most)
            jobs = np.arange(world.jobs)
            rise = np.where(goal > count, rows * (packed[jobs, goal] - packed[jobs, count]), np.inf)
            job = int(rise.argmin())
            if not np.isfinite(rise[job]):
                break
            taken = min(int(goal[job] - count[job]), idle)
            count[job] += taken
            idle -= taken
        full = filled(genes[None, :], rows[None, :], world.costs)
        assert counts(full, world.jobs)[0].tolist() == count.tolist()


@given(worlds())
def test_refresh_lets_new_jobs_in_and_leaves_none_above_its_limit(world: World) -> None:
    after = refreshed(world.genomes, world.rows, world.costs, world.is_new, world.executed_seconds)
    count = counts(after, world.jobs)
    assert world.is_valid(after)
    assert (count <= world.costs.most).all()
    assert (count.sum(axis=1) == min(world.genomes.shape[1], int(world.costs.most.sum()))).all()
    new = int(world.is_new.sum())
    had = counts(trimmed(reordered(world.genomes, world.jobs), world.costs.most), world.jobs)
    for before, now in zip(had, count, strict=True):
        others = int(before[world.is_new].sum())  # slots that new jobs had, and which are not taken from them
        room = world.genomes.shape[1] - others + int((before[world.is_new] > 0).sum())
        assert (now[world.is_new] > 0).sum() >= min(new, room)


def test_a_new_job_takes_the_place_of_the_job_that_ran_longest() -> None:
    costs = SlotSeconds(np.ones((4, 2, 5)), np.array([4, 4, 4, 1]), np.array([4]))
    executed = np.array([5.0, 90.0, 7.0, 0.0])
    new = np.array([False, False, False, True])
    after = refreshed(np.array([[0, 1, 1, 2]]), np.ones((1, 4)), costs, new, executed)
    assert counts(after, 4).tolist() == [[1, 1, 1, 1]]


@given(worlds(), st.randoms(use_true_random=False))
def test_crossover_gives_each_slot_one_parents_gene_and_keeps_the_pair(world: World, random) -> None:
    other = world.genomes[::-1]
    mask = np.array([[random.random() < 0.5 for _ in genes] for genes in world.genomes])
    children = crossed(world.genomes, other, mask)
    half = len(world.genomes)
    for i in range(half):
        assert bags(children[[i, i + half]]) == bags(np.stack([world.genomes[i], other[i]]))


@given(worlds())
def test_mutation_takes_all_slots_of_those_that_lose_them_and_no_others(world: World) -> None:
    count = counts(world.genomes, world.jobs)
    nobody = np.zeros(count.shape, dtype=bool)
    assert (preempted(world.genomes, nobody) == world.genomes).all()
    assert (preempted(world.genomes, ~nobody) == IDLE).all()
    loses = np.random.default_rng(world.seed).random(count.shape) < 0.5
    after = preempted(world.genomes, loses)
    assert (counts(after, world.jobs) == np.where(loses, 0, count)).all()
    assert ((after == world.genomes) | (after == IDLE)).all()


@given(worlds(), st.integers(1, 5))
def test_selection_keeps_the_best_and_drops_doubles(world: World, most: int) -> None:
    genomes = np.concatenate([reordered(world.genomes, world.jobs)] * 2)
    score = scores(genomes, world.rows[0], world.costs)
    kept = best(genomes, score, most)
    distinct = {tuple(genes) for genes in genomes.tolist()}
    assert len({tuple(genes) for genes in genomes[kept].tolist()}) == len(kept) == min(most, len(distinct))
    assert score[kept[0]] == score.min()
    assert (np.diff(score[kept]) >= 0).all()


@given(worlds())
def test_places_and_schedules_say_the_same(world: World) -> None:
    node_slots = world.costs.node_slots
    for genes in world.genomes:
        places = to_places(genes, world.jobs, node_slots)
        assert (places.sum(axis=1) == counts(genes[None, :], world.jobs)[0]).all()
        assert (to_places(of_places(places, node_slots), world.jobs, node_slots) == places).all()


@given(worlds())
def test_a_score_does_not_depend_on_the_jobs_numbers(world: World) -> None:
    order = np.random.default_rng(world.seed).permutation(world.jobs)
    back = np.append(np.argsort(order), IDLE)  # an idle slot stays idle
    genomes = reordered(world.genomes, world.jobs)
    costs = SlotSeconds(world.costs.of_row[order], world.costs.most[order], world.costs.node_slots)
    there = scores(back[genomes], world.rows[0][order], costs)
    np.testing.assert_allclose(there, scores(genomes, world.rows[0], world.costs))


@given(worlds())
@settings(max_examples=30)
def test_generations_are_valid_and_the_best_score_never_rises_at_fixed_draws(world: World) -> None:
    rows = world.rows[0]
    evolution = Evolution(
        costs=world.costs,
        rows_left=lambda even: np.broadcast_to(rows, even.shape),
        is_new=np.zeros(world.jobs, dtype=bool),
        executed_seconds=world.executed_seconds,
        population=6,
        mutation=0.3,
    )
    genomes = random_schedules(6, world.genomes.shape[1], world.jobs, Draws(world.seed, 0))
    least = np.inf
    for generation in range(1, 5):
        genomes = evolution.after(genomes, Draws(world.seed, generation))
        score = scores(genomes, rows, world.costs)
        assert world.is_valid(genomes)
        assert (counts(genomes, world.jobs) <= world.costs.most).all()
        assert score[0] <= least * (1 + 1e-12)
        least = score[0]
