"""Check: the values that medians and the like are computed from fit into the memory for merged states."""

from __future__ import annotations

from relaqs_engine.plans.basis import Basis
from relaqs_engine.rewrite.draft import Draft, NotOnlineError

# The most values of its sampled tables that a query may keep, however much memory there is, because each
# mini-batch computes its answer from all of them anew. With a limit of 2 GB, states have 500 MB: two columns
# of 6 million decimals end within it, three do not.
MOST_VALUES = 12_500_000
_VALUE_BYTES = 40
# DuckDB's own state for a median and its group. 1.5 million of them do not fit into 450 MB.
_GROUP_BYTES = 300


def check_kept_values(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where too many values would be kept.

    >>> from relaqs_engine.planning.example import refusal
    >>> refusal(check_kept_values, "SELECT median(price) FROM items")
    ''
    >>> refusal(check_kept_values, "SELECT median(fare) FROM trips")
    'it would keep 12,800,000 values; up to 12,500,000 are kept'
    """
    lists = sum(column.kind is Basis.VALUES for column in draft.basis)
    if not lists:
        return draft
    rows = (
        sum(each.row_count for each in s.layout.partitions) for s in draft.streams if s.layout is not None
    )
    values = lists * max(rows)
    if values > MOST_VALUES:
        raise NotOnlineError(f"it would keep {values:,} values; up to {MOST_VALUES:,} are kept")
    taken = values * _VALUE_BYTES + lists * draft.groups.expected * _GROUP_BYTES
    if draft.state_bytes is not None and taken > draft.state_bytes:
        raise NotOnlineError(
            f"it would keep {values:,} values in about {_mib(taken)}; the memory limit leaves "
            f"{_mib(draft.state_bytes)} for them"
        )
    return draft


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
