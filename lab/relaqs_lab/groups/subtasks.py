"""What is known of jobs that compute and communicate in turns: one column an attribute."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray


class Phase(IntEnum):
    """Where a job is on its way. The order is that in which Harmony considers jobs.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1, line 2, which names three of them without an order.
    """

    RUNNING = 0
    PAUSED = 1
    PROFILED = 2  # waits, and its times are known
    NEW = 3  # waits or is being profiled, and its times are not known


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """One job, as a row of `Subtasks`, with what a job mostly has. Attributes as there."""

    id: str
    comp_machine_seconds: float = np.nan
    comm_seconds: float = np.nan
    comp_fixed_seconds: float = 0.0
    comm_fixed_seconds: float = 0.0
    input_bytes: float = 0.0
    model_bytes: float = 0.0
    decode_seconds_per_byte: float = 0.0
    arrival_seconds: float = 0.0
    phase: Phase = Phase.PROFILED
    iterations_left: float = np.nan
    loss: float = np.nan
    loss_fall: float = np.nan
    weight: float = 1.0
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Subtasks:
    """J jobs, columns of shape (J,). Times are of one iteration, NaN where they are not known.

    Attributes:
        comp_machine_seconds: W, the computing that is divided by the machines of a group.
        comp_fixed_seconds: the computing that is not divided.
        comm_seconds: N, PULL and PUSH together on very many machines. On m they take N·(1 − 1/m): a machine
            sends itself nothing.
        comm_fixed_seconds: what PULL and PUSH take on any number of machines.
        input_bytes: the rows of all machines together, as they lie in memory.
        model_bytes: the parameters of all machines together.
        decode_seconds_per_byte: what it takes to use a byte that comes from the disk.
        phase: one of `Phase`.
        iterations_left: to the end, NaN where no one knows.
        loss: now, where it is 1 at the start and 0 at the end; NaN where no one knows.
        loss_fall: by which the next iteration is predicted to lower it, NaN where no one knows.
        weight: how much a job counts.
        waited_seconds: in no group since it came, in all.

    Raises:
        ValueError: two jobs have one name, the columns have different lengths, or a value is negative.

    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 30.0, 8.0)])
    >>> jobs.comp_machine_seconds.tolist(), len(jobs)
    ([60.0, 30.0], 2)
    """

    ids: tuple[str, ...]
    arrival_seconds: FloatArray
    phase: IntArray
    comp_machine_seconds: FloatArray
    comp_fixed_seconds: FloatArray
    comm_seconds: FloatArray
    comm_fixed_seconds: FloatArray
    input_bytes: FloatArray
    model_bytes: FloatArray
    decode_seconds_per_byte: FloatArray
    iterations_left: FloatArray
    loss: FloatArray
    loss_fall: FloatArray
    weight: FloatArray
    waited_seconds: FloatArray

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two jobs have the same id; give each job a name of its own")
        for name in _columns():
            values = getattr(self, name)
            if values.shape != (count,):
                raise ValueError(f"{name} has shape {values.shape} for {count} jobs; it must be ({count},)")
            if name != "arrival_seconds" and (values < 0).any():
                worst = int(np.argmin(np.where(np.isnan(values), np.inf, values)))
                raise ValueError(
                    f"{name} of job {self.ids[worst]!r} is {values[worst]:g}; give 0 or more, or NaN where "
                    "it is not known"
                )

    @classmethod
    def of(cls, rows: list[SubtaskTimes]) -> Subtasks:
        """Return the columns of some rows."""
        columns: dict[str, Any] = {
            name: np.array(
                [getattr(row, name) for row in rows], dtype=np.int64 if name == "phase" else np.float64
            )
            for name in _columns()
        }
        return cls(ids=tuple(row.id for row in rows), **columns)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_known(self) -> BoolArray:
        """Whose times are known, shape (J,)."""
        return ~(np.isnan(self.comp_machine_seconds) | np.isnan(self.comm_seconds))

    def of_jobs(self, chosen: BoolArray | IntArray) -> Subtasks:
        """Return some of the jobs: a mask of shape (J,), or their positions."""
        positions = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        columns = {name: getattr(self, name)[positions] for name in _columns()}
        return Subtasks(ids=tuple(self.ids[i] for i in positions.tolist()), **columns)


def _columns() -> list[str]:
    return [each.name for each in fields(Subtasks) if each.name != "ids"]
