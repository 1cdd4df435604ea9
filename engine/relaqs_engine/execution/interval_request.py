"""The interval that the user asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """The interval that the user asked for.

    Attributes:
        confidence: of both sides together.
        anytime: whether it must hold at all looks together, not just at one moment.
    """

    confidence: float = 0.95
    anytime: bool = False
