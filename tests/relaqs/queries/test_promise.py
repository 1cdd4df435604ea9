"""A target with a time: what is said of it, by a sentence alone and by a query."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from relaqs import ArgumentError, OnlineQuery
from relaqs.cli import program
from relaqs.jobs.job import JobDescription
from relaqs.prediction.ahead import REACHED, Expected
from relaqs.queries.online_query import promise
from relaqs.queries.options import AskingUser, QueryOptions
from relaqs.queries.start import query_description
from relaqs.scheduling import Allocator
from relaqs.sharing.view import Kind
from tests.relaqs.conftest import PLAN, Gate
from tests.relaqs.scheduling.test_allocator import Recorder

Start = Callable[..., OnlineQuery]


@pytest.mark.parametrize(
    ("elapsed", "expected", "sentence"),
    [
        (
            0.5,
            Expected(0.7, 0.3, 1.4),
            "± 1 % will be there within 2 s: expected after 1.2 s (0.8 s to 1.9 s",
        ),
        (0.5, Expected(1.1, 0.5, 4.5), "± 1 % may not be there within 2 s: expected after 1.6 s (1 s to 5 s"),
        (0.5, Expected(30.0, 20.0, 40.0), "± 1 % will not be there within 2 s: expected after 30 s (20 s to"),
        (2.5, Expected(1.0, 0.5, 1.5), "± 1 % was not there within 2 s: expected after 3.5 s (3 s to 4 s in"),
    ],
)
def test_it_says_whether_and_when(elapsed: float, expected: Expected, sentence: str) -> None:
    said = promise(0.01, 2.0, elapsed, expected, is_met=False)
    assert said is not None
    assert said.startswith(sentence)


def test_a_promise_that_was_kept_needs_no_words() -> None:
    assert promise(0.01, 2.0, 1.9, REACHED, is_met=True) is None
    assert promise(0.01, 2.0, 3.0, REACHED, is_met=True) == "± 1 % came after 3 s, not within 2 s"


def test_a_query_says_it_from_its_first_snapshot_on(start: Start, gate: Gate) -> None:
    """The fixture's clock is a second later at each look; a step takes some, and there are forty."""
    query = start(target=1e-6, within=5.0)
    gate.let(1)
    first = next(iter(query))
    assert "not be there within 5 s: expected after" in first.warnings[-1]
    found = query.expected(1e-6)
    assert found is not None
    assert 0 < found.low < found.seconds < found.high
    gate.let()
    last = query.result()
    assert last.is_exact  # a deadline that has passed ends nothing
    assert last.warnings[-1].startswith("± 0.0001 % came after")
    assert last.expected("1%") == REACHED


def test_without_a_deadline_nothing_is_said(start: Start, gate: Gate) -> None:
    query = start(target=1e-6)
    gate.let(1)
    assert next(iter(query)).warnings == ()
    assert query.expected(0.5) == REACHED


def test_a_pause_is_no_slow_reading(start: Start, gate: Gate) -> None:
    query = start()
    gate.let(3)
    reader = iter(query)
    while (snapshot := next(reader)).batch < 3:
        pass
    query.pause()
    before = snapshot.expected(1e-9)
    for _ in range(10_000 // 20):
        query._publisher._stopwatch.seconds()  # a second each, of the fixture's clock
    query.resume()
    gate.let(2)
    while (snapshot := next(reader)).batch < 5:
        pass
    assert snapshot.expected(1e-9).seconds < 3 * before.seconds


def test_the_scheduler_is_told() -> None:
    options = QueryOptions(target=0.01, within=3.0)
    description = query_description("q", PLAN, options, AskingUser(), exact_cores=1)
    assert (description.target, description.deadline_seconds) == (0.01, 3.0)
    recorder = Recorder()
    allocator = Allocator(recorder)
    allocator.enter(description, 10.0)
    allocator.enter(JobDescription("other", Kind.QUERY), 11.0)
    allocator.plan(12.0, 2.0)
    assert recorder.views[-1].jobs.deadline_seconds.tolist() == [13.0, math.inf]


def test_a_time_needs_a_target() -> None:
    with pytest.raises(ArgumentError, match=r"within is 2\.0, but there is no target.*timeout=2\.0"):
        QueryOptions(within=2.0)
    with pytest.raises(ArgumentError, match="within is 0; it must be a number of seconds above 0"):
        QueryOptions(within=0, target=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--within", "2s"), "--within needs a --target"),
        (("--within", "soon", "--target", "1%"), "'soon' is no time above 0; write it as 2s, 500ms or 1.5m"),
    ],
)
def test_the_command_line_says_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(program, ["sql", "SELECT 1", "--data", ".", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
