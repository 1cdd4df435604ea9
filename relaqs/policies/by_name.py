"""Policies of any kind by their names: those that share cores, slots, machines of groups, or devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import TypeVar

from relaqs_engine.errors import RelaqsError

from relaqs.plugins import Plugins

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
    relaqs.policies.by_name.PolicyError: there is no policy 'fifu'; did you mean 'fifo'? The policies are ...
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
