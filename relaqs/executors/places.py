"""Where a waiting task may start: on a usual place, of which there is one a core, or on a spare one.

Nothing interrupts a task that runs as a whole. So places are given with an eye to who would have to wait:

- One user's queries that run as a whole and may take long hold, together, all usual places but one at most.
- A user whose cores are limited has no more at once, whatever is idle.
- Where tasks hold all usual places for longer than SLICE_SECONDS, there is a spare one: for a query that has
  had few core-seconds yet and of which nothing runs, and for a user of whom nothing runs. The operating
  system then shares the cores. A user whose task stays on a spare place has no second one.

Example, with two cores:

waiting                              place      why
eve's GROUP BY, 12 s                 usual
eve's second one                     none       until the first is over
bob's count of 25 rows               usual      the one that was left
ann's count beside eve's and bob's   spare      SLICE_SECONDS after both began, if they run still

Pure: the time is an argument.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from relaqs_engine.layouts.manifest import SOON_SECONDS

SLICE_SECONDS = 0.01  # most tasks are over by then
OVERDUE_SECONDS = 1.0  # after which a whole that was predicted to be short counts as a long one
BELIEVED = 2  # so many more long wholes a user may have who has some that were predicted to be short
LIGHT_CORE_SECONDS = SOON_SECONDS  # until a query has had so many, it is a new one


@dataclass(frozen=True, slots=True)
class Need:
    """What is known of a task before it runs.

    Attributes:
        user: who asks for it, "" where nobody was named.
        user_cores_most: what the user may have at once.
        cores: how many it occupies.
        whole_seconds: as in `Task`.
        is_light: it is of a query that has had few core-seconds yet.
    """

    job: str = ""
    user: str = ""
    user_cores_most: float = math.inf
    cores: int = 1
    whole_seconds: float | None = None
    is_light: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it is a whole that is predicted to take long."""
        return self.whole_seconds is not None and self.whole_seconds >= SOON_SECONDS


@dataclass(frozen=True, slots=True)
class Held:
    """A place that a task holds."""

    need: Need
    since_seconds: float
    is_spare: bool = False

    def is_long(self, now_seconds: float) -> bool:
        """Whether it is a whole that may take long, or does so although it was predicted to be short."""
        is_overdue = now_seconds - self.since_seconds >= OVERDUE_SECONDS
        return self.need.is_long or (self.need.whole_seconds is not None and is_overdue)

    @property
    def slice_end_seconds(self) -> float:
        """From when on nobody needs to wait for its end."""
        return self.since_seconds if self.need.is_long else self.since_seconds + SLICE_SECONDS


class Places:
    """What may start at one moment.

    Args:
        cores: how many usual places there are.
        held: the places that are held.
        now_seconds: by the clock of these.
    """

    def __init__(self, cores: int, held: Collection[Held], now_seconds: float) -> None:
        self._longs_most = max(1, cores - 1)
        self._jobs = {each.need.job for each in held}
        self._cores_of: Counter[str] = Counter()
        self._longs_of: Counter[str] = Counter()
        self._lingering = {
            each.need.user for each in held if each.is_spare and each.slice_end_seconds <= now_seconds
        }
        for each in held:
            self._cores_of[each.need.user] += each.need.cores
            self._longs_of[each.need.user] += each.is_long(now_seconds)
        self.has_usual = sum(not each.is_spare for each in held) < cores
        self.spare_at_seconds = max((each.slice_end_seconds for each in held), default=now_seconds)
        self._has_spare = self.spare_at_seconds <= now_seconds

    def may_start(self, need: Need) -> bool:
        """Return whether such a task may start now."""
        if not self.is_within_limits(need):
            return False
        return self.has_usual or (self._has_spare and self.may_have_spare(need))

    def may_have_spare(self, need: Need) -> bool:
        """Return whether such a task may start on a spare place as soon as there is one."""
        is_urgent = need.is_light and not need.is_long and need.job not in self._jobs
        has_none = not self._cores_of[need.user]
        return need.user not in self._lingering and (is_urgent or has_none) and self.is_within_limits(need)

    def is_within_limits(self, need: Need) -> bool:
        """Return whether its user may have a place more, wherever there is one."""
        used = self._cores_of[need.user]
        if used and used + need.cores >= need.user_cores_most + 1:  # 1.5 cores are two at once
            return False
        if need.whole_seconds is None:
            return True
        return self._longs_of[need.user] < self._longs_most + (0 if need.is_long else BELIEVED)
