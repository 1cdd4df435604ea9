"""What the exact end costs over a laid-out log of 22 questions: ours beside DuckDB's, in one run.

    python -m benchmarks.exact_cost DIR [--rows 12000000] [--runs 3]

DIR gets the rows (a web log with a long tail of users and pages, NULLs, NaN and JSON) as one sorted Parquet
file, and laid out; both are kept for the next run. All figures are core-seconds of this process, on one
thread, medians of the runs, in which the three take turns. DuckDB reads the original file, and the files of
the layout, which are in random order. *first* is the first estimate, and its error. Each last answer is
compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from relaqs_lab.cli.studies import console
from relaqs_tpch.exact import difference
from rich.box import SIMPLE_HEAD
from rich.table import Table

import relaqs
from benchmarks.plain_duckdb import PlainDuckDB, relation
from relaqs.queries.online_query import OnlineQuery

LOG = """
SELECT i AS id, TIMESTAMP '2023-01-01' + to_seconds((random() * 3.1e7)::BIGINT) AS moment,
    CASE WHEN random() < .03 THEN NULL ELSE (1 / (random() + 1e-6))::INT % 200000 END AS user_id,
    CASE WHEN random() < .1 THEN NULL WHEN random() < .7
        THEN 'https://example.org/p/' || ((1 / (random() + 1e-4))::INT)
        ELSE 'app://home/' || (random() * 9)::INT END AS page,
    CASE WHEN random() < .2 THEN NULL ELSE exp(random() * random() * 9)::DECIMAL(12, 2) END AS amount,
    CASE WHEN random() < .001 THEN 'nan'::DOUBLE WHEN random() < .05 THEN NULL
        ELSE -ln(random() + 1e-12) * 100 END AS ms,
    ['de', 'fr', 'us', 'US ', '', 'br', NULL, 'jp'][1 + (random() * random() * 7.9)::INT] AS country,
    '{"d": "' || ['ios', 'web', 'tv'][1 + (random() * 2.9)::INT] || '"}' AS props, random() < .02 AS bad
FROM range({rows}) AS t(i)
"""
QUESTIONS = """
SELECT country, count(*) n, avg(ms) m FROM events GROUP BY 1 ORDER BY n DESC, country
SELECT user_id, sum(amount) s FROM events GROUP BY 1 ORDER BY s DESC NULLS LAST, user_id LIMIT 10
SELECT page, count(*) n FROM events GROUP BY 1 ORDER BY n DESC, page LIMIT 10
SELECT count(DISTINCT user_id) u, count(DISTINCT page) p FROM events
SELECT median(amount) m, quantile_cont(amount, 0.95) p FROM events
SELECT country, median(amount) m FROM events GROUP BY 1 ORDER BY 1
SELECT date_trunc('month', moment) mo, count(DISTINCT user_id) u FROM events GROUP BY 1 ORDER BY 1
SELECT props->>'$.d' d, count(*) n, sum(amount) s FROM events GROUP BY 1 ORDER BY 1
SELECT regexp_extract(page, '^[a-z]+') k, count(*) n FROM events GROUP BY 1 ORDER BY 1
SELECT * FROM events WHERE id = 424242
SELECT count(*) n FROM events WHERE user_id = 4242
SELECT user_id, count(*) n FROM events GROUP BY 1 HAVING count(*) > 20000 ORDER BY n DESC, 1
SELECT count(*) n FROM (SELECT user_id FROM events GROUP BY 1 HAVING sum(amount) > 1000)
SELECT avg(n) a, max(n) m FROM (SELECT user_id, count(*) n FROM events WHERE user_id > 0 GROUP BY 1)
SELECT country, bad, count(*) n FROM events GROUP BY ROLLUP(country, bad) ORDER BY ALL
SELECT hour(moment) h, avg(amount) a, stddev(amount) s FROM events WHERE trim(country) <> '' GROUP BY h
SELECT corr(amount, id) c, count(*) FILTER (WHERE bad) b FROM events
SELECT country, count(*) n, sum(count(*)) OVER (ORDER BY country) r FROM events GROUP BY 1 ORDER BY 1
SELECT count(*) n, sum(amount) s FROM events WHERE amount > (SELECT avg(amount) FROM events)
SELECT upper(country) c, min(amount) lo, max(amount) hi FROM events WHERE page LIKE '%/p/1%' GROUP BY c
SELECT mode(country) m, count(page) b FROM events
SELECT count(*) n FROM events WHERE (amount < 2 OR ms > 900) AND NOT bad
""".strip().split("\n")


def made(folder: Path, rows: int) -> tuple[Path, Path]:
    """Return the log as one file, and the folder of its layout. What is there stays."""
    file, warehouse = folder / f"events-{rows}.parquet", folder / f"laid-{rows}"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        relation(LOG.replace("{rows}", str(rows))).write_parquet(str(file))
    if not (warehouse / "events").exists():
        relaqs.shuffle(file, warehouse / "events")
    return file, warehouse


def core_seconds(rival: PlainDuckDB, sql: str) -> float:
    begun = time.process_time()
    rival.table(sql)
    return time.process_time() - begun


def asked(query: OnlineQuery) -> tuple[float, float, relaqs.Snapshot]:
    """Return the core-seconds until the first estimate, its error, and the last answer."""
    begun, first, error = time.process_time(), 0.0, 0.0
    for number, snapshot in enumerate(query):
        if not number:
            first, error = time.process_time() - begun, snapshot.error
    return first, error, snapshot


def measured(db: relaqs.Session, rivals: Sequence[PlainDuckDB], runs: int, out: Table) -> list[list[float]]:
    """Return what each question costs to the end, divided by what each rival takes."""
    ratios: list[list[float]] = [[] for _ in rivals]
    for sql in QUESTIONS:
        taken: list[list[float]] = [[] for _ in range(len(rivals) + 1)]
        for _ in range(runs):
            for rival, theirs in zip(rivals, taken, strict=False):
                theirs.append(core_seconds(rival, sql))
            begun = time.process_time()
            first, error, last = asked(db.online_sql(sql))
            taken[-1].append(time.process_time() - begun)
        wanted = rivals[0].table(sql)
        if wrong := difference(wanted, last.estimate):
            raise SystemExit(f"{sql}\nis wrong: {wrong}")
        *theirs_all, ours = map(median, taken)
        for each, theirs_one in zip(ratios, theirs_all, strict=True):
            each.append(ours / theirs_one)
        shown = [f"{each:.3f}" for each in (*theirs_all, ours)]
        out.add_row(
            *shown, *(f"{each[-1]:.2f}" for each in ratios), f"{first:.3f}", f"{error:.1%}", sql[7:60]
        )
    return ratios


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args(arguments)
    file, warehouse = made(given.folder, given.rows)
    out = Table("original", "layout", "ours", "÷ original", "÷ layout", "first", "±", "", box=SIMPLE_HEAD)
    with (
        relaqs.connect(warehouse, threads=1) as db,
        PlainDuckDB({"events": [file]}, 1) as original,
        PlainDuckDB({"events": sorted((warehouse / "events").glob("data-*/*.parquet"))}, 1) as laid_out,
    ):
        ratios = measured(db, (original, laid_out), given.runs, out)
    console().print(out)
    for name, each in zip(("original file", "layout's files"), ratios, strict=True):
        ordered = sorted(each)
        at_90 = ordered[int(0.9 * len(ordered))]
        print(
            f"÷ DuckDB over the {name}: median {median(each):.2f}, p90 {at_90:.2f}, worst {ordered[-1]:.2f}"
        )


if __name__ == "__main__":
    main()
