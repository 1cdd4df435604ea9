"""Replayed partial aggregates give the product's own snapshots, and are matched to the exact answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.plans.composite import FIRST_DRAWN
from relaqs_engine.plans.plan import IntervalRequest, MiniBatch
from relaqs_tpch.exact import difference

import relaqs
from benchmarks.replay import Replay, RowGroupReplay, Truth, cut_at, nearest_batches
from relaqs.queries import start
from tests.engine.row_group_files import write_trips
from tests.relaqs.sessions import every_snapshot

SQL = """
    SELECT origin, avg(dep_delay) AS late, count(*) AS flights
    FROM flights WHERE distance > 500 GROUP BY origin
"""


@pytest.fixture(scope="module")
def replay(flights_by_aircraft: Path) -> Replay:
    return Replay(SQL, Catalog.open(flights_by_aircraft))


def test_a_replay_is_what_a_session_says(replay: Replay, flights_by_aircraft: Path) -> None:
    replayed = dict(replay.estimates(3, IntervalRequest()))
    with relaqs.connect(flights_by_aircraft, threads=1) as db:
        *shown, _ = every_snapshot(lambda: db.online_sql(SQL, seed=3))
    assert len(replayed) == len(replay.batches(3)) - 1
    assert [snapshot.batch - 1 for snapshot in shown] == sorted(replayed)
    assert [difference(each.table, replayed[each.batch - 1].table) for each in shown] == [None] * len(shown)


def test_a_replay_of_row_groups_is_what_a_session_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = RowGroupRules(1, 1e-5, FIRST_DRAWN + 1, 0.25)
    monkeypatch.setattr(start, "RowGroupRules", lambda cores: rules)
    file = write_trips(tmp_path / "trips.parquet", rows=50_000, row_groups=100)
    sql = "SELECT zone, sum(fare) AS fare, count(*) AS n FROM trips GROUP BY zone"
    how = Opening(CacheUse(Cache(tmp_path / "cache")))
    replay = RowGroupReplay(sql, Catalog.of_sources({"trips": file}, how), (0.01, 0.25))
    [(share, replayed)] = replay.looks(3, (0.01, 0.25), IntervalRequest())
    replay.close()
    with relaqs.connect(file, threads=1, background_layouts=False) as db:
        *_, shown, _ = every_snapshot(lambda: db.online_sql(sql, seed=3))
    assert share == 0.25
    assert difference(shown.table, replayed.table) is None


def test_mini_batches_are_cut_where_no_end_of_one_is_near() -> None:
    batches = (MiniBatch(0, ((3,),), True), MiniBatch(1, ((1, 4, 5, 2), (0, 6, 7, 8, 9)), False))
    assert cut_at(batches, (0.1,)) == batches
    assert cut_at(batches, (0.1, 0.3, 0.7)) == (
        batches[0],
        MiniBatch(1, ((1, 4),), False),
        MiniBatch(2, ((5, 2), (0, 6)), False),
        MiniBatch(3, ((7, 8, 9),), False),
    )


def test_only_what_is_wanted_is_estimated(replay: Replay) -> None:
    everything = dict(replay.estimates(0, IntervalRequest()))
    some = dict(replay.estimates(0, IntervalRequest(), lambda index: index in (1, 4)))
    assert some.keys() == {1, 4}
    assert all(some[i].table.equals(everything[i].table) for i in some)


def test_cells_are_matched_to_the_exact_answer_by_their_keys(replay: Replay, flights_oracle) -> None:
    answer = flights_oracle.table(f"{SQL} ORDER BY origin DESC")
    truth = Truth.of(replay.plan, answer)
    assert (truth.keys, truth.columns) == (("origin",), ("late", "flights"))
    [(_, estimate)] = replay.estimates(0, IntervalRequest(), lambda index: index == 4)
    groups, look = truth.look(estimate)
    origins = answer.column("origin").to_pylist()
    assert [origins[group] for group in groups] == estimate.table.column("origin").to_pylist()
    assert look.truth[:, 1].tolist() == [answer.column("flights").to_pylist()[group] for group in groups]
    assert np.all(look.low < look.high)


def test_a_query_without_error_bars_is_refused(flights_by_aircraft: Path) -> None:
    with pytest.raises(SystemExit, match="the query has no error bars: "):
        Replay("SELECT max(dep_delay) AS latest FROM flights", Catalog.open(flights_by_aircraft))


def test_the_nearest_mini_batch_is_never_the_exact_one() -> None:
    sizes, order = (1, 1, 2, 4, 2), iter(range(10))
    batches = tuple(
        MiniBatch(i, (tuple(next(order) for _ in range(size)),), False) for i, size in enumerate(sizes)
    )
    assert nearest_batches(batches, (0.01, 0.2, 0.45, 0.9, 1.0)) == (0, 1, 2, 3, 3)
