"""A catalog that exists in memory alone: planning reads no file, so that none has to be there."""

from __future__ import annotations

from pathlib import Path

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import BLOCK_COUNT, Column, Layout, Partition, Scalar, StoredFile

# (name, type, minimum, maximum, distinct values), about as TPC-H has them at scale 1.
ColumnSpec = tuple[str, str, Scalar, Scalar, int]

LINEITEM: tuple[ColumnSpec, ...] = (
    ("l_orderkey", "BIGINT", 1, 6_000_000, 1_500_000),
    ("l_partkey", "BIGINT", 1, 200_000, 200_000),
    ("l_suppkey", "BIGINT", 1, 10_000, 10_000),
    ("l_linenumber", "INTEGER", 1, 7, 7),
    ("l_quantity", "DECIMAL(15,2)", 1, 50, 50),
    ("l_extendedprice", "DECIMAL(15,2)", 901, 104_949.5, 933_900),
    ("l_discount", "DECIMAL(15,2)", 0, 0.1, 11),
    ("l_tax", "DECIMAL(15,2)", 0, 0.08, 9),
    ("l_returnflag", "VARCHAR", "A", "R", 3),
    ("l_linestatus", "VARCHAR", "F", "O", 2),
    ("l_shipdate", "DATE", "1992-01-02", "1998-12-01", 2_526),
    ("l_shipmode", "VARCHAR", "AIR", "TRUCK", 7),
)
ORDERS: tuple[ColumnSpec, ...] = (
    ("o_orderkey", "BIGINT", 1, 6_000_000, 1_500_000),
    ("o_custkey", "BIGINT", 1, 149_999, 99_996),
    ("o_totalprice", "DECIMAL(15,2)", 857.71, 555_285.16, 1_464_556),
    ("o_orderdate", "DATE", "1992-01-01", "1998-08-02", 2_406),
    ("o_orderpriority", "VARCHAR", "1-URGENT", "5-LOW", 5),
)
CUSTOMER: tuple[ColumnSpec, ...] = (
    ("c_custkey", "BIGINT", 1, 150_000, 150_000),
    ("c_nationkey", "INTEGER", 0, 24, 25),
    ("c_mktsegment", "VARCHAR", "AUTOMOBILE", "MACHINERY", 5),
)
SUPPLIER: tuple[ColumnSpec, ...] = (
    ("s_suppkey", "BIGINT", 1, 10_000, 10_000),
    ("s_nationkey", "INTEGER", 0, 24, 25),
)
PART: tuple[ColumnSpec, ...] = (
    ("p_partkey", "BIGINT", 1, 200_000, 200_000),
    ("p_brand", "VARCHAR", "Brand#11", "Brand#55", 25),
    ("p_size", "INTEGER", 1, 50, 50),
    ("p_container", "VARCHAR", "JUMBO BAG", "WRAP PKG", 40),
)
NATION: tuple[ColumnSpec, ...] = (
    ("n_nationkey", "INTEGER", 0, 24, 25),
    ("n_name", "VARCHAR", "ALGERIA", "VIETNAM", 25),
    ("n_regionkey", "INTEGER", 0, 4, 5),
)
REGION: tuple[ColumnSpec, ...] = (
    ("r_regionkey", "INTEGER", 0, 4, 5),
    ("r_name", "VARCHAR", "AFRICA", "MIDDLE EAST", 5),
)
# Each visit is a sampling unit of its own. `visitor` has many values, `score` may be negative, `device` NULL.
VISITS: tuple[ColumnSpec, ...] = (
    ("visitor", "BIGINT", 1, 900_000, 900_000),
    ("page", "VARCHAR", "/", "/zoo", 400),
    ("seconds", "DOUBLE", 0.5, 3_600.0, 100_000),
    ("score", "DOUBLE", -1.0, 1.0, 100_000),
    ("device", "BIGINT", 1, 50, 50),
)


def _layout(
    table: str,
    specs: tuple[ColumnSpec, ...],
    row_count: int,
    *,
    cluster_key: tuple[str, ...] = (),
    partition_count: int = 0,
    nulls: tuple[str, ...] = (),
) -> Layout:
    """Return a layout of two files at most, static where it has no partitions of its own."""
    sampled = partition_count > 0
    files = max(partition_count, 1)
    rows = row_count // files
    blocks = (rows // BLOCK_COUNT,) * (BLOCK_COUNT - 1) if sampled else ()
    stored = [StoredFile(f"{i}.parquet", rows, 1 << 20, "") for i in range(files)]
    partition = [
        Partition((file,), rows, rows, (*blocks, rows - sum(blocks)) if sampled else ()) for file in stored
    ]
    return Layout(
        table=table,
        directory=Path("/w", table),
        kind="sampled" if sampled else "static",
        columns=tuple(
            Column(name, type_, low, high, 7 if name in nulls else 0, distinct, 1 << 20)
            for name, type_, low, high, distinct in specs
        ),
        partitions=tuple(partition),
        row_count=row_count,
        unit_count=row_count,
        cluster_key=cluster_key,
        seed=0,
        hash_scheme="fixed",
        hash_probe="fixed",
        max_unit_rows=7 if cluster_key else 1,
        source="",
        created_with="",
    )


CATALOG = Catalog(
    (
        _layout("lineitem", LINEITEM, 6_000_000, cluster_key=("l_orderkey",), partition_count=2),
        _layout("orders", ORDERS, 1_500_000, cluster_key=("o_orderkey",), partition_count=2),
        _layout("visits", VISITS, 2_000_000, partition_count=2, nulls=("device",)),
        _layout("customer", CUSTOMER, 150_000),
        _layout("supplier", SUPPLIER, 10_000),
        _layout("part", PART, 200_000),
        _layout("nation", NATION, 25),
        _layout("region", REGION, 5),
    )
)
