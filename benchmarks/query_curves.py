"""Real progress and error curves of aggregation queries: TPC-H 1 and 6, and averages of the flights.

Rows are shuffled and read in equal mini-batches; after each the answer is scaled to the whole, as the engine
does it, and compared with the one before (progress) and with the last (true error). Same seed, same curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray
from relaqs_tpch import generate
from relaqs_tpch.data import ORIGINALS

from relaqs.cli import data as flights
from relaqs.progress import Cells, ResultDelta

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FEWEST_ROWS = 10  # a group with fewer does not count, as in the engine


@dataclass(frozen=True, slots=True)
class Query:
    """Sums and averages by group. group: shape (rows,), -1 where the query's filter rejects the row.

    summed, averaged: shape (rows, columns), one column an aggregate.
    """

    name: str
    group: IntArray
    summed: FloatArray
    averaged: FloatArray


@dataclass(frozen=True, slots=True)
class QueryCurve:
    """One run in equal mini-batches: progress P_i and mean true relative error of the cells, (batches,)."""

    name: str
    progress: FloatArray
    true_error: FloatArray


def query_curves(batches: int, seed: int, queries: Sequence[Query] | None = None) -> list[QueryCurve]:
    """Return a run of each query in so many equal mini-batches, rows in the seed's order."""
    return [_run(query, batches, seed) for query in (all_queries() if queries is None else queries)]


def _run(query: Query, batches: int, seed: int) -> QueryCurve:
    order = np.random.default_rng(seed).permutation(len(query.group))
    groups = int(query.group.max()) + 1
    columns = np.hstack([np.ones((len(order), 1)), query.summed, query.averaged])
    sums = np.zeros((groups, columns.shape[1]))
    progress, results = ResultDelta(), []
    curve = np.empty(batches)
    scanned = 0
    for i, rows in enumerate(np.array_split(order, batches)):
        scanned += len(rows)
        rows = rows[query.group[rows] >= 0]
        np.add.at(sums, query.group[rows], columns[rows])
        values = _answer(sums, query.summed.shape[1], scanned / len(order))
        counts = np.broadcast_to(sums[:, :1] >= FEWEST_ROWS, values.shape)
        curve[i] = progress.update(Cells(tuple(range(groups)), values, counts))
        results.append(np.where(counts, values, np.nan))
    exact = np.where(results[-1] == 0, np.nan, results[-1])
    errors = np.array([np.nanmean(np.abs(result / exact - 1.0)) for result in results])
    return QueryCurve(query.name, curve, errors)


def _answer(sums: FloatArray, summed: int, fraction: float) -> FloatArray:
    totals, rest = sums[:, : 1 + summed] / fraction, sums[:, 1 + summed :]
    return np.hstack([totals, rest / np.maximum(sums[:, :1], 1.0)])


@cache
def all_queries() -> tuple[Query, ...]:
    """Return TPC-H 1 and 6 at scale 0.1 and four groupings of the flights."""
    lineitem, table = _lineitem(), flights.read_table("flights")
    delays = _matrix(table, "arr_delay", "dep_delay")
    distance = _matrix(table, "distance")
    by = ("carrier", "origin", "month", "dest")
    grouped = [Query(f"flights by {key}", _codes(table, key), distance, delays) for key in by]
    return (_tpch_1(lineitem), _tpch_6(lineitem), *grouped)


def _tpch_1(lineitem: pa.Table) -> Query:
    quantity, price, discount, tax = _matrix(
        lineitem, "l_quantity", "l_extendedprice", "l_discount", "l_tax"
    ).T
    group = _codes(lineitem, "l_returnflag") * 2 + _codes(lineitem, "l_linestatus")
    net = price * (1 - discount)
    return Query(
        "TPC-H 1",
        np.unique(group, return_inverse=True)[1],
        np.column_stack([quantity, price, net, net * (1 + tax)]),
        np.column_stack([quantity, price, discount]),
    )


def _tpch_6(lineitem: pa.Table) -> Query:
    quantity, price, discount = _matrix(lineitem, "l_quantity", "l_extendedprice", "l_discount").T
    year = pc.year(lineitem["l_shipdate"]).to_numpy()
    wanted = (year == 1994) & (discount > 0.049) & (discount < 0.071) & (quantity < 24)
    none = np.empty((len(price), 0))
    return Query("TPC-H 6", np.where(wanted, 0, -1), (price * discount)[:, None], none)


@cache
def _lineitem() -> pa.Table:
    with TemporaryDirectory() as folder:
        generate(0.1, Path(folder), partitions=2, keep_raw=True)
        return pyarrow.parquet.read_table(Path(folder) / ORIGINALS / "lineitem.parquet")


def _matrix(table: pa.Table, *names: str) -> FloatArray:
    columns = [pc.fill_null(table[name].cast(pa.float64()), 0.0).to_numpy() for name in names]
    return np.column_stack(columns)


def _codes(table: pa.Table, name: str) -> IntArray:
    values = table[name].to_numpy()
    return np.unique(values, return_inverse=True)[1]
