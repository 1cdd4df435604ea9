"""The handle of a running query, over the real runner and executor, and a job held back by a gate."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import signal
import threading
import weakref

import pyarrow as pa
import pytest

import relaqs
from relaqs.executors import ThreadExecutor
from relaqs.jobs.job import StepReport
from relaqs.progress import StopReason
from relaqs.queries.online_query import OnlineQuery, QueryTimeoutError
from relaqs.queries.snapshot import Snapshot

STEPS = 40


def test_iterating_gives_rising_fractions_and_ends_exact(gate, start) -> None:
    gate.let()
    query = start()
    snapshots = list(query)
    fractions = [snapshot.fraction for snapshot in snapshots]
    assert fractions == sorted(set(fractions))
    assert snapshots[-1].is_exact
    assert (snapshots[-1].error, snapshots[-1].batch, snapshots[-1].batches) == (0.0, STEPS, STEPS)
    assert query.state == "exact"


def test_a_slow_loop_skips_and_meets_the_last(gate, start) -> None:
    query = start()
    gate.let(1)
    loop = iter(query)
    assert next(loop).batch == 1
    gate.let()
    assert query.wait(10)
    assert [snapshot.batch for snapshot in loop] == [STEPS]


def test_two_loops_each_see_the_last(gate, start) -> None:
    gate.let()
    query = start()
    seen: list[list[Snapshot]] = []
    threads = [threading.Thread(target=lambda: seen.append(list(query))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [snapshots[-1] for snapshots in seen] == [query.latest, query.latest]


def test_iterating_after_the_end_gives_the_last_snapshot_once(gate, start) -> None:
    gate.let()
    query = start()
    last = query.result()
    assert list(query) == [last]
    assert next(query) is last
    with pytest.raises(StopIteration):
        next(query)


def test_result_runs_to_the_end(gate, start) -> None:
    gate.let()
    query = start()
    assert query.result().is_exact
    assert query.result() is query.latest
    assert query.state == "exact"


@pytest.mark.parametrize("until", [0.2, "20%"])
def test_result_until_an_error_ends_the_query(gate, start, until) -> None:
    gate.let()
    query = start()
    snapshot = query.result(until=until)
    assert snapshot.error <= 0.2
    assert query.wait(10)
    assert query.state == ("exact" if snapshot.is_exact else "stopped")


def test_result_within_a_time_gives_the_newest_snapshot(gate, start) -> None:
    query = start()
    gate.let(3)
    while query.latest is None or query.latest.batch < 3:
        next(query)
    assert query.result(timeout=0.01).batch == 3
    assert query.state == "stopped"


def test_result_within_a_time_that_no_snapshot_meets(gate, start) -> None:
    query = start()
    with pytest.raises(QueryTimeoutError, match=r"no snapshot came within 0\.01 s"):
        query.result(timeout=0.01)
    assert query.state == "stopped"


def test_a_target_stops_the_query(gate, start) -> None:
    gate.let()
    query = start(target=0.1)
    snapshots = list(query)
    assert snapshots[-1].error <= 0.1
    assert all(snapshot.error > 0.1 for snapshot in snapshots[:-1])
    assert not snapshots[-1].is_exact
    assert (query.state, query.stop_reason) == ("stopped", StopReason.TARGET)


def test_a_query_stops_when_its_chart_would_not_change(gate, start) -> None:
    gate.let()
    query = start(chart_pixels=50)
    *before, last = query  # a slow loop skips some of those before
    assert (query.state, query.stop_reason) == ("stopped", StopReason.NO_VISIBLE_CHANGE)
    # One bar as high as the chart: the error is how much of its 50 pixels is uncertain.
    assert last.error * 50 < 1
    assert all(snapshot.error * 50 >= 1 for snapshot in before)


def test_a_target_can_be_set_while_the_query_runs(gate, start) -> None:
    query = start()
    gate.let(2)
    while next(query).batch < 2:
        pass
    query.target = "90%"
    assert query.target == 0.9
    assert (query.state, query.stop_reason) == ("stopped", StopReason.TARGET)
    assert query.wait(10)


def test_a_query_that_is_paused_says_so_when_its_time_is_up(gate, start) -> None:
    query = start()
    query.pause()
    with pytest.raises(QueryTimeoutError, match=r"was paused; call resume\(\)"):
        query.result(timeout=0.01)


def test_a_timeout_stops_the_query_with_its_newest_snapshot(gate, start) -> None:
    gate.let(2)
    query = start(timeout=0.2)
    batches = [snapshot.batch for snapshot in query]
    assert batches[-1] == 2
    assert (query.state, query.stop_reason) == ("stopped", StopReason.TIME)
    assert query.result().batch == 2


def test_a_timeout_before_the_first_snapshot_is_an_error(gate, start) -> None:
    query = start(timeout=0.01)
    with pytest.raises(QueryTimeoutError, match="more partitions"):
        next(query)
    with pytest.raises(TimeoutError):
        query.result()
    assert isinstance(QueryTimeoutError(), relaqs.RelaqsError)


def test_stopping_ends_loops_and_frees_the_cores(gate, start) -> None:
    query = start()
    gate.let(1)
    assert next(query).batch == 1
    query.stop()
    assert query.state == "stopped"
    gate.let(2)  # the tasks that run may end; no other starts
    assert query.wait(10)
    assert [snapshot.batch for snapshot in query] == [1]
    query.stop()
    assert query.state == "stopped"


def test_stopping_before_the_first_snapshot(start) -> None:
    query = start()
    query.stop()
    assert list(query) == []
    with pytest.raises(relaqs.RelaqsError, match="before its first snapshot"):
        query.result()


def test_leaving_the_with_stops_the_query(gate, start) -> None:
    with start() as query:
        gate.let(1)
        next(query)
    assert query.state == "stopped"


def test_pausing_holds_the_query_and_resuming_ends_it(gate, start) -> None:
    query = start()
    assert query.state == "waiting"
    gate.let(1)
    next(query)
    assert query.state == "running"
    query.pause()
    assert query.state == "paused"
    gate.let()
    assert next(query).batch < STEPS  # what was in flight is folded, and no more is issued
    assert not query.wait(0.05)
    assert query.state == "paused"
    query.resume()
    assert query.result().is_exact


def test_a_failure_is_raised_after_the_last_snapshot(gate, start) -> None:
    gate.let()
    query = start(fails_at=3)
    batches: list[int] = []
    with pytest.raises(relaqs.InternalError, match="ZeroDivisionError: this partition is broken") as failed:
        batches.extend(snapshot.batch for snapshot in query)
    # Two steps are in flight: the one that fails may be over before the one that was sent before it.
    assert query.latest is not None
    assert batches[-1] == query.latest.batch
    assert query.state == "failed"
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(relaqs.InternalError):
        query.result()


def test_a_function_of_two_snapshots_defines_the_error(gate, start) -> None:
    def change(before: Snapshot, now: Snapshot) -> float:
        return abs(now.table["mean"][0].as_py() / before.table["mean"][0].as_py() - 1)

    query = start(watch=change)
    gate.let(1)
    first = next(query)
    gate.let(1)
    second = next(query)
    assert first.error == float("inf")
    assert second.error == change(first, second)
    gate.let()
    assert query.result().error == 0.0


def test_the_scheduler_learns_what_the_user_s_function_says(gate, start, monkeypatch) -> None:
    reports: list[StepReport] = []
    monkeypatch.setattr(ThreadExecutor, "report", lambda self, job_id, report: reports.append(report))
    distances = {2: 0.5, 3: 0.25, 4: math.nan}
    gate.let()
    start(watch=lambda before, now: distances.get(now.batch, 0.125)).result()
    told = [(report.quality, report.progress) for report in reports]
    assert told[:3] == [(math.inf, 1.0), (0.5, 1.0), (0.25, 0.5)]
    assert told[3] == pytest.approx((math.nan, math.nan), nan_ok=True)
    assert told[4:-1] == [(0.125, 0.25)] * (STEPS - 5)
    assert told[-1] == (0.0, 0.0)  # exact


def test_a_watch_function_that_fails_fails_the_query(gate, start) -> None:
    gate.let()
    query = start(watch=lambda before, now: 1 / 0)
    with pytest.raises(relaqs.ArgumentError, match="`watch` failed: ZeroDivisionError"):
        query.result()
    assert query.state == "failed"


def test_priority_can_be_changed(gate, start) -> None:
    query = start(priority=2.0)
    assert query.priority == 2.0
    query.priority = 5
    assert query.priority == 5.0
    with pytest.raises(ValueError, match="priority is 0"):
        query.priority = 0
    query.stop()


def test_a_query_nobody_refers_to_stops(gate, start) -> None:
    query = start()
    runner, gone = query.runner, weakref.ref(query)
    gate.let(1)
    next(query)
    del query
    gc.collect()
    assert gone() is None
    gate.let(2)
    assert runner.wait(10)
    assert runner.state == "stopped"


def test_a_loop_keeps_its_query_alive(gate, start) -> None:
    gate.let()
    *_, last = start()
    assert last.is_exact


def test_ctrl_c_while_waiting_stops_the_query(gate, start) -> None:
    query = start()
    interrupt_when_waiting(query)
    with pytest.raises(KeyboardInterrupt):
        next(query)
    assert query.state == "stopped"


def interrupt_when_waiting(query: OnlineQuery) -> None:
    """Send ctrl-C to the main thread once it waits for a snapshot."""
    condition = query._publisher.feed._changed

    def send() -> None:
        while not condition._waiters:  # type: ignore[attr-defined]  # nothing else says that a wait has begun
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


def test_async_iteration_gives_the_same(gate, start) -> None:
    gate.let()

    async def read() -> list[Snapshot]:
        return [snapshot async for snapshot in start()]

    snapshots = asyncio.run(read())
    assert snapshots[-1].is_exact
    assert [s.batch for s in snapshots] == sorted({s.batch for s in snapshots})


def test_async_loops_run_beside_each_other_and_beside_other_tasks(gate, start) -> None:
    async def read(query: OnlineQuery) -> Snapshot:
        return [snapshot async for snapshot in query][-1]

    async def main() -> list[Snapshot]:
        query = start()
        readers = [asyncio.create_task(read(query)) for _ in range(3)]
        await asyncio.sleep(0)  # they wait now, and the loop is free all the same
        gate.let()
        return await asyncio.gather(*readers)

    lasts = asyncio.run(main())
    assert len({id(last) for last in lasts}) == 1
    assert lasts[0].is_exact


def test_a_cancelled_async_loop_stops_the_query_and_leaves_nothing_behind(gate, start) -> None:
    async def main() -> OnlineQuery:
        query = start()
        gate.let(1)
        assert (await anext(query)).batch == 1
        reader = asyncio.create_task(anext(aiter(query)))
        assert (await reader).batch == 1
        waiting = asyncio.create_task(anext(query))
        await asyncio.sleep(0)
        assert query._publisher.feed._wakers
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not query._publisher.feed._wakers
        return query

    query = asyncio.run(main())
    gate.let()
    assert query.wait(20)
    assert query.state == "stopped"
    assert query.result().batch == 1


@pytest.mark.parametrize("way", ["async for", "await"])
def test_a_timeout_of_asyncio_stops_the_query(gate, start, way) -> None:
    async def read(query: OnlineQuery) -> None:
        if way == "await":
            await query
        else:
            async for _ in query:
                pass

    async def main() -> OnlineQuery:
        query = start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await read(query)
        return query

    query = asyncio.run(main())
    gate.let()
    assert query.wait(20)
    assert query.state == "stopped"


def test_a_query_is_awaited_for_its_last_snapshot(gate, start) -> None:
    gate.let()

    async def both() -> tuple[Snapshot, Snapshot]:
        query = start()
        return await asyncio.gather(_awaited(query), _awaited(query))

    async def _awaited(query: OnlineQuery) -> Snapshot:
        return await query

    first, second = asyncio.run(both())
    assert first.is_exact
    assert first is second


def test_awaiting_a_query_raises_its_failure(gate, start) -> None:
    gate.let()

    async def main() -> Snapshot:
        return await start(fails_at=0)

    with pytest.raises(relaqs.InternalError):
        asyncio.run(main())


def test_leaving_its_block_stops_a_query_that_is_cancelled_between_snapshots(gate, start) -> None:
    async def read(query: OnlineQuery, entered: asyncio.Event) -> None:
        with query:
            async for _ in query:
                entered.set()
                await asyncio.Event().wait()

    async def main() -> OnlineQuery:
        query, entered = start(), asyncio.Event()
        gate.let(1)
        reader = asyncio.create_task(read(query, entered))
        await entered.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        return query

    query = asyncio.run(main())
    gate.let()
    assert query.wait(20)
    assert query.state == "stopped"


def test_an_async_failure_is_raised(gate, start) -> None:
    gate.let()

    async def read() -> None:
        async for _ in start(fails_at=0):
            pass

    with pytest.raises(relaqs.InternalError):
        asyncio.run(read())


def test_a_handle_says_what_it_is_in_one_line(gate, start) -> None:
    with relaqs.connect(tables={"t": pa.table({"x": [1]})}) as db, db.online_sql("SELECT x FROM t") as ended:
        ended.result()
        assert re.fullmatch(r"<OnlineQuery exact: Exact · \d+\.\d\d s>", repr(ended))
    query = start()
    assert repr(query) == "<OnlineQuery waiting: no snapshot yet>"
    assert query.sql == "SELECT avg(x) AS mean FROM numbers"
    query.stop()
