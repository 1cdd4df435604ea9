"""What is trained on: a SELECT's rows, read partition by partition as arrays, and the profile of all of them.

A training set is a SELECT, and it is never in one place (`TrainingSet`). It is planned on the driver. Each
partition's rows are read on a worker by DuckDB (`PartitionRead`). A task sees some pieces of a partition
(`Rows`) and returns sums over them. Sums are arrays of the same shapes for every partition, so they add up
in any grouping.

Before training starts, every row is looked at once. The profile has what algorithms scale and begin by:
the mean and covariance of the features, the classes of the target and how often each is, and a sample.
Profiles of two halves merge into that of the whole, by the updating formulae of Chan, Golub and LeVeque
(1979), which lose no digits where a column is far from zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.arrow_arrays import doubles, integers
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.errors import DataError, SqlError, UnsupportedError
from relaqs_engine.execution.state import leading_stream, partial_task, scan_order
from relaqs_engine.layouts.manifest import LaidOutRead
from relaqs_engine.plans.aggregate import RowsPlan
from relaqs_engine.plans.plan import NO_ROW, Hoist, OnlinePlan

from relaqs.executors.duck_process import QueryWork

if TYPE_CHECKING:
    import pandas

Sums: TypeAlias = tuple[FloatArray, ...]
"""What a pass computes: arrays that add up, the same shapes for every partition."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Neighbouring pieces of a partition. cut: how many it has. first, end: which these are."""

    cut: int
    first: int
    end: int

    def of(self, row_count: int) -> slice:
        """Return where they are among the partition's rows."""
        return slice(row_count * self.first // self.cut, row_count * self.end // self.cut)


ALL = Pieces(1, 0, 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one partition.

    Attributes:
        features: the numbers to learn from, shape (rows, features).
        target: the column to predict, shape (rows,). None where there is nothing to predict.
        kept: what this run stored beside these rows at its last pass. Each name has a version and an array.
            It may be empty at any time. Two tasks may see it at once, so replace entries and never write
            into arrays.
        others: the columns that are no numbers, such as texts and dates, where the job takes them
            (`WholeSteps`); None where there are none.

    >>> import numpy as np
    >>> rows = Rows(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), target=np.array([0, 1, 1]))
    >>> len(rows), rows.features.sum(axis=0).tolist()
    (3, [9.0, 12.0])
    """

    features: FloatArray
    target: NDArray[Any] | None
    kept: dict[str, tuple[int, NDArray[Any]]] = field(default_factory=dict)
    others: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.features)

    def part(self, of: slice) -> Rows:
        """Return some of the rows, with nothing stored beside them."""
        target = None if self.target is None else self.target[of]
        if self.others is None:
            return Rows(self.features[of], target)
        first, end, _ = of.indices(len(self))
        return Rows(self.features[of], target, others=self.others.slice(first, end - first))

    def picked(self, places: IntArray) -> Rows:
        """Return the rows at some places, copied together, with nothing stored beside them."""
        target = None if self.target is None else self.target.take(places)
        others = None if self.others is None else self.others.take(places)
        return Rows(self.features.take(places, axis=0), target, others=others)

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Return all rows of some parts, in their order. There must be one part at least."""
        parts = [part for part in parts if len(part)] or parts[:1]  # a target of no rows may lack its type
        if len(parts) == 1:
            return parts[0]
        targets = [part.target for part in parts if part.target is not None]
        others = [part.others for part in parts if part.others is not None]
        return Rows(
            np.concatenate([part.features for part in parts]),
            np.concatenate(targets) if targets else None,
            others=pa.concat_tables(others) if others else None,
        )


def frame_of(rows: Rows, names: tuple[str, ...]) -> pandas.DataFrame:
    """Return rows as a data frame of the SELECT's columns, in order."""
    import pandas

    if rows.others is None:
        return pandas.DataFrame(rows.features, columns=list(names), copy=False)
    others = rows.others.to_pandas(date_as_object=False)
    numbers = [name for name in names if name not in others.columns]
    both = pandas.concat([pandas.DataFrame(rows.features, columns=numbers, copy=False), others], axis=1)
    return both[list(names)]


NOTHING_TO_LEARN = "the SELECT of the training job returns no rows; there is nothing to learn from"
MOST_CLASSES = 1000  # a target with more distinct values is a quantity
MOST_CROSSED = 200  # features; beyond them their products would cost more than the passes they save


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of all rows before training: moments, the target's classes, and a sample.

    Attributes:
        names: the names of the features, in the order of the SELECT.
        row_count: the number of rows.
        mean: of each feature, shape (features,).
        spread: the sums of products of deviations from the mean, shape (features, features). With more than
            MOST_CROSSED features it has the sums of squares alone, shape (features,).
        target_mean: the mean of the target; NaN where the target is text or absent.
        target_spread: the sum of squared deviations of the target; NaN likewise.
        classes: the target's distinct values, sorted; empty without a target, None if there are more than
            MOST_CLASSES.
        class_rows: how many rows have each class; None where `classes` is.
        sampled: rows drawn at random from all partitions.

    >>> from relaqs.training import Rows
    >>> rows = Rows(np.array([[1.0], [3.0], [5.0]]), np.array(["a", "b", "a"]))
    >>> profile = profile_of(rows, ("x",), sample_rows=2, seed=0)
    >>> profile.mean.tolist(), profile.classes.tolist(), profile.class_rows.tolist()
    ([3.0], ['a', 'b'], [2, 1])
    """

    names: tuple[str, ...]
    row_count: int
    mean: FloatArray
    spread: FloatArray
    target_mean: float
    target_spread: float
    classes: NDArray[Any] | None
    class_rows: IntArray | None
    sampled: Rows

    @property
    def sample(self) -> FloatArray:
        """The features of the rows drawn, shape (rows, features)."""
        return self.sampled.features

    @property
    def covariance(self) -> FloatArray:
        """The covariance of the features over all rows, in the shape of `spread`.

        Raises DataError where a double cannot hold it: who divides by it would take the feature for one that
        says nothing.
        """
        covariance = self.spread / max(self.row_count, 1)
        variance = np.diag(covariance) if covariance.ndim == 2 else covariance
        if not np.isfinite(variance).all():
            wide = [name for name, each in zip(self.names, variance, strict=True) if not np.isfinite(each)]
            raise DataError(
                f"the variance of {', '.join(map(repr, wide))} is beyond 1.8e308, the most that a 64-bit "
                "float holds; scale the column in the SELECT"
            )
        return covariance

    @property
    def variance(self) -> FloatArray:
        """The variance of each feature over all rows, shape (features,). Raises DataError as `covariance`."""
        covariance = self.covariance
        return np.diag(covariance) if covariance.ndim == 2 else covariance

    @np.errstate(over="ignore", invalid="ignore")  # `covariance` says so
    def merged(self, other: Profile) -> Profile:
        """Return the profile of both halves' rows. Source: Chan, Golub, LeVeque 1979, updating formulae."""
        count = self.row_count + other.row_count
        share = other.row_count / max(count, 1)
        shift, target_shift = other.mean - self.mean, other.target_mean - self.target_mean
        classes, class_rows = _merged_classes(self, other)
        return Profile(
            names=self.names,
            row_count=count,
            mean=self.mean + share * shift,
            spread=self.spread + other.spread + self.row_count * share * _products(shift[None]),
            target_mean=self.target_mean + share * target_shift,
            target_spread=self.target_spread
            + other.target_spread
            + self.row_count * share * (target_shift * target_shift),
            classes=classes,
            class_rows=class_rows,
            sampled=Rows.joined([self.sampled, other.sampled]),
        )


@np.errstate(over="ignore", invalid="ignore")  # `Profile.covariance` says so
def profile_of(rows: Rows, names: tuple[str, ...], sample_rows: int, seed: int) -> Profile:
    """Return the profile of one partition.

    Args:
        rows: the partition.
        names: the names of the features.
        sample_rows: how many rows to draw for the sample. They are drawn at random, because a partition keeps
            the order that its rows had in the source.
        seed: of the draw.
    """
    target = np.empty(0) if rows.target is None else rows.target
    is_number = rows.target is not None and target.dtype.kind in "fib"
    numbers = target.astype(np.float64) if is_number else np.full(len(rows), np.nan)
    mean, target_mean = _mean(rows.features), float(_mean(numbers))
    picked = np.sort(np.random.default_rng(seed).permutation(len(rows))[:sample_rows])
    classes, class_rows = np.unique(target, return_counts=True)
    has_classes = len(classes) <= MOST_CLASSES
    return Profile(
        names=names,
        row_count=len(rows),
        mean=mean,
        spread=_products(rows.features - mean),
        target_mean=target_mean,
        target_spread=float(((numbers - target_mean) ** 2).sum()),
        classes=classes if has_classes else None,
        class_rows=class_rows if has_classes else None,
        sampled=rows.picked(picked),
    )


def class_codes(target: NDArray[Any] | None, profile_classes: NDArray[Any]) -> IntArray:
    """Return each row's class as its position among the classes, shape (rows,)."""
    assert target is not None
    return np.searchsorted(profile_classes, target).astype(np.int64)


def right_of(scores: FloatArray, classes: NDArray[Any], target: NDArray[Any] | None) -> int:
    """Return of how many rows scores tell the class rightly.

    Args:
        scores: shape (rows, outputs). One output is positive for the second of two classes; of more, the
            highest is that of the row's class.
    """
    codes = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
    assert target is not None
    known = codes < len(classes)  # a module may have more outputs
    return int((np.asarray(classes[codes[known]]) == target[known]).sum())


def known_classes(profile: Profile, target: str) -> NDArray[Any]:
    """Return the classes to tell apart. Raises DataError where there are not at least two, or too many."""
    classes = profile.classes
    if classes is None:
        raise DataError(
            f"{target!r} has more than {MOST_CLASSES} distinct values; give a column of classes, e.g. by CASE"
        )
    if len(classes) < 2:
        raise DataError(f"{target!r} has one class only, {classes.tolist()}; at least two are needed")
    return classes


def numeric_target(profile: Profile, target: str) -> tuple[float, float]:
    """Return the target's mean and variance. Raises DataError where it is text."""
    if not np.isfinite(profile.target_mean):
        raise DataError(f"{target!r} is not a number; give a numeric column, or train a classifier")
    return profile.target_mean, profile.target_spread / max(profile.row_count, 1)


def _mean(values: FloatArray) -> FloatArray:
    """Return the mean over rows; 0 of none, which adds nothing to what it is merged with."""
    return values.mean(axis=0) if len(values) else np.zeros(values.shape[1:])


def _products(deviations: FloatArray) -> FloatArray:
    """Return the sums of products of columns, or of squares where there are many. See `Profile.spread`."""
    if deviations.shape[1] > MOST_CROSSED:
        return np.asarray((deviations**2).sum(axis=0))
    return deviations.T @ deviations


def _merged_classes(one: Profile, other: Profile) -> tuple[NDArray[Any] | None, IntArray | None]:
    if one.classes is None or other.classes is None:
        return None, None
    halves = [each for each in (one, other) if each.row_count]  # an empty partition's target has no type
    if len(halves) < 2:
        half = halves[0] if halves else one
        return half.classes, half.class_rows
    union, place = np.unique(np.concatenate([one.classes, other.classes]), return_inverse=True)
    if len(union) > MOST_CLASSES:
        return None, None
    rows = np.bincount(place, np.concatenate([one.class_rows, other.class_rows])).astype(np.int64)
    return union, rows


_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_NUMBERS = (*_INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """How one partition's rows are read. Those of equal digests have equal rows.

    Attributes:
        names: of all features, in the order of the SELECT.
        others: which of them are no numbers. They travel as they are.
        takes_gaps: whether a number may be NULL, which is NaN then, or infinite.
        digest: of all that the rows follow from: the text, what becomes of its columns, the files' content
            and the time zone.
    """

    config: DatabaseConfig
    hoists: tuple[Hoist, ...]
    sql: str
    files: tuple[LaidOutRead, ...]
    names: tuple[str, ...]
    target: str | None
    row_count: int
    digest: str
    others: tuple[str, ...] = ()
    takes_gaps: bool = False

    def rows(self, owner: str) -> Rows:
        """Return the rows. Raises DataError for a NULL, a NaN or an infinity, naming the column."""
        table: pa.Table = QueryWork(self.config, self.hoists, self.sql, self.files).run(owner)
        features = np.ascontiguousarray(self._numbers(table))
        target = None if self.target is None else _target(table.column(len(self.names)), self.target)
        for shared in (features, target):  # by every job that trains on these rows
            if shared is not None:
                shared.setflags(write=False)
        return Rows(features, target, others=self._others(table))

    def _numbers(self, table: pa.Table) -> FloatArray:
        """Return the features that are numbers, shape (rows, numbers)."""
        read = _number if self.takes_gaps else _feature
        places = [(i, name) for i, name in enumerate(self.names) if name not in self.others]
        if not places:
            return np.empty((len(table), 0))
        return np.column_stack([read(table.column(i), name) for i, name in places])

    def _others(self, table: pa.Table) -> pa.Table | None:
        """Return the features that are no numbers, by their names; None where all are."""
        places = [i for i, name in enumerate(self.names) if name in self.others]
        if not places:
            return None
        chosen = table.select(places).rename_columns([self.names[i] for i in places])
        return chosen.combine_chunks()  # rows are picked from it again and again


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The partitions of a SELECT: every row is in exactly one. digest: of all of them."""

    names: tuple[str, ...]
    reads: tuple[PartitionRead, ...]
    digest: str


def training_set(
    plan: OnlinePlan, catalog: Catalog, config: DatabaseConfig, target: str | None, *, takes_all: bool = False
) -> TrainingSet:
    """Return how the rows of a planned SELECT are read.

    Args:
        target: the name of the column to predict.
        takes_all: whether features may be of any type, and NULL.

    Raises UnsupportedError for a SELECT that cannot be read partition by partition, SqlError where the target
    is not one of its columns or a feature is not a number.
    """
    rows = _of_rows(plan)
    position = _target_position(plan, target)
    features = [i for i in range(len(plan.outputs)) if i != position]
    names = tuple(plan.outputs[i].name for i in features)
    is_number = {i: plan.outputs[i].type.split("(")[0] in _NUMBERS for i in features}
    if not features or not takes_all:
        _check_features(plan, features)
    elif len(set(names)) < len(names):
        raise SqlError(f"two columns of the SELECT have one name, of {', '.join(names)}; rename one with AS")
    values = [f"CAST(k{i} AS DOUBLE)" if is_number[i] else f"k{i}" for i in features]
    if position is not None:
        values.append(f"CAST(k{position} AS {_target_type(plan.outputs[position].type)})")
    others = tuple(name for i, name in zip(features, names, strict=True) if not is_number[i])
    reading = _Reading(tuple(values), names, target, others, takes_all)
    reads = tuple(
        _partition_read(rows, catalog, config, index, reading) for index in scan_order(rows, catalog, seed=0)
    )
    return TrainingSet(names, reads, _digest([read.digest for read in reads]))


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is read of every partition. values: in SQL, the features and then the target."""

    values: tuple[str, ...]
    names: tuple[str, ...]
    target: str | None
    others: tuple[str, ...]
    takes_gaps: bool


def _partition_read(
    plan: RowsPlan, catalog: Catalog, config: DatabaseConfig, index: int, reading: _Reading
) -> PartitionRead:
    task = partial_task(plan, catalog, (index,), by_block=False)
    sql = f"SELECT {', '.join(reading.values)} FROM ({task.sql})"
    read = [catalog.layout(stream.table).partitions[index] for stream in plan.streams]
    contents = [content for partition in read for content in partition.contents]
    return PartitionRead(
        config=config,
        hoists=plan.hoists,
        sql=sql,
        files=task.reads,
        names=reading.names,
        target=reading.target,
        row_count=leading_stream(plan, catalog).partitions[index].row_count,
        digest=_digest([repr(config.civil_time), sql, repr(reading), *contents]),
        others=reading.others,
        takes_gaps=reading.takes_gaps,
    )


def _of_rows(plan: OnlinePlan) -> RowsPlan:
    """Return the plan, if partitions can be read by it one by one. Raises UnsupportedError otherwise."""
    if NO_ROW in plan.reasons:
        raise DataError(NOTHING_TO_LEARN)
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


def _number(column: pa.ChunkedArray, name: str) -> FloatArray:
    """Return a feature that may have gaps: NaN where it is NULL."""
    return doubles(column)


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
