"""The survey of TPC-DS tells queries with certified numbers from the others, and why those have none."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

from benchmarks.coverage import Counted, Run, rows_of
from benchmarks.coverage_cases import Case, Units
from benchmarks.tally import FIELDS
from benchmarks.tpcds import CERTIFIED, IN_ALL, IN_SOME, NO_NUMBER, Looked, finding_of, main, queries_of
from benchmarks.tpcds_held import by_layout
from benchmarks.tpcds_held import table_of as table_of_held

QUERIES = {
    "01": "SELECT count(*) FROM store;",
    "02": "SELECT ss_store_sk, sum(ss_paid) AS s FROM store_sales GROUP BY ss_store_sk ORDER BY 1 LIMIT 100",
    "03": "SELECT ss_ticket, sum(ss_paid) AS s FROM store_sales GROUP BY ss_ticket ORDER BY s DESC LIMIT 9",
    "04": "SELECT ss_ticket, count(*) FROM store_sales WHERE ss_paid < 0 GROUP BY ss_ticket",
    "05": "SELECT DISTINCT ss_store_sk FROM store_sales",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A table of sales in four stores, and one query for each finding."""
    random = np.random.default_rng(0)
    count = 20_000
    sales = {"ss_store_sk": random.integers(0, 4, count), "ss_ticket": np.arange(count) // 2}
    for name in ("data", "queries"):
        (tmp_path / name).mkdir()
    pa.parquet.write_table(
        pa.table({**sales, "ss_paid": random.uniform(0.0, 10.0, count)}),
        tmp_path / "data" / "store_sales.parquet",
    )
    pa.parquet.write_table(pa.table({"s_store_sk": np.arange(4)}), tmp_path / "data" / "store.parquet")
    for name, sql in QUERIES.items():
        (tmp_path / "queries" / f"{name}.sql").write_text(sql)
    return tmp_path


def test_each_query_is_told_with_its_reason(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--data", str(suite / "data"), "--queries", str(suite / "queries"), "--into", str(suite)]
    main([*folders, "--orders", "2"])
    table = capsys.readouterr().out.partition("of each query")[2]
    for finding, name in (
        (IN_ALL, "02"),
        ("reads no sampled table, so it is exact at once", "01"),
        ("LIMIT may still leave out any row", "03"),
        ("no row met yet", "04"),
        (f"{NO_NUMBER}, and rows that surely stay", "05"),
    ):
        assert re.search(rf"{finding} +1 +{name}", table)


def test_certified_cells_are_counted_once_and_kept(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--data", str(suite / "data"), "--queries", str(suite / "queries"), "--into", str(suite)]
    asked = [*folders, "--coverage", "--orders", "2", "--processes", "1", "--only", "01,02"]
    main([*asked, "--out", str(suite / "held.jsonl")])
    first = capsys.readouterr()
    # Four stores, one total each, in two orders. Of 1,000 and 2,500 rows in each store all are certified.
    assert re.search(r"02 +8 +\d ", first.out)
    assert "no certified cell: 01" in first.out
    assert "2/2" in first.err
    main([*asked, "--out", str(suite / "held.jsonl")])
    again = capsys.readouterr()
    assert again.out == first.out
    assert "2/2" not in again.err


def test_a_query_below_ninety_percent_is_flagged() -> None:
    def found(name: str, held: float) -> tuple[Run, Counted]:
        counts = np.zeros((4, 1, len(FIELDS)))
        for field, count in (("cells", 50.0), ("certified", 25.0), ("held", held), ("size", 1.0)):
            counts[:, :, FIELDS.index(field)] = count
        run = Run(Case(name, "suite", ""), Units("suite"), Path(name), pa.table({}), (0, 1))
        return run, Counted(("n",), {"10%": counts[:2], "25%": counts[2:]})

    pieces = [found("right", 24.0), found("wrong", 15.0), found("unlucky", 22.0), found("right", 24.0)]
    together = by_layout(pieces)
    assert [run.case.name for run, _ in together] == ["right", "wrong", "unlucky"]
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table_of_held([row for row in rows_of(together) if not row.column], "title"))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert [line for line in lines if line.startswith("right")] == [
        "right 100 96 96.0% ± 4.4% 0 100 96 96.0% ± 4.4% 0"
    ]
    assert [line.endswith(" below 90 %") for line in lines if line.startswith("wrong")] == [True]
    assert [line.endswith(" below 90 %?") for line in lines if line.startswith("unlucky")] == [True]


def test_some_orders_are_told_from_all() -> None:
    good, bad = Looked("1", CERTIFIED), Looked("1", "no row met yet")
    assert [finding_of(each) for each in ([good, good], [bad, good], [bad, bad])] == [
        IN_ALL,
        IN_SOME,
        "no row met yet",
    ]


def test_a_folder_without_queries_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no \.sql files; name a folder"):
        queries_of(tmp_path)
