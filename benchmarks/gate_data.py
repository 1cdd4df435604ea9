"""What the gate reads: public tables that nobody prepared, and made-up ones that are hard to sample.

Heavy tails are hard however a table is read. Clusters of unlike size are hard where clusters are drawn, and
an order of the rows where row groups of a file are: values that rise, runs of NULLs, the rows of a user side
by side, one spoilt day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ROWS, FEWER_ROWS = 250_000, 100_000
GROUPS = 100
ROW_GROUPS = (70, 800)
"""In how many row groups a file is written. 8 to 64 of them are drawn: 11 to 90 % of 70, 1 to 8 % of 800."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Beside:
    """A table that another one is joined with. cluster_key: () makes it static, else it is laid out alike."""

    name: str
    rows: Callable[[], pa.Table]
    cluster_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One table and the parts of the expressions asked of it.

    value, other: two numeric columns. condition: what about a third of the rows meet. day: a date. keys: what
    is grouped by, the one with the most groups first. cluster_key: of its other layout.
    file: its name in the folder of public files; "" where `rows` makes it up, from a seed.
    stored: the ways of `benchmarks.gate_storage` in which it is read. where: conditions that choose rows.
    order: what the rows of a public file are sorted by where it is read by row groups.
    row_groups: how many a file has. joined: behind its name in FROM. beside: the tables that names.
    inner: what is asked about in the place of the table, a query of it in brackets.
    """

    name: str
    value: str
    other: str
    condition: str
    day: str
    keys: tuple[str, ...]
    cluster_key: str
    file: str = ""
    rows: Callable[..., pa.Table] | None = None
    stored: tuple[str, ...] = ("rows", "clusters")
    where: tuple[str, ...] = ()
    order: str = ""
    row_groups: tuple[int, ...] = ROW_GROUPS
    joined: str = ""
    beside: tuple[Beside, ...] = ()
    inner: str = ""


def unequal_clusters(random: np.random.Generator, count: int) -> IntArray:
    """Return the cluster of each row: of five rows on average and a few hundred at most."""
    return _repeated(random.lognormal(0.7, 1.2, count), count)


def pareto_clusters(random: np.random.Generator, count: int) -> IntArray:
    """Return the cluster of each row: the share s**-1.3 of the clusters has more than s rows."""
    return _repeated(1.0 + random.pareto(1.3, count), count)


def zipf_clusters(random: np.random.Generator, count: int) -> IntArray:
    """Return the cluster of each row, the r-th of them with a share of the rows that falls like 1 / r."""
    share = 1.0 / np.arange(1, count // 5 + 1)
    return np.sort(random.choice(len(share), count, p=share / share.sum()))


def _repeated(sizes: FloatArray, count: int) -> IntArray:
    return np.repeat(np.arange(count), np.ceil(sizes).astype(np.int64))[:count]


def made_up(
    draw: Callable[[np.random.Generator, int], FloatArray],
    count: int = ROWS,
    clusters: Callable[[np.random.Generator, int], IntArray] = unequal_clusters,
    seed: int = 0,
) -> pa.Table:
    """Return a table whose column x is drawn, in groups and clusters of very unequal size.

    g: 100 groups, a third of the rows in the largest and some hundredths of a percent in the smallest. u: the
    cluster, each within one group. w: one of four kinds, in every cluster. y: a tame column beside x. day: of
    one year.
    """
    random = np.random.default_rng(7 + seed)
    cluster = clusters(random, count)
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


def drifting(random: np.random.Generator, count: int) -> FloatArray:
    """Return values with a tail, the last ones three times as large as the first."""
    return random.lognormal(0.0, 1.0, count) * np.linspace(1.0, 3.0, count)


def zones() -> pa.Table:
    """Return a zone and a rate of each group of `made_up`."""
    group = np.arange(GROUPS, dtype=np.int32)
    return pa.table({"g": group, "zone": [f"zone {i}" for i in group % 12], "rate": 1.0 + group % 7})


def plans() -> pa.Table:
    """Return a plan and an age of each cluster of `made_up`."""
    cluster = np.arange(ROWS)
    random = np.random.default_rng(8)
    age = random.normal(40.0, 12.0, ROWS).clip(18.0, 90.0).round()
    return pa.table({"u": cluster, "plan": random.choice(5, ROWS).astype(np.int32), "age": age})


def in_order(
    name: str,
    x: str,
    k: str = "hash(i, s + 2) % 6",
    u: str = "i // 100",
    count: int = FEWER_ROWS,
    seed: int = 0,
) -> pa.Table:
    """Return rows in an order, made by SQL of i, the place of a row, u, whose rows they are, and s.

    s: goes with the seed and the name, so that no two tables have the same k and y. x: a value. k: one of a
    few kinds. y: a number from 0 to 9. day: of one year, which goes with the order.
    """
    s = 1_000 * crc32(name.encode()) + 10 * seed
    with duckdb.connect() as connection:
        return connection.sql(
            f"SELECT ({k})::INTEGER AS k, ({x})::DECIMAL(18, 3) AS x, (hash(i, s + 3) % 10)::INTEGER AS y, "
            f"u, DATE '2024-01-01' + (i * 366 // {count})::INTEGER AS day "
            f"FROM (SELECT i, ({u})::BIGINT AS u, {s} AS s FROM range({count}) AS r(i)) ORDER BY i"
        ).to_arrow_table()


def _made_up(
    name: str,
    condition: str,
    draw: Callable[[np.random.Generator, int], FloatArray],
    count: int = ROWS,
    *,
    stored: tuple[str, ...] = ("rows", "clusters"),
    clusters: Callable[[np.random.Generator, int], IntArray] = unequal_clusters,
) -> Table:
    rows = partial(made_up, draw, count, clusters)
    return Table(
        name, "x", "y", condition, "day", ("g", "w"), "u", rows=rows, stored=stored, where=("y > 7",)
    )


def _in_order(name: str, x: str, *, row_groups: tuple[int, ...] = ROW_GROUPS, **others: Any) -> Table:
    return Table(
        name, "x", "y", "y > 6", "day", ("k", "month(day)"), "u", rows=partial(in_order, name, x, **others),
        stored=("row groups",), where=("k < 3", "day < DATE '2024-05-01'"), row_groups=row_groups,
    )  # fmt: skip


def _per_user(
    name: str,
    user: str,
    key: str,
    amount: str,
    rows: str = "",
    *,
    file: str = "",
    clusters: Callable[[np.random.Generator, int], IntArray] = unequal_clusters,
) -> Table:
    """Return a table, to ask about each user's count n and sum s of amounts.

    rows: a condition that those have which count. file, clusters: of public rows, of ones made up.
    """
    where = f" WHERE {rows}" if rows else ""
    columns = f"min({key}) AS {key}, count(*) AS n, sum({amount}) AS s"
    return Table(
        name, "s", "n", "n > 2", "DATE '2024-01-01'", (key,), user, file=file,
        rows=None if file else partial(made_up, uniform, FEWER_ROWS, clusters), stored=("clusters",),
        inner=f"(SELECT {user}, {columns} FROM {name}{where} GROUP BY {user})",
    )  # fmt: skip


def _joined(name: str, key: str, stored: tuple[str, ...], other: str, beside: Beside, by: str) -> Table:
    return Table(
        name, "x", other, "y > 7", "day", (key, "w"), "u", rows=partial(made_up, lognormal),
        stored=stored, where=("y > 7",), joined=f" JOIN {beside.name} USING ({by})", beside=(beside,),
    )  # fmt: skip


_CALM, _LEVEL = "40 + hash(i, s + 1) % 21", "hash(i, s + 1) % 21 + if(i > {from_}, 60, 40)"
_RUN = "hash(i // 750, s)"  # of rows that go together: 0.5 to 6 row groups

TABLES: tuple[Table, ...] = (
    Table(
        "babynames", "n", "prop", "sex = 'F'", "make_date(CAST(year AS BIGINT), 7, 1)", ("year", "sex"),
        "name", file="babynames.parquet", stored=("rows", "clusters", "row groups"),
        order="year, sex, n DESC", where=("year >= 1950",),
    ),
    Table(
        "flights3m", "delay", "distance", "distance > 800", "date", ("origin", "month(date)"),
        "date", file="flights-3m.parquet", stored=("rows", "clusters", "row groups"), order="date",
        where=("delay > 60 AND distance < 500",),
    ),
    Table(
        "lineitem", "l_extendedprice", "l_quantity", "l_discount > 0.06", "l_shipdate",
        ("l_shipmode", "year(l_shipdate)"), "l_orderkey", file="lineitem.parquet", stored=("row groups",),
        order="l_shipdate, l_orderkey, l_linenumber",
        where=("l_partkey < 400", "l_receiptdate BETWEEN DATE '1993-03-10' AND DATE '1994-02-10'"),
    ),
    Table(
        "weather", "temp", "pressure", "humid > 60", "make_date(year, month, day)", ("month", "origin"),
        "time_hour", file="weather.parquet", stored=("rows",),
    ),
    Table(
        "flights", "dep_delay", "air_time", "distance > 800", "make_date(year, month, day)",
        ("month", "carrier"), "tailnum", file="flights.parquet", stored=("rows",),
    ),
    Table(
        "cities", "lat", "lon", "population > 5000", "DATE '2024-01-01'", ("country", "kind"), "city",
        file="cities.parquet", stored=("rows",),
    ),
    _per_user("by_aircraft", "tailnum", "carrier", "distance", "tailnum IS NOT NULL", file="flights.parquet"),
    _per_user("by_name", "name", "sex", "n", file="babynames.parquet"),
    _per_user("by_user", "u", "g", "y"),
    _per_user("by_unlike_user", "u", "g", "y", clusters=pareto_clusters),
    _made_up("pareto15", "x > 2", partial(pareto, shape=1.5), stored=("rows", "clusters", "row groups")),
    _made_up("pareto25", "x > 1.5", partial(pareto, shape=2.5)),
    _made_up("lognormal2", "x > 2", lognormal, stored=("rows", "clusters", "row groups")),
    _made_up("zeros", "y > 7", zeros),
    _made_up("spike", "y > 7", spike, 1_000_000),
    _made_up("uniform", "y > 7", uniform),
    _made_up("pareto13_units", "y > 7", uniform, FEWER_ROWS, stored=("clusters",), clusters=pareto_clusters),
    _made_up("zipf_units", "y > 7", uniform, FEWER_ROWS, stored=("clusters",), clusters=zipf_clusters),
    _made_up("drift", "y > 7", drifting, FEWER_ROWS, stored=("appended", "compacted")),
    _joined("zoned", "zone", ("rows", "clusters", "row groups"), "rate", Beside("zones", zones), "g"),
    _joined("planned", "plan", ("clusters",), "age", Beside("plans", plans, ("u",)), "u"),
    _in_order("calm", _CALM),
    _in_order("odd", f"({_CALM}) * if(i // 500 = 150, 2.9, 1)", row_groups=(200,)),
    _in_order("half_odd", f"({_CALM}) * if(i // 250 = 150, 2.9, 1)", row_groups=(200,)),
    _in_order("last_fifth", _LEVEL.format(from_=80_000)),
    _in_order("last_twentieth", _LEVEL.format(from_=95_000)),
    _in_order("rises", "i // 250 + hash(i, s + 1) % 100"),
    _in_order("seasons", "100 + 50 * sin(i / 5000) + hash(i, s + 1) % 40"),
    _in_order("null_runs", f"if({_RUN} % 10 < 6, NULL, 40 + hash(i // 750, s + 1) % 21)"),
    _in_order("few_nulls", f"if({_RUN} % 20 = 0, NULL, {_CALM})"),
    _in_order("few_values", f"if({_RUN} % 20 > 0, NULL, {_CALM})"),
    _in_order("words", "1 + 1000000 // (i + 10)"),
    _in_order(
        "zipf_runs", "(hash(i, s + 7) % 1000) / 10 * (1 + i / 100000)",
        k="1000 ** ((hash(u, s) % 1000003) / 1000003)", u="i // 50",
    ),
    _in_order("users", "1 + hash(u, s + 1) % 20 * (hash(i, s + 1) % 10)", k="hash(u, s + 2) % 12"),
    _in_order(
        "unlike_users", "1 + hash(u, s + 1) % 20 * (hash(i, s + 1) % 10)", k="hash(u, s + 2) % 6",
        u="floor(500 * (i / 100000) ** 2)",
    ),
)  # fmt: skip
