"""What a group policy decides: which jobs share which machines, how they take turns, what lies on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relaqs_lab.groups.view import Group, GroupView, check_groups

TurnTaking: TypeAlias = Literal["pull_first", "fifo", "shared"]
"""How the jobs of a group share its machines.

pull_first: one computes and one communicates at a time, and a PULL goes before a PUSH.
fifo: one computes and one communicates at a time, in the order in which they ask.
shared: all at once. Who computes shares the cores equally, and who communicates the network.
"""

_ROUNDING = 1.0 + 1e-9


class UnplannableError(ValueError):
    """A plan breaks what every plan must keep. The message names the group."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """Who shares which machines until the next plan. A job in no group waits.

    Attributes:
        groups: disjoint, with all machines of the fleet at most.
        spilled: α of each job whose rows lie on disk in part: the share of them. Others have 0.
        turns: how the jobs of each group share its machines.
        memory: what the policy wants to be handed with the next view.

    >>> from relaqs_lab.groups.subtasks import Subtasks, SubtaskTimes
    >>> from relaqs_lab.groups.view import Fleet
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0, input_bytes=9e9)])
    >>> view = GroupView(0.0, Fleet(2, memory_bytes=3e9), jobs)
    >>> GroupPlan.of(view, (Group(("a",), 2),), {"a": 0.5}).spilled
    {'a': 0.5}
    """

    groups: tuple[Group, ...]
    spilled: Mapping[str, float] = field(default_factory=dict)
    turns: TurnTaking = "pull_first"
    memory: object | None = None

    @classmethod
    def of(
        cls,
        view: GroupView,
        groups: tuple[Group, ...],
        spilled: Mapping[str, float] | None = None,
        turns: TurnTaking = "pull_first",
        memory: object | None = None,
    ) -> GroupPlan:
        """Return the plan for a view. Raises UnplannableError where it breaks what a plan must keep."""
        plan = cls(groups, dict(spilled or {}), turns, memory)
        try:
            check_groups(groups, view.subtasks.ids, view.fleet.machines)
        except ValueError as error:
            raise UnplannableError(str(error)) from error
        position = {job: i for i, job in enumerate(view.subtasks.ids)}
        inputs, models = view.subtasks.input_bytes.tolist(), view.subtasks.model_bytes.tolist()
        for group in groups:
            rows = sum((1 - plan.spilled.get(job, 0.0)) * inputs[position[job]] for job in group.jobs)
            held = rows + sum(models[position[job]] for job in group.jobs)
            room = group.machines * view.fleet.memory_bytes
            if held > room * _ROUNDING:
                raise UnplannableError(
                    f"the group of {', '.join(group.jobs)} keeps {held:.3g} bytes in memory, and its "
                    f"{group.machines} machines have {room:.3g}"
                )
        return plan

    @property
    def running(self) -> frozenset[str]:
        """The jobs that are in a group."""
        return frozenset(job for group in self.groups for job in group.jobs)
