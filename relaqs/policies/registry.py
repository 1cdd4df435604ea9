"""Policies of all kinds by their names, for settings and the command line.

| kind | decides | table | entry points |
|---|---|---|---|
| policy | who gets how many cores | `POLICIES` | `relaqs.policies` |
| slot policy | who holds which slots of machines | `SLOT_POLICIES` | `relaqs.slot_policies` |
| placed policy | on which device each part of a model is | `PLACED_POLICIES` | `relaqs.placed_policies` |

A policy of this package has a place in one of the tables, and is imported when it is used. An installed
package adds one by an entry point in the group: see `relaqs/plugins.py`. All are made by `policy_by_name`,
which names what would be accepted. Example: `make_slot_policy("completion_rate", minimum_share=0.2)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, TypeVar, cast

from relaqs_engine.errors import RelaqsError

from relaqs.plugins import Plugins
from relaqs.sharing.view import Policy, PolicyOf

if TYPE_CHECKING:
    from relaqs.sharing.gangs import SlotPolicy
    from relaqs.sharing.parts import PlacedPolicy

_Policy = TypeVar("_Policy")


class PolicyError(RelaqsError, ValueError):
    """There is no such policy, or it does not take these parameters. It is a ValueError too."""


def policy_by_name(
    policies: Plugins[type[_Policy]],
    name: str,
    parameters: Mapping[str, object],
    *,
    aliases: Collection[str] = (),
    make: Callable[..., _Policy] | None = None,
) -> _Policy:
    """Return the policy of that name, made with these parameters.

    Args:
        policies: those of one kind.
        aliases: other names that are accepted, for the message.
        make: is called with the parameters instead of the policy's own class.

    Raises:
        PolicyError: there is no such policy; it has no such parameter, or one is missing; or a value is not
            accepted. The message names what would be accepted.
        PluginError: the package that adds the policy cannot be used.

    >>> from relaqs.policies.registry import POLICIES
    >>> policy_by_name(POLICIES, "fifo", {"minimum_share": 0.2})
    Fifo(minimum_share=0.2)
    >>> policy_by_name(POLICIES, "fifu", {})
    Traceback (most recent call last):
    relaqs.policies.registry.PolicyError: there is no policy 'fifu'; did you mean 'fifo'? The policies are ...
    """
    noun, plural = policies.noun, f"{policies.noun.removesuffix('y')}ies"
    if name not in policies:
        known = [*policies, *aliases]
        near = get_close_matches(name, known, n=2)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise PolicyError(f"there is no {noun} {name!r}{hint} The {plural} are {', '.join(known)}")
    kind = policies[name]
    try:
        return (make or kind)(**parameters)
    except TypeError as error:
        takes = ", ".join(signature(kind).parameters) or "no parameters"
        raise PolicyError(f"{noun} {name!r} cannot be made from {parameters}; it takes {takes}") from error
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError(f"{noun} {name!r}: {error}") from error


def policy_in_words(name: str, parameters: Iterable[tuple[str, object]]) -> str:
    """Return a policy's name, and the parameters that differ from its defaults.

    >>> policy_in_words("ones", [("population", 8)])
    'ones (population=8)'
    """
    differs = ", ".join(f"{each}={value}" for each, value in parameters)
    return f"{name} ({differs})" if differs else name


POLICIES: Plugins[type[Policy]] = Plugins(
    "relaqs.policies",
    "policy",
    own={
        "fair": "relaqs.policies.fair:Fair",
        "weighted_fair": "relaqs.policies.fair:WeightedFair",
        "fifo": "relaqs.policies.ordered:Fifo",
        "shortest_remaining_time": "relaqs.policies.ordered:ShortestRemainingTime",
        "least_attained_service": "relaqs.policies.ordered:LeastAttainedService",
        "max_sum": "relaqs.policies.max_sum:MaxSum",
        "max_min": "relaqs.policies.fair:MaxMin",
        "index": "relaqs.policies.index:Index",
        "milestones": "relaqs.policies.milestones:Milestones",
        "utility": "relaqs.policies.max_sum:Utility",
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


SLOT_POLICIES: Plugins[type[SlotPolicy]] = Plugins(
    "relaqs.slot_policies",
    "slot policy",
    own={
        "ones": "relaqs.slot_policies.ones:Ones",
        "completion_rate": "relaqs.slot_policies.sia:CompletionRate",
        "sia": "relaqs.slot_policies.sia:Sia",
        "equal_slots": "relaqs.slot_policies:EqualSlots",
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
    if not isinstance(choice, PolicyOf):
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


PLACED_POLICIES: Plugins[type[PlacedPolicy]] = Plugins(
    "relaqs.placed_policies",
    "placed policy",
    own={"mlf_h": "relaqs.placed_policies.mlf_h:MlfH"},
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
