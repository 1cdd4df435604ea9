"""Writes that fail in the middle: each takes room, and a refusal is an error that speaks of what failed."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from relaqs_engine.errors import DataError, LayoutError, RelaqsError, StoreError

from benchmarks import failing_writes
from benchmarks.failing_writes import (
    ENOUGH,
    ON_DISK,
    Held,
    NotKeptError,
    OnDisk,
    attempt,
    check_disk,
    check_ends,
    disk_at,
    speaks_of,
    speaks_of_the_disk,
)
from tests.store_server import Fault

OFF, NOT_THERE = speaks_of(Fault("reset")), speaks_of(Fault("status", status=404))


@pytest.mark.parametrize("way", ON_DISK, ids=lambda way: way.name)
def test_each_way_writes_something_where_there_is_room(way: OnDisk, tmp_path: Path) -> None:
    disk, held = disk_at(tmp_path), Held()
    way.prepare(disk)
    before = disk.files()
    end = attempt(held, way.name, "room", lambda: way.write(disk), speaks_of_the_disk)
    check_disk(held, way, disk, end, before)
    assert (end, held.faults) == ("done", [])
    written = sum(path.stat().st_size for path in disk.files() - before)
    assert way.needed_bytes / 2 <= written <= way.needed_bytes * 1.1


@pytest.mark.parametrize(
    ("error", "is_meant", "end"),
    [
        (LayoutError("the disk of /d is full: 0 MB had been written"), speaks_of_the_disk, "refused"),
        (DataError("there is no room on the disk (…); free some"), speaks_of_the_disk, "refused"),
        (RelaqsError(os.strerror(errno.ENOSPC)), speaks_of_the_disk, "refused"),
        (LayoutError("{…} names tables; give it as connect(tables=…)"), speaks_of_the_disk, "fault"),
        (OSError(errno.ENOSPC, "full"), speaks_of_the_disk, "fault"),
        (StoreError("s3://b cannot be reached"), OFF, "refused"),
        (LayoutError("s3://b/t may not be read or written with these"), OFF, "refused"),
        (LayoutError("s3://b holds no tables; lay one out"), NOT_THERE, "refused"),
        (LayoutError("s3://b holds no tables; lay one out"), OFF, "fault"),
        (LayoutError("{…} names tables; give it as connect(tables=…)"), OFF, "fault"),
        (NotKeptError(), speaks_of_the_disk, "not kept"),
    ],
)
def test_an_error_of_ours_is_a_refusal_where_it_speaks_of_what_failed(
    error: Exception, is_meant: Callable[[RelaqsError], bool], end: str
) -> None:
    def write() -> None:
        raise error

    held = Held()
    assert attempt(held, "a kind", "here", write, is_meant) == end
    assert len(held.faults) == (end == "fault")


@pytest.mark.parametrize(
    ("ends", "faults"),
    [
        ({"refused": ENOUGH}, ["append · all rounds were refused"]),
        ({"done": ENOUGH}, ["append · all rounds were done"]),
        ({"done": ENOUGH, "refused": 1}, []),
        ({"done": ENOUGH - 1}, []),
    ],
)
def test_a_kind_whose_rounds_all_ended_alike_is_a_fault(ends: dict[str, int], faults: list[str]) -> None:
    held = Held(Counter({("append", end): times for end, times in ends.items()}))
    check_ends(held)
    assert held.faults == faults


def test_what_was_not_kept_stands_with_what_was_refused() -> None:
    held = Held(Counter({("checkpoint", "done"): 3, ("checkpoint", "not kept"): 2}))
    assert failing_writes._rows_of(held)[1] == ("checkpoint", "5", "3", "2", "0")
