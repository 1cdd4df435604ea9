"""Check: keys and extremes come back from workers as what they were. Partial aggregates travel as Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from relaqs_engine.plans.basis import Basis
from relaqs_engine.plans.names import VALUE
from relaqs_engine.rewrite.draft import Draft, NotOnlineError

# Arrow has no bit string (bytes, padded), no order of an ENUM's values, no zone beside a time.
_LOST = re.compile(r"\b(BIT|ENUM|TIME WITH TIME ZONE)\b")
# Comes back as DECIMAL(38,0), which not every function of integers takes.
_CHANGED = re.compile(r"\bU?HUGEINT\b")

# Folded by functions that take them as the values they are.
_AS_KEYS = (Basis.VALUES, Basis.BIT_AND, Basis.BIT_OR, Basis.BIT_XOR)


def check_types_travel(draft: Draft, types: Mapping[str, str]) -> None:
    """Raise NotOnlineError for a type whose values would not mean the same. types: of the partial query."""
    extremes = [column.name for column in draft.basis if not column.is_additive]
    keys = [f"k{position}" for position in range(len(draft.keys))]
    keys += [column.name for column in draft.basis if column.kind in _AS_KEYS]
    if draft.distinct is not None:
        keys.append(VALUE)
    for name in keys + extremes:
        if _LOST.search(types[name]) or (name in keys and _CHANGED.search(types[name])):
            raise NotOnlineError(f"values of type {types[name]} change on their way between processes")
