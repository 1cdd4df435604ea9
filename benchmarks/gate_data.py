"""What the gate reads: public tables that nobody prepared, and made-up ones with heavy tails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from relaqs_engine.layouts import shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME

from benchmarks.coverage_cases import PARTITIONS, Units

ROWS = 250_000
GROUPS = 100
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """One table and the parts of the expressions asked of it.

    value, other: two numeric columns. condition: what about a third of the rows meet. day: a date. keys: what
    is grouped by, the one with the most groups first. cluster_key: of its other layout.
    file: its name in the folder of public files; "" where `rows` makes it up.
    """

    name: str
    value: str
    other: str
    condition: str
    day: str
    keys: tuple[str, ...]
    cluster_key: str
    file: str = ""
    rows: Callable[[], pa.Table] | None = None


def made_up(draw: Callable[[np.random.Generator, int], FloatArray], count: int = ROWS) -> pa.Table:
    """Return a table whose column x is drawn, in groups and clusters of very unequal size.

    g: 100 groups, a third of the rows in the largest and some hundredths of a percent in the smallest. u: the
    cluster, of five rows on average and a few hundred at most, each within one group. w: one of four kinds,
    in every cluster. y: a tame column beside x. day: of one year.
    """
    random = np.random.default_rng(7)
    sizes = np.ceil(random.lognormal(0.7, 1.2, count)).astype(np.int64)
    cluster = np.repeat(np.arange(count), sizes)[:count]
    share = 1.0 / np.arange(1, GROUPS + 1) ** 1.3
    group_of = random.choice(GROUPS, count, p=share / share.sum())
    return pa.table(
        {
            "g": pa.array(group_of[cluster].astype(np.int32)),
            "u": pa.array(cluster),
            "w": pa.array(random.choice(4, count, p=(0.5, 0.3, 0.15, 0.05)).astype(np.int32)),
            "x": pa.array(draw(random, count)),
            "y": pa.array(random.uniform(1.0, 10.0, count).round(2)),
            "day": pa.array(np.datetime64("2024-01-01") + random.integers(0, 366, count)),
        }
    )


def pareto(random: np.random.Generator, count: int, *, shape: float) -> FloatArray:
    """Return values of at least 1, of which the share x**-shape is larger than x."""
    return 1.0 + random.pareto(shape, count)


def lognormal(random: np.random.Generator, count: int) -> FloatArray:
    return random.lognormal(0.0, 2.0, count)


def zeros(random: np.random.Generator, count: int) -> FloatArray:
    """Return nine zeros for each value that is none."""
    return np.where(random.random(count) < 0.9, 0.0, random.lognormal(0.0, 2.0, count))


def spike(random: np.random.Generator, count: int) -> FloatArray:
    """Return values between 0 and 100, one row in a million a million times larger."""
    values = random.uniform(0.0, 100.0, count)
    values[random.choice(count, -(-count // 1_000_000), replace=False)] = 1e6 * 100.0
    return values


def uniform(random: np.random.Generator, count: int) -> FloatArray:
    return random.uniform(0.0, 100.0, count)


def _made_up(
    name: str, condition: str, draw: Callable[[np.random.Generator, int], FloatArray], count: int = ROWS
) -> Table:
    return Table(name, "x", "y", condition, "day", ("g", "w"), "u", rows=partial(made_up, draw, count))


TABLES: tuple[Table, ...] = (
    Table(
        "babynames", "n", "prop", "sex = 'F'", "make_date(CAST(year AS BIGINT), 7, 1)", ("year", "sex"),
        "name", file="babynames.parquet",
    ),
    Table(
        "flights3m", "delay", "distance", "distance > 800", "date", ("origin", "month(date)"),
        "date", file="flights-3m.parquet",
    ),
    _made_up("pareto15", "x > 2", partial(pareto, shape=1.5)),
    _made_up("pareto25", "x > 1.5", partial(pareto, shape=2.5)),
    _made_up("lognormal2", "x > 2", lognormal),
    _made_up("zeros", "y > 7", zeros),
    _made_up("spike", "y > 7", spike, 1_000_000),
    _made_up("uniform", "y > 7", uniform),
)  # fmt: skip


def units_of(table: Table, kind: str = "") -> list[Units]:
    """Return what is sampled: "rows" as units, "clusters" with the same key, or both in turn."""
    units = {"rows": Units("rows"), "clusters": Units("clusters", (table.cluster_key,))}
    return [units[kind]] if kind else list(units.values())


def source_of(table: Table, public: Path | None, made: Path) -> Path | None:
    """Return the table's Parquet file, made if it is made up; None where the public one is not there."""
    if table.rows is None:
        path = public / table.file if public else None
        return path if path and path.exists() else None
    path = made / f"{table.name}.parquet"
    if not path.exists():
        made.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(table.rows(), path)
    return path


def lay_out(table: Table, units: Units, seed: int, source: Path, into: Path) -> Path:
    """Return a warehouse with one layout of the table, made below `into` if it is not there."""
    folder = into / f"{table.name}-by-{units.name}-{seed}"
    if not (folder / table.name / MANIFEST_NAME).exists():
        shuffle(
            str(source),
            folder / table.name,
            partitions=PARTITIONS,
            cluster_by=units.cluster_key or None,
            seed=seed,
        )
    return folder
