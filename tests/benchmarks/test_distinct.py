"""The benchmark of COUNT(DISTINCT) folds values as the product does, and says what was promised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.layouts import shuffle

from benchmarks import distinct, record
from benchmarks.distinct import Occurrences, occurrences


def test_values_seen_and_seen_once_after_each_mini_batch() -> None:
    # Value 0: one unit in partition 0, two in 2. Value 1: two in 1. 2: one in 2. 3: one in 0, one in 1.
    found = Occurrences(np.array([0, 2, 3, 4]), np.array([0, 2, 1, 2, 0, 1]), np.array([1, 2, 2, 1, 1, 1]))
    seen, once = found.seen_and_once(np.array([0, 1, 2]), 3)
    assert (seen.tolist(), once.tolist()) == ([2, 3, 4], [2, 1, 1])
    seen, once = found.seen_and_once(np.array([0, 0, 1]), 1)  # the last partition is left out
    assert (seen.tolist(), once.tolist()) == ([3], [1])


@pytest.mark.parametrize("key", [None, "k"])
def test_occurrences_count_units_by_partition_and_leave_null_out(tmp_path: Path, key: str | None) -> None:
    table = pa.table(
        {"k": [i // 3 for i in range(300)], "v": [None if i % 7 == 0 else i % 5 for i in range(300)]}
    )
    layout = shuffle(table, tmp_path / "t", partitions=6, cluster_by=key)
    found = occurrences(layout, "v")
    assert found.values == 5
    values = [v for v in table.column("v").to_pylist() if v is not None]
    # Three rows in a row have different values, so a value's units are its rows either way.
    assert found.units.sum() == len(values)
    assert set(found.partition) <= set(range(6))


def test_it_says_whether_the_promise_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(distinct, "ROWS", 20_000)
    monkeypatch.setattr(distinct, "UNITS", {"tpch": ()})
    distinct.main(["--data", str(tmp_path), "--raw", str(tmp_path), "--seeds", "10"])
    [path] = (tmp_path / "results").iterdir()
    lines = json.loads(path.read_text(encoding="utf-8"))["columns"]
    assert [line["column"] for line in lines][:2] == ["uniform", "zipf_1_1"]
    assert all(min(line["held"]) >= 0.9 for line in lines)  # 9 of 10: the promise is 95 of 100
    assert "all_once" in capsys.readouterr().out
