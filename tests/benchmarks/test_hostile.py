"""Hostile statements, a few of each family: each is answered or refused, and the process and others go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import hostile_users, record
from benchmarks.hostile import judged, run, tally
from benchmarks.hostile_server import Outcome
from benchmarks.hostile_statements import FAMILIES, statement

SEED = 20
STATEMENTS = 81


@pytest.mark.slow
def test_no_statement_stops_the_process_or_fails_in_another_way() -> None:
    """How long each may take is not judged here: that follows from what else the machine does."""
    results = list(run(SEED, range(STATEMENTS), timeout_seconds=0.1))
    assert [each for each in results if each.outcome.kind == "fault" and not is_late(each.fault)] == []
    assert {each.statement.family for each in results} == set(FAMILIES)
    valid = [each.outcome.kind for each in results if each.statement.family == "valid"]
    assert set(valid) <= {"answered", "timed out"}
    assert "all" in str(list(tally(results).columns[0].cells))


def is_late(fault: str) -> bool:
    return fault.startswith(("it ended after", "another query waited"))


def test_a_seed_and_a_number_are_one_statement() -> None:
    assert statement(1, 26) == statement(1, 26)
    assert statement(1, 26) != statement(2, 26)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (Outcome("answered", "1 rows", 0.1, 0.1, 0), ""),
        (Outcome("refused", "too large", 1.9, 0.9, 0), ""),
        (Outcome("fault", "KeyError: 'x'", 0.1, 0.1, 0), "KeyError: 'x'"),
        (Outcome("answered", "1 rows", 2.5, 0.1, 0), "it ended after 2.5 s"),
        (Outcome("timed out", "", 1.0, 1.5, 0), "another query waited 1.5 s"),
    ],
)
def test_what_is_late_or_no_error_of_ours_is_a_fault(outcome: Outcome, fault: str) -> None:
    assert judged(statement(0, 0), outcome).fault == fault


@pytest.mark.slow
def test_users_together_are_answered_right_and_the_page_says_so(
    tpch_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    page = tmp_path / "page.md"
    page.write_text("# Held\n\n<!-- measured: users together -->\nold\n<!-- end of measured -->\n\nMore\n")
    words = [str(tpch_warehouse), "--together", "6", "--seconds", "4", "--page", str(page)]
    assert hostile_users.main(words) == 0
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("# Held\n\n<!-- measured: users together -->\n")
    assert text.endswith("<!-- end of measured -->\n\nMore\n")
    for question in hostile_users.QUESTIONS:
        assert f"| {question} | " in text


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--processes 2", "users beside each other in several processes"),
        ("--cluster --together 6", "users together on a cluster"),
        ("--cluster --processes 2", "users beside each other on a cluster in several processes"),
    ],
)
def test_a_page_without_a_place_is_refused_before_anything_is_measured(
    words: str, name: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- measured: users together -->\n<!-- end of measured -->\n")
    with pytest.raises(ValueError, match=f"page.md has no place for {name}: write "):
        hostile_users.main([str(tmp_path / "no warehouse"), *words.split(), "--page", str(page)])


def test_first_estimates_are_told_in_the_median_and_at_their_worst() -> None:
    alone = hostile_users.Visits((0.01,), (0.02,), tuple(0.001 * number for number in range(101)), 0)
    beside = hostile_users.Visits((0.01,), (0.02,), tuple(0.003 * number for number in range(101)), 0)
    head, row = hostile_users._rows_beside([hostile_users.Beside("eve", 1.0, alone, beside, 0.5)])
    assert list(zip(head, row, strict=True))[7:] == [
        ("first estimate: alone, p50 ms", "50"),
        ("beside, p50 ms", "150"),
        ("times", "3.0"),
        ("alone, p95 ms", "95"),
        ("beside, p95 ms", "285"),
        ("times", "3.0"),
        ("SIGTERM s", "0.50"),
    ]


@pytest.mark.slow
def test_how_long_a_user_waits_is_told_for_each_attack(
    tpch_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    hostile_users.main([str(tpch_warehouse), "--seconds", "1"])
    [path] = tmp_path.iterdir()
    waits = json.loads(path.read_text(encoding="utf-8"))["waits"]
    assert len(waits) == len(hostile_users.ATTACKS)
    for each in waits:
        assert each["alone"]["firsts"]
        assert each["visits"]["firsts"]
        assert each["visits"]["lost"] == 0
        assert each["end_seconds"] <= hostile_users.END_SECONDS
    assert "joins of pg_attribute" in capsys.readouterr().out
