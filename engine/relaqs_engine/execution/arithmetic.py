"""Plain arithmetic of the plan's expressions on whole arrays. Most estimates are that, and need no database.

Evaluating a hundred leave-one-out variants takes a tenth of a millisecond in numpy, and two in SQL.
Expressions with anything else in them (functions, keys, CASE) are left to DuckDB.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import sqlglot
from relaqs_bootstrap.arrays import FloatArray
from sqlglot import exp

from relaqs_engine.sql.parse import DIALECT

ColumnArrays = Mapping[str, FloatArray]
Evaluator = Callable[[ColumnArrays], FloatArray]

_BINARY: dict[type[exp.Expr], Callable[[FloatArray, FloatArray], FloatArray]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}


@lru_cache(maxsize=1024)
def compile_arithmetic(sql: str, names: frozenset[str]) -> Evaluator | None:
    """Return a function of named arrays that computes the expression as DOUBLE, None if it is not plain.

    NULL is NaN: `x / NULLIF(y, 0)` gives NaN where y is 0.

    Args:
        sql: the expression.
        names: the columns that may occur in it.

    >>> import numpy as np
    >>> mean = compile_arithmetic("b0 / nullif(b1, 0)", frozenset({"b0", "b1"}))
    >>> mean({"b0": np.array([6.0, 1.0]), "b1": np.array([3.0, 0.0])}).tolist()
    [2.0, nan]
    >>> compile_arithmetic("upper(b0)", frozenset({"b0"})) is None
    True
    """
    return _compiled(sqlglot.parse_one(sql, dialect=DIALECT), names)


def _compiled(node: exp.Expr, names: frozenset[str]) -> Evaluator | None:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return _column(node.name) if node.name in names and not node.table else None
    if isinstance(node, exp.Literal) and not node.is_string:
        return _constant(float(node.this))
    if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DOUBLE:
        return _compiled(node.this, names)
    if isinstance(node, exp.Neg):
        return _unary(np.negative, _compiled(node.this, names))
    if isinstance(node, exp.Sqrt):
        return _unary(np.sqrt, _compiled(node.this, names))
    if isinstance(node, exp.Nullif) and node.expression == exp.Literal.number(0):
        return _unary(_nan_for_zero, _compiled(node.this, names))
    if (operation := _BINARY.get(type(node))) is not None:
        assert isinstance(node, exp.Binary)
        return _binary(operation, _compiled(node.left, names), _compiled(node.right, names))
    return None


def _column(name: str) -> Evaluator:
    return lambda arrays: arrays[name]


def _constant(value: float) -> Evaluator:
    return lambda arrays: np.asarray(value)


def _nan_for_zero(values: FloatArray) -> FloatArray:
    return np.where(values == 0.0, np.nan, values)


def _unary(function: Callable[[FloatArray], FloatArray], inner: Evaluator | None) -> Evaluator | None:
    if inner is None:
        return None
    return lambda arrays: function(inner(arrays))


def _binary(
    function: Callable[[FloatArray, FloatArray], FloatArray], left: Evaluator | None, right: Evaluator | None
) -> Evaluator | None:
    if left is None or right is None:
        return None
    return lambda arrays: function(left(arrays), right(arrays))
