"""Amounts of memory, as people write them and as the machine has them."""

from __future__ import annotations

import os

import pytest

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
