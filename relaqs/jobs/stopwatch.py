"""How long ago a job was submitted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stopwatch:
    """Counts the seconds since a job was submitted.

    Attributes:
        started_at: on the clock of `time.perf_counter`.
        earlier_seconds: what the job had run in another process, before it went on here from a checkpoint.
    """

    started_at: float = field(default_factory=time.perf_counter)
    earlier_seconds: float = 0.0

    def seconds(self) -> float:
        """Return the seconds since the job was submitted, with those of an earlier process."""
        return self.earlier_seconds + time.perf_counter() - self.started_at
