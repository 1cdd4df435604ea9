"""Snapshots to look at: revenue by nation, with the numbers a real query gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_engine.execution.estimate import ApproximateColumn

from relaqs.queries.snapshot import Snapshot

NATIONS = ("FRANCE", "GERMANY", "JAPAN", "KENYA", "PERU", "日本国")
REVENUE = (57.1e6, 53.7e6, 53.1e6, 49.5e6, 48.4e6, 33.0e6)


def snapshot(columns: dict[str, Any], approximate: tuple[str, ...] = (), **attributes: Any) -> Snapshot:
    """Return a snapshot, mid-way unless `attributes` say more. columns: with those of the intervals."""
    known: dict[str, Any] = {
        "fraction": 0.42,
        "error": 0.0279,
        "confidence": 0.95,
        "interval": "pointwise",
        "batch": 3,
        "batches": 20,
        "elapsed_seconds": 1.1,
        "is_exact": False,
        "mode": "mergeable",
        "unseen_groups": 0,
    }
    described = tuple(
        ApproximateColumn(x, f"{x}_low", f"{x}_high", f"{x}_certified", list(columns).index(x))
        for x in approximate
    )
    return Snapshot(table=pa.table(columns), columns=described, **(known | attributes))


def revenue(*, copies: int = 1, exact: bool = False, **attributes: Any) -> Snapshot:
    """Return revenue by nation: six rows, the last two not certified. copies: how many revenue columns."""
    names = [f"revenue{i or ''}" for i in range(copies)]
    margin = 0.0 if exact else 0.03
    columns: dict[str, Any] = {"n_name": NATIONS, "year": range(1992, 1998)}
    columns |= dict.fromkeys(names, REVENUE)
    for name in names:
        columns[f"{name}_low"] = [value * (1 - margin) for value in REVENUE]
        columns[f"{name}_high"] = [value * (1 + margin) for value in REVENUE]
        columns[f"{name}_certified"] = [True] * 4 + [exact] * 2
    attributes = {
        "reasons": ("few rows; read on",) * (not exact),
        "doubts": np.array([[0] * copies] * 4 + [[int(not exact)] * copies] * 2),
    } | attributes
    if exact:
        attributes = {"fraction": 1.0, "error": 0.0, "is_exact": True, "batch": 20} | attributes
    return snapshot({k: list(v) for k, v in columns.items()}, tuple(names), **attributes)
