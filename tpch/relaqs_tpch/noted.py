"""A policy that is watched: what it planned, when, and how long it took to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from relaqs.sharing.view import Plan, Policy, View


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan as it was made: when, what it took to make it, and the cores of each job by its id."""

    at_seconds: float
    decision_seconds: float
    cores: dict[str, float]


class NotedPolicy:
    """Plans as another policy does, and keeps the plans. now: the clock of `Planned.at_seconds`.

    A stopwatch of its own measures how long a plan took to make.
    """

    def __init__(self, inner: Policy, now: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._now = now
        self.plans: list[Planned] = []

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def decision_seconds(self) -> list[float]:
        return [plan.decision_seconds for plan in self.plans]

    def plan(self, view: View) -> Plan:
        started = time.perf_counter()
        plan = self._inner.plan(view)
        took_seconds = time.perf_counter() - started
        self.plans.append(Planned(self._now(), took_seconds, plan.cores_by_job()))
        return plan
