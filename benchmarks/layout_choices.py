"""Which layouts the planner reads, what it predicted of each choice, and what each really takes to ±5 %.

    python -m benchmarks.layout_choices [--scale 1] [--data WAREHOUSE] [--orders 3] [--tpch]

TPC-H with its second layouts, and lineitem by rows and by supplier as well: 600 rows a supplier, so that
units are large. Two warehouses are asked: in one lineitem's first layout is that by order, in the other that
by supplier. For each choice of layouts: core-seconds until the headline error is ±5 %, predicted and
measured, the median of several orders of reading, each in a session of its own with one thread. *rows* marks
what the fewest rows to wait for alone would take, *time* what the planner takes. With --tpch the 22 queries
are asked instead, of the first warehouse. WAREHOUSE is made where it is not there, and the layouts of
lineitem beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import Layout, read_manifest, shuffle
from relaqs_engine.planning.aggregate_plan import LayoutChoice, best_first
from relaqs_engine.rewrite import READING, SAMPLING
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.parse import parse_query
from relaqs_lab.cli.studies import console
from relaqs_tpch import QUERIES, query
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import tpch
from relaqs.executors import ThreadExecutor
from relaqs.session import Session

WITHIN = 0.05
MEMORY_BYTES = 4 << 30

_SUPPLIERS = "FROM lineitem, supplier WHERE l_suppkey = s_suppkey"
ASKED = {
    "by flag": "SELECT l_returnflag, sum(l_quantity) AS x FROM lineitem GROUP BY 1",
    "by day shipped": "SELECT l_shipdate, count(*) AS x FROM lineitem GROUP BY 1",
    "by supplier": "SELECT l_suppkey, sum(l_extendedprice) AS x FROM lineitem GROUP BY 1",
    "by nation": f"SELECT s_nationkey, sum(l_extendedprice) AS x {_SUPPLIERS} GROUP BY 1",
    "of a nation": f"SELECT sum(l_extendedprice) AS x {_SUPPLIERS} AND s_nationkey = 3",
    "by nation and mode": f"SELECT s_nationkey, l_shipmode, avg(l_quantity) AS x {_SUPPLIERS} GROUP BY 1, 2",
    "of few suppliers": "SELECT count(*) AS x FROM lineitem WHERE l_suppkey < 500",
    "by day ordered": "SELECT o_orderdate, sum(l_extendedprice) AS x FROM lineitem, orders "
    "WHERE l_orderkey = o_orderkey GROUP BY 1",
    "by brand": "SELECT p_brand, sum(l_quantity) AS x FROM lineitem, part "
    "WHERE l_partkey = p_partkey GROUP BY 1",
    "cost": "SELECT sum(ps_supplycost * l_quantity) AS x FROM lineitem, partsupp "
    "WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A choice of layouts. share: of the streams that was read until ±5 %."""

    streams: str
    predicted: float
    measured: float
    share: float
    by_rows: bool
    by_time: bool


def measure(sql: str, catalog: Catalog, orders: int) -> Iterator[Measured]:
    """Yield the choices of layouts that have estimates: one for each set of layouts that are sampled."""
    choices = _choices(sql, catalog)
    by_rows = min(choices, key=lambda each: (each.waiting_rows, not each.groups_are_local), default=None)
    by_time = next(iter(best_first(choices)), None)
    seen: set[str] = set()
    for choice in (each for each in (by_rows, by_time, *choices) if each is not None):
        if choice.streams in seen:
            continue
        seen.add(choice.streams)
        tables = choice.draft.catalog.tables
        runs = [_run(sql, Catalog(tuple(tables.values())), seed) for seed in (0, *range(orders))][1:]
        yield Measured(
            choice.streams,
            choice.time.core_seconds,
            median(seconds for seconds, _ in runs),
            median(share for _, share in runs),
            choice is by_rows,
            choice is by_time,
        )


def _choices(sql: str, catalog: Catalog) -> list[LayoutChoice]:
    binder = Binder(catalog)
    parsed = parse_query(sql, catalog.tables)
    draft = Draft(sql, catalog, binder, parsed.tree, tuple(binder.describe(sql)))
    found = []
    try:
        for rule in READING:
            draft = rule(draft)
    except NotOnlineError:
        return []
    for choice in catalog.choices(parsed.tables):
        sampled = replace(draft, catalog=choice)
        try:
            for rule in SAMPLING:
                sampled = rule(sampled)
        except NotOnlineError:
            continue
        found.append(LayoutChoice.of(sampled, parsed.tables))
    return found


def _run(sql: str, catalog: Catalog, seed: int) -> tuple[float, float]:
    """Return the core-seconds until ±5 %, and the share of the rows that was read by then."""
    with Session(catalog, {}, ThreadExecutor(1), memory_limit_bytes=MEMORY_BYTES, exact_threads=1) as session:
        session.plan(sql)
        begun = time.process_time()
        last = session.online_sql(sql, target=WITHIN, seed=seed).result()
        return time.process_time() - begun, last.fraction


def catalogs(warehouse: Path) -> dict[str, Catalog]:
    """Return the catalogs of both warehouses by the key of lineitem's first layout."""
    beside = warehouse.with_name(f"{warehouse.name}-lineitem")
    further = [
        _laid_out(warehouse / "lineitem", beside / "lineitem@rows", ()),
        _laid_out(warehouse / "lineitem", beside / "lineitem@supplier", ("l_suppkey",)),
    ]
    first = Catalog.open(warehouse)
    others = [each for each in first.layouts if not each.table.startswith("lineitem")]
    by_order = replace(first.table("lineitem"), table="lineitem@order")
    by_supplier = replace(further[1], table="lineitem")
    return {
        "order": Catalog((*first.layouts, *further)),
        "supplier": Catalog((*others, by_supplier, further[0], by_order)),
    }


def _laid_out(source: Path, into: Path, key: tuple[str, ...]) -> Layout:
    if into.exists():
        return read_manifest(into)
    partitions = len(read_manifest(source).partitions)
    return shuffle(source, into, cluster_by=key, partitions=partitions)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layout_choices", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H, where data is made")
    parser.add_argument("--data", type=Path, help="warehouse with TPC-H and its second layouts")
    parser.add_argument("--orders", type=int, default=3, help="orders of reading")
    parser.add_argument("--tpch", action="store_true", help="ask the 22 queries of TPC-H")
    given = parser.parse_args(words)
    warehouse = given.data or tpch.warehouse(given.scale, second_layouts=True)[0]
    found = catalogs(warehouse)
    if given.tpch:
        found, asked = {"order": found["order"]}, {f"Q{number}": query(number) for number in QUERIES}
    else:
        asked = ASKED
    for first, catalog in found.items():
        table = Table(title=f"lineitem's first layout is by {first}", box=SIMPLE_HEAD)
        for heading in ("query", "sampled", "predicted", "measured", "share", "rows", "time"):
            table.add_column(heading)
        for name, sql in asked.items():
            for each in measure(sql, catalog, given.orders):
                numbers = (f"{each.predicted:.2f}", f"{each.measured:.2f}", f"{each.share:.3f}")
                marks = ("×" if each.by_rows else "", "×" if each.by_time else "")
                table.add_row(name, each.streams, *numbers, *marks)
                name = ""
        console(110).print(table)


if __name__ == "__main__":
    main()
