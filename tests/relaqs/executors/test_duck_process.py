"""The runtime of one process: hoists built once, within a budget, and statements stopped without races."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from relaqs_engine.duck import (
    Cursor,
    Database,
    DatabaseConfig,
    Interrupted,
    open_databases,
)
from relaqs_engine.errors import DataError, MemoryLimitError, OverdueError, SqlError
from relaqs_engine.plans.plan import Hoist

from relaqs.executors import duck_process as worker
from relaqs.executors.duck_process import DATABASE_COUNT, HoistStore, QueryWork, Runtime, held_bytes
from relaqs.executors.files import UnseenFileError
from relaqs.memory import resident_bytes_of_duckdb
from tests.relaqs.executors.toy_jobs import DATABASE, LONG_SQL, LongQuery, query_work

SMALL_BYTES = 256 << 20


def numbers(name: str, count: int = 10) -> Hoist:
    """A hoist of so many 8-byte numbers that DuckDB cannot compress."""
    return Hoist(name, f"SELECT hash(a) AS h FROM range({count}) t(a)", ())


def has_table(cursor: Cursor, name: str) -> bool:
    return bool(cursor.rows(f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{name}'"))


class CountingCursor(Cursor):
    """Counts the tables that are built through it."""

    def __init__(self, database: Database, built: list[str]) -> None:
        super().__init__(database.cursor()._connection)
        self._built = built

    def run(self, sql: str) -> None:
        if sql.startswith("CREATE"):
            self._built.append(sql)
        super().run(sql)


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database(DatabaseConfig(readable=(), memory_limit_bytes=SMALL_BYTES))
    yield database
    database.close()


def test_threads_that_need_a_hoist_at_once_build_it_once(database: Database) -> None:
    store = HoistStore(SMALL_BYTES)
    built: list[str] = []
    together = threading.Barrier(4)

    def count(_: int) -> int:
        cursor = CountingCursor(database, built)
        together.wait()
        with store.held([numbers("shared", 2_000_000)], cursor, nullcontext):  # slow enough to collide
            return int(cursor.rows("SELECT count(*) FROM shared")[0][0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(4))) == [2_000_000] * 4
    assert len(built) == 1


def test_a_hoist_may_read_the_hoists_before_it(database: Database) -> None:
    store, cursor = HoistStore(SMALL_BYTES), database.cursor()
    with store.held(
        [numbers("first"), Hoist("second", "SELECT * FROM first LIMIT 3", ())], cursor, nullcontext
    ):
        assert cursor.rows("SELECT count(*) FROM second") == [(3,)]


def test_over_the_budget_the_least_recently_used_go(database: Database) -> None:
    rows = 1_000_000  # 8 MB a table
    store, cursor = HoistStore(20_000_000), database.cursor()
    for name in ("a", "b", "a", "c"):
        with store.held([numbers(name, rows)], cursor, nullcontext):
            pass
    assert [has_table(cursor, name) for name in ("a", "b", "c")] == [True, False, True]
    assert 16_000_000 <= held_bytes(cursor) <= 20_000_000
    with store.held([numbers("b", rows)], cursor, nullcontext):  # built again when asked for
        assert cursor.rows("SELECT count(*) FROM b") == [(rows,)]


def test_a_hoist_in_use_is_never_dropped_and_goes_when_it_is_free(database: Database) -> None:
    store, cursor, other = HoistStore(0), database.cursor(), database.cursor()
    with store.held([numbers("mine")], cursor, nullcontext):
        with store.held([numbers("theirs")], other, nullcontext):
            assert has_table(cursor, "mine")
            assert has_table(cursor, "theirs")
        assert has_table(cursor, "mine")
        assert not has_table(cursor, "theirs")
    assert not has_table(cursor, "mine")


def test_a_hoist_that_failed_can_be_tried_again(database: Database) -> None:
    store, cursor = HoistStore(SMALL_BYTES), database.cursor()
    with (
        pytest.raises(DataError, match="Conversion"),
        store.held([Hoist("h", "SELECT 'x'::INT AS h", ())], cursor, nullcontext),
    ):
        pass
    with store.held([numbers("h")], cursor, nullcontext):
        assert cursor.rows("SELECT count(*) FROM h") == [(10,)]


def test_a_task_brings_its_hoists_along() -> None:
    work = QueryWork(DATABASE, (numbers("carried", 7),), "SELECT count(*) AS n FROM carried")
    assert work.run("job").to_pydict() == {"n": [7]}
    assert pickle.loads(pickle.dumps(work)) == work


def test_each_thread_has_one_cursor_of_a_shared_database() -> None:
    runtime, sql = Runtime(), "SELECT 1 AS one"
    with ThreadPoolExecutor(1) as pool:
        ids = [pool.submit(cursor_of, runtime, sql).result() for _ in range(2)]
    assert ids[0] is ids[1]
    assert ids[0] is not cursor_of(runtime, sql)


def cursor_of(runtime: Runtime, sql: str) -> Cursor:
    runtime.query(QueryWork(DATABASE, (), sql), "job")
    with runtime._using(DATABASE) as database:
        return database.cursor()


def test_a_database_that_is_no_longer_wanted_is_closed() -> None:
    runtime = Runtime()
    configs = [DatabaseConfig((), SMALL_BYTES + i) for i in range(DATABASE_COUNT + 1)]
    for config in configs:
        runtime.query(QueryWork(config, (), "SELECT 1"), "job")
    assert list(runtime._open) == configs[1:]
    runtime.close_database(configs[1])
    assert list(runtime._open) == configs[2:]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = DatabaseConfig((str(tmp_path),), SMALL_BYTES)
    work = QueryWork(config, (), f"SELECT * FROM read_parquet('{tmp_path}/part-3.parquet')")
    with pytest.raises(UnseenFileError, match=r"part-3\.parquet is not there; restore it") as raised:
        work.run("job")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_text("not parquet")
    config = DatabaseConfig((str(tmp_path),), SMALL_BYTES)
    with pytest.raises(DataError, match=r"broken\.parquet' .*; restore the file, or lay the table") as raised:
        QueryWork(config, (), f"SELECT * FROM read_parquet('{tmp_path}/broken.parquet')").run("job")
    assert not isinstance(raised.value, UnseenFileError)
    assert "LINE" not in str(raised.value)
    assert str(raised.value).startswith("the data could not be read: ")
    with pytest.raises(DataError, match=r"Could not convert string '/a' to INT32; TRY_CAST gives NULL"):
        query_work("SELECT '/a'::INTEGER + x FROM range(3) AS t(x)").run("job")
    with pytest.raises(SqlError, match="nothing"):
        query_work("SELECT nothing").run("job")


@pytest.mark.parametrize("expression", ["sum(x) // 0", "min(strptime('/' || x, '%Y'))", "error('x')"])
def test_an_expression_without_a_value_is_no_damaged_file(expression: str) -> None:
    """DuckDB raises the same class for both."""
    with pytest.raises(DataError, match=r"^DuckDB could not run the statement: Invalid Input Error: "):
        query_work(f"SELECT {expression} FROM range(3) AS t(x)").run("job")


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def test_interrupt_stops_the_job_s_statements_and_no_other_s(tmp_path: Path) -> None:
    pipe = tmp_path / "running"
    os.mkfifo(pipe)
    thread, errors = in_thread(lambda: LongQuery(str(pipe)).run("interrupted owner"))
    pipe.read_text()
    worker.interrupt("other")
    assert query_work("SELECT 1 AS one").run("another").num_rows == 1
    assert thread.is_alive()
    worker.interrupt("interrupted owner")
    thread.join(10)
    assert [type(error) for error in errors] == [Interrupted]


def test_an_interrupted_job_starts_no_statement_until_it_is_released() -> None:
    worker.interrupt("early")
    with pytest.raises(Interrupted, match="before this statement started"):
        query_work(LONG_SQL).run("early")
    worker.release("early")
    assert query_work("SELECT 1 AS one").run("early").num_rows == 1


def test_an_interruption_at_any_moment_of_a_statement_s_start_is_kept() -> None:
    """DuckDB alone loses those that come between the call and the start of its execution."""
    for round_number in range(40):
        job = f"race-{round_number}"
        is_about_to_start = threading.Event()

        def start(job: str = job, is_about_to_start: threading.Event = is_about_to_start) -> None:
            is_about_to_start.set()
            query_work(LONG_SQL).run(job)

        thread, errors = in_thread(start)
        is_about_to_start.wait()
        for _ in range(round_number * 50):  # lets more and more of the start pass, without a clock
            pass
        worker.interrupt(job)
        thread.join(10)
        assert [type(error) for error in errors] == [Interrupted], job


def test_a_hoist_under_construction_is_interrupted_and_built_by_the_next_job() -> None:
    held = "SELECT count(*) AS n FROM slow_hoist"
    slow = QueryWork(DATABASE, (Hoist("slow_hoist", LONG_SQL, ()),), held)
    thread, errors = in_thread(lambda: slow.run("builder"))
    worker.interrupt("builder")
    thread.join(10)
    assert [type(error) for error in errors] == [Interrupted]
    quick = QueryWork(DATABASE, (numbers("slow_hoist", 5),), held)
    assert quick.run("next").to_pydict() == {"n": [5]}


HAS_ALLOCATOR = pytest.mark.skipif(
    resident_bytes_of_duckdb() is None, reason="what DuckDB does not count is not known here"
)
UNCOUNTED_SQL = "SELECT max(length(repeat('x', 150000 + i::INT))) AS n FROM range(2_000_000) AS t(i)"


@HAS_ALLOCATOR
def test_a_statement_that_takes_uncounted_memory_is_stopped_and_told() -> None:
    runtime = Runtime()
    config = DatabaseConfig(readable=(), memory_limit_bytes=1 << 30, account_bytes=96 << 20)
    with pytest.raises(MemoryLimitError, match=r"have \d+ MiB .* memory_limit is 96 MiB; raise memory_limit"):
        runtime.query(QueryWork(config, (), UNCOUNTED_SQL), "monster")
    assert runtime.query(QueryWork(config, (), "SELECT 1 AS one"), "next").to_pydict() == {"one": [1]}


def test_a_statement_that_takes_longer_than_it_may_is_stopped_and_told() -> None:
    runtime = Runtime()
    with pytest.raises(OverdueError, match=r"not over after 0\.\d+ s") as told:
        runtime.query(QueryWork(DATABASE, (), LONG_SQL, longest_seconds=0.1), "slow")
    assert pickle.loads(pickle.dumps(told.value)).seconds == told.value.seconds > 0.1
    quick = QueryWork(DATABASE, (), "SELECT 1 AS one", longest_seconds=60.0)
    assert runtime.query(quick, "slow").to_pydict() == {"one": [1]}  # its owner was not interrupted


def test_two_databases_spill_within_one_account(tmp_path: Path) -> None:
    runtime = Runtime()
    numbers = "SELECT hash(x + {}) AS y FROM range(6000000) AS t(x)"
    sql = f"SELECT max(y) AS most FROM (SELECT y FROM ({numbers}) ORDER BY y DESC OFFSET 5)"
    configs = [
        DatabaseConfig((), SMALL_BYTES, str(tmp_path), threads=1 + i, account_bytes=SMALL_BYTES)
        for i in range(2)
    ]
    works = [QueryWork(config, (), sql.format(at)) for at, config in enumerate(configs)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(runtime.query, works, ["a", "b"]))
    assert together == [runtime.query(work, "alone") for work in works]
    assert [database.bound(SMALL_BYTES) for database in open_databases()]


def test_a_database_spills_what_it_can_when_it_is_given_less(tmp_path: Path) -> None:
    database = Database(DatabaseConfig((), SMALL_BYTES, str(tmp_path)))
    cursor = database.cursor()
    cursor.run("CREATE TABLE t AS SELECT hash(x) AS y FROM range(15000000) AS r(x)")  # 120 MB
    assert database.counted_bytes() > 100 << 20
    assert database.bound(0)
    assert database.counted_bytes() <= 64 << 20
    assert cursor.rows("SELECT count(*), current_setting('memory_limit') FROM t") == [(15000000, "64.0 MiB")]
    assert database.bound(1 << 40)  # never more than it was opened with
    assert cursor.rows("SELECT current_setting('memory_limit')") == [("256.0 MiB",)]


def test_the_account_is_of_each_owner_the_largest() -> None:
    runtime = Runtime()
    for owner, memory, account in [("", 64, 100), ("", 80, 0), ("ann", 64, 0)]:
        config = DatabaseConfig((), memory << 20, account_bytes=account << 20, owner=owner)
        runtime.query(QueryWork(config, (), "SELECT 1"), "job")
    assert runtime._account_bytes() == (100 + 64) << 20


@pytest.mark.parametrize("written_mib", [0, 200])
def test_a_database_may_have_what_the_others_leave_beside_what_lays_tables_out(
    monkeypatch: pytest.MonkeyPatch, written_mib: int
) -> None:
    bounds: list[tuple[int, int]] = []

    class Held:
        config = SimpleNamespace(memory_limit_bytes=800 << 20)

        def __init__(self, mib: int) -> None:
            self.mib = mib

        def counted_bytes(self) -> int:
            return self.mib << 20

        def bound(self, limit_bytes: int) -> bool:
            bounds.append((self.mib, limit_bytes >> 20))
            return True

    databases = [Held(350), Held(200)]
    monkeypatch.setattr(worker, "open_databases", lambda: databases)
    monkeypatch.setattr(worker, "_held_bytes", lambda: 550 + written_mib << 20)
    monkeypatch.setattr(worker, "_outside_bytes", lambda: 0)
    monkeypatch.setattr(worker, "written_bytes", lambda: written_mib << 20)
    monkeypatch.setattr(worker, "resident_bytes", lambda: 0)
    watch = worker.MemoryWatch(worker.Statements(), lambda: 1000 << 20, lambda cursors: None)
    monkeypatch.setattr(watch, "_gives_back", SimpleNamespace(now=lambda share: False))
    watch.look([])
    assert bounds == [(350, 700), (200, 550)]  # of 900 together
    bounds.clear()
    monkeypatch.setattr(worker, "_held_bytes", lambda: 400 + written_mib << 20)
    watch.look([])
    assert bounds == [(350, 800), (200, 800)]  # there is room


def test_garbage_that_grows_little_by_little_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    outside, looks = [100], list[int]()

    def give_back(*, is_thorough: bool) -> None:
        looks.append(outside[0])
        outside[0] = 105

    watch = worker.MemoryWatch(worker.Statements(), lambda: 1 << 40, lambda cursors: None)
    monkeypatch.setattr(worker, "_outside_bytes", lambda: outside[0] << 20)
    monkeypatch.setattr(watch, "_gives_back", SimpleNamespace(now=give_back))
    for _ in range(10):
        watch._clear_up()
        outside[0] += 10
    assert looks == [140, 145]


@pytest.mark.parametrize(("account_mib", "is_given"), [(400, True), (600, False)])
def test_freed_memory_goes_back_once_statements_are_over(
    monkeypatch: pytest.MonkeyPatch, account_mib: int, is_given: bool
) -> None:
    """A process of 501 MiB gives memory back where that is beyond its account, and else keeps it."""
    for name, seconds in (("TICK_SECONDS", 0.001), ("QUIET_SECONDS", 0.01), ("ASLEEP_SECONDS", 0.2)):
        monkeypatch.setattr(worker, name, seconds)
    monkeypatch.setattr(worker, "resident_bytes", lambda: 501 << 20)
    monkeypatch.setattr(worker, "_held_bytes", lambda: 0)  # of other tests
    given: list[float] = []
    watch = worker.MemoryWatch(worker.Statements(), lambda: account_mib << 20, lambda cursors: None)
    monkeypatch.setattr(watch, "_gives_back", SimpleNamespace(now=given.append))
    watch._look_while_statements_run()
    assert bool(given) is is_given


def test_what_earlier_statements_left_comes_out_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it in a server. Elsewhere it may be tables of a user, and counts up to 160 MiB."""
    account = 512 << 20
    watch = worker.MemoryWatch(worker.Statements(), lambda: account, lambda cursors: None)
    watch._first_bytes = 150 << 20
    for outside_mib, embedded_mib in ((150, 64), (240, 154), (322, 160), (4000, 160)):
        outside_bytes = outside_mib << 20
        watch._outside_bytes = outside_bytes  # it was there when this watch began
        monkeypatch.setattr(worker, "_outside_bytes", partial(int, outside_bytes))
        for is_server, left_mib in ((False, embedded_mib), (True, outside_mib - 128)):
            monkeypatch.setattr(worker, "is_of_server", partial(bool, is_server))
            left = account - (left_mib << 20)
            assert watch._full_bytes(account) == max(account // 2, min(int(0.9 * account), left))


def test_memory_is_watched_while_jobs_fold_what_their_statements_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partial results and answers are held then, though no statement runs."""
    names = ("TICK_SECONDS", "_TICK_OF_JOBS_SECONDS", "QUIET_SECONDS", "ASLEEP_SECONDS")
    for name, seconds in zip(
        names, (0.001, 0.001, 0.01, 0.5), strict=True
    ):  # beside others a look takes 20 ms
        monkeypatch.setattr(worker, name, seconds)
    folding = iter([True] * 50)
    monkeypatch.setattr(worker, "is_any_running", lambda: next(folding, False))
    looks: list[object] = []
    watch = worker.MemoryWatch(worker.Statements(), lambda: 1 << 40, lambda cursors: None)
    monkeypatch.setattr(watch, "look", looks.append)
    watch._look_while_statements_run()
    assert looks == [[]] * 50


def test_memory_is_watched_while_a_statement_runs_however_long_its_files_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are checked for longer than the watch looks for statements: it is there for this one too."""
    monkeypatch.setattr(worker, "ASLEEP_SECONDS", 0.05)
    runtime = worker._RUNTIME
    seen: list[bool] = []
    run = worker.Statements.running

    @contextmanager
    def slow(self: worker.Statements, owner: str, cursor: Cursor, longest: float) -> Iterator[None]:
        with run(self, owner, cursor, longest):
            yield
            seen.append(runtime.memory._thread is not None)

    check = runtime._files.check
    monkeypatch.setattr(
        runtime._files, "check", lambda *given, **more: (time.sleep(0.2), check(*given, **more))
    )
    monkeypatch.setattr(worker.Statements, "running", slow)
    query_work("SELECT 7 AS x").run("watched")
    assert seen == [True]
