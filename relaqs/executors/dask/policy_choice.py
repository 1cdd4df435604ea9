"""Which policy a cluster follows where several sessions ask for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    """A policy of either kind: for cores or for slots."""

    @property
    def name(self) -> str: ...


AnyPolicy = TypeVar("AnyPolicy", bound=Named)


@dataclass(frozen=True, slots=True)
class _Wish(Generic[AnyPolicy]):
    client: str
    policy: AnyPolicy


class Wishes(Generic[AnyPolicy]):
    """The policies that open sessions asked for. The first one holds until its session ends.

    A session without a wish follows the others. The default holds while no session has a wish.
    """

    def __init__(self, default: AnyPolicy) -> None:
        self._default = default
        self._wishes: dict[str, _Wish[AnyPolicy]] = {}  # by session, the oldest first

    @property
    def in_force(self) -> AnyPolicy:
        return next((wish.policy for wish in self._wishes.values()), self._default)

    def ask(self, session: str, client: str, policy: AnyPolicy) -> None:
        """Take a wish in if it is the first, or agrees with the policy that holds; else pass it over."""
        if not self._wishes or policy.name == self.in_force.name:
            self._wishes.setdefault(session, _Wish(client, policy))

    def end_session(self, session: str) -> None:
        self._wishes.pop(session, None)

    def end_client(self, client: str) -> None:
        self._wishes = {each: wish for each, wish in self._wishes.items() if wish.client != client}
