"""`relaqs cache` as a user runs it: what is listed, what goes, what stays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from relaqs_engine.stores import mirror
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.object_folder import store_folder

import relaqs
from relaqs.cli import program

Run = Callable[..., Result]
TOTAL = "SELECT sum(id) AS total FROM trips"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `relaqs cache` in a folder of its own, whose cache has two tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAQS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("trips", "zones"):
        pq.write_table(pa.table({"id": range(20_000)}), f"{name}.parquet")
        with relaqs.connect(f"{name}.parquet") as db:
            db.lay_out(name)
    return lambda *arguments: CliRunner().invoke(program, ["cache", *arguments])


def listed(run: Run) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("ls", "--format", "jsonl").stdout.splitlines()]


def test_ls_shows_what_there_is_and_what_is_stale(run: Run, tmp_path: Path) -> None:
    os.utime(tmp_path / "trips.parquet", ns=(0, 1))
    (tmp_path / "zones.parquet").unlink()
    result = run("ls")
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "20,000" in line]
    assert [[cell.strip() for cell in row[:4]] for row in rows] == [
        [str(tmp_path / "zones.parquet"), "layout", "source gone", "20,000"],
        [str(tmp_path / "trips.parquet"), "layout", "source changed", "20,000"],
    ]
    assert re.fullmatch(rf"{tmp_path / 'cache'}: [\d.]+ kB, no limit", result.stdout.splitlines()[-1])
    assert [(entry["state"], entry["row_count"]) for entry in listed(run)] == [
        ("gone", 20_000),
        ("changed", 20_000),
    ]


def test_rm_takes_names_or_all_or_what_is_stale(run: Run, tmp_path: Path) -> None:
    assert run("rm", "zones").stdout.startswith(f"removed the layout of {tmp_path / 'zones.parquet'} (")
    assert run("rm", "--stale").stdout == "nothing was removed\n"
    os.utime(tmp_path / "trips.parquet", ns=(0, 1))
    assert run("rm", "--stale").exit_code == 0
    assert listed(run) == []
    assert run("rm", "--all").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["rm"], 2, "say what to remove: names or paths, or --stale, or --all"),
        (["rm", "trips", "--all"], 2, "say what to remove"),
        (["rm", "nope"], 1, "there is nothing of 'nope' in the cache"),
        (["limit", "much"], 2, '\'much\' is no size; write it as "20GB", or "none"'),
    ],
)
def test_wrong_words_are_answered_with_what_is_accepted(
    run: Run, arguments: list[str], exit_code: int, message: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, message in result.stderr) == (exit_code, True), result.output
    assert len(listed(run)) == 2


def test_rm_keeps_what_an_open_session_reads(run: Run, tmp_path: Path) -> None:
    with relaqs.connect("trips.parquet"):
        result = run("rm", "--all")
        assert result.exit_code == 1
        assert f"kept the layout of {tmp_path / 'trips.parquet'}" in result.stderr
        assert [entry["is_in_use"] for entry in listed(run)] == [True]
    assert run("rm", "--all").exit_code == 0


def test_limit_is_set_shown_and_lifted(run: Run, tmp_path: Path) -> None:
    assert run("limit").stdout.endswith("no limit\n")
    assert run("limit", "20GB").stdout.endswith("limited to 20.0 GB\n")
    assert len(listed(run)) == 2
    used = run("limit", "100kB").stdout.splitlines()  # enough for one
    assert used[0].startswith(f"removed the layout of {tmp_path / 'trips.parquet'}")
    assert [entry["names"] for entry in listed(run)] == [[str(tmp_path / "zones.parquet")]]
    assert run("limit", "none").stdout.endswith("no limit\n")


@pytest.fixture
def far(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address whose files and tables this machine has copies of."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": range(200_000)}), "trips.parquet")
    address = Address.of(f"{bucket}/data")
    assert address is not None
    store_folder(address).put("trips.parquet", Path("trips.parquet").read_bytes())
    relaqs.shuffle("trips.parquet", f"{bucket}/wh/trips", partitions=4)
    ask(f"{bucket}/wh")
    ask(f"{bucket}/data/trips.parquet")
    return bucket


def ask(data: str) -> None:
    with relaqs.connect(data, threads=1) as db:
        assert db.online_sql(TOTAL).result().table["total"][0].as_py() == sum(range(200_000))


def command(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["cache", *arguments])


def test_copies_of_far_files_are_listed_and_removed(far: str) -> None:
    found = listed(command)
    names = [entry["names"] for entry in found]
    assert names == [[f"{far}/data", f"{far}/data/trips.parquet"], [f"{far}/wh/trips"]]  # the last used first
    assert all((each["kind"], each["state"]) == ("copy", "far") for each in found)
    assert all(int(str(each["byte_count"])) > 200_000 for each in found)
    assert command("rm", "--stale").stdout == "nothing was removed\n"
    assert command("rm", f"{far}/data/trips.parquet").stdout.startswith(f"removed the copy of {far}/data (")
    assert [entry["names"] for entry in listed(command)] == [[f"{far}/wh/trips"]]
    ask(f"{far}/data/trips.parquet")
    ask(f"{far}/wh")
    assert len(listed(command)) == 2


def test_the_limit_counts_copies_of_far_files(far: str, tmp_path: Path) -> None:
    removed = command("limit", "10KB").stdout
    assert f"removed the copy of {far}/wh/trips" in removed
    assert f"removed the copy of {far}/data" in removed
    assert listed(command) == []


def test_what_is_fetched_makes_room_below_the_limit(far: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "_LOCK_GROUPS", 1 << 30)  # a copy may share its lock with one that is read
    (first, second) = listed(command)
    sizes = [int(str(each["byte_count"])) for each in (first, second)]
    assert command("rm", "--all").exit_code == 0
    assert command("limit", str(max(sizes) + 10_000)).exit_code == 0
    ask(f"{far}/wh")
    ask(f"{far}/data/trips.parquet")
    assert [entry["names"] for entry in listed(command)] == [[f"{far}/data", f"{far}/data/trips.parquet"]]
