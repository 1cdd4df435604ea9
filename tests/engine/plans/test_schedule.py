"""Laws of the schedule: every partition once, in order, whatever the sizes asked for."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.plans.plan import (
    BATCH_RESULT_BYTES,
    TASK_BYTES,
    MiniBatch,
    mini_batches,
    partition_order,
    spread_draws,
)

COUNTS = st.integers(1, 400)
BYTES = st.floats(0, 4 * TASK_BYTES)


def sizes(batches: tuple[MiniBatch, ...]) -> list[int]:
    return [len(batch.partitions) for batch in batches]


@given(COUNTS, BYTES, st.none() | st.integers(1, 500), st.floats(0.01, 1), st.integers(0, 3))
def test_every_partition_is_folded_once_in_order(
    count: int, partition_bytes: float, batches: int | None, share: float, seed: int
) -> None:
    order = partition_order(count, seed)
    made = mini_batches(order, partition_bytes, batches=batches, batch_share=share)
    assert tuple(chain.from_iterable(batch.partitions for batch in made)) == order
    assert [batch.index for batch in made] == list(range(len(made)))
    assert all(task for batch in made for task in batch.tasks)


@given(COUNTS, st.integers(1, 500))
def test_so_many_equal_mini_batches_as_asked_for(count: int, batches: int) -> None:
    made = sizes(mini_batches(range(count), 1.0, batches=batches))
    assert len(made) == min(batches, count)
    assert max(made) - min(made) <= 1


@given(COUNTS, st.floats(0.05, 0.5))
def test_mini_batches_grow_from_one_partition_to_their_share(count: int, share: float) -> None:
    made = sizes(mini_batches(range(count), 1.0, batch_share=share))
    assert made[0] == 1
    assert all(a <= b for a, b in pairwise(made[:-1]))
    # The last takes in a rest that is smaller than half of it.
    assert max(made) <= max(1.0, 1.5 * max(1.0, count * share))


@given(COUNTS, st.floats(0, 400))
def test_mini_batches_of_a_rest_that_is_read_soon_double(count: int, soon: float) -> None:
    made = sizes(mini_batches(range(count), 1.0, soon_partitions=soon))
    assert sum(made) == count
    done = [sum(made[:i]) for i in range(len(made))]
    in_rest = [(size, before) for size, before in zip(made, done, strict=True) if count - before <= soon]
    for size, before in in_rest[:-1]:
        assert size == max(1, before)
    # The last takes in a rest that is smaller than half of it.
    assert all(size <= max(1, 1.5 * before) for size, before in in_rest[-1:] if before)
    slower = sizes(mini_batches(range(count), 1.0))
    assert made[: len(made) - len(in_rest)] == slower[: len(made) - len(in_rest)]


@given(COUNTS, st.floats(1, 20), st.floats(0, 400))
def test_the_first_mini_batch_is_as_large_as_asked_for(count: int, first: float, soon: float) -> None:
    made = sizes(mini_batches(range(count), 1.0, soon_partitions=soon, first_partitions=first))
    most = int(max(1.0, min(first, count / 10)))
    assert sum(made) == count
    assert made[0] == (count if count < 1.5 * most else most)
    assert all(a <= b for a, b in pairwise(made[:-1]))


def test_large_results_keep_a_rest_that_is_read_soon_in_small_mini_batches() -> None:
    made = sizes(mini_batches(range(100), 1.0, result_bytes=BATCH_RESULT_BYTES / 8, soon_partitions=100.0))
    assert max(made[:-1]) <= 8


@given(COUNTS, BYTES, st.floats(0, 1))
def test_a_task_reads_no_more_than_its_bytes(count: int, partition_bytes: float, share: float) -> None:
    made = mini_batches(range(count), partition_bytes, batch_share=max(share, 0.01))
    widest = max(len(task) for batch in made for task in batch.tasks)
    assert widest == 1 or widest * partition_bytes <= TASK_BYTES


@given(COUNTS, st.floats(0, 1))
def test_partials_are_kept_by_block_at_the_start_alone(count: int, share: float) -> None:
    made = mini_batches(range(count), 1.0, block_share=share)
    by_block = [batch.by_block for batch in made]
    assert by_block[0] == (share > 0)
    assert by_block == sorted(by_block, reverse=True)
    assert sum(len(batch.partitions) for batch in made if batch.by_block) <= max(1.0, count * share)


def test_hundred_partitions() -> None:
    """What a table of a hundred partitions of 10 MB gives: snapshots soon, then one after every tenth."""
    made = mini_batches(range(100), 10 << 20)
    assert sizes(made) == [1, 1, 2, 3, 5, 7, 10, 10, 10, 10, 10, 10, 10, 11]
    assert [len(batch.tasks) for batch in made][:7] == [1, 1, 1, 1, 1, 2, 2]


@given(COUNTS, st.integers(0, 10**9))
def test_an_order_is_a_permutation_that_its_seed_decides(count: int, seed: int) -> None:
    order = partition_order(count, seed)
    assert sorted(order) == list(range(count))
    assert order == partition_order(count, seed)


def test_seeds_give_different_orders() -> None:
    assert len({partition_order(50, seed) for seed in range(20)}) == 20


@pytest.mark.parametrize("partition", [0, 7, 49])
def test_no_partition_is_favoured(partition: int) -> None:
    """A partition comes among the first ten of fifty in a fifth of the seeds: 400 ± 5·√(2000·.2·.8) = 89."""
    early = sum(partition in partition_order(50, seed)[:10] for seed in range(2_000))
    assert abs(early - 400) < 89


@pytest.mark.parametrize(("count", "size"), [(64, 24), (70, 45), (200, 10), (9, 9)])
def test_a_spread_draw_favours_no_place(count: int, size: int) -> None:
    """Each place is in size / count of 20,000 draws, within five standard errors: 5·√(20000·p·(1 − p))."""
    draws = spread_draws(count, size, np.random.default_rng(0), 20_000)
    assert all(len(set(draw)) == size for draw in draws[:100].tolist())
    share = size / count
    found = np.bincount(draws.ravel(), minlength=count)
    assert np.abs(found - 20_000 * share).max() <= 5 * np.sqrt(20_000 * share * (1 - share))


def test_a_spread_draw_is_no_less_sure_than_it_says_of_a_file_with_a_pattern() -> None:
    """A mean of 45 of 70 varies by (1 − 45/70)·s² / 45 or little more, where one place of each 14 differs.

    Were the stretches of one and of two whole places, it would vary by up to twice as much. 4,000 draws give
    a variance to within √(2/4000) = 2.2 %, and the most of 14 was 1.10 times as large.
    """
    draws = spread_draws(70, 45, np.random.default_rng(0), 4_000)
    for pattern in np.eye(14):
        values = np.tile(pattern, 5)
        allowed = (1 - 45 / 70) * values.var(ddof=1) / 45
        assert values[draws].mean(axis=1).var() <= 1.2 * allowed


@given(COUNTS, BYTES, st.floats(0, 2 * BATCH_RESULT_BYTES))
def test_what_a_mini_batch_returns_is_bounded(
    count: int, partition_bytes: float, result_bytes: float
) -> None:
    made = mini_batches(range(count), partition_bytes, result_bytes=result_bytes)
    for batch in made[:-1]:
        assert len(batch.partitions) == 1 or len(batch.partitions) * result_bytes <= BATCH_RESULT_BYTES
        for task in batch.tasks:
            assert len(task) == 1 or len(task) * (partition_bytes + result_bytes) <= TASK_BYTES
    # The last takes in a rest that is smaller than half of it.
    assert len(made[-1].partitions) * result_bytes <= 1.5 * max(BATCH_RESULT_BYTES, result_bytes)
