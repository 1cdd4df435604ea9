"""The first partitions of a layout, as a random sample of its table."""

from __future__ import annotations

from dataclasses import dataclass, fields

from relaqs_engine.layouts.manifest import Layout


@dataclass(frozen=True, slots=True, repr=False)
class Prefix(Layout):
    """A layout whose `row_count` and columns are those of the whole table, while `partitions` are the first.

    A query that samples it never reaches the exact answer. It must not be read as if it were the table.
    """

    @property
    def is_first_part(self) -> bool:
        return True


def prefix_of(layout: Layout, count: int) -> Prefix:
    """Return the first partitions of a layout, without its copies of rows, such as outliers."""
    known = {field.name: getattr(layout, field.name) for field in fields(Layout)}
    copies = {"outliers": None, "outlier_units": None, "heavy": None, "companions": ()}
    return Prefix(**(known | copies | {"partitions": layout.partitions[:count]}))
