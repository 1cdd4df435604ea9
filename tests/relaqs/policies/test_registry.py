"""Policies are found by name, and what is not found is said with candidates."""

from __future__ import annotations

import pickle

import pytest

from relaqs.policies import POLICIES, Index, Milestones, PolicyError, make_policy, why_cores_moved
from relaqs.sharing.view import Policy
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
        "milestones",
        "utility",
        "deadlines",
        "load_control",
    ]
    assert all(isinstance(policy, Policy) for policy in every_policy())


def test_the_default_policy_goes_by_the_projects_name() -> None:
    assert make_policy("relaqs", normalised=False) == Index(normalised=False)


def test_a_policy_is_made_with_its_parameters() -> None:
    assert make_policy("index", minimum_share=0.3) == Index(minimum_share=0.3)


def test_a_name_may_say_which_milestones_count() -> None:
    policy = make_policy("milestones:70x2+99.5", minimum_share=0.2)
    assert policy == Milestones((0.7, 0.995), (2.0, 1.0), minimum_share=0.2)
    assert policy.name == "milestones:70x2+99.5"
    with_error = make_policy("milestones:errorx0.5+90")
    assert with_error == Milestones((0.9,), (1.0,), error_weight=0.5)
    assert make_policy(with_error.name) == with_error
    assert why_cores_moved(policy.name, is_more=True) == "its answer will be good enough sooner"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        (
            "indx",
            {},
            r"there is no policy 'indx'; did you mean 'index'\? The policies are fair, weighted_fair",
        ),
        ("qwerty", {}, r"there is no policy 'qwerty'\. The policies are"),
        ("fifo", {"weight": 2}, "policy 'fifo' cannot be made from {'weight': 2}; it takes minimum_share"),
        ("fair", {"minimum_share": 0.1}, "it takes no parameters"),
        ("utility", {}, "it takes utility, minimum_share, normalised"),
        ("milestones:70+", {}, "the milestones are '70\\+'; write percents above 0 and up to 100 with"),
        ("milestones:70+70", {}, r"the milestones are '70\+70'"),
        ("milestones:error", {}, "the milestones are 'error'"),
        ("milestones:700", {}, "the milestones are '700'"),
        ("milestones:70x-1", {}, "the milestones are '70x-1'"),
        ("milestones", {"reductions": ()}, r"reductions is \(\); give some above 0"),
        ("milestones", {"weights": (1.0,)}, r"weights is \(1.0,\); give a number above 0 for each of"),
        ("fair:90", {}, "policy 'fair' takes nothing behind its name, and '90' stands there"),
        ("index", {"minimum_share": 1.5}, "policy 'index': minimum_share is 1.5; it must be between 0 and 1"),
    ],
)
def test_what_cannot_be_made(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        make_policy(name, **parameters)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
