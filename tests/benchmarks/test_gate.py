"""The gate asks every aggregate and function, judges each line by itself and counts what one group hides."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from benchmarks.gate import chosen, notes
from benchmarks.gate_data import GROUPS, TABLES, Table, lay_out, made_up, source_of, uniform, units_of
from benchmarks.gate_lines import lines_of, summary_of
from benchmarks.gate_queries import AGGREGATES, AROUND, MOMENTS, QUANTILES, WRAPPINGS, Query, queries_of
from benchmarks.gate_runs import Counted, Run, count
from benchmarks.gate_tally import SUMS, Judged, judged
from benchmarks.tally import FIELDS, Coverage

SMALL = Table("small", "x", "y", "y > 7", "day", ("w",), "u", rows=partial(made_up, uniform, 4_000))
ORDERS = 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Counted]:
    folder = tmp_path_factory.mktemp("gate")
    source = source_of(SMALL, None, folder)
    assert source is not None
    query = Query(SMALL, "w", ("avg(x)", "max(x)", "median(x)"))
    layouts = [(units, lay_out(SMALL, units, 0, source, folder)) for units in units_of(SMALL)]
    return [count(Run(query, units, source, at, tuple(range(ORDERS)), (0.3,))) for units, at in layouts]


def test_every_aggregate_and_wrapping_is_asked_of_every_table() -> None:
    for table in TABLES:
        asked = [text for query in queries_of(table) for text in query.expressions]
        templates = (*AGGREGATES, *MOMENTS, *AROUND, *QUANTILES, *WRAPPINGS)
        texts = [t.format(x=table.value, y=table.other, c=table.condition, d=table.day) for t in templates]
        missing = [text for text in texts if not any(text in each for each in asked)]
        assert not missing
        assert {query.key for query in queries_of(table)} == {*table.keys, ""}


def test_expressions_are_chosen_by_their_text() -> None:
    [query] = queries_of(TABLES[2], core=True, containing=["CAST("])
    assert query.expressions == ("CAST(sum(x) AS BIGINT)", "sum(CAST(x AS BIGINT))")
    assert query.sql == (
        "SELECT g AS k, CAST(sum(x) AS BIGINT) AS e0, sum(CAST(x AS BIGINT)) AS e1 FROM pareto15 GROUP BY g"
    )


def test_made_up_clusters_are_whole_small_and_of_one_group(tmp_path: Path) -> None:
    rows = made_up(uniform, 100_000)
    clusters = rows.group_by("u").aggregate([("x", "count"), ("g", "count_distinct")])
    sizes = clusters.column("x_count").to_numpy()
    assert 4.0 < sizes.mean() < 6.0
    assert 50 < sizes.max() < 1_000
    assert set(clusters.column("g_count_distinct").to_pylist()) == {1}
    groups = rows.group_by("g").aggregate([("x", "count")]).column("x_count").to_numpy()
    assert len(groups) == GROUPS
    assert groups.max() > 100 * groups.min()
    assert rows.equals(made_up(uniform, 100_000))


def test_one_row_in_a_million_is_a_million_times_larger() -> None:
    [spike] = [table for table in TABLES if table.name == "spike"]
    assert spike.rows is not None
    values = np.sort(spike.rows().column("x").to_numpy())
    assert len(values) == 1_000_000
    assert values[-1] == 1e8
    assert values[-2] <= 100.0


@pytest.mark.slow
def test_every_order_is_counted_and_what_has_no_interval_is_said(runs: list[Counted]) -> None:
    for found in runs:
        assert found.columns == (0, 2)
        assert found.counts[0.3].shape == (ORDERS, 2, len(FIELDS))
        assert found.spreads[0.3].sums.shape == (len(SUMS), 4, 2)
    assert list(notes([TABLES[0]], runs)) == [
        "Skipped babynames: no babynames.parquet in the folder of --public; see --help.",
        "Not judged in small: max(x): has no interval",
    ]


def test_tame_rows_hold_and_are_as_wide_as_an_oracle_says(runs: list[Counted]) -> None:
    """Of four groups, 30 orders: ± 3 points is one standard error of the 95 %; the oracle is off by 13 %."""
    lines = lines_of(runs)
    assert {line.units for line in lines} == {"rows", "clusters"}
    [line] = [line for line in lines if (line.units, line.expression) == ("rows", "avg(x)")]
    assert line.judged.verdict == ""
    assert line.judged.certified > 2 * ORDERS
    assert 0.8 < line.judged.width < 1.3
    assert summary_of(lines).row_count == 2


def test_a_query_without_error_bars_is_no_crash(runs: list[Counted]) -> None:
    run = runs[0].run
    refused = count(Run(Query(SMALL, "w", ("max(x)",)), run.units, run.source, run.folder, (0,), (0.3,)))
    assert refused.refused.startswith("the query has no error bars: ")
    assert lines_of([refused]) == []


def verdict(held: float, certified: int, *, error: float = 0.005, spike_chance: float | None = None) -> str:
    coverage = Coverage(10 * certified, 0.1, held, error, 0.1, 1.0, held)
    chance = 1.0 if spike_chance is None else spike_chance
    return Judged(coverage, certified, 1.0, held, chance, has_spike=spike_chance is not None).verdict


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (verdict(0.95, 10_000), ""),
        (verdict(0.91, 500), "low"),
        (verdict(0.91, 499), ""),
        (verdict(0.925, 500), ""),  # within two standard errors of 93 %
        (verdict(0.89, 100), "low"),
        (verdict(0.85, 20, error=0.05), ""),  # three misses of twenty
        (verdict(0.50, 20, error=0.05), "low"),
        (verdict(0.995, 500), "high"),
        (verdict(0.97, 500, spike_chance=1e-9), "group"),
        (verdict(float("nan"), 0), ""),
    ],
)
def test_verdicts(found: str, expected: str) -> None:
    assert found == expected


def test_a_group_that_always_misses_is_found_among_many() -> None:
    sums = {name: np.full(100, 40.0) for name in SUMS}
    sums["held"] = np.array([0.0, *[38.0] * 99])
    counts = np.zeros((40, 1, len(FIELDS)))
    counts[:, :, FIELDS.index("cells")] = counts[:, :, FIELDS.index("certified")] = 100
    counts[:, :, FIELDS.index("held")] = 94
    assert judged(counts, [sums], 1, has_spike=True).verdict == "group"
    assert judged(counts, [sums], 1, has_spike=False).verdict == ""
    assert judged(counts, [sums], 1, has_spike=False).worst == 0.0


def test_a_public_table_is_read_where_it_is(tmp_path: Path) -> None:
    babynames = TABLES[0]
    assert source_of(babynames, None, tmp_path) is None
    assert source_of(babynames, tmp_path, tmp_path) is None
    pyarrow.parquet.write_table(made_up(uniform, 10), tmp_path / babynames.file)
    assert source_of(babynames, tmp_path, tmp_path) == tmp_path / babynames.file


def test_data_is_chosen_by_name() -> None:
    assert [table.name for table in chosen("zeros, uniform")] == ["zeros", "uniform"]
    with pytest.raises(SystemExit, match="no data 'paretto'; there are babynames, "):
        chosen("paretto")
