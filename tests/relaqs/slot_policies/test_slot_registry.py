"""Slot policies by name, and what is said of names and parameters that are wrong."""

from __future__ import annotations

import pytest

from relaqs.policies import PolicyError
from relaqs.policies.registry import SLOT_POLICIES, make_slot_policy
from relaqs.sharing.gangs import SlotPolicy


@pytest.mark.parametrize("name", SLOT_POLICIES)
def test_each_is_made_by_its_name(name: str) -> None:
    policy = make_slot_policy(name)
    assert isinstance(policy, SlotPolicy)
    assert policy.name == name


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("one", {}, "there is no slot policy 'one'; did you mean 'ones'"),
        (
            "ones",
            {"mutations": 1},
            "cannot be made from .*'mutations': 1.*; it takes population, generations",
        ),
        ("ones", {"mutation": 7}, "slot policy 'ones': mutation is 7; give a number from 0 to 1"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        make_slot_policy(name, **parameters)
