"""Elastic jobs made up from a seed, for benchmarks and tests of slot policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotView


def random_gang(name: str, random: np.random.Generator, **more: Any) -> Gang:
    """A job in the middle of its run: a step of 0.05 to 0.4 s on one slot, adding up a part of it."""
    step = random.uniform(0.05, 0.4)
    sync, start = random.uniform(0.02, 0.5) * step, float(2 ** random.integers(5, 9))
    passes, rows = int(random.integers(1, 20)), float(random.integers(5_000, 50_000))
    speed = (0.2 * step, 0.8 * step / start, 0.15 * sync, 0.0, sync, 0.02 * sync, 1.5)
    seconds = float(random.uniform(1, 300))
    settings = {
        "arrival_seconds": float(random.uniform(0, 100)),
        "pass_rows": rows,
        "start_rows": start,
        "rows_most": start * 2 ** int(random.integers(0, 6)),
        "rows_done": passes * rows,
        "passes_done": passes,
        "passes_since_change": 1,
        "first_loss": 2.0,
        "loss": 2.0 / (1 + passes / 5),
        "executed_seconds": seconds,
        "attained_slot_seconds": 2 * seconds,
        "speed": speed,
    }
    return Gang(name, **{**settings, **more})


def random_view(jobs: int, nodes: int, slots: int, seed: int, **more: Any) -> SlotView:
    """Jobs in the middle of their runs, which have all been preempted at their largest batch."""
    random = np.random.default_rng(seed)
    rows = [random_gang(f"job {i:04}", random) for i in range(jobs)]
    gangs = Gangs.of(rows, nodes)
    return SlotView(200.0, Nodes.equal(nodes, slots), gangs, arrivals_per_second=0.1, **more)
