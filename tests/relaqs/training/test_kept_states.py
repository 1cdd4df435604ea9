"""Parameters beyond a worker's budget lie in files: the same bits, and never a wrong one."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from relaqs.executors.files import FOLDER_VARIABLE
from relaqs.training.passes import in_pairs
from relaqs.training.row_cache import KEPT, LIMIT_VARIABLE
from relaqs.training.sharded.shards import KeptStates, PushedSums
from tests.relaqs.training.test_spill import files_of_at_most

STATE = tuple(np.random.default_rng(0).standard_normal((2, 3000, 5)))  # two arrays of 120 KB each


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    KEPT.drop_unused_since(float("inf"))  # rows of other tests, which count as well
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_state_is_in_memory_within_the_budget_and_in_a_file_beyond(folder: Path) -> None:
    kept = KeptStates()
    byte_count = sum(array.nbytes for array in STATE)
    held = [kept.keep(STATE, budget_bytes=2 * byte_count + 1) for _ in range(3)]
    assert (kept.memory_bytes, kept.disk_bytes) == (2 * byte_count, byte_count)
    assert all(np.array_equal(a, b) for state in held for a, b in zip(state.arrays(), STATE, strict=True))
    assert not held[2].arrays()[0].flags.writeable
    assert list(folder.iterdir()) == []  # the file has no name
    del held
    gc.collect()
    assert (kept.memory_bytes, kept.disk_bytes) == (0, 0)


def test_what_is_small_stays_in_memory() -> None:
    kept = KeptStates()
    held = kept.keep((np.ones((10, 10)),), budget_bytes=0)
    assert (held.arrays()[0].sum(), kept.memory_bytes, kept.disk_bytes) == (100.0, 800, 0)


@pytest.mark.parametrize(("limit", "warnings"), [("0", 0), ("100kB", 1)])
def test_where_nothing_more_may_be_written_it_stays_in_memory(
    limit: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, limit)
    kept = KeptStates()
    held = [kept.keep(STATE, budget_bytes=0) for _ in range(2)]
    assert kept.disk_bytes == 0
    assert np.array_equal(held[1].arrays()[1], STATE[1])
    assert caplog.text.count("parameters in shards stay in memory") == warnings


def test_a_disk_that_is_full_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptStates()
    with files_of_at_most(150_000):
        held = kept.keep(STATE, budget_bytes=0)
    assert kept.disk_bytes == 0
    assert np.array_equal(held.arrays()[0], STATE[0])
    assert "File too large" in caplog.text


@pytest.mark.parametrize("senders", [1, 2, 3, 5, 8, 11])
def test_sums_are_added_in_the_tree_of_all_passes(senders: int) -> None:
    draws = np.random.default_rng(senders)
    parts = [draws.standard_normal((300, 50)) * 10.0**i for i in range(senders)]
    kept = KeptStates()
    sums = PushedSums(senders, lambda state: kept.keep(state, budget_bytes=0))
    for sender in (*draws.permutation(senders), 0):
        assert kept.disk_bytes <= senders * parts[0].nbytes
        sums.hear(int(sender), parts[sender])
    assert sums.is_whole
    assert np.array_equal(sums.total(), in_pairs(parts, lambda one, other: one + other))
    del sums
    gc.collect()  # a file goes with the last object that holds it
    assert kept.disk_bytes == 0
