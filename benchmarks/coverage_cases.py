"""What the coverage benchmark asks, and of which layouts: rows or clusters as sampling units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_tpch import query as tpch_query

from relaqs.cli import data as flights

PARTITIONS = 100


@dataclass(frozen=True, slots=True)
class Case:
    """A query and the data it reads: "tpch", "flights" or "suite", which is a folder of files."""

    name: str
    data: str
    sql: str


@dataclass(frozen=True, slots=True)
class Units:
    """What is sampled of the data as a whole: each row, or all rows with the same cluster key."""

    name: str
    cluster_key: tuple[str, ...] = ()


CASES: tuple[Case, ...] = (
    *(Case(f"Q{number}", "tpch", tpch_query(number)) for number in (1, 6, 14, 19)),
    # Rows that count depend on an average, which no value is equal to.
    Case(
        "above",
        "tpch",
        "SELECT l_returnflag, count(*) AS n, sum(l_quantity) AS s, avg(l_tax) AS a FROM lineitem "
        "WHERE l_extendedprice > (SELECT 1.5 * avg(l_extendedprice) FROM lineitem WHERE l_shipmode = 'AIR') "
        "GROUP BY l_returnflag",
    ),
    # 185 groups of 1 to 5,124 flights, with delays of either sign and a long tail.
    Case(
        "delays",
        "flights",
        "SELECT carrier, month, avg(dep_delay) AS dep_delay, avg(arr_delay) AS arr_delay "
        "FROM flights GROUP BY carrier, month",
    ),
    # 224 groups of 1 to 11,262 flights.
    Case(
        "routes",
        "flights",
        "SELECT origin, dest, count(*) AS flights, sum(distance) AS miles, sum(air_time) AS minutes "
        "FROM flights GROUP BY origin, dest",
    ),
    # 1.1 in a hundred flights, in three groups of 1,158 to 1,515.
    Case(
        "late",
        "flights",
        "SELECT origin, count(*) AS flights, sum(arr_delay) AS delay, avg(distance) AS distance "
        "FROM flights WHERE arr_delay > 180 GROUP BY origin",
    ),
)

UNITS: dict[str, tuple[Units, ...]] = {
    "tpch": (Units("rows"), Units("l_orderkey", ("l_orderkey",))),
    "flights": (Units("rows"), Units("tailnum", ("tailnum",))),
}
TPCH_TABLES = ("lineitem", "part")


def warehouse(data: str, units: Units, seed: int, files: Path, into: Path) -> Path:
    """Return the folder of one layout, made below `into` if it is not there. files: the original Parquet."""
    folder = into / f"{data}-by-{units.name}-{seed}"
    if data == "flights":
        if not (folder / flights.SAMPLED / MANIFEST_NAME).exists():
            flights.lay_out(
                folder, cluster_by=units.cluster_key, partitions=PARTITIONS, seed=seed, force=True
            )
        return folder
    once(folder / "part", lambda path: add_static(str(files / "part.parquet"), path))
    once(
        folder / "lineitem",
        lambda path: shuffle(
            str(files / "lineitem.parquet"),
            path,
            partitions=PARTITIONS,
            cluster_by=units.cluster_key or None,
            seed=seed,
        ),
    )
    return folder


def flights_files(into: Path) -> Path:
    """Return a folder with the flights' tables as Parquet files, made if it is not there."""
    if not (into / f"{flights.SAMPLED}.parquet").exists():
        into.mkdir(parents=True, exist_ok=True)
        flights.write_parquet(into)
    return into


def chosen(names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases of these names, all where none is given."""
    known = {case.name.lower(): case for case in CASES}
    wanted = [name.strip().lower() for name in names]
    wanted = [f"q{name}" if name.isdigit() else name for name in wanted]
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"there is no query {unknown[0]!r}; the queries are {', '.join(known)}")
    return tuple(known[name] for name in wanted) or CASES


def once(table: Path, make: Callable[[Path], object]) -> None:
    """Make a table at this path if it is not there, aside first: one that was not finished is none."""
    if not (table / MANIFEST_NAME).exists():
        table.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=table.parent.parent) as aside:
            make(Path(aside, table.name))
            Path(aside, table.name).replace(table)
