"""Answers a second are counted by door, goal and clients. An exact answer that is not DuckDB's is told."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from relaqs_tpch.data import ORIGINALS

from benchmarks import record, throughput, tpch
from benchmarks.throughput import DUCKDB, Door, differences, measured, questions


def test_questions_are_new_each_time() -> None:
    asked: list[str] = []
    door = Door("noted", lambda: asked.append, [])
    for clients, goal in ((1, "5%"), (4, "5%"), (4, "1%")):
        measured(door, goal, clients, seconds=0.3, seed=1)
    few = asked[:: max(1, len(asked) // 2000)]
    assert len(set(few)) > 0.95 * len(few)


def test_what_an_answer_raises_ends_the_measurement() -> None:
    def ask(_: str) -> object:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        measured(Door("broken", lambda: ask, []), "5%", clients=3, seconds=5.0, seed=1)


def test_an_answer_that_is_not_duckdbs_is_told() -> None:
    truth = pa.table({"n": [7]})
    wrong = Door("wrong", lambda: lambda _: [(8,)], [])
    right = Door("right", lambda: lambda _: truth, [])
    kinds = len(questions(random.Random(1)))
    assert list(differences(right, lambda _: truth, seed=1)) == []
    found = list(differences(wrong, lambda _: truth, seed=1))
    assert len(found) == kinds
    assert all(each.startswith("wrong: ") for each in found)


@pytest.mark.slow  # a server, a cluster, and clients for some seconds
def test_it_measures_all_doors(
    tpch_warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    page = tmp_path / "page.md"
    page.write_text("<!-- measured: answers at scale 1 -->\n<!-- end of measured -->\n", encoding="utf-8")
    monkeypatch.setattr(tpch, "warehouse", lambda _: (tpch_warehouse, tpch_warehouse / ORIGINALS))
    asked = ["--seconds", "1", "--clients", "2", "--goals", "5%,exact", "--page", str(page)]
    assert throughput.main(asked) == 0
    [path] = (tmp_path / "results").iterdir()
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    assert [(each["door"], each["goal"]) for each in figures] == [
        ("embedded", "5%"),
        ("serve", "5%"),
        ("cluster", "5%"),
        (DUCKDB, "5%"),
        ("embedded", "exact"),
        ("serve", "exact"),
        ("cluster", "exact"),
        (DUCKDB, "exact"),
    ]
    assert all(each["answers_per_second"] > 0 and each["core_seconds"] > 0 for each in figures)
    assert "× DuckDB" in capsys.readouterr().out
    written = page.read_text(encoding="utf-8")
    assert [written.count(f"| {door} | ") for door in ("embedded", "serve", "cluster", DUCKDB)] == [2] * 4
