"""Which partitions are folded in which mini-batch, and by which task. A pure function of the layout.

Nothing measured enters: the same data, seed and query give the same mini-batches on any cluster. Mini-batches
start with one partition, for the first estimate, and grow, since error falls with the square root of the
rows. A task covers several partitions, so that per-call work (planning, joins' build sides) stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# Compressed bytes a task reads: 70 to 450 ms of one core for TPC-H at scale 10. Each task hashes the static
# sides of its joins anew, and DuckDB plans joins of few files badly: five partitions a task cost TPC-H 3, 5,
# 8, 9 and 10 1.0 to 1.4 times, and TPC-H 4 2.1 times, what ten or twenty in one task do.
TASK_BYTES = 64 << 20
# The share of the table, at its end, in which tasks are half as large, so that the cores finish together.
TAPER_SHARE = 1 / 10
BATCH_GROWTH = 1.5
# No mini-batch covers more than this share, so that snapshots keep coming. Each costs a merge and a pass over
# the final query, 5 to 10 ms, and gives the error bars one or two blocks more: ten mini-batches in the place
# of fourteen covered the flights by aircraft 1 to 2 points less.
BATCH_SHARE = 1 / 10
BATCH_SHARE_OF_MANY_GROUPS = 1 / 4
# What the partial results of a mini-batch may take: two of them are in memory, the one folded and the next.
BATCH_RESULT_BYTES = 256 << 20
# The share of the table, from its start, whose partials are kept per block, and the rows for which they are
# at least: blocks of all sizes make error bars that vary much where values are skewed.
BLOCK_SHARE = 0.06
BLOCKED_ROWS = 500_000
# With more groups, sums of products are cheaper than blocks of every group: at 10,000 groups, blocks were
# measured to cost five times as much.
MANY_GROUPS = 10_000


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The partitions folded in one step, by task. by_block: tasks keep their partials per block."""

    index: int
    tasks: tuple[tuple[int, ...], ...]
    by_block: bool

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for task in self.tasks for partition in task)


def partition_order(count: int, seed: int) -> tuple[int, ...]:
    """Return the order in which a query takes the partitions: any prefix is a uniform random sample.

    >>> partition_order(6, seed=0)
    (3, 2, 5, 4, 0, 1)
    """
    return tuple(int(i) for i in np.random.default_rng(seed).permutation(count))


def spread_draws(count: int, size: int, random: np.random.Generator, times: int = 1) -> NDArray[np.int64]:
    """Return draws of `size` of `count` places, spread over them: one of each stretch, shape (times, size).

    All stretches have the same length, so some begin and end within a place. Such a place has a part in two.
    It is as likely as any other: in the second stretch it is drawn less often where it was not drawn in the
    first, and never where it was. With stretches of whole places, of two lengths, some of 70 places were
    drawn 22 % less often than is due, and some averages of 45 of them held in 79 % of the cases.
    Source: Chauvet 2012, On a characterization of ordered pivotal sampling, Bernoulli 18, section 2.

    >>> spread_draws(100, 5, np.random.default_rng(0)).tolist()
    [[5, 20, 58, 74, 98]]
    """
    length = count / size
    drawn = np.full((times, size + 1), -1, dtype=np.int64)
    for i in range(size):
        shared, whole = i * count // size, -(-i * count // size)
        begun = (-i * count % size) / size  # the part that a place begun before has in this stretch
        is_again = (drawn[:, i - 1] != shared) & (random.random(times) * (length - 1 + begun) < begun)
        end = (i + 1) * count / size
        other = np.minimum(whole + (end - whole) * random.random(times), np.nextafter(end, 0.0))
        drawn[:, i] = np.where(is_again, shared, other)
    return drawn[:, :-1]


def spread_order(count: int, sizes: Sequence[int], seed: int) -> tuple[int, ...]:
    """Return places in the order in which they are read: those of all mini-batches so far are spread.

    The places of the last mini-batch are drawn first, and from them those that come before.

    Args:
        count: how many places there are.
        sizes: how many are read up to the end of each mini-batch.
        seed: another one gives other places.

    >>> spread_order(90, (3, 8), seed=0)
    (11, 42, 57, 3, 32, 55, 68, 80)
    """
    random = np.random.default_rng(seed)
    [places] = spread_draws(count, sizes[-1], random)
    later: list[int] = []
    for size in reversed(sizes[:-1]):
        [early] = spread_draws(len(places), size, random)
        later = [*np.delete(places, early).tolist(), *later]
        places = places[early]
    return (*places.tolist(), *later)


def mini_batches(
    order: Sequence[int],
    partition_bytes: float,
    *,
    result_bytes: float = 0.0,
    batches: int | None = None,
    batch_share: float = BATCH_SHARE,
    block_share: float = BLOCK_SHARE,
    soon_partitions: float = 0.0,
) -> tuple[MiniBatch, ...]:
    """Return the mini-batches that together cover `order`.

    Args:
        order: the partitions in the order in which they are read.
        partition_bytes: the compressed bytes that a task reads for one partition.
        result_bytes: the bytes that it returns for one partition.
        batches: makes this many equal mini-batches. Without it they grow, up to `batch_share` of the
            partitions and BATCH_RESULT_BYTES of results.
        batch_share: the largest share of the partitions in one mini-batch.
        block_share: the share of the partitions, from the start, whose partials are kept for each block. The
            first mini-batch always is, unless this is 0. Later, each task's partial is a block of its own,
            for nothing. So it is in the last mini-batch, after which there are no error bars.
        soon_partitions: how many partitions are read so soon that an estimate is worth its cost only once
            twice as much was read. In a rest of so many, each mini-batch is as large as all before it.

    >>> batches = mini_batches(partition_order(100, seed=0), partition_bytes=1 << 20)
    >>> [len(batch.partitions) for batch in batches]
    [1, 1, 2, 3, 5, 7, 10, 10, 10, 10, 10, 10, 10, 11]
    >>> soon = mini_batches(partition_order(100, seed=0), partition_bytes=1 << 20, soon_partitions=60)
    >>> [len(batch.partitions) for batch in soon]
    [1, 1, 2, 3, 5, 7, 10, 10, 10, 51]
    """
    most_by_results = BATCH_RESULT_BYTES / max(result_bytes, 1.0)
    most = min(len(order) * batch_share, most_by_results)
    soon = min(soon_partitions, most_by_results)
    sizes = _equal_sizes(len(order), batches) if batches else _growing_sizes(len(order), most, soon)
    per_task = max(1, int(TASK_BYTES / max(partition_bytes + result_bytes, 1.0)))
    done, result = 0, []
    for index, size in enumerate(sizes):
        chunk = tuple(order[done : done + size])
        is_last = index == len(sizes) - 1
        is_early = done + size <= len(order) * block_share and not is_last
        by_block = block_share > 0.0 and (index == 0 or is_early)
        is_end = done + size > len(order) * (1 - TAPER_SHARE)
        limit = min(per_task, -(-size // 2)) if is_end else per_task
        result.append(MiniBatch(index, _tasks(chunk, limit), by_block))
        done += size
    return tuple(result)


def _equal_sizes(count: int, batches: int) -> list[int]:
    batches = min(batches, count)
    edges = [round(i * count / batches) for i in range(batches + 1)]
    return [b - a for a, b in pairwise(edges)]


def _growing_sizes(count: int, most: float, soon: float) -> list[int]:
    """Return 1, 1, 2, 3, 5, … up to so many partitions each. In a rest that is read soon they double."""
    sizes: list[int] = []
    left, size = count, 1.0
    while left:
        take = max(1, count - left) if left <= soon else int(size)
        if left < 1.5 * take:  # a rest smaller than half a mini-batch joins it: no snapshot for a sliver
            take = left
        sizes.append(take)
        left -= take
        size = min(max(1.0, most), size * BATCH_GROWTH)
    return sizes


def _tasks(partitions: tuple[int, ...], per_task: int) -> tuple[tuple[int, ...], ...]:
    """Split a mini-batch evenly into as few tasks as the limit allows."""
    count = -(-len(partitions) // per_task)
    edges = [round(i * len(partitions) / count) for i in range(count + 1)]
    return tuple(partitions[a:b] for a, b in pairwise(edges))
