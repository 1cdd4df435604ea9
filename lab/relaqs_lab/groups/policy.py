"""The one door to every group policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from relaqs_lab.groups.plan import GroupPlan
from relaqs_lab.groups.view import GroupView


@runtime_checkable
class GroupPolicy(Protocol):
    """A pure function from what is known to who shares which machines: equal views give equal plans.

    It reads no clock and no file, and draws no random numbers. What it wants to remember travels as
    `GroupPlan.memory`, a frozen value that can be pickled. Tests hold laws for every group policy of this
    package (`tests/lab/group_policies/test_group_laws.py`): a job is in one group at most, the machines
    and their memory are enough, and the order of the jobs in the view changes nothing.
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: GroupView) -> GroupPlan:
        """Return who shares which machines until the next plan."""
        ...
