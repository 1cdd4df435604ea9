"""Harmony: jobs that compute share machines with jobs that communicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs_lab.group_policies.considered import QueueOrder, considered
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.group_policies.prefixes import PrefixSearch, Refinement, StopRule
from relaqs_lab.group_policies.regroup import Regrouping
from relaqs_lab.group_policies.settled import Settled
from relaqs_lab.groups.plan import GroupPlan, TurnTaking
from relaqs_lab.groups.view import GroupView


@dataclass(frozen=True, slots=True)
class Harmony:
    """Groups whose jobs together compute for as long as they communicate, changed as rarely as is worth it.

    While one job of a group computes, another pulls or pushes its parameters. Which jobs are together and on
    how many machines is Algorithm 1 (`PrefixSearch`); what changes when a job comes or ends is `Regrouping`.
    Rows that do not fit into memory lie on disk (`spilled_shares`). A job whose times are not known yet is
    taken to be like the mean of the others. A view in which nothing has changed since the last plan gets that
    plan again, without a search (`Settled`).

    Args:
        order: who is considered first within a phase: "arrival" as in the paper, or "shortest".
        turns: how the jobs of a group take turns.
        spills: rows may lie on disk.
        cpu_weight, literal: as in `GroupModel`.
        stop, tolerance, refined: as in `PrefixSearch`.
        gain, similar: as in `Regrouping`.
        profiles: a job's times are not known before it has made some iterations. If not, they are told.

    Source: Lee et al., Harmony, ICDCS 2021.

    >>> from relaqs_lab.groups.subtasks import Subtasks, SubtaskTimes
    >>> from relaqs_lab.groups.view import Fleet
    >>> jobs = Subtasks.of([SubtaskTimes("computes", 90.0, 2.0), SubtaskTimes("sends", 30.0, 9.0)])
    >>> plan = Harmony().plan(GroupView(0.0, Fleet(11), jobs))
    >>> [(group.jobs, group.machines) for group in plan.groups]
    [(('computes', 'sends'), 11)]
    """

    order: QueueOrder = "arrival"
    turns: TurnTaking = "pull_first"
    spills: bool = True
    cpu_weight: float = 2 / 3
    literal: bool = False
    stop: StopRule = "best"
    tolerance: float = 0.01
    refined: Refinement = "rule"
    gain: float = 0.05
    similar: float = 0.05
    profiles: bool = True
    name: ClassVar[str] = "harmony"

    def __post_init__(self) -> None:
        _ = self.rules  # which refuse what they do not accept
        if self.turns == "shared" and self.spills:
            raise ValueError("turns is 'shared', where no row can be spilled; give spills=False, too")

    @property
    def rules(self) -> Regrouping:
        """By which groups are made and changed."""
        model = GroupModel(self.cpu_weight, self.literal)
        search = PrefixSearch(model, self.stop, self.tolerance, self.spills, refined=self.refined)
        return Regrouping(search, self.gain, self.similar)

    def plan(self, view: GroupView) -> GroupPlan:
        if not len(view.subtasks):
            return GroupPlan.of(view, (), turns=self.turns)
        before = view.memory if isinstance(view.memory, Settled) else None
        if before is not None and (plan := before.same(view, self.turns)) is not None:
            return plan
        return Settled.remembering(view, self._decided(view))

    def _decided(self, view: GroupView) -> GroupPlan:
        found = self.rules.regrouped(view, considered(view.subtasks, self.order))
        if found is None:
            return GroupPlan.of(view, (), turns=self.turns)
        return GroupPlan.of(view, found.groups(), found.spilled_by_id(), self.turns)
