"""A suite is asked to its end beside DuckDB, and each query is told apart by how it was answered."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from benchmarks.suite_ends import main

QUERIES = {
    "estimated": "SELECT g, avg(x) AS a FROM t GROUP BY g;",
    "exact": "SELECT g, row_number() OVER (ORDER BY i) AS n FROM t",
    "tied": "SELECT g, count(*) AS n FROM t GROUP BY g ORDER BY n LIMIT 1",
    "nowhere": "SELECT * FROM nowhere",
    "file": "SELECT count(*) FROM duckdb_settings()",
}


def test_each_query_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("data", "queries"):
        (tmp_path / name).mkdir()
    rows = "SELECT i, i % 4 AS g, i * 0.5 AS x FROM range(4000) AS t(i)"
    with duckdb.connect() as connection:
        connection.sql(rows).write_parquet(str(tmp_path / "data" / "t.parquet"))
    for name, sql in QUERIES.items():
        (tmp_path / "queries" / f"{name}.sql").write_text(sql)
    folders = ["--data", str(tmp_path / "data"), "--queries", str(tmp_path / "queries")]
    main([*folders, "--sampled", "t", "--into", str(tmp_path / "into")])
    printed = capsys.readouterr().out.splitlines()
    lines = {line.split("  ")[0]: line for line in printed}
    assert lines["estimated"] == "estimated  mergeable  DuckDB's end"
    assert lines["exact"].startswith("exact  exact  DuckDB's end  ")
    assert lines["tied"].startswith("tied  mergeable  DuckDB's end")
    assert lines["nowhere"].startswith("nowhere  refused by DuckDB: ")
    assert lines["file"].startswith("file  refused: ")
    assert sum(int(line.split()[0]) for line in printed[len(QUERIES) :]) == len(QUERIES)
