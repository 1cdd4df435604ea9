"""One query of the gate over one layout, counted in several orders."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import RelaqsError
from relaqs_engine.execution.interval_request import IntervalRequest

from benchmarks.coverage_cases import Units
from benchmarks.gate_queries import Query
from benchmarks.gate_tally import Spread
from benchmarks.plain_duckdb import PlainDuckDB
from benchmarks.replay import Replay, Truth, nearest_batches
from benchmarks.tally import FloatArray


@dataclass(frozen=True, slots=True)
class Run:
    """One query over one layout in several orders. source: the original rows. seeds: of the orders."""

    query: Query
    units: Units
    source: Path
    folder: Path
    seeds: tuple[int, ...]
    fractions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run counted. columns: which expressions, by their place in the query; others have no interval.

    counts: of each fraction, shape (orders, columns, FIELDS). spreads: of each fraction. refused: why the
    query has no error bars, or "".
    """

    run: Run
    columns: tuple[int, ...]
    counts: dict[float, FloatArray]
    spreads: dict[float, Spread]
    refused: str = ""


def count(run: Run) -> Counted:
    """Return the counts of one run. Runs in a process of its own."""
    try:
        replay = Replay(run.query.sql, Catalog.open(run.folder))
    except (RelaqsError, SystemExit) as error:
        return Counted(run, (), {}, {}, refused=" ".join(str(error).split()))
    with PlainDuckDB({run.query.table.name: [run.source]}, threads=1) as oracle:
        truth = Truth.of(replay.plan, oracle.table(run.query.sql))
    counts: dict[float, list[FloatArray]] = {fraction: [] for fraction in run.fractions}
    spreads = {fraction: Spread.of(truth) for fraction in run.fractions}
    for seed in run.seeds:
        nearest = nearest_batches(replay.batches(seed), run.fractions)
        for index, estimate in replay.estimates(seed, IntervalRequest(), nearest.__contains__):
            for fraction in (f for f, batch in zip(run.fractions, nearest, strict=True) if batch == index):
                counts[fraction].append(spreads[fraction].add(truth, estimate))
    replay.close()
    columns = tuple(int(name.removeprefix("e")) for name in truth.columns)
    return Counted(run, columns, {f: np.stack(each) for f, each in counts.items()}, spreads)


def carry_out(runs: Sequence[Run], processes: int) -> list[Counted]:
    """Return what each run counted, in the order of the runs."""
    done: dict[int, Counted] = {}
    spawn = multiprocessing.get_context("spawn")  # a process that forks with DuckDB's threads in it may hang
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        waiting = {pool.submit(count, run): i for i, run in enumerate(runs)}
        for future in as_completed(waiting):
            done[waiting[future]] = found = future.result()
            print(f"{len(done)}/{len(runs)} {found.run.folder.name}", file=sys.stderr, flush=True)
    return [done[i] for i in range(len(runs))]
