"""What a worker keeps: within the budget, never pushed out while in use, and gone when nobody asks."""

from __future__ import annotations

import time

import numpy as np

from relaqs.training.row_cache import Kept, byte_count

ARRAY = np.zeros(100)  # 800 bytes
LONG_AGO, NOW = -1.0, float("inf")


def arrays(version: int = 0) -> dict[str, tuple[int, np.ndarray]]:
    return {"rows": (version, ARRAY)}


def test_it_gives_back_what_was_put() -> None:
    kept = Kept(byte_count)
    kept.put("run", 3, arrays(7), budget_bytes=1000)
    found = kept.get("run", 3)
    assert found is not None
    assert found["rows"][0] == 7
    assert kept.get("run", 4) is None
    assert kept.get("other", 3) is None


def test_the_budget_holds_and_what_came_first_stays() -> None:
    kept = Kept(byte_count)
    for partition in range(5):
        kept.put("run", partition, arrays(), budget_bytes=2000)
    assert kept.byte_count == 1600
    assert [partition for partition in range(5) if kept.get("run", partition)] == [0, 1]


def test_another_run_does_not_push_out_one_in_use() -> None:
    kept = Kept(byte_count)
    kept.put("one", 0, arrays(), budget_bytes=800)
    kept.put("two", 0, arrays(), budget_bytes=800)
    assert kept.get("one", 0) is not None
    assert kept.get("two", 0) is None


def test_a_new_version_takes_the_place_of_the_old() -> None:
    kept = Kept(byte_count)
    kept.put("run", 0, arrays(1), budget_bytes=800)
    kept.put("run", 0, arrays(2), budget_bytes=800)
    assert kept.byte_count == 800
    assert kept.get("run", 0) == arrays(2)


def test_a_new_version_that_does_not_fit_leaves_nothing_outdated() -> None:
    kept = Kept(byte_count)
    kept.put("run", 0, arrays(1), budget_bytes=800)
    kept.put("run", 0, {"rows": (2, np.zeros(1000))}, budget_bytes=800)
    assert kept.get("run", 0) is None
    assert kept.byte_count == 0


def test_what_nobody_used_lately_goes() -> None:
    kept = Kept(byte_count)
    kept.put("old", 0, arrays(), budget_bytes=2000)
    between = time.monotonic()
    kept.put("new", 0, arrays(), budget_bytes=2000)
    kept.drop_unused_since(LONG_AGO)
    assert kept.byte_count == 1600
    kept.drop_unused_since(between)
    assert kept.get("old", 0) is None
    assert kept.get("new", 0) is not None
    kept.drop_unused_since(NOW)
    assert kept.byte_count == 0


def test_forgetting_a_run() -> None:
    kept = Kept(byte_count)
    kept.put("run", 0, arrays(), budget_bytes=800)
    kept.forget("run")
    kept.forget("run")
    assert kept.byte_count == 0


def test_what_came_last_can_be_let_go() -> None:
    kept = Kept(byte_count)
    assert kept.newest("run") is None
    for partition in (4, 2):
        kept.put("run", partition, arrays(), budget_bytes=2000)
    assert kept.newest("run") == (2, arrays())
    kept.drop("run", 2)
    kept.drop("run", 2)
    kept.drop("other", 2)
    assert kept.newest("run") == (4, arrays())
    assert kept.byte_count == 800
