"""Records that tests share, made once: runs alone, and schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tpch.command_line import MIX, run

ALONE = ("Q1", "Q2", "Q6", "linear regression", "K-Means")


@pytest.fixture(scope="session")
def runs(tpch_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recorded runs of ALONE; tests that add to it take a copy."""
    out = tmp_path_factory.mktemp("runs")
    code, output = run(
        "tpch", "run", "--data", str(tpch_warehouse), "--queries", "1,2,6", "--training", ";".join(ALONE[3:]),
        "--out", str(out), "--format", "jsonl",
    )  # fmt: skip
    assert code == 0, output
    assert [json.loads(line)["name"] for line in output.splitlines()] == list(ALONE)
    return out


@pytest.fixture(scope="session")
def schedules(tpch_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recorded schedules: two policies, two arrivals, one seed, queries and training.

    Tests that add to it take a copy.
    """
    out = tmp_path_factory.mktemp("schedules")
    code, output = run(
        "tpch", "schedule", "--data", str(tpch_warehouse),
        *MIX, "--policies", "fair,relaqs", "--out", str(out)
    )  # fmt: skip
    assert code == 0, output
    assert "index (relaqs)" in output
    return out
