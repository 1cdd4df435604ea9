"""How many certified cells the intervals of estimates from row groups cover, over many orders of drawing.

    python -m benchmarks.plain_coverage [--lineitem FILE] [--flights FILE] [--seeds 200] [--row-groups 50 500]
                                        [--rows made:] [--drawn 8 20]

Where a line fails, the exit status is 1. FILE is TPC-H's lineitem (scale 0.1 is enough), and
`flights-3m.parquet` (npm package vega-datasets 3.2.1).
The partial results of each row group are computed once. Each seed draws some of them, as a query would, and
the real estimator makes intervals of their state. Cells are compared with the exact answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, Database, DatabaseConfig
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.row_groups import certain_sql, sample_sql
from relaqs_engine.execution.state import GroupState
from relaqs_engine.layouts.cache import Opening
from relaqs_engine.layouts.cache_folder import Cache
from relaqs_engine.layouts.cache_use import CacheUse
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.planning.row_group_rules import RowGroupRules
from relaqs_engine.plans.names import BLOCK
from relaqs_engine.plans.row_groups import FIRST_DRAWN, RowGroupPlan
from relaqs_engine.plans.schedule import MiniBatch, spread_order
from relaqs_engine.sql.binder import Binder
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.gate_tally import MANY
from benchmarks.plain_coverage_data import ROWS, TABLE, Rows, written
from relaqs.executors.row_group_files import RowGroupFileSystem

DRAWN = (FIRST_DRAWN, 24, 64)
ENOUGH_CELLS = 100
LOWEST_OF_MANY = 91.0
"""A question with 500 certified cells or more fails below that, in percent."""


@dataclass(slots=True)
class Tally:
    """Cells counted: seen, certified, and certified and covered. widths: of the certified, relative."""

    cells: int = 0
    certified: int = 0
    covered: int = 0
    widths: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another one counted as well."""
        self.cells += other.cells
        self.certified += other.certified
        self.covered += other.covered
        self.widths += other.widths

    @property
    def coverage(self) -> float:
        """Return the covered share of the certified cells, in percent."""
        return 100 * self.covered / max(1, self.certified)


@dataclass(frozen=True, slots=True)
class Line:
    """One question about one file with so many row groups drawn, and what was found over all seeds."""

    rows: str
    row_groups: int
    drawn: int
    question: str
    tally: Tally


def lines_of(
    rows: Rows, file: Path, row_groups: int, seeds: int, draws: Sequence[int] = DRAWN
) -> Iterator[Line]:
    """Yield what was found of each question about a file."""
    catalog = Catalog.of_sources({TABLE: file}, Opening(CacheUse(Cache(file.parent / "cache"))))
    config = DatabaseConfig(catalog.readable_directories, 1 << 30, files=catalog.readable_files)
    database = Database(config)
    database.serve(RowGroupFileSystem(config.files))
    binder = Binder(catalog)
    with closing(database), closing(database.cursor()) as cursor:
        for question in rows.questions:
            for drawn in draws:
                if drawn >= row_groups:
                    continue
                rules = RowGroupRules(1, 0.0, FIRST_DRAWN + 1, drawn / row_groups)
                plan = plan_query(question, catalog, binder, row_groups=rules)
                if isinstance(plan, RowGroupPlan) and len(plan.table.drawn_from) > plan.most_drawn:
                    tally = _tally(plan, cursor, seeds)
                    yield Line(rows.name, row_groups, plan.most_drawn, question, tally)


def _tally(plan: RowGroupPlan, cursor: Cursor, seeds: int) -> Tally:
    everything = plan.table.drawn_from
    partials = cursor.table(sample_sql(plan, plan.files(everything), 0))
    certain = [cursor.table(certain_sql(plan))] if plan.table.certain else []
    truth = _by_key(plan, cursor.table(plan.whole.exact_sql))
    found = Tally()
    for seed in range(seeds):
        order = spread_order(len(everything), plan.sizes, seed)
        found.add(_compared(plan, _estimate(plan, partials, certain, order, seed, cursor), truth))
    return found


def _estimate(
    plan: RowGroupPlan,
    partials: pa.Table,
    certain: list[pa.Table],
    order: Sequence[int],
    seed: int,
    cursor: Cursor,
) -> Estimate:
    """Return the estimate from the row groups of one order."""
    block = pc.index_in(partials.column(BLOCK).cast(pa.int64()), value_set=pa.array(order, pa.int64()))
    place = partials.column_names.index(BLOCK)
    mine = partials.set_column(place, BLOCK, block).filter(pc.is_valid(block))
    with closing(cursor.another()) as own:
        table = plan.drawn(seed)
        state = GroupState(plan.sample, table, own)
        state.fold(MiniBatch(0, (tuple(range(len(order))),), by_block=True), [*certain, mine])
        return Estimator(plan.sample, table, state, own, IntervalRequest()).estimate()


def _by_key(plan: RowGroupPlan, answer: pa.Table) -> dict[tuple[object, ...], dict[str, float]]:
    keys = [output.name for output in plan.outputs if output.kind.value == "key"]
    values = [output.name for output in plan.outputs if output.kind.value == "estimate"]
    return {
        tuple(str(row[key]) for key in keys): {name: float(row[name] or 0.0) for name in values}
        for row in answer.to_pylist()
    }


def _compared(
    plan: RowGroupPlan, estimate: Estimate, truth: dict[tuple[object, ...], dict[str, float]]
) -> Tally:
    found = Tally()
    keys = [output.name for output in plan.outputs if output.kind.value == "key"]
    for row in estimate.table.to_pylist():
        exact = truth[tuple(str(row[key]) for key in keys)]
        for column in estimate.approximate:
            found.cells += 1
            if row[column.certified] and row[column.low] != row[column.high]:
                low, high, value = float(row[column.low]), float(row[column.high]), exact[column.name]
                rounding = 1e-9 * abs(value)
                found.certified += 1
                found.covered += low - rounding <= value <= high + rounding
                found.widths.append((high - low) / 2 / max(abs(value), 1e-300))
    return found


def _shown(lines: Sequence[Line], console: Console) -> None:
    shown = Table(
        "rows", "row groups", "drawn", "cells", "certified", "covered", "worst", "±", box=SIMPLE_HEAD
    )
    for key in dict.fromkeys((line.rows, line.row_groups, line.drawn) for line in lines):
        mine = [line for line in lines if (line.rows, line.row_groups, line.drawn) == key]
        together = Tally()
        for line in mine:
            together.add(line.tally)
        worst = min((line.tally.coverage for line in mine if line.tally.certified >= ENOUGH_CELLS), default=0)
        width = f"{100 * float(np.median(together.widths)):.1f} %" if together.widths else "–"
        share = f"{100 * together.certified / max(1, together.cells):.0f} %"
        covered = f"{together.coverage:.1f} %" if together.certified else "–"
        shown.add_row(
            *(key[0], str(key[1]), str(key[2]), f"{together.cells:,}", share, covered),
            f"{worst:.1f} %" if worst else "–",
            width,
        )
    console.print(shown)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lineitem", type=Path, metavar="FILE")
    parser.add_argument("--flights", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--row-groups", type=int, nargs="+", default=[12, 20, 50, 100, 200, 500])
    parser.add_argument("--drawn", type=int, nargs="+", default=DRAWN, help="how many are read")
    parser.add_argument("--rows", nargs="+", help="only rows with these words in their names")
    parser.add_argument(
        "--questions", action="store_true", help="a line for each question that is covered badly"
    )
    given = parser.parse_args(arguments)
    console = Console(width=140)
    lines: list[Line] = []
    with TemporaryDirectory() as folder:
        for rows in ROWS:
            if given.rows and not any(word in rows.name for word in given.rows):
                continue
            if ("{lineitem}" in rows.sql and not given.lineitem) or (
                "{flights}" in rows.sql and not given.flights
            ):
                continue
            for count in given.row_groups:
                file = written(rows, count, Path(folder), given.lineitem, given.flights)
                lines += lines_of(rows, file, count, given.seeds, given.drawn)
                file.unlink()
    _shown(lines, console)
    for line in lines if given.questions else ():
        if line.tally.certified >= ENOUGH_CELLS and line.tally.coverage < 93:
            console.print(
                f"{line.rows}, {line.drawn} of {line.row_groups}: {line.tally.coverage:.1f} %", line.question
            )
    failed = [x for x in lines if x.tally.certified >= MANY and x.tally.coverage < LOWEST_OF_MANY]
    console.print(f"{len(failed)} of {len(lines)} lines failed")
    every = Tally()
    for line in lines:
        every.add(line.tally)
    console.print(
        f"all: {every.certified:,} of {every.cells:,} cells certified, {every.coverage:.1f} % covered"
    )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
