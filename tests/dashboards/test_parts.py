"""The pure parts: cells of answers, predictions, moves of cores, limits and the audit log."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from relaqs_dashboards.access import TokenBucket
from relaqs_dashboards.answers import LONGEST_TEXT, answer_of, panel_update
from relaqs_dashboards.cluster import Moves, Shown, cluster_update
from relaqs_dashboards.dashboard import KEPT_FILES, AuditLog
from relaqs_dashboards.settings import PanelSettings
from relaqs_dashboards.wire import PanelUpdate, encoded

from relaqs.jobs.job import ClusterStatus, JobStatus
from relaqs.prediction.ahead import Course, Seen
from tests.relaqs.examples import revenue, snapshot


def test_an_answers_cells_have_their_intervals() -> None:
    answer = answer_of(revenue(), {2: "estimate"}, ranked=True)
    assert [(column.name, column.kind, column.type) for column in answer.columns] == [
        ("n_name", "key", "text"),
        ("year", "key", "number"),
        ("revenue", "estimate", "number"),
    ]
    assert answer.rows[0] == [
        "FRANCE",
        1992,
        [57.1e6, pytest.approx(57.1e6 * 0.97), pytest.approx(57.1e6 * 1.03), True],
    ]
    assert (answer.ranked, answer.truncated) == (True, None)


def test_rows_beyond_the_most_are_counted() -> None:
    answer = answer_of(revenue(), {}, ranked=False, most_rows=4)
    assert (len(answer.rows), answer.truncated) == (4, 2)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (2**53, 2**53),
        (2**53 + 1, str(2**53 + 1)),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("0.1"), 0.1),
        (Decimal("12345678901234567.89"), "12345678901234567.89"),
        (dt.date(2013, 1, 31), "2013-01-31"),
        (dt.datetime(2013, 1, 31, 12, 30), "2013-01-31T12:30:00"),
        (True, True),
        (None, None),
        ([1, 2], "[1, 2]"),
        (b"\x00<", "b'\\x00<'"),
        ("x" * 600, "x" * LONGEST_TEXT + "… #ba10d53b"),
    ],
)
def test_a_value_becomes_what_json_has_for_it(value: Any, cell: Any) -> None:
    answer = answer_of(snapshot({"v": [value]}), {}, ranked=False)
    assert json.loads(encoded(answer))["rows"] == [[cell]]


def test_the_time_to_a_target_is_that_of_the_snapshot() -> None:
    course = Course((Seen(0.1, 0.05, 0.2, 0.05), Seen(0.2, 0.03, 0.3, 0.05)), (0.4, 0.7, 1.0), 1.0)
    answer = snapshot({"v": [1.0]}, error=0.03, fraction=0.2, course=course)

    def update(target: float) -> PanelUpdate:
        panel = PanelSettings("p1", "Panel", "SELECT 1", target=target)
        return panel_update(
            panel,
            "refining",
            answer,
            mode="mergeable",
            confidence=0.95,
            interval="pointwise",
            confidence_for="cell",
        )

    assert update(0.01).seconds_to_target == answer.expected(0.01).seconds > 0.1
    at = update(0.01).target_fraction
    assert at is not None
    assert 0.2 < at < 1.0
    assert (update(0.03).seconds_to_target, update(0.03).target_fraction) == (None, None)


JOB = JobStatus(
    id="a",
    name="SELECT secret",
    kind="query",
    state="running",
    client="me",
    weight=1.0,
    arrived_seconds_ago=1.0,
    share_cores=0.0,
    used_cores=0.5,
    quality=math.inf,
    target=None,
    work_done=0.1,
    work_total=1.0,
    attained_core_seconds=1.0,
    core_seconds_left=None,
    history=((0.1, math.inf), (0.2, 0.123456789)),
    predicted=(),
)


def status(seconds: float, policy: str = "relaqs", **shares: float) -> ClusterStatus:
    jobs = tuple(replace(JOB, id=id, share_cores=share) for id, share in shares.items())
    return ClusterStatus(seconds, 4.0, policy, jobs)


def test_jobs_of_others_are_told_without_their_sql() -> None:
    update = cluster_update(status(0.0, a=1.0, b=3.0), {"a": Shown("Revenue", "p1")}, 7)
    mine, other = update.jobs
    assert (mine.name, mine.panel, mine.quality) == ("Revenue", "p1", None)
    assert (other.name, other.panel) == ("another query", None)
    assert mine.history == ((0.2, 0.1235),)
    assert "secret" not in encoded(update)


def test_a_gang_is_told_with_its_slots_and_other_jobs_without() -> None:
    gang = replace(JOB, id="b", kind="training", slots=4, batch_rows=512, rescales=2)
    plain, told = cluster_update(replace(status(0.0, a=1.0), jobs=(JOB, gang)), {}, 7).jobs
    assert (plain.slots, plain.batch_rows, plain.rescales) == (None, None, None)
    assert (told.slots, told.batch_rows, told.rescales) == (4, 512, 2)


def test_a_run_in_parts_is_told_with_its_workers_and_what_its_user_wants() -> None:
    run = replace(JOB, id="b", kind="training", workers=("tcp://a:1", "tcp://b:1"), urgency=9.0)
    run = replace(run, deadline_seconds_left=12.5, accuracy=0.8, accuracy_required=0.9)
    plain, told = cluster_update(replace(status(0.0, a=1.0), jobs=(JOB, run)), {}, 7).jobs
    assert (plain.workers, plain.urgency, plain.due) == ((), 1.0, None)
    assert (told.workers, told.urgency, told.due) == (("tcp://a:1", "tcp://b:1"), 9.0, 12.5)
    assert (told.accuracy, told.accuracy_required) == (0.8, 0.9)


def test_the_largest_move_is_told_and_why() -> None:
    moves = Moves()
    assert moves.see(status(0.0, a=4.0)) == ("a", "+4.0 cores: it is new")
    assert moves.see(status(1.0, a=2.0, b=2.0)) is None  # too soon to be read
    assert moves.see(status(2.0, a=2.0, b=2.0)) == ("a", "−2.0 cores: other answers gain more from them")
    assert moves.see(status(4.0, a=2.1, b=1.9)) is None  # too little
    assert moves.see(status(6.0, a=4.0)) == ("a", "+2.0 cores: another job ended")
    assert moves.see(status(8.0, "fair", a=2.0, b=2.0)) == ("a", "−2.0 cores: the cores are shared evenly")


def test_a_bucket_lets_a_burst_through_and_then_so_many_a_second() -> None:
    now = 0.0
    bucket = TokenBucket(2.0, 3, lambda: now)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_the_audit_log_turns_over_and_keeps_few_files(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", largest_bytes=2000, clock=lambda: 12.5)
    for number in range(200):
        log.note("asked", "ada", sql=f"SELECT {number}")
    log.note("asked", "ada", sql="x" * 5000)
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.jsonl", *(f"audit.jsonl.{i}" for i in range(1, KEPT_FILES + 1))]
    newest = json.loads((tmp_path / "audit.jsonl.1").read_text().splitlines()[-1])
    assert (newest["at"], newest["what"], newest["user"], len(newest["sql"])) == (12.5, "asked", "ada", 2001)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
