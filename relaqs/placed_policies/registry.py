"""Placed policies by name, for settings and the command line."""

from __future__ import annotations

from relaqs.parts.plan import PlacedPolicy
from relaqs.plugins import Plugins
from relaqs.policies.registry import policy_by_name

PLACED_POLICIES: Plugins[type[PlacedPolicy]] = Plugins(
    "relaqs.placed_policies",
    "placed policy",
    own={
        "mlfs": "relaqs.placed_policies.load_control:Mlfs",
        "mlf_h": "relaqs.placed_policies.mlf_h:MlfH",
        "mlf_rl": "relaqs.placed_policies.mlf_rl:MlfRl",
        "fair": "relaqs.placed_policies.whole_jobs:FairDevices",
        "slack_index": "relaqs.placed_policies.whole_jobs:SlackIndex",
    },
)


def make_placed_policy(name: str, **parameters: object) -> PlacedPolicy:
    """Return the placed policy of that name, made with these parameters.

    Raises:
        PolicyError: there is no such policy, it has no such parameter, or a value is not accepted. The
            message names what would be accepted.
        PluginError: the package that adds the policy cannot be used.

    >>> make_placed_policy("mlf_h", gang=False).name
    'mlf_h'
    """
    return policy_by_name(PLACED_POLICIES, name, parameters)
