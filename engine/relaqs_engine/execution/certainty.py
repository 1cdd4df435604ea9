"""The words about rows that are certain, rows that are not, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from math import floor, log10

from relaqs_engine.execution.candidates import Crowd
from relaqs_engine.execution.membership import Places
from relaqs_engine.plans.merge import MergePlan

# A group with more rows than advised has at least this many among those read, enough to be judged.
_ROWS_TO_JUDGE = 50
# An advice is worth it if it makes this share of the rows shown certain. Otherwise the best one is given.
_WORTH_IT = 0.3

# From a number of rows seen to how many rows of the answer would be certain if all groups had to have more.
CertainBeyond = Callable[[float], int | None]


def words_of(
    plan: MergePlan, places: Places, crowd: Crowd, scale: float, beyond: CertainBeyond
) -> Iterator[str]:
    """Yield what a reader should know about the rows shown. `crowd` is about all groups that were seen."""
    shown, certain = len(places.certain), int(places.certain.sum())
    if certain == shown:
        return
    rows, are = "row" if shown == 1 else "rows", "is" if certain == 1 else "are"
    yield f"{certain:,} of {shown:,} {rows} {are} certain to stay; no number of the others is certified"
    rules = plan.membership
    by_average = rules.ranking is not None and not rules.ranks_totals and not plan.groups_are_local
    if by_average and crowd.are_all_known:
        yield from _advice(crowd, certain, shown, scale, beyond)


def _advice(crowd: Crowd, certain: int, shown: int, scale: float, beyond: CertainBeyond) -> Iterator[str]:
    """Yield a condition on the number of rows that would make more of the answer certain."""
    best, best_rows = certain, 0
    for rows in takewhile(lambda rows: rows < crowd.most_rows * scale, _round_numbers(scale)):
        found = beyond(rows / scale)
        if found is None:
            break
        if found > best:
            best, best_rows = found, rows
        if best >= _WORTH_IT * shown:
            break
    if best_rows:
        left_out = int((crowd.rows * scale <= best_rows).sum())
        yield (
            f"HAVING count(*) > {best_rows} would leave out {left_out:,} of {crowd.groups:,} groups, whose "
            f"places too few rows tell so far; then at least {best:,} of {shown:,} rows would be certain"
        )


def _round_numbers(scale: float) -> Iterator[int]:
    """Yield 1, 2, 5, 10, … from the rows that a group needs to be judged (at a tenth of the table 500)."""
    power = 10 ** floor(log10(_ROWS_TO_JUDGE * scale))
    while True:
        yield from (step * power for step in (1, 2, 5) if step * power >= _ROWS_TO_JUDGE * scale)
        power *= 10
