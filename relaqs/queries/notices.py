"""What a session tells its user outside of answers: sentences on standard error."""

from __future__ import annotations

import sys


def announce(message: str) -> None:
    """Print a sentence about something that takes time."""
    print(f"relaqs: {message}", file=sys.stderr)
