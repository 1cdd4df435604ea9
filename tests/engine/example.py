"""A catalog of four tables, and queries carried as far as one rule, for the examples in docstrings.

The tables are in memory alone. Planning reads no file, so the files they name need not exist. Examples of
the engine have `sqlglot`, `np` and the public names of this module without importing them.

    trips   sampled by rows; fares above 80 are in its outlier index
    zones   static: small, and read whole
    orders  sampled by id       } both keys are laid out alike, so an order
    items   sampled by order_id } lies in the same partition as its items; those orders whose prices
            sum to more than 300, or that have more than 8 items, are its heavy units

>>> from relaqs_engine.rewrite.sampling import choose_streams
>>> [source.alias for source in after(choose_streams, "SELECT count(*) FROM orders, zones").streams]
['orders']
>>> explained("SELECT count(*) FROM orders", "error bars")
'from replicates, the estimate repeated leaving out one block of the sample at a time'
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import count, takewhile
from pathlib import Path

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    Column,
    Companion,
    HeavyUnits,
    Layout,
    Partition,
    StoredFile,
    UnitBound,
)
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.rewrite import ESTIMATED_TO_THE_END, LISTING, READING, SAMPLING, Rule
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.scans import stream_token
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.parse import DIALECT, parse_query
from sqlglot import exp

_HOIST = re.compile(r"hoist_[0-9a-f]{16}")
_FILES = re.compile(r"READ_PARQUET\(.*?\)", re.IGNORECASE)


def after(rule: Rule, sql: str) -> Draft:
    """Return the query as it is once all rules up to this one, and this one itself, have seen it."""
    binder = _binder()
    parsed = parse_query(sql, CATALOG.tables)
    draft = Draft(parsed.sql, CATALOG, binder, parsed.tree, tuple(binder.describe(sql)))
    last = ESTIMATED_TO_THE_END if rule in [each.rule for each in ESTIMATED_TO_THE_END] else LISTING
    for each in (*READING, *SAMPLING, *last):
        draft = each(draft)
        if each.rule is rule:
            return draft
    raise ValueError(f"{rule} is in none of the tuples of relaqs_engine.rewrite")


def refusal(rule: Rule, sql: str) -> str:
    """Return why the rules up to this one find no sound estimate for the query; "" if they do."""
    try:
        after(rule, sql)
    except NotOnlineError as reason:
        return str(reason)
    return ""


def planned(sql: str) -> OnlinePlan:
    """Return the query's plan."""
    return plan_query(sql, CATALOG, _binder())


def explained(sql: str, title: str) -> str:
    """Return what `explain` says of the query's plan under a title, on one line."""
    lines = iter(explain(planned(sql)).splitlines())
    first = next(line for line in lines if line.startswith(title))
    rest = list(takewhile(lambda line: line.startswith("  "), lines)) if first.endswith(":") else []
    text = " ".join(" ".join([first.partition(": ")[2], *rest]).split())
    return text.replace("( ", "(").replace(" )", ")")


def shown(sql: str | exp.Expr) -> str:
    """Return SQL for reading: tables in the place of their files, and names without quotes."""
    text = sql if isinstance(sql, str) else sql.sql(DIALECT)
    for layout in CATALOG.layouts:
        text = text.replace(stream_token(layout.table), f"partitions_of_{layout.table}")
    numbers = count()
    for name in dict.fromkeys(_HOIST.findall(text)):
        text = text.replace(name, f"hoist_{next(numbers)}")
    return _FILES.sub("files", text).replace('"', "")


@cache
def _binder() -> Binder:
    return Binder(CATALOG)


def _layout(table: str, row_count: int, key: str, *columns: Column) -> Layout:
    """Return a layout of two partitions. `key` is the cluster key, "rows", or "" for a static table."""
    files, blocks = (2, BLOCK_COUNT) if key else (1, 0)
    rows = row_count // files
    block_rows = (rows // BLOCK_COUNT,) * blocks
    stored = [StoredFile(f"{i}.parquet", rows, rows * 8, "") for i in range(files)]
    partitions = [Partition((each,), rows, rows, block_rows) for each in stored]
    is_clustered = key not in ("", "rows")
    return Layout(
        table=table,
        directory=Path("/example", table),
        kind="sampled" if key else "static",
        columns=columns,
        partitions=tuple(partitions),
        row_count=row_count,
        unit_count=row_count,
        cluster_key=(key,) if is_clustered else (),
        seed=0,
        hash_scheme="example",
        hash_probe="example",
        max_unit_rows=9 if is_clustered else 1,
        source="",
        created_with="",
    )


def _column(name: str, type_text: str, low: float, high: float, distinct: int) -> Column:
    return Column(name, type_text, low, high, null_count=0, distinct_count=distinct, byte_count=1 << 20)


def _text(name: str, distinct: int) -> Column:
    return Column(name, "VARCHAR", "A", "Z", null_count=0, distinct_count=distinct, byte_count=1 << 20)


_TRIPS = _layout(
    "trips",
    12_800_000,
    "rows",
    _column("driver", "INTEGER", 1, 50_000, 50_000),
    _column("zone", "INTEGER", 1, 250, 250),
    _column("km", "DOUBLE", 0.1, 60, 600),
    replace(_column("fare", "DOUBLE", 2.5, 950, 9_000), inlier_low=2.5, inlier_high=80.0),
    _text("comment", 90_000),
)
_HEAVY = Partition((StoredFile("heavy.parquet", 900, 7_200, "heavy items"),), 900, 100)
CATALOG = Catalog(
    (
        replace(_TRIPS, outliers=Partition((StoredFile("outliers.parquet", 900, 7_200, ""),), 900, 900)),
        _layout("zones", 250, "", _column("zone", "INTEGER", 1, 250, 250), _text("city", 5)),
        replace(
            _layout(
                "orders",
                256_000,
                "id",
                _column("id", "BIGINT", 1, 256_000, 256_000),
                _column("customer", "INTEGER", 1, 20_000, 20_000),
                _column("total", "DOUBLE", 1, 500, 40_000),
            ),
            companions=(Companion("heavy items", replace(_HEAVY, row_count=100)),),
        ),
        replace(
            _layout(
                "items",
                1_024_000,
                "order_id",
                _column("order_id", "BIGINT", 1, 256_000, 256_000),
                _column("part", "INTEGER", 1, 5_000, 5_000),
                _column("price", "DOUBLE", 0.5, 99, 9_000),
            ),
            heavy=HeavyUnits((UnitBound("price", 300.0), UnitBound("", 8.0)), _HEAVY),
        ),
    )
)
