"""Files of records: whatever ends a run, what was measured is kept and what is broken is named."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.checksums import seal
from relaqs_lab.records import RecordFile, ScheduleRun
from relaqs_lab.records.comparison import compare, settings
from relaqs_lab.simulation.simulator import Options
from relaqs_lab.simulation.study import Case, JobMix, run_case


def number(content: Mapping[str, Any]) -> int:
    return int(content["number"])


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    file = RecordFile(tmp_path / "new" / "some.jsonl")
    for count in range(3):
        file.append("count", {"number": count, "odd": float("inf")})
    return file


def test_records_come_back_in_order_and_by_kind(file: RecordFile) -> None:
    file.append("other", {"number": 9})
    assert list(file.read("count", number)) == [0, 1, 2]
    assert list(file.read("other", number)) == [9]
    first = json.loads(file.path.read_text().splitlines()[0])
    checksum = first.pop("xxh3")
    assert first == {"schema": 2, "record": "count", "number": 0, "odd": None}
    assert len(checksum) == 16


def test_a_record_of_before_checksums_is_read(file: RecordFile) -> None:
    with open(file.path, "a") as old:
        old.write('{"schema":1,"record":"count","number":3}\n')
    assert list(file.read("count", number)) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_flipped_bit_is_found_wherever_it_is(file: RecordFile) -> None:
    written = file.path.read_bytes()
    last_newline = len(written) - 1  # without it the last record was not yet written
    for bit in range(8 * last_newline):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{file.path}, line [123]"):
            list(file.read("count", number))


def test_a_file_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert list(RecordFile(tmp_path / "none.jsonl").read("count", number)) == []


def test_a_line_torn_by_a_crash_is_no_record_and_makes_way_for_the_next(file: RecordFile) -> None:
    with open(file.path, "a") as torn:
        torn.write('{"schema":1,"record":"count","num')
    assert list(file.read("count", number)) == [0, 1, 2]
    file.append("count", {"number": 3})
    assert list(file.read("count", number)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "Expecting value"),
        ("[1, 2]", "no object with `schema` and `record`"),
        ('{"schema":1,"record":"count"}', "KeyError: 'number'"),
        ('{"schema":1,"record":"count","number":"many"}', "ValueError"),
        ('{"schema":2,"record":"count","number":1}', "it has no checksum"),
        ('{"schema":2,"record":"count","number":1, "xxh3": "0"}', "bytes that were written"),
        (seal('{"schema":3,"record":"count"}').decode(), "schema 3, written by a later version"),
    ],
)
def test_a_broken_line_is_named(file: RecordFile, line: str, message: str) -> None:
    with open(file.path, "a") as broken:
        broken.write(line + "\n")
    with pytest.raises(DataError, match=message) as raised:
        list(file.read("count", number))
    assert f"{file.path}, line 4" in str(raised.value)


def test_a_full_disk_is_said_and_leaves_the_records_whole(
    file: RecordFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="no room on the disk"):
            file.append("count", {"number": 3})
    assert list(file.read("count", number)) == [0, 1, 2]
    assert file.path.read_bytes().endswith(b"\n")


def case(policy: str, seed: int = 0) -> Case:
    return Case(policy, seed, 6, 10.0, JobMix(core_seconds=300.0), 16.0, Options(2.0))


def test_a_run_comes_back_from_its_record(tmp_path: Path) -> None:
    run = run_case(case("index"), {"command": "made by a test"}, lambda: 0.0)
    assert run.key == case("relaqs").key
    file = RecordFile(tmp_path / "runs.jsonl")
    file.append(ScheduleRun.kind_of_record, run.as_record())
    [back] = file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record)
    assert back.key == run.key
    assert back.circumstances == {"command": "made by a test"}
    for mine, its in (
        (run.mean_level_seconds, back.mean_level_seconds),
        (run.jobs.reduced_seconds, back.jobs.reduced_seconds),
        (run.series.third_shares, back.series.third_shares),
    ):
        assert its == pytest.approx(mine, rel=1e-8)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("jobs", "reduced_seconds", [[1.0, 2.0]]),
        ("jobs", "first_seconds", [1.0]),
        ("series", "mean_error", [1.0]),
        ("series", "third_shares", [[], [], []]),
    ],
)
def test_a_schedule_whose_columns_do_not_fit_is_named(
    tmp_path: Path, part: str, name: str, value: object
) -> None:
    record = run_case(case("fair"), {}, lambda: 0.0).as_record()
    file = RecordFile(tmp_path / "runs.jsonl")
    file.append(ScheduleRun.kind_of_record, {**record, part: {**record[part], name: value}})
    with pytest.raises(DataError, match="line 1: not a record"):
        list(file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record))


def test_the_same_case_gives_the_same_record() -> None:
    first, again = (run_case(case("index"), {}, lambda: 0.0).as_record() for _ in range(2))
    assert repr(first) == repr(again)


def test_policies_are_compared_by_seed_with_fair_sharing() -> None:
    runs = [run_case(case(name, seed), {}, lambda: 0.0) for name in ("index", "fair") for seed in (0, 1)]
    [group] = settings([*runs, runs[0]])  # a run recorded twice counts once
    fair, index = compare(group)
    assert (fair.policy, len(fair.runs), index.policy, len(index.runs)) == ("fair", 2, "index", 2)
    assert fair.error_change.mean == 0.0
    assert fair.crossing.mean == 1.0
    assert fair.worst_job.mean == 1.0
    by_hand = [
        run.jobs.error_seconds.mean() / other.jobs.error_seconds.mean() - 1
        for run, other in zip(runs[:2], runs[2:], strict=True)
    ]
    assert index.error_change.mean == pytest.approx(np.mean(by_hand))
    assert index.error_change.standard_error == pytest.approx(np.std(by_hand, ddof=1) / np.sqrt(2))
