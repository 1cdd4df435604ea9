"""Policies by name, for settings and the command line."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches

from relaqs_engine.errors import RelaqsError

from relaqs.policies.fair import Fair
from relaqs.policies.fifo import Fifo
from relaqs.policies.index import Index
from relaqs.policies.least_attained_service import LeastAttainedService
from relaqs.policies.max_min import MaxMin
from relaqs.policies.max_sum import MaxSum
from relaqs.policies.shortest_remaining_time import ShortestRemainingTime
from relaqs.policies.utility import Utility
from relaqs.policies.weighted_fair import WeightedFair
from relaqs.sharing.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Fair,
        WeightedFair,
        Fifo,
        ShortestRemainingTime,
        LeastAttainedService,
        MaxSum,
        MaxMin,
        Index,
        Utility,
    )
}

DEFAULT_POLICY = "relaqs"
ALIASES = {DEFAULT_POLICY: Index.name}  # whichever measures best


class PolicyError(RelaqsError, ValueError):
    """No such policy, or not with these parameters. It is a ValueError too."""


def chosen_policy(choice: str | Policy) -> Policy:
    """Return the policy of that name with its default parameters, or the object itself if it is a policy."""
    if isinstance(choice, str):
        return make_policy(choice)
    if not isinstance(choice, Policy):
        raise PolicyError(f"policy is {choice!r}; give a name or an object with a name and plan(view)")
    return choice


def make_policy(name: str, **parameters: object) -> Policy:
    """Return the policy of that name, with its parameters, e.g. `make_policy("index", minimum_share=0.2)`.

    "relaqs" stands for the default policy.
    Raises PolicyError: with candidates if there is no such policy; with the parameters it takes if there is
    no such parameter or one is missing; or if a value is not accepted.
    """
    name = ALIASES.get(name, name)
    if name not in POLICIES:
        known = [*POLICIES, *ALIASES]
        near = get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise PolicyError(f"there is no policy {name!r}; {hint}The policies are {', '.join(known)}")
    try:
        return POLICIES[name](**parameters)
    except TypeError as error:
        takes = ", ".join(each.name for each in fields(POLICIES[name])) or "no parameters"  # type: ignore[arg-type]
        raise PolicyError(f"policy {name!r} cannot be made from {parameters}; it takes {takes}") from error
    except ValueError as error:
        raise PolicyError(f"policy {name!r}: {error}") from error
