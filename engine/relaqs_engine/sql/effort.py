"""What planning one statement has cost, in steps that are the same on any machine, and who may end it."""

from __future__ import annotations

from collections.abc import Callable

from relaqs_engine.errors import SqlError

MOST_STEPS = 5_000_000
STEPS_OF_A_VALUE = 1000  # of an aggregate or output that is rewritten
_STEPS_BETWEEN_LOOKS = 1000


class Effort:
    """Counts the steps of planning one statement, and ends it where they are too many or nobody waits.

    A step is a token that the parser looks at or a character that DuckDB binds; an aggregate or an output
    that is rewritten counts as a thousand. So one is about a microsecond.
    still_wanted: called every thousand steps; it raises what ends the planning. Nothing here reads a clock.
    """

    def __init__(self, still_wanted: Callable[[], None] = lambda: None, most_steps: int = MOST_STEPS) -> None:
        self.steps = 0
        self._still_wanted = still_wanted
        self._most_steps = most_steps
        self._look_at = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises SqlError where they are too many, and whatever `still_wanted` raises."""
        self.steps += steps
        if self.steps >= self._look_at:
            self._look_at = self.steps + _STEPS_BETWEEN_LOOKS
            self._still_wanted()
        if self.steps > self._most_steps:
            raise SqlError(
                f"planning the query would take more than {self._most_steps:,} steps; give it fewer columns, "
                "conditions or subqueries, or ask for its parts one by one"
            )

    def anew(self) -> Effort:
        """Return an effort from nothing, which the same may end: for one more plan of a statement."""
        return Effort(self._still_wanted, self._most_steps)
