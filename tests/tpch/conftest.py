"""Records that tests share, made once: runs alone, and schedules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from relaqs_tpch import data

from tests.made_once import made_once
from tests.tpch.command_line import MIX, run

ALONE = ("Q1", "Q2", "Q6", "linear regression", "K-Means")


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the tables as they were generated, a folder for each scale and purpose."""
    return tmp_path_factory.mktemp("generated")


@pytest.fixture(scope="module", autouse=True)
def generated_once(generated: Path) -> Iterator[None]:
    """Generate each table of a scale once: the generator takes a second of a core before it begins."""
    generate = data.write_tables

    def write(
        tables: Sequence[str],
        scale: float,
        into: Path,
        on_bytes: Callable[[int], None] = lambda written: None,
        is_temporary: bool = False,
    ) -> None:
        place = generated / f"{scale}-{is_temporary}"
        place.mkdir(exist_ok=True)
        if missing := [name for name in tables if not (place / f"{name}.parquet").exists()]:
            generate(missing, scale, place, on_bytes, is_temporary)
        for name in tables:
            shutil.copy(place / f"{name}.parquet", into)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "write_tables", write)
        yield


@pytest.fixture(scope="session")
def runs(tpch_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recorded runs of ALONE; tests that add to it take a copy."""

    def make(out: Path) -> None:
        code, output = run(
            "tpch", "run", "--data", str(tpch_warehouse), "--queries", "1,2,6",
            "--training", ";".join(ALONE[3:]), "--out", str(out), "--format", "jsonl",
        )  # fmt: skip
        assert code == 0, output
        assert [json.loads(line)["name"] for line in output.splitlines()] == list(ALONE)

    return made_once(tmp_path_factory, "runs", make)


@pytest.fixture(scope="session")
def schedules(tpch_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recorded schedules: two policies, two arrivals, one seed, queries and training.

    Tests that add to it take a copy.
    """

    def make(out: Path) -> None:
        code, output = run(
            "tpch", "schedule", "--data", str(tpch_warehouse),
            *MIX, "--policies", "fair,relaqs", "--out", str(out)
        )  # fmt: skip
        assert code == 0, output
        assert "index (relaqs)" in output

    return made_once(tmp_path_factory, "schedules", make)
