"""Slot policies by name, for settings and the command line.

A policy of this package has a file of its own and a place in the table below. An installed package adds one
by an entry point in the group `relaqs.slot_policies`: see `relaqs/plugins.py`.
"""

from __future__ import annotations

from relaqs.gangs.plan import SlotPolicy
from relaqs.plugins import Plugins
from relaqs.policies.registry import PolicyError, policy_by_name

SLOT_POLICIES: Plugins[type[SlotPolicy]] = Plugins(
    "relaqs.slot_policies",
    "slot policy",
    own={
        "ones": "relaqs.slot_policies.ones.policy:Ones",
        "exact_utilisation": "relaqs.slot_policies.exact_utilisation:ExactUtilisation",
        "completion_rate": "relaqs.slot_policies.completion_rate:CompletionRate",
        "sia": "relaqs.slot_policies.sia:Sia",
        "one_at_a_time": "relaqs.slot_policies.arrival_order:OneAtATime",
        "equal_slots": "relaqs.slot_policies.arrival_order:EqualSlots",
    },
)


DEFAULT_SLOT_POLICY = "completion_rate"


def chosen_slot_policy(choice: str | SlotPolicy) -> SlotPolicy:
    """Return the slot policy of that name with its default parameters, or the object itself if it is one.

    Raises:
        PolicyError: there is no slot policy of that name, or the object is none.

    >>> chosen_slot_policy("equal_slots")
    EqualSlots()
    """
    if isinstance(choice, str):
        return make_slot_policy(choice)
    if not isinstance(choice, SlotPolicy):
        raise PolicyError(f"slot_policy is {choice!r}; give a name or an object with a name and plan(view)")
    return choice


def make_slot_policy(name: str, **parameters: object) -> SlotPolicy:
    """Return the slot policy of that name, made with these parameters.

    Raises:
        PolicyError: there is no such policy; it has no such parameter, or one is missing; or a value is not
            accepted. The message names what would be accepted.
        PluginError: the package that adds the policy cannot be used.

    >>> make_slot_policy("completion_rate", minimum_share=0.2).name
    'completion_rate'
    """
    return policy_by_name(SLOT_POLICIES, name, parameters)
