"""Programs that write tables, killed at drawn moments: a whole table is there, and no rubbish in the end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from benchmarks.layout_kills import WAYS, FoundWrongError, Kill, LaidOut, kills


def killed(count: int, signal_number: signal.Signals, folder: Path) -> list[Kill]:
    found = list(kills(count, 7, 100_000, signal_number, folder))
    assert {each.way for each in found} == {way.__name__ for way in WAYS}
    assert [each for each in found if each.left_at_last] == []
    return found


@pytest.mark.slow
def test_killed_programs_leave_whole_tables(tmp_path: Path) -> None:
    found = killed(60, signal.SIGKILL, tmp_path)
    assert any(each.left_by_it for each in found)  # else nothing was killed in the middle


@pytest.mark.slow
def test_programs_that_are_interrupted_leave_nothing_behind_at_once(tmp_path: Path) -> None:
    found = killed(30, signal.SIGINT, tmp_path)
    assert [each for each in found if each.left_by_it] == []


def test_a_damaged_layout_is_found(tmp_path: Path) -> None:
    laid_out = LaidOut(tmp_path / "t", 20_000)
    laid_out.prepare()
    laid_out.check()
    assert laid_out.rubbish() == []
    partition = next(laid_out.cache.rglob("part-00003.parquet"))
    (partition.parent / ".rubbish").write_text("x")
    assert len(laid_out.rubbish()) == 1
    partition.write_bytes(partition.read_bytes()[:-1] + b"?")
    with pytest.raises(FoundWrongError, match="is not what was written"):
        laid_out.check()
