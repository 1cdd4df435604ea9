"""The grid finds a fault that is put in, makes its case small, and covers what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.grid import run
from benchmarks.grid.dimensions import DIMENSIONS, FORBIDDEN, Case, CoveringArray
from benchmarks.grid.doors import Answer, Doors, read_csv, text_difference
from benchmarks.grid.judge import Outcome
from benchmarks.grid.run import Runner
from benchmarks.grid.statements import Statement
from benchmarks.grid.worlds import World

CASE: Case = {name: values[0] for name, values in DIMENSIONS.items()} | {
    "table": "key",
    "second": "static",
    "type": "integer",
    "join": "left",
    "predicate": "number",
    "grouping": "two_keys",
    "aggregate": "sum",
    "tail": "having",
    "around": "window",
    "place": "where",
    "inside": "filter",
}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr(run, "TABLES", ("d", "t_key", "u_static"))
    runner = Runner(tmp_path, seed=1)
    yield runner
    runner.close()


def test_an_answer_that_is_right_is_equal_to_duckdbs(runner: Runner) -> None:
    outcomes = [
        runner.run({**CASE, "door": door}, 3) for door in ("one_thread", "result", "csv", "jsonl", "serve")
    ]
    assert {outcome.kind for outcome in outcomes} == {"equal"}, outcomes


@pytest.mark.slow
def test_an_answer_that_lacks_a_row_is_found_and_made_small(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask = Doors.ask

    def lose_a_row(doors: Doors, world: World, case: Case, statement: Statement, number: int) -> Answer:
        answer = ask(doors, world, case, statement, number)
        if "LEFT JOIN" in statement.sql and answer.table is not None:
            return replace(answer, table=answer.table.slice(1), snapshots=())
        return answer

    monkeypatch.setattr(Doors, "ask", lose_a_row)
    outcome = runner.run(CASE, 3)
    assert (outcome.kind, outcome.reason) == ("wrong", "rows")
    test = runner.small(CASE, 3, outcome)
    assert "LEFT JOIN" in test
    for left_out in ("FILTER", "HAVING", "OVER", "WHERE a.", "GROUP BY a.g, a.h"):
        assert left_out not in test
    written: dict[str, object] = {}
    exec(test, written)
    check = written["test_case_1_3"]
    assert callable(check)
    with pytest.raises(AssertionError, match="wrong: rows"):
        check(tmp_path / "broken")
    monkeypatch.undo()
    check(tmp_path / "mended")


@pytest.mark.parametrize("error", [ValueError("oops"), AssertionError()])
def test_an_exception_that_is_none_of_ours_is_a_failure(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*given: object) -> Answer:
        raise error

    monkeypatch.setattr(Doors, "ask", fail)
    outcome = runner.run(CASE, 3)
    assert outcome.kind == "raw"
    assert not outcome.is_fine


@pytest.mark.slow
def test_every_pair_is_met_and_none_that_is_forbidden() -> None:
    array = CoveringArray(seed=5)
    cases = list(islice(array, 600))
    pairs, triples = array.covered_by(cases)
    assert pairs.met == pairs.all
    assert 0.3 < triples.met / triples.all < 0.5
    for case, (first, some, second, others) in ((case, rule) for case in cases for rule in FORBIDDEN):
        assert not (case[first] in some and case[second] in others)
    seen = {((a, case[a]), (b, case[b])) for case in cases for a, b in combinations(DIMENSIONS, 2)}
    assert len(seen) == pairs.all


def test_the_same_seed_gives_the_same_cases() -> None:
    first, again = (list(islice(CoveringArray(seed=5), 20)) for _ in range(2))
    assert first == again
    assert first != list(islice(CoveringArray(seed=6), 20))


def test_one_value_of_a_dimension_may_be_asked_for_alone() -> None:
    assert {case["join"] for case in islice(CoveringArray(5, {"join": "asof"}), 20)} == {"asof"}
    assert {case["door"] for case in islice(CoveringArray(5, {"table": "arrow"}), 99)}.isdisjoint(
        ("csv", "jsonl")
    )
    with pytest.raises(SystemExit, match="there is no join=sideways"):
        CoveringArray(5, {"join": "sideways"})


def test_what_is_refused_is_no_failure() -> None:
    assert Outcome("refused", "so").is_fine
    assert not Outcome("hang").is_fine


def test_a_row_of_one_null_in_csv_is_a_row() -> None:
    assert text_difference(read_csv("v0\n\n12\n"), pa.table({"v0": [None, 12]}), is_loose=False) == ""
    assert "values" in text_difference(read_csv("v0\n\n12\n"), pa.table({"v0": [7, 12]}), is_loose=False)
