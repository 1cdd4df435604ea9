"""The one door to every placed policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from relaqs.parts.plan import PlacedPlan
from relaqs.parts.view import PlacedView


@runtime_checkable
class PlacedPolicy(Protocol):
    """A pure function from what is known to where parts are: equal views give equal plans.

    Tests hold laws for every placed policy of this package (`tests/relaqs/placed_policies/test_laws.py`).
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: PlacedView) -> PlacedPlan:
        """Return where each part is until the next plan, and which jobs end now."""
        ...
