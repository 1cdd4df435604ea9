"""The eight tables of TPC-H: how large each is, and how it is laid out at a scale, some of them twice."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaqs_engine.layouts.manifest import LAYOUT_MARK

LARGEST_STATIC_ROWS = 10_000_000  # every worker reads a static table whole: 10 M rows are about 0.5 GB


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One table, or another layout of it.

    Attributes:
        rows, parquet_bytes: at scale 1, as the generator writes them.
        name: of the folder; orders@customer is another layout of orders.
        grows: whether both are proportional to the scale.
        cluster_key: rows that share it stay together when the table is sampled; without it the sampling unit
            is a row.
        is_stream: sampled at every scale.
    """

    name: str
    rows: int
    parquet_bytes: int
    cluster_key: tuple[str, ...] = ()
    is_stream: bool = False
    grows: bool = True

    @property
    def original(self) -> str:
        """Return the name the generator knows the table by."""
        return self.name.partition(LAYOUT_MARK)[0]

    @property
    def is_second(self) -> bool:
        """Whether this is another layout of a table, beside its first."""
        return self.name != self.original

    def rows_at(self, scale: float) -> int:
        """Return about how many rows there are: lineitem's number varies a little."""
        return round(self.rows * scale) if self.grows else self.rows

    def parquet_bytes_at(self, scale: float) -> int:
        return round(self.parquet_bytes * scale) if self.grows else self.parquet_bytes

    def is_sampled_at(self, scale: float) -> bool:
        """Whether the table is laid out in partitions, and not read whole by every worker."""
        return self.is_stream or self.rows_at(scale) > LARGEST_STATIC_ROWS


# The largest first: once it is laid out its original can go, which frees most of the disk.
# lineitem joins orders, and partsupp joins part, inside one partition once both are sampled.
TABLES: tuple[TpchTable, ...] = (
    TpchTable("lineitem", 6_001_215, 231_672_087, ("l_orderkey",), is_stream=True),
    TpchTable("orders", 1_500_000, 63_489_711, ("o_orderkey",), is_stream=True),
    TpchTable("partsupp", 800_000, 44_827_360, ("ps_partkey",)),
    TpchTable("customer", 150_000, 13_924_285),
    TpchTable("part", 200_000, 6_900_503, ("p_partkey",)),
    TpchTable("supplier", 10_000, 902_351),
    TpchTable("nation", 25, 3_394, grows=False),
    TpchTable("region", 5, 1_797, grows=False),
)


def _again(table: str, layout: str, cluster_key: str) -> TpchTable:
    first = next(each for each in TABLES if each.name == table)
    name = f"{table}{LAYOUT_MARK}{layout}"
    return replace(first, name=name, cluster_key=(cluster_key,), is_stream=True)


# By these, all 22 queries have estimates (docs/decisions/0004-second-layouts.md).
SECOND_LAYOUTS: tuple[TpchTable, ...] = (
    _again("lineitem", "part", "l_partkey"),
    _again("orders", "customer", "o_custkey"),
    _again("partsupp", "part", "ps_partkey"),
    _again("customer", "customer", "c_custkey"),
    _again("part", "part", "p_partkey"),
)


def layouts_at(scale: float, *, second_layouts: bool) -> tuple[TpchTable, ...]:
    """Return what is laid out at a scale, all layouts of a table one after another.

    A second layout that would repeat the first one, as partsupp's does where it is sampled, is left out.
    """
    found = []
    for table in TABLES:
        found.append(table)
        repeated = table.cluster_key if table.is_sampled_at(scale) else None
        for second in SECOND_LAYOUTS if second_layouts else ():
            if second.original == table.name and second.cluster_key != repeated:
                found.append(second)
    return tuple(found)
