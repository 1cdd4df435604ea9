"""What other programs may rely on in the JSON lines of `relaqs sql --format jsonl`."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
from click.testing import CliRunner

import relaqs
from relaqs.cli import program

FIELDS = {
    "version": int,
    "table": list,
    "estimate": list,
    "columns": list,
    "fraction": float,
    "error": float | None,
    "confidence": float,
    "interval": str,
    "confidence_for": str,
    "batch": int,
    "batches": int,
    "elapsed_seconds": float,
    "is_exact": bool,
    "mode": str,
    "unseen_groups": int,
    "warnings": list,
    "certain_rows": list | None,
    "target": float | None,
}


def test_each_line_has_the_fields_of_version_1(tmp_path: Path) -> None:
    """A field that goes, or gets another type, needs a new version, and words in docs/guide/operation.md."""
    relaqs.shuffle(duckdb.sql("SELECT range % 3 AS k, range AS x FROM range(9_000)"), tmp_path / "numbers")
    sql = "SELECT k, avg(x) AS mean FROM numbers GROUP BY k"
    done = CliRunner().invoke(program, ["sql", sql, "--data", str(tmp_path), "--format", "jsonl"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["is_exact"]
    for line in lines:
        assert line["version"] == 1
        assert FIELDS.keys() <= line.keys()
        assert [name for name, kind in FIELDS.items() if not isinstance(line[name], kind)] == []
        assert line["columns"][0].keys() >= {"name", "low", "high", "certified"}
    page = Path(__file__).parents[2].joinpath("docs/guide/operation.md").read_text(encoding="utf-8")
    assert [name for name in FIELDS if f"`{name}`" not in page] == []
