"""Who may end a simulated job early, because it is good enough."""

from __future__ import annotations

from typing import Literal, TypeAlias

EarlyStops: TypeAlias = Literal["own", "same", "none"]
"""`own`: only a policy that has such a rule itself. `same`: every policy, by that rule. `none`: nobody."""
