"""What `benchmarks.placed_live` makes of what it saw, by hand: two runs on two workers."""

from __future__ import annotations

import pytest

from benchmarks.cluster_figures import Figures
from benchmarks.cluster_observer import Asked, Observed, Planned, Ran
from benchmarks.placed_seen import (
    FirstWait,
    PartsSeen,
    PinnedRan,
    PlannedPlaces,
    SentTurn,
    SentTurns,
    first_waits,
    with_turns_asked,
)
from relaqs.training.parted.placing import Part

ONE, TWO = "tcp://a:1", "tcp://b:1"
NAME, OTHER = "relaqs-a-session", "relaqs-q-session"


def sent_turns(*places: tuple[int, float, str, str]) -> SentTurns:
    """Return turns of run "a", which has one part. places: number, asked, the slot's worker, its plan."""
    sent = SentTurns()
    for number, asked, worker, planned in places:
        part = Part(0, 0)
        sent.by_task["a", number] = SentTurn((0, number), asked, f"{worker}/0", (part,), {part: planned})
    return sent


def test_a_part_counts_as_planned_where_its_newest_plan_or_that_of_its_last_turn_has_it() -> None:
    plans = {"a": [PlannedPlaces(0.0, (ONE,)), PlannedPlaces(5.0, (TWO,))]}
    sent = sent_turns((0, 1.0, ONE, ONE), (1, 4.0, ONE, ONE), (2, 7.0, TWO, TWO), (3, 8.0, ONE, ONE))
    pinned = [
        PinnedRan("a", 0, ONE, 1.0, 2.0),
        PinnedRan("a", 1, ONE, 5.5, 6.0),  # it waited while the plan changed
        PinnedRan("a", 2, ONE, 7.0, 7.5),  # not where it was sent
        PinnedRan("a", 3, ONE, 9.0, 9.5),  # not where it was planned
        PinnedRan("b", 0, TWO, 9.0, 9.5),  # no turn
    ]
    seen = PartsSeen.of(pinned, sent, plans)
    assert (seen.parts, seen.as_sent, seen.as_planned) == (4, 3, 2)
    assert (seen.plans, seen.changes, seen.skews_seconds) == (2, 1, ())


def test_a_run_asks_from_when_it_wants_a_turn() -> None:
    """Each has half by the plan. The run wanted its turn from 0 on, and the query had all until 5."""
    runs = (Ran(OTHER, ONE, 0.0, 5.0, 5.0), Ran(NAME, ONE, 5.0, 10.0, 5.0))
    asked = (Asked(0.0, OTHER, 1), Asked(5.0, OTHER, 0), Asked(5.0, NAME, 1), Asked(10.0, NAME, 0))
    seen = Observed(runs, (Planned(0.0, {NAME: 0.5, OTHER: 0.5}),), asked, ())
    assert Figures(seen, 1).deviation(0.0, 5.0) == pytest.approx(0.0)
    pinned = [PinnedRan("a", 0, ONE, 5.0, 10.0)]
    known = with_turns_asked(seen, pinned, sent_turns((0, 0.0, ONE, ONE)))
    assert Figures(known, 1).deviation(0.0, 5.0) == pytest.approx(0.5)


def test_the_first_wait_of_a_query() -> None:
    """It came at 1, while its worker was in a turn until 1.125, and ran somebody's task until 1.1875."""
    runs = (
        Ran(NAME, ONE, 0.0, 1.125, 0.5),
        Ran(NAME, TWO, 0.0, 9.0, 0.5),
        Ran("relaqs-other-session", ONE, 1.125, 1.1875, 0.5),
        Ran(OTHER, ONE, 1.25, 2.0, 0.5),
        Ran(OTHER, TWO, 3.0, 4.0, 0.5),
    )
    asked = (Asked(1.0, OTHER, 2), Asked(4.0, OTHER, 0))
    found = list(first_waits(Observed(runs, (), asked, ()), ["q", "none"], {"a"}))
    assert found == [FirstWait(0.25, 0.125, 0.0625)]
