"""The gate asks every aggregate and function, judges each line by itself and counts what one group hides."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_lab.records.store import json_value

from benchmarks.gate import arguments, chosen, headlines_of, notes, plan_runs, write_page
from benchmarks.gate_data import (
    GROUPS,
    TABLES,
    Table,
    made_up,
    pareto_clusters,
    uniform,
    zipf_clusters,
)
from benchmarks.gate_headline import TARGETS, headline_line
from benchmarks.gate_lines import as_record, lines_of, lines_of_record, page_rows, summary_of
from benchmarks.gate_queries import (
    AGGREGATES,
    AROUND,
    MOMENTS,
    QUANTILES,
    WRAPPINGS,
    Query,
    queries_of,
    questions_of,
)
from benchmarks.gate_runs import Counted, Run, count
from benchmarks.gate_storage import WAYS, Stored, source_of, storages_of, stored
from benchmarks.gate_tally import SUMS, Judged, judged
from benchmarks.replay import Replay
from benchmarks.tally import FIELDS, Coverage, FloatArray

SMALL = Table(
    "small", "x", "y", "y > 7", "day", ("w",), "u", rows=partial(made_up, uniform, 4_000),
    stored=WAYS, row_groups=(100,),
)  # fmt: skip
ORDERS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate")


def small(way: str, folder: Path) -> Stored:
    source = source_of(SMALL, None, folder)
    assert source is not None
    [storage] = storages_of(SMALL, [way])
    return stored(SMALL, storage, 0, source, folder)


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Counted]:
    query = Query(SMALL, "w", ("avg(x)", "max(x)", "median(x)"))
    layouts = [small(way, folder) for way in ("rows", "clusters")]
    return [count(Run(query, at, tuple(range(ORDERS)), (0.3,))) for at in layouts]


def test_every_aggregate_and_wrapping_is_asked_of_every_table() -> None:
    for table in TABLES:
        asked = [text for query in queries_of(table) for text in query.expressions]
        templates = (*AGGREGATES, *MOMENTS, *AROUND, *QUANTILES, *WRAPPINGS)
        texts = [t.format(x=table.value, y=table.other, c=table.condition, d=table.day) for t in templates]
        missing = [text for text in texts if not any(text in each for each in asked)]
        assert not missing
        assert {query.key for query in queries_of(table)} == {*table.keys, ""}
        assert {query.where for query in queries_of(table)} == {*table.where, ""}
        assert {query.asks for query in questions_of(table)} == {"headline", "stops"}


def test_expressions_are_chosen_by_their_text() -> None:
    [table] = chosen("pareto15")
    [query] = queries_of(table, core=True, containing=["CAST("])
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


@pytest.mark.slow
def test_tame_rows_hold_and_are_as_wide_as_an_oracle_says(runs: list[Counted]) -> None:
    """Of four groups, 30 orders: ± 3 points is one standard error of the 95 %; the oracle is off by 13 %."""
    lines = lines_of(runs)
    assert {line.path for line in lines} == {"rows", "clusters"}
    [line] = [line for line in lines if (line.path, line.expression) == ("rows", "avg(x)")]
    assert line.judged.verdict == ""
    assert line.judged.certified > 2 * ORDERS
    assert 0.8 < line.judged.width < 1.3
    assert summary_of(lines).row_count == 2


def test_records_of_runs_are_written_into_a_page(runs: list[Counted], tmp_path: Path) -> None:
    lines = lines_of(runs)
    file, page = tmp_path / "gate.json", tmp_path / "page.md"
    facts = {"command": "python -m benchmarks.gate --core --data DIR", "at": "2026-11-29T23:59:00"}
    content = {"seeds": ORDERS, "layouts": 1, "lines": as_record(lines), "headlines": []}
    file.write_text(json.dumps(json_value(facts | content)))
    places = ("the gate", "the gate's headlines")
    page.write_text("".join(f"<!-- measured: {name} -->\n<!-- end of measured -->\n" for name in places))
    assert write_page([file], page) == any(line.judged.failed for line in lines)
    kept = json.loads(file.read_text())["lines"]
    assert json_value(as_record(lines_of_record(kept))) == kept
    text = page.read_text()
    assert "`python -m benchmarks.gate --core`, each row on a day of its own:" in text
    rows = page_rows({f"{ORDERS} over 1": [("2026-11-29", line) for line in lines]})
    assert {row[-1] for row in rows} == {"on", "2026-11-29"}
    assert all("| " + " | ".join(row) + " |" in text for row in rows)
    page.write_text(text.replace(f"| {rows[1][0]} |", "| another |"))
    write_page([file, file], page)  # a line that was measured again counts once
    text = page.read_text()
    assert all("| " + " | ".join(row) + " |" in text for row in [*rows, ["another", *rows[1][1:]]])


def test_rows_of_a_page_have_the_days_of_their_own_files(runs: list[Counted], tmp_path: Path) -> None:
    page, files = tmp_path / "page.md", [tmp_path / f"{i}.json" for i in range(3)]
    places = ("the gate", "the gate's headlines")
    page.write_text("".join(f"<!-- measured: {name} -->\n<!-- end of measured -->\n" for name in places))
    by_rows, by_clusters = (
        [line for line in lines_of(runs) if line.path == way] for way in ("rows", "clusters")
    )
    for file, day, lines in zip(files, (28, 29, 30), (by_rows, by_clusters, by_clusters[:1]), strict=True):
        headline = {**asdict(headline_line(lines[0].path, "headline", [np.ones((9, 1, 2))])), "failed": False}
        kept = {"lines": as_record(lines), "headlines": [headline] * (day < 30), "at": f"2026-11-{day}T01"}
        content = {"command": "python -m benchmarks.gate", "seeds": ORDERS, "layouts": 1, **kept}
        file.write_text(json.dumps(json_value(content)))
    write_page(files, page)
    ends = {
        (row[0], row[1]): row[-1]
        for line in page.read_text().splitlines()
        if line.startswith("| ") and (row := line[2:-2].split(" | "))
    }
    assert len(by_clusters) == 2
    assert ends["small", "rows"] == ends["rows", "headline"] == "2026-11-28"
    assert ends["clusters", "headline"] == "2026-11-29"
    assert ends["small", "clusters"] == "2026-11-29, 2026-11-30"  # one of its two lines was measured again


def test_a_query_without_error_bars_is_no_crash(runs: list[Counted]) -> None:
    refused = count(Run(Query(SMALL, "w", ("max(x)",)), runs[0].run.stored, (0,), (0.3,)))
    assert refused.refused[0].startswith("the query has no error bars: ")
    assert lines_of([refused]) == []


def test_row_groups_are_drawn_and_what_they_say_nothing_of_is_left_out(folder: Path) -> None:
    """100 row groups: 30 % are 30 of them. 90 % are more than can be drawn, and 1 % is less."""
    file = small("row groups", folder)
    query = Query(SMALL, "w", ("stddev(x)", "sum(x)", "median(x)", "avg(y)"))
    found = count(Run(query, file, (0, 1, 2), (0.01, 0.3, 0.9)))
    assert found.columns == (1, 3)
    assert found.refused.keys() == {0, 2}
    assert found.counts.keys() == {0.3}
    assert found.counts[0.3].shape == (3, 2, len(FIELDS))
    [line, _] = lines_of([found])
    assert (line.path, line.stored) == ("row groups", "100 row groups")


def test_files_of_one_kind_are_one_line_in_which_each_has_its_groups(folder: Path) -> None:
    """Two files of made-up rows: groups of one are not those of the other, and the file's luck is counted."""
    source = source_of(SMALL, None, folder)
    assert source is not None
    [storage] = storages_of(SMALL, ["row groups"])
    query = Query(SMALL, "w", ("sum(x)", "avg(y)"))
    files = [
        count(Run(query, stored(SMALL, storage, seed, source, folder), (2 * seed, 2 * seed + 1), (0.3,)))
        for seed in (0, 1)
    ]
    for line in lines_of(files):
        alone = [each for found in files for each in lines_of([found]) if each.expression == line.expression]
        cells = [each.judged.certified for each in alone]
        assert (line.layouts, line.stored) == (2, "100 row groups")
        assert line.judged.certified == sum(cells) > 0
        # As one group, that of both files would vary by how their truths differ.
        widths = [each.judged.width for each in alone]
        assert line.judged.width == pytest.approx(np.average(widths, weights=cells))
    many = [replace(each, counts={0.3: np.tile(each.counts[0.3], (100, 1, 1))}) for each in files]
    table = replace(SMALL, rows=None)  # a public file: no other one is promised anything
    public = [replace(each, run=replace(each.run, query=replace(query, table=table))) for each in many]
    of_files, of_one = lines_of(many)[0].judged.coverage, lines_of(public)[0].judged.coverage
    assert of_files.coverage == of_one.coverage
    assert of_files.standard_error > 1.2 * of_one.standard_error


@pytest.mark.slow  # 40,000 rows in a hundred partitions, laid out twice
@pytest.mark.parametrize("way", ["headed rows", "headed clusters"])
def test_heads_are_read_first_and_have_a_hundredth_of_the_rows(tmp_path: Path, way: str) -> None:
    table = replace(SMALL, rows=partial(made_up, uniform, 40_000))  # of fewer some heads have no unit
    source = source_of(table, None, tmp_path)
    assert source is not None
    at = stored(table, storages_of(table, [way])[0], 0, source, tmp_path)
    query = Query(table, "", ("median(x)",))  # of sums outlier units are left out, and no head is read
    replay = Replay(query.sql, at.catalog(), at.storage.share_needed)
    first, *others = replay.batches(0)
    assert len(first.partitions) == len(at.catalog().layout("small").heads) == 10
    assert not set(first.partitions) & {i for batch in others for i in batch.partitions}
    [(_, estimate)] = replay.looks(0, (0.01,), IntervalRequest())
    assert 0.005 < estimate.fraction < 0.015
    replay.close()
    assert count(Run(query, at, (0, 1), (0.01, 0.3))).counts.keys() == {0.01, 0.3}


@pytest.mark.slow  # fifty appends, of a second each on two cores
def test_an_appended_table_has_all_rows_and_is_made_one_again(folder: Path) -> None:
    layouts = [small(way, folder).catalog().table("small") for way in ("appended", "compacted")]
    assert [layout.row_count for layout in layouts] == [4_000, 4_000]
    appended, compacted = (len(layout.files) for layout in layouts)
    assert appended > 10 * compacted == 10 * len(layouts[1].partitions)


@pytest.mark.slow
def test_joins_are_stored_with_what_they_read(tmp_path: Path) -> None:
    tables = chosen("zoned,planned")
    sources = {table: source_of(table, None, tmp_path / "gate" / "files") for table in tables}
    options = arguments(["--seeds", "1", "--layouts", "1", "--core", "--data", str(tmp_path)])
    options.fractions, options.stored = (0.1,), ["clusters", "row groups"]
    runs = plan_runs({table: source for table, source in sources.items() if source}, options)
    by_storage = {(run.query.table.name, run.stored.storage.name): run for run in runs if run.query.key}
    assert by_storage.keys() == {
        ("zoned", "clusters"),
        ("zoned", "70 row groups"),
        ("zoned", "800 row groups"),
        ("planned", "clusters"),
    }
    for run in by_storage.values():
        query = Query(run.query.table, run.query.table.keys[0], (f"avg({run.query.table.other})",))
        found = count(replace(run, query=query))
        assert found.columns == (0,)
        [*lines] = lines_of([found])
        assert [line.path for line in lines] == [f"join of {run.stored.storage.way}"] * len(lines)
    catalog = by_storage["planned", "clusters"].stored.catalog()
    assert catalog.table("plans").cluster_key == ("u",)


def test_keys_of_unlike_size_are_as_unlike_as_they_are_said_to_be() -> None:
    """Of 20,000 Pareto keys or so, the largest is about 20,000 ** (1 / 1.3) = 2,000 times the least."""
    random = np.random.default_rng(0)
    pareto, zipf = (np.bincount(draw(random, 100_000)) for draw in (pareto_clusters, zipf_clusters))
    assert pareto.sum() == zipf.sum() == 100_000
    assert 500 < pareto.max() < 30_000
    assert 8_000 < zipf.max() < 12_000  # a share of 1 / ln(20,000)
    assert (zipf > 0).sum() > 10_000


def test_the_one_error_is_judged_at_looks_and_at_stops(folder: Path) -> None:
    layout = small("rows", folder)
    headline, *_ = questions_of(SMALL)
    stops = Query(SMALL, "w", ("count(DISTINCT CAST(y * 4 AS BIGINT))",), "x > 50", "stops")
    found = [count(Run(query, layout, (0, 1, 2), (0.1, 0.5))) for query in (headline, stops)]
    at_looks, at_stops = (each.errors for each in found)
    assert at_looks is not None
    assert at_looks.shape == (3, 2, 2)
    assert at_stops is not None
    assert at_stops.shape == (3, len(TARGETS), 2)
    announced, true = np.moveaxis(at_looks, 2, 0)
    assert (announced > 0.0).all()
    assert (true < 5 * announced).all()
    assert [(line.path, line.asks) for line in headlines_of(found)] == [
        ("rows", "headline"),
        ("rows", "stops"),
    ]
    assert lines_of(found) == []


@pytest.mark.parametrize(("above", "failed"), [(0, True), (50, False), (150, True)])
def test_a_headline_that_is_too_small_or_too_large_fails(above: int, failed: bool) -> None:
    """Of 1,000 snapshots 50 ± 14 are to be above, by two standard errors."""
    errors = np.ones((1_000, 1, 2))
    errors[:above, :, 1] = 2.0
    line = headline_line("rows", "headline", [errors])
    assert (line.snapshots, line.above, line.failed) == (1_000, above / 1_000, failed)
    assert headline_line("rows", "stops", [errors]).failed == (above == 150)
    nothing = headline_line("rows", "stops", [np.full((3, 2, 2), np.nan)])
    assert (nothing.snapshots, nothing.failed) == (0, False)


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
        (verdict(0.89, 100, error=0.03), "low"),  # however much it may be by chance
        (verdict(0.905, 199), ""),
        (verdict(0.905, 200), "low"),
        (verdict(0.905, 200, error=0.02), "unsure"),  # 95 % is within three standard errors
        (verdict(0.85, 20, error=0.05), ""),  # three misses of twenty
        (verdict(0.85, 20, error=0.01), ""),  # which is chance, once in 13 lines
        (verdict(0.80, 20, error=0.01), "low"),
        (verdict(0.82, 50, error=0.01), "low"),
        (verdict(0.50, 20, error=0.05), "low"),
        (verdict(0.0, 1, error=0.2), ""),  # one cell alone, and it is wrong
        (verdict(0.0, 3, error=0.1), "low"),
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


@pytest.mark.parametrize("unlike", [1.0, 30.0])
@pytest.mark.parametrize("certified", [0.0, 40.0])
def test_intervals_of_one_layout_are_not_compared_with_how_another_one_varies(
    unlike: float, certified: float
) -> None:
    def sums(scale: float, certified: float) -> dict[str, FloatArray]:
        known = dict.fromkeys(SUMS, np.zeros(10)) | {"shown": np.full(10, 40.0)}
        width = 1.2 * 1.96 * scale
        known |= {"square": np.full(10, 40.0 * scale**2), "half_width": np.full(10, certified * width)}
        return known | {"certified": np.full(10, certified)}

    counts = np.zeros((80, 1, len(FIELDS)))
    layouts = [sums(1.0, 40.0), sums(unlike, certified)]
    assert judged(counts, layouts, 2, has_spike=False).width == pytest.approx(1.2, rel=0.02)


def test_nearly_all_has_a_reason() -> None:
    sums = {name: np.full(10, 40.0) for name in SUMS}
    sums |= {"error": np.zeros(10), "square": np.full(10, 40.0), "half_width": np.full(10, 40 * 4.0)}
    counts = np.zeros((40, 1, len(FIELDS)))
    for name in ("cells", "certified", "held"):
        counts[:, :, FIELDS.index(name)] = 10
    known, wide = sums, sums | {"known": np.zeros(10), "at_end": np.zeros(10)}
    reasons = [judged(counts, [each], 1, has_spike=False).why_nearly_all for each in (known, wide)]
    assert reasons == ["100% of the cells are known beforehand", "2.0 times an oracle's width"]
    hardly = wide | {"square": np.append(np.full(9, 40.0), 1e-24)}
    assert judged(counts, [hardly], 1, has_spike=False).width < 3.0
    narrow = wide | {"half_width": np.full(10, 40 * 1.96), "at_end": np.zeros(10)}
    at_end = narrow | {"at_end": np.full(10, 8.0)}
    assert judged(counts, [at_end], 1, has_spike=False).why_nearly_all.startswith(
        "20% of the intervals end at"
    )
    assert judged(counts, [narrow], 1, has_spike=False).why_nearly_all == "not explained"


def test_data_is_chosen_by_name() -> None:
    assert [table.name for table in chosen("zeros, uniform")] == ["zeros", "uniform"]
    with pytest.raises(SystemExit, match="no data 'paretto'; there are babynames, "):
        chosen("paretto")
