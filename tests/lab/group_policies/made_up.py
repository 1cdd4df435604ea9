"""Any jobs that compute and communicate at all, for laws of group policies."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from relaqs_lab.groups import Fleet, Group, GroupView, Lost, Phase, Subtasks, SubtaskTimes


def random_subtasks(count: int, seed: int, *, fixed: float = 0.0) -> Subtasks:
    """Return jobs that compute for 20 to 80 % of an iteration on 16 machines, with lognormal times."""
    random = np.random.default_rng(seed)
    seconds, share = random.lognormal(np.log(60.0), 0.9, count), random.uniform(0.2, 0.8, count)
    return Subtasks.of(
        [
            SubtaskTimes(
                f"job {i:04}",
                comp_machine_seconds=float(seconds[i] * share[i] * 16),
                comm_seconds=float(seconds[i] * (1 - share[i])),
                comp_fixed_seconds=fixed * float(random.uniform()),
                comm_fixed_seconds=fixed * float(random.uniform()),
                input_bytes=float(random.uniform(0, 150e9)),
                model_bytes=float(random.uniform(0, 24e9)),
                arrival_seconds=float(i),
                iterations_left=float(random.integers(1, 300)),
            )
            for i in range(count)
        ]
    )


@st.composite
def any_group_view(draw: st.DrawFn) -> GroupView:
    """Up to twelve jobs, some of them unknown, some in groups already, on up to forty machines."""
    count, machines = draw(st.integers(0, 12)), draw(st.integers(1, 40))
    memory = draw(st.sampled_from([np.inf, 32e9, 8e9]))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    fleet = Fleet(machines, memory, draw(st.sampled_from([np.inf, 100e6])))
    names = [f"job {i}" for i in range(count)]
    groups: list[Group] = []
    free, waiting = machines, list(names)
    inputs, models = random.uniform(0, 60e9, count), random.uniform(0, 10e9, count)
    while waiting and free and draw(st.booleans()):
        chosen = tuple(waiting[: draw(st.integers(1, 3))])
        kept = sum(inputs[names.index(job)] + models[names.index(job)] for job in chosen)
        least = max(int(np.ceil(kept / memory)), 1)
        if least > free:
            break
        groups.append(Group(chosen, least))
        free -= least
        waiting = waiting[len(chosen) :]
    rows = []
    for i, name in enumerate(names):
        known = draw(st.booleans())
        running = name not in waiting
        rows.append(
            SubtaskTimes(
                name,
                comp_machine_seconds=float(random.lognormal(6, 1)) if known else np.nan,
                comm_seconds=float(random.lognormal(3, 1)) if known else np.nan,
                comp_fixed_seconds=float(random.uniform(0, 3)),
                comm_fixed_seconds=float(random.uniform(0, 3)),
                input_bytes=float(inputs[i]),
                model_bytes=float(models[i]),
                decode_seconds_per_byte=float(random.uniform(0, 2e-9)),
                arrival_seconds=float(random.uniform(0, 100)),
                phase=Phase.RUNNING if running else Phase.PROFILED if known else Phase.NEW,
                iterations_left=float(random.integers(1, 100)),
            )
        )
    lost = (Lost(0, 300.0, 20.0),) if groups and draw(st.booleans()) else ()
    return GroupView(50.0, fleet, Subtasks.of(rows), tuple(groups), lost)
