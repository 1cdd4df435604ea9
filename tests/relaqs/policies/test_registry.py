"""Policies are found by name, and what is not found is said with candidates."""

from __future__ import annotations

import pickle

import pytest

from relaqs.policies import POLICIES, Index, PolicyError, make_policy
from relaqs.sharing.policy import Policy
from tests.relaqs.policies.views import every_policy


def test_the_policies() -> None:
    assert list(POLICIES) == [
        "fair",
        "weighted_fair",
        "fifo",
        "shortest_remaining_time",
        "least_attained_service",
        "max_sum",
        "max_min",
        "index",
        "utility",
    ]
    assert all(isinstance(policy, Policy) for policy in every_policy())


def test_the_default_policy_goes_by_the_projects_name() -> None:
    assert make_policy("relaqs", normalised=False) == Index(normalised=False)


def test_a_policy_is_made_with_its_parameters() -> None:
    assert make_policy("index", minimum_share=0.3) == Index(minimum_share=0.3)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        (
            "indx",
            {},
            r"there is no policy 'indx'; did you mean 'index'\? The policies are fair, weighted_fair",
        ),
        ("qwerty", {}, r"there is no policy 'qwerty'; The policies are"),
        ("fifo", {"weight": 2}, "policy 'fifo' cannot be made from {'weight': 2}; it takes minimum_share"),
        ("fair", {"minimum_share": 0.1}, "it takes no parameters"),
        ("utility", {}, "it takes utility, minimum_share, normalised"),
        ("index", {"minimum_share": 1.5}, "policy 'index': minimum_share is 1.5; it must be between 0 and 1"),
    ],
)
def test_what_cannot_be_made(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        make_policy(name, **parameters)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
