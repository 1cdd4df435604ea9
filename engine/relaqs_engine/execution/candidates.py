"""The groups that a ranked answer may have, and the number of all groups, in one statement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.execution.membership import Candidates
from relaqs_engine.execution.room import room_of
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import ROWS, outlier_column

_PASSES = "passes_having"
_GROUPS, _LEAST = "crowd_groups", "crowd_least_rows"


@dataclass(frozen=True, slots=True)
class Crowd:
    """All groups that were seen.

    Attributes:
        rows: the joined rows seen of those that are candidates, shape (groups,).
        groups: how many groups there are.
        least_rows: the fewest rows of any group.
    """

    rows: FloatArray
    groups: int = 0
    least_rows: float = 0.0

    @property
    def are_all_known(self) -> bool:
        return len(self.rows) == self.groups

    @property
    def most_rows(self) -> float:
        return float(self.rows.max(initial=0.0))


def candidates_sql(plan: MergePlan, merged: str) -> str:
    """Return the estimate of the groups that pass HAVING or nearly do, with the whole crowd beside it.

    `merged` is the query of merged groups, with the scale as its parameter.
    """
    crowd = {_GROUPS: "count(*)", _LEAST: f"coalesce(min({ROWS}), 0)"}
    beside = ", ".join(f"(SELECT {value} FROM merged) AS {name}" for name, value in crowd.items())
    found = f"SELECT *, TRUE AS {_PASSES}, {beside} FROM ({plan.texts.estimate})"
    if plan.texts.near:
        found += f" UNION ALL SELECT *, FALSE AS {_PASSES}, {beside} FROM ({plan.texts.near})"
    return f"WITH merged AS MATERIALIZED ({merged}) {found}"


def crowd_of(point: pa.Table) -> Crowd:
    """Return what the columns beside the candidates say. They are the same in every row."""
    rows = doubles(point.column(ROWS), null=0.0)
    if _GROUPS not in point.column_names or not point.num_rows:
        return Crowd(rows)
    groups, least = (point.column(name)[0].as_py() for name in (_GROUPS, _LEAST))
    return Crowd(rows, groups, float(least))


def candidates_of(point: pa.Table) -> Candidates:
    """Return the candidates of an estimate: its groups, with those that pass HAVING first."""
    passes = np.ones(point.num_rows, dtype=bool)
    if _PASSES in point.column_names:
        passes = doubles(point.column(_PASSES)) > 0
    assert not np.any(passes[1:] & ~passes[:-1]), "a group that passes HAVING stands behind one that does not"
    crowd = crowd_of(point)
    prefix = outlier_column("")
    names = [name for name in point.column_names if name.startswith(prefix)]
    outliers = {name.removeprefix(prefix): doubles(point.column(name), null=0.0) for name in names}
    return Candidates(passes, crowd.rows, crowd.least_rows, outliers, room=room_of(point))
