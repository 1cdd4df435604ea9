"""Rule: count the groups that come before each group where LIMIT picks them, as far as keys order them.

    SELECT state, avg(paid) FROM sales GROUP BY state ORDER BY state, 2 DESC LIMIT 100

A group has its place for sure if LIMIT has room for all that may come before it: those that were seen, and
those that were not. Groups that are ordered by estimates alone count as coming before each other.
"""

from __future__ import annotations

from relaqs_engine.plans.names import BEFORE, BEFORE_ONCE, IS_FIRST, ROWS
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.unbounded import met_several_times


def with_places(draft: Draft) -> str:
    """Return the source of merged groups, with their places by keys where LIMIT picks groups.

    >>> from relaqs_engine.planning.example import after, shown
    >>> from relaqs_engine.rewrite.membership import decide_membership
    >>> sql = "SELECT zone, count(*) AS n FROM trips GROUP BY 1 ORDER BY zone NULLS FIRST LIMIT 3"
    >>> print(shown(with_places(after(decide_membership, sql))))
    (SELECT *, count(*) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before,
            count(CASE WHEN m <= 1 THEN 1 END) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before_once,
            k0 IS NULL AS relaqs_is_first FROM merged)
    """
    if not _has_room(draft):
        return "merged"
    # count(…) FILTER (…) OVER (…) takes DuckDB twenty times as long as this CASE, and a window of all groups
    # twice as long as a subquery.
    counts = ("count(*)", f"count(CASE WHEN {ROWS} <= {_rows_of_unit(draft)} THEN 1 END)")
    by_keys = ", ".join(draft.membership.first_by)
    before, once = (
        f"{count} OVER (ORDER BY {by_keys})" if by_keys else f"(SELECT {count} FROM merged)"
        for count in counts
    )
    places = [f"{before} AS {BEFORE}", f"{once} AS {BEFORE_ONCE}", f"{_is_first(draft)} AS {IS_FIRST}"]
    return f"(SELECT *, {', '.join(places)} FROM merged)"


def place_columns(draft: Draft) -> tuple[str, ...]:
    """Return the names of the columns that `with_places` adds."""
    return (BEFORE, BEFORE_ONCE, IS_FIRST) if _has_room(draft) else ()


def _has_room(draft: Draft) -> bool:
    """Whether LIMIT picks groups of one sampled table whose rows lie in all partitions, each once at most."""
    is_limited = draft.membership.most_rows is not None and bool(draft.keys)
    if not is_limited or len(draft.streams) != 1 or draft.groups.are_local:
        return False
    return not any(met_several_times(draft))


def _rows_of_unit(draft: Draft) -> int:
    [stream] = draft.streams
    assert stream.layout is not None
    return stream.layout.max_unit_rows


def _is_first(draft: Draft) -> str:
    """Return SQL that says whether all keys are NULL and NULL comes first, as in the total of a ROLLUP.

    What the answer is ordered by after all of its keys tells only rows apart that have the same keys.
    """
    keys = draft.keys[:-1] if draft.grouping_sets else draft.keys
    names = [f"k{i}" for i in range(len(keys))]
    order = draft.membership.first_by[: len(names)]
    ordered = {each.removesuffix(" NULLS FIRST").removesuffix(" DESC").strip('"') for each in order}
    if ordered != set(names) or not all(each.endswith(" NULLS FIRST") for each in order):
        return "FALSE"
    return " AND ".join(f"{name} IS NULL" for name in names)
