"""What is said of a query that has a target and a time for it: whether it will be there, and when instead."""

from __future__ import annotations

from relaqs.prediction.ahead import Expected


def promise(
    target: float, deadline_seconds: float, elapsed_seconds: float, expected: Expected, *, is_met: bool
) -> str | None:
    """Return one sentence, or None where the target was met in time. Seconds count from the submission.

    expected: from now on.
    """
    goal, limit = f"± {100 * target:g} %", f"{deadline_seconds:g} s"
    if is_met:
        late = elapsed_seconds > deadline_seconds
        return f"{goal} came after {_seconds(elapsed_seconds)}, not within {limit}" if late else None
    at, low, high = (elapsed_seconds + each for each in (expected.seconds, expected.low, expected.high))
    if elapsed_seconds > deadline_seconds:
        said = "was not there"
    elif high <= deadline_seconds:
        said = "will be there"
    else:
        said = "will not be there" if low > deadline_seconds else "may not be there"
    between = f"{_seconds(low)} to {_seconds(high)} in nine of ten cases"
    return f"{goal} {said} within {limit}: expected after {_seconds(at)} ({between})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"
