"""A turnstile at which the tasks of queries wait, so that a test decides how far its queries come."""

from __future__ import annotations

import threading

PATIENCE_SECONDS = 60.0  # no test takes as long unless it hangs


class Turnstile:
    """Lets so many more tasks through, or all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 0.0

    def let(self, tasks: float = float("inf")) -> None:
        with self._changed:
            self._left += tasks
            self._changed.notify_all()

    def enter(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._left > 0, PATIENCE_SECONDS):
                raise TimeoutError("the test never let this task through")
            self._left -= 1
            self._changed.notify_all()

    def wait_until_used(self) -> None:
        """Wait until as many tasks went through as were let."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._left == 0, PATIENCE_SECONDS)
