"""The one door to every slot policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView


@runtime_checkable
class SlotPolicy(Protocol):
    """A pure function from what is known to who holds which slots: equal views give equal plans.

    It reads no clock and no file, and draws no random numbers: a policy that searches draws them from its
    seed. What it wants to remember travels as `SlotPlan.memory`, a frozen value that can be pickled.

    Tests hold laws for every slot policy of this package (`tests/relaqs/slot_policies/test_laws.py`). A slot
    has one job at most, and a node's slots are never exceeded. A batch is within its job's limits. The order
    of the jobs in the view changes nothing.
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: SlotView) -> SlotPlan:
        """Return who holds which slots until the next plan."""
        ...
