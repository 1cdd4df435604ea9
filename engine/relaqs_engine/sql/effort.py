"""What planning one statement has cost, in steps that are the same on any machine, and who may end it."""

from __future__ import annotations

from collections.abc import Callable

from relaqs_engine.errors import SqlError

MOST_STEPS = 5_000_000
STEPS_OF_A_VALUE = 1000  # of an aggregate or output that is rewritten
_STEPS_BETWEEN_LOOKS = 1000


class Effort:
    """Counts the steps of planning one statement, and ends it if they are too many or no longer wanted.

    A step is a token that the parser looks at, or a character that DuckDB binds. An aggregate or output that
    is rewritten counts as a thousand steps. So a step is about a microsecond. Nothing here reads a clock.

    Args:
        still_wanted: called every thousand steps. It raises an error to end the planning.
        most_steps: the steps that planning may take.

    >>> Effort(most_steps=100).spend(101)
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: planning the query would take more than 100 steps; ...
    """

    def __init__(self, still_wanted: Callable[[], None] = lambda: None, most_steps: int = MOST_STEPS) -> None:
        self.steps = 0
        self._still_wanted = still_wanted
        self._most_steps = most_steps
        self._look_at = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises SqlError if they are too many, and whatever `still_wanted` raises."""
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
        """Return a new effort that the same caller may end, for one more plan of the same statement."""
        return Effort(self._still_wanted, self._most_steps)
