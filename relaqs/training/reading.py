"""A SELECT's rows, partition by partition, as arrays: planned on the driver, read on workers by DuckDB."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.arrow_arrays import doubles, integers
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.errors import DataError, SqlError, UnsupportedError
from relaqs_engine.execution.state import leading_stream, partial_reads, partial_sql, scan_order
from relaqs_engine.layouts.manifest import LaidOutRead
from relaqs_engine.plans.aggregate import RowsPlan
from relaqs_engine.plans.plan import Hoist, OnlinePlan

from relaqs.executors.duck_process import QueryWork
from relaqs.training.rows import Rows

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_NUMBERS = (*_INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """How one partition's rows are read. Those of equal digests have equal rows.

    digest: of the text, the files' content and the time zone.
    """

    config: DatabaseConfig
    hoists: tuple[Hoist, ...]
    sql: str
    files: tuple[LaidOutRead, ...]
    names: tuple[str, ...]
    target: str | None
    row_count: int
    digest: str

    def rows(self, owner: str) -> Rows:
        """Return the rows. Raises DataError for a NULL, a NaN or an infinity, naming the column."""
        table: pa.Table = QueryWork(self.config, self.hoists, self.sql, self.files).run(owner)
        columns = [_feature(table.column(i), name) for i, name in enumerate(self.names)]
        features = np.ascontiguousarray(np.column_stack(columns))
        target = None if self.target is None else _target(table.column(len(columns)), self.target)
        for shared in (features, target):  # by every job that trains on these rows
            if shared is not None:
                shared.setflags(write=False)
        return Rows(features, target)


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The partitions of a SELECT: every row is in exactly one. digest: of all of them."""

    names: tuple[str, ...]
    reads: tuple[PartitionRead, ...]
    digest: str


def training_set(
    plan: OnlinePlan, catalog: Catalog, config: DatabaseConfig, target: str | None
) -> TrainingSet:
    """Return how the rows of a planned SELECT are read. target: the name of the column to predict.

    Raises UnsupportedError for a SELECT that cannot be read partition by partition, SqlError where the target
    is not one of its columns or a feature is not a number.
    """
    rows = _of_rows(plan)
    position = _target_position(plan, target)
    features = [i for i in range(len(plan.outputs)) if i != position]
    _check_features(plan, features)
    names = tuple(plan.outputs[i].name for i in features)
    values = [f"CAST(k{i} AS DOUBLE)" for i in features]
    if position is not None:
        values.append(f"CAST(k{position} AS {_target_type(plan.outputs[position].type)})")
    reads = tuple(
        _partition_read(rows, catalog, config, index, names, target, values)
        for index in scan_order(rows, catalog, seed=0)
    )
    return TrainingSet(names, reads, _digest([read.digest for read in reads]))


def _partition_read(
    plan: RowsPlan,
    catalog: Catalog,
    config: DatabaseConfig,
    index: int,
    names: tuple[str, ...],
    target: str | None,
    values: Sequence[str],
) -> PartitionRead:
    sql = f"SELECT {', '.join(values)} FROM ({partial_sql(plan, catalog, (index,), by_block=False)})"
    read = [catalog.table(stream.table).partitions[index] for stream in plan.streams]
    contents = [content for partition in read for content in partition.contents]
    return PartitionRead(
        config=config,
        hoists=plan.hoists,
        sql=sql,
        files=partial_reads(plan, catalog, (index,)),
        names=names,
        target=target,
        row_count=leading_stream(plan, catalog).partitions[index].row_count,
        digest=_digest([repr(config.civil_time), sql, *contents]),
    )


def _of_rows(plan: OnlinePlan) -> RowsPlan:
    """Return the plan, if partitions can be read by it one by one. Raises UnsupportedError otherwise."""
    if not isinstance(plan, RowsPlan):
        reason = "it aggregates" if plan.streams else "; ".join(plan.reasons)
        raise UnsupportedError(
            f"training reads a SELECT's rows partition by partition, which this one forbids: {reason}. "
            "Write its result to a table with relaqs.shuffle, and train on that"
        )
    if plan.has_limit:
        raise UnsupportedError("LIMIT chooses among all rows; leave it out, training reads every row")
    return plan


def _target_position(plan: OnlinePlan, target: str | None) -> int | None:
    if target is None:
        return None
    names = [output.name for output in plan.outputs]
    found = [i for i, name in enumerate(names) if name.lower() == target.lower()]
    if len(found) != 1:
        raise SqlError(
            f"the target {target!r} is {'several columns' if found else 'no column'} of the SELECT, "
            f"which has {', '.join(names)}"
        )
    return found[0]


def _check_features(plan: OnlinePlan, features: Sequence[int]) -> None:
    if not features:
        raise SqlError("the SELECT has no column to learn from; add the features")
    for output in (plan.outputs[i] for i in features):
        if output.type.split("(")[0] not in _NUMBERS:
            raise SqlError(
                f"the feature {output.name!r} is {output.type}; features are numbers: CAST it, or encode it "
                "by CASE"
            )


def _target_type(type: str) -> str:
    """Return the type in which a target of this type travels: 64-bit numbers, booleans, or text."""
    if type in _INTEGERS:
        return "BIGINT"
    if type == "BOOLEAN":
        return "BOOLEAN"
    return "DOUBLE" if type.split("(")[0] in _NUMBERS else "VARCHAR"


def _feature(column: pa.ChunkedArray, name: str) -> FloatArray:
    _check_complete(column, name)
    return _finite(doubles(column), name)


def _target(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    _check_complete(column, name)
    if pa.types.is_floating(column.type):
        return _finite(doubles(column), name)
    if pa.types.is_integer(column.type):
        return integers(column)
    return np.array(column.to_pylist(), dtype=bool if pa.types.is_boolean(column.type) else np.str_)


def _check_complete(column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        raise DataError(
            f"{name!r} is NULL in {column.null_count} rows of a partition; leave them out with "
            "WHERE … IS NOT NULL, or fill them with coalesce"
        )


def _finite(values: FloatArray, name: str) -> FloatArray:
    if not np.isfinite(values).all():
        raise DataError(f"{name!r} is NaN or infinite in some rows; leave them out with WHERE isfinite(…)")
    return values


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
