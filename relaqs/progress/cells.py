"""The numbers of one result that define progress: which group each belongs to, and which of them count."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_engine.execution.estimate import Estimate

from relaqs.python_values import python_values


@dataclass(frozen=True, slots=True)
class Cells:
    """The watched cells of one result of G groups and C columns.

    Attributes:
        keys: the groups' keys, each once.
        values: shape (G, C).
        counts: shape (G, C), False for a cell that is left out, e.g. because its group has too few rows yet;
            a value that is not finite is left out as well.
    """

    keys: tuple[Hashable, ...]
    values: FloatArray
    counts: BoolArray

    def __post_init__(self) -> None:
        if self.values.shape != self.counts.shape or len(self.keys) != len(self.values):
            raise ValueError(
                f"{len(self.keys)} keys, values {self.values.shape} and counts {self.counts.shape} "
                "do not fit; they must be G keys, (G, C) and (G, C)"
            )
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("two groups have the same key; give each row of the result a key of its own")


def cells_of(estimate: Estimate, watch: tuple[str, ...] | None = None) -> Cells:
    """Return the watched cells of an estimate; without `watch`, every approximate column is watched.

    Groups are told apart by the columns that are not approximate. Cells that are not certified, because their
    group has too few rows or their replicates are far from normal, do not count. Raises ValueError naming the
    approximate columns if `watch` names another.
    """
    names = [column.name for column in estimate.approximate]
    unknown = sorted(set(watch or ()) - set(names))
    if unknown:
        raise ValueError(f"{unknown} cannot be watched; the approximate columns are {names}")
    chosen = [index for index, name in enumerate(names) if watch is None or name in watch]
    return Cells(
        keys=_row_keys(estimate),
        values=estimate.values[:, chosen],
        counts=estimate.certified[:, chosen] & np.isfinite(estimate.values[:, chosen]),
    )


def _row_keys(estimate: Estimate) -> tuple[Hashable, ...]:
    """Return each row's key: its exact columns as text, and which of the equal ones it is, from 0.

    As text, because a key may hold lists, which do not hash, or a NaN, which does not equal itself.
    """
    approximate = {column.position for column in estimate.approximate}
    exact = [
        python_values(estimate.table.column(i)) for i in range(len(estimate.columns)) if i not in approximate
    ]
    rows = [repr(row) for row in zip(*exact, strict=True)] if exact else [""] * estimate.table.num_rows
    seen: dict[str, int] = {}
    keys = []
    for row in rows:
        seen[row] = seen.get(row, -1) + 1
        keys.append((row, seen[row]))
    return tuple(keys)
