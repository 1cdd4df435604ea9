"""The first part of a layout that is being made: a random sample of the table that can be asked already.

It has the first partitions. Their files are the layout's own, where they will stay. By then the whole source
has been read once, so the table's rows and its columns' extremes and NULLs are known. Only the process that
makes the layout knows of its first part: no manifest names it.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.manifest import Layout


@dataclass(frozen=True, slots=True, repr=False)
class FirstPart(Layout):
    """A layout whose `row_count` and columns are those of the whole table, while `partitions` are the first.

    A query that samples it never reaches the exact answer. It must not be read as if it were the table.
    """

    @property
    def is_first_part(self) -> bool:
        return True
