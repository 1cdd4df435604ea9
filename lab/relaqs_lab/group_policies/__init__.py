"""Group policies: which jobs take turns on the same machines. One policy a file, and one idea of Harmony.

Pure: what they see and say is in `relaqs_lab.groups`.

A policy of this package has a place in the table below. An installed package adds one by an entry point in
the group `relaqs.group_policies`: see `relaqs/plugins.py`.
"""

from __future__ import annotations

from relaqs.plugins import Plugins
from relaqs.policies.registry import policy_by_name
from relaqs_lab.groups import GroupPolicy

GROUP_POLICIES: Plugins[type[GroupPolicy]] = Plugins(
    "relaqs.group_policies",
    "group policy",
    own={
        "harmony": "relaqs_lab.group_policies.harmony:Harmony",
        "harmony_progress": "relaqs_lab.group_policies.harmony:HarmonyProgress",
        "isolated": "relaqs_lab.group_policies.baselines:Isolated",
        "shortest_first": "relaqs_lab.group_policies.baselines:ShortestFirst",
        "colocated": "relaqs_lab.group_policies.baselines:Colocated",
        "muri": "relaqs_lab.group_policies.baselines:Muri",
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
    return policy_by_name(GROUP_POLICIES, name, parameters)
