"""Group policies by name, for settings and the command line.

A policy of this package has a file of its own and a place in the table below. An installed package adds one
by an entry point in the group `relaqs.group_policies`: see `relaqs/plugins.py`.
"""

from __future__ import annotations

from difflib import get_close_matches
from inspect import signature

from relaqs.groups.policy import GroupPolicy
from relaqs.plugins import Plugins
from relaqs.policies.registry import PolicyError

GROUP_POLICIES: Plugins[type[GroupPolicy]] = Plugins(
    "relaqs.group_policies",
    "group policy",
    own={
        "harmony": "relaqs.group_policies.harmony:Harmony",
        "isolated": "relaqs.group_policies.isolated:Isolated",
        "shortest_first": "relaqs.group_policies.isolated:ShortestFirst",
        "colocated": "relaqs.group_policies.colocated:Colocated",
        "muri": "relaqs.group_policies.muri:Muri",
    },
)


def make_group_policy(name: str, **parameters: object) -> GroupPolicy:
    """Return the group policy of that name, made with these parameters.

    Raises:
        PolicyError: there is no such policy; it has no such parameter; or a value is not accepted. The
            message names what would be accepted.
        PluginError: the package that adds the policy cannot be used.

    >>> make_group_policy("isolated", comp_share=0.5).name
    'isolated'
    """
    if name not in GROUP_POLICIES:
        near = get_close_matches(name, list(GROUP_POLICIES), n=2)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        known = ", ".join(GROUP_POLICIES)
        raise PolicyError(f"there is no group policy {name!r}; {hint}The group policies are {known}")
    make = GROUP_POLICIES[name]
    try:
        return make(**parameters)
    except TypeError as error:
        takes = ", ".join(signature(make).parameters) or "no parameters"
        raise PolicyError(
            f"group policy {name!r} cannot be made from {parameters}; it takes {takes}"
        ) from error
    except ValueError as error:
        raise PolicyError(f"group policy {name!r}: {error}") from error
