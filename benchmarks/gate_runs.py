"""One query of the gate over one table as it is stored, counted in several orders."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import RelaqsError
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.sql.binder import Binder

from benchmarks.gate_headline import errors_at_looks, errors_at_stops
from benchmarks.gate_queries import Query
from benchmarks.gate_storage import Stored
from benchmarks.gate_tally import Spread
from benchmarks.plain_duckdb import PlainDuckDB
from benchmarks.replay import NothingDrawn, Replay, RowGroupReplay, Truth
from benchmarks.tally import FloatArray


@dataclass(frozen=True, slots=True)
class Run:
    """One query over one table as it is stored, in several orders. seeds: of the orders."""

    query: Query
    stored: Stored
    seeds: tuple[int, ...]
    fractions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run counted. columns: which expressions, by their place in the query; others have no interval.

    counts: of each fraction, shape (orders, columns, FIELDS). spreads: of each fraction. errors: announced
    and true, of each snapshot whose one error is judged, shape (orders, snapshots, 2). refused: why
    expressions have no error bars, by place.
    """

    run: Run
    columns: tuple[int, ...]
    counts: dict[float, FloatArray] = field(default_factory=dict)
    spreads: dict[float, Spread] = field(default_factory=dict)
    errors: FloatArray | None = None
    refused: Mapping[int, str] = field(default_factory=dict)


def count(run: Run) -> Counted:
    """Return the counts of one run. Runs in a process of its own."""
    replay, refused = _replayed(run, run.stored.catalog())
    if replay is None:
        return Counted(run, (), refused=refused)
    answered = [i for i in range(len(run.query.expressions)) if i not in refused]
    with PlainDuckDB({name: [file] for name, file in run.stored.files.items()}, threads=1) as oracle:
        truth = Truth.of(replay.plan, oracle.table(run.query.sql_of(answered)))
    columns = tuple(int(name.removeprefix("e")) for name in truth.columns)
    try:
        if run.query.asks != "cells":
            errors = _errors(run, replay, truth)
            return Counted(run, columns, errors=errors, refused=refused)
        counts, spreads = _cells(run, replay, truth)
    finally:
        replay.close()
    return Counted(run, columns, counts, spreads, refused=refused)


def _errors(run: Run, replay: Replay | RowGroupReplay, truth: Truth) -> FloatArray:
    if run.query.asks == "headline":
        return errors_at_looks(replay, truth, run.seeds, run.fractions)
    assert isinstance(replay, Replay), "row groups say nothing of numbers of distinct values"
    return errors_at_stops(replay, truth, run.seeds)


def _cells(
    run: Run, replay: Replay | RowGroupReplay, truth: Truth
) -> tuple[dict[float, FloatArray], dict[float, Spread]]:
    counts: dict[float, list[FloatArray]] = {}
    spreads: dict[float, Spread] = {}
    for seed in run.seeds:
        for fraction, estimate in replay.looks(seed, run.fractions, IntervalRequest()):
            spread = spreads.setdefault(fraction, Spread.of(truth))
            counts.setdefault(fraction, []).append(spread.add(truth, estimate))
    return {fraction: np.stack(each) for fraction, each in counts.items()}, spreads


def _replayed(run: Run, catalog: Catalog) -> tuple[Replay | RowGroupReplay | None, dict[int, str]]:
    """Return the replay of the expressions that have error bars, and why the others have none.

    Where some of a query have none, none of it may have. Each is asked alone then.
    """
    places = range(len(run.query.expressions))
    try:
        return _replay(run, catalog, places), {}
    except (RelaqsError, SystemExit) as error:
        refused = dict.fromkeys(places, _why(error))
    if len(places) > 1:
        refused = dict(_refused_alone(run, catalog))
    answered = [i for i in places if i not in refused]
    try:
        return _replay(run, catalog, answered) if answered else None, refused
    except NothingDrawn as error:
        return None, refused | dict.fromkeys(answered, _why(error))


def _refused_alone(run: Run, catalog: Catalog) -> Iterator[tuple[int, str]]:
    binder = Binder(catalog)
    for i in range(len(run.query.expressions)):
        sql = run.query.sql_of([i])
        try:
            if run.stored.storage.row_groups:
                RowGroupReplay.planned(sql, catalog, binder, run.fractions[0])
            else:
                Replay.planned(sql, catalog)
        except (RelaqsError, SystemExit) as error:
            yield i, _why(error)


def _why(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _replay(run: Run, catalog: Catalog, places: Sequence[int]) -> Replay | RowGroupReplay:
    sql = run.query.sql_of(places)
    if run.stored.storage.row_groups:
        return RowGroupReplay(sql, catalog, run.fractions)
    return Replay(sql, catalog, run.stored.storage.share_needed)


def carry_out(runs: Sequence[Run], processes: int) -> list[Counted]:
    """Return what each run counted, in the order of the runs."""
    done: dict[int, Counted] = {}
    spawn = multiprocessing.get_context("spawn")  # a process that forks with DuckDB's threads in it may hang
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        waiting = {pool.submit(count, run): i for i, run in enumerate(runs)}
        for future in as_completed(waiting):
            done[waiting[future]] = found = future.result()
            print(f"{len(done)}/{len(runs)} {found.run.stored.path.name}", file=sys.stderr, flush=True)
    return [done[i] for i in range(len(runs))]
