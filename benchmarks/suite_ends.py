"""How each query of a suite is answered, and whether its last answer is DuckDB's.

    python -m benchmarks.suite_ends --data FOLDER --queries FOLDER --sampled TABLE[:KEY],… [--only NAMES]

The folders are of any suite: <table>.parquet and <name>.sql. Tables that are not named with --sampled are
static. They are laid out below benchmarks/results/data, once. Each query is asked to its end, beside plain
DuckDB over the same files, and one line of it is printed; then counts. *progressive*: it has estimates before
its end. Where LIMIT picks among equal rows, both are compared without it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
from relaqs_tpch.exact import difference

from benchmarks.coverage_suite import sampled_of
from benchmarks.held import without_limit
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from benchmarks.record import DATA
from benchmarks.tpcds import MEMORY_LIMIT, queries_of, warehouse
from relaqs import RelaqsError, connect
from relaqs.session import Session

SAME, SAME_WHOLE = "DuckDB's end", "DuckDB's end, without LIMIT"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a query ended.

    Attributes:
        name: of the query.
        mode: how it was answered, "" where it was not planned.
        end: SAME, or what was wrong.
        why: it is not progressive.
    """

    name: str
    mode: str
    end: str
    why: str = ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.suite_ends", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder of <table>.parquet files")
    parser.add_argument("--queries", type=Path, required=True, help="a folder of <name>.sql files")
    parser.add_argument("--sampled", required=True, help="TABLE[:KEY[+KEY]],…; other tables are static")
    parser.add_argument("--only", default="", help="names of queries, with commas between")
    parser.add_argument("--into", type=Path, default=DATA, help="where tables are laid out")
    given = parser.parse_args(arguments)
    queries = queries_of(given.queries)
    names = given.only.split(",") if given.only else list(queries)
    folder = given.into / f"suite-{given.data.resolve().parent.name}-{given.data.resolve().name}"
    folder = warehouse(given.data, folder, sampled_of(given.sampled), (), 0)
    counts: Counter[str] = Counter()
    with (
        PlainDuckDB(files_of_folder(given.data), threads=1) as plain,
        connect(folder, threads=1, memory_limit=MEMORY_LIMIT, exact_below_seconds=0) as session,
    ):
        for name in names:
            ended = end_of(session, plain, name, queries[name])
            counts[f"{ended.mode or 'not planned'}, {ended.end.split(':')[0]}"] += 1
            print(
                "  ".join(each for each in (ended.name, ended.mode, ended.end, ended.why) if each), flush=True
            )
    for what, count in counts.most_common():
        print(f"{count:5} {what}")


def end_of(session: Session, plain: PlainDuckDB, name: str, sql: str) -> Ended:
    """Return how a query is answered, and how its last answer differs from DuckDB's."""
    try:
        plain.table(sql)
    except duckdb.Error as error:
        return Ended(name, "", f"refused by DuckDB: {_first_line(error)}")
    try:
        plan = session.plan(sql)
        wrong = difference_of(session, plain, sql)
        why = "" if plan.is_estimated else "; ".join(plan.reasons)
        if wrong is None:
            return Ended(name, plan.mode.value, SAME, why)
        whole = without_limit(sql)
        if whole != sql and difference_of(session, plain, whole) is None:
            return Ended(name, plan.mode.value, SAME_WHOLE, why)
    except RelaqsError as error:
        return Ended(name, "", f"refused: {_first_line(error)}")
    return Ended(name, plan.mode.value, f"another end: {wrong}", why)


def difference_of(session: Session, plain: PlainDuckDB, sql: str) -> str | None:
    """Return in words how the last answer differs from DuckDB's, None where it does not."""
    return difference(plain.table(sql), session.online_sql(sql).result().estimate)


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


if __name__ == "__main__":
    main()
