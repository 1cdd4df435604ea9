"""Amounts of memory, as people write them and as the machine has them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from relaqs import memory
from relaqs.arguments import ArgumentError
from relaqs.memory import machine_memory_bytes, memory_bytes, result_bytes


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
GivesBack().look(limit_bytes=1)
print(before, resident_bytes())
"""


def test_memory_is_given_back_now_and_then_where_the_process_has_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, resident, trims = [0.0], [500], list[int]()

    def trim(kept_bytes: int) -> int:
        trims.append(kept_bytes)
        now[0] += 0.1
        return 1

    monkeypatch.setattr(memory, "_trim", lambda: trim)
    monkeypatch.setattr(memory, "resident_bytes", lambda: resident[0])
    gives = memory.GivesBack(lambda: now[0])
    assert not gives.look(limit_bytes=500)
    resident[0] = 501
    assert not gives.look(limit_bytes=500)  # it has just looked
    now[0] += memory.LOOK_SECONDS
    assert gives.look(limit_bytes=500)
    now[0] += 1.9  # it took 0.1 s: a twentieth of the time at most
    assert not gives.look(limit_bytes=500)
    now[0] += 0.2
    assert gives.look(limit_bytes=500)
    assert trims == [0, 0]


@pytest.mark.skipif(memory._trim() is None, reason="the C library cannot give memory back")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    said = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True).stdout
    before, after = map(int, said.split())
    assert before - after > 100 << 20


def test_memory_is_looked_at_once_more_after_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = threading.Event()
    monkeypatch.setattr(memory, "LATER_SECONDS", 0.01)
    monkeypatch.setattr(memory, "_trim", lambda: lambda kept_bytes: trimmed.set())
    monkeypatch.setattr(memory, "resident_bytes", lambda: 501)
    gives = memory.GivesBack()
    gives.look_later(limit_bytes=501)
    assert not trimmed.wait(0.1)
    gives.look_later(limit_bytes=500)
    assert trimmed.wait(60)
