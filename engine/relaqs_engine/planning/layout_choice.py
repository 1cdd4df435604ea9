"""Which choice of layouts a query reads: the one that is predicted to be within ±5 % soonest, and why.

Predictions are rough, so choices that differ by less than a fifth are equals. Of equals the planner takes the
one with the fewest rows to wait for, then one with each group in one partition, then a table's first layout.
A table that is read whole is filtered once and kept by each worker, which for a small one is cheaper than
joining it partition by partition (docs/decisions/0004-second-layouts.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relaqs_engine.plans.time_to_estimate import TimeToEstimate
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.prediction import time_to_estimate
from relaqs_engine.rewrite.read_whole import tables_read_whole
from relaqs_engine.rewrite.scans import streams_of
from relaqs_engine.rewrite.sources import groups_lie_in_partitions

READ_AT_ONCE_ROWS = 1_000_000  # read and filtered within about a tenth of a second
READ_AT_ONCE_SHARE = 0.25  # of the query's rows: no more, however small the tables are
NOTABLY_SOONER = 0.8  # of another choice's core-seconds
_MOST_NAMED = 3  # other choices in a sentence


def rows_to_wait_for(streamed_rows: int, rows: int) -> int:
    """Return the rows read whole before the first estimate, 0 where they are few. rows: of all tables."""
    whole = rows - streamed_rows
    return 0 if whole <= min(READ_AT_ONCE_ROWS, READ_AT_ONCE_SHARE * rows) else whole


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A query with its streams chosen, and what that is predicted to cost.

    Attributes:
        draft: the query.
        waiting_rows: read whole before the first estimate.
        groups_are_local: whether each group lies in one partition.
        time: until the answer is within ±5 %.
    """

    draft: Draft
    waiting_rows: int
    groups_are_local: bool
    time: TimeToEstimate

    @classmethod
    def of(cls, draft: Draft, tables: Iterable[str]) -> LayoutChoice:
        """Return what a choice comes to. tables: the names of those that the query reads."""
        streamed = [stream.table for stream in streams_of(draft)]
        twice = [table for table in tables_read_whole(draft) if table in streamed]
        rows = sum(draft.catalog.table(name).row_count for name in (*tables, *twice))
        streamed_rows = sum(draft.catalog.table(name).row_count for name in streamed)
        group = draft.select.args.get("group")
        local = groups_lie_in_partitions(draft, group.expressions if group else ())
        return cls(draft, rows_to_wait_for(streamed_rows, rows), local, time_to_estimate(draft))

    @property
    def streams(self) -> str:
        """Return the layouts that it samples, for people."""
        return " and ".join(stream.table for stream in streams_of(self.draft))


def best_first(choices: Iterable[LayoutChoice]) -> list[LayoutChoice]:
    """Return the choices in the order in which they are to be tried. Equals stay in their order."""
    ordered = sorted(choices, key=lambda each: (each.waiting_rows, not each.groups_are_local))
    soonest = min(ordered, key=lambda each: each.time.core_seconds, default=None)
    if soonest is None or _is_notably_sooner(soonest, ordered[0]):
        ordered.sort(key=lambda each: each is not soonest)
    return ordered


def why_chosen(chosen: LayoutChoice, choices: Sequence[LayoutChoice]) -> str:
    """Return why a choice is taken, in a sentence; "" where no other samples other layouts."""
    soonest: dict[str, float] = {}
    for each in choices:
        seconds = each.time.core_seconds
        soonest[each.streams] = min(seconds, soonest.get(each.streams, seconds))
    soonest.pop(chosen.streams, None)
    if not soonest:
        return ""
    named = sorted(soonest, key=lambda streams: soonest[streams])[:_MOST_NAMED]
    own, others = _rounded(chosen.time.core_seconds), [_rounded(soonest[streams]) for streams in named]
    against = ", ".join(f"{seconds} with {streams}" for seconds, streams in zip(others, named, strict=True))
    more = f", and {len(soonest) - len(named)} more" if len(soonest) > len(named) else ""
    is_last = chosen.time.core_seconds > soonest[named[0]] and own != others[0]
    equal = "; less than a fifth counts as equal" if is_last else ""
    return (
        f"it samples {chosen.streams}: ±5 % is predicted after {own} core-seconds, against {against}{more}"
        f"{equal}"
    )


def _is_notably_sooner(one: LayoutChoice, other: LayoutChoice) -> bool:
    return one.time.core_seconds <= NOTABLY_SOONER * other.time.core_seconds


def _rounded(seconds: float) -> str:
    return f"{seconds:.2f}"
