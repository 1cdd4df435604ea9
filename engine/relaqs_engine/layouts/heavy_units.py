"""The index of heavy units: a copy of all rows of the few sampling units whose columns sum to most.

    SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id ORDER BY paid DESC LIMIT 10

Where a table is laid out by `order_id`, all items of an order lie in one partition. After a quarter of the
partitions an order is known completely or not at all. Of the ten orders that the answer will have, two or
three were seen, and nothing tells which. No sample of orders can do better.

So the orders with the largest sums are kept apart, with all their items. And a number is kept with them:

    bound of `price`  =  400    no order outside the index sums to more than 400

A query reads the index early. An order in it that sums to more than 400 is ahead of every order that was not
read yet. If ten orders do, they are the answer. A condition on the rows only lowers an order's sum, because
no price is negative, so the bound holds for any query. `price * (1 - discount)` is at most `price` where the
discount lies in [0, 1].

**Which units.** For each column that can be summed, and for the number of rows, the units with the largest
sums. Together they have one row in a hundred at most. Columns that grow together share units, and get more of
them each.

**Which columns.** Numbers that are never negative. Two kinds of these are left out, because nobody sums them:
whole numbers that fill their range and have more than 10,000 values, as ids do, and fractions that are never
above 1, as rates and shares are.

What is ugly. A unit that has more than its share of the table's rows is not in the index. Its column's bound
is then its own sum, and tells nothing. Appending rows drops the index, because a unit outside may have grown
past the bound. Compacting makes it again.

The decision: docs/decisions/0044-heavy-units.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.layouts.manifest import Column
from relaqs_engine.layouts.number_types import FLOATS, WHOLE_NUMBERS

MOST_SHARE = 0.01
"""The largest share of the table's rows in the index, for all columns together."""
FEWEST_ROWS = 20_000
"""A table with fewer rows gets no index, because it is read in a blink."""
MOST_TOTALS = 8
"""Of columns, and of the number of rows."""
_ROUNDS = 6  # of making the shares of totals larger or smaller, until together they are what is allowed
_FEWEST_IDS = 10_000
_DENSE = 0.5  # of a range that has this share of its values, all are taken for ids
_NUMBERS = WHOLE_NUMBERS | FLOATS | {"DECIMAL"}


@dataclass(frozen=True, slots=True)
class UnitTotals:
    """What some sampling units sum to.

    Attributes:
        rows: of each unit, shape (units,).
        totals: of each unit, shape (units, totals).
    """

    rows: FloatArray
    totals: FloatArray

    def bounds(self, budget_rows: float) -> FloatArray:
        """Return for each total the least bound that lets no more than so many rows lie above it.

        >>> UnitTotals(np.array([2.0, 3.0, 5.0]), np.array([[7.0], [9.0], [4.0]])).bounds(4.0)
        array([7.])
        """
        order = np.argsort(-self.totals, axis=0, kind="stable")
        beyond = np.cumsum(self.rows[order], axis=0) > budget_rows
        first = np.where(beyond.any(axis=0), beyond.argmax(axis=0), len(self.rows) - 1)
        at = np.take_along_axis(order, first[None], axis=0)
        return np.asarray(np.take_along_axis(self.totals, at, axis=0)[0])

    def above(self, bounds: FloatArray) -> BoolArray:
        """Return which units are above one of the bounds."""
        return np.asarray((self.totals > bounds).any(axis=1))

    def bounds_together(self, budget_rows: float) -> FloatArray:
        """Return bounds that let no more than so many rows lie above any of them, and nearly so many.

        Each total may have its share of the rows. Where totals are large in the same units, shares grow.
        """
        share = budget_rows / self.totals.shape[1]
        best = self.bounds(share)
        for _ in range(_ROUNDS):
            together = float(self.rows[self.above(self.bounds(share))].sum())
            if together <= budget_rows:
                best = np.minimum(best, self.bounds(share))
            share = min(budget_rows, share * budget_rows / max(together, 1.0))
        return best


def summed_columns(columns: Sequence[Column], cluster_key: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns whose sums over units are worth a bound."""
    return tuple(
        column
        for column in columns
        if column.type.split("(")[0] in _NUMBERS
        and column.name not in cluster_key
        and isinstance(column.minimum, int | float)
        and isinstance(column.maximum, int | float)
        and column.minimum >= 0
        and not _is_id(column, float(column.maximum) - float(column.minimum))
        and not _is_rate(column, float(column.maximum))
    )


def chosen_totals(units: UnitTotals) -> list[int]:
    """Return which totals are to have heavy units: those that a few units hold most of.

    A total that so many units share that none can be told apart has none.
    """
    budget = MOST_SHARE * float(units.rows.sum())
    is_heavy = units.totals > units.bounds(budget)
    sums = np.maximum(units.totals.sum(axis=0), np.finfo(float).tiny)
    held = np.where(is_heavy, units.totals, 0.0).sum(axis=0) / sums
    return sorted(int(i) for i in np.argsort(-held, kind="stable")[:MOST_TOTALS] if held[i] > 0.0)


def first_bounds(units: UnitTotals) -> FloatArray:
    """Return the bounds for the whole table, from a sample of its units."""
    return units.bounds_together(MOST_SHARE * float(units.rows.sum()))


def _is_id(column: Column, width: float) -> bool:
    return column.type in WHOLE_NUMBERS and column.distinct_count > max(_FEWEST_IDS, _DENSE * width)


def _is_rate(column: Column, highest: float) -> bool:
    return column.type not in WHOLE_NUMBERS and highest <= 1.0
