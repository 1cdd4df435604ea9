"""The coverage benchmark asks a folder of queries of a session, over layouts of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.stats import norm

from benchmarks.coverage import Counted, Run, in_all, rows_of
from benchmarks.coverage_cases import Case, Units
from benchmarks.coverage_suite import Suite, count_looks, sampled_of, shapes
from benchmarks.tally import FIELDS, layout_luck

QUERIES = {
    "by_key": "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k ORDER BY k LIMIT 2;",
    "several": "SELECT (SELECT sum(x) FROM t) / (SELECT count(*) FROM t WHERE k = 1) AS r",
    "exact": "SELECT count(*) AS n FROM names",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    files, queries = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("queries")
    random = np.random.default_rng(0)
    rows = {"k": random.integers(0, 4, 20_000), "x": random.uniform(0.0, 10.0, 20_000)}
    pa.parquet.write_table(pa.table(rows), files / "t.parquet")
    pa.parquet.write_table(pa.table({"name": ["a", "b"]}), files / "names.parquet")
    for name, sql in QUERIES.items():
        (queries / f"{name}.sql").write_text(sql)
    return Suite("small", queries, files, {"t": ()}, 20)


def test_each_order_is_counted_at_each_fraction_it_reaches(suite: Suite, tmp_path: Path) -> None:
    cases, folder = {case.name: case for case in suite.cases()}, suite.warehouse(0, tmp_path)
    answers = suite.answers(tuple(cases.values()))
    for name, columns, rows in (("by_key", ("n", "s"), 2), ("several", ("r",), 1)):
        found, counts = count_looks(cases[name], folder, answers[name], (0, 1, 2), (0.1, 0.25))
        assert found == columns
        for fraction in (0.1, 0.25):
            assert counts[fraction].shape == (3, len(columns), len(FIELDS))
            assert (counts[fraction][:, :, FIELDS.index("certified")] == rows).all()
            assert counts[fraction][:, :, FIELDS.index("held")].sum() > 0
    assert count_looks(cases["exact"], folder, answers["exact"], (0,), (0.1,)) == ((), {})


def test_a_wrong_answer_is_told_from_a_right_one(suite: Suite, tmp_path: Path) -> None:
    [case] = suite.cases(["several"])
    wrong = pa.table({"r": [1.0]})
    _, counts = count_looks(case, suite.warehouse(0, tmp_path), wrong, (0,), (0.25,))
    assert counts[0.25][0, 0, FIELDS.index("certified")] == 1
    assert counts[0.25][0, 0, FIELDS.index("held")] == 0


def test_a_query_below_ninety_percent_is_named() -> None:
    def counted(certified: float, held: float) -> Counted:
        counts = np.zeros((2, 1, len(FIELDS)))
        counts[:, :, FIELDS.index("cells")] = 100
        counts[:, :, FIELDS.index("certified")], counts[:, :, FIELDS.index("held")] = certified, held
        return Counted(("n",), {"10%": counts})

    def run(name: str) -> Run:
        return Run(Case(name, "suite", ""), Units("small"), Path(), pa.table({}), (0, 1), is_asked=True)

    lines = in_all(
        rows_of(
            [
                (run("right"), counted(50, 48)),
                (run("low"), counted(10, 8)),
                (run("silent"), counted(0, 0)),
                (run("exact"), Counted((), {})),
            ]
        )
    )
    assert lines == [
        "10%: 2 queries certify 120 cells; 93.3 % of them hold, mean over queries 88.0 %",
        "below 90 %: low over small at 10%, 80.0 % ± 9.8 of 20 cells",
    ]


def test_an_unknown_query_or_table_is_refused(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no query nothing\.sql"):
        suite.cases(["nothing"])
    with pytest.raises(SystemExit, match=r"there is no data 'tame'; there are by_user, .*pareto15"):
        shapes("tame", tmp_path)


def test_keys_of_sampled_tables_are_read() -> None:
    assert sampled_of("a:k+l,b") == {"a": ("k", "l"), "b": ()}
    assert sampled_of("") == {}


def test_few_partitions_make_a_layout_weigh_as_much_as_few_runs() -> None:
    """By simulation: the coverage of a layout of 16 partitions has a standard deviation of some 4 points."""
    random = np.random.default_rng(3)
    spread = np.sqrt(random.chisquare(15, 100_000) / 15)
    share = 1.0 - 2.0 * norm.sf(1.96 / spread)
    assert share.std() ** 2 == pytest.approx(0.0475 / layout_luck(16), rel=0.15)
