"""The cost of the exact end is measured beside DuckDB, over the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import exact_cost


@pytest.mark.slow
def test_every_answer_is_duckdbs_and_both_ratios_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact_cost.main([str(tmp_path), "--rows", "20000", "--runs", "1"])
    said = capsys.readouterr().out
    assert said.count("÷ DuckDB over the") == 2
    assert all(sql[7:20] in said for sql in exact_cost.QUESTIONS)
