"""A folder of SQL queries over a folder of Parquet files, for the coverage benchmark.

Each query is asked of a session, as users ask it, so every kind of plan is looked at. A query without
estimates before its end has no cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.plans.plan import Mode

from benchmarks.coverage_cases import PARTITIONS, Case, once
from benchmarks.gate_data import TABLES
from benchmarks.held import WholeAnswer, without_limit
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from benchmarks.tally import FIELDS, FloatArray, counts_of
from relaqs import connect
from relaqs.executors.threads import usable_cores
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session

SHAPES = Path(__file__).with_name("shapes")
MEMORY_LIMIT = "2GB"
NEARLY = 0.95  # of a fraction counts as having read it


@dataclass(frozen=True, slots=True)
class Suite:
    """What is asked, and how its tables are laid out.

    name: of the data. queries: a folder of <name>.sql. files: a folder of <table>.parquet. sampled: the
    cluster key of each table that is sampled, () for rows; others are static. partitions: of each of them.
    """

    name: str
    queries: Path
    files: Path
    sampled: dict[str, tuple[str, ...]]
    partitions: int

    def cases(self, names: Sequence[str] = ()) -> tuple[Case, ...]:
        """Return the queries, those of these names where some are given. Raises SystemExit."""
        found = tuple(_case(path) for path in sorted(self.queries.glob("*.sql")))
        if unknown := set(names) - {case.name for case in found}:
            raise SystemExit(f"{self.queries} has no query {sorted(unknown)[0]}.sql")
        return tuple(case for case in found if not names or case.name in names)

    def warehouse(self, seed: int, into: Path) -> Path:
        """Return a warehouse whose layouts have this seed, made below `into` if it is not there."""
        folder = into / f"{self.name}-{self.partitions}-{seed}"
        for table, (file,) in files_of_folder(self.files).items():
            once(folder / table, partial(self._lay_out, table, file, seed=seed))
        return folder

    def _lay_out(self, table: str, file: Path, path: Path, seed: int) -> object:
        if table not in self.sampled:
            return add_static(str(file), path)
        key = self.sampled[table] or None
        return shuffle(str(file), path, partitions=self.partitions, cluster_by=key, seed=seed)

    def answers(self, cases: Sequence[Case]) -> dict[str, pa.Table]:
        """Return what plain DuckDB answers to each case, without LIMIT."""
        with PlainDuckDB(files_of_folder(self.files), threads=usable_cores()) as oracle:
            return {case.name: oracle.table(without_limit(case.sql)) for case in cases}


def shapes(name: str, into: Path) -> Suite:
    """Return the queries of the folder `shapes` over the halves of a made-up table of the gate.

    into: where the files are made, if they are not there. Raises SystemExit where there is no such table.
    """
    made = {table.name: table.rows for table in TABLES if table.rows}
    if name not in made:
        raise SystemExit(f"--shapes: there is no data {name!r}; there are {', '.join(made)}")
    files = into / "shapes" / name
    if not (files / "two.parquet").exists():
        files.mkdir(parents=True, exist_ok=True)
        rows = made[name]()
        half = rows.num_rows // 2
        pa.parquet.write_table(rows.slice(0, half), files / "one.parquet")
        pa.parquet.write_table(rows.slice(half), files / "two.parquet")
    return Suite(name, SHAPES, files, {"one": (), "two": ()}, PARTITIONS)


def _case(path: Path) -> Case:
    return Case(path.stem, "suite", path.read_text(encoding="utf-8").strip().rstrip(";"))


def sampled_of(text: str) -> dict[str, tuple[str, ...]]:
    """Return the cluster keys by table.

    >>> sampled_of("orders:o_custkey+o_region,items")
    {'orders': ('o_custkey', 'o_region'), 'items': ()}
    """
    pairs = (each.partition(":") for each in text.split(",") if each)
    return {table: tuple(key.split("+")) if key else () for table, _, key in pairs}


def count_looks(
    case: Case, folder: Path, answer: pa.Table, seeds: Sequence[int], fractions: Sequence[float]
) -> tuple[tuple[str, ...], dict[float, FloatArray]]:
    """Return the approximate columns, and by fraction the counts of each order: (orders, columns, FIELDS)."""
    with connect(folder, threads=1, memory_limit=MEMORY_LIMIT, exact_below_seconds=0) as session:
        if session.plan(case.sql).mode is Mode.EXACT:
            return (), {}
        orders = [_snapshots_at(session, case.sql, seed, fractions) for seed in seeds]
    shown = next((one for order in orders for one in order.values()), None)
    if shown is None:
        return (), {}
    whole = WholeAnswer.of(shown, answer)
    nothing = np.zeros((len(whole.columns), len(FIELDS)))
    counts = {
        fraction: np.stack(
            [counts_of(whole.look(order[fraction])) if fraction in order else nothing for order in orders]
        )
        for fraction in fractions
    }
    return tuple(column.name for column in whole.columns), counts


def _snapshots_at(session: Session, sql: str, seed: int, fractions: Sequence[float]) -> dict[float, Snapshot]:
    """Return by fraction the first snapshot that has read so much, unless it is exact."""
    found: dict[float, Snapshot] = {}
    try:
        with session.online_sql(sql, seed=seed) as query:
            for snapshot in _estimates(query):
                reached = [f for f in fractions if f not in found and snapshot.fraction >= NEARLY * f]
                found.update(dict.fromkeys(reached, snapshot))
                if len(found) == len(fractions):
                    break
    except RelaqsError as error:
        raise SystemExit(f"{error}\n{sql}") from error
    return found


def _estimates(snapshots: Iterator[Snapshot]) -> Iterator[Snapshot]:
    return (each for each in snapshots if each.columns and not each.is_exact)
