"""The cells of an answer as functions of additive sums, and their values on variants of the sums.

Replicates subtract additive columns. Counts and sums are additive as they are. Moments (means and m2) are
turned into sums of deviations from the group's own means, which stay accurate where raw squares would
cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import arrow, doubles
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.arithmetic import compile_arithmetic
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import ROWS, SCALE, SHARED_SCALE, outlier_column
from relaqs_engine.plans.outputs import OutputColumn, OutputKind


@dataclass(frozen=True, slots=True)
class ShownGroups:
    """The groups of one answer.

    Attributes:
        keys: their key columns.
        sums: additive and unscaled, shape (groups, columns).
        outliers: the part of the sums that comes from the outlier index, shape (groups, columns). It needs no
            scaling, so in `sums` it is divided by the scale.
        means: each group's mean where the column is a MEAN, else 0, in the same shape.
        products: sums over rows of two columns' contributions multiplied, the upper triangle row by row. It
            has no columns unless the plan keeps them.
        rows: the joined rows seen.
    """

    keys: pa.Table
    sums: FloatArray
    outliers: FloatArray
    means: FloatArray
    products: FloatArray
    rows: FloatArray

    def first(self, count: int) -> ShownGroups:
        """Return only the first groups."""
        return ShownGroups(
            keys=self.keys.slice(0, count),
            sums=self.sums[:count],
            outliers=self.outliers[:count],
            means=self.means[:count],
            products=self.products[:count],
            rows=self.rows[:count],
        )


def own_columns(plan: MergePlan) -> tuple[BasisColumn, ...]:
    """Return the additive columns that each group has for itself."""
    return tuple(column for column in plan.columns.basis if column.is_additive)


def additive_columns(plan: MergePlan) -> tuple[BasisColumn, ...]:
    """Return each group's own additive columns, then those of inner stages, which all groups share."""
    return own_columns(plan) + tuple(column for column in plan.columns.shared if column.is_additive)


def estimated_outputs(plan: MergePlan) -> tuple[OutputColumn, ...]:
    """Return what is estimated: the outputs shown, then the numbers that decide which groups are shown."""
    shown = (output for output in plan.outputs if output.kind is OutputKind.ESTIMATE)
    return (*shown, *(decider.value for decider in plan.membership.deciders))


def shown_groups(plan: MergePlan, point: pa.Table) -> ShownGroups:
    """Return the groups of a point estimate, from the keys and basis columns it carries."""
    columns = additive_columns(plan)
    raw = [_doubles(point, column.name) for column in columns]
    sums = [np.zeros_like(x) if c.kind is Basis.MEAN else x for c, x in zip(columns, raw, strict=True)]
    means = [x if c.kind is Basis.MEAN else np.zeros_like(x) for c, x in zip(columns, raw, strict=True)]
    shape = (point.num_rows, len(columns))
    return ShownGroups(
        keys=point.select(list(plan.columns.keys)),
        sums=np.stack(sums, axis=1) if columns else np.empty(shape),
        outliers=_outliers(plan, point) if plan.partial.outlier_sql else np.zeros(shape),
        means=np.stack(means, axis=1) if columns else np.empty(shape),
        products=_products(plan, point),
        rows=_doubles(point, ROWS),
    )


def _outliers(plan: MergePlan, point: pa.Table) -> FloatArray:
    columns = [_doubles(point, outlier_column(column.name)) for column in own_columns(plan)]
    return np.stack(columns, axis=1) if columns else np.empty((point.num_rows, 0))


def _products(plan: MergePlan, point: pa.Table) -> FloatArray:
    columns = [_doubles(point, column.name) for column in plan.columns.basis if column.kind is Basis.PRODUCT]
    return np.stack(columns, axis=1) if columns else np.empty((point.num_rows, 0))


def _doubles(table: pa.Table, name: str) -> FloatArray:
    """Return a column of sums as doubles, 0 where NULL: a sum of nothing."""
    return doubles(table.column(name), null=0.0)


class CellEvaluator:
    """Evaluates the estimated outputs on variants of the groups' sums, by the plan's own expressions.

    Plain arithmetic runs in numpy, anything else in DuckDB.
    """

    def __init__(self, plan: MergePlan, cursor: Cursor) -> None:
        self._plan = plan
        self._columns = additive_columns(plan)
        self._cursor = cursor
        expressions = [output.smooth_sql for output in estimated_outputs(plan)]
        names = frozenset(column.name for column in self._columns) | {SCALE, SHARED_SCALE}
        compiled = [compile_arithmetic(sql, names) for sql in expressions]
        self._compiled = [function for function in compiled if function is not None]
        self._is_plain = len(self._compiled) == len(expressions)
        self._sql = f"SELECT {', '.join(f'CAST(TRY({sql}) AS DOUBLE)' for sql in expressions)} FROM variants"

    def __call__(
        self,
        groups: ShownGroups,
        sums: FloatArray,
        scale: FloatArray,
        shared_scale: FloatArray | None = None,
    ) -> FloatArray:
        """Return cells of shape (variants, groups, outputs), NaN where SQL gives NULL.

        Args:
            groups: the groups shown.
            sums: additive and unscaled, shape (variants, groups, columns).
            scale: of the groups' own sums, shape (variants,).
            shared_scale: of the sums that inner stages share, where it is another one.
        """
        arrays = {column.name: self._basis(i, column, groups, sums) for i, column in enumerate(self._columns)}
        shared = scale if shared_scale is None else shared_scale
        for name, of_variants in ((SCALE, scale), (SHARED_SCALE, shared)):
            arrays[name] = np.repeat(of_variants[:, None], sums.shape[1], axis=1)
        if not self._is_plain:
            return self._in_duckdb(groups, arrays)
        cells = np.empty((*sums.shape[:2], len(self._compiled)))  # of no output where all are quantiles
        with np.errstate(divide="ignore", invalid="ignore"):
            for i, function in enumerate(self._compiled):
                cells[:, :, i] = function(arrays)
        return cells

    def _in_duckdb(self, groups: ShownGroups, arrays: dict[str, FloatArray]) -> FloatArray:
        shape = arrays[SCALE].shape
        table = pa.table({name: arrow(array.ravel()) for name, array in arrays.items()})
        take = arrow(np.tile(np.arange(shape[1]), shape[0]))
        for key in self._plan.columns.keys:
            table = table.append_column(key, groups.keys.column(key).take(take))
        with self._cursor.registered(variants=table):
            result = self._cursor.table(self._sql)
        return np.stack([doubles(column).reshape(shape) for column in result.columns], axis=2)

    def _basis(self, i: int, column: BasisColumn, groups: ShownGroups, sums: FloatArray) -> FloatArray:
        if not column.is_moment:
            return sums[:, :, i]
        names = [c.name for c in self._columns]
        count = sums[:, :, names.index(str(column.count_of))]
        away = [sums[:, :, names.index(mean)] for mean in column.means]
        with np.errstate(divide="ignore", invalid="ignore"):
            if column.kind is Basis.MEAN:
                return groups.means[:, i] + away[0] / count
            return np.asarray(sums[:, :, i] - away[0] * away[1] / count)
