"""Which of the 99 queries of TPC-DS have certified numbers early, and how many of these numbers hold.

    python -m benchmarks.tpcds [--scale 1] [--data FOLDER] [--queries FOLDER] [--keys] [--orders 5]
    python -m benchmarks.tpcds --coverage [--orders 40] [--only 02,05] [--out FILE]
    python -m benchmarks.tpcds --coverage --data FOLDER --queries FOLDER --sampled TABLE[:KEY],…

Data and queries come from DuckDB's extension tpcds, which DuckDB loads from its site. Where that cannot be
reached, name a folder of <table>.parquet files with --data and one of <number>.sql files with --queries. The
tables of sales and the inventory are sampled by rows, in 100 partitions, each in an order of its own. With
--keys the planner may also take layouts by customers, orders and items. Other tables are static.
They are laid out below benchmarks/results/data, once. With --sampled the folders may be of any suite.

Each query is asked of a session of one thread in several orders of reading, and looked at when 12 % of its
rows are read: *cells* are its numbers, *certain* its rows that surely stay. Where no order has a certified
number, the first reason is named, as the plan and the answer of the first order tell it. Queries without an
estimated number in their answer are counted apart.

With --coverage certified cells are counted instead, and how many of them hold (`benchmarks/tpcds_held.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import duckdb
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.plans.plan import OnlinePlan, OutputKind
from relaqs_lab.cli.studies import console
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import tpcds_held
from benchmarks.coverage_cases import PARTITIONS, once
from benchmarks.coverage_suite import sampled_of
from benchmarks.plain_duckdb import files_of_folder
from benchmarks.record import DATA
from relaqs import connect
from relaqs.executors.threads import usable_cores
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session

BY_ROWS = "store_sales,catalog_sales,web_sales,inventory"
# Those of one line are laid out with the same seed, so that they meet partition by partition.
BY_KEYS = (
    (("web_sales", "ws_order_number"),),
    (
        ("customer", "c_customer_sk"),
        ("store_sales", "ss_customer_sk"),
        ("catalog_sales", "cs_bill_customer_sk"),
        ("catalog_sales", "cs_ship_customer_sk"),
        ("web_sales", "ws_bill_customer_sk"),
    ),
    (("inventory", "inv_item_sk"),),
)
SEEDS = 100  # between those of two warehouses
COVERAGE_ORDERS = 40
MEMORY_LIMIT = "3GB"
NEARLY = 0.95  # of a share counts as having read it
CERTIFIED = "has a certified number"
IN_ALL, IN_SOME = "a certified number in all orders", "a certified number in some orders"
NO_NUMBER = "no estimated number in the answer"


@dataclass(frozen=True, slots=True)
class Looked:
    """What a query said when it was looked at.

    Attributes:
        name: of the query.
        finding: CERTIFIED, or why it has no certified number.
        fraction: of the rows that were read, 0 where there was no estimate.
        cells: the numbers of the answer.
        certified: those of them that are certified.
        rows: of the answer.
        certain: those of them that surely stay.
    """

    name: str
    finding: str
    fraction: float = 0.0
    cells: int = 0
    certified: int = 0
    rows: int = 0
    certain: int = 0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpcds", description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--data", type=Path, help="a folder of <table>.parquet files")
    parser.add_argument("--queries", type=Path, help="a folder of <number>.sql files")
    parser.add_argument("--keys", action="store_true", help="layouts by keys as well")
    parser.add_argument("--only", default="", help="names of queries, with commas between")
    parser.add_argument("--at", type=float, default=0.12, help="the share of the rows")
    parser.add_argument("--orders", type=int, help="how many orders of reading, else 1; 40 with --coverage")
    parser.add_argument("--into", type=Path, default=DATA, help="where tables are laid out")
    parser.add_argument("--sampled", default=BY_ROWS, help="TABLE[:KEY[+KEY]],…; other tables are static")
    parser.add_argument("--coverage", action="store_true", help="count how many certified cells hold")
    parser.add_argument("--layouts", type=int, default=1, help="with --coverage: that share the orders")
    parser.add_argument("--processes", type=int, default=usable_cores(), help="with --coverage")
    parser.add_argument("--out", type=Path, help="with --coverage: keep the counts, and go on from there")
    given = parser.parse_args(arguments)
    files = given.data or generated(given.scale, given.into)
    queries = queries_of(given.queries)
    names = given.only.split(",") if given.only else list(queries)
    if unknown := [name for name in names if name not in queries]:
        parser.error(f"--only: there is no query {unknown[0]}; there are {', '.join(queries)}")
    chosen = {name: queries[name] for name in names}
    into = given.into / f"tpcds-{files.resolve().name}{'-keys' if given.keys else ''}"
    sampled, keys = sampled_of(given.sampled), BY_KEYS if given.keys else ()
    folders = [warehouse(files, into, sampled, keys, number) for number in range(given.layouts)]
    if given.coverage:
        orders = given.orders or COVERAGE_ORDERS
        tpcds_held.show(chosen, files, folders, orders, processes=given.processes, out=given.out)
    else:
        console().print(survey(chosen, folders[0], given.orders or 1, given.at))


def survey(queries: Mapping[str, str], folder: Path, orders: int, share: float) -> Table:
    """Return which queries have a certified number at that share of the rows; print each look."""
    found: dict[str, list[Looked]] = {name: [] for name in queries}
    with connect(folder, threads=1, memory_limit=MEMORY_LIMIT, exact_below_seconds=0) as session:
        for seed, name in product(range(orders), queries):
            looked = look(session, name, queries[name], share, seed)
            found[name].append(looked)
            print(_line(looked), flush=True)
    return table_of(found.values())


def generated(scale: float, into: Path) -> Path:
    """Return a folder of TPC-DS's tables, made by DuckDB's extension on first use. Raises SystemExit."""
    folder = into / f"tpcds-{scale:g}-files"
    if not (folder / "web_site.parquet").exists():  # the last one by name
        with _with_extension("name the tables' folder with --data") as connection:
            connection.execute(f"CALL dsdgen(sf={scale})")
            folder.mkdir(parents=True, exist_ok=True)
            for (name,) in connection.sql("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
                connection.execute(f"COPY {name} TO '{folder / name}.parquet' (COMPRESSION zstd)")
    return folder


def queries_of(folder: Path | None) -> dict[str, str]:
    """Return the queries by name: those of a folder, or the extension's own. Raises SystemExit."""
    if folder is not None:
        texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql"))}
        if not texts:
            raise SystemExit(f"--queries: {folder} has no .sql files; name a folder of <number>.sql files")
    else:
        with _with_extension("name the queries' folder with --queries") as connection:
            rows = connection.sql("SELECT query_nr, query FROM tpcds_queries() ORDER BY 1").fetchall()
        texts = {f"{number:02}": text for number, text in rows}
    return {name: text.strip().rstrip(";") for name, text in texts.items()}


def _with_extension(instead: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    try:
        connection.execute("INSTALL tpcds; LOAD tpcds")
    except duckdb.Error as error:
        raise SystemExit(f"DuckDB cannot load its extension tpcds here ({error}); {instead}") from error
    return connection


def warehouse(
    files: Path,
    into: Path,
    sampled: Mapping[str, tuple[str, ...]],
    by_keys: Iterable[Iterable[tuple[str, str]]],
    number: int,
) -> Path:
    """Return a warehouse of the files' tables, laid out once.

    Tables by rows have seeds of their own: what one of them misses says nothing of the others. Tables by keys
    have one seed, so that they meet. number: of the warehouse; others have other seeds.
    """
    folder, base = into.with_name(f"{into.name}-{number}") if number else into, SEEDS * number
    for table, (file,) in files_of_folder(files).items():
        if table not in sampled:
            once(folder / table, partial(add_static, str(file)))
            continue
        seed, key = base + list(sampled).index(table), sampled[table]
        if key:
            seed = base + len(sampled)
        once(folder / table, partial(_shuffled, file, seed=seed, key=key))
    for seed, together in enumerate(by_keys, start=base + 1):
        for table, column in together:
            file, key = files / f"{table}.parquet", (column,)
            once(folder / f"{table}@{column}", partial(_shuffled, file, seed=seed, key=key))
    return folder


def _shuffled(file: Path, path: Path, seed: int, key: tuple[str, ...]) -> object:
    return shuffle(str(file), path, partitions=PARTITIONS, cluster_by=key or None, seed=seed)


def look(session: Session, name: str, sql: str, share: float, seed: int) -> Looked:
    """Return what a query says when it has read that share of its rows."""
    plan = session.plan(sql)
    if not plan.is_estimated:
        return Looked(name, _why_exact(plan))
    last = None
    with session.online_sql(sql, seed=seed) as query:
        for snapshot in _estimates(query):
            last = snapshot
            if snapshot.fraction >= NEARLY * share:
                break
    if last is None:
        return Looked(name, "so many groups that it goes over to the whole")
    cells = [last.table.column(column.certified).to_numpy() for column in last.columns]
    certified = sum(int(each.sum()) for each in cells)
    certain = 0 if last.certain_rows is None else last.certain_rows.true_count
    finding = CERTIFIED if certified else _why_none(plan, last, certain)
    count = len(last) * len(last.columns)
    return Looked(name, finding, last.fraction, count, certified, len(last), certain)


def _estimates(query: Iterator[Snapshot]) -> Iterator[Snapshot]:
    for snapshot in query:
        if snapshot.is_exact:
            return
        yield snapshot


def _why_exact(plan: OnlinePlan) -> str:
    static = any("no table of its FROM is sampled" in why for why in plan.why_whole)
    return "reads no sampled table, so it is exact at once" if static else "a table is read whole"


def _why_none(plan: OnlinePlan, last: Snapshot, certain: int) -> str:
    """Return the first reason why no number is certified."""
    numbers = [output for output in plan.outputs if output.kind is not OutputKind.KEY]
    if not numbers:
        return NO_NUMBER
    if not len(last):
        return "no row met yet"
    if all(output.kind is OutputKind.OPAQUE for output in numbers):
        return "values without error bars"
    if plan.is_undecided:
        return "an estimate decides which rows there are"
    if not certain:
        return "LIMIT may still leave out any row"
    return "few rows in each group that is certain"


def _line(looked: Looked) -> str:
    cells = f"{looked.certified} of {looked.cells} cells, {looked.certain} of {looked.rows} rows certain"
    return f"{looked.name}  {looked.fraction:6.2%}  {cells}  {looked.finding}"


def table_of(found: Iterable[Sequence[Looked]]) -> Table:
    """Return how many queries have a certified number, and the reasons of the others. Each has its orders."""
    by_finding: dict[str, list[str]] = {}
    for orders in found:
        by_finding.setdefault(finding_of(orders), []).append(orders[0].name)
    table = Table("of each query", "count", "queries", box=SIMPLE_HEAD)
    certified = (IN_ALL, IN_SOME)
    for finding, names in sorted(
        by_finding.items(), key=lambda each: (each[0] not in certified, -len(each[1]))
    ):
        table.add_row(finding, str(len(names)), " ".join(names))
    return table


def finding_of(orders: Sequence[Looked]) -> str:
    """Return what a query's orders say: that numbers are certified, or why none is in the first order."""
    count = sum(each.finding == CERTIFIED for each in orders)
    if count:
        return IN_ALL if count == len(orders) else IN_SOME
    first = orders[0]
    exact = first.finding == NO_NUMBER and all(each.certain for each in orders)
    return f"{NO_NUMBER}, and rows that surely stay" if exact else first.finding


if __name__ == "__main__":
    main()
