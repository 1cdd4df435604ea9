"""The equations and rules of ONES against numbers computed by hand: tests/fixtures/ones."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from relaqs.sharing.gangs import Gang, Gangs
from relaqs.slot_policies.ones import (
    BatchLimits,
    SlotSeconds,
    counts,
    rows_left,
    scores,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "ones"


def cases(table: str) -> list[dict[str, str]]:
    lines = (FIXTURES / table).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("case", cases("counts.csv"), ids=lambda case: case["schedule"])
def test_slots_are_counted(case: dict[str, str]) -> None:
    genes = np.array([[".ABC".index(gene) - 1 for gene in case["schedule"].split()]])
    assert counts(genes, jobs=3).tolist() == [[int(case["a"]), int(case["b"]), int(case["c"])]]


@pytest.mark.parametrize("case", cases("remaining.csv"), ids=lambda case: case["rows_left"])
def test_what_remains(case: dict[str, str]) -> None:
    rows = rows_left(np.array([float(case["rows_done"])]), np.array([float(case["progress"])]))
    assert rows.tolist() == pytest.approx([float(case["rows_left"])])


@pytest.mark.parametrize("case", cases("scores.csv"), ids=lambda case: case["jobs"] or "nothing runs")
def test_the_score_of_a_schedule(case: dict[str, str]) -> None:
    """A job whose time left is T has T rows left at one row a second; a last job waits, whatever it needs."""
    jobs = [tuple(map(int, each.split("x"))) for each in case["jobs"].split()]
    rows = np.array([*(float(seconds) for seconds, _ in jobs), 1e6])
    genes = np.repeat(np.arange(len(jobs)), [slots for _, slots in jobs]) if jobs else np.array([], dtype=int)
    genes = np.append(genes, np.full(8 - len(genes), -1))
    of_row = np.broadcast_to(np.arange(9.0), (len(rows), 2, 9))
    costs = SlotSeconds(of_row, np.full(len(rows), 8), np.array([4, 4]))
    assert scores(genes[None, :], rows, costs).tolist() == [float(case["score"])]


@pytest.mark.parametrize("case", cases("limits.csv"), ids=lambda case: case["case"])
def test_batch_limits(case: dict[str, str]) -> None:
    row = Gang(
        "job",
        start_rows=64.0,
        rows_most=1024.0,
        rows_done=float(case["rows_done"]),
        passes_done=int(case["passes"]),
        executed_seconds=float(case["executed_seconds"]),
        batch_rows=float(case["ran_with"]),
        held=() if case["waits"] == "yes" else (1,),
    )
    before = {}
    if case["limit"]:
        before["job"] = (np.log2(float(case["limit"]) / 64), float(case["passes_before"]))
    limits = BatchLimits.grown(Gangs.of([row], nodes=1), before, warm_up_steps=10)
    for _ in range(int(case["rejected"])):
        limits = limits.after_rejection(np.array([True]))
    rows = limits.rows(np.array([row.executed_seconds]), float(case["sigma"]), np.array([1024.0]))
    assert rows.tolist() == [float(case["rows"])]


def test_a_job_that_nobody_remembers_has_the_batch_it_runs_with() -> None:
    row = Gang("job", start_rows=64.0, batch_rows=256.0, rows_done=1e5, passes_done=7, held=(4,))
    limits = BatchLimits.grown(Gangs.of([row], nodes=1), {}, warm_up_steps=10)
    assert limits.rows(np.zeros(1), 0.0, np.array([1e9])).tolist() == [256.0]
