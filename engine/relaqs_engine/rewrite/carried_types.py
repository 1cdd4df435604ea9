"""Check: keys and extremes come back from workers as they were.

Partial aggregates travel as Arrow tables, and Arrow does not have every type that DuckDB has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from relaqs_engine.plans.basis import Basis
from relaqs_engine.plans.names import VALUE
from relaqs_engine.rewrite.draft import Draft, NotOnlineError

# Arrow has no bit string (only padded bytes), no order of an ENUM's values, and no zone beside a time.
_LOST = re.compile(r"\b(BIT|ENUM|TIME WITH TIME ZONE)\b")
# These come back as DECIMAL(38,0), which some functions of integers do not take.
_CHANGED = re.compile(r"\bU?HUGEINT\b")

# These are folded by functions that need the values themselves.
_AS_KEYS = (Basis.VALUES, Basis.FIRST, Basis.LAST, Basis.BIT_AND, Basis.BIT_OR, Basis.BIT_XOR)


def check_types_travel(draft: Draft, types: Mapping[str, str]) -> None:
    """Raise NotOnlineError for a type whose values would come back with another meaning.

    Args:
        draft: the query, its keys and partial aggregates known.
        types: DuckDB's type of each column of the partial query.

    For example, Arrow has no HUGEINT, and a key of that type comes back as a DECIMAL:

    >>> from relaqs_engine.planning.example import explained
    >>> explained("SELECT zone::HUGEINT AS z, count(*) FROM trips GROUP BY 1", "why")
    'values of type HUGEINT change on their way between processes'
    """
    extremes = [column.name for column in draft.basis if not column.is_additive]
    keys = [f"k{position}" for position in range(len(draft.keys))]
    keys += [column.name for column in draft.basis if column.kind in _AS_KEYS]
    if draft.distinct is not None:
        keys.append(VALUE)
    for name in keys + extremes:
        if _LOST.search(types[name]) or (name in keys and _CHANGED.search(types[name])):
            raise NotOnlineError(f"values of type {types[name]} change on their way between processes")
