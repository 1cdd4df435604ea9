"""Harmony: jobs that compute share machines with jobs that communicate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from relaqs.group_policies.considered import QueueOrder, considered
from relaqs.group_policies.group_model import GroupModel
from relaqs.group_policies.prefixes import PrefixSearch
from relaqs.group_policies.regroup import Regrouping
from relaqs.groups.plan import GroupPlan, TurnTaking
from relaqs.groups.view import GroupView


@dataclass(frozen=True, slots=True)
class Harmony:
    """Groups whose jobs together compute for as long as they communicate, changed as rarely as is worth it.

    While one job of a group computes, another pulls or pushes its parameters. Which jobs are together and on
    how many machines is Algorithm 1 (`PrefixSearch`); what changes when a job comes or ends is `Regrouping`.
    Rows that do not fit into memory lie on disk (`spilled_shares`). A job whose times are not known yet is
    taken to be like the mean of the others.

    Args:
        order: who is considered first within a phase: "arrival" as in the paper, or "shortest".
        turns: how jobs of a group take turns.
        regrouping, cpu_weight, literal, stop, tolerance, spills: the readings of what the paper leaves open.

    Source: Lee et al., Harmony, ICDCS 2021.

    >>> from relaqs.groups.subtasks import Subtasks, SubtaskTimes
    >>> from relaqs.groups.view import Fleet
    >>> jobs = Subtasks.of([SubtaskTimes("computes", 90.0, 2.0), SubtaskTimes("sends", 30.0, 9.0)])
    >>> plan = Harmony().plan(GroupView(0.0, Fleet(11), jobs))
    >>> [(group.jobs, group.machines) for group in plan.groups]
    [(('computes', 'sends'), 11)]
    """

    order: QueueOrder = "arrival"
    turns: TurnTaking = "pull_first"
    regrouping: Regrouping = field(default_factory=Regrouping)
    name: ClassVar[str] = "harmony"
    profiles: ClassVar[bool] = True

    @classmethod
    def reading(
        cls,
        *,
        cpu_weight: float = 2 / 3,
        literal: bool = False,
        spills: bool = True,
        order: QueueOrder = "arrival",
        turns: TurnTaking = "pull_first",
    ) -> Harmony:
        """Return the policy by other readings of what the paper leaves open."""
        search = PrefixSearch(model=GroupModel(cpu_weight, literal), spills=spills)
        return cls(order, turns, Regrouping(search))

    def plan(self, view: GroupView) -> GroupPlan:
        if not len(view.subtasks):
            return GroupPlan.of(view, (), turns=self.turns)
        found = self.regrouping.regrouped(view, considered(view.subtasks, self.order))
        if found is None:
            return GroupPlan.of(view, (), turns=self.turns)
        return GroupPlan.of(view, found.groups(), found.spilled_by_id(), self.turns)
