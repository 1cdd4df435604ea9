"""When an error will be at a target: the law of the sample, the pace, and intervals that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.prediction.ahead import REACHED, Course, Seen, expected, fraction_at
from tests.few_and_many import few_and_many

ENDS = (0.01, 0.02, 0.04, 0.07, 0.12, 0.19, 0.29, 0.39, 0.49, 0.59, 0.69, 0.79, 0.89, 1.0)


def course(count: int, *, scale: float = 0.01, step: float = 0.02, whole: float = 1.0) -> Course:
    """Return a query that has come so many mini-batches far. scale: its error at half of the rows.

    step, whole: seconds of a mini-batch, and of reading all rows, on one core.
    """
    seen, at, before = [], 0.02, 0.0
    for end in ENDS[:count]:
        at += step + whole * (end - before)
        error = scale * math.sqrt(1 / end - 1) if end < 1 else 0.0
        seen.append(Seen(end, error, at, whole * (end - before)))
        before = end
    return Course(tuple(seen), ENDS[count:])


def seconds_of(course: Course, upto: int) -> float:
    """Return what the mini-batches to that end take."""
    begun = ENDS.index(course.seen[-1].fraction)
    return sum(0.02 + b - a for a, b in zip(ENDS[begun:upto], ENDS[begun + 1 : upto + 1], strict=True))


@pytest.mark.parametrize("count", range(3, 9))
def test_a_target_is_reached_at_the_end_of_the_mini_batch_that_the_law_names(count: int) -> None:
    now = course(count)
    found = expected(now, 0.01)  # at half of the rows, so at the end of the mini-batch at 59 %
    assert found.low < seconds_of(now, ENDS.index(0.59)) < found.high
    assert found.seconds == pytest.approx(seconds_of(now, ENDS.index(0.59)), rel=0.25)


def test_what_is_reached_needs_no_time() -> None:
    assert expected(course(5), 0.5) == REACHED
    assert expected(course(14), 1e-9) == REACHED


def test_the_exact_end_is_the_latest() -> None:
    now = course(6)
    never, soon = expected(now, 1e-12), expected(now, 0.015)
    assert never.seconds == pytest.approx(seconds_of(now, 13), rel=0.15)
    assert 0 < soon.low < soon.seconds < soon.high < never.high
    assert soon.seconds < never.seconds


def test_more_is_known_the_further_it_is() -> None:
    first, later = (expected(course(count), 0.005) for count in (1, 9))
    assert later.high / later.low < first.high / first.low


def test_a_busy_machine_is_expected_to_stay_busy() -> None:
    calm, busy = (expected(course(6, step=step), 0.005) for step in (0.02, 0.2))
    assert busy.seconds > 2 * calm.seconds


def test_while_nothing_is_certified_any_end_may_be_the_one() -> None:
    now = course(3, scale=math.inf)
    found, whole = expected(now, 0.01), expected(course(3), 1e-12)
    assert 0 < found.low < 0.25 * found.high
    assert found.high >= whole.seconds


def test_a_query_that_goes_on_from_a_kept_state_has_its_pace_from_there() -> None:
    found = expected(Course((Seen(0.5, 0.1, 30.0),), (0.6, 1.0)), 1e-9)
    assert found.low < 30.0 < found.high


def test_the_fraction_of_the_target() -> None:
    at = fraction_at(0.01, error=0.05, fraction=0.1)
    assert at is not None
    assert math.sqrt(1 / at - 1) / math.sqrt(1 / 0.1 - 1) == pytest.approx(0.01 / 0.05)
    assert fraction_at(0.05, error=0.05, fraction=0.1) == pytest.approx(0.1)
    assert fraction_at(0.01, error=math.inf, fraction=0.1) is None
    assert fraction_at(0.01, error=0.0, fraction=1.0) is None


@pytest.mark.slow
@few_and_many("queries", 100, 300)
def test_nine_of_ten_intervals_hold_where_load_and_errors_vary(queries: int) -> None:
    """Made-up queries: a load that changes slowly, steps that vary, errors off their curve by 5 %.

    Between 85 and 97 % of some 17 intervals a query: neighbours share their load, so the band is wide.
    """
    random, held = np.random.default_rng(3), []
    for _ in range(queries):
        load = np.exp(0.25 * np.cumsum(random.normal(size=14)) * 0.5 + 0.3 * random.normal(size=14))
        ends = np.array(ENDS)
        took = load * (random.uniform(0.005, 0.05) + random.uniform(0.1, 3) * np.diff(ends, prepend=0))
        with np.errstate(divide="ignore"):
            error = 0.01 * np.sqrt(1 / ends - 1) * np.exp(0.05 * random.normal(size=14))
        seen = [Seen(*each) for each in zip(ends, error, 0.02 + np.cumsum(took), 0.5 * took, strict=True)]
        for target in (0.02, 0.005):
            reached = next(i for i, each in enumerate(seen) if each.error <= target)
            for k in range(reached):
                found = expected(Course(tuple(seen[: k + 1]), ENDS[k + 1 :]), target)
                needed = seen[reached].elapsed_seconds - seen[k].elapsed_seconds
                held.append(found.low <= needed <= found.high)
    assert 0.85 <= np.mean(held) <= 0.97
