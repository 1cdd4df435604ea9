"""The benchmark of all queries tells how each was answered, records it, and fails on a wrong answer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from relaqs_engine.plans.plan import Mode
from rich.console import Console

from benchmarks import queries, record
from benchmarks.overhead import WrongAnswerError
from benchmarks.plain_duckdb import PlainDuckDB


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that records go to, an empty one."""
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.slow
def test_it_tells_how_each_query_is_answered(
    tpch_laid_out_twice: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries.main(["--data", str(tpch_laid_out_twice), "--queries", "2,6,13", "--seeds", "3"])
    [path] = results.iterdir()
    found = {each["number"]: each for each in json.loads(path.read_text(encoding="utf-8"))["queries"]}
    assert {number: each["mode"] for number, each in found.items()} == dict.fromkeys((2, 6, 13), "mergeable")
    assert set(found[13]["streams"]) == {"customer@customer", "orders@customer"}
    assert found[6]["certified_share"] == 1.0  # one sum over 1,200 rows
    coverage = found[6]["coverage"]
    assert coverage["cells"] >= 3  # a snapshot of each order at least
    assert 0.5 < coverage["coverage"] <= 1.0
    assert found[2]["coverage"] is None
    assert found[2]["certified_share"] is None  # rows are found or not: there is nothing to estimate
    for each in found.values():
        seconds = each["seconds"]
        assert 0 < seconds["first"] <= seconds["±5 %"] <= seconds["±1 %"] <= seconds["exact"]
        assert seconds["DuckDB"] > 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Q6 mergeable" in printed
    assert "3 of 3 are progressive" in printed
    assert "no figure here is comparable to an official TPC-H result" in printed


def test_a_query_that_runs_exactly_says_why() -> None:
    seconds = dict.fromkeys(("first", "exact"), 0.25)
    line = queries.Line(
        11, Mode.EXACT, (), ("a subquery stands in its HAVING", "so it is"), seconds, None, None
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(queries.table_of([line], "title"))
    (row,) = [text for text in console.export_text().splitlines() if text.lstrip().startswith("Q11")]
    assert " ".join(row.split()) == "Q11 exact 0.250 0.25 – – – a subquery stands in its HAVING; so it is"


@pytest.mark.slow
def test_a_wrong_answer_fails(
    tpch_laid_out_twice: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_more(duckdb: PlainDuckDB, sql: str) -> pa.Table:
        answer = right(duckdb, sql)
        return pa.concat_tables([answer, answer])

    right = PlainDuckDB.table
    monkeypatch.setattr(PlainDuckDB, "table", one_more)
    with pytest.raises(WrongAnswerError, match="Q6: it has 1 rows, not 2"):
        queries.main(["--data", str(tpch_laid_out_twice), "--queries", "6", "--seeds", "1"])
    assert not results.exists()
