"""Any jobs at all, for laws of slot policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from benchmarks.slot_views import random_gang
from relaqs.sharing.gangs import Gangs, Nodes, SlotView

SPEED = (0.02, 0.001, 0.01, 0.0, 0.05, 0.001, 1.5)


@st.composite
def any_view(draw: st.DrawFn) -> SlotView:
    """Up to eight jobs, new, waiting or running, on up to four machines, some of them down."""
    count, nodes = draw(st.integers(0, 8)), draw(st.integers(1, 4))
    slots = np.array(draw(st.lists(st.integers(0, 4), min_size=nodes, max_size=nodes)), dtype=np.int64)
    alive = np.array(draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    free, rows = slots.copy(), []
    for i in range(count):
        random = np.random.default_rng(draw(st.integers(0, 1000)))
        has_run = draw(st.booleans())
        held = [draw(st.integers(0, int(most))) if has_run else 0 for most in free]
        free -= np.array(held, dtype=np.int64)
        start = float(draw(st.sampled_from([8, 64])))
        more: dict[str, Any] = {"start_rows": start, "rows_most": start * draw(st.sampled_from([1, 3, 16]))}
        more |= {"held": tuple(held), "batch_rows": start * max(sum(held), 1) if has_run else 0.0}
        more["rows_most"] = max(more["rows_most"], more["batch_rows"])
        more["passes_since_change"] = draw(st.integers(0, 2))
        if not has_run:
            more |= {
                "rows_done": 0.0,
                "passes_done": 0,
                "executed_seconds": 0.0,
                "attained_slot_seconds": 0.0,
            }
        if draw(st.booleans()):
            more["speed"] = ()
        rows.append(random_gang(f"job {i}", random, **more))
    names = tuple(f"node {i}" for i in range(nodes))
    return SlotView(200.0, Nodes(names, slots, alive), Gangs.of(rows, nodes), arrivals_per_second=0.01)
