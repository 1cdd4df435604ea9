"""Amounts of memory, as people write them and as the machine has them."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb  # noqa: F401 - its allocator is asked
import pytest

from relaqs import memory
from relaqs.arguments import ArgumentError
from relaqs.memory import machine_memory_bytes, memory_bytes, resident_bytes_of_duckdb, result_bytes


@pytest.mark.parametrize(
    ("amount", "count"),
    [
        (10**9, 10**9),
        ("1000000000", 10**9),
        ("4GB", 4 * 10**9),
        ("4 gb", 4 * 10**9),
        ("1.5T", 1_500_000_000_000),
        ("512MiB", 512 << 20),
        ("2 GiB", 2 << 30),
    ],
)
def test_amounts(amount: int | str, count: int) -> None:
    assert memory_bytes(amount) == count


@pytest.mark.parametrize("amount", ["", "GB", "4 XB", "-4GB", "4GBB", "255MiB", 0, 1000, True])
def test_what_is_no_amount_or_too_little(amount: int | str) -> None:
    with pytest.raises(ArgumentError, match="memory_limit is"):
        memory_bytes(amount)


def test_the_machine_has_some() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 64 << 20 < machine_memory_bytes() <= physical


def test_what_a_result_may_take_can_be_small() -> None:
    assert result_bytes("64MB") == 64 * 10**6
    with pytest.raises(ArgumentError, match="at least 1 MiB"):
        result_bytes(1000)


FREED = """
import threading
from relaqs.memory import GivesBack, resident_bytes
def fill():
    kept, pinned = [b"x" * 60_000 for _ in range(3_000)], []
    pinned.append(b"x" * 60_000)  # behind the others, so that they stay in the thread's arena
    del kept
    return pinned
pinned = []
threads = [threading.Thread(target=lambda: pinned.append(fill())) for _ in range(2)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
before = resident_bytes()
GivesBack().now()
print(before, resident_bytes())
"""


def test_memory_is_given_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, trims = [0.0], list[int]()

    def trim(kept_bytes: int) -> int:
        trims.append(kept_bytes)
        now[0] += 0.1
        return 1

    monkeypatch.setattr(memory, "_trim", lambda: trim)
    gives = memory.GivesBack(lambda: now[0])
    assert gives.now()
    now[0] += 1.9  # it took 0.1 s: a twentieth of the time at most
    assert not gives.now()
    now[0] += 0.2
    assert gives.now()
    now[0] += 0.3
    assert not gives.now(share=0.25)
    now[0] += 0.2
    assert gives.now(share=0.25)
    assert trims == [0, 0, 0]


@pytest.mark.skipif(memory._trim() is None, reason="the C library cannot give memory back")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    said = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True).stdout
    before, after = map(int, said.split())
    assert before - after > 100 << 20


SORTED = """
import duckdb
from relaqs.memory import GivesBack, resident_bytes
with duckdb.connect(config={"threads": 2}) as connection:
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SELECT max(y) FROM (SELECT y FROM (SELECT hash(x) AS y FROM range(10000000) AS t(x))"
                       " ORDER BY y LIMIT 9000000)").fetchall()
    before = resident_bytes()
    GivesBack().now()
    print(before, resident_bytes())
"""


@pytest.mark.skipif(resident_bytes_of_duckdb() is None, reason="DuckDB has no allocator of its own here")
def test_what_duckdb_has_freed_goes_back_to_the_system() -> None:
    said = subprocess.run([sys.executable, "-c", SORTED], capture_output=True, text=True, check=True).stdout
    before, after = map(int, said.split())
    assert before - after > 50 << 20
