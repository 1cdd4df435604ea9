"""Policies by name, for settings and the command line.

A policy of this package has a file of its own and a place in the table below. An installed package adds one
by an entry point in the group `relaqs.policies`: see `relaqs/plugins.py`.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from relaqs_engine.errors import RelaqsError

from relaqs.plugins import Plugins
from relaqs.policies.by_name import PolicyError, policy_by_name
from relaqs.sharing.plan import Policy

POLICIES: Plugins[type[Policy]] = Plugins(
    "relaqs.policies",
    "policy",
    own={
        "fair": "relaqs.policies.fair:Fair",
        "weighted_fair": "relaqs.policies.weighted_fair:WeightedFair",
        "fifo": "relaqs.policies.fifo:Fifo",
        "shortest_remaining_time": "relaqs.policies.shortest_remaining_time:ShortestRemainingTime",
        "least_attained_service": "relaqs.policies.least_attained_service:LeastAttainedService",
        "max_sum": "relaqs.policies.max_sum:MaxSum",
        "max_min": "relaqs.policies.max_min:MaxMin",
        "index": "relaqs.policies.index:Index",
        "milestones": "relaqs.policies.milestones:Milestones",
        "utility": "relaqs.policies.utility:Utility",
        "deadlines": "relaqs.policies.deadlines:Deadlines",
        "load_control": "relaqs.policies.load_control:LoadControl",
    },
)

DEFAULT_POLICY = "relaqs"
ALIASES = {DEFAULT_POLICY: "index"}  # the policy that measures best


def chosen_policy(choice: str | Policy) -> Policy:
    """Return the policy of that name with its default parameters, or the object itself if it is a policy.

    Raises:
        PolicyError: there is no policy of that name, or the object is none.

    >>> chosen_policy("fair")
    Fair()
    >>> from relaqs.policies import Fifo
    >>> chosen_policy(Fifo(minimum_share=0.2))
    Fifo(minimum_share=0.2)
    """
    if isinstance(choice, str):
        return make_policy(choice)
    if not isinstance(choice, Policy):
        raise PolicyError(f"policy is {choice!r}; give a name or an object with a name and plan(view)")
    return choice


def make_policy(name: str, **parameters: object) -> Policy:
    """Return the policy of that name, made with these parameters. "relaqs" stands for the default policy.

    A name may say what counts, behind a colon, if the policy has a classmethod `of_text` that reads it.

    Raises:
        PolicyError: there is no such policy; it has no such parameter, or one is missing; or a value is not
            accepted. The message names what would be accepted.
        PluginError: the package that adds the policy cannot be used.

    >>> make_policy("relaqs", minimum_share=0.2)
    Index(minimum_share=0.2, new_first=True, normalised=True)
    >>> make_policy("milestones:70+90").reductions
    (0.7, 0.9)
    """
    name, _, text = name.partition(":")
    name = ALIASES.get(name, name)
    make = partial(_of_text, name, text) if text else None
    policy = policy_by_name(POLICIES, name, parameters, aliases=ALIASES, make=make)
    return chosen_policy(policy)


def _of_text(name: str, text: str, **parameters: object) -> Policy:
    """Return the policy that a text behind its name chooses."""
    read = getattr(POLICIES[name], "of_text", None)
    if read is None:
        raise PolicyError(f"policy {name!r} takes nothing behind its name, and {text!r} stands there")
    return cast(Policy, read(text, **parameters))


def why_cores_moved(name: str, *, is_more: bool) -> str:
    """Return why a policy gave a job more cores, or fewer, in words that follow "+2 cores: ".

    A policy says so by its attributes `why_more` and `why_less`. They are optional.

    >>> why_cores_moved("fifo", is_more=False)
    'older jobs are served first'
    """
    unknown = f"the policy {name} decided so"
    try:
        kind = name.partition(":")[0]
        policy = POLICIES.get(ALIASES.get(kind, kind))
    except RelaqsError:  # its package is not here, but the cluster may have it
        return unknown
    return str(getattr(policy, "why_more" if is_more else "why_less", unknown))
