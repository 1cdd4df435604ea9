"""`Session.run`: functions of the user's own, on threads of this process and on workers that die."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster
from sklearn.linear_model import SGDClassifier

import relaqs
from relaqs import ArgumentError, RelaqsError, Session, SqlError, connect, shuffle
from relaqs.pacing import Context
from relaqs.pacing.function_run import FunctionTurn, ReadsRows, Saved, Wanted
from tests.made_once import made_once

ROWS = 5_000
POINTS = "SELECT x, y FROM points"
Line = tuple[float, float, int, int]


def line(ctx: Context, passes: int, nap: float = 0.0) -> Line:
    """Return slope, start, passes and steps of a regression, saved after each step."""
    slope, start, done, steps = ctx.load((0.0, 0.0, 0, 0))
    while done < passes:
        for x, y in ctx.batches(POINTS, rows=100, target="y", seed=done):
            off = slope * x[:, 0] + start - y
            slope, start = slope - 0.5 * (off * x[:, 0]).mean(), start - 0.5 * off.mean()
            steps += 1
            time.sleep(nap)
            goes_on = ctx.report((off**2).mean())
            ctx.save((slope, start, done, steps))
            if not goes_on:
                return slope, start, done, steps
        done += 1
    return slope, start, done, steps


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        points = (
            "SELECT i AS n, i / 5000 AS x, 3 * i / 5000 + 1 AS y, 'a' || i % 3 AS t FROM range(5000) AS r(i)"
        )
        shuffle(duckdb.sql(points), folder / "points", partitions=8)

    return made_once(tmp_path_factory, "functions", make)


@pytest.fixture(scope="module")
def db(warehouse: Path) -> Iterator[Session]:
    with connect(warehouse, threads=1) as session:
        yield session


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


def test_a_function_learns_from_batches_and_reports(db: Session) -> None:
    run = db.run(line, {"passes": 4})
    slope, start, passes, steps = run.result()
    assert (slope, start) == pytest.approx((3.0, 1.0), abs=0.02)
    assert (passes, steps, len(run.losses)) == (4, 200, 200)
    assert (run.state, run.stop_reason, run.latest[3]) == ("returned", "the function has returned", 200)


def test_batches_have_each_row_once_in_an_order_of_the_seed(db: Session) -> None:
    def rows(ctx: Context, seed: int) -> list[Any]:
        return list(ctx.batches("SELECT n FROM points", rows=700, seed=seed))

    batches, again, other = (db.run(rows, {"seed": seed}).result() for seed in (0, 0, 1))
    assert [len(batch) for batch in batches] == [700] * 7 + [100]
    numbers = np.concatenate(batches)[:, 0]
    assert sorted(numbers) == list(range(ROWS))
    assert numbers.tolist() == np.concatenate(again)[:, 0].tolist()
    assert numbers.tolist() != np.concatenate(other)[:, 0].tolist()
    assert abs(np.corrcoef(numbers, np.arange(ROWS))[0, 1]) < 5 / np.sqrt(ROWS)


def test_batches_come_as_tables_and_data_frames(db: Session) -> None:
    def first(ctx: Context, form: Any) -> Any:
        return next(ctx.batches("SELECT n, t, y FROM points", rows=3_000, target="y", form=form))

    table: pa.Table = db.run(first, {"form": "arrow"}).result()
    assert (table.column_names, table.num_rows) == (["n", "t", "y"], 3_000)
    frame, wanted = db.run(first, {"form": "pandas"}).result()
    assert list(frame.columns) == ["n", "t"]
    assert (frame.t == "a" + (frame.n.astype(int) % 3).astype(str)).all()
    assert wanted == pytest.approx(3 * frame.n / 5000 + 1)
    assert table["n"].to_pylist() == frame.n.tolist()


def test_goals_end_a_function_that_heeds_them(db: Session) -> None:
    reached = db.run(line, {"passes": 99}, until=0.01)
    late = db.run(line, {"passes": 9_999, "nap": 0.005}, timeout=0.3)
    assert reached.result()[3] == len(reached.losses)
    assert (reached.stop_reason, reached.losses[-1] <= 0.01) == ("target reached", True)
    assert late.result()[3] == len(late.losses)
    assert (late.stop_reason, late.state) == ("time is up", "returned")


def test_a_function_waits_for_its_turn(db: Session) -> None:
    """On one core: a query is answered long before a function without end would let go of it."""
    run = db.run(line, {"passes": 10**6})
    next(iter(run))
    assert db.online_sql("SELECT avg(y) AS y FROM points").result(timeout=30).is_exact
    before = len(run.losses)
    while len(run.losses) == before:
        assert not run.wait(0.01)
    run.stop()
    assert run.wait(timeout=30)
    assert run.stop_reason == "stopped"
    assert run.result()[3] > 0  # it heeded what report() said


def test_a_function_that_does_not_heed_is_let_go_of(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaqs.pacing.function_run.GRACE_SECONDS", 0.2)
    released = threading.Event()
    run = db.run(lambda ctx: [ctx.report(1.0), released.wait(20)])
    next(iter(run))
    run.stop()
    with pytest.raises(RelaqsError, match="stopped before it returned"):
        run.result()
    released.set()


def test_errors_are_those_of_the_function(db: Session) -> None:
    def fails(ctx: Context) -> None:
        raise KeyError("mine")

    def texts(ctx: Context) -> None:
        next(ctx.batches("SELECT t FROM points"))

    def wrong(ctx: Context) -> None:
        next(ctx.batches("SELECT nothing FROM points"))

    for function, error, match in (
        (fails, KeyError, "mine"),
        (texts, ArgumentError, "'t' is no number"),
        (wrong, SqlError, "nothing"),
        (lambda ctx: ctx.report("much"), ArgumentError, "is not one number"),
        (lambda ctx: next(ctx.batches(POINTS, form="list")), ArgumentError, "form is 'list'"),
        (lambda ctx: next(ctx.batches(POINTS, rows=0)), ArgumentError, "rows"),
    ):
        run = db.run(function)
        with pytest.raises(error, match=match):
            run.result()
        assert (run.state, run.stop_reason) == ("failed", "failed")
    for function, named, match in (
        (3, {}, "function is 3"),
        (line, {"until": "low"}, "until"),
        (line, {"timeout": -1}, "timeout"),
        (line, {"priority": 0}, "priority"),
    ):
        with pytest.raises(ArgumentError, match=match):
            db.run(function, **named)  # type: ignore[arg-type]


def test_an_error_that_was_caught_keeps_nothing_alive(db: Session) -> None:
    """Readers raise a copy: frames of theirs, and all that these hold, do not stay with the run."""
    run = db.run(lambda ctx: next(ctx.batches("SELECT nothing FROM points")))
    search = db.search(SGDClassifier(), {"alpha": [1.0]}, "SELECT nothing FROM points", target="x")
    runs: list[tuple[Any, Any]] = [(run, lambda: run.runner.error), (search, lambda: search._error)]
    for each, kept in runs:
        with pytest.raises(SqlError, match="nothing") as raised:
            each.result(timeout=60)
        assert raised.value is not kept()
        assert kept().__traceback__ is None


def test_code_that_knows_no_context_reports(db: Session) -> None:
    run = db.run(lambda ctx: [relaqs.report(loss) for loss in (3.0, 2.0, 1.0)], until=2.0)
    assert run.result() == [True, False, False]
    assert run.losses == (3.0, 2.0, 1.0)


def in_turns(db: Session, function: Any) -> tuple[Any, list[float], int]:
    """Return what a function returns that is called again after each `save`, its losses, and the turns."""
    plans: dict[Wanted, ReadsRows] = {}
    saved: Saved | None = None
    losses: list[float] = []
    for turns in range(1, 1000):
        turn = FunctionTurn(cloudpickle.dumps((function, {})), "f", saved, dict(plans), None, True)
        made = turn.run("f")
        losses += [reported.quality for reported in made.turn.reports]
        saved = made.saved or saved
        if made.wanted is not None:
            plans[made.wanted] = db._readable(made.wanted.sql, made.wanted.target)
        if made.value is not None:
            return cloudpickle.loads(made.value), losses, turns
    raise AssertionError("it never returns")


@pytest.fixture
def quick_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaqs.pacing.function_run.MOST_TURN_SECONDS", 0.0)


@pytest.mark.usefixtures("quick_turns")
def test_a_loop_that_was_left_begins_at_the_first_row(db: Session) -> None:
    """In the pass after it, also where a turn ends between them."""

    def passes(ctx: Context) -> list[list[int]]:
        seen: list[list[int]] = ctx.load([])
        while len(seen) < 3:
            rows: list[int] = []
            for batch in ctx.batches("SELECT n FROM points", rows=1000):
                rows += batch[:, 0].astype(int).tolist()
                if len(rows) == 2000 and len(seen) < 2:
                    break
            seen.append(rows)
            ctx.save(seen)
        return seen

    (first, second, whole), _, turns = in_turns(db, passes)
    assert (len(first), second, whole[:2000]) == (2000, first, first)
    assert sorted(whole) == list(range(ROWS))
    assert turns == 5  # the SELECT, three passes, and the end


@pytest.mark.usefixtures("quick_turns")
def test_a_turn_goes_on_behind_the_batch_that_was_saved(db: Session) -> None:
    """Also where two loops read the same rows at once, and where it saves before its loop begins again."""

    def starts(ctx: Context) -> list[int]:
        return [int(batch[0, 0]) for batch in ctx.batches("SELECT n FROM points", rows=500)]

    def pairs(ctx: Context) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = ctx.load([])
        one, other = (ctx.batches("SELECT n FROM points", rows=500) for _ in range(2))
        for first, second in zip(one, other, strict=True):
            seen.append((int(first[0, 0]), int(second[0, 0])))
            ctx.save(seen)
        return seen

    expected = db.run(starts).result()
    assert len(set(expected)) == 10
    assert in_turns(db, pairs) == (list(zip(expected, expected, strict=True)), [], 12)

    class Seat:
        kept: Saved | None = None

        def readable(self, sql: str, target: str | None) -> ReadsRows:
            return db._readable(sql, target)

        def note(self, loss: float) -> bool:
            return True

        def keep(self, saved: Saved) -> None:
            self.kept = saved

    seat = Seat()
    context = Context(seat, "f")
    for number, _ in enumerate(context.batches("SELECT n FROM points", rows=500), 1):
        context.save(number)
        if number == 3:
            break
    again = Context(seat, "f", seat.kept)
    again.save(again.load())
    assert starts(Context(seat, "f", seat.kept)) == expected[3:]
    again.save(starts(again))
    assert starts(Context(seat, "f", seat.kept)) == expected


@pytest.mark.usefixtures("quick_turns")
def test_what_is_reported_before_a_select_is_noted_once(db: Session) -> None:
    def several(ctx: Context) -> int:
        step = ctx.load(0)
        for at in range(step, 3):
            ctx.report(float(at))
            next(ctx.batches(f"SELECT n + {at} AS n FROM points"))
            ctx.report(at + 0.5)
            ctx.save(at + 1)
        ctx.report(9.0)
        next(ctx.batches("SELECT x FROM points"))
        return step

    assert in_turns(db, several)[:2] == (3, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 9.0])


def test_on_a_cluster_it_is_the_same_also_where_workers_die(
    cluster: LocalCluster, warehouse: Path, db: Session
) -> None:
    alone = db.run(line, {"passes": 3}).result()
    with Client(cluster, set_as_default=False) as client, connect(warehouse, cluster=client) as session:
        run = session.run(line, {"passes": 3, "nap": 0.02}, name="a line")
        while len(run.losses) < 40:
            assert not run.wait(0.01), run.runner.error
        assert [job.name for job in session.status().jobs] == ["a line"]
        assert session.online_sql("SELECT avg(y) AS y FROM points").result(timeout=60).is_exact
        for victim, losses in zip(client.run(os.getpid).values(), (60, 90), strict=True):
            os.kill(victim, signal.SIGKILL)
            while len(run.losses) < losses:
                assert not run.wait(0.01), run.runner.error
        assert run.result(timeout=120) == alone
        assert (len(run.losses), run.stop_reason) == (150, "the function has returned")


def test_on_a_cluster_goals_and_errors_are_the_same(cluster: LocalCluster, warehouse: Path) -> None:
    with Client(cluster, set_as_default=False) as client, connect(warehouse, cluster=client) as session:
        reached = session.run(line, {"passes": 99}, until=0.01)
        assert reached.result(timeout=60)[3] == len(reached.losses)
        assert (reached.stop_reason, reached.losses[-1] <= 0.01) == ("target reached", True)
        late = session.run(line, {"passes": 9_999, "nap": 0.005}, timeout=2.0)
        assert late.result(timeout=60)[3] == len(late.losses)
        assert late.stop_reason == "time is up"
        failed = session.run(line, {"passes": "many"})
        with pytest.raises(TypeError):
            failed.result(timeout=60)
        wrong = session.run(lambda ctx: next(ctx.batches("SELECT nothing FROM points")))
        with pytest.raises(SqlError, match="nothing"):
            wrong.result(timeout=60)
        silent = session.run(lambda ctx: 7)
        assert silent.result(timeout=60) == 7
        with pytest.raises(ArgumentError, match="cannot be sent"):
            session.run(lambda ctx, lock: lock, {"lock": threading.Lock()})
