"""A query goes on from its checkpoint, and from nothing else; its end is exact as if it had never stopped."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.execution import state
from relaqs_tpch.data import ORIGINALS

from relaqs import RelaqsError
from relaqs.opening import connect
from relaqs.queries.jobs import LARGEST_BYTES, SECONDS_BETWEEN, Checkpoint, SavedState, query_identity
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session
from tests.conftest import Oracle
from tests.rows import rows_of
from tests.turnstile import Turnstile

FLAGS = """
    SELECT l_returnflag, sum(l_extendedprice * (1 - l_discount)) AS revenue, count(*) AS lines
    FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag
"""
PAIRS = "SELECT l_partkey, l_suppkey, sum(l_quantity) AS q FROM lineitem GROUP BY l_partkey, l_suppkey"
DISTINCT = "SELECT l_returnflag, count(DISTINCT l_suppkey) AS s FROM lineitem GROUP BY 1 ORDER BY 1"
AGE_SECONDS = 1e6
ROWS = "SELECT l_orderkey, l_comment FROM lineitem WHERE l_quantity = 7 ORDER BY l_orderkey, l_linenumber"


REFINED = "SELECT count(*) AS n FROM lineitem WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem)"
AROUND = (
    "SELECT l_returnflag, count(*) AS n, rank() OVER (ORDER BY count(*)) AS place FROM lineitem GROUP BY 1"
)
WHOLE = "SELECT l_orderkey, row_number() OVER (ORDER BY l_orderkey) AS n FROM lineitem"
PLANNED = (
    *(FLAGS, PAIRS, DISTINCT, ROWS, REFINED, AROUND, WHOLE),
    "SELECT l_shipmode, l_linestatus, avg(l_tax), count(DISTINCT l_suppkey) FROM lineitem GROUP BY 1, 2",
    "SELECT o_orderpriority, sum(o_totalprice) / lag(sum(o_totalprice)) OVER (ORDER BY o_orderpriority) "
    "FROM orders GROUP BY 1",
    "SELECT avg(n), avg(s) FROM (SELECT l_orderkey, count(*) AS n, sum(l_tax) AS s FROM lineitem GROUP BY 1)",
)


@pytest.fixture(scope="module")
def db(tpch_warehouse: Path) -> Iterator[Session]:
    with connect(tpch_warehouse, threads=2) as session:
        yield session


def start(db: Session, sql: str, path: Path, *, resume: bool = True, **options: object) -> OnlineQuery:
    chosen = QueryOptions(**options)  # type: ignore[arg-type]
    return db.start(db.plan(sql), chosen, checkpoint=path, resume=resume)


def stopped_half_way(db: Session, sql: str, path: Path, turnstile: Turnstile) -> Snapshot:
    """Return the last snapshot of a query that was stopped after some mini-batches, its state kept."""
    turnstile.let(10)  # of twenty partitions
    query = start(db, sql, path)
    for snapshot in query:
        if snapshot.fraction > 0.2:
            break
    query.stop()
    turnstile.let()
    assert query.wait(20)
    assert query.latest is not None
    assert not query.latest.is_exact
    return query.latest


SUPPLIERS = """
    SELECT s_name, sum(l_quantity) AS q
    FROM lineitem JOIN (SELECT s_suppkey AS key, max(s_name) AS s_name FROM supplier GROUP BY s_suppkey)
    ON key = l_suppkey GROUP BY s_name ORDER BY s_name
"""


@pytest.mark.parametrize(
    "sql",
    [FLAGS, PAIRS, DISTINCT, ROWS, SUPPLIERS],
    ids=["few", "many", "distinct", "rows", "over a static subquery"],
)
def test_a_query_goes_on_where_it_was_and_ends_exact(
    db: Session, tpch_oracle: Oracle, tmp_path: Path, sql: str, turnstile: Turnstile
) -> None:
    path = tmp_path / "kept.arrow"
    before = stopped_half_way(db, sql, path, turnstile)
    again = start(db, sql, path)
    first = next(iter(again))
    assert first.fraction >= before.fraction
    assert first.elapsed_seconds >= before.elapsed_seconds
    last = again.result()
    assert last.is_exact
    in_order = sorted if "ORDER BY" not in sql else list
    assert in_order(zip(*last.estimate.to_pydict().values(), strict=True)) == in_order(tpch_oracle.rows(sql))


def test_it_goes_on_from_a_mini_batch_without_an_estimate_too(
    db: Session, tpch_oracle: Oracle, tmp_path: Path, turnstile: Turnstile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEW_STATE_ROWS", 0)
    path = tmp_path / "kept.arrow"
    before = stopped_half_way(db, PAIRS, path, turnstile)
    again = start(db, PAIRS, path)
    assert next(iter(again)).fraction >= before.fraction
    last = again.result()
    assert sorted(zip(*last.estimate.to_pydict().values(), strict=True)) == sorted(tpch_oracle.rows(PAIRS))


def test_the_first_snapshot_is_the_one_that_was_kept(
    db: Session, tmp_path: Path, turnstile: Turnstile
) -> None:
    path = tmp_path / "kept.arrow"
    before = stopped_half_way(db, FLAGS, path, turnstile)
    again = start(db, FLAGS, path)
    assert again.latest is not None  # at once, before anything is read
    if again.latest.fraction == before.fraction:
        assert again.latest.table.equals(before.table)
        assert again.latest.batch == before.batch
    again.stop()


def aged(path: Path) -> float:
    """Make the kept query as old as no other is, so that whoever goes on from it shows; return its age."""
    identity = json.loads(entries(path))["identity"]
    kept = Checkpoint(path, identity).load()
    assert kept is not None
    Checkpoint(path, identity).save(kept.state, AGE_SECONDS)
    return AGE_SECONDS


def entries(path: Path) -> bytes:
    content = path.read_bytes()
    with pa.ipc.open_file(content[content.index(b"ARROW1") :]) as reader:
        return reader.schema.metadata[b"relaqs"]


def test_a_plan_is_the_same_in_each_process(tpch_warehouse: Path) -> None:
    """Sets of texts have another order in each. Plans with one would not be met again in a checkpoint."""
    program = f"""
from relaqs.opening import connect
with connect({str(tpch_warehouse)!r}) as db:
    print(*map(repr, map(db.plan, {PLANNED!r})), sep="\\n")
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(printed) == 1


def test_a_query_survives_the_death_of_its_process(
    tpch_warehouse: Path, db: Session, tpch_oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "kept.arrow"
    program = f"""
import relaqs.jobs.checkpoint, relaqs.queries.jobs, sys, threading
relaqs.queries.jobs.SECONDS_BETWEEN = 0.0
relaqs.jobs.checkpoint.LARGEST_SHARE = 1.0
from relaqs.opening import connect
from relaqs.queries.options import QueryOptions
db = connect({str(tpch_warehouse)!r}, threads=2)
query = db.start(db.plan({FLAGS!r}), QueryOptions(batches=10), checkpoint={str(path)!r})
for snapshot in query:
    if snapshot.fraction > 0.3:
        query.pause()
        print(snapshot.fraction, flush=True)
        threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = float(process.stdout.readline())
        process.kill()
    age_seconds = aged(path)
    again = start(db, FLAGS, path, batches=10)
    assert again.latest is not None
    assert again.latest.fraction >= printed - 0.11  # the newest mini-batch may not have been kept yet
    assert again.latest.elapsed_seconds >= age_seconds
    assert rows_of(again.result().estimate) == tpch_oracle.rows(FLAGS)


@pytest.mark.parametrize(
    ("sql", "options"),
    [(FLAGS.replace("count(*)", "min(l_tax)"), {}), (FLAGS, {"seed": 1}), (FLAGS, {"batches": 10})],
    ids=["another query", "another order", "other mini-batches"],
)
def test_what_belongs_to_another_query_is_not_taken(
    db: Session, tmp_path: Path, sql: str, options: dict[str, int], turnstile: Turnstile
) -> None:
    path = tmp_path / "kept.arrow"
    stopped_half_way(db, FLAGS, path, turnstile)
    age_seconds = aged(path)
    assert start(db, FLAGS, path).result().elapsed_seconds > age_seconds
    assert start(db, sql, path, **options).result().elapsed_seconds < age_seconds


def test_equal_queries_that_are_written_differently_share_a_state(
    db: Session, tmp_path: Path, turnstile: Turnstile
) -> None:
    path = tmp_path / "kept.arrow"
    before = stopped_half_way(db, FLAGS, path, turnstile)
    query = start(db, " ".join(FLAGS.split()) + " -- the same", path)
    assert query.latest is not None
    assert query.latest.fraction >= before.fraction
    query.stop()


def test_other_data_of_the_same_name_are_not_continued(tpch_warehouse: Path, db: Session) -> None:
    raw = tpch_warehouse / ORIGINALS / "lineitem.parquet"
    plan = db.plan(FLAGS)
    with connect(tables={"lineitem": raw}, cache_directory=tpch_warehouse.parent / "cache") as other:
        identities = {query_identity(plan, each._catalog, 0, None) for each in (db, db, other)}
    assert len(identities) == 2


@pytest.mark.parametrize("content", [b"", b"relaqs checkpoint 2\n and then nothing", b"\0" * 4096])
def test_a_damaged_file_is_as_none(db: Session, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kept.arrow"
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=f"{path} is a damaged checkpoint; the query begins anew"):
        assert start(db, FLAGS, path).result().is_exact


def test_a_file_of_an_older_version_is_as_none(db: Session, tmp_path: Path) -> None:
    path = tmp_path / "kept.arrow"
    path.write_bytes(b"ARROW1\0\0 and so on")
    assert start(db, FLAGS, path).result().is_exact


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("resume", [True, False])
def test_the_checkpoint_of_a_run_is_not_replaced(
    db: Session, tmp_path: Path, resume: bool, is_damaged: bool
) -> None:
    path = tmp_path / "a.run"
    db.run(lambda ctx: 1, checkpoint=path).result(timeout=60)
    content = path.read_bytes()[: -1 if is_damaged else None]
    path.write_bytes(content)
    with pytest.raises(RelaqsError, match=r"checkpoint of a run; go on from it by db\.resume"):
        start(db, FLAGS, path, resume=resume)
    assert path.read_bytes() == content


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path) -> None:
    path, draws = tmp_path / "kept.arrow", random.Random(7)
    checkpoint = Checkpoint(path, "q")
    checkpoint.save(saved(pa.table({"k0": list(range(50))})), 5.0)
    kept = path.read_bytes()
    for _ in range(500):
        damaged = bytearray(kept)
        damaged[draws.randrange(len(kept))] ^= 1 << draws.randrange(8)
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match=str(path)):
            assert checkpoint.load() is None


def test_resume_false_begins_anew(db: Session, tmp_path: Path, turnstile: Turnstile) -> None:
    path = tmp_path / "kept.arrow"
    stopped_half_way(db, FLAGS, path, turnstile)
    age_seconds = aged(path)
    assert start(db, FLAGS, path, resume=False).result().elapsed_seconds < age_seconds


def test_a_folder_that_is_not_there_is_refused(db: Session, tmp_path: Path) -> None:
    with pytest.raises(RelaqsError, match="make it first"):
        start(db, FLAGS, tmp_path / "nowhere" / "kept.arrow")


def saved(rows: pa.Table) -> SavedState:
    return SavedState(3, rows, np.arange(4))


def test_a_state_is_kept_at_most_every_few_seconds(tmp_path: Path) -> None:
    now = 100.0
    checkpoint = Checkpoint(tmp_path / "kept.arrow", "q", clock=lambda: now)
    assert not checkpoint.is_due()
    now += SECONDS_BETWEEN
    assert checkpoint.is_due()
    checkpoint.save(saved(pa.table({"k0": [1, 2]})), 5.0)
    assert not checkpoint.is_due()
    kept = checkpoint.load()
    assert kept is not None
    assert (kept.state.folded, kept.elapsed_seconds) == (3, 5.0)
    assert kept.state.rows == pa.table({"k0": [1, 2]})
    assert kept.state.block_rows.tolist() == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.arrow"]


def test_a_state_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.arrow"
    Checkpoint(path, "q").save(saved(pa.table({"k0": ["x" * (LARGEST_BYTES + 1)]})), 1.0)
    assert not path.exists()


@pytest.mark.parametrize(
    ("sql", "is_kept"),
    [(FLAGS, True), (DISTINCT, True), (ROWS, True), (REFINED, False), (AROUND, False), (WHOLE, False)],
    ids=["one aggregation", "distinct", "rows", "refined", "around", "whole"],
)
def test_it_is_known_from_the_plan_what_a_checkpoint_keeps(
    db: Session, tmp_path: Path, turnstile: Turnstile, sql: str, is_kept: bool
) -> None:
    """What is kept is stopped before its end: a state that is no more needed is removed."""
    assert db.plan(sql).keeps_state is is_kept
    turnstile.let(10 if is_kept else math.inf)  # of twenty partitions
    query = start(db, sql, tmp_path / "kept")
    for snapshot in query:
        if snapshot.fraction > (0.2 if is_kept else 0.3):
            break
    query.stop()
    turnstile.let()
    assert query.wait(20)
    assert (tmp_path / "kept").exists() is is_kept
