"""The one door to every policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@runtime_checkable
class Policy(Protocol):
    """A pure function from what is known to who gets the cores: equal views, equal plans.

    A policy may also have two texts, `why_more` and `why_less`. A dashboard shows them where cores move to a
    job or away from it, as in "+2 cores: it is older than the others".

    Laws, held by tests for every policy of this package: never more than the capacity; all of it while jobs
    could use it; the order of the jobs in the view changes nothing; more weight never means fewer cores.
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: View) -> Plan:
        """Return who gets how many cores until the next plan."""
        ...
