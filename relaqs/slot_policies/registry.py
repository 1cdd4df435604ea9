"""Slot policies by name, for settings and the command line.

A policy of this package has a file of its own and a place in the table below. An installed package adds one
by an entry point in the group `relaqs.slot_policies`: see `relaqs/plugins.py`.
"""

from __future__ import annotations

from difflib import get_close_matches
from inspect import signature

from relaqs.gangs.policy import SlotPolicy
from relaqs.plugins import Plugins
from relaqs.policies.registry import PolicyError

SLOT_POLICIES: Plugins[type[SlotPolicy]] = Plugins(
    "relaqs.slot_policies",
    "slot policy",
    own={
        "ones": "relaqs.slot_policies.ones.policy:Ones",
        "exact_utilisation": "relaqs.slot_policies.exact_utilisation:ExactUtilisation",
        "completion_rate": "relaqs.slot_policies.completion_rate:CompletionRate",
        "tiresias": "relaqs.slot_policies.tiresias:Tiresias",
        "optimus": "relaqs.slot_policies.optimus:Optimus",
        "pollux": "relaqs.slot_policies.pollux:Pollux",
        "sia": "relaqs.slot_policies.sia:Sia",
        "one_at_a_time": "relaqs.slot_policies.one_at_a_time:OneAtATime",
        "equal_slots": "relaqs.slot_policies.equal_slots:EqualSlots",
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
    if name not in SLOT_POLICIES:
        near = get_close_matches(name, list(SLOT_POLICIES), n=2)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        known = ", ".join(SLOT_POLICIES)
        raise PolicyError(f"there is no slot policy {name!r}; {hint}The slot policies are {known}")
    make = SLOT_POLICIES[name]
    try:
        return make(**parameters)
    except TypeError as error:
        takes = ", ".join(signature(make).parameters) or "no parameters"
        raise PolicyError(
            f"slot policy {name!r} cannot be made from {parameters}; it takes {takes}"
        ) from error
    except ValueError as error:
        raise PolicyError(f"slot policy {name!r}: {error}") from error
